// Checkmate's view of a step (Jain et al., MLSys'20, section 4): as many stages as ops; stage t
// ends with the first run of op t and may run earlier ops again before it. What is *saved* into
// each stage says everything else: an op runs again in a stage if something needs what it makes
// there and that was not saved.
//
//   op0 makes A, op1 reads A and makes B, op2 reads B, op3 reads A
//   saved into stage 1: A; 2: B; 3: nothing           stage 3 runs op0 again, then op3
//
// A *value* is a part that one op makes, from nothing, within the step. What else there is (parts
// there at entry, parts that several ops write) stays on the device from its first touch to its
// last, those of the entry for the whole step, and its bytes are taken off the budget. Pure
// functions; plain values.
#pragma once

#include <optional>
#include <vector>

#include "outsize/planners/realise.h"

namespace outsize::planning {

struct Stages {
  struct Value {
    int32_t part = 0;
    int32_t maker = 0;  // an op, by its place in the order, as `readers`
    int64_t bytes = 0;
    std::vector<int32_t> readers;  // ascending
    bool exit = false;
    int32_t last_stage = 0;  // into which it may have to be saved; the number of stages for `exit`
  };
  struct Node {
    OpId op;
    int64_t ns = 0;
    int64_t workspace = 0;
    std::vector<int32_t> reads, makes;  // values
    int32_t last_rerun = 0;  // the last stage that may run it; its own where it can't run again
  };
  std::vector<Value> values;
  std::vector<Node> nodes;
  // Bytes of what is no value: while op t runs, and while its stage runs ops before it again.
  std::vector<int64_t> beside_op, beside_reruns;

  int32_t count() const { return static_cast<int32_t>(nodes.size()); }
};
Stages stages_of(const Case& c);

// saved[t][v]: value v lies on the device as stage t begins. One row more than there are stages:
// what must be there at the end.
using Saved = std::vector<std::vector<char>>;
// Everything for as long as anything may read it: nothing is run again.
Saved save_everything(const Stages& stages);

struct Staged {
  Saved saved;
  std::vector<std::vector<char>> runs;  // [t][op]
  int64_t rerun_ns = 0;
};
// The runs that these saves ask for. What can't be made again where it is needed is saved from its
// maker on.
Staged completed(const Stages& stages, Saved saved);

// As a program: its instances live from their first touch to their last.
Decision decision_of(const Case& c, const Stages& stages, const Staged& staged);

}  // namespace outsize::planning
