#include "outsize/planners/dtr_costs.h"

#include <algorithm>
#include <numeric>
#include <set>

namespace outsize::planning {

void EvictedClasses::add(int32_t part, double cost) {
  int32_t& node = node_[static_cast<size_t>(part)];
  node = static_cast<int32_t>(parent_.size());
  parent_.push_back(node);
  cost_.push_back(cost);
}

void EvictedClasses::join(int32_t a, int32_t b) {
  const int32_t x = of(a), y = of(b);
  if (x == y) return;
  parent_[static_cast<size_t>(x)] = y;
  cost_[static_cast<size_t>(y)] += cost_[static_cast<size_t>(x)];
}

void EvictedClasses::leave(int32_t part, double cost) {
  int32_t& node = node_[static_cast<size_t>(part)];
  if (node < 0) return;
  cost_[static_cast<size_t>(root(node))] -= cost;
  node = -1;
}

int32_t EvictedClasses::root(int32_t n) {
  while (parent_[static_cast<size_t>(n)] != n) {
    int32_t& up = parent_[static_cast<size_t>(n)];
    up = parent_[static_cast<size_t>(up)];
    n = up;
  }
  return n;
}

void DtrCosts::written(int32_t part, int64_t ns, const std::vector<int32_t>& read) {
  At& a = at(part);
  a.evicted = false;
  a.own += static_cast<double>(ns);
  for (int32_t q : read) {
    if (std::find(a.parents.begin(), a.parents.end(), q) != a.parents.end()) continue;
    a.parents.push_back(q);
    at(q).children.push_back(part);
  }
  spoil(part);
}

void DtrCosts::evicted(int32_t part) {
  At& a = at(part);
  a.evicted = true;
  if (neighbourhood_ == DtrNeighbourhood::kClasses) {
    classes_.add(part, a.own);
    for (const auto* list : {&a.parents, &a.children})
      for (int32_t q : *list)
        if (q != part && is_evicted(q)) classes_.join(q, part);
  }
  spoil(part);
}

void DtrCosts::remade(int32_t part) {
  at(part).evicted = false;
  if (neighbourhood_ == DtrNeighbourhood::kClasses) classes_.leave(part, at(part).own);
  spoil(part);
}

double DtrCosts::neighbourhood_cost(int32_t part) {
  if (neighbourhood_ == DtrNeighbourhood::kNone) return 0;
  if (neighbourhood_ == DtrNeighbourhood::kClasses) return classes_cost(part);
  At& a = at(part);
  if (a.stale) {
    a.before = evicted_cost(part, true);
    a.after = evicted_cost(part, false);
    a.stale = false;
  }
  return a.before + (neighbourhood_ == DtrNeighbourhood::kEvicted ? a.after : 0);
}

double DtrCosts::classes_cost(int32_t part) {
  std::vector<int32_t> roots;
  for (const auto* list : {&at(part).parents, &at(part).children})
    for (int32_t q : *list)
      if (is_evicted(q)) roots.push_back(classes_.of(q));
  std::sort(roots.begin(), roots.end());
  roots.erase(std::unique(roots.begin(), roots.end()), roots.end());
  return std::accumulate(roots.begin(), roots.end(), 0.0,
                         [&](double sum, int32_t r) { return sum + classes_.cost(r); });
}

double DtrCosts::evicted_cost(int32_t part, bool up) const {
  double sum = 0;
  std::vector<int32_t> stack{part};
  std::set<int32_t> seen{part};
  while (!stack.empty()) {
    const At& near = at(stack.back());
    stack.pop_back();
    for (int32_t q : up ? near.parents : near.children) {
      if (!is_evicted(q) || !seen.insert(q).second) continue;
      sum += at(q).own;
      stack.push_back(q);
    }
  }
  return sum;
}

// The live parts at the edge of the evicted ones around `part` must count their neighbourhood
// again.
void DtrCosts::spoil(int32_t part) {
  for (const bool up : {true, false}) {
    std::vector<int32_t> stack{part};
    std::set<int32_t> seen{part};
    at(part).stale = true;
    while (!stack.empty()) {
      const At& near = at(stack.back());
      stack.pop_back();
      for (int32_t q : up ? near.parents : near.children) {
        if (!seen.insert(q).second) continue;
        at(q).stale = true;
        if (is_evicted(q)) stack.push_back(q);
      }
    }
  }
}

}  // namespace outsize::planning
