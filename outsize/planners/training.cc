#include "outsize/planners/training.h"

#include <algorithm>
#include <cctype>
#include <string>

namespace outsize::planning {
namespace {

bool names(const Op& op, std::initializer_list<const char*> words) {
  std::string name = op.name;
  for (char& letter : name)
    letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  return std::any_of(words.begin(), words.end(),
                     [&](const char* word) { return name.find(word) != std::string::npos; });
}

}  // namespace

size_t forward_ops(const Graph& graph) {
  size_t last = 0;
  for (size_t i = 0; i < graph.ops.size(); ++i)
    if (graph.ops[i].site.phase == "forward") last = i + 1;
  if (last > 0) return last;
  for (size_t i = 1; i < graph.ops.size(); ++i)
    if (names(graph.ops[i], {"backward"})) return i;
  OpId peak = liveness_of(graph, {}).peak_op;
  return peak.valid() ? peak.index() : 0;
}

bool is_convolution(const Op& op) {
  // Checkpoints name every layer after the block of convolutions that it stands in.
  return names(op, {"conv"}) && !names(op, {"_bn", "_relu", "_pad", "_pool", "_add", "_out"});
}

bool is_heavy(const Op& op) {
  return is_convolution(op) || names(op, {"mm", "linear", "matmul", "attention", "lstm", "gru"});
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

Move* move_of(std::vector<Move>& moves, const Gap& gap) {
  auto at = std::lower_bound(moves.begin(), moves.end(), gap, [](const Move& m, const Gap& g) {
    return m.instance != g.instance ? m.instance < g.instance : m.touch < g.touch;
  });
  bool found = at != moves.end() && at->instance == gap.instance && at->touch == gap.touch;
  return found ? &*at : nullptr;
}

}  // namespace outsize::planning
