// `outsize`: our own planner. Where the step fits, nothing is done. Else it chooses swaps and
// recomputations over all storages for several sets of prices, writes each choice out with its
// copies beside the ops and on the streams of the links, and keeps what the simulator finds
// fastest.
#include <algorithm>
#include <utility>

#include "outsize/planners/priced.h"
#include "outsize/planners/realise.h"
#include "outsize/planners/reorder.h"
#include "outsize/planners/search.h"

namespace outsize::planning {
namespace {

// A copy of fewer blocks costs a disk as much as one of this many.
constexpr int64_t kLeastBlocks = 16;

double ns_per_byte(int64_t bytes_per_s) {
  return bytes_per_s > 0 ? 1e9 / static_cast<double>(bytes_per_s) : 0;
}

// Copies in the compute stream: every byte costs the step its time.
Prices prices_beside_ops(const Machine& machine) {
  Prices p;
  int64_t sync = machine.sync_bytes_per_s;
  p.out_per_byte = ns_per_byte(sync > 0 ? sync : machine.out.bytes_per_s);
  p.in_per_byte = ns_per_byte(sync > 0 ? sync : machine.in.bytes_per_s);
  p.out_latency_ns = machine.out.latency_ns;
  p.in_latency_ns = machine.in.latency_ns;
  return p;
}

ChooseParams params_of(const Problem& problem) {
  ChooseParams params;
  params.capacity = problem.budgets.device;
  params.swap = can_swap(problem);
  params.recompute = problem.allow.recompute;
  // Small storages are not worth a copy; what is small depends on the budget.
  params.stay_bytes = std::min<int64_t>(64 << 10, problem.budgets.device / 1000);
  if (problem.block > 1) params.least_swap_bytes = kLeastBlocks * problem.block;
  return params;
}

// Copies on the links' own streams: a byte costs `share` of the time its link takes for it, as
// other copies want the link too, and a gap shorter than its copies costs what is missing.
Prices prices_write_behind(const Machine& machine, double share) {
  Prices p;
  p.link_out_per_byte = ns_per_byte(machine.out.bytes_per_s);
  p.link_in_per_byte = ns_per_byte(machine.in.bytes_per_s);
  p.out_per_byte = share * p.link_out_per_byte;
  p.in_per_byte = share * p.link_in_per_byte;
  p.out_latency_ns = static_cast<int64_t>(share * static_cast<double>(machine.out.latency_ns));
  p.in_latency_ns = static_cast<int64_t>(share * static_cast<double>(machine.in.latency_ns));
  return p;
}

// Steps of fewer ops are searched well enough without linear programs: to 0.1 % of the optimum on
// those for which it is known.
constexpr size_t kFewOps = 200;

struct Approach {
  Prices prices;
  Style style;
};

std::vector<Approach> approaches_of(const Problem& problem) {
  const Machine& machine = *problem.machine;
  std::vector<Approach> out{{prices_beside_ops(machine), Style{}}};
  if (!params_of(problem).swap) return out;
  for (double share : {0.5, 0.1, 0.03, 0.0})
    out.push_back({prices_write_behind(machine, share), {CopyStyle::kWriteBehind, 1.1}});
  return out;
}

bool has_plan(const Case& c) {
  Random random(c.problem->seed);
  Trouble trouble;
  return solve(c, prices_beside_ops(*c.problem->machine), params_of(*c.problem), {}, random,
               trouble)
      .has_value();
}

// How far an order is over the budget: most bytes at one step, and bytes summed over steps.
std::pair<int64_t, double> excess_of(const Case& c) {
  Chooser chooser(*c.problem, Prices{}, ChooseParams{});
  std::pair<int64_t, double> out{0, 0};
  for (int64_t bytes : chooser.usage(plain_program(c))) {
    int64_t over = bytes - c.problem->budgets.device;
    out.first = std::max(out.first, over);
    out.second += static_cast<double>(std::max<int64_t>(over, 0));
  }
  return out;
}

// Takes the order with early updates where it is no worse at its peak and better in all.
void adopt_early_updates(Case& c) {
  if (!c.problem->allow.reorder) return;
  Case early = c;
  early.order = early_updates(*c.problem->graph);
  if (early.order == c.order) return;
  auto [peak, sum] = excess_of(c);
  auto [early_peak, early_sum] = excess_of(early);
  if (early_peak <= peak && early_sum < sum) c = std::move(early);
}

struct Found {
  Approach approach;
  Solution solution;
  int64_t ns = 0;
};

// Takes back decisions: most of those about a stretch of the program, a few elsewhere.
Program loosened(const Case& c, const Program& from, Random& random) {
  Program program = from;
  double n = static_cast<double>(program.size());
  double middle = random.uniform() * n, half = n * (0.01 + 0.1 * random.uniform());
  auto taken = [&](int32_t first, int32_t last) {
    bool near = first < middle + half && last > middle - half;
    return random.chance(near ? 0.6 : 0.02);
  };
  for (size_t i = 0; i < program.instances().size(); ++i) {
    Instance& in = program.instance(static_cast<int32_t>(i));
    const PartInfo& part = program.part_of(static_cast<int32_t>(i));
    if (part.persistent) {
      if (c.homes[static_cast<size_t>(in.part)] != 0 || !Chooser::home_on_host(in)) continue;
      if (!random.chance(0.1)) continue;
      in.away_at_entry = false;
      for (Touch& t : in.touches) t.away = false;
      continue;
    }
    for (size_t k = 0; k + 1 < in.touches.size(); ++k)
      if (in.touches[k].away &&
          taken(program.rank(in.touches[k].step), program.rank(in.touches[k + 1].step)))
        in.touches[k].away = false;
  }
  std::vector<int32_t> reruns;
  for (int32_t s : program.order())
    if (program.step(s).rerun && taken(program.rank(s), program.rank(s))) reruns.push_back(s);
  std::vector<int32_t> changed;
  for (int32_t s : reruns)
    if (std::optional<Program::Undo> undo = program.draft_undrop(s)) program.undrop(*undo, changed);
  return program;
}

// Loosens the best choice and makes it anew, until the deadline or until that has long been of no
// use.
void improve(Search& search, Found& best, Random& random) {
  constexpr int kIdleRounds = 60;
  const Problem& problem = search.problem();
  for (int idle = 0; idle < kIdleRounds && !problem.deadline->reached(); ++idle) {
    problem.deadline->spend(1);
    Program start = loosened(search.step(), best.solution.program, random);
    ChooseParams params = params_of(problem);
    params.capacity = random.between(best.solution.capacity, problem.budgets.device + 1);
    params.noise = 0.3 * random.uniform();
    SolveOptions options;
    options.style = best.approach.style;
    options.start = &start;
    if (options.style.copies == CopyStyle::kBesideOps) options.beat = best.solution.cost;
    Trouble trouble;
    std::optional<Solution> solution =
        solve(search.step(), best.approach.prices, params, options, random, trouble);
    if (!solution) continue;
    int64_t ns = search.offer(solution->plan);
    if (ns >= best.ns) continue;
    best.solution = std::move(*solution);
    best.ns = ns;
    idle = -1;
  }
}

std::optional<Found> found_by_prices(Search& search) {
  const Prices prices = prices_write_behind(*search.problem().machine, 0.1);
  std::optional<PricedSolution> priced =
      choose_by_prices(search, prices, params_of(search.problem()));
  if (!priced) return std::nullopt;
  return Found{{prices, {CopyStyle::kWriteBehind, 1.1}}, std::move(priced->solution), priced->ns};
}

}  // namespace

Status plan_outsize(Search& search) {
  const Problem& problem = search.problem();
  Trouble trouble;
  {
    Chooser chooser(problem, Prices{}, ChooseParams{});
    std::optional<Plan> plan = write_plan(search.step(), chooser, plain_program(search.step()),
                                          Style{}, Effort::kThorough, trouble);
    problem.deadline->spend(1);
    if (plan) {
      search.offer(*plan);
      return Done{};
    }
  }
  adopt_early_updates(search.step());
  Random random(problem.seed);
  std::optional<Found> best;
  bool priced = false;
  const auto consider_priced = [&] {  // once; it takes longer than a first plan should
    if (std::exchange(priced, true) || problem.graph->ops.size() < kFewOps) return;
    std::optional<Found> found = found_by_prices(search);
    if (found && (!best || found->ns < best->ns)) best = std::move(found);
  };
  for (const Approach& approach : approaches_of(problem)) {
    if (best && problem.deadline->reached()) break;
    SolveOptions options;
    options.style = approach.style;
    Trouble why;
    std::optional<Solution> solution =
        solve(search.step(), approach.prices, params_of(problem), options, random, why);
    problem.deadline->spend(1);
    if (solution) {
      int64_t ns = search.offer(solution->plan);
      if (!best || ns < best->ns) best = Found{approach, std::move(*solution), ns};
    } else {
      trouble = why;
    }
    if (best) consider_priced();
  }
  consider_priced();
  // Nothing here is slower than checkpointing by the square root.
  if (problem.allow.recompute && !problem.deadline->reached()) (void)plan_sqrt_n(search);
  if (!best && search.best()) return Done{};
  if (!best) return search.infeasible("outsize", trouble, works_at(search.step(), has_plan));
  improve(search, *best, random);
  return Done{};
}

}  // namespace outsize::planning
