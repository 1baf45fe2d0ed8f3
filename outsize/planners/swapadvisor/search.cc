#include "outsize/planners/swapadvisor/search.h"

#include <algorithm>

#include "outsize/base/parallel.h"
#include "outsize/graph/order.h"
#include "outsize/planners/reorder.h"
#include "outsize/planners/swapadvisor/orders.h"
#include "outsize/planners/swapadvisor/pool.h"
#include "outsize/simulate/simulate.h"

namespace outsize::planning::swapadvisor {
namespace {

constexpr int64_t kInfeasible = std::numeric_limits<int64_t>::max();
constexpr size_t kChunk = 16;  // individuals judged between two looks at the deadline

struct Individual {
  Genes genes;
  int64_t ns = kInfeasible;
};

struct Judged {
  int64_t ns = kInfeasible;
  std::optional<Plan> plan;
  Trouble trouble;
};

// Settled homes may leave gaps that whole objects don't fill; then the classes that have most to
// spare give up objects, one at a time.
std::optional<Layout> lay_out_fewer(const Pool& pool, const Classes& classes, Counts& counts,
                                    int64_t budget) {
  std::optional<Layout> layout = lay_out(pool, classes, counts, budget);
  if (layout || pool.taken.empty()) return layout;
  Counts least = least_counts(classes, pool.limits);
  std::vector<int64_t> object = object_bytes(classes, pool.limits.sizes);
  while (!layout) {
    size_t most = 0;
    int64_t spare = 0;
    for (size_t c = 0; c < counts.size(); ++c)
      if ((counts[c] - least[c]) * object[c] > spare)
        spare = (counts[c] - least[c]) * object[c], most = c;
    if (spare == 0) return std::nullopt;
    --counts[most];
    layout = lay_out(pool, classes, counts, budget);
  }
  return layout;
}

// What an individual comes to. `at` is the thread's own case; its order is set.
Judged judge(Case& at, const Pool& pool, const Genes& genes, const SwapRules& rules) {
  Judged out;
  const Problem& problem = *at.problem;
  at.order = genes.schedule;
  Counts counts = genes.counts;
  std::optional<Layout> layout = lay_out_fewer(pool, genes.classes, counts, problem.budgets.device);
  if (!layout) {
    out.trouble = {std::nullopt, problem.budgets.device + 1, Tier::kDevice, {}};
    return out;
  }
  Rooms rooms = rooms_of(pool, genes.classes, counts);
  std::optional<Swaps> swaps = plan_swaps(at, rooms, rules, out.trouble);
  if (!swaps) return out;
  if (swaps->swapped > 0 && !problem.allow.swap) {
    out.trouble = {std::nullopt, problem.budgets.device + 1, Tier::kDevice, {}};
    return out;
  }
  RealiseOptions options;
  options.placer = pool_placer(at, rooms, *layout, swaps->objects);
  out.plan = realise(at, swaps->decision, out.trouble, options);
  if (!out.plan) return out;
  Result<int64_t> ns = simulated_ns(*problem.graph, *problem.profile, *problem.machine, *out.plan);
  OUTSIZE_CHECK(ns.ok(), "the simulator refuses a plan: {}", ns.error().message);
  out.ns = *ns;
  return out;
}

class Evolution {
 public:
  Evolution(Search& search, const SearchRules& rules)
      : search_(search),
        rules_(rules),
        pool_(pool_of(search.step())),
        random_(search.problem().seed),
        before_(dependencies_by_part(*search.problem().graph, search.step().parts)),
        tightest_(tightest_classes(pool_.limits)) {
    if (!search.problem().allow.reorder) rules_.schedules = false;
    int threads = std::max(1, search.problem().threads);
    cases_.assign(static_cast<size_t>(threads), search.step());
  }

  // False where no classes at all do.
  bool possible() const { return can_fit(tightest_, pool_.limits); }

  void run() {
    std::vector<Individual> all = first_generation();
    judge_all(all);
    for (int idle = 0; idle < rules_.idle_generations && !over(); ++idle) {
      int64_t best = search_.best_ns();
      std::vector<Individual> children = children_of(all);
      if (children.empty()) break;
      judge_all(children);
      for (Individual& child : children) all.push_back(std::move(child));
      all = survivors(std::move(all));
      if (search_.best_ns() != best) idle = -1;
    }
  }

  const Trouble& trouble() const { return trouble_; }

 private:
  const Problem& problem() const { return *search_.step().problem; }

  bool over() const {
    // Nothing beats the ops one after the other.
    bool ideal = search_.best() && search_.best_ns() <= compute_ns(*problem().profile);
    return ideal || problem().deadline->reached();
  }

  Counts fitting(Counts counts, const Classes& classes) {
    Counts least = least_counts(classes, pool_.limits);
    counts = repaired_counts(std::move(counts), classes, pool_.limits, least);
    return filled_counts(std::move(counts), classes, pool_.limits, random_);
  }

  // The allocation of which nothing is searched: the tightest classes, what is left shared out in
  // equal bytes.
  Counts even_counts(const Classes& classes) {
    Counts least = least_counts(classes, pool_.limits);
    Counts most = most_counts(classes, pool_.limits), counts = least;
    std::vector<int64_t> object = object_bytes(classes, pool_.limits.sizes);
    int64_t left = pool_.limits.capacity - pool_bytes(least, classes, pool_.limits.sizes);
    int64_t share = counts.empty() ? 0 : left / static_cast<int64_t>(counts.size());
    for (size_t c = 0; c < counts.size(); ++c)
      counts[c] = std::clamp(counts[c] + share / object[c], least[c], std::max(least[c], most[c]));
    return counts;
  }

  std::vector<std::vector<OpId>> seed_orders() {
    const Graph& graph = *problem().graph;
    std::vector<std::vector<OpId>> orders{program_order(graph)};
    if (!rules_.schedules || !rules_.seeds) return orders;
    if (std::vector<OpId> early = early_updates(graph); keeps(early, before_))
      orders.push_back(std::move(early));
    orders.push_back(nearest_first(graph, before_, pool_.limits.capacity));
    orders.push_back(nearest_first(graph, before_, pool_.limits.capacity / 2));
    orders.push_back(depth_first(graph, before_, true));
    orders.push_back(depth_first(graph, before_, false));
    return orders;
  }

  Genes with(std::vector<OpId> schedule, Classes classes) {
    Genes genes;
    genes.schedule = std::move(schedule);
    genes.counts =
        fitting(Counts(classes.empty() ? 0 : static_cast<size_t>(classes.back()) + 1, 1), classes);
    genes.classes = std::move(classes);
    return genes;
  }

  std::vector<Individual> first_generation() {
    std::vector<std::vector<OpId>> orders = seed_orders();
    std::vector<Individual> all;
    for (const std::vector<OpId>& order : orders)
      all.push_back({{order, tightest_, even_counts(tightest_)}, kInfeasible});
    while (all.size() < rules_.population) {
      std::vector<OpId> order = orders[all.size() % orders.size()];
      bool random = rules_.schedules && (!rules_.seeds || random_.chance(0.2));
      if (random) order = mutate_schedule(order, before_, 1.0, random_);
      Classes classes =
          rules_.allocations ? random_classes(pool_.limits, tightest_, random_) : tightest_;
      Genes genes = with(std::move(order), std::move(classes));
      if (!rules_.allocations) genes.counts = even_counts(tightest_);
      all.push_back({std::move(genes), kInfeasible});
      if (!rules_.allocations && !rules_.schedules) break;  // all alike
    }
    return all;
  }

  // Each pair of parents gives two schedules and two allocations: four children.
  std::vector<Individual> children_of(const std::vector<Individual>& parents) {
    std::vector<const Genes*> able;
    for (const Individual& parent : parents)
      if (parent.ns != kInfeasible) able.push_back(&parent.genes);
    std::vector<Individual> children;
    if (able.empty() || (!rules_.schedules && !rules_.allocations)) return children;
    auto any = [&] {
      return able[static_cast<size_t>(random_.below(static_cast<int64_t>(able.size())))];
    };
    while (children.size() < rules_.population) {
      const Genes &a = *any(), &b = *any();
      std::vector<Genes> schedules(2), allocations(2);
      for (size_t side = 0; side < 2; ++side) {
        const Genes &one = side == 0 ? a : b, &other = side == 0 ? b : a;
        schedules[side].schedule = child_schedule(one, other);
        child_allocation(one, other, allocations[side]);
      }
      for (const Genes& s : schedules)
        for (const Genes& p : allocations)
          children.push_back({{s.schedule, p.classes, p.counts}, kInfeasible});
    }
    return children;
  }

  std::vector<OpId> child_schedule(const Genes& one, const Genes& other) {
    if (!rules_.schedules) return one.schedule;
    size_t cut = static_cast<size_t>(random_.below(static_cast<int64_t>(one.schedule.size()) + 1));
    std::vector<OpId> child = cross_schedules(one.schedule, other.schedule, cut);
    // In a long list a tenth of all picks at random leaves nothing of the parent; some children
    // get fewer.
    double chance = rules_.mutation * (random_.chance(0.5) ? 1.0 : random_.uniform() * 0.1);
    return mutate_schedule(child, before_, chance, random_);
  }

  void child_allocation(const Genes& one, const Genes& other, Genes& child) {
    if (!rules_.allocations || one.classes.empty()) {
      child.classes = one.classes;
      child.counts = one.counts;
      return;
    }
    size_t n = one.classes.size();
    size_t cut = static_cast<size_t>(random_.below(static_cast<int64_t>(n) + 1));
    Classes crossed = cross_classes(one.classes, other.classes, cut);
    cut = static_cast<size_t>(random_.below(static_cast<int64_t>(n) + 1));
    child.classes = mutate_classes(crossed, rules_.mutation, random_);
    if (!can_fit(child.classes, pool_.limits))
      child.classes = can_fit(crossed, pool_.limits) ? crossed : one.classes;
    Counts counts =
        cross_counts(one.counts, one.classes, other.counts, other.classes, child.classes, cut);
    child.counts =
        fitting(mutate_counts(std::move(counts), rules_.mutation, random_), child.classes);
  }

  std::vector<Individual> survivors(std::vector<Individual> all) {
    std::vector<int64_t> times;
    std::vector<size_t> able;
    for (size_t i = 0; i < all.size(); ++i)
      if (all[i].ns != kInfeasible) able.push_back(i), times.push_back(all[i].ns);
    std::vector<Individual> out;
    for (size_t k : select_softmax(times, search_.best_ns(), rules_.population, random_))
      out.push_back(std::move(all[able[k]]));
    return out;
  }

  // In chunks, offering each in turn; stops at the deadline once there is a plan.
  void judge_all(std::vector<Individual>& all) {
    for (size_t begin = 0; begin < all.size() && !(search_.best() && over()); begin += kChunk) {
      size_t end = std::min(all.size(), begin + kChunk);
      std::vector<Judged> judged = judge_chunk(all, begin, end);
      problem().deadline->spend(static_cast<int64_t>(end - begin));
      for (size_t i = begin; i < end; ++i) {
        Judged& j = judged[i - begin];
        all[i].ns = j.ns;
        if (!j.plan && !search_.best()) trouble_ = j.trouble;
        if (j.plan && (!search_.best() || j.ns < search_.best_ns())) search_.offer(*j.plan);
      }
    }
  }

  std::vector<Judged> judge_chunk(const std::vector<Individual>& all, size_t begin, size_t end) {
    std::vector<Judged> out(end - begin);
    for_each_index(cases_.size(), begin, end, [&](size_t worker, size_t i) {
      out[i - begin] = judge(cases_[worker], pool_, all[i].genes, rules_.swaps);
    });
    return out;
  }

  Search& search_;
  SearchRules rules_;
  Pool pool_;
  Random random_;
  std::vector<std::vector<OpId>> before_;
  Classes tightest_;
  std::vector<Case> cases_;  // one per thread
  Trouble trouble_;
};

}  // namespace

Status search_plans(Search& search, const SearchRules& rules, const std::string& name) {
  Evolution evolution(search, rules);
  if (evolution.possible()) evolution.run();
  if (search.best()) return Done{};
  Trouble trouble = evolution.trouble();
  if (!evolution.possible())
    trouble = {std::nullopt, least_bytes(pool_of(search.step())), Tier::kDevice, {}};
  // The counts below which some op has no room depend on the graph alone.
  auto least = [&](const Case& c) {
    Pool pool = pool_of(c);
    Classes classes = tightest_classes(pool.limits);
    if (!can_fit(classes, pool.limits)) return false;
    Case at = c;
    Genes genes{c.order, classes, least_counts(classes, pool.limits)};
    return judge(at, pool, genes, rules.swaps).plan.has_value();
  };
  return search.infeasible(name, trouble, works_at(search.step(), least));
}

}  // namespace outsize::planning::swapadvisor

namespace outsize::planning {

Status plan_swapadvisor(Search& search) {
  return swapadvisor::search_plans(search, {}, "swapadvisor");
}

Status plan_swapadvisor_fixed_classes(Search& search) {
  swapadvisor::SearchRules rules;
  rules.allocations = false;
  return swapadvisor::search_plans(search, rules, "swapadvisor-fixed-classes");
}

}  // namespace outsize::planning
