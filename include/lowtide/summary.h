// summary.h: graphs and plans in a few lines, for people, and the same figures for programs.
//
//   graph     2 ops, 3 buffers (1 planned, 2 resident), 3 versions, 3 values
//   resident  5.00 KiB: parameter 4.00 KiB, output 1.00 KiB
//   peak      1.25 KiB in program order, at op 1 'aten::add' (train.py:8, in head)
//   bound     1.25 KiB: what one op needs on its own, in any order
//   held by   1.00 KiB  activation  y
//                256 B  workspace   workspace of aten::add
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lowtide/graph.h"
#include "lowtide/plan.h"
#include "lowtide/status.h"
#include "lowtide/units.h"

namespace lowtide {

struct RoleBytes {
  Role role;
  Bytes size;
};

// What there is, and who holds the most memory when the program runs as written.
struct GraphFigures {
  std::size_t planned_buffers;
  std::vector<RoleBytes> resident;  // by role, in the order of the roles, without those that have none
  Bytes peak;                       // of the planned bytes, in program order
  std::optional<OpId> peak_op;      // where it is first reached; none if there are no ops
  std::vector<Culprit> holders;     // who is alive there, largest first
  Bytes bound;                      // operand_bound()
};

// With the `holders` largest of those who hold the peak.
GraphFigures figures(const Graph& graph, std::size_t holders);

// The picture above.
std::string summary(const Graph& graph, std::size_t holders = 5);

// "peak 5.61 GiB at +4.1 % time, bound 5.50 GiB, gap 2.0 %"
std::string summary(const FoundSoFar& found);

// What the plan needs, and how it was made.
std::string summary(const Plan& plan);

}  // namespace lowtide
