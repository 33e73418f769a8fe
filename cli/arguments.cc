#include "arguments.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <map>
#include <span>

#include "companions.h"
#include "exit_codes.h"
#include "lowtide/layout.h"
#include "lowtide/order.h"
#include "lowtide/published.h"
#include "lowtide/recompute.h"
#include "numbers.h"

namespace lowtide::cli {
namespace {

constexpr std::string_view kCommands[] = {"plan", "verify", "inspect", "explain", "pack"};
// What programs of the Python package do.
const std::map<std::string, std::string> kOfPython = {
    {"fit", "Say whether a training step fits on a device, and the largest batch that does"},
    {"selftest", "Check Lowtide on a device: bits, bytes, budgets and times"}};
constexpr double kMostSeconds = 1e6;
constexpr std::uint64_t kMostThreads = 256;

std::string list(std::span<const std::string_view> names) {
  std::string text;
  for (const std::string_view name : names) text += (text.empty() ? "" : ", ") + std::string(name);
  return text;
}

template <typename Algorithm>
std::string list(std::string title, std::span<const Algorithm> ours, const std::vector<Algorithm>& others) {
  std::string text = std::move(title) + ":\n";
  for (const std::span<const Algorithm> algorithms : {ours, std::span<const Algorithm>(others)}) {
    for (const Algorithm& algorithm : algorithms) {
      text += "  " + std::string(algorithm.name) + ": " + std::string(algorithm.description) + "\n";
    }
  }
  return text;
}

// So that --help shows them; main() runs them.
void add_companions(CLI::App& app) {
  for (const Companion& companion : companions()) {
    if (is_command(companion.name)) continue;
    const auto known = kOfPython.find(companion.name);
    app.add_subcommand(companion.name, known != kOfPython.end() ? known->second : "Run " + companion.program.string());
  }
}

std::string layouts(std::string title) {
  return list(std::move(title), layout_algorithms(), published().layouts) +
         "  auto: The smallest that these find, the programs left out.\n";
}

void add_output_flags(CLI::App& command, CommandLine& line) {
  command.add_flag("--json", line.json, "Print one JSON object, for errors too");
  command.add_flag("-q,--quiet", line.quiet, "Print nothing but errors");
}

template <typename Arguments>
void add_search_limits(CLI::App& command, Arguments& arguments) {
  command.add_option("--threads", arguments.threads, "Side by side, with the same answer; all cores unless given")
      ->check(whole_number(1, kMostThreads))
      ->type_name("NUMBER");
  command.add_option("--time-limit", arguments.time_limit, "Take the best that is found by then, in seconds")
      ->check(number(0, kMostSeconds))
      ->type_name("SECONDS");
}

CLI::App* add_plan(CLI::App& app, CommandLine& line, PlanArguments& arguments) {
  CLI::App* command = app.add_subcommand("plan", "Decide when each op of a graph runs and where each buffer lies");
  command->add_option("GRAPH", arguments.graph, "The graph file")->required()->type_name("");
  command->add_option("-o,--output", arguments.output, "Write the plan here; compressed if the name ends in .zst")
      ->type_name("PLAN");
  command
      ->add_option("--memory-budget", arguments.memory_budget,
                   "For resident bytes and arena: 6GiB, 800MB, or 60% of what eager needs")
      ->type_name("AMOUNT");
  command->add_option("--latency-budget", arguments.latency_budget, "For the ops' time in all: 20ms, 1.5s")
      ->type_name("TIME");
  command
      ->add_option("--link", arguments.link,
                   "For the memory budget, tensors may leave for the host at this rate: 16GB/s")
      ->type_name("RATE");
  command->add_option("--order", arguments.order, "How to order the ops")->type_name("NAME")->capture_default_str();
  command->add_option("--layout", arguments.layout, "How to lay out the arena")
      ->type_name("NAME")
      ->capture_default_str();
  command->add_flag("--no-reuse", arguments.no_reuse, "Make no result in the bytes of an operand");
  command->add_option("--recompute", arguments.recompute, "What chooses ops that run again for a budget, or none")
      ->type_name("NAME")
      ->capture_default_str();
  command->add_flag("--allow-inexact", arguments.allow_inexact,
                    "For the memory budget, ops may run in parts whose sums have other rounding");
  command->add_option("--alignment", arguments.alignment, "Every offset is a multiple of this")
      ->check(whole_number(1))
      ->type_name("BYTES")
      ->capture_default_str();
  command->add_option("--effort", arguments.effort, "2 lets searches do twice their work, 0.5 half of it")
      ->check(number(0.001, 1000))
      ->type_name("FACTOR")
      ->capture_default_str();
  add_search_limits(*command, arguments);
  add_output_flags(*command, line);
  command->footer(list("Orders", order_algorithms(), published().orders) + "\n" + layouts("Layouts") + "\n" +
                  list("Recompute", recompute_algorithms(), published().recomputes) +
                  "\nExamples:\n"
                  "  lowtide plan step.json -o plan.json\n"
                  "  lowtide plan step.json.zst --memory-budget 6GiB --json\n"
                  "  lowtide plan step.json.zst --memory-budget 6GiB --link 16GB/s");
  return command;
}

CLI::App* add_verify(CLI::App& app, CommandLine& line, VerifyArguments& arguments) {
  CLI::App* command = app.add_subcommand("verify", "Check that a plan is right for a graph");
  command->add_option("GRAPH", arguments.graph, "The graph file")->required()->type_name("");
  command->add_option("PLAN", arguments.plan, "The plan file")->required()->type_name("");
  add_output_flags(*command, line);
  command->footer(
      "Examples:\n"
      "  lowtide verify step.json plan.json\n"
      "  lowtide verify step.json plan.json --quiet && echo right");
  return command;
}

CLI::App* add_inspect(CLI::App& app, CommandLine& line, InspectArguments& arguments) {
  CLI::App* command = app.add_subcommand("inspect", "Show what a graph or plan holds, and who holds the peak");
  command->add_option("FILE", arguments.file, "A graph or plan file")->required()->type_name("");
  command->add_option("--top", arguments.top, "How many of those who hold the peak to show")
      ->check(whole_number())
      ->type_name("N")
      ->capture_default_str();
  add_output_flags(*command, line);
  command->footer(
      "Examples:\n"
      "  lowtide inspect step.json --top 10\n"
      "  lowtide inspect plan.json --json");
  return command;
}

CLI::App* add_explain(CLI::App& app, CommandLine& line, ExplainArguments& arguments) {
  CLI::App* command = app.add_subcommand("explain", "Say who holds the peak of a step, why, and what would lower it");
  command->add_option("GRAPH", arguments.graph, "The graph file")->required()->type_name("");
  command->add_option("PLAN", arguments.plan, "A plan of it; without, the graph as eager PyTorch runs it")
      ->type_name("");
  command->add_option("--top", arguments.top, "How many groups of tensors to show")
      ->check(whole_number())
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--link", arguments.link, "What a bus to the host moves: 16GB/s unless given")->type_name("RATE");
  add_output_flags(*command, line);
  command->footer(
      "Tensors that differ only by the number of their layer are one group. Each gain is what the peak of the whole\n"
      "step would be lower by if that alone were done.\n\n"
      "Examples:\n"
      "  lowtide explain step.json\n"
      "  lowtide explain step.json plan.json --top 3\n"
      "  lowtide explain step.json --link 50GB/s --json");
  return command;
}

CLI::App* add_pack(CLI::App& app, CommandLine& line, PackArguments& arguments) {
  CLI::App* command = app.add_subcommand("pack", "Give buffers with sizes and lives their offsets in a small arena");
  command->add_option("BUFFERS", arguments.buffers, "A CSV or JSON file of buffers with id, lower, upper, size")
      ->required()
      ->type_name("");
  command
      ->add_option("-o,--output", arguments.output,
                   "Write the buffers with their offsets here; JSON if it ends in .json")
      ->type_name("FILE");
  command
      ->add_option("--capacity", arguments.capacity, "An arena that is small enough: 6GiB, 800MB, or a number of bytes")
      ->type_name("AMOUNT");
  command->add_option("--algorithm", arguments.algorithm, "How to pack")->type_name("NAME")->capture_default_str();
  command->add_option("--work", arguments.work, "When to stop looking for a smaller arena; a step is about 1 ns")
      ->check(whole_number())
      ->type_name("STEPS")
      ->capture_default_str();
  add_search_limits(*command, arguments);
  command->add_flag("--map", arguments.map, "Draw the arena with letters, 80 columns wide");
  command->add_option("--svg", arguments.svg, "Draw the arena into this SVG file")->type_name("FILE");
  add_output_flags(*command, line);
  command->footer(
      "A buffer takes size bytes in [lower, upper). Columns and fields may come in any order, and two more may be\n"
      "there: alignment, and offset for buffers that must lie there.\n\n" +
      layouts("Algorithms") +
      "\nExamples:\n"
      "  lowtide pack buffers.csv --map\n"
      "  lowtide pack buffers.csv -o packed.csv --svg packed.svg\n"
      "  lowtide pack buffers.csv --capacity 1MiB --json");
  return command;
}

// A mistyped option comes before what is missing because of it.
std::string what_is_wrong(const CLI::App& app, const CLI::ParseError& error) {
  const bool has_command = !app.get_subcommands().empty();
  for (const bool of_command : {false, true}) {
    for (const std::string& word : app.remaining(of_command)) {
      if (word.size() < 2 || !word.starts_with('-')) continue;
      return has_command && !of_command ? word + " comes before the command, but options come after it"
                                        : "there is no option " + word;
    }
  }
  return has_command ? error.what() : "a command is missing: one of " + list(kCommands);
}

bool same_file(const std::string& one, const std::optional<std::string>& other) {
  std::error_code ignored;
  return other && (one == *other || std::filesystem::equivalent(one, *other, ignored));
}

// What is wrong with arguments that are fine one by one.
std::optional<UsageError> contradiction(const PlanArguments& arguments, const CommandLine&) {
  if (!same_file(arguments.graph, arguments.output)) return std::nullopt;
  return UsageError{"the plan would overwrite the graph " + arguments.graph, "name another file with -o"};
}

std::optional<UsageError> contradiction(const PackArguments& arguments, const CommandLine& line) {
  if (arguments.map && (line.json || line.quiet)) {
    return UsageError{"--map cannot be shown with --json or --quiet", "to draw into a file: --svg FILE"};
  }
  const std::string& buffers = arguments.buffers;
  if (same_file(buffers, arguments.output)) {
    return UsageError{"the offsets would overwrite the buffers " + buffers, "name another file with -o"};
  }
  if (same_file(buffers, arguments.svg) || (arguments.output && same_file(*arguments.output, arguments.svg))) {
    return UsageError{"the drawing would overwrite " + *arguments.svg, "name another file with --svg"};
  }
  return std::nullopt;
}

template <typename Arguments>
void want(CommandLine& line, Arguments arguments) {
  if (std::optional<UsageError> error = contradiction(arguments, line)) {
    line.wanted = *std::move(error);
  } else {
    line.wanted = std::move(arguments);
  }
}

}  // namespace

bool is_command(const std::string& name) {
  return std::ranges::find(kCommands, name) != std::end(kCommands);
}

UsageError unknown_command(const std::string& name) {
  UsageError error{
      "'" + name + "' is no command, and no program lowtide-" + name + " is beside this one or on the path",
      "the commands are " + list(kCommands)};
  for (const Companion& companion : companions()) error.advice += ", " + companion.name;
  if (kOfPython.contains(name)) {
    error.advice = name + " is a part of the Python package: install it, and lowtide-" + name + " is found";
  }
  return error;
}

CommandLine read_command_line(int argc, char** argv) {
  CommandLine line;
  PlanArguments plan;
  VerifyArguments verify;
  InspectArguments inspect;
  ExplainArguments explain;
  PackArguments pack;

  CLI::App app("Lowtide plans the memory of deep-learning programs.", "lowtide");
  app.get_formatter()->label("REQUIRED", "");
  app.get_formatter()->label("SUBCOMMAND", "COMMAND");
  app.get_formatter()->label("Positionals", "Arguments");
  app.get_formatter()->column_width(36);
  app.set_help_flag("-h,--help", "Show this");
  app.set_version_flag("--version", "lowtide " LOWTIDE_VERSION, "Show the version");
  app.require_subcommand(1);
  app.footer(
      "Any program lowtide-NAME beside this one or on the path is a command NAME; the Python package brings fit\n"
      "and selftest.\n\n"
      "Exit codes:\n" +
      exit_code_table() +
      "\nExamples:\n"
      "  lowtide plan step.json -o plan.json\n"
      "  lowtide inspect --help");
  const CLI::App* plan_command = add_plan(app, line, plan);
  const CLI::App* verify_command = add_verify(app, line, verify);
  const CLI::App* inspect_command = add_inspect(app, line, inspect);
  const CLI::App* explain_command = add_explain(app, line, explain);
  const CLI::App* pack_command = add_pack(app, line, pack);
  add_companions(app);
  for (CLI::App* command : app.get_subcommands({})) command->group("Commands");

  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    line.wanted = Answer{app.help()};
    return line;
  } catch (const CLI::CallForVersion& version) {
    line.wanted = Answer{std::string(version.what()) + "\n"};
    return line;
  } catch (const CLI::ParseError& error) {
    const std::vector<CLI::App*> command = app.get_subcommands();
    const std::string program = command.empty() ? "lowtide" : "lowtide " + command.front()->get_name();
    line.wanted = UsageError{what_is_wrong(app, error), "see " + program + " --help"};
    return line;
  }

  if (*plan_command) {
    want(line, plan);
  } else if (*verify_command) {
    line.wanted = verify;
  } else if (*inspect_command) {
    line.wanted = inspect;
  } else if (*explain_command) {
    line.wanted = explain;
  } else if (*pack_command) {
    want(line, pack);
  } else {
    line.wanted = UsageError{"options come after the command", "see lowtide --help"};
  }
  return line;
}

}  // namespace lowtide::cli
