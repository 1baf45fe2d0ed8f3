// Work on many threads whose answer doesn't depend on how many there are.
//
//   for_each_index(4, 0, n, [&](size_t worker, size_t i) { out[i] = f(scratch[worker], i); });
#pragma once

#include <atomic>
#include <cstddef>
#include <exception>
#include <functional>
#include <thread>
#include <vector>

namespace outsize {

// Calls `work` once for each index in [begin, end), in no fixed order; `worker` is below `threads`
// and no two calls with the same one overlap. Returns when all are done; rethrows what the first
// worker to have failed threw. Requires: threads >= 1; `work` is safe for different indices.
inline void for_each_index(size_t threads, size_t begin, size_t end,
                           const std::function<void(size_t worker, size_t index)>& work) {
  std::atomic<size_t> next{begin};
  std::vector<std::exception_ptr> failures(threads);
  const auto run = [&](size_t worker) {
    try {
      for (size_t i = next++; i < end; i = next++) work(worker, i);
    } catch (...) {
      failures[worker] = std::current_exception();
    }
  };
  std::vector<std::thread> others;
  for (size_t w = 1; w < threads; ++w) others.emplace_back(run, w);
  run(0);
  for (std::thread& other : others) other.join();
  for (const std::exception_ptr& failure : failures)
    if (failure) std::rethrow_exception(failure);
}

}  // namespace outsize
