// SwapAdvisor's genes (Huang, Jin, Li, ASPLOS'20, section 5): a schedule, a map from tensor sizes
// to size classes, and how many objects each class has; how two parents are crossed, how a child
// is mutated, and how what does not hold together after that is repaired.
//
//   sizes    1 MiB  2 MiB  3 MiB  4 MiB       ascending, each once
//   classes    0      1      1      1         as its predecessor's or one above it
//   counts   {4, 2}                           objects per class, each as large as its largest size
//
// Classes are numbered from 0 here, from 1 in the paper. Pure functions of their Random.
#pragma once

#include <cstdint>
#include <vector>

#include "outsize/base/random.h"
#include "outsize/graph/graph.h"

namespace outsize::planning::swapadvisor {

using Classes = std::vector<int32_t>;  // per size, ascending sizes
using Counts = std::vector<int64_t>;   // per class

struct Genes {
  std::vector<OpId> schedule;
  Classes classes;
  Counts counts;
  bool operator==(const Genes&) const = default;
};

// What an allocation must respect.
struct PoolLimits {
  std::vector<int64_t> sizes;  // bytes, ascending, each once
  int64_t capacity = 0;        // bytes that all objects together may have
  // Per op, positions in `sizes` of the tensors that must be on the device while it runs, and of
  // those that can't leave it at all.
  std::vector<std::vector<int32_t>> together;
  // Per size: tensors of that size in the step. No class needs more objects.
  std::vector<int64_t> tensors;
};

// The first `cut` ops of `head`, then the others in the order of `tail`. Legal if both are.
std::vector<OpId> cross_schedules(const std::vector<OpId>& head, const std::vector<OpId>& tail,
                                  size_t cut);
// A list scheduler replays `schedule`; at each step, with probability `chance`, any ready op comes
// next in place of the first. `before`: dependencies_of the graph.
std::vector<OpId> mutate_schedule(const std::vector<OpId>& schedule,
                                  const std::vector<std::vector<OpId>>& before, double chance,
                                  Random& random);

// The first `cut` entries of `head`, the others of `tail`, repaired.
Classes cross_classes(const Classes& head, const Classes& tail, size_t cut);
// Raises or lowers what breaks the rule, with all after it: [0,1,0,0] becomes [0,1,1,1].
Classes repaired_classes(Classes classes);
// Each entry, with probability `chance`, leaves its predecessor's class or joins it; all after it
// shift along.
Classes mutate_classes(Classes classes, double chance, Random& random);

// Counts per size, crossed at `cut`, then averaged (rounded down, at least 1) within each class of
// `child`.
Counts cross_counts(const Counts& head, const Classes& head_classes, const Counts& tail,
                    const Classes& tail_classes, const Classes& child, size_t cut);
// Each count, with probability `chance`, moves by a Gaussian around it (a third of it wide, at
// least 1; the paper gives no width).
Counts mutate_counts(Counts counts, double chance, Random& random);
// Over the capacity, every class gives up equally many bytes (that is: objects inversely to their
// size), rounded up to whole objects, but keeps `least`; again until it fits. Requires: the least
// counts fit.
Counts repaired_counts(Counts counts, const Classes& classes, const PoolLimits& limits,
                       const Counts& least);
// Gives what is free to random classes that can use it. Ours: the paper leaves it idle.
Counts filled_counts(Counts counts, const Classes& classes, const PoolLimits& limits,
                     Random& random);

// Per class: bytes of an object; the counts below which some op has no room; tensors there are.
std::vector<int64_t> object_bytes(const Classes& classes, const std::vector<int64_t>& sizes);
Counts least_counts(const Classes& classes, const PoolLimits& limits);
Counts most_counts(const Classes& classes, const PoolLimits& limits);
int64_t pool_bytes(const Counts& counts, const Classes& classes, const std::vector<int64_t>& sizes);
// Whether the least counts of these classes fit.
bool can_fit(const Classes& classes, const PoolLimits& limits);
// The classes whose least counts need the fewest bytes: no pool of classes does with less.
Classes tightest_classes(const PoolLimits& limits);
// Random classes whose least counts fit; the tightest where none of a few tries do.
Classes random_classes(const PoolLimits& limits, const Classes& tightest, Random& random);

// Positions of the `keep` that survive: position i is drawn, without being put back, in proportion
// to exp((best - times[i]) / best), best being the shortest time ever seen.
std::vector<size_t> select_softmax(const std::vector<int64_t>& times, int64_t best, size_t keep,
                                   Random& random);

}  // namespace outsize::planning::swapadvisor
