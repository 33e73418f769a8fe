#include "explain/gains.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "lowtide/eager.h"
#include "trade/drops.h"
#include "trade/reruns.h"

namespace lowtide {
namespace {

// What it would gain to drop items of the step and make them again.
class Recomputing {
 public:
  explicit Recomputing(const Scene& scene)
      : scene_(scene), reruns_(to_reruns(scene.graph, scene.order)), item_of_(scene.graph.num_buffers(), kNone) {
    for (Item item = 0; item < reruns_.num_items(); ++item) item_of_[reruns_.buffer[item].index()] = item;
    candidate_.assign(reruns_.num_items(), false);
    for (const Item item : reruns_.candidates) candidate_[item] = reruns_.used_late[item];
  }

  // The best of dropping all, every other one, and all but as many as the root of their number.
  std::optional<RecomputeGain> of(const std::vector<BufferId>& members) const {
    std::vector<Item> items;
    for (const BufferId id : members) {
      const Item item = item_of_[id.index()];
      // What the op at the peak uses is there then in any case.
      if (item != kNone && candidate_[item] && !scene_.is_operand_at_peak(id)) items.push_back(item);
    }
    std::ranges::sort(items);
    const auto root = static_cast<std::size_t>(std::sqrt(static_cast<double>(items.size())));
    std::optional<RecomputeGain> best;
    for (const std::size_t stretch : {items.size() + 1, std::size_t{2}, root}) {
      if (stretch < 2) continue;
      std::vector<Item> dropped;
      for (std::size_t i = 0; i < items.size(); ++i) {
        if ((i + 1) % stretch != 0) dropped.push_back(items[i]);
      }
      const RecomputeGain gain = of_dropping(dropped);
      if (gain.gain > best.value_or(RecomputeGain{}).gain) best = gain;
    }
    return best;
  }

 private:
  static constexpr Item kNone = std::numeric_limits<Item>::max();

  RecomputeGain of_dropping(const std::vector<Item>& items) const {
    if (items.empty()) return {};
    Choice choice = keep_all(reruns_);
    for (const Item item : items) choice[item] = Fate::dropped;
    Dropping dropping(reruns_);
    const Runs& runs = dropping.runs_of(choice);
    std::vector<std::int64_t> held;
    const Outcome outcome = Evaluation(reruns_).of(runs, held);
    const Bytes gain = scene_.total[scene_.peak.index()] - peak_of(runs, held);
    return {items.size(), gain, Nanos(reruns_.costs_are_times ? static_cast<std::uint64_t>(outcome.cost) : 0)};
  }

  // With what is resident at each moment.
  Bytes peak_of(const Runs& runs, const std::vector<std::int64_t>& held) const {
    Bytes peak, resident;
    for (std::size_t i = 0; i < runs.size(); ++i) {
      if (!runs[i].again) resident = scene_.resident[runs[i].op];
      if (held[i] >= 0) peak = std::max(peak, resident + Bytes(static_cast<std::uint64_t>(held[i])));
    }
    return peak;
  }

  const Scene& scene_;
  Reruns reruns_;
  std::vector<Item> item_of_;    // by buffer
  std::vector<bool> candidate_;  // by item
};

Nanos transfer_time(Bytes bytes, Bytes per_second) {
  const double seconds = static_cast<double>(bytes.count()) / static_cast<double>(per_second.count());
  return Nanos(static_cast<std::uint64_t>(seconds * 1e9));
}

class SwapGains {
 public:
  SwapGains(const Scene& scene, Bytes per_second) : scene_(scene), per_second_(per_second), time_before_(1) {
    for (const OpId op : scene.order) time_before_.push_back(time_before_.back() + scene.graph.op(op).cost);
  }

  std::optional<SwapGain> of(const std::vector<BufferId>& members) const {
    std::vector<Scene::Absence> absences;
    Bytes moved;
    Nanos idle = Nanos::max();
    for (const BufferId id : members) {
      const std::optional<StepIndex> before = scene_.used_before[id.index()];
      const std::optional<StepIndex> after = scene_.used_after[id.index()];
      // What has no use on one side is let go of or fetched beyond this step: of that nothing is known here.
      if (!before || !after || *before == scene_.peak) continue;
      absences.push_back({id, before->next(), *after});
      moved += scene_.graph.buffer(id).size;
      idle = std::min(idle, time_before_[after->index()] - time_before_[before->index() + 1]);
    }
    if (absences.empty()) return std::nullopt;
    const Bytes gain = scene_.total[scene_.peak.index()] - scene_.peak_without(absences);
    if (gain == Bytes(0)) return std::nullopt;
    return SwapGain{gain, transfer_time(moved + moved, per_second_), idle};
  }

 private:
  const Scene& scene_;
  Bytes per_second_;
  std::vector<Nanos> time_before_;  // by step, and the end
};

}  // namespace

void add_gains(const Scene& scene, std::span<Group> groups, Bytes swap_per_second) {
  const SwapGains swapping(scene, swap_per_second);
  for (Group& group : groups) group.holder.swap = swapping.of(group.members);
  if (!scene.away.empty()) return;  // what runs again may read what is away then
  const Recomputing recomputing(scene);
  for (Group& group : groups) group.holder.recompute = recomputing.of(group.members);
}

Operands operands_at_peak(const Scene& scene) {
  std::vector<Scene::Absence> absences;
  Bytes size;
  for (const BufferId id : alive_at(scene.graph, scene.order, scene.lives, scene.peak)) {
    if (!scene.is_operand_at_peak(id)) continue;
    const Life life = scene.lives.lives[id.index()];
    absences.push_back({id, life.begin, life.end});
    size += scene.graph.buffer(id).size;
  }
  return {size, scene.peak_without(absences)};
}

Bytes peak_without_kept_gradients(const Scene& scene) {
  std::vector<StepIndex> first(scene.graph.num_buffers(), StepIndex(scene.order.size()));
  std::vector<StepIndex> last(scene.graph.num_buffers());
  scene.visit_uses([&](BufferId buffer, StepIndex step) {
    first[buffer.index()] = std::min(first[buffer.index()], step);
    last[buffer.index()] = step;
  });
  std::vector<Scene::Absence> absences;
  for (BufferId id(0); id.index() < scene.graph.num_buffers(); id = id.next()) {
    const Buffer buffer = scene.graph.buffer(id);
    if (buffer.role != Role::gradient || !is_left_by_step(scene.graph, buffer)) continue;
    const Life life = scene.lives.lives[id.index()];
    absences.push_back({id, life.begin, first[id.index()]});
    absences.push_back({id, last[id.index()].next(), life.end});
  }
  return scene.peak_without(absences);
}

}  // namespace lowtide
