#include "verify/parts_form.h"

#include <algorithm>

#include "base/words.h"
#include "verify/form.h"

namespace lowtide {
namespace {

bool is_part(const Part& part) {
  return part.index < part.count;
}

}  // namespace

StepPartCheck::StepPartCheck(const Graph& graph, const Plan& plan)
    : graph_(graph), plan_(plan), in_edge_(graph.num_ops()) {
  for (const Edge& edge : graph.edges()) in_edge_[edge.before.index()] = in_edge_[edge.after.index()] = true;
}

Status StepPartCheck::check(StepIndex step) const {
  const auto& [axis, part] = plan_.part(step);
  const OpId op = plan_.order[step.index()];
  const auto refuse = [&](const auto&... why) {
    return Error{ErrorCode::malformed_plan, words("step ", step, " runs ", describe_part(part), " of ",
                                                  describe_op(graph_, op), " along axis ", axis, ", but ", why...)};
  };
  if (!is_part(part)) return refuse("there is no such part");
  if (part.count == 1) return axis == 0 ? Status(Done{}) : refuse("the whole has no axis");
  if (axis >= graph_.num_axes(op)) return refuse("it has ", graph_.num_axes(op));
  if (find_count(graph_.axis(op, axis), part.count) == nullptr) return refuse("it cannot run in so many parts");
  if (in_edge_[op.index()]) return refuse("an edge orders it");
  return Done{};
}

Status check_block_part(const Graph& graph, const Plan& plan, BlockId id) {
  const Block& block = plan.blocks[id.index()];
  const std::uint64_t size = graph.buffer(block.buffer).size.count();
  const std::uint64_t period = block.period.count();
  const auto refuse = [&](const auto&... why) {
    return Error{ErrorCode::malformed_plan,
                 words(describe_block(graph, plan, id), " has a period of ", block.period, ", but ", why...)};
  };
  if (!is_part(block.part)) return refuse("there is no such part");
  if (block.part.count == 1) return period == 0 ? Status(Done{}) : refuse("holds the whole");
  if (period == 0 || period % block.part.count != 0) return refuse("that is not a multiple of ", block.part.count);
  if (size % period != 0) return refuse("its buffer has ", size, " bytes");
  if (!block.offset) return refuse("has no offset: a home holds the whole");
  return Done{};
}

const PartCount* find_count(const Axis& axis, std::uint32_t count) {
  const auto found = std::ranges::lower_bound(axis.counts, count, {}, &PartCount::count);
  return found != axis.counts.end() && found->count == count ? &*found : nullptr;
}

std::string describe_part(const Part& part) {
  return words("part ", part.index, " of ", part.count);
}

}  // namespace lowtide
