// units.h: the small types that keep one number from being taken for another.
//
// Ids are 32-bit indices that do not convert into each other: an OpId cannot index a table of buffers, and a step of an
// order is not an op of a graph. Amounts carry their unit: Bytes is a count of bytes (a size or an offset), Nanos a
// span of time.
//
//   BufferId b{3};
//   Bytes end = offset + size;            // saturates: never wraps
//   if (!checked_add(offset, size)) ...   // or notices
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>

namespace lowtide {

// An index into one kind of table. At most kMaxIds objects of a kind exist, so that `id + 1` always fits.
template <typename Tag>
class Id {
 public:
  constexpr Id() = default;
  constexpr explicit Id(std::size_t index) : value_(static_cast<std::uint32_t>(index)) {}

  constexpr std::uint32_t value() const { return value_; }
  constexpr std::size_t index() const { return value_; }
  constexpr Id next() const { return Id(value_ + std::size_t{1}); }
  constexpr auto operator<=>(const Id&) const = default;

 private:
  std::uint32_t value_ = 0;
};

inline constexpr std::size_t kMaxIds = std::numeric_limits<std::uint32_t>::max() - 1;

using OpId = Id<struct OpTag>;            // an op of a graph; ids follow program order
using ValueId = Id<struct ValueTag>;      // a tensor of a graph
using BufferId = Id<struct BufferTag>;    // a storage of a graph
using VersionId = Id<struct VersionTag>;  // a buffer's content between two writes
using BlockId = Id<struct BlockTag>;      // a place in a plan
using StepIndex = Id<struct StepTag>;     // a position in an order: step i runs the i-th op

// A 64-bit amount whose sums and products stop at the largest representable number instead of wrapping round.
template <typename Tag>
class Amount {
 public:
  constexpr Amount() = default;
  constexpr explicit Amount(std::uint64_t count) : count_(count) {}

  constexpr std::uint64_t count() const { return count_; }
  constexpr auto operator<=>(const Amount&) const = default;

  // The exact sum, or nothing if it does not fit.
  friend constexpr std::optional<Amount> checked_add(Amount a, Amount b) {
    std::uint64_t sum = 0;
    if (__builtin_add_overflow(a.count_, b.count_, &sum)) return std::nullopt;
    return Amount(sum);
  }
  friend constexpr Amount operator+(Amount a, Amount b) { return checked_add(a, b).value_or(max()); }
  // Stops at zero.
  friend constexpr Amount operator-(Amount a, Amount b) { return Amount(a < b ? 0 : a.count_ - b.count_); }
  constexpr Amount& operator+=(Amount other) { return *this = *this + other; }
  constexpr Amount& operator-=(Amount other) { return *this = *this - other; }

  static constexpr Amount max() { return Amount(std::numeric_limits<std::uint64_t>::max()); }

 private:
  std::uint64_t count_ = 0;
};

using Bytes = Amount<struct BytesTag>;
using Nanos = Amount<struct NanosTag>;

// Every offset in an arena is a multiple of this: a cache line, and what PyTorch's CPU allocator gives.
inline constexpr Bytes kAlignment{64};

constexpr bool is_aligned(Bytes offset) {
  return offset.count() % kAlignment.count() == 0;
}

// The next multiple of kAlignment; saturates.
constexpr Bytes align_up(Bytes offset) {
  const Bytes raised = offset + Bytes(kAlignment.count() - 1);
  return Bytes(raised.count() - raised.count() % kAlignment.count());
}

}  // namespace lowtide
