// machine.h: a byte-for-byte machine that runs plans, to judge verify() by. It shares no code and no idea with it:
// there are no versions and no intervals here, only cells. Each cell of memory has an owner and a tag; an op reads
// every byte of its operands, and what it writes depends on all of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lowtide/graph.h"
#include "lowtide/plan.h"

namespace lowtide {

using Tag = std::uint64_t;
using Contents = std::vector<Tag>;  // by byte

// What every op finds and leaves when the program runs as written, with memory without end.
class Reference {
 public:
  explicit Reference(const Graph& graph);

  const Contents& of(VersionId version) const { return contents_[version.index()]; }
  Tag random_state_before(OpId op) const { return random_state_[op.index()]; }
  Tag network_state_before(OpId op) const { return network_state_[op.index()]; }

 private:
  std::vector<Contents> contents_;  // by version
  std::vector<Tag> random_state_;   // by op: of the random generator, when it starts
  std::vector<Tag> network_state_;  // by op: what other ranks have been sent, when it starts
};

// Runs `plan`. Empty if everything was as in the reference; otherwise what went wrong.
std::string run_on_machine(const Graph& graph, const Reference& reference, const Plan& plan);

}  // namespace lowtide
