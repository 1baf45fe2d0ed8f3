#include "outsize/planners/superneurons.h"

#include <algorithm>

#include "outsize/planners/plan_once.h"
#include "outsize/planners/tensor_cache.h"
#include "outsize/planners/training.h"

namespace outsize::planning {
namespace {

// A cheap layer's output that the backward pass reads.
struct Cheap {
  int32_t part = 0;
  int32_t segment = 0;  // heavy ops before its maker
  int32_t wanted = 0;   // rank of its first use in the backward pass
};

struct Segments {
  std::vector<Cheap> cheap;
  // Per segment: what its cheap ops make, and what the first of their backward ops works on.
  std::vector<int64_t> bytes;
};

int64_t working_set_of(const Case& c, const Program& program, int32_t rank) {
  const Step& step = program.step(program.order()[static_cast<size_t>(rank)]);
  std::vector<int32_t> operands = step.operands;
  std::sort(operands.begin(), operands.end());
  operands.erase(std::unique(operands.begin(), operands.end()), operands.end());
  int64_t bytes = c.problem->profile->ops[step.op.index()].workspace_bytes;
  for (int32_t i : operands) bytes += device_bytes_of(c, program.part_of(i));
  return bytes;
}

Segments segments_of(const Case& c, const Program& program, size_t forward) {
  const Graph& graph = *c.problem->graph;
  std::vector<int32_t> segment_of(forward);
  int32_t heavy = 0;
  for (size_t i = 0; i < forward; ++i) {
    if (is_heavy(graph.ops[i])) ++heavy;
    segment_of[i] = heavy;
  }
  Segments out;
  out.bytes.assign(static_cast<size_t>(heavy) + 1, 0);
  auto cheap = [&](OpId op) { return op.index() < forward && !is_heavy(graph.op(op)); };
  for (size_t p = 0; p < c.parts.parts.size(); ++p) {
    const PartInfo& part = c.parts.parts[p];
    if (part.persistent || part.entry || part.writers.empty()) continue;
    if (cheap(part.writers[0]))
      out.bytes[static_cast<size_t>(segment_of[part.writers[0].index()])] +=
          device_bytes_of(c, part);
  }
  std::vector<int32_t> first(out.bytes.size(), static_cast<int32_t>(program.size()));
  for (const Gap& gap : stashed_gaps(program, static_cast<int32_t>(forward))) {
    const PartInfo& part = program.part_of(gap.instance);
    if (part.entry || !std::all_of(part.writers.begin(), part.writers.end(),
                                   [&](OpId op) { return cheap(op) || op.index() >= forward; }))
      continue;
    int32_t segment = segment_of[part.writers[0].index()];
    out.cheap.push_back({gap.instance, segment, gap.to});
    for (const Touch& t : program.instance(gap.instance).touches)
      if (program.rank(t.step) >= static_cast<int32_t>(forward) &&
          !is_heavy(graph.op(program.step(t.step).op))) {
        int32_t& rank = first[static_cast<size_t>(segment)];
        rank = std::min(rank, program.rank(t.step));
        break;
      }
  }
  for (size_t s = 0; s < first.size(); ++s)
    if (first[s] < static_cast<int32_t>(program.size()))
      out.bytes[s] += working_set_of(c, program, first[s]);
  return out;
}

// Nothing is held from the forward pass for a recomputation; in the backward pass nothing is run
// that could have been held.
void drop_stash(const Case& c, Program& program, int32_t part, int32_t forward, bool share) {
  const Program::RunPrice run = run_times(c);
  auto hold = [&](int32_t from, int32_t to, int64_t) -> int64_t {
    return from < forward && to >= forward ? kNeverNs : 0;
  };
  const std::vector<Touch>& touches = program.instance(part).touches;
  for (size_t k = 0; k + 1 < touches.size(); ++k) {
    if (program.rank(touches[k].step) >= forward || program.rank(touches[k + 1].step) < forward)
      continue;
    if (std::optional<Program::Draft> draft = program.draft_drop(part, k, run, hold))
      program.drop(part, k, *draft, share);
    return;
  }
}

void recompute_cheap_layers(const Case& c, Program& program, size_t forward, Remake remake) {
  Segments segments = segments_of(c, program, forward);
  int64_t largest = 0;
  for (int32_t r = 0; r < static_cast<int32_t>(program.size()); ++r)
    largest = std::max(largest, working_set_of(c, program, r));
  auto speed = [&](int32_t segment) {
    if (remake != Remake::kCostAware) return remake == Remake::kSpeed;
    return segments.bytes[static_cast<size_t>(segment)] <= largest;
  };
  // Dropped in the order of use, each is made from what the one before has made; in the opposite
  // order, from the checkpoint.
  std::stable_sort(segments.cheap.begin(), segments.cheap.end(),
                   [&](const Cheap& a, const Cheap& b) {
                     if (a.segment != b.segment) return a.segment > b.segment;
                     return speed(a.segment) ? a.wanted < b.wanted : a.wanted > b.wanted;
                   });
  for (const Cheap& cheap : segments.cheap)
    drop_stash(c, program, cheap.part, static_cast<int32_t>(forward), speed(cheap.segment));
}

// Where what is needed up to the next heavy layer comes back: at heavy layers' backward ops.
std::vector<int32_t> heavy_ranks(const Case& c, const Program& program, size_t forward) {
  std::vector<int32_t> out;
  for (size_t r = forward; r < program.size(); ++r) {
    const Step& step = program.step(program.order()[r]);
    if (!step.rerun && is_heavy(c.problem->graph->op(step.op)))
      out.push_back(static_cast<int32_t>(r));
  }
  return out;
}

}  // namespace

std::optional<Decision> decide_superneurons(const Case& c, int64_t capacity,
                                            const SuperneuronsRules& rules, Trouble& trouble) {
  Program program = plain_program(c);
  size_t forward = forward_ops(*c.problem->graph);
  if (rules.recompute) recompute_cheap_layers(c, program, forward, rules.remake);
  // What moves by the rules so far, where that fits.
  auto timed = [&]() -> std::optional<Decision> {
    std::vector<Move> moves = timed_moves(c, program, capacity);
    trouble.shortfall = shortfall_of(program, usage_of(c, program, moves), capacity);
    if (trouble.shortfall) return std::nullopt;
    return Decision{std::move(program), std::move(moves)};
  };
  if (!rules.offload) return timed();
  if (!rules.cache) {
    for (const Gap& gap : stashed_gaps(program, static_cast<int32_t>(forward))) {
      const PartInfo& part = program.part_of(gap.instance);
      if (!part.writers.empty() && is_heavy(c.problem->graph->op(part.writers[0])))
        mark_away(program, gap);
    }
    return timed();
  }
  std::vector<int64_t> usage = usage_of(c, program, timed_moves(c, program, capacity));
  const CacheRun cached =
      run_cache(c, program, std::move(usage), capacity,
                rules.prefetch ? heavy_ranks(c, program, forward) : std::vector<int32_t>{});
  trouble.shortfall = cached.shortfall;
  if (trouble.shortfall) return std::nullopt;
  for (const CacheStay& stay : cached.away) mark_away(program, stay.gap);
  std::vector<Move> moves = timed_moves(c, program, capacity);
  time_stays(cached.away, moves);
  return Decision{std::move(program), std::move(moves)};
}

Status plan_superneurons(Search& search) {
  const Problem& problem = search.problem();
  SuperneuronsRules rules;
  rules.recompute = problem.allow.recompute;
  rules.offload = can_swap(problem);
  return plan_once(search, "superneurons", [&](const Case& c, Trouble& trouble) {
    return realise_within(
        c,
        [&](int64_t capacity, Trouble& why) {
          return decide_superneurons(c, capacity, rules, why);
        },
        trouble);
  });
}

}  // namespace outsize::planning
