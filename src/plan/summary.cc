#include "lowtide/summary.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <set>
#include <span>
#include <utility>

#include "base/words.h"
#include "lowtide/budget.h"
#include "lowtide/lifetimes.h"
#include "order/algorithms.h"

namespace lowtide {
namespace {

std::string place(const Op& op) {
  if (op.source.empty() && op.module.empty()) return "";
  const std::string_view separator = op.source.empty() || op.module.empty() ? "" : ", ";
  return words(" (", op.source, separator, op.module.empty() ? "" : "in ", op.module, ")");
}

// One line each: bytes to the right, then roles and names to the left.
std::string table(std::span<const Culprit> holders) {
  std::size_t size_width = 0;
  std::size_t role_width = 0;
  for (const Culprit& holder : holders) {
    size_width = std::max(size_width, format_bytes(holder.size).size());
    role_width = std::max(role_width, holder.role.size());
  }
  std::string text;
  for (const Culprit& holder : holders) {
    const std::string size = format_bytes(holder.size);
    text += words(text.empty() ? "\nheld by   " : "\n          ", std::string(size_width - size.size(), ' '), size,
                  "  ", holder.role, std::string(role_width - holder.role.size() + 2, ' '), holder.name);
  }
  return text;
}

StepPart part_of(const Plan& plan, std::size_t step) {
  return step < plan.parts.size() ? plan.parts[step] : StepPart();
}

// How many of the steps run an op again. A first run in parts is that of all steps that have its axis and count.
std::string recomputed(const Plan& plan) {
  if (plan.provenance.recompute.empty()) return "";
  std::map<OpId, StepPart> first;
  std::set<std::pair<OpId, std::uint32_t>> ran;
  std::size_t again = 0;
  for (std::size_t step = 0; step < plan.order.size(); ++step) {
    const StepPart how = part_of(plan, step);
    const StepPart& began = first.try_emplace(plan.order[step], how).first->second;
    const bool is_of_first = began.axis == how.axis && began.part.count == how.part.count;
    if (!is_of_first || !ran.emplace(plan.order[step], how.part.index).second) ++again;
  }
  return words(", recompute ", plan.provenance.recompute, " (", again, " of the steps)");
}

// How many of the steps run a part of an op.
std::string in_parts(const Plan& plan) {
  const auto parts = std::ranges::count_if(plan.parts, [](const StepPart& step) { return step.part.count > 1; });
  return parts == 0 ? "" : words(" (", parts, " of them parts of ops)");
}

// A line for each tier. A plan that was read may name blocks that it does not have.
std::string tiers(const Plan& plan) {
  const auto tier_of = [&](BlockId id) {
    return id.index() < plan.blocks.size() ? std::size_t{plan.blocks[id.index()].tier} : 0;
  };
  std::string text;
  for (std::size_t i = 0; i < plan.tiers.size(); ++i) {
    const Tier& tier = plan.tiers[i];
    const auto uses = std::ranges::count_if(plan.transfers, [&](const Transfer& transfer) {
      return std::max(tier_of(transfer.from), tier_of(transfer.to)) == i + 1;
    });
    text +=
        words("swapped   ", format_bytes(tier.resident + tier.arena), " in ", tier.name, " = ",
              format_bytes(tier.resident), " resident + ", format_bytes(tier.arena), " arena, ", uses, " transfers\n");
  }
  return text;
}

}  // namespace

GraphFigures figures(const Graph& graph, std::size_t holders) {
  GraphFigures result{};
  std::array<Bytes, static_cast<std::size_t>(Role::temporary) + 1> resident;
  for (BufferId id(0); id.index() < graph.num_buffers(); id = id.next()) {
    const Buffer buffer = graph.buffer(id);
    if (buffer.planned()) ++result.planned_buffers;
    if (!buffer.planned()) resident[static_cast<std::size_t>(buffer.role)] += buffer.size;
  }
  for (std::size_t role = 0; role < resident.size(); ++role) {
    if (resident[role] > Bytes(0)) result.resident.push_back({static_cast<Role>(role), resident[role]});
  }
  result.bound = operand_bound(graph);

  const Order order = first_to_last(graph.num_ops());
  const Result<Lifetimes> lives = lifetimes(graph.without_reuses(), order);
  if (!lives.ok() || order.empty()) return result;
  result.peak = lives->peak;
  result.peak_op = order[lives->peak_step.index()];
  result.holders = largest_at(graph, order, *lives, lives->peak_step, holders);
  return result;
}

std::string summary(const Graph& graph, std::size_t holders) {
  const GraphFigures found = figures(graph, holders);
  std::string resident;
  for (const auto& [role, size] : found.resident) {
    resident += words(resident.empty() ? ": " : ", ", role_name(role), " ", format_bytes(size));
  }
  std::string peak;
  if (found.peak_op) {
    const Op op = graph.op(*found.peak_op);
    peak = words("\npeak      ", format_bytes(found.peak), " in program order, at op ", *found.peak_op, " '", op.name,
                 "'", place(op), "\nbound     ", format_bytes(found.bound),
                 ": what one op needs on its own, in any order", table(found.holders));
  }
  return words("graph     ", graph.num_ops(), " ops, ", graph.num_buffers(), " buffers (", found.planned_buffers,
               " planned, ", graph.num_buffers() - found.planned_buffers, " resident), ", graph.num_versions(),
               " versions, ", graph.num_values(), " values\nresident  ", format_bytes(graph.resident_bytes()), resident,
               peak);
}

std::string summary(const FoundSoFar& found) {
  const auto percent = [](const char* format, double share) {
    std::array<char, 32> text{};
    std::snprintf(text.data(), text.size(), format, 100.0 * share);
    return std::string(text.data());
  };
  const double gap = found.bound == Bytes(0) ? 0.0
                                             : static_cast<double>((found.peak - found.bound).count()) /
                                                   static_cast<double>(found.bound.count());
  return words("peak ", format_bytes(found.peak), found.more_time ? percent(" at +%.1f %% time", *found.more_time) : "",
               ", bound ", format_bytes(found.bound), percent(", gap %.1f %%", gap));
}

std::string summary(const Plan& plan) {
  std::array<char, 64> figures{};
  std::snprintf(figures.data(), figures.size(), ", gap %.2f %%, fragmentation %.2f %%", 100.0 * plan.gap(),
                100.0 * plan.fragmentation());
  const std::string shares(figures.data());
  std::snprintf(figures.data(), figures.size(), "%.3f ms", static_cast<double>(plan.time.count()) / 1e6);
  return words("plan      ", plan.order.size(), " steps", in_parts(plan), ", order ", plan.provenance.order,
               ", layout ", plan.provenance.layout, recomputed(plan), ", lowtide ", plan.provenance.version, "\n",
               "memory    ", format_bytes(plan.resident + plan.arena), " = ", format_bytes(plan.resident),
               " resident + ", format_bytes(plan.arena), " arena\n", tiers(plan), "arena     peak ",
               format_bytes(plan.peak), ", bound ", format_bytes(plan.bound), shares, "\n", "time      ",
               figures.data(), " predicted");
}

}  // namespace lowtide
