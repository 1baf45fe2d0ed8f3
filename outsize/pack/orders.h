// The single orders: each a rule for who is placed next, evaluated by first or best fit.
// Internal to outsize/pack.
#pragma once

#include <string>
#include <vector>

#include "outsize/pack/place.h"

namespace outsize::packing {

struct Rule {
  std::string name;
  Fit fit = Fit::kFirst;
  bool skyline =
      false;  // next is whoever could lie lowest on what is placed; the order breaks ties
  // True if a goes before b. Ties are broken by position.
  bool (*before)(const Instance&, uint32_t a, uint32_t b) = nullptr;
};

// In a fixed order, those that most often win first.
const std::vector<Rule>& rules();

// The free, non-empty buffers in the rule's order.
std::vector<uint32_t> order_of(const Instance& instance, const Rule& rule);

// Runs the rule from a reset placer; false as soon as a buffer ends above `limit`.
bool run_rule(const Instance& instance, const Rule& rule, int64_t limit, Placer& placer);

// Offsets as an allocator that serves births in order, each from the tightest free range, would
// give them: far from the lowest, but at once. Requires: nobody fixed, no gaps.
std::vector<int64_t> offsets_by_sweep(const Instance& instance);

// As a rule with `skyline`, with ties broken by the place in `order`. Appends the buffers to
// `placed` as they are placed.
bool run_skyline(const Instance& instance, const std::vector<uint32_t>& order, int64_t limit,
                 Placer& placer, std::vector<uint32_t>* placed);

}  // namespace outsize::packing
