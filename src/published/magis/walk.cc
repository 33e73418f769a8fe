#include "published/magis/walk.h"

#include <algorithm>
#include <chrono>
#include <random>
#include <utility>

#include "lowtide/limit.h"
#include "order/algorithms.h"
#include "order/best.h"
#include "order/tasks.h"
#include "rewrite/parts.h"
#include "rewrite/recompute.h"
#include "search/reschedule.h"

namespace lowtide {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The graph of a state, each part an op.
struct StateGraph {
  Tasks tasks;
  Lists<OpId> parts;                // by part of each region: its ops
  std::vector<std::size_t> starts;  // of each region, and the end of the last: its first part
};

Result<StateGraph> graph_of(const Graph& graph, const Splitting& splitting) {
  const Result<Rewritten> again = run_again(graph, splitting.steps);
  if (!again.ok()) return again.error();
  const Result<Divided> divided = run_in_parts(again->graph, splitting.splits);
  if (!divided.ok()) return divided.error();
  StateGraph made{to_tasks(divided->graph), {}, {0}};
  std::vector<std::size_t> first_part(again->graph.num_ops());
  for (const Split& split : splitting.splits) {
    for (const CutOp& one : split.ops) first_part[one.op.index()] = made.starts.back();
    made.starts.push_back(made.starts.back() + split.count);
  }
  std::vector<std::pair<std::size_t, OpId>> part_of;
  for (OpId op(0); op.index() < divided->graph.num_ops(); op = op.next()) {
    const Part part = divided->part_of[op.index()].part;
    if (part.count > 1) part_of.emplace_back(first_part[divided->op_of[op.index()].index()] + part.index, op);
  }
  made.parts = Lists<OpId>::group(made.starts.back(), part_of);
  return made;
}

// The same, but that the parts of a region run one after the other.
Tasks in_turn(const StateGraph& state) {
  Tasks tasks = state.tasks;
  std::vector<std::pair<std::size_t, OpId>> before, behind;
  const auto add = [&](OpId first, OpId second) {
    before.emplace_back(second.index(), first);
    behind.emplace_back(first.index(), second);
  };
  for (OpId op(0); op.index() < tasks.count(); op = op.next()) {
    for (const OpId need : tasks.needs.predecessors[op.index()]) add(need, op);
  }
  for (std::size_t region = 0; region + 1 < state.starts.size(); ++region) {
    for (std::size_t part = state.starts[region] + 1; part < state.starts[region + 1]; ++part) {
      for (const OpId first : state.parts[part - 1]) {
        for (const OpId second : state.parts[part]) add(first, second);
      }
    }
  }
  for (auto* pairs : {&before, &behind}) {
    std::ranges::sort(*pairs);
    pairs->erase(std::unique(pairs->begin(), pairs->end()), pairs->end());
  }
  tasks.needs = {Lists<OpId>::group(tasks.count(), before), Lists<OpId>::group(tasks.count(), behind)};
  return tasks;
}

std::int64_t least_found(const Tasks& tasks) {
  Work work(kOrderSteps);
  return peak_of(tasks, best_order(tasks, 1, work).order);
}

}  // namespace

Result<std::vector<WalkedState>> walk_states(const Graph& graph, std::size_t changes, std::size_t per_start,
                                             std::uint64_t seed, const RuleOptions& options) {
  const Tasks tasks = to_tasks(graph);
  Work work(kOrderSteps);
  const Reruns reruns = to_reruns(graph, best_order(tasks, 1, work).order);
  Rules rules(graph, reruns, false, options);
  Reschedule reschedule(graph, reruns);
  std::mt19937_64 random(seed);
  const Sequence once{each_once(reruns), {}};
  Sequence now = once;
  std::vector<WalkedState> states;
  std::size_t since_start = 0;
  while (states.size() < changes) {
    const std::vector<Change> possible = rules.changes(now);
    if (possible.empty() || since_start == per_start) {
      if (since_start == 0) break;
      now = once;
      since_start = 0;
      continue;
    }
    const Change& change = possible[random() % possible.size()];
    WalkedState state;
    const auto start = Clock::now();
    std::optional<Sequence> next = rules.apply(now, change);
    if (!next) continue;
    state.peak = reschedule.lower(*next).peak;
    state.seconds = seconds_since(start);
    now = *std::move(next);
    ++since_start;
    const auto full_start = Clock::now();
    const Result<StateGraph> made = graph_of(graph, splitting_of(reruns, now));
    if (!made.ok()) return made.error();
    state.full_peak = least_found(in_turn(*made));
    state.full_seconds = seconds_since(full_start);
    state.free_peak = least_found(made->tasks);
    states.push_back(state);
  }
  return states;
}

}  // namespace lowtide
