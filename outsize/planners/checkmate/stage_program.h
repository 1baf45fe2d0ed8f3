// Checkmate's integer program (MLSys'20, section 4): R[t,i], op i runs in stage t; S[t,v], value v
// is saved into stage t; FREE[t,v,k], v is let go after op k of stage t; U[t,k], bytes in use while
// that op runs.
//
//   minimise  sum of ns[i] R[t,i]             R[t,t] = 1: each stage brings one op that is new
//   R[t,i] <= R[t,j] + S[t,v]                 i reads v, which j makes (1b)
//   S[t,v] <= R[t-1,j] + S[t-1,v]             (1c)
//   U[t,k'] = U[t,k] - sum bytes[v] FREE[t,v,k] + bytes that k' makes,    U <= budget   (5)
//   FREE[t,v,k] <= R[t,k], 1 - S[t+1,v], 1 - R[t,j] for readers j of v after k          (7)
//
// We differ in how FREE is written: the paper's one row per FREE with a large factor needs it
// whole; a row per hazard makes it whole by itself, and the relaxation sharper. Variables that no
// solution needs (an op in stages after the last that may want it) are left out. Times and bytes
// are scaled to 1000, as solvers' tolerances are absolute. Not thread-safe.
#pragma once

#include <map>

#include "outsize/base/deadline.h"
#include "outsize/bound/linear_program.h"
#include "outsize/planners/checkmate/stages.h"

namespace outsize::planning {

class StageProgram {
 public:
  // `free`: off, what a stage holds stays until it has ended.
  StageProgram(const Stages& stages, int64_t capacity, bool free = true);

  // S of the relaxation, in [0, 1], [stage][value]; none where there is no solution, or none
  // within these seconds and simplex iterations (< 0: any number).
  std::optional<std::vector<std::vector<double>>> relaxed(double seconds, int32_t iterations = -1);

  struct Solved {
    std::optional<Saved> saved;  // the best found
    bool proved = false;         // that it is the best there is; or, without one, that none exists
    int64_t bound_ns = 0;        // no solution runs ops again for less
    int64_t nodes = 0;
  };
  // From the solution `start`, if it is one here too.
  Solved solved(double seconds, int64_t nodes, const std::optional<Staged>& start);

  size_t columns() const { return program_.columns(); }

 private:
  static constexpr int32_t kOne = -2;  // the constants that a variable may be, in place of a column
  static constexpr int32_t kZero = -1;

  void add_stage_columns(int32_t t);
  void add_stage_rows(int32_t t);
  void add_memory(int32_t t);
  bounding::LinearProgram::Term add_free(int32_t t, int32_t v, int32_t k);
  int32_t run(int32_t t, int32_t i) const;
  int32_t save(int32_t t, int32_t v) const;
  // sum of terms <= limit, where columns may be constants.
  void at_most(double limit, const std::vector<bounding::LinearProgram::Term>& terms);

  const Stages& stages_;
  const int64_t capacity_;
  const bool free_;
  double per_ns_ = 1, per_byte_ = 1;
  bounding::LinearProgram program_;
  std::map<std::pair<int32_t, int32_t>, int32_t> runs_, saves_;  // (stage, op or value) -> column
};

}  // namespace outsize::planning
