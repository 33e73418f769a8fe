// formats.h: the two formats, between text and object. docs/formats.md is the schema.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "io/json_sections.h"
#include "io/json_writer.h"
#include "io/text.h"
#include "lowtide/graph.h"
#include "lowtide/plan.h"

namespace lowtide {

inline constexpr std::string_view kGraphFormat = "lowtide-graph";
inline constexpr std::string_view kPlanFormat = "lowtide-plan";

// `subject` is what messages call the text: a path.
Result<Graph> read_graph(Text text, const std::string& subject);
Result<Plan> read_plan(Text text, const std::string& subject);

void write_graph(const Graph& graph, JsonWriter& out);
void write_plan(const Plan& plan, JsonWriter& out);

struct FormatText {
  std::size_t version;
  std::vector<JsonSection> sections;
};
// The sections of a text of that format, among them only those that its version knows. `known` has those of each
// version that is read, from 1 on. E601 and E602 where it is another.
Result<FormatText> open_format(Text& text, std::string_view format,
                               const std::vector<std::vector<std::string_view>>& known, const std::string& subject);

// The same error, which says what it is about.
Error about(const std::string& subject, Error error);

}  // namespace lowtide
