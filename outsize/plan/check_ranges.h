// A map from byte ranges to facts: pieces that don't overlap, gaps where nothing is known.
//
//   RangeMap<char> m;  m.assign({0, 8}, 'a');  m.assign({2, 4}, 'b');
//   m.visit({1, 9}, f)   calls f([1,2) 'a')  f([2,4) 'b')  f([4,8) 'a')  f([8,9) nothing)
//
// For the plan checker: one per tier, from addresses to what is known of them, and one per storage.
// Each call costs O(log n) plus the pieces it meets. A value type; not thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <utility>

#include "outsize/base/interval.h"

namespace outsize {

template <typename Fact>
class RangeMap {
 public:
  // Calls visit(Interval, const Fact*) for the pieces and gaps of `range`, clipped to it,
  // ascending; nullptr means a gap. Stops early where visit returns false.
  template <typename Visit>
  void visit(Interval range, Visit&& visit) const {
    int64_t at = range.begin;
    for (auto it = first_reaching(range.begin); at < range.end; ++it) {
      const int64_t begin = it == pieces_.end() ? range.end : std::min(it->first, range.end);
      if (begin > at && !visit(Interval{at, begin}, static_cast<const Fact*>(nullptr))) return;
      at = std::max(at, begin);
      if (at >= range.end) return;
      const int64_t end = std::min(it->second.end, range.end);
      if (!visit(Interval{at, end}, &it->second.fact)) return;
      at = end;
    }
  }

  // Makes `range` one piece.
  void assign(Interval range, const Fact& fact) {
    if (range.empty()) return;
    erase(range);
    pieces_.emplace(range.begin, Piece{range.end, fact});
  }

  // Makes `range` a gap.
  void erase(Interval range) {
    if (range.empty()) return;
    cut(range.begin);
    cut(range.end);
    pieces_.erase(pieces_.lower_bound(range.begin), pieces_.lower_bound(range.end));
  }

  // Calls change(Fact&) for each piece of `range`, after cutting pieces that stick out, and makes a
  // piece of each gap from `blank` first.
  template <typename Change>
  void update(Interval range, const Fact& blank, Change&& change) {
    if (range.empty()) return;
    cut(range.begin);
    cut(range.end);
    int64_t at = range.begin;
    auto it = pieces_.lower_bound(range.begin);
    while (at < range.end) {
      if (it == pieces_.end() || it->first > at) {
        const int64_t end = it == pieces_.end() ? range.end : std::min(it->first, range.end);
        it = pieces_.emplace_hint(it, at, Piece{end, blank});
      }
      change(it->second.fact);
      at = it->second.end;
      ++it;
    }
  }

 private:
  struct Piece {
    int64_t end;
    Fact fact;
  };
  using Pieces = std::map<int64_t, Piece>;

  // The first piece that ends after `at`.
  typename Pieces::const_iterator first_reaching(int64_t at) const {
    auto it = pieces_.upper_bound(at);
    if (it == pieces_.begin()) return it;
    const auto before = std::prev(it);
    return before->second.end > at ? before : it;
  }

  // Afterwards no piece has `at` strictly inside.
  void cut(int64_t at) {
    auto it = pieces_.lower_bound(at);
    if (it == pieces_.begin()) return;
    --it;
    if (it->second.end <= at) return;
    Piece rest = it->second;
    it->second.end = at;
    pieces_.emplace(at, std::move(rest));
  }

  Pieces pieces_;
};

}  // namespace outsize
