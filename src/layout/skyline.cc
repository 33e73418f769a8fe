// Sekiyama's best fit: the lowest place that is open takes the longest piece that fits there; where none does, it rises
// to its lower neighbour and becomes one with it. Near-linear: an array for the skyline, a heap of its segments by
// height, and a tree over the pieces by their first section.
#include <algorithm>
#include <bit>
#include <limits>
#include <queue>

#include "layout/algorithms.h"

namespace lowtide {
namespace {

constexpr int kNone = -1;

constexpr std::uint64_t kStepsAPiece = 2500;  // measured: for both lengths

enum class Length { sections, steps };  // in which lives are measured

// Pieces that are not placed yet, in the order of their first sections. Each node knows the least end and the greatest
// length below it.
class Waiting {
 public:
  Waiting(const Pieces& problem, Length length)
      : width_(std::bit_ceil(std::max<std::size_t>(problem.pieces.size(), 1))), nodes_(2 * width_) {
    for (std::size_t p = 0; p < problem.pieces.size(); ++p) {
      const Piece& piece = problem.pieces[p];
      const int sections = piece.end - piece.begin;
      nodes_[width_ + p] = {piece.end, length == Length::sections ? sections : static_cast<int>(piece.steps)};
    }
    for (std::size_t node = width_ - 1; node > 0; --node) update(node);
  }

  // The longest of the pieces [first, last) that ends by `end`, or kNone; the first of equals.
  int longest(int first, int last, int end) const {
    int found = kNone;
    int length = 0;
    search(1, 0, static_cast<int>(width_), first, last, end, &found, &length);
    return found;
  }

  void remove(int piece) {
    std::size_t node = width_ + static_cast<std::size_t>(piece);
    nodes_[node] = {};
    for (node /= 2; node > 0; node /= 2) update(node);
  }

 private:
  struct Node {
    int least_end = std::numeric_limits<int>::max();
    int length = 0;
  };

  void update(std::size_t node) {
    nodes_[node] = {std::min(nodes_[2 * node].least_end, nodes_[2 * node + 1].least_end),
                    std::max(nodes_[2 * node].length, nodes_[2 * node + 1].length)};
  }

  // The longer half first: most of the other is then not worth a look.
  void search(std::size_t node, int begin, int end, int first, int last, int by, int* found, int* length) const {
    if (end <= first || begin >= last || nodes_[node].length <= *length || nodes_[node].least_end > by) return;
    if (end - begin == 1) {
      *found = begin;
      *length = nodes_[node].length;
      return;
    }
    const int middle = (begin + end) / 2;
    if (nodes_[2 * node].length >= nodes_[2 * node + 1].length) {
      search(2 * node, begin, middle, first, last, by, found, length);
      search(2 * node + 1, middle, end, first, last, by, found, length);
    } else {
      search(2 * node + 1, middle, end, first, last, by, found, length);
      search(2 * node, begin, middle, first, last, by, found, length);
    }
  }

  std::size_t width_;
  std::vector<Node> nodes_;
};

// The heights of all sections, as segments of equal height that know their neighbours.
class Skyline {
 public:
  struct Segment {
    int begin;
    int end;
    Units height;
  };

  explicit Skyline(int sections)
      : sections_(sections),
        ends_(static_cast<std::size_t>(sections) + 1),
        before_(static_cast<std::size_t>(sections) + 1, kNone),
        heights_(static_cast<std::size_t>(sections) + 1) {
    put(0, sections, 0, kNone);
  }

  // The lowest segment; of equals the first.
  Segment lowest() {
    while (true) {
      const auto [height, begin] = heap_.top();
      if (end(begin) != 0 && heights_[index(begin)] == height) return {begin, end(begin), height};
      heap_.pop();
    }
  }

  // [begin, end) within `segment` rises to `height`.
  void raise_part(const Segment& segment, int begin, int end, Units height) {
    heap_.pop();
    ends_[index(segment.begin)] = 0;
    int before = before_[index(segment.begin)];
    if (segment.begin < begin) before = put(segment.begin, begin, segment.height, before);
    before = put(begin, end, height, before);
    if (end < segment.end) before = put(end, segment.end, segment.height, before);
    if (segment.end < sections_) before_[index(segment.end)] = before;
  }

  // `segment` rises to its lower neighbour and joins it; answers false when it has none.
  bool merge(const Segment& segment) {
    const int left = before_[index(segment.begin)];
    const bool has_right = segment.end < sections_;
    if (left == kNone && !has_right) return false;
    Units height = std::numeric_limits<Units>::max();
    if (left != kNone) height = heights_[index(left)];
    if (has_right) height = std::min(height, heights_[index(segment.end)]);
    heap_.pop();
    ends_[index(segment.begin)] = 0;
    int begin = segment.begin;
    int last = segment.end;
    if (has_right && heights_[index(segment.end)] == height) {
      last = end(segment.end);
      ends_[index(segment.end)] = 0;
    }
    if (left != kNone && heights_[index(left)] == height) begin = left;
    put(begin, last, height, before_[index(begin)]);
    if (last < sections_) before_[index(last)] = begin;
    return true;
  }

 private:
  static std::size_t index(int section) { return static_cast<std::size_t>(section); }
  int end(int begin) const { return ends_[index(begin)]; }

  int put(int begin, int last, Units height, int before) {
    ends_[index(begin)] = last;
    heights_[index(begin)] = height;
    before_[index(begin)] = before;
    heap_.emplace(height, begin);
    return begin;
  }

  using Lowest = std::pair<Units, int>;
  int sections_;
  std::vector<int> ends_;  // by first section; 0 where no segment begins
  std::vector<int> before_;
  std::vector<Units> heights_;
  std::priority_queue<Lowest, std::vector<Lowest>, std::greater<>> heap_;
};

Offsets best_fit(const Pieces& problem, Length length) {
  Offsets offsets(problem.pieces.size());
  std::vector<int> first_at(problem.load.size() + 1);
  for (std::size_t section = 0, p = 0; section < first_at.size(); ++section) {
    while (p < problem.pieces.size() && problem.pieces[p].begin < static_cast<int>(section)) ++p;
    first_at[section] = static_cast<int>(p);
  }
  Waiting waiting(problem, length);
  Skyline line(problem.num_sections());
  for (std::size_t left = offsets.size(); left > 0;) {
    const Skyline::Segment lowest = line.lowest();
    const int found = waiting.longest(first_at[static_cast<std::size_t>(lowest.begin)],
                                      first_at[static_cast<std::size_t>(lowest.end)], lowest.end);
    if (found == kNone) {
      line.merge(lowest);
      continue;
    }
    const Piece& piece = problem.pieces[static_cast<std::size_t>(found)];
    const Units offset = align_up(lowest.height, piece.alignment);
    offsets[static_cast<std::size_t>(found)] = offset;
    line.raise_part(lowest, piece.begin, piece.end, offset + piece.size);
    waiting.remove(found);
    --left;
  }
  return offsets;
}

}  // namespace

Result<Offsets> skyline(const Pieces& problem, Work& work) {
  if (std::ranges::any_of(problem.pieces, [](const Piece& piece) { return piece.fixed >= 0; })) {
    return Error{ErrorCode::invalid_item, "skyline does not place items around fixed ones"};
  }
  if (!work.spend(kStepsAPiece * problem.pieces.size())) return out_of_work("skyline", problem);
  Offsets best = best_fit(problem, Length::sections);
  if (top_of(problem, best) == problem.highest_load()) return best;
  Offsets other = best_fit(problem, Length::steps);
  return top_of(problem, other) < top_of(problem, best) ? other : best;
}

}  // namespace lowtide
