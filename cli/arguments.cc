#include "arguments.h"

#include <CLI/CLI.hpp>
#include <filesystem>
#include <span>

#include "exit_codes.h"
#include "lowtide/layout.h"
#include "lowtide/order.h"

namespace lowtide::cli {
namespace {

constexpr std::string_view kCommands[] = {"plan", "verify", "inspect"};

std::string list(std::span<const std::string_view> names) {
  std::string text;
  for (const std::string_view name : names) text += (text.empty() ? "" : ", ") + std::string(name);
  return text;
}

template <typename Algorithm>
std::string list(std::string title, std::span<const Algorithm> algorithms) {
  std::string text = std::move(title) + ":\n";
  for (const Algorithm& algorithm : algorithms) {
    text += "  " + std::string(algorithm.name) + ": " + std::string(algorithm.description) + "\n";
  }
  return text;
}

void add_output_flags(CLI::App& command, CommandLine& line) {
  command.add_flag("--json", line.json, "Print one JSON object, for errors too");
  command.add_flag("-q,--quiet", line.quiet, "Print nothing but errors");
}

CLI::App* add_plan(CLI::App& app, CommandLine& line, PlanArguments& arguments) {
  CLI::App* command = app.add_subcommand("plan", "Decide when each op of a graph runs and where each buffer lies");
  command->add_option("GRAPH", arguments.graph, "The graph file")->required()->type_name("");
  command->add_option("-o,--output", arguments.output, "Write the plan here; compressed if the name ends in .zst")
      ->type_name("PLAN");
  command
      ->add_option("--memory-budget", arguments.memory_budget,
                   "For resident bytes and arena: 6GiB, 800MB, or 0.6 of what program order needs")
      ->type_name("AMOUNT");
  command->add_option("--latency-budget", arguments.latency_budget, "For the ops' time in all: 20ms, 1.5s")
      ->type_name("TIME");
  command->add_option("--order", arguments.order, "How to order the ops")->type_name("NAME")->capture_default_str();
  command->add_option("--layout", arguments.layout, "How to lay out the arena")
      ->type_name("NAME")
      ->capture_default_str();
  add_output_flags(*command, line);
  command->footer(list("Orders", order_algorithms()) + "\n" + list("Layouts", layout_algorithms()) +
                  "  auto: The smallest that these find.\n"
                  "\nExamples:\n"
                  "  lowtide plan step.json -o plan.json\n"
                  "  lowtide plan step.json.zst --memory-budget 6GiB --json");
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
      ->check(CLI::NonNegativeNumber)
      ->type_name("N")
      ->capture_default_str();
  add_output_flags(*command, line);
  command->footer(
      "Examples:\n"
      "  lowtide inspect step.json --top 10\n"
      "  lowtide inspect plan.json --json");
  return command;
}

// What is wrong with arguments that are fine one by one.
std::optional<std::string> contradiction(const PlanArguments& arguments) {
  std::error_code ignored;
  if (arguments.output && std::filesystem::equivalent(arguments.graph, *arguments.output, ignored)) {
    return "the plan would overwrite the graph " + arguments.graph;
  }
  return std::nullopt;
}

}  // namespace

bool is_command(const std::string& name) {
  return std::ranges::find(kCommands, name) != std::end(kCommands);
}

UsageError unknown_command(const std::string& name) {
  return {"'" + name + "' is no command of lowtide, and there is no program lowtide-" + name + " on the path",
          "the commands are " + list(kCommands)};
}

CommandLine read_command_line(int argc, char** argv) {
  CommandLine line;
  PlanArguments plan;
  VerifyArguments verify;
  InspectArguments inspect;

  CLI::App app("Lowtide plans the memory of deep-learning programs.", "lowtide");
  app.get_formatter()->label("REQUIRED", "");
  app.get_formatter()->label("SUBCOMMAND", "COMMAND");
  app.get_formatter()->label("Positionals", "Arguments");
  app.get_formatter()->column_width(36);
  app.set_help_flag("-h,--help", "Show this");
  app.set_version_flag("--version", "lowtide " LOWTIDE_VERSION, "Show the version");
  app.require_subcommand(1);
  app.footer("Any other COMMAND runs the program lowtide-COMMAND, if it is on the path.\n\nExit codes:\n" +
             exit_code_table() +
             "\nExamples:\n"
             "  lowtide plan step.json -o plan.json\n"
             "  lowtide inspect --help");
  const CLI::App* plan_command = add_plan(app, line, plan);
  const CLI::App* verify_command = add_verify(app, line, verify);
  add_inspect(app, line, inspect);
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
    const std::string message = argc < 2 ? "a command is missing: one of " + list(kCommands) : error.what();
    line.wanted = UsageError{message, "see " + program + " --help"};
    return line;
  }

  if (*plan_command) {
    line.wanted = plan;
    if (const auto why = contradiction(plan)) line.wanted = UsageError{*why, "name another file with -o"};
  } else if (*verify_command) {
    line.wanted = verify;
  } else {
    line.wanted = inspect;
  }
  return line;
}

}  // namespace lowtide::cli
