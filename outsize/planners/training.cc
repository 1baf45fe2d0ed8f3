#include "outsize/planners/training.h"

#include <algorithm>

namespace outsize::planning {

bool is_convolution(const Op& op) {
  // Checkpoints name every layer after the block of convolutions that it stands in.
  return name_has(op, {"conv"}) && !name_has(op, {"_bn", "_relu", "_pad", "_pool", "_add", "_out"});
}

bool is_heavy(const Op& op) {
  return is_convolution(op) || name_has(op, {"mm", "linear", "matmul", "attention", "lstm", "gru"});
}

std::vector<Gap> activation_gaps(const Program& program) {
  std::vector<Gap> gaps;
  for (size_t i = 0; i < program.instances().size(); ++i) {
    const Instance& in = program.instances()[i];
    if (program.part_of(static_cast<int32_t>(i)).persistent) continue;
    for (size_t k = 0; k + 1 < in.touches.size(); ++k) {
      int32_t from = program.rank(in.touches[k].step), to = program.rank(in.touches[k + 1].step);
      if (to - from < 2 || !needs_content(in.touches[k + 1])) continue;
      gaps.push_back({static_cast<int32_t>(i), static_cast<int32_t>(k), from, to});
    }
  }
  return gaps;
}

std::vector<Gap> stashed_gaps(const Program& program, int32_t forward) {
  std::vector<Gap> gaps = activation_gaps(program);
  std::erase_if(gaps, [&](const Gap& g) { return g.from >= forward || g.to < forward; });
  return gaps;
}

void mark_away(Program& program, const Gap& gap) {
  program.instance(gap.instance).touches[static_cast<size_t>(gap.touch)].away = true;
}

Move* move_of(std::vector<Move>& moves, const Gap& gap) {
  auto at = std::lower_bound(moves.begin(), moves.end(), gap, [](const Move& m, const Gap& g) {
    return m.instance != g.instance ? m.instance < g.instance : m.touch < g.touch;
  });
  bool found = at != moves.end() && at->instance == gap.instance && at->touch == gap.touch;
  return found ? &*at : nullptr;
}

}  // namespace outsize::planning
