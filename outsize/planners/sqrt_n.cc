// `sqrt-n`: recompute-only checkpointing (Chen et al. 2016, "Training Deep Nets with Sublinear
// Memory Cost", section 4.1). The forward ops are cut into about sqrt(n) segments in program order;
// what a segment makes and the backward pass reads is dropped after its last use in the forward
// pass and made again from the segment's inputs, which are kept. We differ where the paper is
// silent: a tensor made by an op that can't be run again (running statistics, collectives) is kept,
// and the segment's length is the one of a few around sqrt(n) that fits with the shortest step.
#include <algorithm>
#include <cmath>

#include "outsize/planners/search.h"
#include "outsize/planners/training.h"

namespace outsize::planning {
namespace {

// Drops, over the border from forward to backward pass, what was made inside a segment.
Program checkpointed(const Case& c, size_t forward, size_t length) {
  Program program = plain_program(c);
  const Program::RunPrice run = run_times(c);
  auto segment = [&](OpId op) { return op.index() / length; };
  std::vector<int32_t> wanted;
  for (size_t p = 0; p < c.parts.parts.size(); ++p) {
    const PartInfo& part = c.parts.parts[p];
    if (part.entry || part.persistent || part.writers.empty()) continue;
    if (part.writers.back().index() >= forward) continue;
    bool leaves = false, late = false;  // read by a later segment; by the backward pass
    for (const PartUse& use : part.uses) {
      bool backward = use.op.index() >= forward;
      late |= backward;
      leaves |= !backward && segment(use.op) != segment(part.writers.front());
    }
    if (late && !leaves) wanted.push_back(static_cast<int32_t>(p));
  }
  for (int32_t p : wanted) {
    // Instances of the plain program are numbered as the parts are.
    const std::vector<Touch>& touches = program.instance(p).touches;
    for (size_t k = 0; k + 1 < touches.size(); ++k) {
      bool before = program.step(touches[k].step).op.index() < forward &&
                    !program.step(touches[k].step).rerun;
      bool after = program.step(touches[k + 1].step).op.index() >= forward ||
                   program.step(touches[k + 1].step).rerun;
      if (!before || !after) continue;
      if (std::optional<Program::Draft> draft = program.draft_drop(p, k, run, held_for_nothing))
        program.drop(p, k, *draft);
      break;
    }
  }
  return program;
}

}  // namespace

Status plan_sqrt_n(Search& search) {
  const Problem& problem = search.problem();
  const Case& c = search.step();
  size_t forward = forward_ops(*problem.graph);
  double root = std::sqrt(static_cast<double>(std::max<size_t>(forward, 1)));
  Chooser chooser(problem, Prices{}, ChooseParams{});
  Trouble trouble;
  int64_t least = 0;
  for (double factor : {1.0, 0.5, 2.0, 0.25, 4.0}) {
    if (search.best() && problem.deadline->reached()) break;
    size_t length = std::max<size_t>(2, static_cast<size_t>(std::lround(root * factor)));
    Trouble why;
    std::optional<Plan> plan =
        write_plan(c, chooser, checkpointed(c, forward, length), Style{}, Effort::kThorough, why);
    problem.deadline->spend(1);
    if (plan) {
      search.offer(*plan);
    } else if (least == 0 || why.height < least) {
      least = why.height;
      trouble = why;
    }
  }
  if (search.best()) return Done{};
  return search.infeasible("sqrt-n", trouble, [&](int64_t budget) { return budget >= least; });
}

}  // namespace outsize::planning
