// The one interval type: half-open [begin, end) over bytes, instruction indices or nanoseconds.
//
//   Interval a{0, 4}, b{4, 6};   a.overlaps(b) == false;  a.size() == 4
#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>

namespace outsize {

struct Interval {
  int64_t begin = 0;
  int64_t end = 0;

  constexpr int64_t size() const { return end - begin; }
  constexpr bool empty() const { return end <= begin; }
  constexpr bool contains(int64_t x) const { return begin <= x && x < end; }
  constexpr bool contains(const Interval& o) const { return begin <= o.begin && o.end <= end; }
  // Empty intervals overlap nothing.
  constexpr bool overlaps(const Interval& o) const {
    return std::max(begin, o.begin) < std::min(end, o.end);
  }
  constexpr Interval intersect(const Interval& o) const {
    return {std::max(begin, o.begin), std::min(end, o.end)};
  }
  constexpr Interval shifted(int64_t by) const { return {begin + by, end + by}; }
  constexpr auto operator<=>(const Interval&) const = default;
};

}  // namespace outsize
