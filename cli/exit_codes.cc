#include "exit_codes.h"

#include <cstdint>
#include <string_view>

namespace lowtide::cli {
namespace {

struct Row {
  int exit_code;
  std::string_view hundreds;  // of the error codes that end so: "12" for E1xx and E2xx
  std::string_view meaning;
};

constexpr Row kTable[] = {
    {kDone, "", "done"},
    {kUsage, "5", "usage: no such command or option, or an option that makes no sense (E5xx)"},
    {kInfeasible, "3", "infeasible: the budget cannot be kept (E3xx)"},
    {kLimit, "4", "limit reached: the input is larger than what is allowed (E4xx)"},
    {kInvalidInput, "126", "invalid input: a wrong graph (E1xx), plan (E2xx), item (E504) or file (E6xx)"},
    {kInterrupted, "", "interrupted"},
};

}  // namespace

int exit_code(ErrorCode code) {
  if (code == ErrorCode::invalid_item) return kInvalidInput;  // among the options, but it comes from a file
  const char hundreds = static_cast<char>('0' + static_cast<std::uint16_t>(code) / 100);
  for (const Row& row : kTable) {
    if (row.hundreds.find(hundreds) != row.hundreds.npos) return row.exit_code;
  }
  return kInvalidInput;
}

std::string exit_code_table() {
  std::string text;
  for (const Row& row : kTable) {
    const std::string code = std::to_string(row.exit_code);
    text += "  " + code + std::string(5 - code.size(), ' ') + std::string(row.meaning) + "\n";
  }
  return text;
}

}  // namespace lowtide::cli
