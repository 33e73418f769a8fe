#include "trade/part_evaluation.h"

#include <algorithm>
#include <random>

#include "gtest/gtest.h"
#include "order/algorithms.h"
#include "small_steps.h"
#include "training_graph.h"

namespace lowtide {
namespace {

// Follows the whole step, and looks at the part only.
Outcome followed_as_a_whole(const Reruns& reruns, const EvaluatedPart& part, Choice& choice) {
  Dropping dropping(reruns);
  const Runs& runs = dropping.runs_of(choice);
  std::vector<std::int64_t> held;
  Outcome outcome{.cost = Evaluation(reruns).of(runs, held).cost};
  Position next = 0;
  for (std::size_t i = runs.size(); i-- > 0;) {
    if (!runs[i].again) next = runs[i].op;
    const bool early = part.early_begin <= next && next < part.early_end;
    const bool late = part.late_begin <= next && next < part.late_end;
    if (early || late) outcome.peak = std::max(outcome.peak, held[i]);
  }
  return outcome;
}

Position random_position(Position first, Position last, std::mt19937_64& random) {
  return static_cast<Position>(first + random() % (last - first + 1));
}

// Drops some of what the early ops of a random part make.
void expect_as_of_the_whole(const Graph& graph, int parts, std::mt19937_64& random) {
  const Reruns reruns = to_reruns(graph, first_to_last(graph.num_ops()));
  const auto ops = static_cast<Position>(reruns.num_ops());
  PartEvaluation evaluation(reruns);
  for (int i = 0; i < parts; ++i) {
    EvaluatedPart part;
    part.early_begin = random_position(0, reruns.turn, random);
    part.early_end = random_position(part.early_begin, reruns.turn, random);
    part.from = part.late_begin = random_position(reruns.turn, ops, random);
    part.until = part.late_end = random_position(part.late_begin, ops, random);
    Choice choice = keep_all(reruns);
    for (Position p = part.early_begin; p < part.early_end; ++p) {
      for (const Item item : reruns.makes[p]) {
        const bool may = std::ranges::find(reruns.candidates, item) != reruns.candidates.end();
        if (!may || random() % 2 == 0 || !reruns.used_late[item]) continue;
        choice[item] = Fate::dropped;
        part.from = std::min(part.from, evaluation.first_late_uses()[item]);
        part.until = std::max(part.until, evaluation.first_late_uses()[item] + 1);
      }
    }
    Choice same = choice;
    const Outcome expected = followed_as_a_whole(reruns, part, same);
    const Outcome found = evaluation.of(part, choice);
    ASSERT_EQ(found.cost, expected.cost) << "part " << i;
    ASSERT_EQ(found.peak, expected.peak) << "part " << i;
    ASSERT_EQ(choice, same) << "part " << i;
  }
}

TEST(PartEvaluation, IsThatOfTheWholeStep) {
  std::mt19937_64 random(5);
  for (int i = 0; i < 300; ++i) {
    expect_as_of_the_whole(small_step(random), 10, random);
    if (HasFailure()) FAIL() << "step " << i;
  }
  for (const std::size_t ops : {60u, 300u, 1000u}) expect_as_of_the_whole(training_graph(ops), 200, random);
}

}  // namespace
}  // namespace lowtide
