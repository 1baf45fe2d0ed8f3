// What losing a tensor would cost DTR's run (section 4.1): the ops that made it, and those of its
// evicted neighbourhood, which would have to run before it, or would need it.
//
//   op0 makes A (5 ns), op1 makes B from A (3 ns), op2 makes C from B (2 ns); A and C are evicted
//   B alone: 3; with its evicted ancestors: 3 + 5; with ancestors and descendants: 3 + 5 + 2
//
// `DtrNeighbourhood` says which; classes approximate the last by components. Parts are
// numbered as in the case. One owner thread.
#pragma once

#include <cstdint>
#include <vector>

#include "outsize/planners/dtr.h"

namespace outsize::planning {

// Components of evicted parts, with the sum of their costs; a part made again leaves its cost
// behind in no component, but the component stays one.
class EvictedClasses {
 public:
  explicit EvictedClasses(size_t parts) : node_(parts, -1) {}
  void add(int32_t part, double cost);
  void join(int32_t a, int32_t b);
  void leave(int32_t part, double cost);
  int32_t of(int32_t part) { return root(node_[static_cast<size_t>(part)]); }
  double cost(int32_t root) const { return cost_[static_cast<size_t>(root)]; }

 private:
  int32_t root(int32_t n);

  std::vector<int32_t> node_, parent_;
  std::vector<double> cost_;
};

class DtrCosts {
 public:
  DtrCosts(size_t parts, DtrNeighbourhood neighbourhood)
      : neighbourhood_(neighbourhood), at_(parts), classes_(parts) {}

  // A run of `ns` wrote the part, and read these.
  void written(int32_t part, int64_t ns, const std::vector<int32_t>& read);
  void evicted(int32_t part);
  void remade(int32_t part);

  bool is_evicted(int32_t part) const { return at(part).evicted; }
  const std::vector<int32_t>& children(int32_t part) const { return at(part).children; }
  double cost(int32_t part) { return at(part).own + neighbourhood_cost(part); }

 private:
  struct At {
    bool evicted = false;
    double own = 0;                // of its writers so far
    double before = 0, after = 0;  // cost of its evicted ancestors, descendants
    bool stale = true;             // the two are to be counted again
    std::vector<int32_t> parents, children;
  };
  At& at(int32_t part) { return at_[static_cast<size_t>(part)]; }
  const At& at(int32_t part) const { return at_[static_cast<size_t>(part)]; }

  double neighbourhood_cost(int32_t part);
  double classes_cost(int32_t part);
  double evicted_cost(int32_t part, bool up) const;
  void spoil(int32_t part);

  DtrNeighbourhood neighbourhood_;
  std::vector<At> at_;
  EvictedClasses classes_;
};

}  // namespace outsize::planning
