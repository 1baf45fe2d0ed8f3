#include "outsize/pack/place.h"

#include <algorithm>

#include "outsize/base/check.h"

namespace outsize::packing {
namespace {

// Above this many pairs, neighbours are looked up by birth instead of listed (4 bytes a pair).
constexpr size_t kMostListedPairs = 12'000'000;

std::vector<Piece> pieces_of(const Buffer& buffer) {
  std::vector<Piece> pieces;
  if (buffer.size == 0 || buffer.life.empty()) return pieces;
  int64_t at = buffer.life.begin;
  const Interval whole{0, buffer.size};
  for (const Gap& gap : buffer.gaps) {
    OUTSIZE_CHECK(gap.life.begin >= at && gap.life.end <= buffer.life.end,
                  "buffer {}: gap [{}, {}) is out of order or outside its life", buffer.id,
                  gap.life.begin, gap.life.end);
    if (gap.life.empty()) continue;
    if (at < gap.life.begin) pieces.push_back({{at, gap.life.begin}, whole});
    if (gap.window && !gap.window->empty()) pieces.push_back({gap.life, *gap.window});
    at = gap.life.end;
  }
  if (at < buffer.life.end) pieces.push_back({{at, buffer.life.end}, whole});
  return pieces;
}

}  // namespace

Instance::Instance(const std::vector<Buffer>& buffers) : buffers_(buffers) {
  pieces_.reserve(buffers.size());
  for (const Buffer& buffer : buffers) {
    OUTSIZE_CHECK(buffer.size >= 0 && buffer.alignment >= 1, "buffer {}: size {}, alignment {}",
                  buffer.id, buffer.size, buffer.alignment);
    pieces_.push_back(pieces_of(buffer));
    gaps_ = gaps_ || !buffer.gaps.empty();
  }
  list_neighbours();
  measure_load();
}

bool Instance::overlap(size_t a, size_t b) const {
  if (!buffers_[a].life.overlaps(buffers_[b].life)) return false;
  for (const Piece& p : pieces_[a])
    for (const Piece& q : pieces_[b])
      if (p.life.overlaps(q.life)) return true;
  return false;
}

void Instance::list_neighbours() {
  const size_t n = buffers_.size();
  for (uint32_t b = 0; b < n; ++b)
    if (!pieces_[b].empty()) by_birth_.push_back(b);
  std::stable_sort(by_birth_.begin(), by_birth_.end(), [&](uint32_t a, uint32_t b) {
    return buffers_[a].life.begin < buffers_[b].life.begin;
  });
  // Sweep by birth, keeping those that are still alive.
  std::vector<uint32_t> alive;
  std::vector<std::pair<uint32_t, uint32_t>> pairs;
  for (uint32_t b : by_birth_) {
    std::erase_if(alive,
                  [&](uint32_t q) { return buffers_[q].life.end <= buffers_[b].life.begin; });
    for (uint32_t q : alive)
      if ((buffers_[b].gaps.empty() && buffers_[q].gaps.empty()) || overlap(b, q))
        pairs.emplace_back(b, q);
    if (2 * pairs.size() > kMostListedPairs) {
      build_stabs();
      return;
    }
    alive.push_back(b);
  }
  first_.assign(n + 1, 0);
  for (const auto& [a, b] : pairs) {
    ++first_[a + 1];
    ++first_[b + 1];
  }
  for (size_t b = 0; b < n; ++b) first_[b + 1] += first_[b];
  neighbours_.resize(2 * pairs.size());
  std::vector<int64_t> next(first_.begin(), first_.end() - 1);
  for (const auto& [a, b] : pairs) {
    neighbours_[static_cast<size_t>(next[a]++)] = b;
    neighbours_[static_cast<size_t>(next[b]++)] = a;
  }
  listed_ = true;
}

void Instance::build_stabs() {
  while (leaves_ < by_birth_.size()) leaves_ *= 2;
  stabbed_.resize(2 * leaves_);
  position_.assign(buffers_.size(), 0);
  for (uint32_t b : by_birth_) births_.push_back(buffers_[b].life.begin);
  for (size_t i = 0; i < by_birth_.size(); ++i) {
    const uint32_t b = by_birth_[i];
    position_[b] = i;
    const auto dead = std::partition_point(by_birth_.begin(), by_birth_.end(), [&](uint32_t q) {
      return buffers_[q].life.begin < buffers_[b].life.end;
    });
    size_t low = leaves_ + i + 1;
    size_t high = leaves_ + static_cast<size_t>(dead - by_birth_.begin());
    for (; low < high; low /= 2, high /= 2) {
      if (low % 2 == 1) stabbed_[low++].push_back(b);
      if (high % 2 == 1) stabbed_[--high].push_back(b);
    }
  }
}

void Instance::measure_load() {
  struct Change {
    int64_t time, bytes;
  };
  std::vector<Change> changes;
  for (const auto& pieces : pieces_)
    for (const Piece& p : pieces) {
      changes.push_back({p.life.begin, p.window.size()});
      changes.push_back({p.life.end, -p.window.size()});
    }
  std::sort(changes.begin(), changes.end(),
            [](const Change& a, const Change& b) { return a.time < b.time; });
  std::vector<int64_t> times, loads;
  int64_t load = 0;
  for (size_t i = 0; i < changes.size();) {
    const int64_t time = changes[i].time;
    for (; i < changes.size() && changes[i].time == time; ++i) load += changes[i].bytes;
    times.push_back(time);
    loads.push_back(load);
    most_live_ = std::max(most_live_, load);
  }
  // A table of maxima over power-of-two stretches answers each buffer's life at once.
  std::vector<std::vector<int64_t>> maxima{loads};
  for (size_t width = 1; 2 * width <= loads.size(); width *= 2) {
    const auto& half = maxima.back();
    std::vector<int64_t> whole(loads.size() - 2 * width + 1);
    for (size_t i = 0; i < whole.size(); ++i) whole[i] = std::max(half[i], half[i + width]);
    maxima.push_back(std::move(whole));
  }
  contention_.assign(buffers_.size(), 0);
  for (size_t b = 0; b < buffers_.size(); ++b) {
    if (pieces_[b].empty()) continue;
    const auto index = [&](int64_t time) {
      return static_cast<size_t>(std::lower_bound(times.begin(), times.end(), time) -
                                 times.begin());
    };
    const size_t begin = index(pieces_[b].front().life.begin);
    const size_t end = index(pieces_[b].back().life.end);
    size_t level = 0;
    while ((size_t{2} << level) <= end - begin) ++level;
    contention_[b] = std::max(maxima[level][begin], maxima[level][end - (size_t{1} << level)]);
  }
}

Placer::Placer(const Instance& instance) : instance_(instance) {
  for (size_t b = 0; b < instance.size(); ++b) sizes_.push_back(instance.buffer(b).size);
  reset();
}

void Placer::reset() {
  offsets_.assign(instance_.size(), kUnplaced);
  height_ = 0;
  for (size_t b = 0; b < instance_.size(); ++b) {
    const Buffer& buffer = instance_.buffer(b);
    if (buffer.offset) {
      put(b, *buffer.offset);
    } else if (instance_.empty(b)) {
      offsets_[b] = 0;
    }
  }
}

void Placer::take(size_t b, size_t q) {
  const int64_t at = offsets_[q];
  for (const Piece& mine : instance_.pieces(b))
    for (const Piece& other : instance_.pieces(q))
      if (mine.life.overlaps(other.life))
        taken_.push_back(
            {at + other.window.begin - mine.window.end, at + other.window.end - mine.window.begin});
}

void Placer::take_all(size_t b) {
  ++work_;
  taken_.clear();
  if (instance_.gaps()) {
    instance_.for_neighbours(b, [&](uint32_t q) {
      if (offsets_[q] != kUnplaced) take(b, q);
    });
    return;
  }
  const int64_t size = sizes_[b];
  instance_.for_neighbours(b, [&](uint32_t q) {
    const int64_t at = offsets_[q];
    if (at != kUnplaced) taken_.push_back({at - size, at + sizes_[q]});
  });
}

bool Placer::fits(size_t b, int64_t offset) {
  take_all(b);
  return std::none_of(taken_.begin(), taken_.end(), [&](const Taken& taken) {
    return taken.low < offset && offset < taken.high;
  });
}

int64_t Placer::find(size_t b, Fit fit) {
  take_all(b);
  std::sort(taken_.begin(), taken_.end(),
            [](const Taken& x, const Taken& y) { return x.low < y.low; });
  const int64_t alignment = instance_.buffer(b).alignment;
  int64_t at = 0;
  int64_t best = kUnplaced, best_slack = kNoLimit;
  for (const Taken& taken : taken_) {
    if (taken.low >= at) {
      if (fit == Fit::kFirst) return at;
      if (taken.low - at < best_slack) {
        best = at;
        best_slack = taken.low - at;
      }
    }
    if (taken.high > at) at = align_up(taken.high, alignment);
  }
  return best != kUnplaced ? best : at;
}

void Placer::put(size_t b, int64_t offset) {
  offsets_[b] = offset;
  if (instance_.empty(b)) return;
  height_ = std::max(height_, offset + instance_.buffer(b).size);
}

bool Placer::place_all(const std::vector<uint32_t>& order, Fit fit, int64_t limit) {
  for (uint32_t b : order) {
    const int64_t at = find(b, fit);
    put(b, at);
    if (at + instance_.buffer(b).size > limit || stopped()) return false;
  }
  return true;
}

}  // namespace outsize::packing
