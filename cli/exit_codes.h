// exit_codes.h: what the program's exit code says. Scripts depend on these: they are added to, never changed.
#pragma once

#include <string>

#include "lowtide/status.h"

namespace lowtide::cli {

inline constexpr int kDone = 0;
inline constexpr int kUsage = 2;
inline constexpr int kInfeasible = 3;
inline constexpr int kLimit = 4;
inline constexpr int kInvalidInput = 5;
inline constexpr int kInterrupted = 130;  // 128 + SIGINT, as shells have it

int exit_code(ErrorCode code);

// One line for each code, as --help shows them.
std::string exit_code_table();

}  // namespace lowtide::cli
