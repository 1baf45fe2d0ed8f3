// When a search must stop: after so much work, at a moment, or when asked to.
//
//   Deadline d = Deadline::after_work(10'000);       // same inputs, same work: same answer
//   while (!d.reached()) { d.spend(1); ... }
//
// Work is counted in move evaluations and search nodes. A time limit is looked at only at work
// boundaries, and the work done is reported, so that a run by the clock can be repeated by work.
// One owner thread; `cancel` may be called from a signal handler or any thread.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <limits>

namespace outsize {

class Deadline {
 public:
  Deadline() = default;
  static Deadline after_work(int64_t work) {
    Deadline d;
    d.work_limit_ = work;
    return d;
  }
  static Deadline after_seconds(double seconds) {
    Deadline d;
    d.seconds_limit_ = seconds;
    return d;
  }
  static Deadline of(double seconds, int64_t work, const std::atomic<bool>* cancel = nullptr) {
    Deadline d;
    d.seconds_limit_ = seconds;
    d.work_limit_ = work;
    d.cancel_ = cancel;
    return d;
  }

  void spend(int64_t work) { work_done_ += work; }
  int64_t work_done() const { return work_done_; }
  // For solvers that are told their limits beforehand; not below 0.
  int64_t work_left() const { return std::max<int64_t>(0, work_limit_ - work_done_); }
  double seconds_left() const { return std::max(0.0, seconds_limit_ - seconds()); }
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }
  bool cancelled() const { return cancel_ != nullptr && cancel_->load(std::memory_order_relaxed); }
  bool reached() const {
    return work_done_ >= work_limit_ || cancelled() ||
           (seconds_limit_ < kForever && seconds() >= seconds_limit_);
  }

 private:
  static constexpr double kForever = 1e18;
  int64_t work_limit_ = std::numeric_limits<int64_t>::max();
  double seconds_limit_ = kForever;
  const std::atomic<bool>* cancel_ = nullptr;
  int64_t work_done_ = 0;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace outsize
