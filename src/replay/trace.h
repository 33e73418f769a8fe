// trace.h: what one iteration of eager code asked of its allocator.
//
//   events     +a 100   +b 200   -a   +c 100   -c   (the iteration ends)
//   requests   a [0,2) 100 bytes      b stays, 200 bytes      c [2,3) 100 bytes
//
// Time is counted in requests: step i is the i-th. What is released before the next request is alive for one step.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lowtide::replay {

struct TraceEvent {
  const void* address;
  std::int64_t bytes;  // asked for; kReleased if they were given back

  static constexpr std::int64_t kReleased = -1;
};

struct TracedRequest {
  std::int64_t bytes;
  std::uint32_t begin;
  std::uint32_t end;
  bool stays;  // it was not released in the iteration; `end` is then the number of requests
};

// In the sequence in which they were made. Releases of what was asked for earlier are passed over.
std::vector<TracedRequest> requests_in(std::span<const TraceEvent> events);

// The same the other way: what to do one after the other. In the end, all that is left is released.
struct Action {
  std::uint32_t request;
  bool releases;  // or makes it
};
std::vector<Action> actions_of(std::span<const TracedRequest> requests);

}  // namespace lowtide::replay
