#include "lowtide/summary.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "graph/words.h"
#include "lowtide/budget.h"
#include "lowtide/lifetimes.h"
#include "order/algorithms.h"

namespace lowtide {
namespace {

constexpr std::size_t kHolders = 5;

std::string resident_by_role(const Graph& graph) {
  constexpr std::size_t kRoles = static_cast<std::size_t>(Role::temporary) + 1;
  std::array<Bytes, kRoles> bytes;
  for (BufferId id(0); id.index() < graph.num_buffers(); id = id.next()) {
    const Buffer buffer = graph.buffer(id);
    if (!buffer.planned()) bytes[static_cast<std::size_t>(buffer.role)] += buffer.size;
  }
  std::string text;
  for (std::size_t role = 0; role < kRoles; ++role) {
    if (bytes[role] == Bytes(0)) continue;
    text += words(text.empty() ? ": " : ", ", role_name(static_cast<Role>(role)), " ", format_bytes(bytes[role]));
  }
  return text;
}

std::string program_peak(const Graph& graph) {
  const Result<Order> order = program_order(graph);
  if (!order.ok() || order->empty()) return "";
  const Result<Lifetimes> lives = lifetimes(graph, *order);
  if (!lives.ok()) return "";
  const OpId id = (*order)[lives->peak_step.index()];
  const Op op = graph.op(id);
  std::string text =
      words("peak      ", format_bytes(lives->peak), " in program order, at op ", id, " '", op.name, "'");
  if (!op.source.empty() || !op.module.empty()) {
    const std::string_view separator = op.source.empty() || op.module.empty() ? "" : ", ";
    text += words(" (", op.source, separator, op.module.empty() ? "" : "in ", op.module, ")");
  }
  std::string holders;
  for (const Culprit& holder : largest_at(graph, *order, *lives, lives->peak_step, kHolders)) {
    holders += words(holders.empty() ? "\n          held by " : ", ", holder.name, " ", format_bytes(holder.size));
  }
  return text + holders;
}

}  // namespace

std::string summary(const Graph& graph) {
  std::size_t planned = 0;
  for (BufferId id(0); id.index() < graph.num_buffers(); id = id.next()) planned += graph.buffer(id).planned() ? 1 : 0;
  return words("graph     ", graph.num_ops(), " ops, ", graph.num_buffers(), " buffers (", planned, " planned, ",
               graph.num_buffers() - planned, " resident), ", graph.num_versions(), " versions, ", graph.num_values(),
               " values\n", "resident  ", format_bytes(graph.resident_bytes()), resident_by_role(graph), "\n",
               program_peak(graph));
}

std::string summary(const Plan& plan) {
  std::array<char, 64> figures{};
  std::snprintf(figures.data(), figures.size(), "%.2f %%", 100.0 * plan.fragmentation());
  const std::string fragmentation(figures.data());
  std::snprintf(figures.data(), figures.size(), "%.3f ms", static_cast<double>(plan.time.count()) / 1e6);
  return words("plan      ", plan.order.size(), " steps, order ", plan.provenance.order, ", layout ",
               plan.provenance.layout, ", lowtide ", plan.provenance.version, "\n", "memory    ",
               format_bytes(plan.resident + plan.arena), " = ", format_bytes(plan.resident), " resident + ",
               format_bytes(plan.arena), " arena\n", "arena     peak ", format_bytes(plan.peak), ", bound ",
               format_bytes(plan.bound), ", fragmentation ", fragmentation, "\n", "time      ", figures.data(),
               " predicted");
}

}  // namespace lowtide
