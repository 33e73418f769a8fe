#include "layout/valley_search.h"

#include <algorithm>
#include <limits>
#include <span>
#include <utility>

#include "base/keys.h"
#include "layout/reasons.h"

namespace lowtide {
namespace {

constexpr std::uint64_t kMostCovered = 50'000'000;  // 200 MB
constexpr Units kNever = std::numeric_limits<Units>::max();

// The innermost loop of all; compiled twice, so that it uses wide registers where there are some.
#if defined(__x86_64__) && defined(__linux__) && !defined(__SANITIZE_THREAD__)
__attribute__((target_clones("avx2", "default")))
#endif
void move_count(const Units* heights, int* counts, int begin, int end, Units from, Units to) {
  for (int section = begin; section < end; ++section) {
    counts[section] += (heights[section] == to ? 1 : 0) - (heights[section] == from ? 1 : 0);
  }
}

// Which pieces are tried first, whatever the valley.
enum class ValueOrder { width, load_then_area, load_then_width, area, size, area_of_the_wide };
constexpr int kValueOrders = 6;

// How the pieces are tried in one restart: in that order, or before that those first that end level with a neighbour.
struct Taste {
  ValueOrder order;
  bool level;
};

// Weights are forgotten after so many restarts, unless it is to prove: what was learnt in one corner of the search also
// keeps it there.
constexpr int kRestartsToForget = 5;

Taste taste_of(Style style, int restart) {
  switch (style) {
    case Style::widest:
      return {ValueOrder::width, false};
    case Style::level:
      return {ValueOrder::size, true};
    case Style::in_turn:
      break;
  }
  return {static_cast<ValueOrder>(restart % kValueOrders), restart / kValueOrders % 2 == 1};
}

template <typename Reasons>
class ValleySearch {
 public:
  ValleySearch(const Pieces& problem, Units capacity, const SearchOptions& options, Work& work);
  SearchResult run();

 private:
  struct Section {
    Units slack;  // what may still be lost here
    Reasons why;  // the sections that explain its height
  };
  struct SavedSection {
    int index;
    int candidates;
    Units height;
    Section section;
  };
  struct SavedFloor {
    int piece;
    int witness;
    Units floor;
  };
  // Where the trails stood before a move: its own sections, the floors it raised, the sections that settled after it.
  struct Mark {
    std::size_t sections;
    std::size_t floors;
    std::size_t settled;
    Key key;
  };
  struct Node {
    int section;
    int valley_begin;
    int valley_end;
    Units floor;
    std::size_t first_child;  // in children_
    std::size_t next_child;
    int placed;  // the piece of the child being looked at, or -1 for the hole
    bool hole_tried;
    Reasons why;       // why every child so far fails
    Reasons why_hole;  // why the hole cannot be smaller
    Key key;
    Mark mark;
  };
  struct Failed {
    Key key = 0;
    Reasons why;
  };

  const Piece& piece(int index) const { return problem_.pieces[static_cast<std::size_t>(index)]; }
  Section& at(int section) { return sections_[static_cast<std::size_t>(section)]; }
  Units& height(int section) { return heights_[static_cast<std::size_t>(section)]; }
  int& candidates(int section) { return candidates_[static_cast<std::size_t>(section)]; }

  void reset(ValueOrder order, bool noisy);
  void rank_pieces();
  void rank_children(const Node& node);
  int level_walls(const Node& node, const Piece& piece);
  Verdict restart(std::uint64_t nodes);
  void open_node();
  bool next_child();
  Units hole_height(Node& node);
  bool place(int index, Mark& mark);
  bool leave_hole(int section, Units risen, const Reasons& why, Mark& mark);
  bool raise_floors(int begin, int end, Units risen, int* changed_begin, int* changed_end);
  bool settle(int begin, int end);
  void undo(const Mark& mark, int placed);
  void save_section(int index) { saved_sections_.push_back({index, candidates(index), height(index), at(index)}); }
  void restore_sections(std::size_t size);
  void move_floor(const Piece& piece, Units from, Units to);
  void fail_at(int section, const Reasons& why);
  Units floor_of(const Piece& piece, Units height) const;
  bool out_of_work() const { return touched_ >= work_.left(); }

  template <typename Visit>
  void for_each_over(int begin, int end, Visit visit) {
    for (const int index : over_[static_cast<std::size_t>(begin)]) {
      if (unplaced_[static_cast<std::size_t>(index)]) visit(index);
    }
    const auto last = first_at_[static_cast<std::size_t>(end)];
    for (int index = first_at_[static_cast<std::size_t>(begin) + 1]; index < last; ++index) {
      if (unplaced_[static_cast<std::size_t>(index)]) visit(index);
    }
  }

  const Pieces& problem_;
  const Units capacity_;
  const SearchOptions options_;
  Work& work_;
  const int num_pieces_;
  const int num_sections_;

  // The problem, looked at from its sections.
  std::vector<std::vector<int>> over_;  // by section: the pieces over it
  std::vector<int> first_at_;           // by section: the first piece that begins there or later
  std::vector<int> twin_;               // by piece: the one before it with the same sections and size, or -1
  std::vector<Key> piece_keys_;
  std::vector<Key> section_keys_;

  // The state.
  std::vector<Section> sections_;
  std::vector<Units> heights_;      // by section
  std::vector<int> candidates_;     // by section: unplaced pieces over it that can rest on its floor
  std::vector<int> unplaced_over_;  // by section
  std::vector<int> crossing_;       // by section: unplaced pieces over it and the next
  std::vector<char> unplaced_;
  std::vector<Units> floors_;   // by piece: the lowest offset it can have
  std::vector<int> witnesses_;  // by piece: a section over which it rests there
  std::vector<Units> offsets_;
  int left_ = 0;
  Key key_ = 0;
  Reasons conflict_;  // of the last failure
  std::vector<SavedSection> saved_sections_;
  std::vector<SavedFloor> saved_floors_;
  std::vector<Node> nodes_;
  std::vector<int> children_;

  // What is learnt.
  std::vector<double> weights_;                 // by section: how often it failed
  std::vector<double> priorities_;              // by piece: from 0 to 1, the highest first
  std::vector<std::pair<double, int>> ranked_;  // scratch
  bool level_ = false;                          // of the taste of this restart
  std::vector<Failed> failed_;
  std::uint64_t random_;
  std::uint64_t touched_ = 0;  // since the last account of work
  SearchResult result_;
};

template <typename Reasons>
ValleySearch<Reasons>::ValleySearch(const Pieces& problem, Units capacity, const SearchOptions& options, Work& work)
    : problem_(problem),
      capacity_(capacity),
      options_(options),
      work_(work),
      num_pieces_(static_cast<int>(problem.pieces.size())),
      num_sections_(problem.num_sections()),
      over_(problem.load.size()),
      first_at_(problem.load.size() + 2),
      twin_(problem.pieces.size(), -1),
      sections_(problem.load.size()),
      heights_(problem.load.size()),
      candidates_(problem.load.size()),
      unplaced_over_(problem.load.size()),
      crossing_(problem.load.size()),
      unplaced_(problem.pieces.size()),
      floors_(problem.pieces.size()),
      witnesses_(problem.pieces.size()),
      offsets_(problem.pieces.size()),
      weights_(problem.load.size(), 1.0),
      priorities_(problem.pieces.size()),
      failed_(std::size_t{1} << (options.prove ? 18 : 14)),
      random_(mixed(options.seed)) {
  for (int section = 0, index = 0; section < num_sections_ + 2; ++section) {
    while (index < num_pieces_ && piece(index).begin < section) ++index;
    first_at_[static_cast<std::size_t>(section)] = index;
  }
  for (int index = 0; index < num_pieces_; ++index) {
    const Piece& own = piece(index);
    piece_keys_.push_back(key_of(static_cast<std::uint64_t>(index)));
    for (int section = own.begin; section < own.end; ++section)
      over_[static_cast<std::size_t>(section)].push_back(index);
    for (int other = index - 1; other >= 0 && piece(other).begin == own.begin; --other) {
      const Piece& twin = piece(other);
      if (twin.end == own.end && twin.size == own.size && twin.alignment == own.alignment && own.fixed < 0 &&
          twin.fixed < 0) {
        twin_[static_cast<std::size_t>(index)] = other;
        break;
      }
    }
  }
  for (int section = 0; section < num_sections_; ++section) {
    section_keys_.push_back(key_of(static_cast<std::uint64_t>(num_pieces_ + section)));
  }
}

template <typename Reasons>
Units ValleySearch<Reasons>::floor_of(const Piece& own, Units height) const {
  if (own.fixed >= 0) return height <= own.fixed ? own.fixed : kNever;
  return align_up(height, own.alignment);
}

template <typename Reasons>
void ValleySearch<Reasons>::reset(ValueOrder order, bool noisy) {
  left_ = num_pieces_;
  key_ = 0;
  saved_sections_.clear();
  saved_floors_.clear();
  nodes_.clear();
  children_.clear();
  std::ranges::fill(unplaced_over_, 0);
  std::ranges::fill(crossing_, 0);
  for (int section = 0; section < num_sections_; ++section) {
    at(section) = {capacity_ - problem_.load[static_cast<std::size_t>(section)], Reasons::of(section)};
    height(section) = 0;
    candidates(section) = 0;
  }
  for (int index = 0; index < num_pieces_; ++index) {
    const auto i = static_cast<std::size_t>(index);
    const Piece& own = piece(index);
    unplaced_[i] = 1;
    floors_[i] = floor_of(own, 0);
    witnesses_[i] = own.begin;
    key_ += piece_keys_[i];
    double most_load = 0;
    for (int section = own.begin; section < own.end; ++section) {
      const auto s = static_cast<std::size_t>(section);
      ++unplaced_over_[s];
      if (section + 1 < own.end) ++crossing_[s];
      if (floors_[i] == 0) ++candidates(section);
      most_load = std::max(most_load, static_cast<double>(problem_.load[s]));
    }
    touched_ += static_cast<std::uint64_t>(own.end - own.begin);
    const double scale = 1.0 / static_cast<double>(capacity_);
    const double width = own.end - own.begin;
    const double area = width * static_cast<double>(own.size) * scale;
    switch (order) {
      case ValueOrder::width:
        priorities_[i] = width + 1e-3 * area;
        break;
      case ValueOrder::load_then_area:
        priorities_[i] = 1e3 * most_load * scale + 1e-3 * area;
        break;
      case ValueOrder::load_then_width:
        priorities_[i] = 1e3 * most_load * scale + 1e-3 * width;
        break;
      case ValueOrder::area:
        priorities_[i] = area;
        break;
      case ValueOrder::size:
        priorities_[i] = static_cast<double>(own.size) * scale;
        break;
      case ValueOrder::area_of_the_wide:
        priorities_[i] = width * area;
        break;
    }
    if (noisy) {
      random_ = mixed(random_);
      priorities_[i] *= 1 + 0.3 * static_cast<double>(random_ >> 11) * 0x1p-53;
    }
  }
  rank_pieces();
}

// -- moves -----------------------------------------------------------------------------------------------------------

template <typename Reasons>
void ValleySearch<Reasons>::fail_at(int section, const Reasons& why) {
  weights_[static_cast<std::size_t>(section)] += 1;
  conflict_ = why;
}

// A piece that could rest at `from` now can at `to`.
template <typename Reasons>
void ValleySearch<Reasons>::move_floor(const Piece& own, Units from, Units to) {
  move_count(heights_.data(), candidates_.data(), own.begin, own.end, from, to);
  touched_ += static_cast<std::uint64_t>(own.end - own.begin) / 2;
}

// The sections [begin, end) have risen: so do the floors of the pieces over them.
template <typename Reasons>
bool ValleySearch<Reasons>::raise_floors(int begin, int end, Units risen, int* changed_begin, int* changed_end) {
  for (int section = begin; section < end; ++section) candidates(section) = 0;
  *changed_begin = begin;
  *changed_end = end;
  int stuck = -1;
  for_each_over(begin, end, [&](int index) {
    const auto i = static_cast<std::size_t>(index);
    const Piece& own = piece(index);
    const Units old = floors_[i];
    touched_ += 4;
    if (old < risen) {
      saved_floors_.push_back({index, witnesses_[i], old});
      floors_[i] = floor_of(own, risen);
      witnesses_[i] = std::max(begin, own.begin);
      if (floors_[i] == kNever) stuck = index;
      move_floor(own, old, floors_[i]);
      *changed_begin = std::min(*changed_begin, own.begin);
      *changed_end = std::max(*changed_end, own.end);
    } else if (old == risen) {
      const int last = std::min(end, own.end);
      for (int section = std::max(begin, own.begin); section < last; ++section) ++candidates(section);
    }
  });
  if (stuck < 0) return true;
  const int section = witnesses_[static_cast<std::size_t>(stuck)];
  fail_at(section, at(section).why);
  return false;
}

// A section on whose floor no piece can rest rises to where one can. No floor of a piece rises with it.
template <typename Reasons>
bool ValleySearch<Reasons>::settle(int begin, int end) {
  for (int index = begin; index < end; ++index) {
    Section& section = at(index);
    if (candidates(index) != 0 || unplaced_over_[static_cast<std::size_t>(index)] == 0) continue;
    save_section(index);
    Units least = kNever;
    int resting = 0;
    Reasons why = section.why;
    for (const int over : over_[static_cast<std::size_t>(index)]) {
      const auto i = static_cast<std::size_t>(over);
      if (!unplaced_[i]) continue;
      if (floors_[i] < least) {
        least = floors_[i];
        resting = 0;
      }
      resting += floors_[i] == least ? 1 : 0;
      why.add(at(witnesses_[i]).why);
    }
    touched_ += 2 * over_[static_cast<std::size_t>(index)].size();
    const Units lost = least - height(index);
    key_ += section_keys_[static_cast<std::size_t>(index)] * static_cast<Key>(lost);
    section.slack -= lost;
    height(index) = least;
    candidates(index) = resting;
    section.why = why;
    if (section.slack < 0) {
      fail_at(index, why);
      return false;
    }
  }
  return true;
}

template <typename Reasons>
bool ValleySearch<Reasons>::place(int index, Mark& mark) {
  const auto i = static_cast<std::size_t>(index);
  const Piece& own = piece(index);
  const Units top = floors_[i] + own.size;
  mark = {saved_sections_.size(), saved_floors_.size(), 0, key_};
  offsets_[i] = floors_[i];
  unplaced_[i] = 0;
  --left_;
  key_ -= piece_keys_[i];
  for (int section = own.begin; section < own.end; ++section) {
    const auto s = static_cast<std::size_t>(section);
    save_section(section);
    height(section) = top;
    key_ += section_keys_[s] * static_cast<Key>(own.size);
    if (--unplaced_over_[s] == 0) key_ -= section_keys_[s] * static_cast<Key>(top);
    if (section + 1 < own.end) --crossing_[s];
  }
  touched_ += 2 * static_cast<std::uint64_t>(own.end - own.begin);
  int begin = 0;
  int end = 0;
  const bool right = raise_floors(own.begin, own.end, top, &begin, &end);
  mark.settled = saved_sections_.size();
  return right && settle(begin, end);
}

template <typename Reasons>
bool ValleySearch<Reasons>::leave_hole(int index, Units risen, const Reasons& why, Mark& mark) {
  Section& section = at(index);
  mark = {saved_sections_.size(), saved_floors_.size(), 0, key_};
  save_section(index);
  const Units lost = risen - height(index);
  key_ += section_keys_[static_cast<std::size_t>(index)] * static_cast<Key>(lost);
  section.slack -= lost;
  height(index) = risen;
  section.why.add(why);
  int begin = 0;
  int end = 0;
  const bool right = raise_floors(index, index + 1, risen, &begin, &end);
  mark.settled = saved_sections_.size();
  return right && settle(begin, end);
}

template <typename Reasons>
void ValleySearch<Reasons>::restore_sections(std::size_t size) {
  for (; saved_sections_.size() > size; saved_sections_.pop_back()) {
    const SavedSection& saved = saved_sections_.back();
    at(saved.index) = saved.section;
    height(saved.index) = saved.height;
    candidates(saved.index) = saved.candidates;
  }
}

template <typename Reasons>
void ValleySearch<Reasons>::undo(const Mark& mark, int placed) {
  restore_sections(mark.settled);
  for (; saved_floors_.size() > mark.floors; saved_floors_.pop_back()) {
    const SavedFloor& saved = saved_floors_.back();
    const auto i = static_cast<std::size_t>(saved.piece);
    const Piece& own = piece(saved.piece);
    move_floor(own, floors_[i], saved.floor);
    floors_[i] = saved.floor;
    witnesses_[i] = saved.witness;
  }
  restore_sections(mark.sections);
  key_ = mark.key;
  if (placed < 0) return;
  unplaced_[static_cast<std::size_t>(placed)] = 1;
  ++left_;
  const Piece& own = piece(placed);
  for (int section = own.begin; section < own.end; ++section) {
    ++unplaced_over_[static_cast<std::size_t>(section)];
    if (section + 1 < own.end) ++crossing_[static_cast<std::size_t>(section)];
  }
}

// -- nodes -----------------------------------------------------------------------------------------------------------

// Chooses the section with the fewest answers, and lists the pieces that can rest there.
template <typename Reasons>
void ValleySearch<Reasons>::open_node() {
  Node node{};
  node.key = key_;
  double best = std::numeric_limits<double>::infinity();
  for (int section = 0; section < num_sections_;) {
    if (unplaced_over_[static_cast<std::size_t>(section)] == 0) {
      ++section;
      continue;
    }
    const int begin = section;
    const Units floor = height(begin);
    const auto joined = [&](int left) { return crossing_[static_cast<std::size_t>(left)] > 0; };
    while (section + 1 < num_sections_ && joined(section) && height(section + 1) == floor) ++section;
    const int end = ++section;
    const bool wall_left = begin == 0 || !joined(begin - 1) || height(begin - 1) > floor;
    const bool wall_right = end == num_sections_ || !joined(end - 1) || height(end) > floor;
    if (!wall_left || !wall_right) continue;
    for (int s = begin; s < end; ++s) {
      const int answers = candidates(s) + (at(s).slack > 0 ? 1 : 0);
      const double score = answers / weights_[static_cast<std::size_t>(s)];
      if (score < best) {
        best = score;
        node.section = s;
        node.valley_begin = begin;
        node.valley_end = end;
      }
    }
  }
  touched_ += static_cast<std::uint64_t>(num_sections_);
  node.floor = height(node.section);
  node.why = at(node.section).why;
  node.first_child = node.next_child = children_.size();
  for (const int index : over_[static_cast<std::size_t>(node.section)]) {
    const auto i = static_cast<std::size_t>(index);
    if (!unplaced_[i]) continue;
    if (floors_[i] > node.floor) {
      node.why.add(at(witnesses_[i]).why);
    } else if (twin_[i] < 0 || !unplaced_[static_cast<std::size_t>(twin_[i])]) {
      children_.push_back(index);
    }
  }
  rank_children(node);
  nodes_.push_back(node);
}

// Replaces the priorities by the share of pieces that have a lower one: so they compare with what else counts.
template <typename Reasons>
void ValleySearch<Reasons>::rank_pieces() {
  ranked_.clear();
  for (int index = 0; index < num_pieces_; ++index) {
    ranked_.emplace_back(priorities_[static_cast<std::size_t>(index)], index);
  }
  std::ranges::sort(ranked_);
  double lower = 0;
  for (std::size_t rank = 0; rank < ranked_.size(); ++rank) {
    if (rank > 0 && ranked_[rank].first != ranked_[rank - 1].first) lower = static_cast<double>(rank);
    priorities_[static_cast<std::size_t>(ranked_[rank].second)] = lower / num_pieces_;
  }
}

template <typename Reasons>
void ValleySearch<Reasons>::rank_children(const Node& node) {
  ranked_.clear();
  for (std::size_t child = node.first_child; child < children_.size(); ++child) {
    const int index = children_[child];
    double score = priorities_[static_cast<std::size_t>(index)];
    if (level_) score += level_walls(node, piece(index));
    ranked_.emplace_back(-score, index);
  }
  std::ranges::sort(ranked_);
  for (std::size_t rank = 0; rank < ranked_.size(); ++rank) {
    children_[node.first_child + rank] = ranked_[rank].second;
  }
}

// How many of the valley's walls the piece reaches and is as high as.
template <typename Reasons>
int ValleySearch<Reasons>::level_walls(const Node& node, const Piece& own) {
  const Units top = node.floor + own.size;
  const bool at_left = own.begin <= node.valley_begin && node.valley_begin > 0;
  const bool at_right = own.end >= node.valley_end && node.valley_end < num_sections_;
  return (at_left && height(node.valley_begin - 1) == top ? 1 : 0) +
         (at_right && height(node.valley_end) == top ? 1 : 0);
}

// The least height above the floor at which a piece over the section could rest, and why it is no less.
template <typename Reasons>
Units ValleySearch<Reasons>::hole_height(Node& node) {
  const int q = node.section;
  const int before = node.valley_begin - 1;
  const int behind = node.valley_end;
  node.why_hole = at(q).why;
  for (int section = std::max(0, before); section < std::min(num_sections_, behind + 1); ++section) {
    node.why_hole.add(at(section).why);
  }
  Units least = kNever;
  // Pieces that could rest on the floor are all over the section, so that together they cover one run.
  int begin = q;
  int end = q + 1;
  for (const int index : over_[static_cast<std::size_t>(q)]) {
    const auto i = static_cast<std::size_t>(index);
    if (!unplaced_[i]) continue;
    if (floors_[i] > node.floor) {
      least = std::min(least, floors_[i]);
      node.why_hole.add(at(witnesses_[i]).why);
    } else {
      begin = std::min(begin, piece(index).begin);
      end = std::max(end, piece(index).end);
    }
  }
  const auto for_each_support = [&](auto visit) {  // of a piece that could rest on the floor, but beside the section
    for_each_over(begin, end, [&](int other) {
      ++touched_;
      if (piece(other).begin > q || piece(other).end <= q) visit(other);
    });
  };
  for_each_support(
      [&](int other) { least = std::min(least, floors_[static_cast<std::size_t>(other)] + piece(other).size); });
  if (least == kNever) return least;
  // A support whose floor is explained by the valley and its neighbours alone needs no other explanation.
  for_each_support([&](int other) {
    const Piece& own = piece(other);
    Units known = node.floor;
    if (own.begin <= before) known = std::max(known, height(before));
    if (own.end > behind) known = std::max(known, height(behind));
    if (known + own.size < least) node.why_hole.add(at(witnesses_[static_cast<std::size_t>(other)]).why);
  });
  return least;
}

// Moves to the next child of the last node; answers false when the node has failed, with the reason in conflict_, or
// when there is no work left.
template <typename Reasons>
bool ValleySearch<Reasons>::next_child() {
  Node& node = nodes_.back();
  while (node.next_child < children_.size()) {
    if (out_of_work()) return false;
    node.placed = children_[node.next_child++];
    if (place(node.placed, node.mark)) return true;
    undo(node.mark, node.placed);
    const Piece& own = piece(node.placed);
    if (!conflict_.meets(own.begin, own.end)) return false;
    node.why.add(conflict_);
  }
  const Units slack = at(node.section).slack;
  if (!std::exchange(node.hole_tried, true) && slack > 0) {
    node.placed = -1;
    const Units risen = hole_height(node);
    if (risen != kNever && risen - node.floor <= slack) {
      if (leave_hole(node.section, risen, node.why_hole, node.mark)) return true;
      undo(node.mark, -1);
      if (!conflict_.meets(node.section, node.section + 1)) return false;
      node.why.add(conflict_);
    }
    node.why.add(node.why_hole);
  }
  Failed& failed = failed_[static_cast<std::size_t>(node.key) & (failed_.size() - 1)];
  failed = {node.key, node.why};
  conflict_ = node.why;
  return false;
}

template <typename Reasons>
Verdict ValleySearch<Reasons>::restart(std::uint64_t nodes) {
  const std::uint64_t last = result_.nodes + nodes;
  bool descend = true;
  while (true) {
    if (descend) {
      if (left_ == 0) return Verdict::packed;
      if (++result_.nodes > last) return Verdict::gave_up;
      touched_ += 50;
      if (out_of_work()) return Verdict::gave_up;
      work_.spend(std::exchange(touched_, 0));
      const Failed& known = failed_[static_cast<std::size_t>(key_) & (failed_.size() - 1)];
      if (known.key == key_ && key_ != 0) {
        // What explained the heights then need not explain them now.
        conflict_ = known.why;
        known.why.for_each([&](int section) { conflict_.add(at(section).why); });
      } else {
        open_node();
        if (next_child()) continue;
        if (out_of_work()) return Verdict::gave_up;
        children_.resize(nodes_.back().first_child);
        nodes_.pop_back();
      }
    }
    // The state at the end of nodes_ has failed: undo the move that led to it.
    if (nodes_.empty()) return Verdict::infeasible;
    Node& node = nodes_.back();
    undo(node.mark, node.placed);
    const bool matters = node.placed >= 0 ? conflict_.meets(piece(node.placed).begin, piece(node.placed).end)
                                          : conflict_.meets(node.section, node.section + 1);
    if (matters) {
      node.why.add(conflict_);
      if (node.placed < 0) node.why.add(node.why_hole);
      if (next_child()) {
        descend = true;
        continue;
      }
      if (out_of_work()) return Verdict::gave_up;
    }
    children_.resize(nodes_.back().first_child);
    nodes_.pop_back();
    descend = false;
  }
}

template <typename Reasons>
SearchResult ValleySearch<Reasons>::run() {
  const auto n = static_cast<std::uint64_t>(num_pieces_);
  double nodes = static_cast<double>(n > 600 ? n + 2000 : std::max<std::uint64_t>(4 * n, 500));
  for (int section = 0; section < num_sections_; ++section) {
    if (problem_.load[static_cast<std::size_t>(section)] > capacity_) {
      result_.verdict = Verdict::infeasible;
      for (const int index : over_[static_cast<std::size_t>(section)]) {
        result_.conflict.push_back(static_cast<std::uint32_t>(index));
      }
      return std::move(result_);
    }
  }
  const int orders = options_.style == Style::in_turn ? kValueOrders : 1;
  for (int round = 0;; ++round) {
    const Taste taste = taste_of(options_.style, round);
    level_ = taste.level;
    reset(taste.order, round >= orders);
    if (!options_.prove && round % kRestartsToForget == 0) std::ranges::fill(weights_, 1.0);
    result_.verdict = settle(0, num_sections_) ? restart(static_cast<std::uint64_t>(nodes)) : Verdict::infeasible;
    if (result_.verdict != Verdict::gave_up || out_of_work()) break;
    if (options_.prove || round % 100 == 99) nodes *= 1.5;
  }
  work_.spend(std::min(touched_, work_.left()));
  if (result_.verdict == Verdict::packed) result_.offsets = offsets_;
  if (result_.verdict == Verdict::infeasible) {
    for (int index = 0; index < num_pieces_; ++index) {
      if (conflict_.meets(piece(index).begin, piece(index).end)) {
        result_.conflict.push_back(static_cast<std::uint32_t>(index));
      }
    }
  }
  return std::move(result_);
}

SearchResult search_part(const Pieces& problem, Units capacity, const SearchOptions& options, Work& work) {
  std::uint64_t covered = 0;  // what the lists of pieces by section hold
  for (const Piece& piece : problem.pieces) covered += static_cast<std::uint64_t>(piece.end - piece.begin);
  if (covered > kMostCovered || !work.spend(4 * covered)) return {};
  const int sections = problem.num_sections();
  if (sections <= 128) return ValleySearch<SectionBits<2>>(problem, capacity, options, work).run();
  if (sections <= 256) return ValleySearch<SectionBits<4>>(problem, capacity, options, work).run();
  if (sections <= 512) return ValleySearch<SectionBits<8>>(problem, capacity, options, work).run();
  return ValleySearch<SectionRun>(problem, capacity, options, work).run();
}

}  // namespace

SearchResult search_packing(const Pieces& problem, Units capacity, const SearchOptions& options, Work& work) {
  const std::vector<std::vector<std::uint32_t>> parts = parts_of(problem);
  if (parts.size() == 1) return search_part(problem, capacity, options, work);
  SearchResult result{Verdict::packed, std::vector<Units>(problem.pieces.size()), {}, 0};
  for (const std::vector<std::uint32_t>& chosen : parts) {
    const Pieces part = subset(problem, chosen);
    SearchResult found = search_part(part, capacity, options, work);
    result.nodes += found.nodes;
    result.verdict = found.verdict;
    for (const std::uint32_t piece : found.conflict) result.conflict.push_back(part.pieces[piece].item);
    if (found.verdict != Verdict::packed) break;
    for (std::size_t p = 0; p < part.pieces.size(); ++p) result.offsets[part.pieces[p].item] = found.offsets[p];
  }
  return result;
}

}  // namespace lowtide
