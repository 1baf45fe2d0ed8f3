// SwapAdvisor's search (ASPLOS'20, sections 5 and 6.1): a population of individuals, crossed,
// mutated, each judged by planning its swaps and simulating the plan on three streams, and thinned
// out by softmax selection; the best ever seen is kept apart.
//
// Individuals of a generation are judged on `problem.threads` threads; which ones there are, and
// what comes of them, does not depend on how many.
#pragma once

#include "outsize/planners/search.h"
#include "outsize/planners/swapadvisor/scan.h"

namespace outsize::planning::swapadvisor {

// All affect the result. The paper's numbers where it gives them.
struct SearchRules {
  bool schedules = true;    // search orders; off: program order (also without Freedoms::reorder)
  bool allocations = true;  // search classes and counts; off: the tightest classes, filled evenly
  bool seeds = true;        // the first generation has orders that keep close what belongs together
  size_t population = 144;
  double mutation = 0.1;
  int idle_generations = 60;  // without a better plan before the search ends on its own
  SwapRules swaps;
};

Status search_plans(Search& search, const SearchRules& rules, const std::string& name);

}  // namespace outsize::planning::swapadvisor
