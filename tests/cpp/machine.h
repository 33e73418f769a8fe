// machine.h: a byte-for-byte machine that runs plans, to judge verify() by. It shares no code and no idea with it:
// there are no versions and no intervals here, only cells. Each cell of memory and of each tier has an owner and a tag;
// an op reads every byte of its operands, and what it writes depends on all of them (reference.h).
//
// A transfer takes the bytes of one block when it begins, and leaves poison in the other until it has been waited for.
// All the while it looks whether both are still so: it could copy any byte at any moment.
//
// A part reads and writes those bytes of a buffer that are its own (part_bytes.h), wherever they lie. If it has read
// the right ones it writes the right ones; a sum is something of its own until its last part was added.
#pragma once

#include <string>

#include "lowtide/graph.h"
#include "lowtide/plan.h"
#include "reference.h"

namespace lowtide {

// Runs `plan`. Empty if everything was as in the reference; otherwise what went wrong.
std::string run_on_machine(const Graph& graph, const Reference& reference, const Plan& plan);

}  // namespace lowtide
