#include "replay/trace.h"

#include <unordered_map>

namespace lowtide::replay {

std::vector<TracedRequest> requests_in(std::span<const TraceEvent> events) {
  std::vector<TracedRequest> requests;
  std::unordered_map<const void*, std::size_t> alive;
  for (const TraceEvent& event : events) {
    const auto now = static_cast<std::uint32_t>(requests.size());
    if (event.bytes != TraceEvent::kReleased) {
      // An address that comes again was released where nobody saw it: by another thread. That request stays.
      alive[event.address] = requests.size();
      requests.push_back({event.bytes, now, 0, true});
    } else if (const auto found = alive.find(event.address); found != alive.end()) {
      requests[found->second].end = now;
      requests[found->second].stays = false;
      alive.erase(found);
    }
  }
  for (TracedRequest& request : requests) {
    if (request.stays) request.end = static_cast<std::uint32_t>(requests.size());
  }
  return requests;
}

std::vector<Action> actions_of(std::span<const TracedRequest> requests) {
  std::vector<std::vector<std::uint32_t>> ends(requests.size() + 1);
  for (std::uint32_t i = 0; i < requests.size(); ++i) ends[requests[i].end].push_back(i);
  std::vector<Action> actions;
  actions.reserve(2 * requests.size());
  for (std::uint32_t i = 0; i <= requests.size(); ++i) {
    for (const std::uint32_t ended : ends[i]) actions.push_back({ended, true});
    if (i < requests.size()) actions.push_back({i, false});
  }
  return actions;
}

}  // namespace lowtide::replay
