// summary.h: graphs and plans in a few lines, for people.
//
//   graph     2 ops, 3 buffers (1 planned, 2 resident), 3 versions, 3 values
//   resident  5.00 KiB: parameter 4.00 KiB, output 1.00 KiB
//   peak      1.25 KiB in program order, at op 1 'aten::add' (train.py:8, in head)
//             held by y 1.00 KiB, workspace of aten::add 256 B
#pragma once

#include <string>

#include "lowtide/graph.h"
#include "lowtide/plan.h"

namespace lowtide {

// What there is, and who holds the most memory when the program runs as written.
std::string summary(const Graph& graph);

// What the plan needs, and how it was made.
std::string summary(const Plan& plan);

}  // namespace lowtide
