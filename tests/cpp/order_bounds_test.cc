#include <algorithm>
#include <random>

#include "best_order.h"
#include "gtest/gtest.h"
#include "order/tasks.h"
#include "random_graph.h"

namespace lowtide {
namespace {

// The smallest peak of all orders, each of them run.
std::int64_t least_of_all_orders(const Tasks& tasks) {
  std::vector<OpId> order;
  for (std::size_t task = 0; task < tasks.count(); ++task) order.emplace_back(task);
  std::int64_t least = peak_of(tasks, order);
  while (std::next_permutation(order.begin(), order.end())) {
    std::vector<bool> done(tasks.count());
    const bool legal = std::all_of(order.begin(), order.end(), [&](OpId op) {
      done[op.index()] = true;
      const std::span<const OpId> needs = tasks.needs.predecessors[op.index()];
      return std::all_of(needs.begin(), needs.end(), [&](OpId needed) { return done[needed.index()]; });
    });
    if (legal) least = std::min(least, peak_of(tasks, order));
  }
  return least;
}

TEST(BestPeak, IsTheLeastOfAllOrders) {
  std::size_t tried = 0;
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    std::mt19937_64 random(seed);
    const Tasks tasks = to_tasks(random_graph(random));
    if (tasks.count() > 7) continue;
    ++tried;
    ASSERT_EQ(best_peak(tasks), least_of_all_orders(tasks)) << "seed " << seed;
  }
  EXPECT_GT(tried, 300u);
}

}  // namespace
}  // namespace lowtide
