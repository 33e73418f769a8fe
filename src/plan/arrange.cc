#include "plan/arrange.h"

#include <utility>

#include "lowtide/layout.h"
#include "plan/items.h"

namespace lowtide {
namespace {

constexpr std::uint64_t kLayoutSteps = 1'000'000'000;  // about a second
constexpr std::uint64_t kFewLayoutSteps = kLayoutSteps / 20;

Result<NamedLayout> lay_out_with(std::span<const LayoutItem> items, const PlanOptions& options, const Limits& limits,
                                 std::uint64_t steps, std::optional<Bytes> capacity = {}) {
  const LayoutOptions asked{.algorithm = options.layout,
                            .others = options.others.layouts,
                            .steps = limits.steps(steps),
                            .capacity = capacity,
                            .threads = options.threads,
                            .time_limit = limits.time_left()};
  Result<NamedLayout> made = lay_out(items, asked);
  const bool out_of_time = !made.ok() && made.error().code == ErrorCode::work_limit && options.time_limit;
  return out_of_time && options.layout == "auto" ? lay_out(items, {.algorithm = "greedy_by_size"}) : made;
}

}  // namespace

Result<NamedLayout> lay_out_in_time(std::span<const LayoutItem> items, const PlanOptions& options,
                                    const Limits& limits) {
  return lay_out_with(items, options, limits, kLayoutSteps);
}

Result<NamedLayout> lay_out_within(std::span<const LayoutItem> items, const PlanOptions& options, const Limits& limits,
                                   Bytes room) {
  if (options.layout != "auto") return lay_out_in_time(items, options, limits);
  Result<NamedLayout> quick = lay_out_with(items, options, limits, kFewLayoutSteps);
  if (!quick.ok() || quick->layout.arena <= room || quick->bound > room) return quick;
  Result<NamedLayout> found = lay_out_with(items, options, limits, kLayoutSteps, room);
  return found.ok() && found->layout.arena <= room ? found : quick;
}

Provenance provenance_of(std::string_view order, std::string_view layout) {
  return {.order = std::string(order), .layout = std::string(layout), .version = LOWTIDE_VERSION};
}

namespace {

// One block for each buffer, and a place for each workspace.
Status place(const Graph& graph, const PlanOptions& options, const Limits& limits, const Lifetimes& lifetimes,
             Plan& plan) {
  std::vector<LayoutItem> items = items_of(graph, plan.order, lifetimes);
  for (LayoutItem& item : items) item.alignment = options.alignment;
  const Result<NamedLayout> made = lay_out_in_time(items, options, limits);
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

}  // namespace

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

Result<Arranged> arrange(const Graph& graph, std::string_view name, BoundedOrder found, const PlanOptions& options,
                         const Limits& limits) {
  Result<Lifetimes> lives = lifetimes(graph, found.order);
  if (!lives.ok()) return lives.error();
  Arranged made{{}, *std::move(lives)};
  made.plan.order = std::move(found.order);
  made.plan.alignment = options.alignment;
  made.plan.peak = made.lives.peak;
  made.plan.bound = found.bound;
  made.plan.resident = graph.resident_bytes();
  made.plan.provenance = provenance_of(name, {});
  if (Status status = place(graph, options, limits, made.lives, made.plan); !status.ok()) return status.error();
  return made;
}

}  // namespace lowtide
