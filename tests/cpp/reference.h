// reference.h: what the ops of a graph compute, with tags in place of numbers. An op reads every byte of its operands,
// and what it writes depends on all of them.
#pragma once

#include <vector>

#include "cells.h"
#include "lowtide/graph.h"

namespace lowtide {

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

constexpr Tag kStart = 1;  // of the generator and the network; not 0, from which op 0 would lead nowhere

// The state of the generator or the network once `op` has used it.
Tag state_after(Tag state, OpId op);

Contents initial_contents(const Graph& graph, BufferId buffer);

// What an op computes from all that it sees.
Contents computed(OpId op, std::size_t output, Tag inputs, std::size_t size);

// Something that the op changes for the caller and can leave out when it runs again: no other result depends on it.
bool can_be_left_out(const Graph& graph, const Op& op, BufferId buffer);

// All that an op sees: what its results depend on, and what its updates do.
class Inputs {
 public:
  Inputs(const Graph& graph, const Op& op) : graph_(graph), op_(op) {}

  void add_state(Tag state);
  void add(BufferId buffer, const Contents& contents);
  Tag of(BufferId written) const { return can_be_left_out(graph_, op_, written) ? for_updates_ : for_results_; }

 private:
  const Graph& graph_;
  const Op& op_;
  Tag for_results_ = 0;
  Tag for_updates_ = 0;
};

}  // namespace lowtide
