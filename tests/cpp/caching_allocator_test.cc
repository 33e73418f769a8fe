#include "lowtide/caching_allocator.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "allocator_oracle.h"
#include "eager/allocator_settings.h"
#include "full_size.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "processor_time.h"
#include "unwrap.h"

namespace lowtide {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

CachingAllocator allocator_with(std::string_view settings, std::uint64_t capacity_mib = 1 << 20) {
  return unwrap(CachingAllocator::make(unwrap(parse_allocator_settings(settings)), Bytes(capacity_mib * kMiB)));
}

// In MiB, of which there may be fractions.
RequestId take(CachingAllocator& allocator, double mib) {
  return unwrap(allocator.allocate(Bytes(static_cast<std::uint64_t>(mib * kMiB))));
}

std::uint64_t reserved_mib(const CachingAllocator& allocator) {
  return allocator.stats().reserved.now.count() / kMiB;
}

std::uint64_t segment_of(const CachingAllocator& allocator, RequestId request) {
  return allocator.block(request)->segment;
}

double offset_mib(const CachingAllocator& allocator, RequestId request) {
  return static_cast<double>(allocator.block(request)->offset.count()) / kMiB;
}

struct RequestsCase {
  std::string name;
  std::string settings;
  std::vector<std::uint64_t> sizes;
  std::uint64_t reserved;
  std::uint64_t allocated;
};

class Requests : public ::testing::TestWithParam<RequestsCase> {};

TEST_P(Requests, Reserve) {
  CachingAllocator allocator = allocator_with(GetParam().settings);
  for (const std::uint64_t size : GetParam().sizes) unwrap(allocator.allocate(Bytes(size)));
  EXPECT_EQ(allocator.stats().reserved.now.count(), GetParam().reserved);
  EXPECT_EQ(allocator.stats().allocated.now.count(), GetParam().allocated);
}

INSTANTIATE_TEST_SUITE_P(
    Rounding, Requests,
    ::testing::Values(
        RequestsCase{"Nothing", "", {0}, 0, 0},                           //
        RequestsCase{"OneByte", "", {1}, 2 * kMiB, 512},                  // rounded up, in a small segment
        RequestsCase{"TwoBlocks", "", {513}, 2 * kMiB, 1024},             //
        RequestsCase{"FullSmall", "", {kMiB, kMiB}, 2 * kMiB, 2 * kMiB},  // two small ones fill a segment
        RequestsCase{"NextSmall", "", {kMiB, kMiB, 1}, 4 * kMiB, 2 * kMiB + 512},
        RequestsCase{"SmallestLarge", "", {kMiB + 1}, 20 * kMiB, kMiB + 512},
        // Of the rest of 11 MiB, 2 MiB are split off.
        RequestsCase{"TwoLarge", "", {9 * kMiB, 9 * kMiB}, 20 * kMiB, 18 * kMiB},
        // Of the rest of 10 MiB + 512, 1024 bytes are not.
        RequestsCase{"RestStays", "", {10 * kMiB - 512, 10 * kMiB - 512}, 20 * kMiB, 20 * kMiB},
        // From here on segments of their own, rounded up to 2 MiB, of which the rest is split off ...
        RequestsCase{"OwnSegment", "", {10 * kMiB}, 10 * kMiB, 10 * kMiB},
        RequestsCase{"OwnRounded", "", {10 * kMiB + 1}, 12 * kMiB, 10 * kMiB + 512},
        RequestsCase{"OwnRestStays", "", {19 * kMiB}, 20 * kMiB, 20 * kMiB},  // ... unless it is at most 1 MiB
        // 15 MiB: two of 7, and 1 MiB left of the rest of 8 stays with the second.
        RequestsCase{"OtherLarge", "large_segment_size_mb:15", {7 * kMiB, 7 * kMiB}, 15 * kMiB, 15 * kMiB},
        // 1200 is not above 4 * 512, and is rounded as ever; 2100 becomes 2048 + 2048 / 4.
        RequestsCase{"Divided", "roundup_power2_divisions:4", {1200, 2100}, 2 * kMiB, 1536 + 2560},
        // 5 MiB lies on one of the steps 4, 5, 6, 7; 5.1 becomes 6.
        RequestsCase{
            "DividedLarge", "roundup_power2_divisions:4", {5 * kMiB, 5 * kMiB + kMiB / 10}, 20 * kMiB, 11 * kMiB},
        // A request of up to 1 MiB can become no more than that: 1 MiB - 1 becomes 1 MiB, which is small.
        RequestsCase{"DividedSmall", "roundup_power2_divisions:2", {kMiB - 1}, 2 * kMiB, kMiB},
        // Up to 32 MiB there are no steps; from 32 to 64 there are two, so 33 becomes 48; and above that again none.
        RequestsCase{"ByInterval",
                     "roundup_power2_divisions:[16:1,32:2,>:0]",
                     {12 * kMiB, 33 * kMiB, 65 * kMiB},
                     (12 + 48 + 66) * kMiB,
                     (12 + 48 + 66) * kMiB}),
    [](const auto& test) { return test.param.name; });

// The picture of caching_allocator.h.
TEST(CachingAllocator, TakesWhatIsLeftOfASegment) {
  CachingAllocator allocator = allocator_with("");
  for (const double size : {3, 9, 30}) take(allocator, size);
  const RequestId request = take(allocator, 5);
  EXPECT_EQ(segment_of(allocator, request), 0u);
  EXPECT_EQ(offset_mib(allocator, request), 12);
  EXPECT_EQ(reserved_mib(allocator), 50u);
}

TEST(CachingAllocator, TakesTheSmallestFreeBlockAtTheLowestAddress) {
  CachingAllocator allocator = allocator_with("");
  std::vector<RequestId> blocks;
  for (const double size : {40, 30, 20, 30}) blocks.push_back(take(allocator, size));
  for (const RequestId freed : blocks) unwrap(allocator.free(freed));
  const RequestId first = take(allocator, 22);
  EXPECT_EQ(segment_of(allocator, first), 1u) << "the lower of the two of 30 MiB";
  // Of that, 8 MiB are free now: the smallest that holds 5.
  const RequestId second = take(allocator, 5);
  EXPECT_EQ(segment_of(allocator, second), 1u);
  EXPECT_EQ(offset_mib(allocator, second), 22);
  EXPECT_EQ(reserved_mib(allocator), 120u);
}

TEST(CachingAllocator, FreeNeighboursJoinWithinASegmentOnly) {
  CachingAllocator allocator = allocator_with("");
  std::vector<RequestId> parts;
  for (int i = 0; i < 8; ++i) parts.push_back(take(allocator, 5));  // two segments of 20 MiB, both full
  for (int i = 1; i < 7; ++i) unwrap(allocator.free(parts[i]));
  take(allocator, 15);  // the last three of the first segment are one
  take(allocator, 15);
  EXPECT_EQ(reserved_mib(allocator), 40u);
  unwrap(allocator.free(parts[0]));
  unwrap(allocator.free(parts[7]));
  take(allocator, 10);  // 5 MiB are free in each, which are not one
  EXPECT_EQ(reserved_mib(allocator), 50u);
}

TEST(CachingAllocator, PoolsAreApart) {
  CachingAllocator allocator = allocator_with("");
  unwrap(allocator.free(take(allocator, 20)));
  take(allocator, 1);  // small: not in the 20 MiB that are free
  EXPECT_EQ(reserved_mib(allocator), 22u);
  unwrap(allocator.allocate(Bytes(20 * kMiB), 7));  // nor is what another stream asks for
  EXPECT_EQ(reserved_mib(allocator), 42u);
}

TEST(CachingAllocator, KnowsWhatItGave) {
  CachingAllocator allocator = allocator_with("");
  const RequestId one = take(allocator, 3);
  const RequestId nothing = take(allocator, 0);
  EXPECT_FALSE(allocator.block(nothing));
  unwrap(allocator.free(nothing));
  unwrap(allocator.free(one));
  EXPECT_FALSE(allocator.block(one));
  EXPECT_EQ(allocator.free(one).error().message, "request 0 is freed already");
  EXPECT_EQ(allocator.free(nothing).error().message, "request 1 is freed already");
  EXPECT_EQ(allocator.free(RequestId(2)).error().message, "request 2 was never given");
  EXPECT_EQ(allocator.free(RequestId(2)).error().code, ErrorCode::unknown_request);
}

TEST(CachingAllocator, KeepsPeaks) {
  CachingAllocator allocator = allocator_with("");
  unwrap(allocator.free(take(allocator, 9)));
  take(allocator, 3.0001);
  const AllocatorStats& stats = allocator.stats();
  EXPECT_EQ(stats.requested.peak.count(), 9 * kMiB);
  EXPECT_EQ(stats.allocated.peak.count(), 9 * kMiB);
  EXPECT_EQ(stats.allocated.now.count(), 3 * kMiB + 512);
  EXPECT_EQ(stats.requested.now.count(), 3 * kMiB + 104);
  EXPECT_EQ(stats.reserved.peak.count(), 20 * kMiB);
  EXPECT_DOUBLE_EQ(stats.fragmentation(), 1 - 9.0 / 20);
  EXPECT_EQ(AllocatorStats().fragmentation(), 0);
}

// 40 MiB are oversize from 32 on: a request of 20 does not get them, one of 36 does, and has them whole.
TEST(CachingAllocator, OversizeBlocksAreForOversizeRequests) {
  CachingAllocator allocator = allocator_with("max_split_size_mb:32");
  unwrap(allocator.free(take(allocator, 40)));
  take(allocator, 20);
  EXPECT_EQ(reserved_mib(allocator), 60u);
  const RequestId large = take(allocator, 36);
  EXPECT_EQ(reserved_mib(allocator), 60u);
  EXPECT_EQ(allocator.block(large)->size.count(), 40 * kMiB);
}

// A free block of 52 MiB is 20 MiB larger than the request, and not taken; with 21 MiB allowed it is.
TEST(CachingAllocator, OversizeRequestsTakeNoMuchLargerBlock) {
  for (const auto& [settings, reserved] :
       {std::pair("max_split_size_mb:32", 84u), std::pair("max_split_size_mb:32,max_non_split_rounding_mb:21", 52u)}) {
    CachingAllocator allocator = allocator_with(settings);
    unwrap(allocator.free(take(allocator, 52)));
    take(allocator, 32);
    EXPECT_EQ(reserved_mib(allocator), reserved) << settings;
  }
}

// Of 100 MiB, 60 are free in one segment and 31 in another, which has 5 in use: only the 60 can be given back.
TEST(CachingAllocator, AFullDeviceGetsWholeSegmentsBack) {
  CachingAllocator allocator = allocator_with("", 100);
  const RequestId whole = take(allocator, 60);
  const RequestId split = take(allocator, 35);
  unwrap(allocator.free(whole));
  unwrap(allocator.free(split));
  take(allocator, 5);
  EXPECT_EQ(reserved_mib(allocator), 95u + 1) << "35 MiB are rounded up to 36";
  take(allocator, 62);
  EXPECT_EQ(reserved_mib(allocator), 36u + 62);
  EXPECT_EQ(allocator.stats().retries, 1u);
  EXPECT_EQ(allocator.stats().device_allocs, 3u);
  EXPECT_EQ(allocator.stats().device_frees, 1u);
  EXPECT_EQ(allocator.stats().segments, 2u);
  EXPECT_EQ(allocator.stats().ooms, 0u);
}

// The device has 50 MiB, and two segments have all of it: 30 in use, and 20 of which 9 are in use and 9 and 2 are free.
// Of these, none holds more than 9; and for so much a segment of 20 would be made.
TEST(CachingAllocator, SaysWhyThereIsNoRoom) {
  CachingAllocator allocator = allocator_with("", 50);
  take(allocator, 30);
  const RequestId early = take(allocator, 9);
  take(allocator, 9);
  unwrap(allocator.free(early));
  const Result<RequestId> refused = allocator.allocate(Bytes(9 * kMiB + 1));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::device_full);
  EXPECT_EQ(refused.error().message,
            "out of memory: tried to allocate 20.00 MiB for a request of 9.00 MiB; of 50.00 MiB, 0 B are free, "
            "39.00 MiB are allocated, and 11.00 MiB are reserved but unallocated");
  const OutOfMemory& full = *allocator.out_of_memory();
  EXPECT_EQ(full.requested.count(), 9 * kMiB + 1);
  EXPECT_EQ(full.tried.count(), 20 * kMiB);
  EXPECT_EQ(full.capacity.count(), 50 * kMiB);
  EXPECT_EQ(full.free.count(), 0u);
  EXPECT_EQ(full.allocated.count(), 39 * kMiB);
  EXPECT_EQ(full.reserved_but_unallocated().count(), 11 * kMiB);
  EXPECT_EQ(allocator.stats().ooms, 1u);
  EXPECT_EQ(allocator.stats().retries, 1u);
  take(allocator, 9);  // what was free before still is
}

// 40, 50 and 36 MiB are free, and 2 that are small: the device is full.
TEST(CachingAllocator, OversizeSegmentsAreGivenBackFirst) {
  CachingAllocator allocator = allocator_with("max_split_size_mb:32", 128);
  std::vector<RequestId> segments;
  for (const double size : {40, 50, 36}) segments.push_back(take(allocator, size));
  const RequestId small = take(allocator, 0.5);
  for (const RequestId segment : segments) unwrap(allocator.free(segment));
  unwrap(allocator.free(small));
  EXPECT_EQ(reserved_mib(allocator), 128u);
  // 22 MiB are below 32 MiB and find no block; the smallest of at least 32 MiB is given back.
  const RequestId below = take(allocator, 22);
  EXPECT_EQ(reserved_mib(allocator), 128u - 36 + 22);
  unwrap(allocator.free(below));
  // 72 MiB: no block holds them, 14 MiB are left. 50 + 40 are at least 72.
  take(allocator, 72);
  EXPECT_EQ(reserved_mib(allocator), 128u - 36 + 22 - 90 + 72);
  EXPECT_EQ(allocator.stats().retries, 0u);
  take(allocator, 40);  // no oversize block is left, and 32 MiB are; 22 and 2 more are in the cache
  EXPECT_EQ(allocator.stats().retries, 1u);
  EXPECT_EQ(reserved_mib(allocator), 72u + 40);
}

// The limit is 100 MiB of 200, and garbage is collected above 60 of them. Ages are counted in requests for large
// blocks. There were 3 when the segment of 24 was freed, and 4 when those of 30 and 22 were. At the fifth they are 2, 1
// and 1 old, 4/3 on average: only 24 go, and 52 are left, which is enough.
TEST(CachingAllocator, GarbageOfAverageAgeIsCollected) {
  CachingAllocator allocator = allocator_with("garbage_collection_threshold:0.6,per_process_memory_fraction:0.5", 200);
  std::vector<RequestId> segments;
  for (const double size : {30, 24, 22}) segments.push_back(take(allocator, size));
  unwrap(allocator.free(segments[0]));
  unwrap(allocator.free(segments[1]));
  unwrap(allocator.free(take(allocator, 29)));  // has the 30 for a while
  unwrap(allocator.free(segments[2]));
  EXPECT_EQ(reserved_mib(allocator), 76u);
  take(allocator, 40);
  EXPECT_EQ(reserved_mib(allocator), 76u - 24 + 40);
  EXPECT_EQ(allocator.stats().device_frees, 1u);
  EXPECT_EQ(allocator.stats().retries, 0u);
}

TEST(CachingAllocator, GarbageIsCollectedUnderALimitOnly) {
  CachingAllocator allocator = allocator_with("garbage_collection_threshold:0.1", 200);
  unwrap(allocator.free(take(allocator, 100)));
  take(allocator, 101);
  EXPECT_EQ(allocator.stats().device_frees, 1u) << "only because the device is full";
  EXPECT_EQ(allocator.stats().retries, 1u);
}

TEST(CachingAllocator, AFractionIsALimit) {
  CachingAllocator allocator = allocator_with("per_process_memory_fraction:0.5", 100);
  take(allocator, 50);
  EXPECT_FALSE(allocator.allocate(Bytes(1)).ok());
  EXPECT_EQ(allocator.out_of_memory()->free.count(), 50 * kMiB) << "the device has room, the process has not";
}

TEST(CachingAllocator, EmptiesItsCache) {
  CachingAllocator allocator = allocator_with("");
  unwrap(allocator.free(take(allocator, 30)));
  unwrap(allocator.free(take(allocator, 1)));
  take(allocator, 3);  // takes the 30
  allocator.empty_cache();
  EXPECT_EQ(reserved_mib(allocator), 30u);
  EXPECT_EQ(allocator.stats().segments, 1u);
}

// 3 + 15 + 5 MiB are 23 of two pages of 20.
TEST(ExpandableSegments, GrowByPages) {
  CachingAllocator allocator = allocator_with("expandable_segments:True");
  const RequestId a = take(allocator, 3);
  EXPECT_EQ(reserved_mib(allocator), 20u);
  take(allocator, 15);
  const RequestId c = take(allocator, 5);  // 2 MiB are left, and 3 of the next page
  EXPECT_EQ(offset_mib(allocator, c), 18);
  EXPECT_EQ(segment_of(allocator, c), segment_of(allocator, a));
  EXPECT_EQ(reserved_mib(allocator), 40u);
  EXPECT_EQ(allocator.stats().device_allocs, 2u);
  take(allocator, 0.5);  // the small pool has addresses of its own, and pages of 2 MiB
  EXPECT_EQ(reserved_mib(allocator), 42u);
  EXPECT_EQ(allocator.stats().segments, 2u);
  const RequestId e = take(allocator, 100);  // 17 MiB are left, 83 are missing: five pages
  EXPECT_EQ(offset_mib(allocator, e), 23);
  EXPECT_EQ(reserved_mib(allocator), 142u);
}

// The same requests in segments of their own leave 40 + 42; here 40 are freed and 42 grow from there.
TEST(ExpandableSegments, GrowFromWhatIsFree) {
  CachingAllocator expandable = allocator_with("expandable_segments:True");
  CachingAllocator plain = allocator_with("");
  for (CachingAllocator* allocator : {&expandable, &plain}) {
    unwrap(allocator->free(take(*allocator, 40)));
    take(*allocator, 42);
  }
  EXPECT_EQ(reserved_mib(expandable), 60u);
  EXPECT_EQ(reserved_mib(plain), 82u);
}

// 10 MiB are free, and 8 at the end of the page. These fit 7 better, but could grow to all addresses that follow.
TEST(ExpandableSegments, TakeWhatCannotGrowFirst) {
  CachingAllocator allocator = allocator_with("expandable_segments:True");
  const RequestId a = take(allocator, 10);
  take(allocator, 2);  // 8 MiB are left of the page
  unwrap(allocator.free(a));
  const RequestId b = take(allocator, 7);
  EXPECT_EQ(offset_mib(allocator, b), 0) << "in the 10 MiB, not in the 8";
}

// Whatever has 512 bytes is split off: 19.5 MiB leave half a MiB for nobody but the next large request.
TEST(ExpandableSegments, SplitToTheLastBlock) {
  CachingAllocator allocator = allocator_with("expandable_segments:True");
  const RequestId a = take(allocator, 19.5);
  EXPECT_EQ(allocator.block(a)->size.count(), 19 * kMiB + kMiB / 2);
}

// Five pages of 20 MiB are all of the device. 10 | 70 | 20 MiB, of which the 70 are freed: whole pages in there are
// the second to the fourth, so 60 are unmapped. The small pool has 2 of them then. The range of addresses has 100 MiB
// and an eighth, in whole pages: 120.
TEST(ExpandableSegments, AFullDeviceGetsPagesBack) {
  CachingAllocator allocator = allocator_with("expandable_segments:True", 100);
  take(allocator, 10);
  const RequestId middle = take(allocator, 70);
  take(allocator, 20);
  unwrap(allocator.free(middle));
  EXPECT_EQ(reserved_mib(allocator), 100u);
  take(allocator, 0.5);
  EXPECT_EQ(reserved_mib(allocator), 42u);
  EXPECT_EQ(allocator.stats().retries, 1u);
  EXPECT_EQ(allocator.stats().device_frees, 1u);
  const std::vector<SnapshotBlock> blocks = allocator.snapshot();
  std::vector<std::pair<std::uint64_t, BlockState>> shape;
  for (const SnapshotBlock& block : blocks) {
    if (block.segment == 0) shape.emplace_back(block.size.count() / kMiB, block.state);
  }
  EXPECT_THAT(shape, ElementsAre(std::pair(10, BlockState::allocated), std::pair(10, BlockState::free),
                                 std::pair(60, BlockState::unmapped), std::pair(20, BlockState::allocated),
                                 std::pair(20, BlockState::unmapped)));
  // 25 MiB begin in the 10 before the gap and need one page of it.
  const RequestId again = take(allocator, 25);
  EXPECT_EQ(offset_mib(allocator, again), 10);
  EXPECT_EQ(reserved_mib(allocator), 62u);
}

// The addresses of a pool that has nothing any more are given back too.
TEST(ExpandableSegments, EndWithTheirLastPage) {
  CachingAllocator allocator = allocator_with("expandable_segments:True", 100);
  unwrap(allocator.free(take(allocator, 30)));
  allocator.empty_cache();
  EXPECT_EQ(allocator.stats().segments, 0u);
  EXPECT_EQ(reserved_mib(allocator), 0u);
  EXPECT_TRUE(allocator.snapshot().empty());
}

// There are 120 MiB of addresses.
TEST(ExpandableSegments, RefuseWhatNoAddressesHold) {
  CachingAllocator allocator = allocator_with("expandable_segments:True", 100);
  EXPECT_FALSE(allocator.allocate(Bytes(200 * kMiB)).ok());
  EXPECT_FALSE(allocator.allocate(Bytes::max()).ok());
  EXPECT_EQ(reserved_mib(allocator), 0u);
}

TEST(AllocatorSettings, AreReadAsPyTorchReadsThem) {
  const AllocatorSettings settings = unwrap(parse_allocator_settings(
      " max_split_size_mb:40, max_non_split_rounding_mb : 30,garbage_collection_threshold:0.5,expandable_segments:True,"
      "roundup_power2_divisions:[64:8,128:2,256:4,512:2,1024:4,>:1],pinned_use_background_threads:True,backend:"
      "native,"));
  EXPECT_EQ(settings.max_split_size.count(), 40 * kMiB);
  EXPECT_EQ(settings.max_non_split_rounding.count(), 30 * kMiB);
  EXPECT_EQ(settings.garbage_collection_threshold, 0.5);
  EXPECT_TRUE(settings.expandable_segments);
  EXPECT_THAT(settings.roundup_power2_divisions, ElementsAre(8, 8, 8, 8, 8, 8, 8, 2, 4, 2, 4, 1, 1, 1, 1, 1));
  // A size that is left out has none; those above the last have none without ">".
  EXPECT_THAT(unwrap(parse_allocator_settings("roundup_power2_divisions:[2:4,8:2]")).roundup_power2_divisions,
              ElementsAre(4, 4, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0));
  EXPECT_THAT(unwrap(parse_allocator_settings("roundup_power2_divisions:4")).roundup_power2_divisions,
              ::testing::Each(4));
}

TEST(AllocatorSettings, AreRefusedWithAReason) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"max_split_size_mb", ": is wanted, not ''"},
      {"max_split_size_mb:", "a number is wanted, not ''"},
      {"max_split_size_mb:12x", "a number is wanted, not '12x'"},
      {"max_split_size_mb:-5", "a number is wanted, not '-5'"},
      {"max_split_size_mb:19", "max_split_size_mb is 19, less than large_segment_size_mb, which is 20"},
      {"max_split_size_mb:20,large_segment_size_mb:25", "max_split_size_mb is 20, less than"},
      {"max_non_split_rounding_mb:5", "max_non_split_rounding_mb is 5, less than"},
      {"large_segment_size_mb:10", "large_segment_size_mb is 10, not 11 to"},
      {"roundup_power2_divisions:3", "roundup_power2_divisions has 3"},
      {"roundup_power2_divisions:[64:8", ", is wanted, not ''"},
      {"roundup_power2_divisions:[3:8]", "sizes are powers of two, not '3'"},
      {"garbage_collection_threshold:0", "garbage_collection_threshold is above 0"},
      {"garbage_collection_threshold:1.0", "garbage_collection_threshold is 1.0"},
      {"garbage_collection_threshold:nan", "garbage_collection_threshold is nan"},
      {"per_process_memory_fraction:1.5", "per_process_memory_fraction is 1.5"},
      {"expandable_segments:true", "expandable_segments is True or False, not 'true'"},
      {"expandable_segments:True max_split_size_mb:20", "expandable_segments is True or False"},
      {"backend:cudaMallocAsync", "only the backend native is simulated"},
      {"foo:1", "there is no setting 'foo'"},
  };
  for (const auto& [text, message] : cases) {
    const Result<AllocatorSettings> read = parse_allocator_settings(text);
    ASSERT_FALSE(read.ok()) << text;
    EXPECT_EQ(read.error().code, ErrorCode::invalid_setting);
    EXPECT_THAT(read.error().message, HasSubstr(message));
  }
  EXPECT_FALSE(CachingAllocator::make({.max_split_size = Bytes(20 * kMiB + 1)}).ok());
  EXPECT_FALSE(CachingAllocator::make({.large_segment_size = Bytes(11 * kMiB + 1)}).ok());
}

// Blocks tile their segments, what is free side by side is one, and the sums are what the figures say.
void expect_sound(const CachingAllocator& allocator, bool expandable) {
  Bytes allocated, reserved;
  std::uint64_t segments = 0;
  const std::vector<SnapshotBlock> blocks = allocator.snapshot();
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const SnapshotBlock& block = blocks[i];
    ASSERT_GT(block.size, Bytes(0));
    if (i == 0 || blocks[i - 1].segment != block.segment) {
      ++segments;
      ASSERT_EQ(block.offset, Bytes(0));
    } else {
      ASSERT_EQ(block.offset, blocks[i - 1].offset + blocks[i - 1].size);
      ASSERT_TRUE(block.state == BlockState::allocated || block.state != blocks[i - 1].state);
    }
    if (block.state == BlockState::allocated) allocated += block.size;
    if (block.state != BlockState::unmapped) reserved += block.size;
    ASSERT_TRUE(expandable || block.state != BlockState::unmapped);
  }
  const AllocatorStats& stats = allocator.stats();
  ASSERT_EQ(allocated, stats.allocated.now);
  ASSERT_EQ(reserved, stats.reserved.now);
  ASSERT_EQ(segments, stats.segments);
  ASSERT_LE(stats.requested.now, stats.allocated.now);
  ASSERT_LE(stats.allocated.peak, stats.reserved.peak);
}

std::vector<std::string> random_settings(std::mt19937_64& random) {
  const auto chance = [&](double share) { return std::uniform_real_distribution<>(0, 1)(random) < share; };
  std::vector<std::string> settings;
  if (chance(0.4)) settings.push_back("expandable_segments:True");
  if (chance(0.3)) settings.push_back("large_segment_size_mb:" + std::to_string(11 + random() % 10));
  if (chance(0.3)) settings.push_back("max_split_size_mb:" + std::to_string(20 + random() % 20));
  if (chance(0.2)) settings.push_back("max_non_split_rounding_mb:" + std::to_string(20 + random() % 10));
  if (chance(0.2)) settings.push_back("roundup_power2_divisions:" + std::to_string(1 << random() % 4));
  if (chance(0.3)) settings.push_back("per_process_memory_fraction:0." + std::to_string(5 + random() % 5));
  if (chance(0.5)) settings.push_back("garbage_collection_threshold:0." + std::to_string(1 + random() % 9));
  return settings;
}

struct Held {
  RequestId request;
  AllocatedBlock block;
};

// Both are asked for the same. Sizes are few, so that blocks fit again, and the device is often full.
void compare_with_oracle(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::string text;
  for (const std::string& setting : random_settings(random)) text += setting + ",";
  SCOPED_TRACE("seed " + std::to_string(seed) + ", " + text);
  const AllocatorSettings settings = unwrap(parse_allocator_settings(text));
  const std::uint64_t capacity = (40 + random() % 400) * kMiB;
  CachingAllocator allocator = unwrap(CachingAllocator::make(settings, Bytes(capacity)));
  AllocatorOracle oracle(settings, capacity);
  std::vector<std::uint64_t> sizes;
  for (int i = 0; i < 12; ++i) {
    const double exponent = std::uniform_real_distribution<>(0, 7.8)(random);
    sizes.push_back(static_cast<std::uint64_t>(std::pow(10, exponent)));
  }
  std::vector<Held> held;
  for (int i = 0; i < 300; ++i) {
    const std::uint64_t dice = random() % 100;
    if (dice < 2) {
      allocator.empty_cache();
      oracle.empty_cache();
    } else if (dice < 48 && !held.empty()) {
      std::swap(held[random() % held.size()], held.back());
      unwrap(allocator.free(held.back().request));
      oracle.free(held.back().block);
      held.pop_back();
    } else {
      const std::uint64_t size = sizes[random() % sizes.size()];
      const std::uint32_t stream = random() % 8 == 0;
      const std::optional<AllocatedBlock> expected = oracle.allocate(size, stream);
      const Result<RequestId> given = allocator.allocate(Bytes(size), stream);
      ASSERT_EQ(given.ok(), expected.has_value()) << "request " << i << " of " << size;
      if (expected) {
        const AllocatedBlock block = *allocator.block(*given);
        ASSERT_EQ(std::tuple(block.segment, block.offset, block.size),
                  std::tuple(expected->segment, expected->offset, expected->size))
            << "request " << i << " of " << size;
        held.push_back({*given, block});
      }
    }
    const AllocatorStats& stats = allocator.stats();
    ASSERT_EQ(stats.allocated.now.count(), oracle.allocated());
    ASSERT_EQ(stats.reserved.now.count(), oracle.reserved());
    ASSERT_EQ(stats.segments, oracle.num_segments());
    ASSERT_EQ(std::tuple(stats.device_allocs, stats.device_frees, stats.retries, stats.ooms),
              std::tuple(oracle.device_allocs, oracle.device_frees, oracle.retries, oracle.ooms));
    ASSERT_NO_FATAL_FAILURE(expect_sound(allocator, settings.expandable_segments));
  }
}

TEST(CachingAllocator, DoesWhatTheOracleDoes) {
  for (std::uint64_t seed = 0; seed < trials(20'000, 300); ++seed) ASSERT_NO_FATAL_FAILURE(compare_with_oracle(seed));
}

// 1,000,000 requests, of which some ten thousand are held at a time: about a second, with room for a busy machine.
TEST(CachingAllocator, TakesAMillionRequests) {
  for (const std::string settings : {"", "expandable_segments:True"}) {
    std::mt19937_64 random(1);
    CachingAllocator allocator = allocator_with(settings);
    std::vector<RequestId> held;
    const double begin = processor_seconds();
    for (int i = 0; i < (kSanitized ? 100'000 : 1'000'000); ++i) {
      if (held.size() > 10'000 || (!held.empty() && random() % 2 == 0)) {
        std::swap(held[random() % held.size()], held.back());
        unwrap(allocator.free(held.back()));
        held.pop_back();
      }
      const double exponent = std::uniform_real_distribution<>(0, 7.5)(random);
      held.push_back(unwrap(allocator.allocate(Bytes(static_cast<std::uint64_t>(std::pow(10, exponent))))));
    }
    const double seconds = processor_seconds() - begin;
    RecordProperty("seconds" + settings.substr(0, 3), std::to_string(seconds));
    if (!kSanitized) {
      EXPECT_LT(seconds, 30) << settings;
    }
    ASSERT_NO_FATAL_FAILURE(expect_sound(allocator, !settings.empty()));
  }
}

}  // namespace
}  // namespace lowtide
