#include "random_step.h"

#include <algorithm>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "unwrap.h"

namespace lowtide {

Graph random_step(std::uint32_t seed) {
  std::mt19937 random(seed);
  const auto below = [&](std::size_t n) { return random() % n; };
  GraphBuilder builder;
  std::vector<BufferId> made = {unwrap(
      builder.add_buffer({.size = Bytes(1024), .residence = Residence::resident, .name = "x", .initial = true}))};
  const std::size_t forward = 3 + below(5);
  for (std::size_t i = 0; i < 2 * forward; ++i) {
    const bool backward = i >= forward;
    OpSpec spec{.name = "op", .cost = Nanos(1 + below(100)), .flags = {.backward = backward}};
    std::vector<BufferId> reads = {made.back()};
    if (backward && below(3) > 0) reads.push_back(made[2 * forward - i]);
    if (below(3) == 0) reads.push_back(made[below(made.size())]);
    std::ranges::sort(reads);
    reads.erase(std::ranges::unique(reads).begin(), reads.end());
    for (const BufferId read : reads) spec.reads.push_back(unwrap(builder.add_value(read, "u8", {})));
    const Bytes size(std::uint64_t{1024} << (below(2) * below(7)));
    made.push_back(unwrap(builder.add_buffer({.size = size})));
    spec.writes = {made.back()};
    const OpId op = unwrap(builder.add_op(spec));
    for (const bool rows : {true, false}) {
      const bool is_sum = below(8) == 0;
      AxisSpec axis{.writes = {is_sum ? Bytes(0) : rows ? size : Bytes(256)}};
      for (std::size_t r = 0; r < reads.size(); ++r) {
        // All buffers are of whole multiples of these, whatever their sizes.
        axis.reads.push_back(r > 0 && below(6) == 0 ? Bytes(0) : rows ? Bytes(1024) : Bytes(256));
      }
      if (rows && !is_sum) axis.writes = {Bytes(1024)};
      for (const std::uint32_t count : {2, 4, 16}) {
        axis.counts.push_back({count, Bytes(below(2) * 64), Nanos(1 + below(60)), !is_sum && below(4) > 0});
      }
      EXPECT_TRUE(builder.add_axis(op, axis).ok());
    }
  }
  return unwrap(std::move(builder).build());
}

}  // namespace lowtide
