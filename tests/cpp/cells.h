// cells.h: memory of which each byte has an owner and a tag.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace lowtide {

using Tag = std::uint64_t;
using Contents = std::vector<Tag>;  // by byte

constexpr std::size_t kNobody = static_cast<std::size_t>(-1);
constexpr Tag kPoison = 0xDEADDEADDEADDEADu;  // of a byte that nobody has written since it was taken

class Cells {
 public:
  explicit Cells(std::size_t size) : cells_(size) {}

  // Null, or what is wrong: bytes can be taken if they are aligned, there, and nobody's.
  const char* acquire(std::size_t owner, std::size_t start, std::size_t size);
  void release(std::size_t owner);
  // What was the giver's is the heir's, and poison.
  void pass_on(std::size_t giver, std::size_t heir);

  std::size_t owner_at(std::size_t start) const { return start < cells_.size() ? cells_[start].owner : kNobody; }

  // `size` bytes from `start` on, if they are all the owner's.
  std::optional<Contents> read(std::size_t owner, std::size_t start, std::size_t size) const;
  void write(std::size_t start, const Contents& contents);

  std::size_t most_in_use() const { return most_in_use_; }
  std::size_t high_water() const { return high_water_; }

 private:
  struct Cell {
    std::size_t owner = kNobody;
    Tag tag = kPoison;
  };
  std::vector<Cell> cells_;
  std::size_t in_use_ = 0;
  std::size_t most_in_use_ = 0;
  std::size_t high_water_ = 0;
};

}  // namespace lowtide
