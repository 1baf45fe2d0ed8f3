// The floor: the least device bytes for which any plan of whole ops can exist, and the bytes that
// the step takes with no plan at all.
//
//   x (input, 100) ─op0─► A 100, B 1000 ─op1(A)─► y 100      op0 touches 100 + 100 + 1000 = 1200
//   bytes: floor_of(graph, {}).bytes == 1200, .op == op0            no order and no plan runs it in
//   less
//
// Every byte that an op touches lies on the device while the op runs, and so does its workspace;
// that holds in any order, whatever is moved or run again. It does not hold for an op that is
// split: take the floor of the rewritten graph then. Pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "outsize/graph/graph.h"

namespace outsize {

struct Floor {
  int64_t bytes = 0;
  OpId op;  // that sets it; the first such; none if there are no ops
  bool operator==(const Floor&) const = default;
};

// `workspace_bytes[op]` (workspaces_of(profile)), or {} for none.
Floor floor_of(const Graph& graph, const std::vector<int64_t>& workspace_bytes);

// Distinct bytes that the op touches, without its workspace.
int64_t working_set_bytes(const Graph& graph, OpId op);

// Most bytes alive at once when ops run in program order and nothing is moved, as in liveness_of.
int64_t peak_program_order(const Graph& graph, const std::vector<int64_t>& workspace_bytes);

}  // namespace outsize
