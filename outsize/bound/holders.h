// What sets the peak and what sets the floor: the op, and the storages that lie on the device while
// it runs.
//
//   x (input, 100) ─op0─► a 100 ─op1(a, w: parameter, 50)─► b 10 ─op2(a, b)─► y 100
//   peak 260 at op2, while a, y, w and b are there; floor 210 by op2, which touches a, y and b
//   at a budget of 230 the peak is what to look at; at one of 200 no plan helps: the floor is
//
// Pure functions of a graph in program order.
#pragma once

#include <cstdint>
#include <vector>

#include "outsize/bound/floor.h"
#include "outsize/graph/graph.h"

namespace outsize {

struct Holder {
  StorageId storage;
  int64_t bytes = 0;
  OpId made_by;    // none: there before the step
  OpId last_used;  // none: no op touches it
  bool operator==(const Holder&) const = default;
};

// What is alive while `at` runs with nothing moved; with the op's workspace these are
// liveness_of(...).live_bytes[at]. Largest first, then by storage; none of 0 bytes.
std::vector<Holder> alive_while(const Graph& graph, OpId at);
// The bytes of each that the op itself touches; with its workspace what it needs in any plan.
std::vector<Holder> touched_while(const Graph& graph, OpId at);

struct Explanation {
  int64_t peak_bytes = 0;
  OpId peak_op;
  Floor floor;
  bool below_floor = false;  // the budget: then `at` is the floor's op, else the peak's
  OpId at;
  int64_t workspace_bytes = 0;  // of `at`
  std::vector<Holder> holders;  // while `at` runs: touched below the floor, else alive
  bool operator==(const Explanation&) const = default;
};

// `workspace_bytes[op]` (workspaces_of(profile)), or {} for none.
Explanation explain_bytes(const Graph& graph, const std::vector<int64_t>& workspace_bytes,
                          int64_t device_bytes);

}  // namespace outsize
