// tenants.h: the buffers that could leave memory for a while, and when they are used.
//
//   step      0    1    2    3    4    5
//   a         w    r    .    .    r    .       planned: away from 2 to 3, at most
//   weight    .    r    .    .    .    w       resident: away from 2 to 4, and before 1, where it begins in the tier
//
// A resident buffer that leaves at all has its home in the tier: it is there before its first use and after its last.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lowtide/graph.h"
#include "lowtide/lists.h"
#include "lowtide/units.h"

namespace lowtide {

struct TenantUse {
  std::size_t step;
  bool writes;
};

struct Tenants {
  std::vector<BufferId> buffer;    // by tenant
  std::vector<std::int64_t> size;  // in bytes
  std::vector<bool> resident;
  std::vector<bool> initial;  // has content when the step begins
  Lists<TenantUse> uses;      // one for each step that uses it, in order

  std::size_t count() const { return buffer.size(); }
};

// By buffer: whether it may leave memory. Of at least so many bytes; of resident ones, those that `may_leave` names.
// What ops leave alone when they run again stays.
std::vector<bool> movable(const Graph& graph, std::span<const BufferId> may_leave, Bytes least);

// Planned buffers, and those resident ones that `may_leave` names, of at least so many bytes, in an order that runs
// each op once. Buffers that ops leave alone when they run again stay in memory.
Tenants tenants_of(const Graph& graph, std::span<const OpId> order, std::span<const BufferId> may_leave, Bytes least);

}  // namespace lowtide
