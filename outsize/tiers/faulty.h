// A tier that misbehaves on demand: fails, delays or silently damages chosen calls of the memory it
// wraps, so that tests can see what the layers above make of it.
//
//   FaultyMemory faulty(inner, {.fail_call = 3});     // reads and writes count together, from 0
//   faulty.read(...)                                   // the fourth call: Error{kDevice}
//
// Ownership: `inner` must outlive it. Threads: as TierMemory; the count is shared by all.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "outsize/base/result.h"
#include "outsize/tiers/memory.h"

namespace outsize {

struct Faults {
  int64_t fail_call = -1;    // this call fails, having moved nothing
  int64_t short_call = -1;   // this call fails, having moved the first half
  int64_t damage_call = -1;  // this call succeeds with one bit of its middle byte flipped
  int64_t delay_ns = 0;      // every call takes at least this long
};

class FaultyMemory : public TierMemory {
 public:
  FaultyMemory(TierMemory& inner, const Faults& faults) : inner_(inner), faults_(faults) {}
  const std::string& name() const override { return inner_.name(); }
  int64_t bytes() const override { return inner_.bytes(); }
  Status read(int64_t address, void* destination, int64_t bytes) override;
  Status write(int64_t address, const void* source, int64_t bytes) override;
  std::byte* base() override { return inner_.base(); }
  int64_t calls() const { return calls_.load(); }

 private:
  TierMemory& inner_;
  const Faults faults_;
  std::atomic<int64_t> calls_{0};
};

}  // namespace outsize
