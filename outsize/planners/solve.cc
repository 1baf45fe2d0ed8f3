#include "outsize/planners/solve.h"

#include <algorithm>
#include <numeric>

#include "outsize/base/interval_set.h"
#include "outsize/planners/dissolve.h"
#include "outsize/planners/realise.h"

namespace outsize::planning {
namespace {

constexpr int kRepairs = 8;

// The ranks at which something lies above the device's budget; ascending, disjoint.
std::vector<Interval> crowded_ranks(const Sequence& sequence, int64_t budget) {
  const std::vector<Instruction>& instructions = sequence.plan.instructions;
  std::vector<int64_t> runs(instructions.size() + 1, 0);  // before each instruction
  for (size_t i = 0; i < instructions.size(); ++i)
    runs[i + 1] = runs[i] + (instructions[i].kind != InstructionKind::kCopy);
  IntervalSet crowded;
  for (size_t r = 0; r < sequence.stays.size(); ++r) {
    const Residency& residency = sequence.plan.residencies[r];
    if (residency.tier != Tier::kDevice || residency.range().end <= budget) continue;
    const Interval life = sequence.stays[r].life;
    const auto last = std::min<int64_t>(life.end, static_cast<int64_t>(instructions.size()));
    const int64_t first = runs[static_cast<size_t>(std::min(life.begin, last))];
    crowded.add({first, std::max(first + 1, runs[static_cast<size_t>(last)])});
  }
  for (size_t i = 0; i < instructions.size(); ++i)
    if (instructions[i].workspace.end > budget) crowded.add({runs[i], runs[i] + 1});
  return crowded.parts();
}

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

bool can_swap(const Problem& problem) {
  return problem.allow.swap && problem.budgets.host > 0 && problem.machine->out.bytes_per_s > 0 &&
         problem.machine->in.bytes_per_s > 0;
}

void settle_at_homes(const Case& c, Program& program) {
  for (size_t i = 0; i < program.instances().size(); ++i) {
    Instance& in = program.instance(static_cast<int32_t>(i));
    if (c.homes[static_cast<size_t>(in.part)] != 2) continue;
    in.away_at_entry = in.entry;
    if (in.exit && !in.touches.empty()) in.touches.back().away = true;
  }
}

Program plain_program(const Case& c) {
  Program program(c.parts, c.order);
  settle_at_homes(c, program);
  return program;
}

Program::RunPrice run_times(const Case& c) {
  return [&profile = *c.problem->profile](OpId op) -> std::optional<int64_t> {
    return profile.ops[op.index()].ns;
  };
}

int64_t held_for_nothing(int32_t, int32_t, int64_t) { return 0; }

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
      trouble = {std::nullopt, height, tier, {}};
      if (tier == Tier::kDevice)
        trouble.crowded = crowded_ranks(sequence, c.problem->budgets.device);
      return std::nullopt;
    }
  }
  OUTSIZE_CHECK(placement.fits, "a packing as low as its budget does not fit");
  sequence.plan.budgets = c.problem->budgets;
  return lower_sequence(*c.problem->graph, std::move(sequence));
}

namespace {

// Chooses for lower and lower capacities while fragmentation makes the addresses overflow.
std::optional<Solution> solve_by_capacity(const Case& c, const Prices& prices, ChooseParams params,
                                          const SolveOptions& options, Random& random,
                                          Trouble& trouble) {
  Program program = options.start ? *options.start : plain_program(c);
  const int64_t budget = c.problem->budgets.device;
  for (int attempt = 0; attempt < kRepairs; ++attempt) {
    Chooser chooser(*c.problem, prices, params);
    Program tried = program;
    if (std::optional<Shortfall> shortfall = chooser.fit(tried, random)) {
      // A lower capacity failed: what the packing asked for at the one before stands as the
      // trouble.
      if (attempt == 0) trouble = {shortfall, 0, Tier::kDevice, {}};
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

// Chooses for the whole budget, then takes away what is in the way of the addresses. Where the
// choice runs into a corner (what it runs again holds too much), everything that can be is away.
std::optional<Solution> solve_near_floor(const Case& c, const Prices& prices, ChooseParams params,
                                         Random& random, Trouble& trouble) {
  params.stay_bytes = 0;
  Chooser chooser(*c.problem, prices, params);
  Program chosen = plain_program(c);
  if (!chooser.fit(chosen, random))
    if (auto solution = solve_dissolving(c, chooser, std::move(chosen), trouble)) return solution;
  if (trouble.tier != Tier::kDevice) return std::nullopt;
  Program away = all_away(c, chooser);
  if (std::optional<Shortfall> shortfall =
          shortfall_of(away, chooser.usage(away), params.capacity)) {
    trouble = {shortfall, 0, Tier::kDevice, {}};
    return std::nullopt;
  }
  return solve_dissolving(c, chooser, std::move(away), trouble);
}

}  // namespace

std::optional<Solution> solve(const Case& c, const Prices& prices, ChooseParams params,
                              const SolveOptions& options, Random& random, Trouble& trouble) {
  params.homes = c.homes;
  if (std::optional<Solution> solution =
          solve_by_capacity(c, prices, params, options, random, trouble))
    return solution;
  const bool last_resort = params.swap && trouble.tier == Tier::kDevice && !options.start &&
                           options.style.copies == CopyStyle::kBesideOps;
  if (!last_resort) return std::nullopt;
  return solve_near_floor(c, prices, params, random, trouble);
}

}  // namespace outsize::planning
