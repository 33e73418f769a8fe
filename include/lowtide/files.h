// files.h: graphs and plans as files that other tools can read and write.
//
// Both are JSON, each with a format name and a version; docs/formats.md is the schema. A path that ends in ".zst" is
// compressed; when reading, the content decides, not the name. A file of another format or version is refused by name
// (E601, E602), damage with what is wrong and where (E603), and what a graph or a plan itself cannot be with its own
// E1xx or E2xx code. Reading never takes more than a small multiple of the file's size.
//
//   Result<Graph> graph = load_graph("step.json.zst");
//   Result<Plan> plan = load_plan("plan.json");
//   if (graph.ok() && plan.ok()) Status status = verify(*graph, *plan);
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "lowtide/graph.h"
#include "lowtide/plan.h"
#include "lowtide/status.h"

namespace lowtide {

Result<Graph> parse_graph(std::string_view text);
Result<Graph> load_graph(const std::filesystem::path& path);
std::string graph_text(const Graph& graph);
Status save_graph(const Graph& graph, const std::filesystem::path& path);

// What is read has the form of a plan; whether it is right for a graph, only verify() says.
Result<Plan> parse_plan(std::string_view text);
Result<Plan> load_plan(const std::filesystem::path& path);
std::string plan_text(const Plan& plan);

// Writes `plan` only if verify(graph, plan) accepts it.
Status save_plan(const Graph& graph, const Plan& plan, const std::filesystem::path& path);

// For a plan that verify() has accepted already.
Status save_verified_plan(const Plan& plan, const std::filesystem::path& path);

}  // namespace lowtide
