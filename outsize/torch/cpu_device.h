// The CPU as a Device: ops through PyTorch's dispatcher on operands in the device arena, copies
// between arenas and disk, PyTorch's own generator. One per loaded plan; several share the tiers.
//
//   auto device = CpuDevice::create(graph, profile, plan, {&arena, &host, nullptr}, false);
//   (*device)->set_scalars(table);            // before each step
//   Executor over it; after the step: (*device)->scalars(), (*device)->live_peak(Tier::kDevice)
//
// Every op is bound when the device is made: its schema found, its tensors made on the plan's
// addresses, its requests paired with where they will lie. What is left for the step is to copy a
// stack and call. Ownership: graph, plan and tiers must outlive it. Threads: as Device says.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "outsize/profile/profile.h"
#include "outsize/run/device.h"
#include "outsize/tiers/memory.h"
#include "outsize/torch/allocator.h"
#include "outsize/torch/generator.h"
#include "outsize/torch/live_bytes.h"
#include "outsize/torch/op_call.h"
#include "outsize/torch/scalars.h"

namespace outsize {

struct CpuTiers {
  TierMemory* device = nullptr;  // not null; its base() is not null
  TierMemory* host = nullptr;    // null if there is none, as the next
  TierMemory* disk = nullptr;
  TierMemory* of(Tier tier) const {
    return tier == Tier::kDevice ? device : tier == Tier::kHost ? host : disk;
  }
};

class CpuDevice : public Device {
 public:
  // kBadInput where an op can't be called as the graph has it, a profile lacks an op's requests, or
  // the plan lies outside the tiers.
  static Result<std::unique_ptr<CpuDevice>> create(const Graph& graph, const Profile& profile,
                                                   const Plan& plan, const CpuTiers& tiers,
                                                   bool record_levels);

  void set_scalars(ScalarTable scalars) { scalars_ = std::move(scalars); }
  const ScalarTable& scalars() const { return scalars_; }
  // One past the highest device byte that a copy of this step wrote or read.
  int64_t highest_copied() const { return highest_copied_.load(); }
  int64_t live_peak(Tier tier) const { return live_.peak(tier); }
  std::vector<std::pair<int64_t, int64_t>> live_levels() const { return live_.levels(); }

  Status begin_step() override;
  Status run_op(const RunCall& call) override;
  Status copy(const CopyCall& call) override;
  Status save_generator(OpId op) override { return generators_.save(op); }
  Status rewind_generator(OpId op) override { return generators_.rewind(op); }
  Status resume_generator() override { return generators_.resume(); }
  Status end_step() override;

 private:
  // One Run or Rerun, ready to be called.
  struct Bound {
    BoundOp op;
    std::vector<PlannedRequest> requests;
  };
  CpuDevice(const Graph& graph, const Profile& profile, const Plan& plan, const CpuTiers& tiers,
            bool record_levels);
  Status bind_all(const Plan& plan);
  Result<Bound> bind(const Instruction& instruction, const Plan& plan);
  Status call_op(const RunCall& call, const OpCall& op, Bound& bound);
  Status move(const CopyCall& call);
  void note_highest(int64_t end);

  const Graph* graph_;
  const Profile* profile_;
  CpuTiers tiers_;
  ScalarProgram program_;
  std::vector<std::optional<OpCall>> calls_;   // per op
  std::vector<std::unique_ptr<Bound>> bound_;  // per instruction; null for copies
  std::vector<std::vector<ScalarId>> items_;   // per op: scalars among its results
  std::vector<std::string> descriptions_;      // per op
  LiveBytes live_;
  std::atomic<int64_t> highest_copied_ = 0;
  GeneratorStates generators_;
  ScalarTable scalars_;
};

// memcpy by all of PyTorch's threads; by the calling one alone for less than a MiB a thread.
void copy_with_all_threads(std::byte* to, const std::byte* from, int64_t bytes);

}  // namespace outsize
