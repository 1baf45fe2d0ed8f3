#include "outsize/pack/validate.h"

#include <fmt/format.h>

#include <algorithm>

namespace outsize {
namespace {

// The bytes that a buffer at `offset` holds at `time`; empty where it is not live.
Interval held(const Buffer& buffer, int64_t offset, int64_t time) {
  if (!buffer.life.contains(time) || buffer.size == 0) return {};
  for (const Gap& gap : buffer.gaps) {
    if (!gap.life.contains(time)) continue;
    if (!gap.window || gap.window->empty()) return {};
    return {offset + gap.window->begin, offset + gap.window->end};
  }
  return {offset, offset + buffer.size};
}

// What a buffer holds changes only at these moments.
void add_moments(const Buffer& buffer, std::vector<int64_t>& moments) {
  moments.push_back(buffer.life.begin);
  for (const Gap& gap : buffer.gaps) {
    moments.push_back(gap.life.begin);
    moments.push_back(gap.life.end);
  }
}

PackingCheck fault_of(PackingFault fault, size_t first, std::string message) {
  PackingCheck check;
  check.fault = fault;
  check.first = first;
  check.message = std::move(message);
  return check;
}

PackingCheck check_alone(const Buffer& buffer, size_t b, int64_t offset, int64_t capacity) {
  if (offset < 0)
    return fault_of(
        PackingFault::kNegative, b,
        fmt::format("buffer {} (position {}) lies at {}, below 0", buffer.id, b, offset));
  if (buffer.offset && *buffer.offset != offset)
    return fault_of(PackingFault::kMoved, b,
                    fmt::format("buffer {} (position {}) must lie at {} but lies at {}", buffer.id,
                                b, *buffer.offset, offset));
  if (!buffer.offset && offset % buffer.alignment != 0)
    return fault_of(PackingFault::kAlignment, b,
                    fmt::format("buffer {} (position {}) lies at {}, not a multiple of {}",
                                buffer.id, b, offset, buffer.alignment));
  if (capacity > 0 && !buffer.life.empty() && buffer.size > 0 && offset + buffer.size > capacity)
    return fault_of(
        PackingFault::kCapacity, b,
        fmt::format("buffer {} (position {}) ends at {}, {} above the capacity {}", buffer.id, b,
                    offset + buffer.size, offset + buffer.size - capacity, capacity));
  return {};
}

PackingCheck check_pair(const std::vector<Buffer>& buffers, const std::vector<int64_t>& offsets,
                        size_t a, size_t b) {
  const Buffer& one = buffers[a];
  const Buffer& two = buffers[b];
  if (std::max(one.life.begin, two.life.begin) >= std::min(one.life.end, two.life.end)) return {};
  if (offsets[a] + one.size <= offsets[b] || offsets[b] + two.size <= offsets[a]) return {};
  std::vector<int64_t> moments;
  add_moments(one, moments);
  add_moments(two, moments);
  std::sort(moments.begin(), moments.end());
  for (int64_t time : moments) {
    const Interval x = held(one, offsets[a], time), y = held(two, offsets[b], time);
    const Interval both{std::max(x.begin, y.begin), std::min(x.end, y.end)};
    if (both.begin >= both.end) continue;
    PackingCheck check = fault_of(
        PackingFault::kOverlap, a,
        fmt::format("buffers {} and {} (positions {} and {}) share bytes [{}, {}) at time {}",
                    one.id, two.id, a, b, both.begin, both.end, time));
    check.second = b;
    check.time = time;
    check.bytes = both;
    return check;
  }
  return {};
}

}  // namespace

PackingCheck validate_packing(const std::vector<Buffer>& buffers,
                              const std::vector<int64_t>& offsets, int64_t capacity,
                              int64_t height) {
  if (offsets.size() != buffers.size())
    return fault_of(PackingFault::kCount, 0,
                    fmt::format("{} offsets for {} buffers", offsets.size(), buffers.size()));
  int64_t top = 0;
  for (size_t b = 0; b < buffers.size(); ++b) {
    PackingCheck check = check_alone(buffers[b], b, offsets[b], capacity);
    if (!check.ok()) return check;
    if (buffers[b].size > 0 && !buffers[b].life.empty())
      top = std::max(top, offsets[b] + buffers[b].size);
  }
  for (size_t a = 0; a < buffers.size(); ++a)
    for (size_t b = a + 1; b < buffers.size(); ++b) {
      PackingCheck check = check_pair(buffers, offsets, a, b);
      if (!check.ok()) return check;
    }
  if (height >= 0 && height != top)
    return fault_of(PackingFault::kHeight, 0,
                    fmt::format("the height is said to be {} but is {}", height, top));
  return {};
}

}  // namespace outsize
