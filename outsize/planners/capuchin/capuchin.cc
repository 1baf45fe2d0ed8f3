#include "outsize/planners/capuchin/capuchin.h"

#include <algorithm>
#include <map>

#include "outsize/planners/copy_timing.h"
#include "outsize/planners/lineage.h"
#include "outsize/planners/plan_once.h"
#include "outsize/planners/tensor_cache.h"
#include "outsize/simulate/simulate.h"

namespace outsize::planning::capuchin {
namespace {

constexpr int64_t kAdjustPercent = 5;  // of the copy, each time (section 4.4)
constexpr int kIdleRounds = 20;        // of feedback that make the step no faster

void mark_swaps(Program& program, const std::vector<Pair>& swaps) {
  for (const Pair& pair : swaps) {
    const size_t k = touch_at(program, pair.gap.instance, pair.gap.from);
    program.instance(pair.gap.instance).touches[k].away = true;
  }
}

int64_t highest(const Case& c, Program program, const std::vector<Pair>& swaps) {
  mark_swaps(program, swaps);
  return peak_of(c, program, {});
}

// Whether one of the ops is run again after the step that stands for `rank` of the plain program.
bool rerun_after(const Program& program, int32_t rank, const std::vector<OpId>& ops) {
  for (size_t r = static_cast<size_t>(program.rank(rank)); r < program.size(); ++r) {
    const Step& step = program.step(program.order()[r]);
    if (step.rerun && std::find(ops.begin(), ops.end(), step.op) != ops.end()) return true;
  }
  return false;
}

// From the last access on, so that each is made from what is there by then. `collective`: where
// there is room for it, what one recomputation makes on its way serves later ones.
void remake(const Case& c, Program& program, const Choice& choice, int64_t capacity,
            bool collective) {
  std::vector<Pair> remakes = choice.remakes;
  std::stable_sort(remakes.begin(), remakes.end(),
                   [](const Pair& a, const Pair& b) { return a.gap.to > b.gap.to; });
  for (const Pair& pair : remakes) {
    const size_t k = touch_at(program, pair.gap.instance, pair.gap.from);
    const auto draft = draft_remake(c, program, pair.gap.instance, pair.gap.from);
    if (!draft) continue;  // the passive mode's
    if (!rerun_after(program, pair.gap.to, draft->runs)) {
      program.drop(pair.gap.instance, k, *draft, true);
      continue;
    }
    Program alone = program;
    alone.drop(pair.gap.instance, k, *draft, false);
    if (collective) {
      program.drop(pair.gap.instance, k, *draft, true);
      if (program.size() == alone.size() ||
          highest(c, program, choice.swaps) <= std::max(capacity, highest(c, alone, choice.swaps)))
        continue;
    }
    program = std::move(alone);
  }
}

// Each copy in starts at the last access that isn't too late, if it ends before the next of them
// must begin (section 4.4).
void return_ahead(const Case& c, const Program& program, const std::vector<Move*>& swaps,
                  const Rules& rules, const Feedback& feedback) {
  const std::vector<int64_t> starts = starts_of(c, program);
  std::vector<Move*> by_to = swaps;
  std::stable_sort(by_to.begin(), by_to.end(),
                   [](const Move* a, const Move* b) { return a->to > b->to; });
  int64_t busy = starts.back();
  for (Move* m : by_to) {
    m->arrive = m->to;
    if (!rules.in_trigger || !m->returns) continue;
    const int64_t due = starts[static_cast<size_t>(m->to)];
    const int64_t start = (rules.lanes ? std::min(busy, due) : due) -
                          copy_ns_of(c.problem->machine->in, program.part_of(m->instance).bytes());
    busy = start;
    const auto part = static_cast<size_t>(program.instance(m->instance).part);
    const auto after =
        std::upper_bound(starts.begin(), starts.end() - 1, start - feedback.earlier_ns[part]);
    m->arrive = std::clamp(static_cast<int32_t>(after - starts.begin()) - 1, m->release, m->to);
  }
}

// Requires: the swaps chosen are the only activations away.
std::vector<Move> timed(const Case& c, const Program& program, int64_t capacity, const Rules& rules,
                        const Feedback& feedback) {
  std::vector<Move> moves = timed_moves(c, program, capacity);
  const std::vector<Move*> swaps = leaving_activations(program, moves);
  leave_in_turn(c, program, swaps, rules.decoupled);
  return_ahead(c, program, swaps, rules, feedback);
  make_room(c, program, moves, swaps, capacity, rules.outside_peak);
  settle_arrivals(swaps);
  return moves;
}

std::optional<Plan> plan_at(const Case& c, const Rules& rules, Feedback& feedback,
                            Trouble& trouble) {
  return realise_within(
      c, [&](int64_t capacity, Trouble& why) { return decide(c, capacity, rules, feedback, why); },
      trouble, {CopyStyle::kWriteBehind, Effort::kThorough, {}});
}

// Without a host there is no passive mode, so more is chosen until the step fits; none where all
// that can be chosen is too little.
std::optional<Program> remade_to_fit(const Case& c, int64_t capacity, const Rules& rules,
                                     std::optional<Shortfall>& shortfall) {
  size_t chosen = 0;
  for (int64_t more = 0;;) {
    const Choice choice = choose(c, capacity, rules, more);
    Program program = plain_program(c);
    remake(c, program, choice, capacity, rules.collective);
    shortfall =
        shortfall_of(program, usage_of(c, program, timed_moves(c, program, capacity)), capacity);
    if (!shortfall) return program;
    if (more > 0 && choice.remakes.size() <= chosen) return std::nullopt;
    chosen = choice.remakes.size();
    more += shortfall->needed - capacity;
  }
}

// Parts whose copy in had not ended when an op was otherwise ready for them.
std::vector<int32_t> late_parts(const Case& c, const Plan& plan) {
  const Problem& problem = *c.problem;
  const Result<Simulation> played =
      simulate(*problem.graph, *problem.profile, *problem.machine, plan);
  OUTSIZE_CHECK(played.ok(), "the simulator refuses a plan: {}", played.error().message);
  std::map<std::pair<int64_t, int64_t>, int32_t> part_at;  // by storage and first byte
  for (size_t p = 0; p < c.parts.parts.size(); ++p) {
    const Access& where = c.parts.parts[p].where;
    part_at[{where.storage.value, where.bytes.begin}] = static_cast<int32_t>(p);
  }
  std::vector<int64_t> arrived(plan.residencies.size(), -1);  // ns, of those copied in and not used
  std::vector<int32_t> late;
  int64_t ready = 0;
  for (size_t i = 0; i < plan.instructions.size(); ++i) {
    const Instruction& instruction = plan.instructions[i];
    if (instruction.kind == InstructionKind::kCopy) {
      if (instruction.stream == Stream::kIn)
        arrived[instruction.to.index()] =
            std::max(arrived[instruction.to.index()], played->spans[i].end_ns);
      continue;
    }
    for (ResidencyId id : instruction.operands) {
      const Access& where = plan.residency(id).part;
      if (arrived[id.index()] > ready)
        late.push_back(part_at.at({where.storage.value, where.bytes.begin}));
      arrived[id.index()] = -1;
    }
    ready = played->spans[i].end_ns;
  }
  std::sort(late.begin(), late.end());
  late.erase(std::unique(late.begin(), late.end()), late.end());
  return late;
}

}  // namespace

std::optional<Decision> decide(const Case& c, int64_t capacity, const Rules& rules,
                               Feedback& feedback, Trouble& trouble) {
  if (!rules.swap) {
    std::optional<Program> program = remade_to_fit(c, capacity, rules, trouble.shortfall);
    if (!program) return std::nullopt;
    std::vector<Move> moves = timed_moves(c, *program, capacity);
    return Decision{std::move(*program), std::move(moves)};
  }
  const Choice choice = choose(c, capacity, rules);
  Program program = plain_program(c);
  remake(c, program, choice, capacity, rules.collective);
  mark_swaps(program, choice.swaps);
  feedback.swapped.clear();
  for (const Pair& pair : choice.swaps) feedback.swapped.push_back(pair.gap.instance);
  std::sort(feedback.swapped.begin(), feedback.swapped.end());

  const std::vector<Move> planned = timed(c, program, capacity, rules, feedback);
  const std::vector<int64_t> usage = usage_of(c, program, planned);
  trouble.shortfall = shortfall_of(program, usage, capacity);
  if (!trouble.shortfall) return Decision{std::move(program), std::move(planned)};
  if (!rules.passive) return std::nullopt;
  const CacheRun passive = run_cache(c, program, usage, capacity);
  trouble.shortfall = passive.shortfall;
  if (trouble.shortfall) return std::nullopt;
  for (const CacheStay& stay : passive.away) mark_away(program, stay.gap);
  std::vector<Move> moves = timed_moves(c, program, capacity);
  for (const Move& m : planned) *move_of(moves, {m.instance, m.touch, m.from, m.to}) = m;
  time_stays(passive.away, moves);
  return Decision{std::move(program), std::move(moves)};
}

Status plan_with(Search& search, const Rules& given) {
  const Case& c = search.step();
  const Problem& problem = search.problem();
  Rules rules = given;
  rules.recompute = rules.recompute && problem.allow.recompute;
  rules.swap = rules.swap && can_swap(problem);
  Feedback feedback{std::vector<int64_t>(c.parts.parts.size(), 0), {}};
  std::optional<Plan> plan;
  const Status first = plan_once(search, "capuchin", [&](const Case& at, Trouble& trouble) {
    std::optional<Plan> found = plan_at(at, rules, feedback, trouble);
    if (&at == &c) plan = found;
    return found;
  });
  if (!first.ok()) return first;
  for (int idle = 0; rules.feedback && rules.in_trigger && idle < kIdleRounds; ++idle) {
    if (problem.deadline->reached()) break;
    bool changed = false;
    for (int32_t part : late_parts(c, *plan)) {
      if (!std::binary_search(feedback.swapped.begin(), feedback.swapped.end(), part)) continue;
      const int64_t ns = copy_ns_of(problem.machine->in, c.parts[part].bytes());
      feedback.earlier_ns[static_cast<size_t>(part)] +=
          std::max<int64_t>(1, ns * kAdjustPercent / 100);
      changed = true;
    }
    if (!changed) break;
    Trouble trouble;
    std::optional<Plan> next = plan_at(c, rules, feedback, trouble);
    problem.deadline->spend(1);
    if (!next) break;
    plan = std::move(next);
    const int64_t before = search.best_ns();
    if (search.offer(*plan) < before) idle = -1;
  }
  return Done{};
}

}  // namespace outsize::planning::capuchin

namespace outsize::planning {

Status plan_capuchin(Search& search) { return capuchin::plan_with(search, {}); }

}  // namespace outsize::planning
