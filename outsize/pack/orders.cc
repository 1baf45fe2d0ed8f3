#include "outsize/pack/orders.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <queue>

namespace outsize::packing {
namespace {

using Before = bool (*)(const Instance&, uint32_t, uint32_t);

int64_t bytes(const Instance& instance, uint32_t b) { return instance.buffer(b).size; }
int64_t birth(const Instance& instance, uint32_t b) { return instance.buffer(b).life.begin; }
int64_t length(const Instance& instance, uint32_t b) { return instance.buffer(b).life.size(); }
double area(const Instance& instance, uint32_t b) {
  return static_cast<double>(bytes(instance, b)) * static_cast<double>(length(instance, b));
}

bool by_size(const Instance& i, uint32_t a, uint32_t b) {
  if (bytes(i, a) != bytes(i, b)) return bytes(i, a) > bytes(i, b);
  return length(i, a) > length(i, b);
}
// Equal sizes by birth: such buffers tile without holes.
bool by_size_birth(const Instance& i, uint32_t a, uint32_t b) {
  if (bytes(i, a) != bytes(i, b)) return bytes(i, a) > bytes(i, b);
  return birth(i, a) < birth(i, b);
}
bool by_birth(const Instance& i, uint32_t a, uint32_t b) {
  if (birth(i, a) != birth(i, b)) return birth(i, a) < birth(i, b);
  return i.buffer(a).life.end > i.buffer(b).life.end;
}
bool by_birth_size(const Instance& i, uint32_t a, uint32_t b) {
  if (birth(i, a) != birth(i, b)) return birth(i, a) < birth(i, b);
  return bytes(i, a) > bytes(i, b);
}
// The mirror image of by_birth: time runs backwards.
bool by_death(const Instance& i, uint32_t a, uint32_t b) {
  if (i.buffer(a).life.end != i.buffer(b).life.end)
    return i.buffer(a).life.end > i.buffer(b).life.end;
  return bytes(i, a) > bytes(i, b);
}
bool by_area(const Instance& i, uint32_t a, uint32_t b) { return area(i, a) > area(i, b); }
bool by_length(const Instance& i, uint32_t a, uint32_t b) {
  if (length(i, a) != length(i, b)) return length(i, a) > length(i, b);
  return bytes(i, a) > bytes(i, b);
}
// Those that live through the fullest moment first: nothing else can be placed around them later.
bool by_contention(const Instance& i, uint32_t a, uint32_t b) {
  if (i.contention()[a] != i.contention()[b]) return i.contention()[a] > i.contention()[b];
  return by_size(i, a, b);
}
bool by_contention_length(const Instance& i, uint32_t a, uint32_t b) {
  if (i.contention()[a] != i.contention()[b]) return i.contention()[a] > i.contention()[b];
  return by_length(i, a, b);
}

// An offset above every placed free neighbour of b's: holes are left to `find`.
int64_t lowest_above(const Instance& instance, const Placer& placer, uint32_t b, uint32_t q) {
  int64_t high = 0;
  const int64_t at = placer.offsets()[q];
  for (const Piece& mine : instance.pieces(b))
    for (const Piece& other : instance.pieces(q))
      if (mine.life.overlaps(other.life))
        high = std::max(high, at + other.window.end - mine.window.begin);
  return align_up(high, instance.buffer(b).alignment);
}

}  // namespace

const std::vector<Rule>& rules() {
  static const std::vector<Rule> all = {
      {"size", Fit::kFirst, false, by_size},
      {"area", Fit::kFirst, false, by_area},
      {"length", Fit::kFirst, false, by_length},
      {"birth", Fit::kFirst, false, by_birth},
      {"contention", Fit::kFirst, false, by_contention},
      {"contention-length", Fit::kFirst, false, by_contention_length},
      {"skyline-length", Fit::kFirst, true, by_length},
      {"skyline-area", Fit::kFirst, true, by_area},
      {"skyline-size", Fit::kFirst, true, by_size},
      {"size-birth", Fit::kFirst, false, by_size_birth},
      {"size-best-fit", Fit::kBest, false, by_size},
      {"birth-best-fit", Fit::kBest, false, by_birth},
      {"birth-size", Fit::kFirst, false, by_birth_size},
      {"death", Fit::kFirst, false, by_death},
      {"death-best-fit", Fit::kBest, false, by_death},
      {"area-best-fit", Fit::kBest, false, by_area},
      {"length-best-fit", Fit::kBest, false, by_length},
  };
  return all;
}

std::vector<uint32_t> order_of(const Instance& instance, const Rule& rule) {
  std::vector<uint32_t> order;
  for (uint32_t b = 0; b < instance.size(); ++b)
    if (instance.free(b) && !instance.empty(b)) order.push_back(b);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return rule.before(instance, a, b); });
  return order;
}

std::vector<int64_t> offsets_by_sweep(const Instance& instance) {
  std::vector<uint32_t> births;
  for (uint32_t b = 0; b < instance.size(); ++b)
    if (!instance.empty(b)) births.push_back(b);
  std::vector<uint32_t> deaths = births;
  std::stable_sort(births.begin(), births.end(), [&](uint32_t a, uint32_t b) {
    return birth(instance, a) != birth(instance, b) ? birth(instance, a) < birth(instance, b)
                                                    : bytes(instance, a) > bytes(instance, b);
  });
  std::stable_sort(deaths.begin(), deaths.end(), [&](uint32_t a, uint32_t b) {
    return instance.buffer(a).life.end < instance.buffer(b).life.end;
  });
  std::vector<int64_t> offsets(instance.size(), 0);
  std::map<int64_t, int64_t> free = {{0, kNoLimit}};  // begin to end
  size_t dead = 0;
  for (uint32_t b : births) {
    for (; instance.buffer(deaths[dead]).life.end <= birth(instance, b); ++dead) {
      // Given back, and joined with the free ranges that touch it.
      const uint32_t q = deaths[dead];
      const int64_t end = offsets[q] + bytes(instance, q);
      auto range = free.emplace(offsets[q], end).first;
      if (const auto after = std::next(range); after != free.end() && after->first == end) {
        range->second = after->second;
        free.erase(after);
      }
      if (range != free.begin() && std::prev(range)->second == range->first) {
        std::prev(range)->second = range->second;
        free.erase(range);
      }
    }
    auto best = free.end();
    int64_t best_slack = kNoLimit;
    for (auto range = free.begin(); range != free.end(); ++range) {
      const int64_t slack =
          range->second - bytes(instance, b) - align_up(range->first, instance.buffer(b).alignment);
      if (slack < 0 || (best != free.end() && slack >= best_slack)) continue;
      best = range;
      best_slack = slack;
    }
    const int64_t at = align_up(best->first, instance.buffer(b).alignment);
    const int64_t end = best->second;
    offsets[b] = at;
    if (at > best->first)
      best->second = at;
    else
      free.erase(best);
    if (at + bytes(instance, b) < end) free.emplace(at + bytes(instance, b), end);
  }
  return offsets;
}

bool run_skyline(const Instance& instance, const std::vector<uint32_t>& order, int64_t limit,
                 Placer& placer, std::vector<uint32_t>* placed) {
  struct Entry {
    int64_t low;
    uint32_t rank;
    bool operator>(const Entry& o) const { return low != o.low ? low > o.low : rank > o.rank; }
  };
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue;
  std::vector<int64_t> low(instance.size(), 0);
  std::vector<uint32_t> rank(instance.size(), 0);
  for (uint32_t r = 0; r < order.size(); ++r) {
    rank[order[r]] = r;
    queue.push({0, r});
  }
  while (!queue.empty()) {
    const Entry entry = queue.top();
    queue.pop();
    const uint32_t b = order[entry.rank];
    if (placer.offsets()[b] != kUnplaced || entry.low != low[b]) continue;
    const int64_t at = placer.find(b, Fit::kFirst);
    placer.put(b, at);
    if (placed != nullptr) placed->push_back(b);
    if (at + instance.buffer(b).size > limit || placer.stopped()) return false;
    instance.for_neighbours(b, [&](uint32_t q) {
      if (placer.offsets()[q] != kUnplaced) return;
      const int64_t above = lowest_above(instance, placer, q, b);
      if (above <= low[q]) return;
      low[q] = above;
      queue.push({above, rank[q]});
    });
  }
  return true;
}

bool run_rule(const Instance& instance, const Rule& rule, int64_t limit, Placer& placer) {
  placer.reset();
  const std::vector<uint32_t> order = order_of(instance, rule);
  if (rule.skyline) return run_skyline(instance, order, limit, placer, nullptr);
  return placer.place_all(order, rule.fit, limit);
}

}  // namespace outsize::packing
