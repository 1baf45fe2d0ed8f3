// How streams wait for one another: each counts what it has completed, and others wait until that
// count is reached or the step is stopped.
//
//   counts.of(Stream::kOut).advance();                  // by the out stream's thread
//   counts.wait({Stream::kOut, 3});                     // by another: true once out has ended
//   three counts.stop();                                      // all waits return false from now on
//
// A wait spins for about a microsecond and then blocks, so that a waiting stream leaves its core to
// the ops. Threads: `advance` by the stream's own thread, `wait` and `stop` by any; `reset` by one
// thread while no other is inside.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>

#include "outsize/plan/plan.h"
#include "outsize/run/program.h"

namespace outsize {

class StreamCounts {
 public:
  void reset() {
    for (Count& count : counts_) count.completed.store(0);
    stopped_.store(false);
  }
  bool stopped() const { return stopped_.load(std::memory_order_acquire); }
  int64_t completed(Stream stream) const { return at(stream).completed.load(); }

  void advance(Stream stream) {
    Count& count = at(stream);
    // Either this load sees the waiter or the waiter's load sees the new count: both are in the one
    // order of sequentially consistent operations.
    count.completed.store(count.completed.load(std::memory_order_relaxed) + 1);
    if (count.waiters.load() > 0) wake(count);
  }

  // False if the step was stopped first.
  bool wait(const WaitFor& wait) {
    return *wait_with(wait, [](auto& changed, auto& lock, const auto& over) {
      changed.wait(lock, over);
      return true;
    });
  }

  // As `wait`; nullopt if neither has happened after `longest`.
  std::optional<bool> wait_for(const WaitFor& wait, std::chrono::milliseconds longest) {
    return wait_with(wait, [&](auto& changed, auto& lock, const auto& over) {
      return changed.wait_for(lock, longest, over);
    });
  }

  void stop() {
    stopped_.store(true);
    for (Count& count : counts_) wake(count);
  }

 private:
  static constexpr int kSpins = 50;
  static void relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }

  struct alignas(64) Count {
    std::atomic<int64_t> completed{0};
    std::atomic<int32_t> waiters{0};
    std::mutex mutex;  // guards no data: it closes the gap between a waiter's look and its sleep
    std::condition_variable changed;
  };
  // `block(changed, lock, over)` returns whether `over()` has come true.
  template <typename Block>
  std::optional<bool> wait_with(const WaitFor& wait, const Block& block) {
    Count& count = at(wait.stream);
    for (int spins = 0; spins < kSpins; ++spins) {
      if (count.completed.load(std::memory_order_acquire) >= wait.count) return !stopped();
      if (stopped()) return false;
      relax();
    }
    std::unique_lock lock(count.mutex);
    ++count.waiters;
    const bool over = block(count.changed, lock, [&] {
      return count.completed.load() >= wait.count || stopped_.load();
    });
    --count.waiters;
    if (!over) return std::nullopt;
    return !stopped();
  }

  Count& at(Stream stream) { return counts_[static_cast<size_t>(stream)]; }
  const Count& at(Stream stream) const { return counts_[static_cast<size_t>(stream)]; }
  static void wake(Count& count) {
    {
      const std::lock_guard lock(count.mutex);
    }
    count.changed.notify_all();
  }

  std::array<Count, kStreams> counts_;
  std::atomic<bool> stopped_{false};
};

}  // namespace outsize
