// Any bytes as a graph file and a plan file, which a zero byte parts: neither may crash, hang or take much memory. What
// is read must say the same when it is written and read again; a graph that can be read can be planned or is refused
// with an error; and verify() must take any graph with any plan.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "expect.h"
#include "lowtide/files.h"
#include "lowtide/plan.h"
#include "lowtide/summary.h"
#include "lowtide/verify.h"

namespace lowtide {
namespace {

// A file without a disk.
class MemoryFile {
 public:
  MemoryFile() : number_(::memfd_create("fuzzed", 0)) {}

  std::string with(std::string_view bytes) const {
    if (::ftruncate(number_, 0) != 0) std::abort();
    for (std::size_t done = 0; done < bytes.size();) {
      const ssize_t count = ::pwrite(number_, bytes.data() + done, bytes.size() - done, static_cast<off_t>(done));
      if (count < 0) std::abort();
      done += static_cast<std::size_t>(count);
    }
    return "/proc/self/fd/" + std::to_string(number_);
  }

 private:
  int number_;
};

constexpr std::size_t kMostOpsToPlan = 1000;

void take(std::string_view graph_bytes, std::string_view plan_bytes) {
  static const MemoryFile file;
  const Result<Graph> graph = load_graph(file.with(graph_bytes));
  const Result<Plan> read = load_plan(file.with(plan_bytes));
  if (graph.ok()) {
    const std::string text = graph_text(*graph);
    const Result<Graph> again = parse_graph(text);
    expect(again.ok() && graph_text(*again) == text, "a graph is what was written of it");
    expect(fingerprint(*again) == fingerprint(*graph), "a graph's fingerprint is that of what was written of it");
    (void)summary(*graph);
  }
  if (read.ok()) {
    const std::string text = plan_text(*read);
    const Result<Plan> again = parse_plan(text);
    expect(again.ok() && plan_text(*again) == text, "a plan is what was written of it");
    (void)summary(*read);
  }
  if (graph.ok() && graph->num_ops() <= kMostOpsToPlan) {
    const Result<Plan> made = plan(*graph);
    expect(!made.ok() || verify(*graph, *made).ok(), "verify() accepts a plan that plan() made");
  }
  if (graph.ok() && read.ok()) (void)verify(*graph, *read).ok();
}

}  // namespace
}  // namespace lowtide

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const std::size_t parting = bytes.find('\0');
  const bool compressed = bytes.starts_with("\x28\xB5\x2F\xFD");  // these may hold zeros: one file for both
  lowtide::take(compressed ? bytes : bytes.substr(0, parting),
                compressed || parting == std::string_view::npos ? bytes : bytes.substr(parting + 1));
  return 0;
}
