// reader_process.h: what it costs a process of its own to read a graph and its plan, to verify them and to find how
// many bytes are alive at each step. The process is tests/cpp/reader.cc, and does nothing else.
#pragma once

#include <cstddef>
#include <filesystem>

namespace lowtide {

struct ReaderCost {
  double read_graph;  // seconds of the processor, which do not depend on what else the machine does
  double read_plan;
  double verify;
  double timeline;
  double clock;   // seconds of the clock for all of these
  double memory;  // the most bytes that the process had at a time
  double peak;    // what the timeline says

  double passes() const { return read_graph + read_plan + verify + timeline; }
};

// Ends the test program if the reader fails.
ReaderCost run_reader(const std::filesystem::path& graph, const std::filesystem::path& plan);

}  // namespace lowtide
