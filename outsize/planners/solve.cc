#include "outsize/planners/solve.h"

#include <algorithm>
#include <numeric>

namespace outsize::planning {
namespace {

constexpr int kRepairs = 8;

}  // namespace

Case case_of(const Problem& problem) {
  Case c;
  c.problem = &problem;
  c.parts = parts_of(*problem.graph);
  for (size_t i = 0; i < problem.graph->ops.size(); ++i)
    c.order.emplace_back(static_cast<int64_t>(i));
  c.homes.assign(c.parts.parts.size(), 0);
  for (size_t p = 0; p < c.parts.parts.size(); ++p)
    for (const Home& home : problem.border)
      if (home.storage == c.parts.parts[p].where.storage)
        c.homes[p] = home.tier == Tier::kDevice ? 1 : 2;
  return c;
}

Program plain_program(const Case& c) {
  Program program(c.parts, c.order);
  for (size_t i = 0; i < program.instances().size(); ++i) {
    Instance& in = program.instance(static_cast<int32_t>(i));
    if (c.homes[static_cast<size_t>(in.part)] != 2) continue;
    in.away_at_entry = in.entry;
    if (in.exit && !in.touches.empty()) in.touches.back().away = true;
  }
  return program;
}

std::optional<Plan> write_plan(const Case& c, const Chooser& chooser, const Program& program,
                               const Style& style, Effort effort, Trouble& trouble) {
  Sequence sequence = write_sequence(*c.problem, chooser, program, style.copies, style.slack);
  Placement placement = place(*c.problem, sequence, effort);
  return lower_placed(c, std::move(sequence), placement, trouble);
}

std::optional<Plan> lower_placed(const Case& c, Sequence sequence, const Placement& placement,
                                 Trouble& trouble) {
  for (Tier tier : {Tier::kDevice, Tier::kHost, Tier::kDisk}) {
    int64_t height = placement.height[static_cast<size_t>(tier)];
    if (height > c.problem->budgets.of(tier)) {
      trouble = {std::nullopt, height, tier};
      return std::nullopt;
    }
  }
  OUTSIZE_CHECK(placement.fits, "a packing as low as its budget does not fit");
  sequence.plan.budgets = c.problem->budgets;
  return lower_sequence(*c.problem->graph, std::move(sequence));
}

std::optional<Solution> solve(const Case& c, const Prices& prices, ChooseParams params,
                              const SolveOptions& options, Random& random, Trouble& trouble) {
  params.homes = c.homes;
  Program program = options.start ? *options.start : plain_program(c);
  int64_t budget = c.problem->budgets.device;
  for (int attempt = 0; attempt < kRepairs; ++attempt) {
    Chooser chooser(*c.problem, prices, params);
    Program tried = program;
    if (std::optional<Shortfall> shortfall = chooser.fit(tried, random)) {
      // A lower capacity failed: what the packing asked for at the one before stands as the
      // trouble.
      if (attempt == 0) trouble = {shortfall, 0, Tier::kDevice};
      return std::nullopt;
    }
    chooser.prune(tried);
    double cost = chooser.cost(tried);
    if (options.beat && cost >= *options.beat) return std::nullopt;
    if (std::optional<Plan> plan =
            write_plan(c, chooser, tried, options.style, Effort::kQuick, trouble)) {
      return Solution{std::move(tried), std::move(*plan), cost, params.capacity};
    }
    if (trouble.tier != Tier::kDevice) return std::nullopt;
    program = std::move(tried);
    int64_t over = trouble.height - budget;
    params.capacity -= std::max<int64_t>(over, budget / 200 + 1);
    if (params.capacity <= 0) return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace outsize::planning
