#include "lowtide/units.h"

#include <type_traits>

#include "gtest/gtest.h"

namespace lowtide {
namespace {

static_assert(!std::is_convertible_v<OpId, BufferId> && !std::is_constructible_v<OpId, BufferId>);
static_assert(!std::is_convertible_v<int, OpId>);
static_assert(!std::is_convertible_v<Bytes, Nanos> && !std::is_constructible_v<Bytes, Nanos>);
static_assert(sizeof(OpId) == 4 && sizeof(Bytes) == 8);

TEST(Units, AmountsSaturate) {
  EXPECT_EQ(Bytes(2) + Bytes(3), Bytes(5));
  EXPECT_EQ(Bytes::max() + Bytes(1), Bytes::max());
  EXPECT_EQ(Bytes(2) - Bytes(3), Bytes(0));
}

TEST(Units, CheckedAddNoticesOverflow) {
  EXPECT_EQ(checked_add(Bytes::max() - Bytes(1), Bytes(1)), Bytes::max());
  EXPECT_EQ(checked_add(Bytes::max(), Bytes(1)), std::nullopt);
}

TEST(Units, Alignment) {
  struct Case {
    std::uint64_t offset;
    std::uint64_t aligned;
  };
  for (const auto& [offset, aligned] : {Case{0, 0}, Case{1, 64}, Case{64, 64}, Case{65, 128}}) {
    EXPECT_EQ(align_up(Bytes(offset)), Bytes(aligned)) << offset;
    EXPECT_EQ(is_aligned(Bytes(offset)), offset == aligned) << offset;
  }
}

}  // namespace
}  // namespace lowtide
