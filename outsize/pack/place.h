// The machinery below pack: who overlaps whom in time, and the lowest place a buffer can take among
// those already placed.
//
//   placed q at [4, 8), b of 4 bytes overlaps q in time: b's offset may not lie in the open
//   interval (4 - 4, 8) = (0, 8), so 0 fits and so does 8.
//
// Internal to outsize/pack. An Instance borrows the buffers, which must outlive it. Not
// thread-safe.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "outsize/pack/pack.h"

namespace outsize::packing {

inline constexpr int64_t kUnplaced = std::numeric_limits<int64_t>::min();
inline constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

inline int64_t align_up(int64_t x, int64_t alignment) {
  if (alignment == 1) return x;
  const int64_t rest = x % alignment;
  return rest == 0 ? x : x + alignment - rest;
}

// A stretch of life during which a buffer holds `window` of its bytes.
struct Piece {
  Interval life;
  Interval window;
};

class Instance {
 public:
  explicit Instance(const std::vector<Buffer>& buffers);

  size_t size() const { return buffers_.size(); }
  const Buffer& buffer(size_t b) const { return buffers_[b]; }
  const std::vector<Piece>& pieces(size_t b) const { return pieces_[b]; }
  bool free(size_t b) const { return !buffers_[b].offset.has_value(); }
  // Nothing to place: never live or of no bytes.
  bool empty(size_t b) const { return pieces_[b].empty(); }
  // Calls f(q) for every other buffer that is live at some moment when b is.
  template <typename F>
  void for_neighbours(size_t b, F&& f) const {
    if (listed_) {
      for (int64_t i = first_[b]; i < first_[b + 1]; ++i) f(neighbours_[static_cast<size_t>(i)]);
      return;
    }
    if (empty(b)) return;
    // Those born later while b lives, and those that live when it is born.
    for (size_t i = position_[b] + 1; i < by_birth_.size(); ++i) {
      const uint32_t q = by_birth_[i];
      if (births_[i] >= buffers_[b].life.end) break;
      if (!gaps_ || overlap(b, q)) f(q);
    }
    for (size_t node = leaves_ + position_[b]; node > 0; node /= 2)
      for (uint32_t q : stabbed_[node])
        if (!gaps_ || overlap(b, q)) f(q);
  }
  bool listed() const { return listed_; }
  // Whether any buffer has gaps.
  bool gaps() const { return gaps_; }
  bool overlap(size_t a, size_t b) const;
  int64_t most_live() const { return most_live_; }
  // Per buffer, the most bytes live at any moment of its life.
  const std::vector<int64_t>& contention() const { return contention_; }

 private:
  void list_neighbours();
  void build_stabs();
  void measure_load();

  const std::vector<Buffer>& buffers_;
  std::vector<std::vector<Piece>> pieces_;
  bool listed_ = false;
  bool gaps_ = false;
  std::vector<int64_t> first_;  // neighbours of b: neighbours_[first_[b], first_[b + 1])
  std::vector<uint32_t> neighbours_;
  // Where neighbours are too many to list, they are found by birth: those born after a buffer stand
  // behind it, and those that live when it is born, and were born before it, are in the nodes above
  // its leaf of a segment tree over by_birth_.
  std::vector<uint32_t> by_birth_;  // buffers that are not empty
  std::vector<int64_t> births_;     // in the same order
  std::vector<size_t> position_;    // in by_birth_
  size_t leaves_ = 1;
  std::vector<std::vector<uint32_t>> stabbed_;
  int64_t most_live_ = 0;
  std::vector<int64_t> contention_;
};

enum class Fit { kFirst, kBest };

// Offsets under construction.
class Placer {
 public:
  explicit Placer(const Instance& instance);

  // Back to the fixed buffers alone.
  void reset();
  // The offset that b would take; does not place it.
  int64_t find(size_t b, Fit fit);
  void put(size_t b, int64_t offset);
  // Whether b at `offset` shares no byte with those placed.
  bool fits(size_t b, int64_t offset);
  // From now on place_all gives up when this is reached; null: never.
  void stop_at(const Deadline* deadline) { deadline_ = deadline; }
  // Now and then true where the deadline is reached.
  bool stopped() const { return deadline_ != nullptr && work_ % 64 == 0 && deadline_->reached(); }
  // Places `order` (free, non-empty buffers) one by one; stops and returns false as soon as one
  // ends above `limit`, or at the deadline.
  bool place_all(const std::vector<uint32_t>& order, Fit fit, int64_t limit);

  const std::vector<int64_t>& offsets() const { return offsets_; }
  int64_t height() const { return height_; }
  int64_t work() const { return work_; }

 private:
  // Offsets in the open interval (low, high) are taken.
  struct Taken {
    int64_t low, high;
  };
  void take(size_t b, size_t q);
  // Fills taken_ with what those placed take of b's offsets.
  void take_all(size_t b);

  const Instance& instance_;
  std::vector<int64_t> offsets_;
  std::vector<int64_t> sizes_;
  std::vector<Taken> taken_;  // scratch of find
  int64_t height_ = 0;
  int64_t work_ = 0;
  const Deadline* deadline_ = nullptr;
};

}  // namespace outsize::packing
