// expect_order.h: does an order run every task once, after all that it needs?
#pragma once

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "order/tasks.h"

namespace lowtide {

inline void expect_order(const Tasks& tasks, const Order& order, const std::string& where) {
  ASSERT_EQ(order.size(), tasks.count()) << where;
  std::vector<bool> run(tasks.count());
  for (const OpId op : order) {
    for (const OpId needed : tasks.needs.predecessors[op.index()]) ASSERT_TRUE(run[needed.index()]) << where;
    ASSERT_FALSE(run[op.index()]) << where;
    run[op.index()] = true;
  }
}

}  // namespace lowtide
