// The throughput model: how many samples per second a device can train at best, at which batch,
// with how many bytes swapped and how many recomputed. An estimate for choosing a batch and for
// aiming a planner, not a bound: see bounds.h for what no plan can beat.
//
//   unit machine, budget 800; forward 100 ns, backward 200 ns, peak 1000 B: 200 B must go. Copies
//   of 100 B out hide behind the forward pass, and their way back behind the backward pass; the
//   other 100 B are made again for 30 ns: step 330 ns. Swapping all would take 400, recomputing all
//   380.
//
// After ATP (Chen et al., TACO 22(1), 2025), whose equations were not to be had: docs/papers.md
// says what was put together here, and from what. Plain values; pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "outsize/base/result.h"
#include "outsize/graph/graph.h"
#include "outsize/profile/machine.h"
#include "outsize/profile/profile.h"

namespace outsize {

// What making some bytes again in the backward pass takes.
struct Remake {
  StorageId storage;  // none where shapes were measured, not read off a graph
  int64_t bytes = 0;
  double ns = 0;
  double ns_per_byte() const { return bytes > 0 ? ns / static_cast<double>(bytes) : 0; }
  bool operator==(const Remake&) const = default;
};

// One step at one batch size, as the model sees it.
struct StepShape {
  int64_t batch = 0;  // samples
  double forward_ns = 0;
  double backward_ns = 0;       // the optimizer included
  int64_t peak_bytes = 0;       // nothing swapped, nothing recomputed
  int64_t least_bytes = 0;      // all that waits for the backward pass is away
  std::vector<Remake> remakes;  // of what waits for the backward pass; cheapest per byte first
  bool operator==(const StepShape&) const = default;
};

// A storage's stay over the border from forward to backward pass: not touched between the two ops.
struct Stash {
  StorageId storage;
  OpId last_forward;
  OpId first_backward;
};
// Of storages that do not persist, with an op in between; by storage.
std::vector<Stash> stashes_of(const Graph& graph);

// Remaking runs the ops that wrote the storage in the forward pass, and before them those that made
// what they read and nobody keeps; other stashed storages count as there (kept, copied back, or
// made again by then for a use of their own). Storages written by ops that can't run again have
// none.
StepShape shape_of(const Graph& graph, const Profile& profile, int64_t batch);

// Rows "batch,forward_ns,backward_ns,peak_bytes,least_bytes", measured elsewhere, under that
// heading. All that waits is then taken to be remade by running the forward pass again.
Result<std::vector<StepShape>> shapes_from_csv(std::string_view text);

struct ThroughputLimits {
  int64_t device_bytes = 0;
  int64_t host_bytes = 0;  // most that may be swapped
  bool swap = true;
  bool recompute = true;
};

struct ThroughputPoint {
  int64_t batch = 0;
  bool feasible = false;
  int64_t least_budget = 0;  // device bytes with which this batch would be feasible
  double step_ns = 0;
  double samples_per_s = 0;
  int64_t swap_bytes = 0;
  int64_t recompute_bytes = 0;
  double recompute_ns = 0;
  double exposed_ns = 0;  // waiting for copies that nothing hides
  bool operator==(const ThroughputPoint&) const = default;
};

// The fastest split of the bytes that must go into swapped and recomputed. With S bytes to go, x of
// them remade in R(x) ns:
//   step = forward + backward + R(x) + max(0, (S - x) / out - forward)
//                                    + max(0, (S - x) / in - backward - R(x))
// which is linear between the corners of R and the points where a copy just hides; all are tried.
ThroughputPoint best_split(const StepShape& shape, const Machine& machine,
                           const ThroughputLimits& limits);

class ThroughputModel {
 public:
  // Requires of the shapes: one at least, batches above 0 and distinct; else an error says which.
  static Result<ThroughputModel> fit(std::vector<StepShape> shapes, const Machine& machine,
                                     const ThroughputLimits& limits);

  // Between the shapes, each number is interpolated; beyond them the line through the two nearest
  // goes on. What remaking costs is as in the nearest shape, in proportion.
  StepShape shape_at(int64_t batch) const;
  ThroughputPoint at(int64_t batch) const;
  // The highest throughput over all batches up to kReach times the largest shape's (in steps of one
  // part in 256 where they are large); with one shape, at its batch. Of equals the smallest batch.
  // Not feasible where no batch is: then the one that needs least.
  ThroughputPoint best() const;

  static constexpr int64_t kReach = 16;

 private:
  ThroughputModel(std::vector<StepShape> shapes, const Machine& machine,
                  const ThroughputLimits& limits)
      : shapes_(std::move(shapes)), machine_(machine), limits_(limits) {}

  std::vector<StepShape> shapes_;  // by batch
  Machine machine_;
  ThroughputLimits limits_;
};

}  // namespace outsize
