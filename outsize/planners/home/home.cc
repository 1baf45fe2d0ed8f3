#include "outsize/planners/home/home.h"

#include <algorithm>

#include "outsize/planners/copy_timing.h"

namespace outsize::planning::home {
namespace {

constexpr int kCapacities = 6;  // tried, each lower, while plans need more than the estimate says

// Makes again what the policy says, from the last reader on, each from what is there by then.
void remake(const Case& c, Program& program, const Stages& stages, const Policy& policy) {
  std::vector<size_t> remade;
  for (size_t t = 0; t < policy.size(); ++t)
    if (policy[t] == Action::kRecompute) remade.push_back(t);
  std::stable_sort(remade.begin(), remade.end(), [&](size_t a, size_t b) {
    return stages.tensors[a].gap.to > stages.tensors[b].gap.to;
  });
  for (size_t t : remade) {
    const Gap& gap = stages.tensors[t].gap;
    if (const auto draft = draft_remake(c, program, gap.instance, gap.from))
      program.drop(gap.instance, touch_at(program, gap.instance, gap.from), *draft, false);
  }
}

// Reruns may read a swapped tensor while it is away; it comes for them and leaves again.
void mark_swaps(Program& program, const Stages& stages, const Policy& policy) {
  for (size_t t = 0; t < policy.size(); ++t) {
    if (policy[t] != Action::kSwap) continue;
    const Gap& gap = stages.tensors[t].gap;
    std::vector<Touch>& touches = program.instance(gap.instance).touches;
    for (size_t k = touch_at(program, gap.instance, gap.from); touches[k].step != gap.to; ++k)
      touches[k].away = true;
  }
}

std::vector<Move> timed(const Case& c, const Program& program, int64_t capacity,
                        const Rules& rules) {
  std::vector<Move> moves = timed_moves(c, program, capacity);
  const std::vector<Move*> swaps = leaving_activations(program, moves);
  leave_in_turn(c, program, swaps, rules.asynchronous);
  for (Move* m : swaps)
    m->arrive = rules.prefetch && m->returns ? std::max(m->to - 1, m->from + 1) : m->to;
  make_room(c, program, moves, swaps, capacity, false);
  settle_arrivals(swaps);
  return moves;
}

std::optional<Plan> plan_policy(const Case& c, const Stages& stages, const Policy& policy,
                                int64_t capacity, const Rules& rules, Trouble& trouble) {
  const std::optional<Decision> decision = decide(c, stages, policy, capacity, rules, trouble);
  if (!decision) return std::nullopt;
  return realise(c, *decision, trouble, {CopyStyle::kWriteBehind, Effort::kThorough, {}});
}

// By how much the capacity must be lower for the next swarm.
int64_t missing(const Trouble& trouble, int64_t capacity, int64_t budget) {
  const int64_t needed =
      trouble.shortfall ? trouble.shortfall->needed - capacity : trouble.height - budget;
  return std::max(needed, budget / 200 + 1);
}

// Swarms for less and less while what they find doesn't become a plan, at first only looking at the
// particles they begin with. True where one did.
bool search_policies(Search& search, const Case& c, const Rules& rules, Trouble& trouble) {
  const Problem& problem = *c.problem;
  const Allowed allowed{can_swap(problem), problem.allow.recompute};
  const int64_t budget = problem.budgets.device;
  const Stages stages = stages_of(c, budget);
  for (const bool patient : {false, true}) {
    int64_t capacity = budget;
    for (int attempt = 0; attempt < kCapacities && capacity > 0; ++attempt) {
      Swarm swarm(stages, capacity, rules, allowed, problem.seed);
      bool planned = false;
      Trouble latest;
      const auto offer = [&] {
        Trouble why;
        const std::optional<Plan> plan = plan_policy(c, stages, swarm.best(), capacity, rules, why);
        planned = plan.has_value();
        if (plan) search.offer(*plan);
        if (!plan && (attempt == 0 || why.tier != Tier::kDevice)) trouble = why;
        if (!plan) latest = why;
      };
      offer();
      if (planned || patient || swarm.best_score().excess > 0)
        swarm.run(*problem.deadline, problem.threads, offer);
      if (planned || (search.best() && problem.deadline->reached())) return true;
      if (swarm.best_score().excess > 0 || trouble.tier != Tier::kDevice) break;
      capacity -= missing(latest, capacity, budget);
    }
    if (search.best()) return true;
  }
  return false;
}

}  // namespace

std::optional<Decision> decide(const Case& c, const Stages& stages, const Policy& policy,
                               int64_t capacity, const Rules& rules, Trouble& trouble) {
  Program program = plain_program(c);
  remake(c, program, stages, policy);
  mark_swaps(program, stages, policy);
  std::vector<Move> moves = timed(c, program, capacity, rules);
  trouble.shortfall = shortfall_of(program, usage_of(c, program, moves), capacity);
  if (trouble.shortfall) return std::nullopt;
  return Decision{std::move(program), std::move(moves)};
}

Status plan_with(Search& search, const Rules& rules) {
  Trouble trouble;
  if (search_policies(search, search.step(), rules, trouble)) return Done{};
  // Nothing is searched there, and of what a swarm begins with the uniform policies reach lowest.
  Rules few = rules;
  few.particles = std::min<int64_t>(rules.particles, 16);
  return search.infeasible("home", trouble, works_at(search.step(), [&, few](const Case& at) {
                             Deadline once = Deadline::after_work(0);
                             Problem problem = *at.problem;
                             problem.deadline = &once;
                             Case again = at;
                             again.problem = &problem;
                             Search other(problem);
                             Trouble why;
                             return search_policies(other, again, few, why);
                           }));
}

}  // namespace outsize::planning::home

namespace outsize::planning {

Status plan_home(Search& search) { return home::plan_with(search, {}); }

}  // namespace outsize::planning
