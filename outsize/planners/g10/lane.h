// What a direction of a link still carries beside each op, as G10 estimates it (section 4.3).
//
//   ops 0 1 2 3 of 10 ns; 25 ns of copies from op 0 on:   left 0 0 5 10     a copy of 10 from op 1
//                                                         on ends beside op 3
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace outsize::planning::g10 {

class Lane {
 public:
  explicit Lane(std::vector<int64_t> op_ns) : op_ns_(std::move(op_ns)), left_(op_ns_) {}

  // Whether nothing is left beside the ops from `rank` on for `ns`.
  bool full(int32_t rank, int64_t ns) const {
    for (int64_t covered = 0; rank < size() && covered < ns; ++rank) {
      if (left_[at(rank)] > 0) return false;
      covered += op_ns_[at(rank)];
    }
    return true;
  }
  // Whether so much is left beside the ops [from, to).
  bool fits(int32_t from, int32_t to, int64_t ns) const {
    for (; from < to && ns > 0; ++from) ns -= left_[at(from)];
    return ns <= 0;
  }
  // Beside which op a copy of `ns` ends that takes what is left from `rank` on; the last one, if
  // nothing is.
  int32_t end_of(int32_t rank, int64_t ns) const {
    for (; rank + 1 < size(); ++rank)
      if ((ns -= left_[at(rank)]) <= 0) break;
    return std::min(rank, size() - 1);
  }
  // Beside which op one must begin to have ended before `rank`; the first one, if there is no time.
  int32_t begin_of(int32_t rank, int64_t ns) const {
    for (--rank; rank > 0; --rank)
      if ((ns -= left_[at(rank)]) <= 0) break;
    return std::max(rank, 0);
  }
  void take_from(int32_t rank, int64_t ns) {
    for (; rank < size() && ns > 0; ++rank) ns = take(rank, ns);
  }
  void take_before(int32_t rank, int64_t ns) {
    for (--rank; rank >= 0 && ns > 0; --rank) ns = take(rank, ns);
  }

 private:
  int32_t size() const { return static_cast<int32_t>(left_.size()); }
  static size_t at(int32_t rank) { return static_cast<size_t>(rank); }
  int64_t take(int32_t rank, int64_t ns) {
    const int64_t taken = std::min(ns, left_[at(rank)]);
    left_[at(rank)] -= taken;
    return ns - taken;
  }

  std::vector<int64_t> op_ns_, left_;
};

}  // namespace outsize::planning::g10
