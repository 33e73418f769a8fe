// commands.h: what the program does, apart from reading its arguments and printing its answers.
#pragma once

#include <string>
#include <vector>

#include "arguments.h"
#include "io/json_object.h"
#include "lowtide/status.h"
#include "terminal.h"

namespace lowtide::cli {

// An answer twice: for people, and with more figures for programs.
struct Report {
  std::string text;
  JsonObject json;
};

// Makes a plan and, if an output is named, writes it.
Result<Report> run(const PlanArguments& arguments, Progress& progress);

// Is this plan right for this graph? If not, the error says what is wrong.
Result<Report> run(const VerifyArguments& arguments, Progress& progress);

// What a graph or plan file holds.
Result<Report> run(const InspectArguments& arguments, Progress& progress);

// Who holds the peak of a graph, or of a plan of it.
Result<Report> run(const ExplainArguments& arguments, Progress& progress);

// Packs the buffers of a file and, if they are named, writes the offsets and a drawing of them.
Result<Report> run(const PackArguments& arguments, Progress& progress);

// Who holds memory, as every answer lists them.
std::vector<JsonObject> culprits_json(const std::vector<Culprit>& culprits);

}  // namespace lowtide::cli
