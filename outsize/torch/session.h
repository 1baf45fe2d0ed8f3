// A session: memory of a stated size and the plans that run in it, one step per call.
//
//   auto session = Session::create({.device = 6 << 30, .host = 32 << 30}, "");
//   Result<int64_t> handle = (*session)->load(graph, profile, plan, {});
//   (*session)->homes().adopt(parameter, Tier::kDevice, 0);            // where the plan's entry
//   has it Result<StepResult> r = (*session)->step(*handle, {{StorageId{2}, batch}}, {{"lr",
//   0.1}});
//
// Several plans share the memory: where one's exit leaves a home, the next one's entry must find
// it; the caller points the user's tensors there. A step never writes over a home that is not in
// its plan: it is refused before anything runs. A failed step is undone if its plan was loaded with
// `rollback` (homes are kept in a shadow before they are written over) or if nothing large was
// changed (small state and generators are kept at entry); otherwise the session is poisoned: it
// names what is mixed and refuses steps until `mark_restored`. Homes are the truth: what the user
// wrote there between steps counts, and copies that a plan carries elsewhere are made anew from
// them at entry. One step at a time, from any thread; that thread runs the ops.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "outsize/base/result.h"
#include "outsize/graph/graph.h"
#include "outsize/plan/plan.h"
#include "outsize/profile/profile.h"
#include "outsize/run/executor.h"
#include "outsize/run/faulty_device.h"
#include "outsize/run/throttle.h"
#include "outsize/run/undo.h"
#include "outsize/tiers/growing.h"
#include "outsize/torch/cpu_device.h"
#include "outsize/torch/homes.h"

namespace outsize {

struct LoadOptions {
  int64_t alignment = 64;  // of device addresses, for the checker
  // Where a step's shadow lies: host or disk; none: a step that changed something large can't be
  // undone. The plans of a session share one; what the largest needs counts within the tier.
  std::optional<Tier> rollback;
  std::optional<LinkLimits>
      links;            // copies go no faster than over these; none: as fast as they can
  bool faulty = false;  // tests: `set_fault` can make the plan's steps fail
  ExecutorOptions executor;
};

struct StepResult {
  std::map<StorageId, at::Tensor> outputs;  // uint8, in ordinary memory, the whole storage's bytes
  ScalarTable scalars;
  StepReport report;
  int64_t live_peak[kTiers] = {0, 0, 0};                 // LiveBytes, as the next
  std::vector<std::pair<int64_t, int64_t>> live_levels;  // only with executor.record_times
  // One past the highest byte of the arena that was served to an op, copied, or lay in a home or an
  // input as the step began.
  int64_t arena_highest = 0;
  int64_t requests = 0;  // served to ops out of the arena
  int64_t copy_in_ns = 0, copy_out_ns = 0;
};

// What went wrong in a step, and what that means for the state.
struct StepFailure {
  Error error;
  InstructionId instruction;
  bool undone = false;             // the state is what it was before the step
  std::vector<std::string> mixed;  // persistent storages that are not, by name
};

class Session {
 public:
  static Result<std::unique_ptr<Session>> create(const Budgets& sizes, const std::string& disk_dir);
  ~Session();

  // Checks and prepares; fails without leaving anything behind. Handles are never used again.
  Result<int64_t> load(Graph graph, Profile profile, Plan plan, const LoadOptions& options);
  Status unload(int64_t handle);

  Homes& homes() { return *homes_; }

  // `inputs`: one tensor per non-persistent entry storage, holding exactly its bytes; they are
  // copied before anything runs. Errors of the call itself (kBadInput: inputs, scalars, thread
  // count, homes) leave everything as it was; after them `last_failure` says what a failed step
  // left behind.
  Result<StepResult> step(int64_t handle, const std::map<StorageId, at::Tensor>& inputs,
                          const std::map<std::string, Number>& scalars,
                          const Executor::Between& between = {});
  const StepFailure& last_failure() const { return failure_; }
  bool poisoned() const { return !failure_.mixed.empty(); }
  // The caller has put back every storage that was mixed.
  void mark_restored() { failure_ = {}; }

  // Debug: before each step, all device bytes that the plan's entry and homes do not hold become
  // NaN.
  void set_poison(bool on) { poison_ = on; }

  // Tests: the next steps of a plan loaded as `faulty` fail there. `device_calls`: made by its last
  // step, the copying of outputs included.
  Status set_fault(int64_t handle, const DeviceFault& fault);
  Result<int64_t> device_calls(int64_t handle) const;

  // Index of the first guard that these inputs fail, or -1. Nothing runs.
  Result<int64_t> failed_guard(int64_t handle, const std::map<std::string, Number>& scalars) const;

  struct Loaded;

 private:
  Session(std::shared_ptr<Homes> homes, std::string disk_dir);
  struct Kept;
  Status check_call(const Loaded& loaded, const std::map<StorageId, at::Tensor>& inputs) const;
  Status check_homes(const Loaded& loaded) const;
  Status copy_inputs(const Loaded& loaded, const std::map<StorageId, at::Tensor>& inputs) const;
  Status refresh_carried(const Loaded& loaded) const;
  // Before anything runs, so that a step that has run can always hand over what it made.
  Status allocate_outputs(const Loaded& loaded, std::map<StorageId, at::Tensor>& outputs) const;
  Status copy_outputs(const Loaded& loaded, std::map<StorageId, at::Tensor>& outputs) const;
  int64_t highest_at_entry(const Loaded& loaded) const;
  void poison_free_bytes(const Loaded& loaded) const;
  Result<Kept> keep(const Loaded& loaded) const;
  // Undoes what can be undone and notes the rest.
  Error fail(Loaded& loaded, const Error& error, const Kept& kept, const Failure& done);
  Status make_resident(const PlanStatistics& statistics, Tier shadow_tier, int64_t shadow_bytes);
  Result<FaultyDevice*> faulty_of(int64_t handle) const;

  std::shared_ptr<Homes> homes_;
  const std::string disk_dir_;
  // The shadows of plans with rollback; null before the first such plan is loaded.
  std::unique_ptr<GrowingMemory> shadows_[kTiers];
  int64_t resident_[kTiers] = {0, 0, 0};  // of the tiers, as far as loaded plans have used them
  std::map<int64_t, std::unique_ptr<Loaded>> loaded_;
  int64_t next_handle_ = 0;
  StepFailure failure_;
  bool poison_ = false;
  std::mutex stepping_;
};

}  // namespace outsize
