// The lowest packing by trying everything, for the tests of this folder. Up to seven buffers or so.
#pragma once

#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

#include "outsize/pack/validate.h"

namespace outsize {

// The least height over every order of first fit, written plainly: some order places the buffers of
// a lowest packing each no higher than it has them.
inline int64_t lowest_by_brute_force(const std::vector<Buffer>& buffers) {
  std::vector<size_t> order(buffers.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_partition(order.begin(), order.end(), [&](size_t b) { return buffers[b].offset; });
  const auto first_free =
      std::find_if(order.begin(), order.end(), [&](size_t b) { return !buffers[b].offset; });
  int64_t lowest = std::numeric_limits<int64_t>::max();
  std::sort(first_free, order.end());
  do {
    std::vector<Buffer> placed;
    std::vector<int64_t> offsets;
    int64_t height = 0;
    for (size_t b : order) {
      placed.push_back(buffers[b]);
      int64_t at = buffers[b].offset.value_or(0);
      offsets.push_back(at);
      while (!buffers[b].offset && !validate_packing(placed, offsets, 0, -1).ok())
        offsets.back() = ++at;
      height = std::max(height, at + buffers[b].size);
    }
    lowest = std::min(lowest, height);
  } while (std::next_permutation(first_free, order.end()));
  return lowest;
}

}  // namespace outsize
