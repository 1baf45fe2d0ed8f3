// The OpenMP threads that PyTorch's kernels use, reached through the very library that PyTorch has
// loaded: linking another one would give us threads of our own beside them.
//
//   OpenMp::get().run_on_all([](int thread, int threads) { ... });
//
// Where PyTorch was built without OpenMP, everything runs on the calling thread.
#pragma once

#include <functional>

namespace outsize {

class OpenMp {
 public:
  // Looked up once; the object is immutable after.
  static const OpenMp& get();

  // Calls `body(thread, threads)` once on each thread of the calling thread's team and waits for
  // all. `body` must not throw.
  void run_on_all(const std::function<void(int thread, int threads)>& body) const;
  // Whether the calling thread works for another one's parallel region.
  bool is_worker() const { return thread_num_ != nullptr && thread_num_() > 0; }

 private:
  OpenMp();

  void (*parallel_)(void (*)(void*), void*, unsigned, unsigned) = nullptr;
  int (*thread_num_)() = nullptr;
  int (*num_threads_)() = nullptr;
};

}  // namespace outsize
