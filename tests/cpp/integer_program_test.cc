#include "published/solver/integer_program.h"

#include <cmath>
#include <limits>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lowtide {
namespace {

constexpr double kNone = std::numeric_limits<double>::infinity();

TEST(IntegerProgram, Knapsack) {
  IntegerProgram program;
  const VariableId a = program.add_switch(-5);
  const VariableId b = program.add_switch(-4);
  const VariableId c = program.add_switch(-3);
  program.add_row({{a, 2}, {b, 3}, {c, 1}}, 0, 5);
  Work work(1'000'000'000);
  const Answer answer = minimize(program, work);
  ASSERT_EQ(answer.outcome, Answer::Outcome::optimal);
  EXPECT_NEAR(answer.cost, -9, 1e-6);
  EXPECT_NEAR(answer.bound, -9, 1e-6);
  EXPECT_THAT(answer.values, testing::Pointwise(testing::DoubleNear(1e-6), {1.0, 1.0, 0.0}));
}

TEST(IntegerProgram, WholeOrNotMakesADifference) {
  for (const auto& [kind, cost] :
       {std::pair(IntegerProgram::Kind::continuous, -2.5), {IntegerProgram::Kind::whole, -2.0}}) {
    IntegerProgram program;
    const VariableId x = program.add_variable(kind, -3, 10, -1);
    program.add_row({{x, 2}}, -kNone, 5);
    Work work(1'000'000'000);
    const Answer answer = minimize(program, work);
    EXPECT_EQ(answer.outcome, Answer::Outcome::optimal);
    EXPECT_NEAR(answer.cost, cost, 1e-6);
    EXPECT_NEAR(answer.bound, cost, 1e-6);
  }
}

TEST(IntegerProgram, WithoutRowsOrVariables) {
  IntegerProgram program;
  Work work(1'000'000'000);
  EXPECT_EQ(minimize(program, work).outcome, Answer::Outcome::optimal);
  program.add_variable(IntegerProgram::Kind::whole, -3, 10, 2);
  const Answer answer = minimize(program, work);
  EXPECT_EQ(answer.outcome, Answer::Outcome::optimal);
  EXPECT_NEAR(answer.bound, -6, 1e-6);
}

TEST(IntegerProgram, InfeasibleWithWholeNumbersOnly) {
  IntegerProgram program;
  const VariableId x = program.add_variable(IntegerProgram::Kind::whole, 0, 100);
  const VariableId y = program.add_variable(IntegerProgram::Kind::whole, 0, 100);
  program.add_row({{x, 6}, {y, -4}}, 7, 7);  // even = odd
  Work work(1'000'000'000);
  const Answer answer = minimize(program, work);
  EXPECT_EQ(answer.outcome, Answer::Outcome::infeasible);
  EXPECT_EQ(answer.bound, kNone);
}

// Sixty things, five limits: any choice takes no time, the best a long one.
IntegerProgram hard_knapsack() {
  std::mt19937_64 random(1);
  IntegerProgram program;
  std::vector<std::vector<IntegerProgram::Term>> rows(5);
  for (int i = 0; i < 60; ++i) {
    const VariableId taken = program.add_switch(-static_cast<double>(100 + random() % 100));
    for (auto& row : rows) row.push_back({taken, static_cast<double>(100 + random() % 100)});
  }
  for (const auto& row : rows) program.add_row(row, 0, 4500);
  return program;
}

TEST(IntegerProgram, TheWorkIsLimited) {
  const IntegerProgram program = hard_knapsack();
  Work little(100'000'000);
  const Answer some = minimize(program, little);
  ASSERT_EQ(some.outcome, Answer::Outcome::found);
  EXPECT_LT(some.bound, some.cost - 1e-3);
  EXPECT_LT(little.left(), 10'000'000u);
  Work more(1'000'000'000);
  const Answer better = minimize(program, more);
  EXPECT_LE(better.cost, some.cost);
  EXPECT_GE(better.bound, some.bound);
  EXPECT_GE(better.cost, some.bound - 1e-6);
  Work same(100'000'000);
  EXPECT_EQ(minimize(program, same).values, some.values) << "not deterministic";
  EXPECT_EQ(same.left(), little.left());
}

// Five sums that must all be halved: with so little work neither found nor refuted.
TEST(IntegerProgram, NothingMayBeFound) {
  std::mt19937_64 random(1);
  IntegerProgram program;
  std::vector<std::vector<IntegerProgram::Term>> rows(5);
  std::vector<double> sums(rows.size());
  for (int i = 0; i < 40; ++i) {
    const VariableId taken = program.add_switch();
    for (std::size_t r = 0; r < rows.size(); ++r) {
      rows[r].push_back({taken, static_cast<double>(random() % 100)});
      sums[r] += rows[r].back().factor;
    }
  }
  for (std::size_t r = 0; r < rows.size(); ++r)
    program.add_row(rows[r], std::floor(sums[r] / 2), std::floor(sums[r] / 2));
  Work work(100'000'000);
  const Answer answer = minimize(program, work);
  EXPECT_EQ(answer.outcome, Answer::Outcome::nothing_found);
  EXPECT_TRUE(answer.values.empty());
}

}  // namespace
}  // namespace lowtide
