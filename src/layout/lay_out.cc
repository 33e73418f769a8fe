#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "lowtide/layout.h"

namespace lowtide {
namespace {

constexpr std::uint64_t kAutoSteps = 1'000'000'000;

// The most bytes alive at a time: no arena is smaller.
Bytes most_alive(std::span<const LayoutItem> items) {
  struct Change {
    StepIndex step;
    bool begins;  // what ends at a step is gone before anything begins there
    Bytes size;
  };
  std::vector<Change> changes;
  for (const LayoutItem& item : items) {
    if (item.begin >= item.end) continue;
    changes.push_back({item.begin, true, item.size});
    changes.push_back({item.end, false, item.size});
  }
  std::ranges::sort(changes, {}, [](const Change& change) { return std::pair(change.step, change.begins); });
  Bytes alive;
  Bytes most;
  for (const Change& change : changes) {
    if (change.begins) {
      most = std::max(most, alive += change.size);
    } else {
      alive -= change.size;
    }
  }
  return most;
}

Result<NamedLayout> best_of_all(std::span<const LayoutItem> items) {
  const Bytes bound = most_alive(items);
  Work work(kAutoSteps);
  std::optional<Result<NamedLayout>> best;
  for (const LayoutAlgorithm& algorithm : layout_algorithms()) {
    Result<Layout> made = algorithm.run(items, work);
    if (!made.ok()) {
      if (!best) best = made.error();
    } else if (!best || !best->ok() || made->arena < (*best)->layout.arena) {
      best = NamedLayout{*std::move(made), algorithm.name};
      if ((*best)->layout.arena == bound) break;
    }
  }
  return *std::move(best);
}

}  // namespace

Result<NamedLayout> lay_out(std::span<const LayoutItem> items, std::string_view algorithm) {
  if (algorithm == "auto") return best_of_all(items);
  const Result<LayoutAlgorithm> found = find_layout(algorithm);
  if (!found.ok()) return found.error();
  Work work = Work::unlimited();
  Result<Layout> made = found->run(items, work);
  if (!made.ok()) return made.error();
  return NamedLayout{*std::move(made), found->name};
}

}  // namespace lowtide
