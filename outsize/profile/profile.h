// The profile: what each op of a graph costs on one machine: its time, and the memory it asks for
// while it runs.
//
//   addmm asks for 2 MiB (its output) and 64 KiB (a packing buffer, given back before it returns):
//   requests = {{2 MiB, output 0}, {64 KiB, temporary at offset 0}},  workspace_bytes = 64 KiB
#pragma once

#include <string>
#include <vector>

#include "outsize/base/result.h"
#include "outsize/graph/graph.h"

namespace outsize {

// One allocation made by the calling thread while an op runs, in the order they are made.
struct Request {
  int64_t bytes = 0;
  int32_t output = -1;  // index into the op's `makes`, or -1 for a temporary
  int64_t offset = 0;   // temporaries: where in the op's workspace
  bool operator==(const Request&) const = default;
};

struct OpCost {
  int64_t ns = 0;         // median
  int64_t spread_ns = 0;  // half the distance between the quartiles
  int64_t workspace_bytes =
      0;  // temporaries packed by when they are given back, alignment included
  // Some requests come from worker threads or vary from run to run: temporaries are then served
  // from the workspace by a locked allocator, and only the outputs in `requests` bind.
  bool scratch = false;
  // An elementwise or other in-place op of several small parts may share a request list; empty
  // where the times were not measured here.
  std::vector<Request> requests;
  bool operator==(const OpCost&) const = default;
};

struct Profile {
  std::string how;            // "measured", "roofline", "stated"
  std::string machine;        // name of the machine
  std::string torch_version;  // empty unless measured
  int64_t threads = 0;        // 0: does not depend on it
  int64_t runtime_bytes = 0;  // kernel libraries' own memory beside the allocator, as measured
  std::vector<OpCost> ops;    // one per op of the graph
  bool operator==(const Profile&) const = default;
};

// The first thing wrong with `profile` as a profile of `graph`.
Status check_profile(const Graph& graph, const Profile& profile);
// Per op, for liveness_of.
std::vector<int64_t> workspaces_of(const Profile& profile);
// Sum of the ops' times.
int64_t compute_ns(const Profile& profile);

}  // namespace outsize
