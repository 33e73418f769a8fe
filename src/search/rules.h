// rules.h: what can be changed about a sequence, one thing at a time: the rules of MAGIS.
//
//   run again    what is held at the peak, and next used behind it, is let go and made again right before that use
//   keep         a unit that runs again does not any more
//   split        a region begins to run in parts; in place of others inside it, if it is lifted
//   more, fewer  parts of a region
//   whole        a region runs in whole again
//
// No rule crosses a region: what runs again in one is of it, or comes before it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "fission/fission_tree.h"
#include "graph/dependencies.h"
#include "search/sequence.h"

namespace lowtide {

enum class Rule : std::uint8_t { run_again, keep, split, recount, whole };

struct Change {
  Rule rule;
  Unit unit = 0;         // run_again, keep
  std::uint32_t at = 0;  // run_again: before this run; keep: from it on; recount, whole: of this region
  std::shared_ptr<const Region> region = {};  // split, recount
};

// Which rules there are; each can be left out to see what it is good for.
struct RuleOptions {
  bool run_again = true;
  bool split = true;
  std::size_t levels = 4;      // of the fission tree
  bool hot_spots_only = true;  // else what is not there at the peak may run again too
};

class Rules {
 public:
  // With `exact`, regions run in parts that have the bits of the whole.
  Rules(const Graph& graph, const Reruns& reruns, bool exact, const RuleOptions& options);

  // All that can be changed about it.
  std::vector<Change> changes(const Sequence& sequence);

  // None if it cannot be: the region would not be in one piece. From any thread.
  std::optional<Sequence> apply(const Sequence& sequence, const Change& change) const;

 private:
  using Counted = std::pair<RegionName, std::uint32_t>;

  void add_again(const Sequence& sequence, std::span<const std::uint32_t> peaks, std::vector<Change>& changes);
  void add_again_anywhere(const Sequence& sequence, std::vector<Change>& changes) const;
  void add_kept(const Sequence& sequence, std::vector<Change>& changes) const;
  void add_splits(const Sequence& sequence, const std::vector<bool>& hot, std::vector<Change>& changes);
  std::optional<Change> again_before(const Sequence& sequence, Unit unit, std::uint32_t use) const;
  std::optional<Sequence> with_region(const Sequence& sequence, std::shared_ptr<const Region> region) const;
  std::shared_ptr<const Region> region_of(RegionName name, std::uint32_t count);
  const std::vector<std::uint32_t>& counts_of(RegionName name);
  bool is_inside(Unit unit, const Region& region) const;
  bool reads_are_right(const Sequence& sequence) const;

  const Graph& graph_;
  const Reruns& reruns_;
  RuleOptions options_;
  Operands operands_;
  Dependencies needs_;
  FissionTree tree_;
  SequenceSweep sweep_;
  std::vector<std::uint32_t> first_run_;                     // by position: of the sequence that is looked at
  std::map<RegionName, std::vector<std::uint32_t>> counts_;  // none for a region that cannot be
  std::map<Counted, std::shared_ptr<const Region>> regions_;
};

// Two sequences that run the same graph have the same key, in whatever order they run it.
std::uint64_t graph_key(const Sequence& sequence);

}  // namespace lowtide
