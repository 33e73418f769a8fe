#include "eager_iterations.h"

#include <algorithm>
#include <utility>

namespace lowtide::torch_runtime {

void EagerIterations::start_anew() {
  elsewhere_ = 0;
  paused_ = false;
}

int EagerIterations::count_blocked() {
  blocked_ = server_.escaped().empty() ? 0 : blocked_ + 1;
  return blocked_;
}

void EagerIterations::follow(Scripts variants, replay::Suits suits, bool record, std::int64_t arena_bytes) {
  recording_ = record;
  events_.clear();
  ops_.clear();
  // Nothing is served where there is no memory, whoever was told so.
  const auto fits = [&](const auto& variant) { return variant->arena_bytes() <= arena_bytes; };
  if (!std::all_of(variants.begin(), variants.end(), fits)) variants.clear();
  if (record && variants.empty()) {
    op_names_.watch();
  } else {
    op_names_.stop();
  }
  unplanned_ = 0;
  variants_ = std::move(variants);
  if (!variants_.empty()) server_.begin(variants_, suits);
}

EagerIterations::Outcome EagerIterations::finish() {
  Outcome outcome;
  outcome.unplanned = std::exchange(unplanned_, 0);
  if (variants_.empty()) return outcome;
  const std::vector<replay::Escaped> escaped = server_.end();
  outcome.tally = server_.tally();
  outcome.blocked = blocked_ > 0;
  outcome.escaped = static_cast<std::int64_t>(escaped.size());
  serve_outside(escaped);
  variants_.clear();
  return outcome;
}

// In all variants that have the line; which ones do is asked before any of them changes.
void EagerIterations::serve_outside(std::span<const replay::Escaped> escaped) {
  if (escaped.empty()) return;
  std::vector<std::vector<std::uint32_t>> lines(variants_.size());
  for (std::size_t v = 0; v < variants_.size(); ++v) {
    for (const replay::Escaped& block : escaped) {
      if (variants_[v]->begins_like(*block.script, block.line + 1)) lines[v].push_back(block.line);
    }
  }
  for (std::size_t v = 0; v < variants_.size(); ++v) variants_[v]->move_outside(lines[v]);
}

// By any thread: names are watched on the one that began the iteration.
void EagerIterations::drop_recording() {
  recording_ = false;
  events_ = {};
  ops_ = {};
}

void EagerIterations::give_up_recording() {
  drop_recording();
  op_names_.stop();
}

EagerIterations::Recording EagerIterations::take_recording() {
  Recording taken{replay::requests_in(events_), {}};
  for (const std::uint32_t op : ops_) taken.ops.push_back(op_names_.name(op));
  give_up_recording();
  return taken;
}

}  // namespace lowtide::torch_runtime
