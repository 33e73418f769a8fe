// pareto.h: points with a cost and a peak of which none has both lower than another.
//
//   peak  +
//         | x            kept from the lowest cost to the highest,
//         |   x          and so from the highest peak to the lowest
//         |     x   x
//         +-------------- cost
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <utility>
#include <vector>

namespace lowtide {

// Whether some point costs no more and has no higher peak.
template <typename Point>
bool is_reached(const std::vector<Point>& points, std::int64_t cost, std::int64_t peak) {
  const auto above = std::ranges::upper_bound(points, cost, {}, &Point::cost);
  return above != points.begin() && std::prev(above)->peak <= peak;
}

// Adds a point that is not reached; those that it reaches go.
template <typename Point>
void add_point(std::vector<Point>& points, Point point) {
  const auto place = std::ranges::lower_bound(points, point.cost, {}, &Point::cost);
  const auto end = std::find_if(place, points.end(), [&](const Point& other) { return other.peak < point.peak; });
  points.insert(points.erase(place, end), std::move(point));
}

// The point of lowest peak at no more than this cost, if any.
template <typename Point>
const Point* lowest_within(const std::vector<Point>& points, std::int64_t cost) {
  const auto above = std::ranges::upper_bound(points, cost, {}, &Point::cost);
  return above == points.begin() ? nullptr : &*std::prev(above);
}

}  // namespace lowtide
