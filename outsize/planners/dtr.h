// Dynamic tensor rematerialization (Kirisame et al., ICLR'21): the step is played once in program
// order under a capacity; where an op's outputs don't fit, the tensor with the least score is
// evicted, and an evicted tensor that an op reads is made again from its parents, recursively.
//
//   op0 makes A 4 B (1 ns), op1 makes B 4 B from A (9 ns), op2 makes C 4 B from B, op3 reads A, C
//   capacity 11: C does not fit beside A and B, and op2 reads B (locked): A is evicted
//   op3: A is made again; B was let go after op2, its last reader
//
// Scores (section 4.1 and appendix): h_DTR is (cost + cost of the evicted neighbourhood) / (bytes *
// staleness), where the neighbourhood is what would have to be made again before it, and what
// evicted tensors would need it for; `eq-class` approximates that neighbourhood's cost by a
// union-find of evicted components; MSPS is (cost + evicted ancestors) / bytes; LRU is -staleness.
// The paper's scheduler works on line; here the whole run is recorded as a program. Pure functions.
#pragma once

#include <optional>

#include "outsize/planners/realise.h"

namespace outsize::planning {

enum class DtrNeighbourhood {
  kNone,       // the tensor's own cost
  kEvicted,    // e*: evicted ancestors and descendants, exactly
  kAncestors,  // evicted ancestors only
  kClasses,    // components of evicted tensors, by union-find
};

struct DtrParams {
  DtrNeighbourhood neighbourhood = DtrNeighbourhood::kEvicted;
  bool cost = true;       // off: every tensor costs 1
  bool bytes = true;      // off: every tensor has 1 byte
  bool staleness = true;  // off: every tensor was touched as long ago
  bool eager = true;  // a tensor without readers left is evicted at once; off: when it is chosen
  // Gives up where reruns take more than this many times the step: it thrashes.
  double most_recompute = 8;
};
DtrParams h_dtr();
DtrParams h_dtr_eq_class();
DtrParams h_msps();
DtrParams h_lru();

// What it does within `capacity` bytes on the device; none where an op's operands don't fit beside
// what can't be evicted (`trouble` names the op), or where it thrashes.
std::optional<Decision> decide_dtr(const Case& c, const DtrParams& params, int64_t capacity,
                                   Trouble& trouble);

}  // namespace outsize::planning
