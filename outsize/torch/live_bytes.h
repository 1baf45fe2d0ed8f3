// How many bytes of each tier hold something that is still wanted, as the step really runs: a
// residency counts from the moment its first instruction begins to the moment its last one has
// ended (entry and exit ones from the step's beginning, to its end), a workspace while its op runs.
//
//   A [0,100) made by #0, copied out by #1: live 100 from #0's begin to the end of #0 and #1.
//
// Thread-safe between begin_step and end_step.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include "outsize/plan/plan.h"

namespace outsize {

class LiveBytes {
 public:
  // Copies what it needs of the plan. With `record_levels` it keeps a line of levels too.
  LiveBytes(const Plan& plan, bool record_levels);

  void begin_step();
  void begin(InstructionId id);
  void end(InstructionId id);
  // The most bytes live at once since begin_step.
  int64_t peak(Tier tier) const;
  // What the device holds from each moment (ns since begin_step) on.
  std::vector<std::pair<int64_t, int64_t>> levels() const;

 private:
  void note_level();
  struct Stay {
    Tier tier;
    int64_t bytes;
    int32_t touches;  // instructions that touch it
    bool entry, exit;
  };
  struct Touch {
    std::vector<int32_t> residencies;  // each once
    int64_t workspace;
  };
  const bool record_levels_;
  std::vector<Stay> stays_;
  std::vector<Touch> touches_;  // per instruction

  mutable std::mutex mutex_;   // guards all below
  std::vector<int32_t> left_;  // per residency: touches to come
  std::vector<bool> here_;
  std::array<int64_t, kTiers> live_{}, peak_{};
  std::chrono::steady_clock::time_point begun_;
  std::vector<std::pair<int64_t, int64_t>> levels_;
};

}  // namespace outsize
