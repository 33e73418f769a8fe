// fission_tree.h: which regions of a step are worth running in parts: the F-Tree of MAGIS.
//
// Along a dimension, a region is what one op dominates: all that can be reached through it alone, so that little but
// its result has to be there whole while the region runs. The more of what fills the memory at the peak it makes, and
// the less it reads besides, the higher its score:
//
//   score = half of the bytes that the region makes and that are there at the peak
//           - the bytes that it reads, does not make, and that are not there at the peak
//
// Scores fall into levels, from the highest to 0. Of each level the smallest regions are candidates; one that holds
// another is its parent.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "fission/dimensions.h"
#include "fission/operands.h"
#include "graph/dominators.h"

namespace lowtide {

// A region by its name: what a node of a dimension's dominator tree dominates. Node 0 is what the dimension begins
// with.
struct RegionName {
  std::uint32_t dimension = 0;
  DominatorTree::Node top = 0;

  auto operator<=>(const RegionName&) const = default;
};

struct FissionCandidate {
  RegionName name;
  std::int64_t score = 0;
  std::optional<std::size_t> parent;  // among the candidates
  bool is_leaf = true;
};

class FissionTree {
 public:
  // With `exact`, only parts that have the bits of the whole op.
  FissionTree(const Graph& graph, bool exact);

  // Where the buffers that are there at the peak are these: by buffer. Of regions that cannot be there are none.
  std::vector<FissionCandidate> candidates(const std::vector<bool>& hot, std::size_t levels,
                                           const std::function<bool(RegionName)>& can_be) const;

  // All of the dimension whose ops make the most: in most steps the batch. None if there is no dimension.
  std::optional<RegionName> widest() const;

  // The ops of a region, in program order, and the numbers of parts that all of them have, rising.
  std::vector<CutOp> ops(RegionName name) const;
  std::vector<std::uint32_t> counts(std::span<const CutOp> ops) const;

  // Of the candidates that hold a region, and are not it, the smallest.
  std::optional<std::size_t> parent_of(RegionName name, std::span<const FissionCandidate> candidates) const;

 private:
  // Adds `sign` times a buffer's size to what the regions above a node read or make.
  struct Mark {
    BufferId buffer;
    DominatorTree::Node node;
    std::int64_t sign;
  };

  struct Grown {
    Dimension ops;  // node i is the op i - 1
    DominatorTree tree;
    std::vector<Mark> made;  // where each buffer is made
    std::vector<Mark> read;  // summed up: the buffers that a region reads and does not make
  };

  std::optional<Grown> reached_from_main_entry(const Dimension& dimension) const;
  void mark_buffers(Grown& grown) const;
  std::vector<std::int64_t> scores(const Grown& grown, const std::vector<bool>& hot) const;
  std::int64_t size_of(BufferId buffer) const;
  bool holds(RegionName outer, RegionName inner) const;

  const Graph* graph_;
  bool exact_;
  Operands operands_;
  std::vector<Grown> grown_;
};

}  // namespace lowtide
