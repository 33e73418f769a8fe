#include "repeats.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

namespace lowtide {
namespace {

constexpr std::size_t kMostSteps = 12;  // that run ops again for one buffer

bool resident(const Graph& graph, BufferId buffer) {
  return graph.buffer(buffer).residence == Residence::resident;
}

bool may_run_again(const Graph& graph, OpId id) {
  const Op op = graph.op(id);
  if (op.flags.collective || op.flags.must_not_recompute) return false;
  for (const Edge& edge : graph.edges()) {
    if (edge.before == id || edge.after == id) return false;
  }
  return std::ranges::all_of(op.writes, [&](VersionId write) {
    const Version version = graph.version(write);
    return !resident(graph, version.buffer) || (version.index > 0 && op.flags.may_skip_updates);
  });
}

class Remaking {
 public:
  // What blocks hold when step `at` of `draft` begins.
  Remaking(const Graph& graph, Draft& draft, std::size_t at, std::mt19937_64& random)
      : graph_(graph), draft_(draft), random_(random) {
    for (std::size_t b = 0; b < draft.blocks.size(); ++b) {
      const VersionId first = graph.buffer(draft.blocks[b].buffer).versions[0];
      if (!graph.version(first).writer) holds_[BlockId(b)] = first;
    }
    std::vector<bool> ran(graph.num_ops());
    for (std::size_t s = 0; s < at; ++s) {
      write(draft.steps[s], ran[draft.steps[s].op.index()]);
      ran[draft.steps[s].op.index()] = true;
    }
  }

  // A further block that holds `version`; none if that cannot be.
  std::optional<BlockId> remake(VersionId version) {
    const OpId id = *graph_.version(version).writer;
    if (!may_run_again(graph_, id)) return std::nullopt;
    const Op op = graph_.op(id);
    std::map<BufferId, BlockId> places;
    for (const VersionId write : op.writes) {
      const Version made = graph_.version(write);
      std::optional<BlockId> block;
      if (resident(graph_, made.buffer)) {
        block = block_of(made.buffer);
      } else if (made.index == 0) {
        block = add_block(made.buffer);
      } else {
        block = remake(graph_.buffer(made.buffer).versions[made.index - 1]);
      }
      if (!block) return std::nullopt;
      places[made.buffer] = *block;
    }
    for (const ValueId read : op.reads) {
      const VersionId needed = graph_.value(read).version;
      const BufferId buffer = graph_.version(needed).buffer;
      if (places.contains(buffer)) continue;
      const std::optional<BlockId> block = find(needed);
      if (!block) return std::nullopt;
      places[buffer] = *block;
    }
    DraftStep step{id, {}, {}, Bytes(0)};
    for (const ValueId read : op.reads)
      step.reads.push_back(places.at(graph_.version(graph_.value(read).version).buffer));
    for (const VersionId write : op.writes) step.writes.push_back(places.at(graph_.version(write).buffer));
    write(step, true);
    steps_.push_back(std::move(step));
    if (steps_.size() > kMostSteps) return std::nullopt;
    return places.at(graph_.version(version).buffer);
  }

  // What has to run before step `at`.
  const std::vector<DraftStep>& steps() const { return steps_; }

 private:
  void write(const DraftStep& step, bool again) {
    const Op op = graph_.op(step.op);
    for (std::size_t i = 0; i < op.writes.size(); ++i) {
      if (!again || !resident(graph_, graph_.version(op.writes[i]).buffer)) holds_[step.writes[i]] = op.writes[i];
    }
  }

  BlockId block_of(BufferId buffer) const {
    return BlockId(
        static_cast<std::size_t>(std::ranges::find(draft_.blocks, buffer, &Block::buffer) - draft_.blocks.begin()));
  }

  BlockId add_block(BufferId buffer) {
    draft_.blocks.push_back({buffer, StepIndex(0), StepIndex(1), Bytes(0)});
    return BlockId(draft_.blocks.size() - 1);
  }

  // A block that holds `version`, one of those there are or a further one.
  std::optional<BlockId> find(VersionId version) {
    std::vector<BlockId> found;
    for (const auto& [block, held] : holds_) {
      if (held == version) found.push_back(block);
    }
    const bool callers = resident(graph_, graph_.version(version).buffer);
    if (found.empty() && callers) return std::nullopt;
    if (found.empty() || (!callers && random_() % 4 == 0)) return remake(version);
    return found[random_() % found.size()];
  }

  const Graph& graph_;
  Draft& draft_;
  std::mt19937_64& random_;
  std::map<BlockId, VersionId> holds_;
  std::vector<DraftStep> steps_;
};

}  // namespace

bool add_repeat(const Graph& graph, Draft& draft, std::mt19937_64& random) {
  const std::size_t at = random() % draft.steps.size();
  const Op op = graph.op(draft.steps[at].op);
  if (op.reads.empty()) return false;
  const std::size_t operand = random() % op.reads.size();
  const VersionId version = graph.value(op.reads[operand]).version;
  const BlockId old = draft.steps[at].reads[operand];
  if (!draft.blocks[old.index()].offset || resident(graph, draft.blocks[old.index()].buffer)) return false;

  Draft changed = draft;
  Remaking remaking(graph, changed, at, random);
  const std::optional<BlockId> further = remaking.remake(version);
  if (!further) return false;
  const bool in_place = std::ranges::count(draft.steps[at].writes, old) > 0;
  const std::size_t end = in_place || random() % 2 == 0 ? changed.steps.size() : at + 1;
  for (std::size_t s = at; s < end; ++s) {
    std::ranges::replace(changed.steps[s].reads, old, *further);
    std::ranges::replace(changed.steps[s].writes, old, *further);
  }
  changed.steps.insert(changed.steps.begin() + static_cast<std::ptrdiff_t>(at), remaking.steps().begin(),
                       remaking.steps().end());
  draft = std::move(changed);
  return true;
}

}  // namespace lowtide
