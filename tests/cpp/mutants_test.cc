// Is verify() right? Random plans that are right, changed at random, are run by a machine that moves every byte. The
// machine decides which of them are wrong; verify() must agree on every one, both ways. So it is for plans in memory
// alone, for plans with tiers and transfers, and for plans that run ops in parts.
//
//   LOWTIDE_MUTANTS   how many mutants of each kind (default 25000, with sanitizers 5000, with LOWTIDE_FULL=1 100000)
//   LOWTIDE_SEED      where to start (default 1)
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "draft.h"
#include "full_size.h"
#include "gtest/gtest.h"
#include "lowtide/verify.h"
#include "machine.h"
#include "mutations.h"
#include "random_graph.h"
#include "splits.h"
#include "swaps.h"

namespace lowtide {
namespace {

constexpr std::uint64_t kMutantsOfEachPlan = 40;
constexpr Bytes kLargestMachine{1 << 20};

std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

struct Tally {
  std::uint64_t valid = 0;
  std::map<std::string, std::uint64_t> invalid;  // by code
};

void print(const std::map<std::string_view, Tally>& tallies) {
  std::printf("%-24s %8s %8s %8s  by code\n", "mutation", "mutants", "valid", "invalid");
  Tally all;
  const auto line = [](std::string_view name, const Tally& tally) {
    std::uint64_t invalid = 0;
    std::string codes;
    for (const auto& [code, count] : tally.invalid) {
      invalid += count;
      codes += " " + code + ":" + std::to_string(count);
    }
    std::printf("%-24.*s %8llu %8llu %8llu %s\n", static_cast<int>(name.size()), name.data(),
                static_cast<unsigned long long>(tally.valid + invalid), static_cast<unsigned long long>(tally.valid),
                static_cast<unsigned long long>(invalid), codes.c_str());
  };
  for (const auto& [name, tally] : tallies) {
    line(name, tally);
    all.valid += tally.valid;
    for (const auto& [code, count] : tally.invalid) all.invalid[code] += count;
  }
  line("all", all);
}

// Steps of right plans that run an op again.
struct Repeats {
  std::uint64_t all = 0;
  std::uint64_t random = 0;
  std::uint64_t in_place = 0;
  std::uint64_t without_updates = 0;

  void count(const Graph& graph, const Plan& plan) {
    std::vector<bool> ran(graph.num_ops());
    for (const OpId id : plan.order) {
      if (ran[id.index()]) count(graph, graph.op(id));
      ran[id.index()] = true;
    }
  }

  void count(const Graph& graph, const Op& op) {
    const auto changes = [&](Residence residence) {
      return std::ranges::any_of(op.writes, [&](VersionId write) {
        const Version version = graph.version(write);
        return version.index > 0 && graph.buffer(version.buffer).residence == residence;
      });
    };
    ++all;
    if (op.flags.random) ++random;
    if (changes(Residence::planned)) ++in_place;
    if (changes(Residence::resident)) ++without_updates;
  }
};

// Moments that only some right plans with transfers have.
struct Moves {
  std::uint64_t stores = 0;
  std::uint64_t loads = 0;
  std::uint64_t while_ops_run = 0;
  std::uint64_t homes = 0;  // in tiers
  std::uint64_t at_the_end = 0;

  void count(const Plan& plan) {
    for (const Transfer& transfer : plan.transfers) {
      ++(plan.blocks[transfer.from.index()].tier == 0 ? stores : loads);
      if (transfer.issue < transfer.wait) ++while_ops_run;
      if (transfer.wait.index() == plan.order.size()) ++at_the_end;
    }
    for (const Block& block : plan.blocks) {
      if (block.tier != 0 && !block.offset) ++homes;
    }
  }
};

bool fits_machine(const Draft& draft) {
  return draft.arena <= kLargestMachine &&
         std::ranges::all_of(draft.tiers, [](const Tier& tier) { return tier.arena <= kLargestMachine; });
}

// A kind of plans, and how they are changed.
struct Kind {
  Draft (*draft)(const Graph& graph, Random& random);
  const Mutation& (*mutation)(Random& random);
  RandomGraphOptions graphs = {};
};

// Asks the machine and verify() about right plans and their mutants. Both must accept the right ones, which `count` is
// told of, with the mutants that are right after all.
template <typename Count>
void compare_judges(const Kind& kind, Count count) {
  const std::uint64_t wanted = from_environment("LOWTIDE_MUTANTS", trials(100'000, 25'000));
  const std::uint64_t seed = from_environment("LOWTIDE_SEED", 1);
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  Random random(seed);
  std::map<std::string_view, Tally> tallies;
  std::uint64_t mutants = 0;
  std::uint64_t valid = 0;
  while (mutants < wanted) {
    const Graph graph = random_graph(random, kind.graphs);
    const Reference reference(graph);
    const Draft base = kind.draft(graph, random);
    const Plan right = finish(base);
    ASSERT_EQ(run_on_machine(graph, reference, right), "") << "seed " << seed << ", before mutant " << mutants;
    const Status accepted = verify(graph, right);
    ASSERT_TRUE(accepted.ok()) << accepted.error().message;
    count(graph, right);

    for (std::uint64_t i = 0; i < kMutantsOfEachPlan && mutants < wanted; ++i) {
      const Mutation& mutation = kind.mutation(random);
      Draft draft = base;
      if (!mutation.apply(graph, draft, random)) continue;
      if (random() % 8 == 0) kind.mutation(random).apply(graph, draft, random);
      if (!fits_machine(draft)) continue;
      const Plan mutant = finish(draft);
      const std::string wrong = run_on_machine(graph, reference, mutant);
      const Status status = verify(graph, mutant);
      ASSERT_EQ(status.ok(), wrong.empty())
          << "seed " << seed << ", mutant " << mutants << ", " << mutation.name << ": the machine says '" << wrong
          << "', verify '" << (status.ok() ? "" : status.error().message) << "'";
      Tally& tally = tallies[mutation.name];
      if (status.ok()) {
        ++tally.valid;
        ++valid;
        count(graph, mutant);
      } else {
        ++tally.invalid[code_text(status.error().code)];
      }
      ++mutants;
    }
  }
  print(tallies);
  EXPECT_GE(valid * 5, mutants)
      << "fewer than 20 % of the mutants are right: the test no longer shows that verify accepts";
}

TEST(Mutants, VerifyAgreesWithTheMachine) {
  constexpr Kind kInMemory = {
      [](const Graph& graph, Random& random) { return draft_plan(graph, random_order(graph, random), random); },
      [](Random& random) -> const Mutation& { return any_of(mutations(), random); }};
  Repeats repeats;
  std::uint64_t plans = 0;
  compare_judges(kInMemory, [&](const Graph& graph, const Plan& plan) {
    ++plans;
    repeats.count(graph, plan);
  });
  std::printf("in right plans, steps that run an op again: %llu; random %llu, in place %llu, without updates %llu\n",
              static_cast<unsigned long long>(repeats.all), static_cast<unsigned long long>(repeats.random),
              static_cast<unsigned long long>(repeats.in_place),
              static_cast<unsigned long long>(repeats.without_updates));
  EXPECT_GT(std::min({repeats.random, repeats.in_place, repeats.without_updates}), plans / 300);
}

TEST(Mutants, VerifyAgreesWithTheMachineOnTransfers) {
  constexpr Kind kWithTiers = {draft_with_swaps, [](Random& random) -> const Mutation& {
                                 return any_of(random() % 4 == 0 ? mutations() : transfer_mutations(), random);
                               }};
  Moves moves;
  std::uint64_t plans = 0;
  compare_judges(kWithTiers, [&](const Graph&, const Plan& plan) {
    ++plans;
    moves.count(plan);
  });
  std::printf(
      "in %llu right plans: %llu stores, %llu loads; %llu while ops run, %llu until the end; %llu homes in tiers\n",
      static_cast<unsigned long long>(plans), static_cast<unsigned long long>(moves.stores),
      static_cast<unsigned long long>(moves.loads), static_cast<unsigned long long>(moves.while_ops_run),
      static_cast<unsigned long long>(moves.at_the_end), static_cast<unsigned long long>(moves.homes));
  EXPECT_GT(std::min({moves.stores, moves.loads, moves.while_ops_run, moves.homes}), plans / 3);
  EXPECT_GT(moves.at_the_end, plans / 100);
}

// Moments that only some right plans with parts have.
struct Splits {
  std::uint64_t steps = 0;
  std::uint64_t of_sums = 0;
  std::uint64_t in_place = 0;
  std::uint64_t again = 0;
  std::uint64_t blocks = 0;
  std::uint64_t taken_over = 0;  // by a block of a part
  std::uint64_t moved = 0;       // blocks of parts that are stored or loaded

  void count(const Graph& graph, const Plan& plan) {
    std::vector<std::vector<StepPart>> ran(graph.num_ops());
    for (StepIndex step(0); step.index() < plan.parts.size(); step = step.next()) {
      const OpId id = plan.order[step.index()];
      const StepPart how = plan.parts[step.index()];
      std::vector<StepPart>& before = ran[id.index()];
      if (how.part.count > 1) count(graph, id, how, std::ranges::count(before, how) > 0);
      before.push_back(how);
    }
    for (const Block& block : plan.blocks) {
      if (block.part.count == 1) continue;
      ++blocks;
      const auto gives = [&](const Block& from) {
        return from.offset == block.offset && from.tier == 0 && block.tier == 0 && from.end == block.begin.next() &&
               from.begin < block.begin;
      };
      if (std::ranges::any_of(plan.blocks, gives)) ++taken_over;
    }
    for (const Transfer& transfer : plan.transfers) {
      if (plan.blocks[transfer.from.index()].part.count > 1) ++moved;
    }
  }

  void count(const Graph& graph, OpId id, const StepPart& how, bool ran_before) {
    ++steps;
    if (ran_before) ++again;
    if (std::ranges::count(graph.axis(id, how.axis).writes, Bytes(0)) > 0) ++of_sums;
    if (std::ranges::any_of(graph.op(id).writes, [&](VersionId write) { return graph.version(write).index > 0; }))
      ++in_place;
  }
};

TEST(Mutants, VerifyAgreesWithTheMachineOnParts) {
  constexpr Kind kInParts = {draft_with_parts,
                             [](Random& random) -> const Mutation& {
                               return any_of(random() % 3 == 0 ? mutations() : part_mutations(), random);
                             },
                             {.axes = true}};
  Splits splits;
  std::uint64_t plans = 0;
  compare_judges(kInParts, [&](const Graph& graph, const Plan& plan) {
    ++plans;
    splits.count(graph, plan);
  });
  std::printf(
      "in %llu right plans: %llu parts; %llu of sums, %llu in place, %llu again; %llu blocks of parts, %llu taken "
      "over, "
      "%llu moved\n",
      static_cast<unsigned long long>(plans), static_cast<unsigned long long>(splits.steps),
      static_cast<unsigned long long>(splits.of_sums), static_cast<unsigned long long>(splits.in_place),
      static_cast<unsigned long long>(splits.again), static_cast<unsigned long long>(splits.blocks),
      static_cast<unsigned long long>(splits.taken_over), static_cast<unsigned long long>(splits.moved));
  EXPECT_GT(std::min({splits.of_sums, splits.in_place, splits.blocks}), plans / 3);
  EXPECT_GT(std::min(splits.again, splits.moved), plans / 100);
  EXPECT_GT(splits.taken_over, plans / 400);
}

}  // namespace
}  // namespace lowtide
