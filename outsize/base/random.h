// Our own random generator (splitmix64), so that a seed means the same numbers on every machine.
#pragma once

#include <cstdint>

namespace outsize {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }
  // Uniform in [0, n). Requires: n > 0. The bias, below n / 2^64, is of no account here.
  int64_t below(int64_t n) { return static_cast<int64_t>(next() % static_cast<uint64_t>(n)); }
  // Uniform in [low, high). Requires: low < high.
  int64_t between(int64_t low, int64_t high) { return low + below(high - low); }
  // Uniform in [0, 1).
  double uniform() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }
  bool chance(double p) { return uniform() < p; }

 private:
  uint64_t state_;
};

}  // namespace outsize
