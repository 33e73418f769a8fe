// contents.h: which version of its buffer each block holds, and where it is made or changed in parts, which parts do.
//
//   part                   0  1  2  3
//   made in 4 parts        0  0  -  -        2 of them have run: parts 2 and 3 hold nothing
//   changed in 4 parts     1  2  1  0        part 1 has been changed twice, and part 3 not yet
//   a sum of 4 parts       0 and 1 added     no part of it is of any use yet
//
// A block that all parts of one version have come to holds that version, and nobody can tell how it was made.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "lowtide/plan.h"

namespace lowtide {

// What a step uses of a buffer: one part, or without a period the whole.
struct Piece {
  Bytes period = {};
  Part part = {};
};

class Contents {
 public:
  explicit Contents(const Plan& plan) : plan_(plan), finished_(plan.blocks.size()) {}

  // What is held there, where it is one version; `mixed`: a sum that is not complete, or parts that the piece is not
  // one of.
  struct Held {
    std::optional<VersionId> version;
    bool mixed = false;
  };
  // The block holds the piece: it is of the whole buffer, or of just that part.
  Held look(BlockId block, const Piece& piece) const;
  // All that the block is for. None if it holds nothing, or is not finished.
  std::optional<VersionId> finished(BlockId block) const { return finished_[block.index()]; }
  bool is_empty(BlockId block) const;

  // The piece holds that version now. As above, and it is not mixed.
  void write(BlockId block, const Piece& piece, VersionId version);
  void write(BlockId block, VersionId version);
  void clear(BlockId block);

  // A sum that is not complete: of these parts, those below `next` have been added.
  struct Sum {
    VersionId version;
    std::uint32_t axis;
    std::uint32_t count;
    std::uint32_t next;
  };
  const Sum* sum(BlockId block) const;
  // The next part of the sum has been added, the first one to an empty block.
  void add(BlockId block, VersionId version, const StepPart& step);

 private:
  // Not all parts are of one version.
  struct Parts {
    Bytes period;
    std::uint32_t count;
    std::optional<VersionId> rest;                // of all parts but these:
    std::map<std::uint32_t, VersionId> versions;  // by part
    std::map<VersionId, std::uint32_t> holders;   // by version: how many of these parts hold it
  };

  const Plan& plan_;
  std::vector<std::optional<VersionId>> finished_;  // by block
  std::map<BlockId, Parts> parts_;
  std::map<BlockId, Sum> sums_;
};

}  // namespace lowtide
