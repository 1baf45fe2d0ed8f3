// Slows the copies between device and host to the speed of a slower link, so that a plan for a card
// behind PCIe runs here as it would there.
//
//   out 2 bytes/ns, in 2, both 3: 8 bytes out from 0 ns, 6 bytes in from 2 ns
//
//   ns    0     2          4 2/3    5 2/3
//   out   |2/ns |1.5/ns ---|
//   in          |1.5/ns ---|2/ns ---|
//
//   ThrottledDevice device(cpu, {machine.out, machine.in, machine.both_bytes_per_s});
//   Executor over it: a copy takes the link's latency and its bytes' time, and no less
//
// The bytes are moved at once and the rest of the time is waited for, the thread asleep. Copies
// to and from the disk and within a tier pass as they are. Copies share the links as
// simulate.h has it. Ownership: `inner` must outlive it. Threads: as Device.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

#include "outsize/profile/machine.h"
#include "outsize/run/device.h"

namespace outsize {

struct LinkLimits {
  Link out, in;
  int64_t both_bytes_per_s = 0;  // 0: they don't share
};

// How far copies are that share the links, by the clock that its caller tells; ns, never backwards.
class SharedLinks {
 public:
  explicit SharedLinks(const LinkLimits& limits) : limits_(limits) {}

  // A copy's bytes begin to move. Returns its name.
  int64_t begin(double now, bool out, int64_t bytes);
  // When the copy's bytes have moved, if no other begins before.
  double end_of(double now, int64_t copy);
  // The copy is over, or given up.
  void forget(int64_t copy) { moving_.erase(copy); }

 private:
  struct Moving {
    bool out = false;
    double left = 0;  // bytes
  };
  void advance(double now);
  double rate(bool out) const;  // bytes/ns of each copy in that direction
  // The ns until the first of those that still move is done; none: nothing moves.
  std::optional<double> until_next_end() const;
  void move_for(double ns);

  const LinkLimits limits_;
  std::map<int64_t, Moving> moving_;
  int64_t next_ = 0;
  double now_ = 0;
};

class ThrottledDevice : public Device {
 public:
  ThrottledDevice(Device& inner, const LinkLimits& limits)
      : inner_(inner), limits_(limits), links_(limits) {}

  Status begin_step() override { return inner_.begin_step(); }
  Status run_op(const RunCall& call) override { return inner_.run_op(call); }
  Status copy(const CopyCall& call) override;
  Status save_generator(OpId op) override { return inner_.save_generator(op); }
  Status rewind_generator(OpId op) override { return inner_.rewind_generator(op); }
  Status resume_generator() override { return inner_.resume_generator(); }
  Status end_step() override { return inner_.end_step(); }

 private:
  using Clock = std::chrono::steady_clock;
  class Crossing;
  double now() const;  // ns since the device was made
  Clock::time_point at(double ns) const {
    return origin_ + std::chrono::duration_cast<Clock::duration>(
                         std::chrono::duration<double, std::nano>(ns));
  }

  Device& inner_;
  const LinkLimits limits_;
  const Clock::time_point origin_ = Clock::now();
  std::mutex mutex_;
  std::condition_variable changed_;  // a copy began or ended, so others' ends are other ones
  SharedLinks links_;                // guarded by mutex_
};

}  // namespace outsize
