#include "base/ordered_bits.h"

#include <random>
#include <set>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lowtide {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::uint32_t> members(const OrderedBits& bits) {
  return {bits.begin(), bits.end()};
}

TEST(OrderedBits, HasNoMembersAtFirst) {
  for (const std::size_t size : {0, 1, 64, 65, 5000}) EXPECT_THAT(members(OrderedBits(size)), IsEmpty());
}

TEST(OrderedBits, GoesThroughWhatIsInsertedBehindItOnTheWay) {
  OrderedBits bits(200);
  bits.insert(3);
  std::vector<std::uint32_t> seen;
  for (const std::uint32_t number : bits) {
    seen.push_back(number);
    bits.erase(number);
    if (number == 3) bits.insert(199);
    if (number == 3) bits.insert(2);  // before it
  }
  EXPECT_THAT(seen, ElementsAre(3, 199));
  EXPECT_THAT(members(bits), ElementsAre(2));
}

TEST(OrderedBits, HoldsWhatAnOrdinarySetHolds) {
  for (const std::uint32_t size : {1, 63, 64, 65, 4096, 4097, 300'000}) {
    std::mt19937 random(size);
    OrderedBits bits(size);
    std::set<std::uint32_t> expected;
    std::uniform_int_distribution<std::uint32_t> any(0, size - 1);
    for (int i = 0; i < 2000; ++i) {
      const std::uint32_t number = any(random);
      if (i % 3 == 0) {
        bits.erase(number);
        expected.erase(number);
      } else {
        bits.insert(number);
        expected.insert(number);
      }
      const std::uint32_t from = any(random);
      const auto next = expected.lower_bound(from);
      ASSERT_EQ(bits.next(from), next == expected.end() ? bits.none() : *next) << size << ", " << i;
    }
    EXPECT_EQ(members(bits), std::vector(expected.begin(), expected.end())) << size;
  }
}

}  // namespace
}  // namespace lowtide
