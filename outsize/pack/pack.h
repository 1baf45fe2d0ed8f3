// The packer: addresses for buffers whose lifetimes are known (dynamic storage allocation), so that
// no two that live at once share a byte and the highest byte used lies as low as possible.
//
//   b0 [0,2) 4 B   b1 [1,3) 4 B   b2 [2,4) 4 B      8 ┤   ┌b1─────┐
//                                                   4 ┤b0─┴──┬b2──┴┐     b2 reuses b0's bytes:
//   pack(...).offsets == {0, 4, 0}, height == 8     0 └──0──1──2──3──     height 8 = most ever live
//
// The answer always has an offset for every buffer; where a capacity is given it fits or says by
// how much it doesn't (`over`), and `proved_infeasible` says that no packing fits. Pure functions;
// same buffers, options and work: same answer. Free to call from any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "outsize/base/deadline.h"
#include "outsize/base/interval.h"

namespace outsize {

// While `life` runs the buffer holds only `window` of its bytes (relative to its offset); without a
// window, none of them.
struct Gap {
  Interval life;
  std::optional<Interval> window;
  bool operator==(const Gap&) const = default;
};

struct Buffer {
  int64_t id = 0;                 // for messages and ties; need not be unique
  Interval life;                  // half-open, in any integer time
  int64_t size = 0;               // bytes
  int64_t alignment = 1;          // of its offset
  std::optional<int64_t> offset;  // where it must lie; not checked against `alignment`
  std::vector<Gap> gaps;          // disjoint, ascending, inside `life`
  bool operator==(const Buffer&) const = default;
};

struct PackOptions {
  // Stop at the first packing this low. 0: no such limit, as low as can be.
  int64_t capacity = 0;
  // One of pack_methods(). "fast": every order once, best taken; "search": that, then improved
  // until the deadline; others: one order alone.
  std::string method = "fast";
  uint64_t seed = 1;
  // "search" only. Null: one short turn of each search. One unit of work is about one placement.
  Deadline* deadline = nullptr;
};

struct Packing {
  std::vector<int64_t> offsets;  // in input order
  int64_t height = 0;            // one past the highest byte used
  int64_t lower_bound =
      0;                 // no packing is lower: most bytes live at once, or what is fixed asks for
  std::string method;    // which order made it, or "search" or "exact"
  bool optimal = false;  // height == lower_bound, or proved by search
  bool proved_infeasible = false;  // no packing has height <= capacity
  // Fixed buffers that collide (input positions); no packing exists then, and offsets are as given.
  std::optional<std::pair<size_t, size_t>> conflict;
  // Positions of the buffers that end above the capacity, ascending; empty without a capacity.
  std::vector<size_t> over;
  int64_t work = 0;  // placements of one buffer, tried
  bool fits() const { return !conflict && over.empty(); }
  bool operator==(const Packing&) const = default;
};

// "fast", "search", then the single orders: "size", "size-best-fit", "birth", "area", ...
std::vector<std::string> pack_methods();

// Requires: sizes >= 0, alignments >= 1, a known method, tops of fixed buffers within 2^62.
Packing pack(const std::vector<Buffer>& buffers, const PackOptions& options);

// Most bytes live at any moment.
int64_t max_live(const std::vector<Buffer>& buffers);

}  // namespace outsize
