#include "companions.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <string_view>
#include <utility>

namespace lowtide::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "lowtide-";

std::vector<fs::path> directories() {
  std::error_code ignored;
  std::vector<fs::path> found;
  if (const fs::path self = fs::read_symlink("/proc/self/exe", ignored); !self.empty()) {
    found.push_back(self.parent_path());
  }
  const char* const path = std::getenv("PATH");
  std::string_view rest = path == nullptr ? "" : path;
  while (!rest.empty()) {
    const std::string_view directory = rest.substr(0, rest.find(':'));
    found.emplace_back(directory.empty() ? "." : directory);
    rest.remove_prefix(std::min(directory.size() + 1, rest.size()));
  }
  return found;
}

bool is_program(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored) && ::access(path.c_str(), X_OK) == 0;
}

}  // namespace

std::optional<fs::path> find_companion(const std::string& name) {
  if (name.empty() || name.find('/') != name.npos) return std::nullopt;
  std::optional<fs::path> not_executable;
  for (const fs::path& directory : directories()) {
    fs::path program = directory / (std::string(kPrefix) + name);
    if (is_program(program)) return program;
    std::error_code ignored;
    if (!not_executable && fs::is_regular_file(program, ignored)) not_executable = std::move(program);
  }
  return not_executable;
}

std::vector<Companion> companions() {
  std::map<std::string, fs::path> found;
  for (const fs::path& directory : directories()) {
    std::error_code failure;
    for (fs::directory_iterator entry(directory, failure); !failure && entry != fs::directory_iterator();
         entry.increment(failure)) {
      const std::string file = entry->path().filename().string();
      if (!file.starts_with(kPrefix) || file.size() == kPrefix.size() || !is_program(entry->path())) continue;
      found.emplace(file.substr(kPrefix.size()), entry->path());
    }
  }
  std::vector<Companion> list;
  for (auto& [name, program] : found) list.push_back({name, program});
  return list;
}

}  // namespace lowtide::cli
