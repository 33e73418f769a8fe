#include "layout/pieces.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "layout/algorithms.h"

namespace lowtide {
namespace {

struct Event {
  std::uint64_t when;  // twice the step; one more where a life begins, so that what ends there is gone before
  std::uint32_t piece;
};

// Gives each piece its run of sections and each section its load. `life` is each piece's, in steps.
void find_sections(Pieces& problem, std::span<const std::pair<std::uint64_t, std::uint64_t>> life) {
  std::vector<Event> events;
  events.reserve(2 * life.size());
  for (std::uint32_t i = 0; i < life.size(); ++i) {
    events.push_back({2 * life[i].first + 1, i});
    events.push_back({2 * life[i].second, i});
  }
  std::ranges::sort(events, {}, [](const Event& event) { return std::pair(event.when, event.piece); });
  problem.load.clear();
  int section = 0;
  Units alive = 0;
  bool begun = false;  // something has begun since the last section was closed
  for (const Event& event : events) {
    Piece& piece = problem.pieces[event.piece];
    if (event.when % 2 == 1) {
      piece.begin = section;
      alive += piece.size;
      begun = true;
    } else {
      if (begun) {
        problem.load.push_back(alive);
        ++section;
        begun = false;
      }
      piece.end = section;
      alive -= piece.size;
    }
  }
  std::ranges::stable_sort(problem.pieces, {}, &Piece::begin);
}

std::uint64_t divided_up(std::uint64_t count, std::uint64_t unit) {
  return count / unit + (count % unit != 0 ? 1 : 0);
}

Bytes most_alive(const Pieces& problem, std::span<const LayoutItem> items) {
  std::vector<std::int64_t> change(problem.load.size() + 1);
  for (const Piece& piece : problem.pieces) {
    const auto size = static_cast<std::int64_t>(items[piece.item].size.count());
    change[static_cast<std::size_t>(piece.begin)] += size;
    change[static_cast<std::size_t>(piece.end)] -= size;
  }
  std::int64_t alive = 0;
  std::int64_t most = 0;
  for (const std::int64_t bytes : change) most = std::max(most, alive += bytes);
  return Bytes(static_cast<std::uint64_t>(most));
}

}  // namespace

Result<Pieces> to_pieces(std::span<const LayoutItem> items) {
  Pieces problem;
  problem.items = items.size();
  // Offsets are multiples of `unit`, so that rounding sizes up to it loses nothing. Where there is nothing but sizes to
  // add up, all offsets are sums of sizes, and what the sizes have in common is a larger unit.
  std::uint64_t unit = 0;
  for (const LayoutItem& item : items) {
    if (needs_place(item)) unit = std::gcd(unit, item.alignment.count());
  }
  if (unit == 0) return problem;
  bool only_sums = true;
  std::uint64_t common = 0;
  std::uint64_t total = 0;
  for (const LayoutItem& item : items) {
    if (!needs_place(item)) continue;
    const std::uint64_t size = divided_up(item.size.count(), unit);
    if (size > kMostBytes.count() / unit - total || item.alignment > kMostBytes) {
      return does_not_fit(static_cast<std::size_t>(&item - items.data()), item.size);
    }
    total += size;
    common = std::gcd(common, size);
    only_sums &= item.alignment.count() == unit && !item.fixed;
  }
  if (only_sums) unit *= common;
  problem.unit = Bytes(unit);

  std::vector<std::pair<std::uint64_t, std::uint64_t>> lives;
  for (std::uint32_t i = 0; i < items.size(); ++i) {
    const LayoutItem& item = items[i];
    if (!needs_place(item)) continue;
    problem.pieces.push_back({.begin = 0,
                              .end = 0,
                              .size = static_cast<Units>(divided_up(item.size.count(), unit)),
                              .alignment = only_sums ? 1 : static_cast<Units>(item.alignment.count() / unit),
                              .fixed = item.fixed ? static_cast<Units>(item.fixed->count() / unit) : -1,
                              .item = i,
                              .steps = item.end.value() - item.begin.value()});
    lives.emplace_back(item.begin.value(), item.end.value());
    const Bytes rounded(static_cast<std::uint64_t>(problem.pieces.back().size) * unit);
    problem.pieces.back().rounding = (rounded - item.size).count();
    problem.rounding = std::max(problem.rounding, rounded - item.size);
  }
  find_sections(problem, lives);
  problem.most_alive = most_alive(problem, items);
  return problem;
}

Pieces subset(const Pieces& whole, std::span<const std::uint32_t> chosen) {
  Pieces part;
  part.unit = whole.unit;
  part.items = whole.pieces.size();
  std::vector<std::pair<std::uint64_t, std::uint64_t>> lives;
  for (const std::uint32_t index : chosen) {
    const Piece& piece = whole.pieces[index];
    part.pieces.push_back(piece);
    part.pieces.back().item = index;
    lives.emplace_back(static_cast<std::uint64_t>(piece.begin), static_cast<std::uint64_t>(piece.end));
  }
  find_sections(part, lives);
  return part;
}

std::vector<std::vector<std::uint32_t>> parts_of(const Pieces& problem) {
  std::vector<std::vector<std::uint32_t>> parts;
  int end = 0;  // of the last part
  for (std::uint32_t p = 0; p < problem.pieces.size(); ++p) {
    if (problem.pieces[p].begin >= end) parts.emplace_back();
    parts.back().push_back(p);
    end = std::max(end, problem.pieces[p].end);
  }
  return parts;
}

Layout Pieces::layout(std::span<const Units> offsets, std::span<const LayoutItem> from) const {
  Layout made{std::vector<Bytes>(items), Bytes(0)};
  for (std::size_t p = 0; p < pieces.size(); ++p) {
    const Bytes offset(static_cast<std::uint64_t>(offsets[p]) * unit.count());
    made.offsets[pieces[p].item] = offset;
    made.arena = std::max(made.arena, offset + from[pieces[p].item].size);
  }
  return made;
}

}  // namespace lowtide
