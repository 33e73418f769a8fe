// sequence.h: what a state of the search is: the runs of a step one after the other, and the regions that run in parts.
//
//   runs        0  1  2  3  4  5  2'  6  7        2' runs op 2 again
//   region               [-------------]          in 4 parts: all of its runs for the first part, then for the second
//
// A region is one stretch of runs. Of what it alone uses, a part is there at a time; everything else that it uses is
// there as long as any of its parts needs it. So the runs stand for one part, and nothing is unrolled: all parts but
// the first and the last hold the same.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "fission/fission_tree.h"
#include "fission/operands.h"
#include "fission/splits.h"
#include "rewrite/parts.h"
#include "trade/reruns.h"

namespace lowtide {

// Ops that run in parts, as the search needs them: by position, with the costs of that many parts.
struct Region {
  // What the region uses of an item.
  struct Use {
    Item item;
    bool is_made;  // in the region
    Bytes period;  // of the parts in which all of its ops use it; 0 if there are none
  };

  RegionName name;
  std::uint32_t count = 0;
  std::vector<CutOp> ops;               // in program order
  std::vector<bool> has;                // by position: whether the op is in it
  std::vector<std::int64_t> cost;       // by position: of all parts
  std::vector<std::int64_t> workspace;  // by position: of a part
  std::vector<Bytes> period;            // by item, as in its use
  std::vector<Use> uses;
};

Region make_region(const Graph& graph, const Operands& operands, const Reruns& reruns, RegionName name,
                   std::vector<CutOp> ops, std::uint32_t count);

struct PlacedRegion {
  std::shared_ptr<const Region> region;
  std::uint32_t begin = 0;  // of its runs
  std::uint32_t end = 0;
};

struct Sequence {
  Runs runs;
  std::vector<PlacedRegion> regions;  // from the first to the last; they do not overlap

  // That run is in it; null if it is in none.
  const PlacedRegion* region_at(std::uint32_t run) const;
};

struct Figures {
  std::int64_t peak = 0;  // the most bytes held at once
  std::int64_t time = 0;  // of all runs
};

// Follows sequences from the last run to the first. Linear.
class SequenceSweep {
 public:
  explicit SequenceSweep(const Reruns& reruns);

  Figures of(const Sequence& sequence);

  // The same, and by run: the bytes held while it runs; -1 if it is left out, because nobody needs what it makes.
  Figures of(const Sequence& sequence, std::vector<std::int64_t>& held);

  // An item that is there while a run lasts.
  struct HeldItem {
    Item item;
    bool is_used;            // by that run, or by the region that it is in as a whole
    std::uint32_t next_use;  // the next run that does; the number of runs if there is none
  };
  std::vector<HeldItem> held_while(const Sequence& sequence, std::uint32_t run);

 private:
  template <typename Visit>
  Figures follow(const Sequence& sequence, std::uint32_t first, const Visit& visit);
  template <typename Visit>
  void follow_region(const Sequence& sequence, const PlacedRegion& placed, std::uint32_t first, const Visit& visit);
  void part_items(const Region& region);
  void hold_whole(const Region& region, bool made);
  void leave(const Region& region);
  std::int64_t pass(Position op, const Region* region, bool is_first);
  bool wants(Position op) const;

  const Reruns* reruns_;
  std::vector<std::uint8_t> live_;    // by item: needed behind where this is
  std::vector<std::uint8_t> parted_;  // by item: the region that this is in has parts of it alone
  std::vector<std::int64_t> size_;    // by item: of what is there at a time
  std::int64_t bytes_ = 0;            // of all that is live
  std::vector<std::int64_t> held_in_region_;
};

// As steps of the graph, and splits of the graph that runs these.
Splitting splitting_of(const Reruns& reruns, const Sequence& sequence);

}  // namespace lowtide
