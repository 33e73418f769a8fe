#include "lowtide/plan.h"

#include <algorithm>
#include <utility>

#include "graph/words.h"
#include "lowtide/layout.h"
#include "lowtide/lifetimes.h"
#include "lowtide/order.h"
#include "lowtide/verify.h"
#include "order/algorithms.h"
#include "plan/items.h"

namespace lowtide {
namespace {

constexpr std::size_t kCulprits = 8;
constexpr std::uint64_t kLayoutSteps = 1'000'000'000;  // about a second

// One block for each buffer, and a place for each workspace.
Status place(const Graph& graph, std::string_view algorithm, const Lifetimes& lifetimes, Plan& plan) {
  const std::vector<LayoutItem> items = items_of(graph, plan.order, lifetimes);
  const Result<NamedLayout> made = lay_out(items, {.algorithm = algorithm, .steps = kLayoutSteps});
  if (!made.ok()) return made.error();
  plan.provenance.layout = made->algorithm;
  plan.arena = made->layout.arena;
  auto offset = made->layout.offsets.begin();
  for (BufferId id(0); id.index() < graph.num_buffers(); id = id.next()) {
    const Life& life = lifetimes.lives[id.index()];
    plan.blocks.push_back({id, life.begin, life.end, std::nullopt});
    if (graph.buffer(id).planned() && lifetimes.places[id.index()] == id) plan.blocks.back().offset = *offset++;
  }
  for (Block& block : plan.blocks) {
    const BufferId place = lifetimes.places[block.buffer.index()];
    if (place != block.buffer) block.offset = plan.blocks[place.index()].offset;
  }
  for (const OpId op : plan.order) {
    plan.workspaces.push_back(graph.op(op).workspace > Bytes(0) ? *offset++ : Bytes(0));
  }
  return Done{};
}

// Block i stands in for buffer i wherever that is read or written.
void bind_operands(const Graph& graph, Plan& plan) {
  const auto block_of = [&](VersionId version) { return BlockId(graph.version(version).buffer.index()); };
  for (const OpId id : plan.order) {
    const Op op = graph.op(id);
    for (const ValueId read : op.reads) plan.reads.push(block_of(graph.value(read).version));
    plan.reads.close();
    for (const VersionId write : op.writes) plan.writes.push(block_of(write));
    plan.writes.close();
    plan.time += op.cost;
  }
}

struct Arranged {
  Plan plan;  // all but what each step reads and writes
  Lifetimes lives;
};
Result<Arranged> arrange(const Graph& graph, std::string_view name, BoundedOrder found, std::string_view layout) {
  Result<Lifetimes> lives = lifetimes(graph, found.order);
  if (!lives.ok()) return lives.error();
  Arranged made{{}, *std::move(lives)};
  made.plan.order = std::move(found.order);
  made.plan.peak = made.lives.peak;
  made.plan.bound = found.bound;
  made.plan.resident = graph.resident_bytes();
  made.plan.provenance = {.order = std::string(name), .layout = {}, .version = LOWTIDE_VERSION};
  if (Status status = place(graph, layout, made.lives, made.plan); !status.ok()) return status.error();
  return made;
}

Result<Bytes> program_peak(const Graph& graph) {
  const Result<Lifetimes> lives = lifetimes(graph, first_to_last(graph.num_ops()));
  if (!lives.ok()) return lives.error();
  return lives->peak;
}

// The best order may lie badly, and so may places that are reused: program order, in which results have bytes of their
// own or not, is taken where its arena is smaller.
Result<Arranged> arrange_best(const Graph& graph, const BoundedOrder& best, std::string_view layout) {
  Result<Arranged> smallest = arrange(graph, "best", best, layout);
  const auto offer = [&](const Graph& same) {
    const Result<Bytes> peak = program_peak(same);
    if (!smallest.ok() || !peak.ok() || *peak >= smallest->plan.arena) return;
    Result<Arranged> other = arrange(same, "program", {first_to_last(graph.num_ops()), best.bound}, layout);
    if (other.ok() && other->plan.arena < smallest->plan.arena) smallest = std::move(other);
  };
  if (best.order != first_to_last(graph.num_ops())) offer(graph);
  const bool is_smallest = smallest.ok() && smallest->plan.arena == smallest->plan.bound;
  if (graph.has_reuses() && !is_smallest) offer(graph.without_reuses());
  return smallest;
}

Result<Bytes> resolve_memory_budget(const Graph& graph, const Budget& budget) {
  if (std::holds_alternative<Bytes>(budget)) return resolve(budget, Bytes(0));
  const Result<Bytes> eager = program_peak(graph.without_reuses());
  if (!eager.ok()) return eager.error();
  return resolve(budget, graph.resident_bytes() + *eager);
}

Infeasible conflict(const Graph& graph, const Lifetimes& lifetimes, const Plan& plan) {
  return {plan.resident + plan.bound, lifetimes.peak_step,
          largest_at(graph, plan.order, lifetimes, lifetimes.peak_step, kCulprits)};
}

std::string amount(Bytes bytes) {
  return words(format_bytes(bytes), " (", bytes, " bytes)");
}

Status check_memory(const Graph& graph, const Lifetimes& lifetimes, const Plan& plan, Bytes budget) {
  const Bytes needed = plan.resident + plan.arena;
  if (needed <= budget) return Done{};
  Infeasible why = conflict(graph, lifetimes, plan);
  std::string message = words("the memory budget is ", amount(budget), ", but the plan needs ", amount(needed), ": ",
                              format_bytes(plan.resident), " resident and an arena of ", format_bytes(plan.arena),
                              "; no order and layout of these ops needs less than ", amount(why.bound), " in all");
  if (!plan.order.empty()) {
    const Op op = graph.op(plan.order[why.step.index()]);
    message += words("; the peak is at step ", why.step, ", op '", op.name, "'");
    if (!op.source.empty()) message += words(" (", op.source, ")");
  }
  for (std::size_t i = 0; i < why.culprits.size(); ++i) {
    message += words(i == 0 ? ", held by " : ", ", why.culprits[i].name, " ", format_bytes(why.culprits[i].size));
  }
  return Error{ErrorCode::memory_infeasible, std::move(message), std::move(why)};
}

Status check_latency(const Graph& graph, const Lifetimes& lifetimes, const Plan& plan, Nanos budget) {
  if (plan.time <= budget) return Done{};
  return Error{ErrorCode::latency_infeasible,
               words("the latency budget is ", budget, " ns, but the ops take ", plan.time, " ns together"),
               conflict(graph, lifetimes, plan)};
}

Result<Plan> plan_without_reuse(const Graph& graph, PlanOptions options) {
  options.reuse = true;  // there is none in the graph
  Result<Plan> made = plan(graph.without_reuses(), options);
  if (made.ok()) {
    made->provenance.graph = fingerprint(graph);
    return made;
  }
  Error error = made.error();
  if (error.code == ErrorCode::memory_infeasible) error.message += "; operands' bytes are not reused, as asked";
  return error;
}

}  // namespace

double Plan::fragmentation() const {
  if (arena == Bytes(0)) return 0.0;
  return static_cast<double>((arena - peak).count()) / static_cast<double>(arena.count());
}

double Plan::gap() const {
  if (bound == Bytes(0)) return 0.0;
  return static_cast<double>((arena - bound).count()) / static_cast<double>(bound.count());
}

Result<Plan> plan(const Graph& graph, const PlanOptions& options) {
  if (!options.reuse) return plan_without_reuse(graph, options);
  const Result<OrderAlgorithm> algorithm = find_order(options.order);
  if (!algorithm.ok()) return algorithm.error();
  Bytes memory_budget = Bytes::max();
  if (options.memory_budget) {
    const Result<Bytes> resolved = resolve_memory_budget(graph, *options.memory_budget);
    if (!resolved.ok()) return resolved.error();
    memory_budget = *resolved;
  }

  Result<BoundedOrder> found = algorithm->run(graph);
  if (!found.ok()) return found.error();
  found->bound = std::max(found->bound, operand_bound(graph));
  Result<Arranged> arranged = options.order == "best"
                                  ? arrange_best(graph, *found, options.layout)
                                  : arrange(graph, options.order, *std::move(found), options.layout);
  if (!arranged.ok()) return arranged.error();
  Plan& plan = arranged->plan;
  bind_operands(graph, plan);

  if (Status status = check_memory(graph, arranged->lives, plan, memory_budget); !status.ok()) return status.error();
  if (Status status = check_latency(graph, arranged->lives, plan, options.latency_budget.value_or(Nanos::max()));
      !status.ok()) {
    return status.error();
  }
  if (Status status = verify(graph, plan); !status.ok()) return status.error();
  plan.provenance.graph = fingerprint(graph);
  return std::move(plan);
}

}  // namespace lowtide
