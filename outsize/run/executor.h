// The executor: carries out a checked plan over a Device. It makes no decisions: instructions of a
// stream run in order, each after its waits. One thread per copy stream that the plan uses; the
// compute stream runs on the caller's thread, so ops see the caller's thread-local settings.
//
//   auto executor = Executor::create(graph, profile, plan, device, {});
//   Result<StepReport> report = (*executor)->step();
//
// The first error wins: it stops every stream at its next instruction, waits for what is running,
// and comes back from `step` with the instruction's name. Nothing is retried and nothing falls
// back. Whatever a Device throws becomes an error of the step. Ownership: graph, profile, plan and
// device must outlive the executor. One owner thread: `step` may be called by any one thread at a
// time, and that thread runs the compute stream.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "outsize/base/result.h"
#include "outsize/graph/graph.h"
#include "outsize/plan/plan.h"
#include "outsize/profile/profile.h"
#include "outsize/run/device.h"

namespace outsize {

struct ExecutorOptions {
  // Keep vector clocks per byte range of every tier and fail on any access that is not ordered
  // after the ones it conflicts with; with random delays before instructions so that orders vary.
  // Slow.
  bool clock_mode = false;
  uint64_t seed = 1;             // of the delays
  int64_t longest_delay_ns = 0;  // clock mode: each instruction is delayed by up to this much
  bool record_times = true;      // begin and end of every instruction, for reports and refinement
};

struct InstructionTimes {
  int64_t begin_ns = 0;  // since the step began
  int64_t end_ns = 0;
};

// What a step did, counted as each copy and op ended, not from the plan.
struct StepReport {
  int64_t step_ns = 0;
  int64_t moved_out = 0, moved_in = 0, moved_write = 0, moved_read = 0;
  std::map<Role, int64_t> swapped;      // bytes copied, by their storage's role
  std::vector<OpId> rerun_ops;          // in the order they were run again
  std::vector<InstructionTimes> times;  // per instruction; empty if not recorded
};

// Where a failed step stopped.
struct Failure {
  InstructionId instruction;  // none: begin_step or end_step failed
  // Persistent storages with entry content that instructions already begun have changed (by Run, on
  // any tier; the failed one counts, as it may have got half-way), so that the state is a mix of
  // two steps. If this and `displaced` are empty, restoring the generators undoes the step.
  std::vector<StorageId> changed;
  // Persistent storages whose home other bytes were written over since entry, so that their content
  // may be elsewhere (or nowhere, if it was changed too). Ascending, as `changed`.
  std::vector<StorageId> displaced;
};

class Executor {
 public:
  // Asked on the compute stream's thread before each of its instructions and, while it waits for
  // copies, several times a second. An error stops the step there, as if the instruction had failed
  // before it began.
  using Between = std::function<Status()>;

  // Fails if the plan does not pass the checker for this graph and profile.
  static Result<std::unique_ptr<Executor>> create(const Graph& graph, const Profile& profile,
                                                  const Plan& plan, Device& device,
                                                  int64_t alignment,
                                                  const ExecutorOptions& options);
  virtual ~Executor() = default;
  virtual Result<StepReport> step(const Between& between = {}) = 0;
  // After a failed step: what was done. Requires: the last step() failed.
  virtual const Failure& failure() const = 0;
  // The same for a step that has run to its end, if the caller then has to give it up.
  virtual Failure failure_at_end() const = 0;
};

}  // namespace outsize
