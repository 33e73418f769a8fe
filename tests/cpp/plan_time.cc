#include "plan_time.h"

#include <algorithm>
#include <vector>

namespace lowtide {
namespace {

__extension__ using Wide = unsigned __int128;

class Timeline {
 public:
  Timeline(const Graph& graph, const Plan& plan)
      : graph_(graph), plan_(plan), wires_(2 * plan.tiers.size()), over_(plan.transfers.size()) {}

  Wide run() {
    for (std::size_t step = 0; step <= plan_.order.size(); ++step) {
      for (const bool stores : {true, false}) {
        for (std::size_t i = 0; i < over_.size(); ++i) {
          if (plan_.transfers[i].issue.index() == step && goes(i, stores)) start(i, stores);
        }
        for (std::size_t i = 0; i < over_.size(); ++i) {
          if (plan_.transfers[i].wait.index() == step && goes(i, stores)) now_ = std::max(now_, over_[i]);
        }
      }
      if (step < plan_.order.size()) now_ += cost_of(step);
    }
    return now_;
  }

 private:
  std::uint64_t cost_of(std::size_t step) const {
    const OpId op = plan_.order[step];
    const PartCount* part = plan_.parts.empty() ? nullptr : part_count(graph_, op, plan_.parts[step]);
    return (part != nullptr ? part->cost : graph_.op(op).cost).count();
  }

  const Block* block(BlockId id) const {
    return id.index() < plan_.blocks.size() ? &plan_.blocks[id.index()] : nullptr;
  }

  // Is it a store, or a load?
  bool goes(std::size_t transfer, bool stores) const {
    const Block* from = block(plan_.transfers[transfer].from);
    const Block* to = block(plan_.transfers[transfer].to);
    if (from == nullptr || to == nullptr || (stores ? from : to)->tier != 0) return false;
    const std::size_t tier = (stores ? to : from)->tier;
    return tier > 0 && tier <= plan_.tiers.size();
  }

  void start(std::size_t transfer, bool stores) {
    const Transfer& moved = plan_.transfers[transfer];
    const std::size_t tier = block(stores ? moved.to : moved.from)->tier - 1;
    const Link& link = plan_.tiers[tier].link;
    const std::uint64_t rate = (stores ? link.store_per_second : link.load_per_second).count();
    if (rate == 0) return;
    const std::uint32_t parts = std::max<std::uint32_t>(1, block(moved.from)->part.count);
    const Wide work = Wide{graph_.buffer(block(moved.from)->buffer).size.count() / parts} * 1'000'000'000;
    const Wide whole = work / rate;
    Wide& wire = wires_[2 * tier + (link.duplex && !stores ? 1 : 0)];
    wire = std::max(wire, now_) + link.latency.count() + (whole * rate < work ? whole + 1 : whole);
    over_[transfer] = wire;
  }

  const Graph& graph_;
  const Plan& plan_;
  Wide now_ = 0;
  std::vector<Wide> wires_;  // two for each tier; the second is used by duplex links only
  std::vector<Wide> over_;   // by transfer
};

}  // namespace

const PartCount* part_count(const Graph& graph, OpId op, const StepPart& step) {
  if (step.part.count < 2 || step.axis >= graph.num_axes(op)) return nullptr;
  for (const PartCount& count : graph.axis(op, step.axis).counts) {
    if (count.count == step.part.count) return &count;
  }
  return nullptr;
}

Nanos time_of(const Graph& graph, const Plan& plan) {
  const Wide time = Timeline(graph, plan).run();
  return time > Nanos::max().count() ? Nanos::max() : Nanos(static_cast<std::uint64_t>(time));
}

}  // namespace lowtide
