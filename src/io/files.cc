#include "lowtide/files.h"

#include "io/disk.h"
#include "io/formats.h"
#include "lowtide/verify.h"

namespace lowtide {
namespace {

template <typename Write>
std::string whole(Write write) {
  std::string text;
  JsonWriter out([&](std::string_view piece) { text += piece; });
  write(out);
  return text;
}

template <typename Write>
Status save(const std::filesystem::path& path, Write write) {
  return write_text(path, [&](const Drain& drain) {
    JsonWriter out(drain);
    write(out);
  });
}

}  // namespace

Result<Graph> parse_graph(std::string_view text) {
  return read_graph(Text::copy_of(text), "the text");
}

Result<Graph> load_graph(const std::filesystem::path& path) {
  Result<Text> text = read_text(path);
  if (!text.ok()) return text.error();
  return read_graph(*std::move(text), path.string());
}

std::string graph_text(const Graph& graph) {
  return whole([&](JsonWriter& out) { write_graph(graph, out); });
}

Status save_graph(const Graph& graph, const std::filesystem::path& path) {
  return save(path, [&](JsonWriter& out) { write_graph(graph, out); });
}

Result<Plan> parse_plan(std::string_view text) {
  return read_plan(Text::copy_of(text), "the text");
}

Result<Plan> load_plan(const std::filesystem::path& path) {
  Result<Text> text = read_text(path);
  if (!text.ok()) return text.error();
  return read_plan(*std::move(text), path.string());
}

std::string plan_text(const Plan& plan) {
  return whole([&](JsonWriter& out) { write_plan(plan, out); });
}

Status save_plan(const Graph& graph, const Plan& plan, const std::filesystem::path& path) {
  if (Status status = verify(graph, plan); !status.ok()) return status;
  return save_verified_plan(plan, path);
}

Status save_verified_plan(const Plan& plan, const std::filesystem::path& path) {
  return save(path, [&](JsonWriter& out) { write_plan(plan, out); });
}

}  // namespace lowtide
