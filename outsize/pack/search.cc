#include "outsize/pack/search.h"

#include <algorithm>
#include <numeric>

#include "outsize/base/random.h"
#include "outsize/pack/orders.h"

namespace outsize::packing {
namespace {

// Placing by first fit in the order of offsets gives each buffer an offset no higher than it had.
std::vector<uint32_t> order_by_offset(const Instance& instance,
                                      const std::vector<int64_t>& offsets) {
  std::vector<uint32_t> order;
  for (uint32_t b = 0; b < instance.size(); ++b)
    if (instance.free(b) && !instance.empty(b)) order.push_back(b);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return offsets[a] < offsets[b]; });
  return order;
}

// One of those that end highest, moved to a random earlier place; now and then a random swap, and a
// neighbour of it as well, so that the search leaves plateaus.
void perturb(const Instance& instance, const Placer& placer, int64_t height, Random& random,
             std::vector<uint32_t>& order) {
  std::vector<size_t> tops;
  for (size_t i = 0; i < order.size(); ++i) {
    const uint32_t b = order[i];
    if (placer.offsets()[b] != kUnplaced && placer.offsets()[b] + instance.buffer(b).size >= height)
      tops.push_back(i);
  }
  const auto n = static_cast<int64_t>(order.size());
  const auto move_up = [&](size_t from) {
    if (from == 0) return;
    const auto to = static_cast<size_t>(random.below(static_cast<int64_t>(from)));
    std::rotate(order.begin() + static_cast<int64_t>(to),
                order.begin() + static_cast<int64_t>(from),
                order.begin() + static_cast<int64_t>(from) + 1);
  };
  if (!tops.empty())
    move_up(tops[static_cast<size_t>(random.below(static_cast<int64_t>(tops.size())))]);
  const int64_t extra = random.below(3);
  for (int64_t i = 0; i < extra; ++i) {
    if (random.chance(0.5)) {
      move_up(static_cast<size_t>(random.below(n)));
    } else {
      std::swap(order[static_cast<size_t>(random.below(n))],
                order[static_cast<size_t>(random.below(n))]);
    }
  }
}

}  // namespace

Found improve_order(const Instance& instance, Found best, int64_t goal, uint64_t seed,
                    int64_t most_work, Deadline& deadline) {
  Random random(seed);
  Placer placer(instance);
  std::vector<uint32_t> current = order_by_offset(instance, best.offsets);
  if (current.size() < 2) return best;
  const auto evaluate = [&](const std::vector<uint32_t>& order) {
    const int64_t before = placer.work();
    placer.reset();
    const bool done = placer.place_all(order, Fit::kFirst, best.height);
    deadline.spend(placer.work() - before);
    return done;
  };
  evaluate(current);
  while (placer.work() < most_work && best.height > goal && !deadline.reached()) {
    std::vector<uint32_t> trial = current;
    perturb(instance, placer, best.height, random, trial);
    if (!evaluate(trial)) continue;
    // As good is taken as well: the walk goes on from there, the best is kept apart.
    current = std::move(trial);
    if (placer.height() < best.height) {
      best = {placer.offsets(), placer.height()};
      current = order_by_offset(instance, best.offsets);
    }
  }
  return best;
}

}  // namespace outsize::packing
