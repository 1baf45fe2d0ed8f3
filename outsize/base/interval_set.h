// A set of integers kept as disjoint half-open intervals: which bytes of a storage are written,
// which addresses are taken.
//
//   IntervalSet set;  set.add({0, 4});  set.add({8, 12});
//   set.first_missing({0, 10}) == {4, 8};  set.first_common({2, 20}) == {2, 4};  set.size() == 8
//
// `add` and `remove` cost O(intervals); the questions cost O(log intervals).
#pragma once

#include <algorithm>
#include <vector>

#include "outsize/base/interval.h"

namespace outsize {

class IntervalSet {
 public:
  void add(Interval added) {
    if (added.empty()) return;
    // Neighbours that touch are joined, so that a set has one form.
    const auto first = std::partition_point(parts_.begin(), parts_.end(),
                                            [&](const Interval& p) { return p.end < added.begin; });
    auto last = first;
    while (last != parts_.end() && last->begin <= added.end) {
      added.begin = std::min(added.begin, last->begin);
      added.end = std::max(added.end, last->end);
      ++last;
    }
    parts_.insert(parts_.erase(first, last), added);
  }
  void remove(const Interval& removed) {
    if (removed.empty()) return;
    std::vector<Interval> kept;
    for (const Interval& p : parts_) {
      const Interval before{p.begin, std::min(p.end, removed.begin)};
      const Interval after{std::max(p.begin, removed.end), p.end};
      if (!before.empty()) kept.push_back(before);
      if (!after.empty()) kept.push_back(after);
    }
    parts_ = std::move(kept);
  }
  // The first stretch of `asked` that is not in the set; empty if all of it is.
  Interval first_missing(const Interval& asked) const {
    if (asked.empty()) return {};
    auto part = first_ending_after(asked.begin);
    int64_t begin = asked.begin;
    if (part != parts_.end() && part->begin <= begin) {
      begin = part->end;
      ++part;
    }
    if (begin >= asked.end) return {};
    return {begin, part == parts_.end() ? asked.end : std::min(asked.end, part->begin)};
  }
  // The first stretch of `asked` that is in the set; empty if none of it is.
  Interval first_common(const Interval& asked) const {
    const auto part = first_ending_after(asked.begin);
    if (asked.empty() || part == parts_.end() || !part->overlaps(asked)) return {};
    return part->intersect(asked);
  }
  bool contains(const Interval& asked) const { return first_missing(asked).empty(); }
  bool overlaps(const Interval& asked) const { return !first_common(asked).empty(); }
  int64_t size() const {
    int64_t sum = 0;
    for (const Interval& p : parts_) sum += p.size();
    return sum;
  }
  // Ascending, disjoint, none touching the next.
  const std::vector<Interval>& parts() const { return parts_; }
  bool operator==(const IntervalSet&) const = default;

 private:
  std::vector<Interval>::const_iterator first_ending_after(int64_t x) const {
    return std::partition_point(parts_.begin(), parts_.end(),
                                [&](const Interval& p) { return p.end <= x; });
  }
  std::vector<Interval> parts_;
};

}  // namespace outsize
