// Where each byte of a step could be away: the gaps between its uses, and the versions they are of.
//
//   op      0      1      2      3      4          A is made by op 0, read by ops 1 and 4:
//   A       make   read   ·      ·      read       gap {a 1, b 4}, version written by op 0
//   w       ·      read   ·      write  ·          w persists: gap {a 1, b 3} of the version that
//   op 3 of
//                                                  the step before wrote, and a gap {a 3, b 1} that
//                                                  wraps
//
// A grain is the largest byte range of one storage that every op touches as a whole; most storages
// are one grain. Pure functions, plain values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "outsize/graph/graph.h"

namespace outsize::bounding {

// Op indices, with -1 for the step's beginning and ops.size() for its end.
using Moment = int32_t;

struct Grain {
  StorageId storage;
  Interval bytes;
  std::vector<Moment> uses;    // ops that touch it, ascending
  std::vector<Moment> writes;  // of these, those that write it, ascending
  bool entry = false;
  bool exit = false;
  bool wraps = false;  // there before and after the step: its last gap ends in the next step
  // Live in [first(), last()]: entry or make to last use or exit.
  Moment birth = 0, death = 0;
};

// Grains that are touched, by storage, then by address. Bytes that nobody touches need never be
// there.
std::vector<Grain> grains_of(const Graph& graph);

enum class GapKind {
  kInner,   // a, b: uses in this step
  kWrap,    // a: last use; b: first use, in the next step
  kBefore,  // a: -1; b: first use of what was there at entry and does not wrap
  kAfter,   // a: last use; b: end of the step, of what must be there at exit and does not wrap
};

struct Gap {
  size_t grain = 0;
  Moment a = 0, b = 0;
  GapKind kind = GapKind::kInner;
  Moment writer = -1;      // op that wrote the version, -1: it was there at entry
  bool clean = false;      // a copy lies on the host already, whatever the plan
  bool last_step = false;  // kInner: the version was written in the step before, by `writer`
};

// Gaps of one grain with an op in between, in order of time; kWrap last.
std::vector<Gap> gaps_of(const Grain& grain, size_t grain_index, Moment ops);

}  // namespace outsize::bounding
