#include "reader_process.h"

#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace lowtide {

ReaderCost run_reader(const std::filesystem::path& graph, const std::filesystem::path& plan) {
  const std::string command = "'" LOWTIDE_READER "' '" + graph.string() + "' '" + plan.string() + "'";
  std::FILE* const pipe = ::popen(command.c_str(), "r");
  ReaderCost cost{};
  const int found = pipe == nullptr
                        ? 0
                        : std::fscanf(pipe, "%lf %lf %lf %lf %lf %lf %lf", &cost.read_graph, &cost.read_plan,
                                      &cost.verify, &cost.timeline, &cost.clock, &cost.memory, &cost.peak);
  if (pipe == nullptr || ::pclose(pipe) != 0 || found != 7) {
    std::fprintf(stderr, "%s failed\n", command.c_str());
    std::abort();
  }
  return cost;
}

}  // namespace lowtide
