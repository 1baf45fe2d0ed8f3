// A Device that misbehaves on demand: the k-th call of a step fails, before it has done anything or
// when it has done all of it, by an error or by an exception. For tests of what is above.
//
//   FaultyDevice faulty(inner);  faulty.fail({.call = 3, .late = true});   // calls count from 0
//   executor->step();            faulty.calls()                            // made in this step
//
// Every call counts: begin_step, ops, copies, generators, end_step. Which call is the k-th depends
// on timing where streams run at once. Ownership: `inner` must outlive it. Threads: as Device.
#pragma once

#include <atomic>
#include <cstdint>
#include <stdexcept>

#include "outsize/run/device.h"

namespace outsize {

struct DeviceFault {
  int64_t call = -1;    // none
  bool late = false;    // after the call's work was done
  bool throws = false;  // an exception instead of an error
};

class FaultyDevice : public Device {
 public:
  explicit FaultyDevice(Device& inner) : inner_(inner) {}
  void fail(const DeviceFault& fault) { fault_ = fault; }
  int64_t calls() const { return calls_.load(); }
  // One more call of the step, of work that its owner does beside the device.
  template <typename Call>
  Status beside(Call call) {
    return guarded(call);
  }

  Status begin_step() override {
    calls_ = 0;
    return guarded([&] { return inner_.begin_step(); });
  }
  Status run_op(const RunCall& call) override {
    return guarded([&] { return inner_.run_op(call); });
  }
  Status copy(const CopyCall& call) override {
    return guarded([&] { return inner_.copy(call); });
  }
  Status save_generator(OpId op) override {
    return guarded([&] { return inner_.save_generator(op); });
  }
  Status rewind_generator(OpId op) override {
    return guarded([&] { return inner_.rewind_generator(op); });
  }
  Status resume_generator() override {
    return guarded([&] { return inner_.resume_generator(); });
  }
  Status end_step() override {
    return guarded([&] { return inner_.end_step(); });
  }

 private:
  template <typename Call>
  Status guarded(Call call) {
    const int64_t number = calls_++;
    if (number != fault_.call) return call();
    if (fault_.late)
      if (Status done = call(); !done.ok()) return done;
    if (fault_.throws) throw std::runtime_error("injected exception");
    return device_error("injected failure of call {}", number);
  }

  Device& inner_;
  DeviceFault fault_;
  std::atomic<int64_t> calls_{0};
};

}  // namespace outsize
