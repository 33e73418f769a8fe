// The virtual clock. Each stream has a time of its own; an engine does one thing at a time. The host takes no time, but
// it waits: after a wait its time is that of what it waited for. So the load of the machine does not change a figure
// that is declared, and times add up as on a device with one compute engine and two copy engines.
#pragma once

#include <cstddef>
#include <map>

namespace emulated_cuda {

// Work is placed in the first gap that is long enough, so that times hardly depend on the order in which streams are
// emptied.
class Engine {
 public:
  double end_of(double ready, double seconds);  // the end of work that may begin at `ready`

 private:
  std::map<double, double> busy_;  // from begin to end
};

enum class EngineKind { none, compute, to_device, to_host };
Engine& engine(EngineKind kind);

double host_time();
void host_waits_until(double time);

// Seconds that the calling thread has computed.
double thread_seconds();

// Seconds of a copy over the declared link.
double link_seconds(std::size_t bytes);

}  // namespace emulated_cuda
