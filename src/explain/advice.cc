#include "explain/advice.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/words.h"
#include "explain/gains.h"
#include "lowtide/budget.h"

namespace lowtide {
namespace {

constexpr std::uint64_t kNegligible = 100;  // a gain is at least this part of the total

std::string at(const OpPlace& place) {
  return place.source.empty() ? words("op '", place.name, "'") : place.source;
}

bool is_state(const Holder& holder) {
  return holder.kind == "parameter" || holder.kind == "optimizer state" || holder.kind == "gradient" ||
         holder.kind == "kept gradient" || holder.kind == "buffer";
}

class Advising {
 public:
  Advising(const Scene& scene, std::span<const Group> groups, const Explanation& explanation)
      : scene_(scene), groups_(groups), told_(explanation) {}

  std::vector<Advice> made() {
    plan_it();
    recompute();
    convert_less();
    let_gradients_go();
    split();
    std::ranges::stable_sort(given_, std::ranges::greater{}, &Advice::gain);
    shrink();
    return std::move(given_);
  }

 private:
  void give(Bytes gain, bool is_bound, std::string text) {
    if (gain.count() > told_.total.count() / kNegligible) given_.push_back({gain, is_bound, std::move(text)});
  }

  void plan_it() {
    if (!told_.planned) return;
    give(told_.total - *told_.planned, false,
         words("run it as planned: lowtide.compile(step, model=..., optimizer=...) moves operators to where they hold ",
               "the least and needs ", format_bytes(*told_.planned), " in all"));
  }

  void recompute() {
    const Holder* best = nullptr;
    const auto is_better = [](const RecomputeGain& one, const RecomputeGain& other) {
      return one.gain != other.gain ? one.gain > other.gain : one.time < other.time;
    };
    for (const Holder& holder : told_.holders) {
      if (holder.recompute && (!best || is_better(*holder.recompute, *best->recompute))) best = &holder;
    }
    if (!best) return;
    const std::string in = best->modules.empty() ? "" : words(" in ", best->modules);
    give(best->recompute->gain, false,
         words("recompute what ", at(*best->made_by), in,
               " makes: memory_budget=... of lowtide.compile or lowtide plan ",
               "chooses what to recompute; lowtide.recompute(module) or torch.utils.checkpoint does it by hand"));
  }

  void convert_less() {
    for (const Holder& holder : told_.holders) {
      if (holder.copy_of.empty() || holder.kind == "gradient") continue;
      give(holder.size, true,
           words("does ", at(*holder.made_by), " need its ", holder.dtype, " copy? It is there beside ", holder.copy_of,
                 ", and both are alive"));
    }
  }

  void let_gradients_go() {
    for (const Group& group : groups_) {
      if (group.holder.kind != "kept gradient") continue;
      give(told_.total - peak_without_kept_gradients(scene_), false,
           "let each gradient go once it is used: optimizer.zero_grad() as the last line of the step, not its first");
      return;
    }
  }

  void split() {
    give(told_.total - told_.without_operands, true,
         words("work in chunks, of the batch or of the tokens, at ", at(*told_.at),
               ": what that operator reads and writes is ", format_bytes(told_.operands), " by itself, in any order"));
  }

  void shrink() {
    Bytes state, of_batch;
    for (const Group& group : groups_) {
      const Holder& holder = group.holder;
      if (is_state(holder)) state += holder.size;
      if (!is_state(holder) && holder.kind != "constant") of_batch += holder.size;
    }
    if (state > of_batch) {
      given_.push_back({Bytes(0), true,
                        words("parameters, gradients and optimizer state are ", format_bytes(state),
                              " of it: a lighter optimizer, a smaller dtype or more devices; a smaller batch gains no "
                              "more than ",
                              format_bytes(of_batch))});
      return;
    }
    give(Bytes(of_batch.count() / 2), true, "halve the batch");
  }

  const Scene& scene_;
  std::span<const Group> groups_;
  const Explanation& told_;
  std::vector<Advice> given_;
};

}  // namespace

std::vector<Advice> advice_on(const Scene& scene, std::span<const Group> groups, const Explanation& explanation) {
  return Advising(scene, groups, explanation).made();
}

}  // namespace lowtide
