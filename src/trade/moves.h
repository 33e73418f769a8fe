// moves.h: what runs again, changed by one unit at a time, with the peak always known.
//
// Any set of (unit, slot) is a schedule: the unit's ops run again right before the op at that position, what they need
// is held until then from where it was made last, and who reads afterwards reads what they make. So adding a unit ends
// some lives earlier and lets others last longer, and each change of a life is one range of moments in a PeakTree:
//
//   b made at 1, used at 2 and at 7        held 1..7
//   its unit added before 7                held 1..2, and from before 7 to 7; what it needs, up to there
//
// Moments are the runs, with room between them for more. Nothing here is approximate: the peak is that of runs().
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "trade/peak_tree.h"
#include "trade/reruns.h"

namespace lowtide {

class Moves {
 public:
  // Starts from runs, as Evaluation takes them; units run again as a whole.
  Moves(const Reruns& reruns, const Runs& runs);

  // The unit runs again before the op at `slot`, and does not already; and takes that back. The slot is behind the
  // unit, late or early.
  void add(Unit unit, Position slot);
  void remove(Unit unit, Position slot);
  bool runs_again(Unit unit, Position slot) const;

  std::int64_t peak() const { return tree_.highest(); }
  std::int64_t cost() const { return cost_; }  // of all that runs again, needed or not
  Runs runs() const;

  std::size_t fullest() const { return tree_.highest_at(); }  // the first moment at which the peak is reached

  // Whether the item is there when something runs again before `slot`, without being held longer for it.
  bool is_held_before(Item item, Position slot) const;

  // Of the fullest moment: the items held there that were made before it and are used after it, by the next of their
  // uses; nothing for a kept item that is not used any more.
  struct Waiting {
    Item item;
    Position next_use;  // the position of the op that uses it, or before which the unit runs that does
  };
  std::vector<Waiting> waiting_at_peak() const;

 private:
  using Moment = std::uint32_t;
  struct Life {
    Moment begin;
    Moment end;
  };

  void build(const std::vector<std::vector<Position>>& again, std::optional<Position> wanted);
  void add_run(Position op, Moment at);
  void remove_run(Position op, Moment at);
  Moment place_of(Position op, Position slot) const;
  void make_room(Position slot);
  void spread_out(Position slot);
  Life life_at(Item item, std::size_t instance) const;
  void hold(Item item, Moment first, Moment last, std::int64_t sign);
  void end_changed(Item item, Moment at);
  bool ends_at(Item item, Moment at) const;
  std::int64_t bytes_reused_at(Moment at) const;
  Position slot_of(Moment at) const;

  const Reruns* r_;
  PeakTree tree_{1};
  std::int64_t cost_ = 0;
  std::vector<Moment> first_;                                    // by position: the first moment of its slot
  std::vector<std::vector<std::pair<Moment, Position>>> again_;  // by position: what runs again before it, in order
  std::vector<std::vector<Moment>> made_, used_;                 // by item, in order
  std::vector<Position> op_at_;                                  // by moment
  std::vector<std::int64_t> reused_;                             // by moment: bytes that are held once instead of twice
};

}  // namespace lowtide
