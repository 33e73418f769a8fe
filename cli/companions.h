// companions.h: programs called lowtide-NAME, which are commands too: `lowtide fit` runs lowtide-fit.
//
// They are looked for beside this program first, so that one of an environment that is not activated, called by its
// path, finds those of its own environment; then on the path.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace lowtide::cli {

struct Companion {
  std::string name;
  std::filesystem::path program;
};

// The program lowtide-`name`, if there is one; else a file of that name that may not be executed.
std::optional<std::filesystem::path> find_companion(const std::string& name);

// All that can be run, sorted by name.
std::vector<Companion> companions();

}  // namespace lowtide::cli
