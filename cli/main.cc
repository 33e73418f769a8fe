// The lowtide program: reads its arguments, runs a command, prints the answer, and says by its exit code how it went.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "arguments.h"
#include "commands.h"
#include "companions.h"
#include "exit_codes.h"
#include "io/json_object.h"
#include "lowtide/status.h"
#include "terminal.h"

namespace lowtide::cli {
namespace {

// A file may hold any text, but a terminal takes some for orders.
std::string printable(std::string text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto next = static_cast<unsigned char>(i + 1 < text.size() ? text[i + 1] : 0);
    const bool second_set = byte == 0xC2 && next >= 0x80 && next < 0xA0;  // U+0080 to U+009F, as UTF-8
    if (second_set) text.erase(i + 1, 1);
    if ((byte < 0x20 && byte != '\n') || byte == 0x7F || second_set) text[i] = '?';
  }
  return text;
}

void complain(std::string_view kind, const std::string& message, const std::string& advice) {
  std::string text = "lowtide: " + std::string(kind) + ": " + message + "\n";
  if (!advice.empty()) text += "lowtide: " + advice + "\n";
  std::fputs(printable(std::move(text)).c_str(), stderr);
}

// Prints `text` and gives `code`. A reader that has seen enough (a closed pipe) is no failure.
int print(const std::string& text, int code) {
  std::fputs(text.c_str(), stdout);
  if (std::fflush(stdout) == 0 || errno == EPIPE) return code;
  complain("error", std::string("cannot write to standard output: ") + std::strerror(errno), "");
  return code == kDone ? kInvalidInput : code;
}

int print_failure(int code, const JsonObject& details) {
  const JsonObject answer =
      JsonObject().add("ok", false).add("exit_code", static_cast<unsigned>(code)).add("error", details);
  return print(answer.text() + "\n", code);
}

// What is no error of the library's. `kind` is the code that --json prints.
int refuse(const CommandLine& line, int code, std::string_view kind, const UsageError& error) {
  if (line.json) {
    return print_failure(code,
                         JsonObject().add("code", kind).add("message", error.message).add("advice", error.advice));
  }
  complain("error", error.message, error.advice);
  return code;
}

// What to do next, where that is known.
std::string advice(const CommandLine& line, const Error& error) {
  const bool packs = std::holds_alternative<PackArguments>(line.wanted);
  switch (error.code) {
    case ErrorCode::memory_infeasible:
      return "a larger --memory-budget or a smaller batch would help; to see who holds the peak: lowtide explain";
    case ErrorCode::unknown_algorithm:
      return packs ? "what each does: lowtide pack --help" : "what each does: lowtide plan --help";
    case ErrorCode::invalid_amount:
      if (packs || std::holds_alternative<ExplainArguments>(line.wanted)) return "amounts are written 6GiB or 800MB";
      return "amounts are written 6GiB, 800MB or 0.6; times 20ms or 1.5s";
    case ErrorCode::packing_infeasible:
      return "a larger --capacity would help, or a shorter life of one of these buffers";
    case ErrorCode::work_limit:
      return packs ? "more --work or a larger --capacity would help" : "";
    case ErrorCode::wrong_format:
      if (packs) return "a file of buffers begins with the line id,lower,upper,size";
      return "to see what a file is: lowtide inspect; lowtide verify takes the graph first, then the plan";
    default:
      return "";
  }
}

int fail(const CommandLine& line, const Error& error) {
  const int code = exit_code(error.code);
  if (!line.json) {
    complain("error " + code_text(error.code), error.message, advice(line, error));
    return code;
  }
  JsonObject details;
  details.add("code", code_text(error.code)).add("message", error.message).add("advice", advice(line, error));
  if (code == kInfeasible) {
    details.add("bound_bytes", error.infeasible.bound);
    if (error.code != ErrorCode::packing_infeasible) details.add("step", error.infeasible.step);
    details.add("culprits", culprits_json(error.infeasible.culprits));
  }
  return print_failure(code, details);
}

struct Execute {
  const CommandLine& line;

  int operator()(const Answer& answer) const { return print(answer.text, kDone); }
  int operator()(const UsageError& error) const { return refuse(line, kUsage, "usage", error); }
  template <typename Arguments>
  int operator()(const Arguments& arguments) const {
    Progress progress(!line.json && !line.quiet);
    const Result<Report> report = run(arguments, progress);
    progress.clear();
    if (!report.ok()) return fail(line, report.error());
    if (line.json) return print(report->json.text() + "\n", kDone);
    return line.quiet ? kDone : print(printable(report->text) + "\n", kDone);
  }
};

// Becomes the program lowtide-NAME with the rest of the arguments, or says why not.
UsageError become(const std::string& name, char** arguments) {
  const std::optional<std::filesystem::path> found = find_companion(name);
  if (!found) return unknown_command(name);
  std::string program = found->string();
  arguments[0] = program.data();
  give_back_signals();
  ::execv(program.c_str(), arguments);
  return {"cannot run " + program + ": " + std::strerror(errno),
          errno == ENOENT ? "its first line names the program that runs it, which is missing" : ""};
}

int main(int argc, char** argv) {
  take_signals();
  CommandLine line;
  std::string help = "--help";
  if (argc > 1 && argv[1] == std::string_view("help")) {  // lowtide help plan: lowtide plan --help
    if (argc > 2) argv[1] = argv[2];
    argv[std::min(argc - 1, 2)] = help.data();
  }
  if (argc > 1 && argv[1][0] != '-' && !is_command(argv[1])) {
    line.wanted = become(argv[1], argv + 1);
  } else {
    line = read_command_line(argc, argv);
  }
  // A command line that could not be read may still have asked for JSON.
  const std::span<char*> words(argv, static_cast<std::size_t>(argc));
  const auto end = std::ranges::find(words, std::string_view("--"));
  line.json = line.json || std::find(words.begin(), end, std::string_view("--json")) != end;
  try {
    return std::visit(Execute{line}, line.wanted);
  } catch (const std::bad_alloc&) {
    return refuse(line, kLimit, "memory", {"out of memory", "this process may not have as much as the file needs"});
  }
}

}  // namespace
}  // namespace lowtide::cli

int main(int argc, char** argv) {
  return lowtide::cli::main(argc, argv);
}
