// arguments.h: the command line, read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>

#include "lowtide/explain.h"
#include "lowtide/layout.h"
#include "lowtide/plan.h"

namespace lowtide::cli {

struct PlanArguments {
  std::string graph;                  // paths and amounts are as typed
  std::optional<std::string> output;  // none: the plan is not written
  std::optional<std::string> memory_budget;
  std::optional<std::string> latency_budget;
  std::optional<std::string> link;  // what a bus to the host moves
  std::string order = PlanOptions().order;
  std::string layout = PlanOptions().layout;
  bool no_reuse = false;
  std::string recompute = PlanOptions().recompute;
  bool allow_inexact = false;
  std::uint64_t alignment = kAlignment.count();
  double effort = 1.0;
  std::size_t threads = 0;           // 0: as many as there are cores
  std::optional<double> time_limit;  // in seconds
};

struct VerifyArguments {
  std::string graph;
  std::string plan;
};

struct InspectArguments {
  std::string file;
  std::size_t top = 5;  // how many of those who hold the peak are shown
};

struct ExplainArguments {
  std::string graph;
  std::optional<std::string> plan;  // none: as eager PyTorch runs the graph
  std::size_t top = ExplainOptions().holders;
  std::optional<std::string> link;  // what a bus to the host moves
};

struct PackArguments {
  std::string buffers;
  std::optional<std::string> output;  // none: the offsets are not written
  std::optional<std::string> svg;     // none: nothing is drawn
  std::optional<std::string> capacity;
  std::string algorithm{LayoutOptions().algorithm};
  std::uint64_t work = LayoutOptions().steps;
  std::size_t threads = 0;           // 0: as many as there are cores
  std::optional<double> time_limit;  // in seconds
  bool map = false;                  // draw it with letters
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
  std::variant<PlanArguments, VerifyArguments, InspectArguments, ExplainArguments, PackArguments, Answer, UsageError>
      wanted;
  bool json = false;
  bool quiet = false;
};

CommandLine read_command_line(int argc, char** argv);

// Whether `name` is a command of this program itself.
bool is_command(const std::string& name);

// "'paln' is no command, ...", with those that are.
UsageError unknown_command(const std::string& name);

}  // namespace lowtide::cli
