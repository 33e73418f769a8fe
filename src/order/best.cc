#include "order/best.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "base/lanes.h"
#include "order/bounds.h"
#include "order/down_set_search.h"
#include "order/greedy.h"
#include "order/min_cut.h"

namespace lowtide {
namespace {

constexpr std::array kDirections = {Direction::forwards, Direction::backwards};
constexpr std::array kGreeds = {Greed::climb_in_turn, Greed::climb_least, Greed::needed, Greed::change};
constexpr std::array kSearches = {
    OrderSearchOptions{Direction::forwards, true},
    OrderSearchOptions{Direction::backwards, true},
    OrderSearchOptions{Direction::forwards, false},
    OrderSearchOptions{Direction::backwards, false},
};

// Buffers below these parts of the bound are left out at first: what does not fit without them does not fit, and there
// is less to choose.
constexpr std::array<std::int64_t, 3> kParts = {4'000, 100'000, std::numeric_limits<std::int64_t>::max()};
constexpr int kMostBudgets = 40;  // that are tried for each of these

// Tasks that touch no planned buffer run as late as they can: what changes resident buffers alone should not happen
// before the rest has gone well.
Order delay_residents(const Tasks& tasks, const Order& order) {
  Order delayed;
  std::vector<bool> run(tasks.count());
  // Runs a task, after those that it needs and that were put off.
  const auto run_with_needs = [&](OpId op) {
    std::vector<std::pair<OpId, std::size_t>> stack = {{op, 0}};  // a task, and how many of its needs have been seen to
    while (!stack.empty()) {
      auto& [task, seen] = stack.back();
      const std::span<const OpId> needs = tasks.needs.predecessors[task.index()];
      if (seen < needs.size()) {
        const OpId need = needs[seen++];
        if (!run[need.index()]) stack.emplace_back(need, 0);
        continue;
      }
      if (!run[task.index()]) delayed.push_back(task);
      run[task.index()] = true;
      stack.pop_back();
    }
  };
  for (const OpId op : order) {
    if (!tasks.touched[op.index()].empty()) run_with_needs(op);
  }
  for (const OpId op : order) {
    if (!run[op.index()]) run_with_needs(op);
  }
  return delayed;
}

class Best {
 public:
  Best(const Tasks& tasks, std::size_t threads, Work& work)
      : tasks_(tasks), reachability_(tasks.needs), threads_(threads), work_(work) {
    best_.order = first_to_last(tasks.count());
    best_.peak = peak_of(tasks, best_.order);
    best_.bound = operands(tasks, work);
  }

  ProvenOrder run() {
    // The bounds take less time than an order, and often there is nothing left to do.
    prove([&](Work& part) { return must_be_alive(tasks_, part); });
    prove([&](Work& part) { return min_cut(tasks_, part); });
    prove([&](Work& part) { return either_first(tasks_, part); });
    for (const Direction direction : kDirections) {
      for (const Greed greed : kGreeds) {
        if (best_.peak > best_.bound) offer(greedy_order(tasks_, greed, direction));
      }
    }
    // From a better order fewer cuts are needed, and less work.
    prove([&](Work& part) { return min_cut_from(tasks_, best_.order, part); });
    for (const std::int64_t part : kParts) search_without(best_.bound / part);
    return std::move(best_);
  }

 private:
  void offer(const Order& order) {
    const std::int64_t peak = peak_of(tasks_, order);
    if (peak >= best_.peak) return;
    Order delayed = delay_residents(tasks_, order);
    best_.order = peak_of(tasks_, delayed) <= peak ? std::move(delayed) : order;  // a workspace may be in the way
    best_.peak = peak;
  }

  template <typename Bound>
  void prove(const Bound& bound) {
    if (best_.peak == best_.bound) return;
    const std::int64_t proven = with_part(work_, work_.left() / 4, bound);
    best_.bound = std::max(best_.bound, proven);
  }

  // Narrows the gap between bound and peak, as if buffers below this size were none.
  void search_without(std::int64_t size) {
    if (best_.peak - best_.bound <= size / 4) return;
    Tasks larger = tasks_;
    for (std::int64_t& own : larger.size) own = own < size ? 0 : own;
    std::int64_t reached = best_.peak;  // by an order that is known, without what is left out
    int better = 0;                     // how often in a row
    for (int tried = 0; tried < kMostBudgets && reached - best_.bound > size / 4; ++tried) {
      // That nothing is better is often so, and proves it; but small steps down are too many.
      const std::int64_t middle = best_.bound + (reached - best_.bound - 1) / 2;
      const std::int64_t budget = at_bound_next_ ? best_.bound : better < 2 ? reached - 1 : middle;
      const OrderSearchResult result = search(larger, budget);
      if (result.fits == Fits::unknown && !at_bound_next_) return;
      at_bound_next_ = false;
      better = result.fits == Fits::yes ? better + 1 : 0;
      if (result.fits == Fits::no) best_.bound = budget + 1;
      if (result.fits == Fits::yes) {
        offer(result.order);
        reached = peak_of(larger, result.order);
      }
    }
  }

  // The first search decides the most often, and so has the most work.
  OrderSearchResult search(const Tasks& tasks, std::int64_t budget) {
    OrderSearchResult first = with_part(work_, work_.left() / 3, [&](Work& part) {
      return search_order(tasks, reachability_, budget, kSearches.front(), part);
    });
    if (first.fits != Fits::unknown) return first;
    std::array<OrderSearchResult, kSearches.size() - 1> others;
    const std::optional<std::size_t> decided =
        first_that_decides(others.size(), threads_, work_.left() / 16, work_, [&](std::size_t i, Work& part) {
          others[i] = search_order(tasks, reachability_, budget, kSearches[i + 1], part);
          return others[i].fits != Fits::unknown;
        });
    return decided ? std::move(others[*decided]) : first;
  }

  const Tasks& tasks_;
  const Reachability reachability_;
  const std::size_t threads_;
  Work& work_;
  bool at_bound_next_ = true;  // the first of all budgets: often an order reaches the bound
  ProvenOrder best_;
};

}  // namespace

ProvenOrder best_order(const Tasks& tasks, std::size_t threads, Work& work) {
  return Best(tasks, threads, work).run();
}

}  // namespace lowtide
