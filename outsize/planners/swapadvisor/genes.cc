#include "outsize/planners/swapadvisor/genes.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>
#include <set>

#include "outsize/base/check.h"

namespace outsize::planning::swapadvisor {
namespace {

size_t class_count(const Classes& classes) {
  return classes.empty() ? 0 : static_cast<size_t>(classes.back()) + 1;
}

double gaussian(Random& random) {
  double u = 1.0 - random.uniform(), v = random.uniform();
  return std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v);
}

}  // namespace

std::vector<OpId> cross_schedules(const std::vector<OpId>& head, const std::vector<OpId>& tail,
                                  size_t cut) {
  std::vector<OpId> child(head.begin(), head.begin() + static_cast<std::ptrdiff_t>(cut));
  std::vector<bool> taken(head.size(), false);
  for (OpId op : child) taken[op.index()] = true;
  for (OpId op : tail)
    if (!taken[op.index()]) child.push_back(op);
  return child;
}

std::vector<OpId> mutate_schedule(const std::vector<OpId>& schedule,
                                  const std::vector<std::vector<OpId>>& before, double chance,
                                  Random& random) {
  size_t n = schedule.size();
  std::vector<size_t> rank(n), open(n);
  std::vector<std::vector<size_t>> after(n);
  for (size_t r = 0; r < n; ++r) rank[schedule[r].index()] = r;
  for (size_t op = 0; op < n; ++op) {
    open[op] = before[op].size();
    for (OpId b : before[op]) after[b.index()].push_back(op);
  }
  // Ready ops twice: by their rank in the parent, and in no order for random picks.
  std::set<size_t> by_rank;
  std::vector<size_t> any, place(n);
  auto add = [&](size_t op) {
    by_rank.insert(rank[op]);
    place[op] = any.size();
    any.push_back(op);
  };
  for (size_t op = 0; op < n; ++op)
    if (open[op] == 0) add(op);
  std::vector<OpId> child;
  child.reserve(n);
  while (!any.empty()) {
    size_t op = random.chance(chance)
                    ? any[static_cast<size_t>(random.below(static_cast<int64_t>(any.size())))]
                    : schedule[*by_rank.begin()].index();
    by_rank.erase(rank[op]);
    place[any.back()] = place[op];
    any[place[op]] = any.back();
    any.pop_back();
    child.emplace_back(static_cast<int64_t>(op));
    for (size_t next : after[op])
      if (--open[next] == 0) add(next);
  }
  return child;
}

Classes repaired_classes(Classes classes) {
  for (size_t i = 0; i < classes.size(); ++i) {
    int32_t low = i == 0 ? 0 : classes[i - 1], high = i == 0 ? 0 : low + 1;
    classes[i] = std::clamp(classes[i], low, high);
  }
  return classes;
}

Classes cross_classes(const Classes& head, const Classes& tail, size_t cut) {
  Classes child(head.begin(), head.begin() + static_cast<std::ptrdiff_t>(cut));
  child.insert(child.end(), tail.begin() + static_cast<std::ptrdiff_t>(cut), tail.end());
  return repaired_classes(std::move(child));
}

Classes mutate_classes(Classes classes, double chance, Random& random) {
  for (size_t i = 1; i < classes.size(); ++i) {
    if (!random.chance(chance)) continue;
    int32_t by = classes[i] == classes[i - 1] ? 1 : -1;
    for (size_t k = i; k < classes.size(); ++k) classes[k] += by;
  }
  return classes;
}

Counts cross_counts(const Counts& head, const Classes& head_classes, const Counts& tail,
                    const Classes& tail_classes, const Classes& child, size_t cut) {
  Counts sum(class_count(child), 0), sizes(class_count(child), 0);
  for (size_t i = 0; i < child.size(); ++i) {
    int64_t count = i < cut ? head[static_cast<size_t>(head_classes[i])]
                            : tail[static_cast<size_t>(tail_classes[i])];
    sum[static_cast<size_t>(child[i])] += count;
    ++sizes[static_cast<size_t>(child[i])];
  }
  for (size_t c = 0; c < sum.size(); ++c) sum[c] = std::max<int64_t>(1, sum[c] / sizes[c]);
  return sum;
}

Counts mutate_counts(Counts counts, double chance, Random& random) {
  for (int64_t& count : counts) {
    if (!random.chance(chance)) continue;
    double width = std::max(1.0, static_cast<double>(count) / 3.0);
    count = std::max<int64_t>(1, count + std::llround(width * gaussian(random)));
  }
  return counts;
}

Counts repaired_counts(Counts counts, const Classes& classes, const PoolLimits& limits,
                       const Counts& least) {
  std::vector<int64_t> object = object_bytes(classes, limits.sizes);
  for (size_t c = 0; c < counts.size(); ++c) counts[c] = std::max(counts[c], least[c]);
  for (;;) {
    int64_t excess = pool_bytes(counts, classes, limits.sizes) - limits.capacity;
    if (excess <= 0) return counts;
    int64_t giving = 0;
    for (size_t c = 0; c < counts.size(); ++c) giving += counts[c] > least[c] ? 1 : 0;
    OUTSIZE_CHECK(giving > 0, "the least counts of a pool are {} over its capacity of {}", excess,
                  limits.capacity);
    int64_t each = (excess + giving - 1) / giving;
    for (size_t c = 0; c < counts.size(); ++c)
      if (counts[c] > least[c])
        counts[c] = std::max(least[c], counts[c] - (each + object[c] - 1) / object[c]);
  }
}

Counts filled_counts(Counts counts, const Classes& classes, const PoolLimits& limits,
                     Random& random) {
  std::vector<int64_t> object = object_bytes(classes, limits.sizes);
  Counts most = most_counts(classes, limits);
  for (size_t c = 0; c < counts.size(); ++c) counts[c] = std::min(counts[c], most[c]);
  int64_t left = limits.capacity - pool_bytes(counts, classes, limits.sizes);
  std::vector<size_t> can(counts.size());
  std::iota(can.begin(), can.end(), size_t{0});
  while (!can.empty()) {
    size_t pick = static_cast<size_t>(random.below(static_cast<int64_t>(can.size())));
    size_t c = can[pick];
    if (object[c] > left || counts[c] >= most[c]) {
      can.erase(can.begin() + static_cast<std::ptrdiff_t>(pick));
      continue;
    }
    // Up to a quarter of what is left at once, so that many small objects don't take long.
    int64_t add =
        std::clamp<int64_t>(std::min(left / 4 / object[c], most[c] - counts[c]), 1, 1 << 20);
    counts[c] += add;
    left -= add * object[c];
  }
  return counts;
}

std::vector<int64_t> object_bytes(const Classes& classes, const std::vector<int64_t>& sizes) {
  std::vector<int64_t> out(class_count(classes), 0);
  for (size_t i = 0; i < classes.size(); ++i) {
    int64_t& bytes = out[static_cast<size_t>(classes[i])];
    bytes = std::max(bytes, sizes[i]);
  }
  return out;
}

Counts least_counts(const Classes& classes, const PoolLimits& limits) {
  Counts least(class_count(classes), 1), here(class_count(classes));
  for (const std::vector<int32_t>& sizes : limits.together) {
    std::fill(here.begin(), here.end(), 0);
    for (int32_t s : sizes) ++here[static_cast<size_t>(classes[static_cast<size_t>(s)])];
    for (size_t c = 0; c < here.size(); ++c) least[c] = std::max(least[c], here[c]);
  }
  return least;
}

Counts most_counts(const Classes& classes, const PoolLimits& limits) {
  Counts most(class_count(classes), 0);
  for (size_t i = 0; i < classes.size(); ++i)
    most[static_cast<size_t>(classes[i])] += limits.tensors[i];
  return most;
}

int64_t pool_bytes(const Counts& counts, const Classes& classes,
                   const std::vector<int64_t>& sizes) {
  std::vector<int64_t> object = object_bytes(classes, sizes);
  int64_t bytes = 0;
  for (size_t c = 0; c < counts.size(); ++c) bytes += counts[c] * object[c];
  return bytes;
}

bool can_fit(const Classes& classes, const PoolLimits& limits) {
  return pool_bytes(least_counts(classes, limits), classes, limits.sizes) <= limits.capacity;
}

Classes tightest_classes(const PoolLimits& limits) {
  // best[b]: fewest bytes for the sizes [0, b); the last class is [from[b], b).
  size_t n = limits.sizes.size();
  constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
  std::vector<int64_t> best(n + 1, kNever);
  std::vector<size_t> from(n + 1, 0);
  best[0] = 0;
  std::set<std::vector<int32_t>> distinct;
  for (std::vector<int32_t> sizes : limits.together) {
    std::sort(sizes.begin(), sizes.end());
    distinct.insert(std::move(sizes));
  }
  for (size_t b = 1; b <= n; ++b) {
    std::vector<int64_t> most(b, 1);  // per a: most tensors at once of sizes [a, b)
    for (const std::vector<int32_t>& sizes : distinct) {
      auto end = std::lower_bound(sizes.begin(), sizes.end(), static_cast<int32_t>(b));
      int64_t count = 0;
      size_t at = b;
      for (auto it = end; it != sizes.begin();) {
        size_t size = static_cast<size_t>(*--it);
        for (; at > size + 1; --at) most[at - 1] = std::max(most[at - 1], count);
        ++count;
        at = size + 1;
        most[size] = std::max(most[size], count);
      }
      for (; at > 1; --at) most[at - 2] = std::max(most[at - 2], count);
    }
    for (size_t a = 0; a < b; ++a) {
      int64_t bytes = best[a] + most[a] * limits.sizes[b - 1];
      if (bytes < best[b]) best[b] = bytes, from[b] = a;
    }
  }
  std::vector<size_t> begins;
  for (size_t b = n; b > 0; b = from[b]) begins.push_back(from[b]);
  std::reverse(begins.begin(), begins.end());
  Classes classes(n, 0);
  for (size_t c = 0; c < begins.size(); ++c) {
    size_t end = c + 1 < begins.size() ? begins[c + 1] : n;
    for (size_t i = begins[c]; i < end; ++i) classes[i] = static_cast<int32_t>(c);
  }
  return classes;
}

Classes random_classes(const PoolLimits& limits, const Classes& tightest, Random& random) {
  constexpr int kTries = 20;
  for (int attempt = 0; attempt < kTries; ++attempt) {
    double chance = random.uniform();
    Classes classes(limits.sizes.size(), 0);
    for (size_t i = 1; i < classes.size(); ++i)
      classes[i] = classes[i - 1] + (random.chance(chance) ? 1 : 0);
    if (can_fit(classes, limits)) return classes;
  }
  return tightest;
}

std::vector<size_t> select_softmax(const std::vector<int64_t>& times, int64_t best, size_t keep,
                                   Random& random) {
  std::vector<double> weight(times.size());
  for (size_t i = 0; i < times.size(); ++i)
    weight[i] = std::exp(static_cast<double>(best - times[i]) /
                         static_cast<double>(std::max<int64_t>(best, 1)));
  std::vector<size_t> left(times.size()), out;
  std::iota(left.begin(), left.end(), size_t{0});
  while (out.size() < keep && !left.empty()) {
    double sum = 0;
    for (size_t i : left) sum += weight[i];
    double at = random.uniform() * sum;
    size_t pick = 0;
    while (pick + 1 < left.size() && (at -= weight[left[pick]]) >= 0) ++pick;
    out.push_back(left[pick]);
    left.erase(left.begin() + static_cast<std::ptrdiff_t>(pick));
  }
  return out;
}

}  // namespace outsize::planning::swapadvisor
