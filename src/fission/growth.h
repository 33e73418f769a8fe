// growth.h: one split, grown from an op that needs too much.
//
// Along an axis of that op, its largest operands are made parts, one after the other, until a part of it needs little
// enough. A buffer can be there in parts only if all ops that use it are in the split, cut alike: they join, and may
// need too much in their turn. So may ops between two of the split, which has to run in one piece.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "fission/operands.h"
#include "graph/dependencies.h"
#include "lowtide/units.h"
#include "rewrite/parts.h"

namespace lowtide {

struct GrownSplit {
  Split split;
  std::vector<std::size_t> absorbed;  // of the splits that it was told of: those whose ops it has taken
  std::int64_t more_time = 0;         // than its ops in whole
};

class Growth {
 public:
  // `known` are splits already chosen. With `exact`, only parts that have the bits of the whole op.
  Growth(const Operands& operands, const Dependencies& dependencies, std::span<const Split> known, Bytes most,
         bool exact);

  // The split in which no op needs more than `most`, in as few parts as that takes; none if it was not found.
  std::optional<GrownSplit> from(OpId op, std::size_t axis);

 private:
  bool add(OpId op, std::size_t axis);
  bool absorb(std::size_t split);
  bool part(BufferId buffer, Bytes period);
  bool fits(OpId op, std::uint32_t count) const;
  bool part_largest(std::set<BufferId>& tried, std::span<const OpId> ops);
  bool make_fit(OpId op);
  Bytes footprint(std::uint32_t count) const;
  void narrow();
  bool fill_between();
  bool agrees(OpId op, std::size_t axis) const;
  std::optional<std::size_t> axis_that_agrees(OpId op, std::optional<std::pair<BufferId, Bytes>> with) const;
  bool has_counts(OpId op, std::size_t axis) const;
  std::vector<std::uint32_t> counts_of(OpId op, std::size_t axis) const;
  const PartCount& parts_of(OpId op, std::size_t axis, std::uint32_t count) const;

  const Operands& operands_;
  const Graph& graph_;
  const Dependencies& dependencies_;
  std::span<const Split> known_;
  Bytes most_;
  bool exact_;
  std::map<OpId, std::size_t> split_of_;  // of the known ones

  // The split as far as it has grown.
  struct Grown {
    std::map<OpId, std::size_t> axis_of;
    std::map<BufferId, Bytes> parted;
    std::vector<std::uint32_t> counts;  // that all its ops have
    std::vector<OpId> unseen;           // that may need too much
    std::vector<std::size_t> absorbed;
    std::set<BufferId> tried;  // to be parted, so that others need not be beside them
  };
  Grown now_;
};

}  // namespace lowtide
