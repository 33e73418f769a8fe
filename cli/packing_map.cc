#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>
#include <vector>

#include "base/words.h"
#include "lowtide/budget.h"
#include "packing_pictures.h"

namespace lowtide::cli {
namespace {

constexpr std::size_t kColumns = 68;
constexpr std::size_t kRows = 22;
constexpr std::size_t kMargin = 10;  // for addresses
constexpr std::size_t kNobody = static_cast<std::size_t>(-1);
constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

struct Cells {
  std::size_t begin;
  std::size_t end;
};

// Those of `count` cells over [0, whole) whose middle is in [begin, end).
Cells cells(double begin, double end, double whole, std::size_t count) {
  const auto first_after = [&](double place) {
    const double cell = std::ceil(place / whole * static_cast<double>(count) - 0.5);
    return static_cast<std::size_t>(std::clamp(cell, 0.0, static_cast<double>(count)));
  };
  return {first_after(begin), first_after(end)};
}

// Who has each cell: a row of the table. Line 0 is the lowest.
class Grid {
 public:
  std::size_t& at(std::size_t line, std::size_t column) { return owners_[line * kColumns + column]; }

  // Gives the buffer its cells; false if there is none.
  bool fill(Cells lines, Cells columns, std::size_t owner) {
    for (std::size_t line = lines.begin; line < lines.end; ++line) {
      for (std::size_t column = columns.begin; column < columns.end; ++column) at(line, column) = owner;
    }
    return lines.begin < lines.end && columns.begin < columns.end;
  }

  // Turns owners into numbers from 0 on, in the order in which they come, and gives each its neighbours.
  std::vector<std::set<std::size_t>> number() {
    std::vector<std::size_t> known = owners_;
    std::ranges::sort(known);
    known.erase(std::unique(known.begin(), known.end()), known.end());
    if (!known.empty() && known.back() == kNobody) known.pop_back();
    for (std::size_t& owner : owners_) {
      if (owner != kNobody) owner = static_cast<std::size_t>(std::ranges::lower_bound(known, owner) - known.begin());
    }
    std::vector<std::set<std::size_t>> neighbours(known.size());
    const auto meet = [&](std::size_t one, std::size_t other) {
      if (one == other || one == kNobody || other == kNobody) return;
      neighbours[one].insert(other);
      neighbours[other].insert(one);
    };
    for (std::size_t line = 0; line < kRows; ++line) {
      for (std::size_t column = 0; column < kColumns; ++column) {
        if (line + 1 < kRows) meet(at(line, column), at(line + 1, column));
        if (column + 1 < kColumns) meet(at(line, column), at(line, column + 1));
      }
    }
    return neighbours;
  }

 private:
  std::vector<std::size_t> owners_ = std::vector<std::size_t>(kRows * kColumns, kNobody);
};

// One after another through the alphabet, but for letters that a neighbour has.
std::vector<char> choose_letters(const std::vector<std::set<std::size_t>>& neighbours) {
  std::vector<char> letters(neighbours.size(), ' ');
  for (std::size_t i = 0; i < letters.size(); ++i) {
    std::set<char> taken;
    for (const std::size_t other : neighbours[i]) taken.insert(letters[other]);
    letters[i] = kLetters[i % kLetters.size()];
    for (std::size_t next = i; taken.contains(letters[i]) && next < i + kLetters.size(); ++next) {
      letters[i] = kLetters[next % kLetters.size()];
    }
  }
  return letters;
}

std::string padded(const std::string& text, std::size_t width) {
  return std::string(width - std::min(width, text.size()), ' ') + text;
}

}  // namespace

Window window_of(std::span<const BufferRow> rows) {
  Window window{~std::uint64_t{0}, 0};
  for (const BufferRow& row : rows) {
    if (!is_visible(row)) continue;
    window.first = std::min(window.first, row.lower);
    window.last = std::max(window.last, row.upper);
  }
  return window.first < window.last ? window : Window{};
}

std::string packing_map(const PackedBuffers& packed) {
  const Window window = window_of(packed.rows);
  const auto height = static_cast<double>(std::max(packed.arena.count(), std::uint64_t{1}));
  Grid grid;
  std::size_t hidden = 0;
  for (std::size_t i = 0; i < packed.rows.size(); ++i) {
    const BufferRow& row = packed.rows[i];
    if (!is_visible(row)) continue;
    const auto offset = static_cast<double>(row.offset->count());
    const Cells lines = cells(offset, offset + static_cast<double>(row.size.count()), height, kRows);
    const Cells columns = cells(static_cast<double>(row.lower - window.first),
                                static_cast<double>(row.upper - window.first), window.width(), kColumns);
    if (!grid.fill(lines, columns, i)) ++hidden;
  }
  const std::vector<char> letters = choose_letters(grid.number());

  std::string text;
  for (std::size_t line = kRows; line-- > 0;) {
    const double address = height * static_cast<double>(line) / kRows;
    text += padded(format_bytes(Bytes(static_cast<std::uint64_t>(address))), kMargin) + " |";
    for (std::size_t column = 0; column < kColumns; ++column) {
      const std::size_t owner = grid.at(line, column);
      text += owner == kNobody ? '.' : letters[owner];
    }
    text += '\n';
  }
  const std::string first = std::to_string(window.first);
  text += std::string(kMargin + 1, ' ') + "+" + std::string(kColumns, '-') + "\n";
  text += std::string(kMargin + 2, ' ') + first + padded(std::to_string(window.last), kColumns - first.size());
  if (hidden > 0) text += words("\n", hidden, " of ", packed.rows.size(), " buffers are too small to be seen");
  return text;
}

}  // namespace lowtide::cli
