// Choosing cuts: which ops of a graph to split so that none needs more than some number of bytes at
// once.
//
//   SplitOptions options{.largest_bytes = 46 << 20, .prove = ...};
//   Result<Split> split = split_graph(graph, options);
//   split->graph;  split->refused
//   split->done: "aten._log_softmax.default", rows, 12 pieces, 268 MB before, 22 MB after
//
// Ops are cut together along what flows between them: a storage made in pieces and read in the same
// pieces never is there as a whole. An op that needs no more than `largest_bytes` is cut only for
// its neighbours. Same graph, options and proofs: same split.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "outsize/split/split.h"

namespace outsize {

// Whether an op in pieces gives the same bits; if not, what was seen.
struct Proof {
  bool equal = false;
  std::string why;
  bool operator==(const Proof&) const = default;
};

struct SplitOptions {
  // Affects result: what an op should need at most: its operands, as large as they must be held,
  // and its workspace.
  int64_t largest_bytes = 0;
  // Affects result: per op, its workspace; {}: none.
  std::vector<int64_t> workspace_bytes;
  // Affects result: pieces this small are not made.
  int64_t least_piece_bytes = int64_t{64} << 10;
  // Whether this device gives the same bits for the op cut so. Required; an error ends the split.
  std::function<Result<Proof>(const Graph& graph, const Cut& cut)> prove;
};

struct SplitDone {
  std::string op;  // name, and place in the user's program
  CutKind kind = CutKind::kRows;
  int64_t pieces = 0;
  int64_t bytes_before = 0;  // that the op needed at once
  int64_t bytes_after = 0;   // that the largest of its pieces needs
};

struct SplitRefused {
  std::string op;
  CutKind kind = CutKind::kRows;
  std::string why;
  bool operator==(const SplitRefused&) const = default;
};

struct Split {
  Graph graph;
  std::vector<SplitDone> done;        // program order, round by round
  std::vector<SplitRefused> refused;  // cuts that were wanted
};

Result<Split> split_graph(const Graph& graph, const SplitOptions& options);

// Per op, what must be on the device while it runs: bytes that some op touches as a whole are held
// as a whole, so pieces of a storage count alone only if no op crosses their bounds; storages that
// cross the border are held whole. Plus the workspace.
std::vector<int64_t> held_bytes(const Graph& graph, const std::vector<int64_t>& workspace_bytes);

}  // namespace outsize
