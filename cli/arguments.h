// arguments.h: the command line, read.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <variant>

#include "lowtide/plan.h"

namespace lowtide::cli {

struct PlanArguments {
  std::string graph;                  // paths and amounts are as typed
  std::optional<std::string> output;  // none: the plan is not written
  std::optional<std::string> memory_budget;
  std::optional<std::string> latency_budget;
  std::string order = PlanOptions().order;
  std::string layout = PlanOptions().layout;
};

struct VerifyArguments {
  std::string graph;
  std::string plan;
};

struct InspectArguments {
  std::string file;
  std::size_t top = 5;  // how many of those who hold the peak are shown
};

// Nothing is to be done but to show this: --help, --version.
struct Answer {
  std::string text;
};

struct UsageError {
  std::string message;
  std::string advice;
};

struct CommandLine {
  std::variant<PlanArguments, VerifyArguments, InspectArguments, Answer, UsageError> wanted;
  bool json = false;
  bool quiet = false;
};

CommandLine read_command_line(int argc, char** argv);

// Whether `name` is a command of this program itself.
bool is_command(const std::string& name);

// "'paln' is no command of lowtide: ...", with those that are.
UsageError unknown_command(const std::string& name);

}  // namespace lowtide::cli
