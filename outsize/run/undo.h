// Undoes a failed step: a Device in front of another one that keeps what persistent storages held
// at entry before anything is written over it, and puts it back.
//
//   entry: w's home is device [0, 8)
//   an op that mutates w: [0, 8) is copied to the shadow, then the op runs
//   the step fails; undo(): [0, 8) is back
//
//   UndoDevice device(graph, plan, cpu, {&arena, &host, nullptr}, shadow);  // of undo_bytes(...)
//   Executor over it;  if (!step.ok()) device.undo();
//
// Only home bytes that the plan writes over are kept, each once a step, just before its first
// write: the price is one more copy of what is mutated (undo_bytes). After undo() every home is as
// it was at entry; generators and what is not persistent are the caller's. Where the shadow fails,
// the instruction fails before it has written anything, so the step can still be undone. Ownership:
// everything passed in must outlive it. Threads: as Device; undo() when no step runs.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "outsize/run/device.h"
#include "outsize/tiers/memory.h"

namespace outsize {

// Bytes of shadow that a plan's steps need.
int64_t undo_bytes(const Graph& graph, const Plan& plan);

class UndoDevice : public Device {
 public:
  using Tiers = std::array<TierMemory*, kTiers>;  // null where there is none

  // Requires: the shadow has undo_bytes(graph, plan).
  UndoDevice(const Graph& graph, const Plan& plan, Device& inner, const Tiers& tiers,
             TierMemory& shadow);

  // Puts the entry content back. On failure the homes are a mix; may be called again.
  Status undo();
  int64_t kept_bytes() const;  // of the present or last step

  Status begin_step() override;
  Status run_op(const RunCall& call) override;
  Status copy(const CopyCall& call) override;
  Status save_generator(OpId op) override { return inner_.save_generator(op); }
  Status rewind_generator(OpId op) override { return inner_.rewind_generator(op); }
  Status resume_generator() override { return inner_.resume_generator(); }
  Status end_step() override { return inner_.end_step(); }

 private:
  // Home bytes that each instruction writes wholly or not at all.
  struct Piece {
    Tier tier = Tier::kDevice;
    Interval range;
    int64_t shadow_address = 0;
  };
  Status keep(InstructionId instruction);
  Status move(const Piece& piece, bool back);

  Device& inner_;
  const Tiers tiers_;
  TierMemory& shadow_;
  std::vector<Piece> pieces_;
  std::vector<std::vector<size_t>> written_;  // per instruction: indices of pieces
  // By piece. Instructions that write the same piece are ordered, so no lock is needed; a byte
  // each, so that threads don't share one.
  std::vector<uint8_t> kept_;
};

}  // namespace outsize
