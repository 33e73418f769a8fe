#include "search/reschedule.h"

#include <algorithm>
#include <utility>

#include "lowtide/limit.h"
#include "order/algorithms.h"
#include "order/down_set_search.h"
#include "order/min_cut.h"
#include "order/tasks.h"

namespace lowtide {
namespace {

constexpr std::uint64_t kCutSteps = 1'000'000;  // of work: more than cuts of most steps take

// What is to come before `task`, then the task, then the rest, each as in `order`; but what goes behind it runs as late
// as it can, unless nobody waits for it.
Order around(const Tasks& tasks, const Order& order, Task task, const std::vector<bool>& before) {
  const auto at = static_cast<std::size_t>(std::ranges::find(order, OpId(task)) - order.begin());
  std::vector<std::uint8_t> is_late(tasks.count());
  std::vector<std::size_t> waiting(tasks.count());  // of those: how many that come behind have not been placed
  for (std::size_t i = 0; i < at; ++i) {
    const std::size_t one = order[i].index();
    is_late[one] = before[one] ? 0 : 1;
    waiting[one] = tasks.needs.successors[one].size();
  }
  Order made;  // from the last to the first
  made.reserve(order.size());
  std::vector<OpId> next;
  const auto place = [&](OpId op) {
    next.assign(1, op);
    while (!next.empty()) {
      const OpId placed = next.back();
      next.pop_back();
      made.push_back(placed);
      is_late[placed.index()] = 0;
      for (const OpId need : tasks.needs.predecessors[placed.index()]) {
        if (is_late[need.index()] != 0 && --waiting[need.index()] == 0) next.push_back(need);
      }
    }
  };
  for (std::size_t i = order.size(); i-- > at + 1;) {
    if (!before[order[i].index()]) place(order[i]);
  }
  for (std::size_t i = at; i-- > 0;) {
    if (is_late[order[i].index()] != 0) place(order[i]);
  }
  made.push_back(order[at]);
  for (std::size_t i = order.size(); i-- > 0;) {
    if (before[order[i].index()]) made.push_back(order[i]);
  }
  std::ranges::reverse(made);
  return made;
}

}  // namespace

Reschedule::Reschedule(const Graph& graph, const Reruns& reruns, const RescheduleOptions& options)
    : reruns_(reruns), options_(options), needs_(first_run_needs(graph, reruns)), sweep_(reruns) {}

// Cuts at the peak, then at the peak of the order that follows from that: as long as each is lower, and some more.
Reschedule::Found Reschedule::far(const Tasks& problem, std::int64_t peak, std::int64_t enough) const {
  Work work(kCutSteps);
  Found best;
  Order order = first_to_last(problem.count());
  std::int64_t proven = enough;
  for (std::size_t in_vain = 0; in_vain < options_.cuts; ++in_vain) {
    const std::vector<std::int64_t> held = held_while(problem, order);
    const auto highest = std::ranges::max_element(held);
    if (*highest < peak) {
      peak = *highest;
      best.order = order;
      in_vain = 0;
    }
    const auto task = static_cast<Task>(highest - held.begin());
    const LeastHeld least = min_cut_at(problem, task, work);
    proven = std::max(proven, least.bytes);
    best.is_least = proven >= peak;
    if (!least.exact || best.is_least || least.bytes >= *highest) break;
    order = around(problem, order, task, least.before);
  }
  return best;
}

// What is enough first, or what some task needs alone: often that can be had at once.
Reschedule::Found Reschedule::near(const Tasks& problem, std::int64_t peak, std::int64_t enough) const {
  Work work(options_.work);
  Found best;
  const Reachability reachability(problem.needs);
  const std::vector<std::int64_t> operands = touched_bytes(problem);
  for (Task task = 0; task < problem.count(); ++task) {
    const std::int64_t over = reused(problem, task, [](Held) { return true; });
    enough = std::max(enough, operands[task] + problem.workspace[task] - over);
  }
  for (bool is_first = true; enough < peak; is_first = false) {
    const std::int64_t budget = is_first ? enough : peak - 1;
    const OrderSearchResult found = with_part(work, is_first ? work.left() / 4 : work.left(), [&](Work& part) {
      return search_order(problem, reachability, budget, {}, part);
    });
    if (found.fits == Fits::yes) {
      best.order = found.order;
      peak = peak_of(problem, best.order);
    } else if (!is_first || budget == peak - 1) {
      break;
    }
  }
  return best;
}

Reschedule::Window Reschedule::window_around(const Sequence& sequence, std::uint32_t run) const {
  const auto count = static_cast<std::uint32_t>(sequence.runs.size());
  const PlacedRegion* placed = sequence.region_at(run);
  const std::uint32_t first = placed != nullptr ? placed->begin : run, last = placed != nullptr ? placed->end - 1 : run;
  Window window{first - std::min(first, options_.reach), std::min(last + 1 + options_.reach, count)};
  const auto cuts = [&](std::uint32_t at) {
    if (at == 0 || at == count) return false;
    const PlacedRegion* there = sequence.region_at(at);
    return (there != nullptr && there->begin < at) || continues_unit(reruns_, sequence.runs, at);
  };
  while (cuts(window.begin)) --window.begin;
  while (cuts(window.end)) ++window.end;
  return window;
}

Reschedule::Outcome Reschedule::improve(Sequence& sequence, Figures& figures, Window window, Solve solve) {
  const StretchProblem stretch(reruns_, needs_, sequence, held_, window.begin, window.end);
  std::int64_t outside = 0;  // lower than that, the next peak is the higher one
  for (std::uint32_t i = 0; i < held_.size(); ++i) {
    const bool is_outside = i < window.begin || i >= window.end;
    if (is_outside && held_[i] < figures.peak) outside = std::max(outside, held_[i]);
  }
  const Found found = (this->*solve)(stretch.problem(), stretch.peak(), outside - stretch.always());
  if (found.order.empty()) return found.is_least ? Outcome::least : Outcome::same;
  Sequence made = stretch.in_order(found.order);
  std::vector<std::int64_t> held;
  const Figures now = sweep_.of(made, held);
  if (now.peak >= figures.peak || now.time > figures.time) return Outcome::same;
  sequence = std::move(made);
  figures = now;
  held_ = std::move(held);
  return found.is_least ? Outcome::least : Outcome::better;
}

Figures Reschedule::lower(Sequence& sequence) {
  Figures figures = sweep_.of(sequence, held_);
  const Window all{0, static_cast<std::uint32_t>(sequence.runs.size())};
  if (improve(sequence, figures, all, &Reschedule::far) == Outcome::least) return figures;
  for (std::size_t i = 0; i < options_.windows; ++i) {
    const auto peak = static_cast<std::uint32_t>(std::ranges::max_element(held_) - held_.begin());
    if (improve(sequence, figures, window_around(sequence, peak), &Reschedule::near) != Outcome::better) break;
  }
  return figures;
}

}  // namespace lowtide
