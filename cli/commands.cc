#include "commands.h"

#include <optional>
#include <utility>

#include "io/explanation_json.h"
#include "io/formats.h"
#include "lowtide/budget.h"
#include "lowtide/explain.h"
#include "lowtide/files.h"
#include "lowtide/plan.h"
#include "lowtide/published.h"
#include "lowtide/summary.h"
#include "lowtide/verify.h"
#include "search_limits.h"

namespace lowtide::cli {
namespace {

void add_figures(JsonObject& json, const Plan& plan) {
  std::vector<JsonObject> tiers;
  for (const Tier& tier : plan.tiers) {
    tiers.push_back(
        JsonObject().add("name", tier.name).add("resident_bytes", tier.resident).add("arena_bytes", tier.arena));
  }
  json.add("steps", plan.order.size())
      .add("blocks", plan.blocks.size())
      .add("arena_bytes", plan.arena)
      .add("peak_bytes", plan.peak)
      .add("bound_bytes", plan.bound)
      .add("gap", plan.gap())
      .add("resident_bytes", plan.resident)
      .add("total_bytes", plan.resident + plan.arena)
      .add("fragmentation", plan.fragmentation())
      .add("tiers", tiers)
      .add("transfers", plan.transfers.size())
      .add("time_ns", plan.time)
      .add("order", plan.provenance.order)
      .add("layout", plan.provenance.layout)
      .add("recompute", plan.provenance.recompute)
      .add("lowtide_version", plan.provenance.version);
}

void add_figures(JsonObject& json, const Graph& graph, std::size_t top) {
  const GraphFigures found = figures(graph, top);
  JsonObject resident;
  for (const auto& [role, size] : found.resident) resident.add(role_name(role), size);
  json.add("ops", graph.num_ops())
      .add("buffers", graph.num_buffers())
      .add("planned_buffers", found.planned_buffers)
      .add("versions", graph.num_versions())
      .add("values", graph.num_values())
      .add("resident_bytes", graph.resident_bytes())
      .add("resident_by_role", resident)
      .add("program_peak_bytes", found.peak)
      .add("operand_bound_bytes", found.bound);
  if (found.peak_op) {
    const Op op = graph.op(*found.peak_op);
    json.add(
        "peak_op",
        JsonObject().add("id", *found.peak_op).add("name", op.name).add("source", op.source).add("module", op.module));
  } else {
    json.add("peak_op", nullptr);
  }
  json.add("held_by", culprits_json(found.holders));
}

}  // namespace

std::vector<JsonObject> culprits_json(const std::vector<Culprit>& culprits) {
  std::vector<JsonObject> list;
  for (const Culprit& culprit : culprits) {
    list.push_back(JsonObject()
                       .add("name", culprit.name)
                       .add("role", culprit.role)
                       .add("bytes", culprit.size)
                       .add("source", culprit.source));
  }
  return list;
}

Result<Report> run(const PlanArguments& arguments, Progress& progress) {
  PlanOptions options{.order = arguments.order,
                      .layout = arguments.layout,
                      .reuse = !arguments.no_reuse,
                      .recompute = arguments.recompute,
                      .parts = arguments.allow_inexact ? Parts::any : Parts::exact,
                      .others = published(),
                      .alignment = Bytes(arguments.alignment),
                      .effort = arguments.effort};
  set_search_limits(arguments, options);
  if (arguments.memory_budget) {
    const Result<Budget> budget = parse_budget(*arguments.memory_budget);
    if (!budget.ok()) return about("--memory-budget", budget.error());
    options.memory_budget = *budget;
  }
  if (arguments.latency_budget) {
    const Result<Nanos> budget = parse_time_budget(*arguments.latency_budget);
    if (!budget.ok()) return about("--latency-budget", budget.error());
    options.latency_budget = *budget;
  }
  std::optional<Bytes> rate;
  if (arguments.link) {
    const Result<Bytes> parsed = parse_rate(*arguments.link);
    if (!parsed.ok()) return about("--link", parsed.error());
    if (!arguments.memory_budget) {
      return Error{ErrorCode::invalid_setting, "--link: nothing leaves without a --memory-budget"};
    }
    rate = *parsed;
  }

  progress.stage("reading");
  const Result<Graph> graph = load_graph(arguments.graph);
  if (!graph.ok()) return graph.error();
  if (rate) {
    options.swap = Swap{.name = "host",
                        .link = {*rate, *rate, /*latency=*/Nanos(0), /*duplex=*/true},
                        .may_leave = kept_between_steps(*graph)};
  }
  progress.stage("planning");
  options.on_progress = [&](const FoundSoFar& found) { progress.found(summary(found)); };
  const Result<Plan> made = plan(*graph, options);
  if (!made.ok()) return made.error();

  Report report{summary(*made), JsonObject().add("ok", true).add("graph", arguments.graph)};
  if (arguments.output) {
    progress.stage("writing");
    const std::optional<Uninterrupted> until_written = uninterrupted_write(*arguments.output);
    if (const Status saved = save_plan(*graph, *made, *arguments.output); !saved.ok()) return saved.error();
    report.text += "\nwritten   " + *arguments.output;
    report.json.add("output", *arguments.output);
  } else {
    report.json.add("output", nullptr);
  }
  add_figures(report.json, *made);
  return report;
}

Result<Report> run(const VerifyArguments& arguments, Progress& progress) {
  progress.stage("reading");
  const Result<Graph> graph = load_graph(arguments.graph);
  if (!graph.ok()) return graph.error();
  const Result<Plan> plan = load_plan(arguments.plan);
  if (!plan.ok()) return plan.error();
  progress.stage("verifying");
  if (const Status right = verify(*graph, *plan); !right.ok()) return right.error();

  Report report{"right     for " + arguments.graph + "\n" + summary(*plan),
                JsonObject().add("ok", true).add("graph", arguments.graph).add("plan", arguments.plan)};
  add_figures(report.json, *plan);
  return report;
}

Result<Report> run(const InspectArguments& arguments, Progress& progress) {
  progress.stage("reading");
  const Result<Graph> graph = load_graph(arguments.file);
  if (graph.ok()) {
    Report report{summary(*graph, arguments.top),
                  JsonObject().add("ok", true).add("file", arguments.file).add("kind", "graph")};
    add_figures(report.json, *graph, arguments.top);
    return report;
  }
  if (graph.error().code != ErrorCode::wrong_format) return graph.error();
  const Result<Plan> plan = load_plan(arguments.file);
  if (!plan.ok() && plan.error().code == ErrorCode::wrong_format) {
    return Error{ErrorCode::wrong_format, arguments.file + " is neither a graph nor a plan file"};
  }
  if (!plan.ok()) return plan.error();
  Report report{summary(*plan), JsonObject().add("ok", true).add("file", arguments.file).add("kind", "plan")};
  add_figures(report.json, *plan);
  return report;
}

Result<Report> run(const ExplainArguments& arguments, Progress& progress) {
  ExplainOptions options{.holders = arguments.top};
  if (arguments.link) {
    const Result<Bytes> rate = parse_rate(*arguments.link);
    if (!rate.ok()) return about("--link", rate.error());
    options.swap_per_second = *rate;
  }
  progress.stage("reading");
  const Result<Graph> graph = load_graph(arguments.graph);
  if (!graph.ok()) return graph.error();
  JsonObject json = JsonObject().add("ok", true).add("graph", arguments.graph);
  Result<Explanation> explained = Explanation{};
  if (arguments.plan) {
    const Result<Plan> plan = load_plan(*arguments.plan);
    if (!plan.ok()) return plan.error();
    progress.stage("explaining");
    explained = explain(*graph, *plan, options);
    json.add("plan", *arguments.plan);
  } else {
    progress.stage("explaining");
    explained = explain(*graph, options);
    json.add("plan", nullptr);
  }
  if (!explained.ok()) return explained.error();
  add_fields(json, *explained);
  return Report{summary(*explained), std::move(json)};
}

}  // namespace lowtide::cli
