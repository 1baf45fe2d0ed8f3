// Proof that this device gives the same bits for an op that is cut: both ways are run, on random
// operands of the right shapes, several times, and everything they write is compared byte for byte.
//
//   Prover prover({.seed = 1});
//   Result<Proof> proof = prover.prove(graph, {OpId{17}, CutKind::kRows, {0, 128, 256, 300}});
//
// A pointwise op is also run on operands that show each element which its kernel treats in another
// way than as a whole (outsize/torch/prove_paths.h).
//
// A proof holds for that op, shape, cut (tail included), torch version, thread count and processor;
// it is kept on disk under all of these. An op that can't be called in pieces, or whose pieces have
// another layout, is not equal. Needs memory for the op's operands twice and its results. Threads:
// runs on the calling thread (and torch's own).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "outsize/base/result.h"
#include "outsize/graph/graph.h"
#include "outsize/split/choose.h"

namespace outsize {

struct ProveOptions {
  int runs = 3;  // on operands of their own
  uint64_t seed = 1;
  // Affects speed: a folder for results; "": $OUTSIZE_CACHE, else ~/.cache/outsize.
  std::string cache_dir;
  bool use_cache = true;
};

class Prover {
 public:
  explicit Prover(const ProveOptions& options);
  // Errors: the op as a whole can't be called.
  Result<Proof> prove(const Graph& graph, const Cut& cut);

  int64_t proved() const { return proved_; }          // cuts that were run
  int64_t from_cache() const { return from_cache_; }  // cuts known from disk or from earlier calls

 private:
  Result<Proof> run(const Graph& graph, const Cut& cut) const;
  std::string path_of(const std::string& key) const;

  const ProveOptions options_;
  std::string folder_;
  const std::string surroundings_;
  std::map<std::string, Proof> known_;
  int64_t proved_ = 0;
  int64_t from_cache_ = 0;
};

}  // namespace outsize
