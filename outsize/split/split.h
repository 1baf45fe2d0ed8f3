// Split: ops run as several, bits unchanged. A cut says where one op is cut; applying cuts gives a
// graph in which each cut op is a row of ops on parts of the same storages.
//
//   op7 = gelu(a [4096]) -> b, op8 = mul(b, c) -> d, both cut at {0, 2048, 4096} in run 0:
//   gelu(a[:2048]) -> b[:2048], mul(b[:2048], c[:2048]) -> d[:2048], gelu(a[2048:]) …, mul(…)
//
// If nothing else touches b, each half of it now lives only from its gelu to its mul. Ids of
// storages, values and scalars stay what they were; new ones come after them. Pure functions; the
// graph given is not changed.
#pragma once

#include <cstdint>
#include <vector>

#include "outsize/graph/graph.h"
#include "outsize/split/slicing.h"

namespace outsize {

struct Cut {
  OpId op;
  CutKind kind = CutKind::kRows;
  // Where it is cut, in the op's items, elements or rows: ascending, from 0 to the op's count.
  std::vector<int64_t> bounds;
  // Cuts of one run have as many pieces each, and piece i of all of them comes before piece i+1 of
  // any. -1: of no run.
  int64_t run = -1;
  int64_t pieces() const { return static_cast<int64_t>(bounds.size()) - 1; }
  bool operator==(const Cut&) const = default;
};

// How `op` may be cut, into single items, rows, outputs, or blocks of 64 elements (a vector
// register holds no more, so that all but the last piece are whole vectors): the finest cut of its
// kind; empty where it may not be cut. Other cuts have some of its bounds.
std::vector<Cut> cuts_of(const Graph& graph, OpId op);

// The ops that a cut makes of its op: `pieces[i]` for the i-th, `before` and `after` once.
struct Pieces {
  std::vector<Op> before;
  std::vector<Op> pieces;
  std::vector<Op> after;
};
// Adds the values and storages that they need to `graph`. kBadInput: the op can't be cut so.
Result<Pieces> pieces_of(Graph& graph, const Cut& cut);

// Joins cuts into runs: sets `run` of cuts whose pieces may be done together, in the order of their
// ops, where that keeps every dependency. Only cuts whose `run` is equal at the start are joined.
void settle_runs(const Graph& graph, std::vector<Cut>& cuts);

// Requires: runs as settle_runs leaves them. Cuts of one op twice, or that the op does not allow:
// kBadInput.
// `origin`, if given, gets for each op of the new graph the one it was or is a piece of.
Result<Graph> apply_cuts(const Graph& graph, const std::vector<Cut>& cuts,
                         std::vector<OpId>* origin = nullptr);

// Ops that take a tensor for its shape alone (empty_like, zeros_like, …) become ops that take the
// shape, so that the tensor need not be there. Same bits.
Graph without_shape_reads(const Graph& graph);

}  // namespace outsize
