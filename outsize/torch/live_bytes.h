// How many bytes of each tier hold something that is still wanted, as the step really runs: a residency
// counts from the moment its first instruction begins to the moment its last one has ended (entry and
// exit ones from the step's beginning, to its end), a workspace while its op runs.
//
//   A [0,100) made by #0, copied out by #1: live 100 from #0's begin to the end of #0 and #1.
//
// Thread-safe between begin_step and end_step.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <vector>

#include "outsize/plan/plan.h"

namespace outsize {

class LiveBytes {
 public:
  // Copies what it needs of the plan.
  explicit LiveBytes(const Plan& plan);

  void begin_step();
  void begin(InstructionId id);
  void end(InstructionId id);
  // The most bytes live at once since begin_step.
  int64_t peak(Tier tier) const;

 private:
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
  std::vector<Stay> stays_;
  std::vector<Touch> touches_;  // per instruction

  mutable std::mutex mutex_;  // guards all below
  std::vector<int32_t> left_;  // per residency: touches to come
  std::vector<bool> here_;
  std::array<int64_t, kTiers> live_{}, peak_{};
};

}  // namespace outsize
