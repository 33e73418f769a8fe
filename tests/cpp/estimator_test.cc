// What is learnt from observations of the machine, and plans for batches that come.
#include "lowtide/estimator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "adapt/input_terms.h"
#include "adapt/least_squares.h"
#include "block_machine.h"
#include "lowtide/batch_planner.h"

namespace lowtide {
namespace {

using testing::BlockMachine;
using testing::random_choice;

double share_off(Bytes predicted, std::uint64_t actual) {
  return std::abs(static_cast<double>(predicted.count()) - static_cast<double>(actual)) / static_cast<double>(actual);
}

TEST(LeastSquares, FindsThePolynomialThatMadeTheData) {
  const std::vector<double> weights = {1e-6, 1e-5, 1e-4};
  LeastSquares squares(weights, 2);
  for (const double x : {0.4, 0.7, 1.0, 1.1, 1.9}) {
    squares.add(std::vector<double>{1, x, x * x}, std::vector<double>{3 + 2 * x + 5 * x * x, 1e9 - 4e8 * x});
  }
  std::vector<double> values(2);
  squares.predict(std::vector<double>{1, 3, 9}, values);
  EXPECT_NEAR(values[0], 54, 1e-5);
  EXPECT_NEAR(values[1], -2e8, 100);
  EXPECT_LT(squares.deviation(0), 1e-3);
}

TEST(LeastSquares, SaysWhereNothingIsKnown) {
  const std::vector<double> weights = {1e-6, 1e-5, 1e-4};
  LeastSquares squares(weights, 1);
  for (int i = 0; i < 4; ++i) squares.add(std::vector<double>{1, 1, 1}, std::vector<double>{7});
  EXPECT_NEAR(squares.leverage(std::vector<double>{1, 1, 1}), 0.25, 1e-6);
  EXPECT_GT(squares.leverage(std::vector<double>{1, 2, 4}), 1e6);
}

TEST(LeastSquares, MeasuresTheScatter) {
  const std::vector<double> weights = {1e-6};
  LeastSquares squares(weights, 1);
  std::mt19937 random(3);
  std::normal_distribution<double> scatter(100, 5);
  for (int i = 0; i < 4000; ++i) squares.add(std::vector<double>{1}, std::vector<double>{scatter(random)});
  EXPECT_NEAR(squares.deviation(0), 5, 0.3);
}

struct TermsCase {
  const char* name;
  std::vector<std::vector<std::uint64_t>> batches;
  std::size_t terms;
};
class Terms : public ::testing::TestWithParam<TermsCase> {};
TEST_P(Terms, AreThoseOfTheExtentsThatChange) {
  InputTerms terms(2);
  for (const auto& batch : GetParam().batches) terms.learn(batch);
  EXPECT_EQ(terms.count(), GetParam().terms);
}
INSTANTIATE_TEST_SUITE_P(Batches, Terms,
                         ::testing::Values(TermsCase{"one_batch", {{8, 128, 8, 128}}, 1},
                                           // 1, s, s^2
                                           TermsCase{"a_length_twice", {{8, 128, 8, 128}, {8, 64, 8, 64}}, 3},
                                           // 1, s, t, s^2, st, t^2
                                           TermsCase{"two_lengths", {{8, 128, 8, 128}, {8, 64, 8, 32}}, 6},
                                           // {1, s, s^2} x {1, b}
                                           TermsCase{"batch_and_length", {{8, 128, 8, 128}, {4, 64, 4, 64}}, 6},
                                           // 1, b, b^2: it may be a length in front
                                           TermsCase{"first_alone", {{8, 128}, {4, 128}}, 3},
                                           TermsCase{"length_in_front", {{20, 8}, {30, 8}, {40, 8}}, 3},
                                           // {1, t, t^2} x {1, b, b^2}
                                           TermsCase{"length_in_front_then_batch", {{20, 8}, {30, 8}, {40, 5}}, 9},
                                           TermsCase{"no_tensor", {{}, {}}, 1}),
                         [](const auto& one) { return one.param.name; });

TEST(Terms, KnowWhatIsNew) {
  InputTerms terms(2);
  for (const std::uint64_t length : {50, 100}) terms.learn(std::vector<std::uint64_t>{8, length, 8, length});
  const auto larger = [&](std::vector<std::uint64_t> extents) { return terms.is_larger(extents, 0.05); };
  EXPECT_FALSE(larger({8, 70, 8, 70}));
  EXPECT_FALSE(larger({8, 105, 8, 105}));
  EXPECT_TRUE(larger({8, 106, 8, 106}));
  const auto new_kind = [&](std::vector<std::uint64_t> extents) { return terms.is_new_kind(extents); };
  EXPECT_FALSE(new_kind({8, 200, 8, 200}));
  EXPECT_TRUE(new_kind({7, 70, 7, 70}));  // the first other batch size
  EXPECT_TRUE(new_kind({8, 70, 8, 60}));  // the first other length of the second tensor
}

TEST(Estimator, PredictsThePeakOfAnyChoiceAfterTenBatches) {
  for (std::uint32_t seed = 0; seed < 60; ++seed) {
    std::mt19937 random(seed);
    const BlockMachine machine(seed, 1 + seed % 12, seed % 2 == 0);
    const std::size_t blocks = machine.backward.size();
    Estimator estimator(blocks);
    for (int i = 0; i < 10; ++i)
      estimator.observe(machine.run(30 + random() % 100, std::vector<bool>(blocks, true)).observation);
    for (int i = 0; i < 30; ++i) {
      const std::uint64_t length = 30 + random() % 100;
      const std::vector<bool> dropped = random_choice(random, blocks);
      const Prediction found = estimator.predict(std::vector<std::uint64_t>{8, length});
      const testing::MachineRun run = machine.run(length, dropped);
      EXPECT_LT(share_off(peak_of(found.likely, dropped), run.peak), 1e-4) << "seed " << seed;
      EXPECT_GE(peak_of(found.safe, dropped).count() + 8, run.peak) << "seed " << seed;
      if (i % 3 == 0) estimator.observe(run.observation);  // what is learnt from mixed choices fits the rest
    }
  }
}

// Inputs with the length in front, and a batch of fewer samples at the end of an epoch.
TEST(Estimator, PredictsSquaresOfALengthInFront) {
  std::mt19937 random(7);
  Estimator estimator(1);
  const auto bytes = [](std::uint64_t length, std::uint64_t samples) {
    return Bytes(samples * (300 * length + 4 * length * length) + 5000);
  };
  const auto observe = [&](std::uint64_t length, std::uint64_t samples) {
    Observation seen;
    seen.extents = {length, samples};
    seen.backward = {0};
    BlockObservation block;
    block.dropped = true;
    block.forward_peak = block.settled_peak = seen.turn_peak = bytes(length, samples);
    seen.blocks.push_back(block);
    estimator.observe(seen);
  };
  const auto off = [&](std::uint64_t length, std::uint64_t samples) {
    const Prediction found = estimator.predict(std::vector<std::uint64_t>{length, samples});
    return share_off(found.likely.turn, bytes(length, samples).count());
  };
  for (int i = 0; i < 20; ++i) observe(20 + random() % 100, 8);
  for (std::uint64_t length = 20; length < 120; length += 7) EXPECT_LT(off(length, 8), 1e-4) << length;
  observe(70, 5);
  for (std::uint64_t length = 20; length < 120; length += 7) EXPECT_LT(off(length, 8), 1e-3) << length;
}

TEST(Estimator, SaysWhatItExtrapolates) {
  const BlockMachine machine(5, 6);
  Estimator estimator(6);
  EXPECT_FALSE(estimator.knows_something());
  for (const std::uint64_t length : {50, 60, 70, 80, 90, 100})
    estimator.observe(machine.run(length, std::vector<bool>(6, true)).observation);
  EXPECT_TRUE(estimator.knows_something());
  const auto at = [&](std::uint64_t length) { return estimator.predict(std::vector<std::uint64_t>{8, length}); };
  EXPECT_FALSE(at(75).extrapolates);
  EXPECT_TRUE(at(150).extrapolates);
  EXPECT_GT(at(150).safe.turn.count(), at(150).likely.turn.count() * 109 / 100);
}

// Blocks whose bytes depend on the content of the batch: what they may need beyond the line is set aside.
TEST(Estimator, ReservesForContent) {
  std::mt19937 random(11);
  Estimator estimator(2);
  const auto observation = [&] {
    Observation seen;
    seen.extents = {4, 50 + random() % 100};
    seen.backward = {1, 0};
    const std::uint64_t proposals = random() % 1000;
    for (std::size_t i = 0; i < 2; ++i) {
      BlockObservation block;
      block.forward_peak = Bytes(100 * seen.extents[1] + proposals);
      block.backward_peak = block.forward_peak;
      block.dropped = true;
      block.settled_peak = block.forward_peak;
      seen.blocks.push_back(block);
    }
    seen.turn_peak = Bytes(100 * seen.extents[1] + proposals);
    return seen;
  };
  for (int i = 0; i < 40; ++i) estimator.observe(observation());
  for (int i = 0; i < 100; ++i) {
    const Observation seen = observation();
    EXPECT_GE(estimator.predict(seen.extents).safe.turn, seen.turn_peak);
  }
}

TEST(Estimator, NeedsMemoryForTheTermsOnly) {
  const BlockMachine machine(5, 4);
  Estimator estimator(4);
  std::mt19937 random(1);
  for (int i = 0; i < 3000; ++i)
    estimator.observe(machine.run(10 + random() % 500, random_choice(random, 4)).observation);
  EXPECT_EQ(estimator.observations(), 3000U);
  const std::vector<bool> kept(4, false);
  EXPECT_LT(share_off(peak_of(estimator.predict(std::vector<std::uint64_t>{8, 400}).likely, kept),
                      machine.run(400, kept).peak),
            1e-4);
}

TEST(BatchPlanner, DropsAllUntilItKnowsBetter) {
  const BlockMachine machine(2, 8);
  BatchPlanner planner(8);
  const std::vector<bool> all(8, true);
  const std::vector<std::uint64_t> extents = {8, 100};
  EXPECT_EQ(planner.plan(extents, Bytes(1'000'000'000)).dropped, all);
  planner.observe(machine.run(100, all).observation);
  EXPECT_TRUE(planner.plan(extents, Bytes(1'000'000'000)).known);  // the same batch again
  EXPECT_FALSE(planner.plan(std::vector<std::uint64_t>{8, 200}, Bytes(1'000'000'000)).known);
}

TEST(BatchPlanner, KeepsTheRoomAndWastesLittle) {
  for (std::uint32_t seed = 0; seed < 40; ++seed) {
    std::mt19937 random(seed);
    const BlockMachine machine(seed, 12);
    BatchPlanner planner(12);
    const auto length = [&] { return 100 + random() % 200; };
    for (int i = 0; i < 10; ++i) planner.observe(machine.run(length(), std::vector<bool>(12, true)).observation);
    planner.observe(machine.run(299, std::vector<bool>(12, true)).observation);
    const Bytes least = least_peak(machine.needs(299)).peak;
    const Bytes room(least.count() * 12 / 10);
    for (int i = 0; i < 100; ++i) {
      const std::uint64_t next = length();
      const BatchPlan plan = planner.plan(std::vector<std::uint64_t>{8, next}, room);
      ASSERT_LE(machine.run(next, plan.dropped).peak, room.count()) << "seed " << seed;
      const Selection best = least_time(machine.needs(next), Bytes(room.count() * 94 / 100));
      ASSERT_LE(plan.again.count(), best.again.count() * 101 / 100 + 1) << "seed " << seed << " length " << next;
    }
    EXPECT_LE(planner.cached_plans(), 200U);
  }
}

TEST(BatchPlanner, TellsTheLeastWhereNothingFits) {
  const BlockMachine machine(3, 10);
  BatchPlanner planner(10);
  for (std::uint64_t length = 50; length < 150; length += 10)
    planner.observe(machine.run(length, std::vector<bool>(10, true)).observation);
  const Bytes least = least_peak(machine.needs(120)).peak;
  const BatchPlan plan = planner.plan(std::vector<std::uint64_t>{8, 120}, Bytes(least.count() / 2));
  EXPECT_GT(plan.safe_peak.count(), least.count() / 2);
  EXPECT_LT(share_off(planner.least_peak(std::vector<std::uint64_t>{8, 120}), least.count()), 1e-3);
}

TEST(BatchPlanner, CachesNoMorePlansThanAllowed) {
  const BlockMachine machine(4, 6);
  BatchPlanner planner(6, {.cached_plans = 10});
  for (std::uint64_t length = 100; length <= 4000; length += 390)
    planner.observe(machine.run(length, std::vector<bool>(6, true)).observation);
  const Bytes room(machine.run(2000, std::vector<bool>(6, false)).peak);
  for (std::uint64_t length = 100; length < 4000; length += 3)
    planner.plan(std::vector<std::uint64_t>{8, length}, room);
  EXPECT_EQ(planner.cached_plans(), 10U);
  planner.plan(std::vector<std::uint64_t>{8, 1001}, room);
  EXPECT_TRUE(planner.plan(std::vector<std::uint64_t>{8, 1001}, room).from_cache);
  EXPECT_TRUE(planner.plan(std::vector<std::uint64_t>{8, 1002}, room).from_cache);  // similar
}

TEST(BatchPlanner, CountsWhatIsThereUntilTheTurn) {
  const BlockMachine machine(4, 6);
  BatchPlanner planner(6);
  for (std::uint64_t length = 50; length < 150; length += 10) {
    planner.observe(machine.run(length, std::vector<bool>(6, true)).observation);
  }
  const std::vector<std::uint64_t> extents = {8, 120};
  const Bytes plenty(1'000'000'000);
  const Bytes forward = planner.estimator().predict(extents).likely.blocks.back().forward_kept;
  EXPECT_GE(planner.plan(extents, plenty, Bytes(1'000'000)).likely_peak, forward + Bytes(1'000'000));
  EXPECT_LT(planner.plan(extents, plenty).likely_peak, forward + Bytes(1'000'000));
}

TEST(BatchPlanner, SetsAsideWhatItOvershot) {
  const BlockMachine machine(4, 6);
  BatchPlanner planner(6);
  for (std::uint64_t length = 50; length < 150; length += 10)
    planner.observe(machine.run(length, std::vector<bool>(6, true)).observation);
  const Bytes room(machine.run(120, std::vector<bool>(6, false)).peak + 64);
  const std::vector<std::uint64_t> extents = {8, 120};
  EXPECT_EQ(planner.plan(extents, Bytes(room.count() * 11 / 10)).dropped, std::vector<bool>(6, false));
  planner.learn_peak(Bytes(100), Bytes(130));
  EXPECT_NE(planner.plan(extents, Bytes(room.count() * 11 / 10)).dropped, std::vector<bool>(6, false));
}

}  // namespace
}  // namespace lowtide
