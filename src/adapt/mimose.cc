#include <algorithm>
#include <numeric>

#include "adapt/selection.h"
#include "lowtide/adapt.h"

namespace lowtide {
namespace {

// Blocks of nearly the same size, the next one to take at the back.
struct Bucket {
  Bytes largest;
  std::vector<std::size_t> blocks;
};

std::vector<Bucket> to_buckets(const BatchNeeds& needs) {
  const auto size_of = [&](std::size_t block) { return needs.blocks[block].freed_forward; };
  std::vector<std::size_t> by_size(needs.blocks.size());
  std::iota(by_size.begin(), by_size.end(), std::size_t{0});
  std::stable_sort(by_size.begin(), by_size.end(), [&](auto a, auto b) { return size_of(a) > size_of(b); });
  std::vector<Bucket> buckets;
  for (const std::size_t block : by_size) {
    // size > 0.9 * largest, in whole numbers
    if (buckets.empty() || size_of(block) <= buckets.back().largest - Bytes(buckets.back().largest.count() / 10)) {
      buckets.push_back({size_of(block), {}});
    }
    buckets.back().blocks.push_back(block);
  }
  for (Bucket& bucket : buckets) std::sort(bucket.blocks.begin(), bucket.blocks.end(), std::greater<>());
  return buckets;
}

}  // namespace

Selection mimose(const BatchNeeds& needs, Bytes budget) {
  std::vector<bool> dropped(needs.blocks.size(), false);
  Bytes excess = peak_of(needs, dropped) - budget;
  std::vector<Bucket> buckets = to_buckets(needs);
  while (excess > Bytes(0) && !buckets.empty()) {
    auto from = buckets.begin();  // the largest
    for (auto bucket = buckets.begin(); bucket != buckets.end() && bucket->largest > excess; ++bucket) from = bucket;
    const std::size_t block = from->blocks.back();
    from->blocks.pop_back();
    if (from->blocks.empty()) buckets.erase(from);
    dropped[block] = true;
    excess -= needs.blocks[block].freed_forward;
  }
  return selected(needs, std::move(dropped));
}

}  // namespace lowtide
