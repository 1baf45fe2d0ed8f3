#include "outsize/planners/vdnn.h"

#include <algorithm>
#include <limits>
#include <map>

#include "outsize/planners/training.h"

namespace outsize::planning {
namespace {

constexpr int32_t kNever = std::numeric_limits<int32_t>::max();

struct Layer {
  bool convolution = false;
  std::vector<Gap> away;    // its inputs that leave
  int32_t begins = kNever;  // rank of its first backward step, where that is known
  bool fetched = false;
};

bool read_by_convolution(const Case& c, const Program& program, const Gap& gap) {
  const std::vector<Touch>& touches = program.instance(gap.instance).touches;
  return std::any_of(touches.begin(), touches.begin() + gap.touch + 1, [&](const Touch& t) {
    return t.reads && is_convolution(c.problem->graph->op(program.step(t.step).op));
  });
}

// Where the backward pass first reads a parameter of the layer at `rank`.
int32_t first_backward(const Program& program, int32_t rank, int32_t forward) {
  int32_t first = kNever;
  for (int32_t i : program.step(program.order()[static_cast<size_t>(rank)]).operands) {
    if (!program.part_of(i).persistent) continue;
    for (const Touch& t : program.instance(i).touches)
      if (program.rank(t.step) >= forward) {
        first = std::min(first, program.rank(t.step));
        break;
      }
  }
  return first;
}

std::vector<Layer> layers_of(const Case& c, Program& program, int32_t forward, bool all) {
  std::vector<Layer> layers(static_cast<size_t>(forward));
  for (int32_t r = 0; r < forward; ++r) {
    OpId op = program.step(program.order()[static_cast<size_t>(r)]).op;
    layers[static_cast<size_t>(r)].convolution = is_convolution(c.problem->graph->op(op));
  }
  for (const Gap& gap : stashed_gaps(program, forward)) {
    Touch& last = program.instance(gap.instance).touches[static_cast<size_t>(gap.touch)];
    if (!last.reads) continue;  // nobody's input
    if (!all && !read_by_convolution(c, program, gap)) continue;
    last.away = true;
    Layer& layer = layers[static_cast<size_t>(gap.from)];
    layer.away.push_back(gap);
    layer.begins = std::min(layer.begins, gap.to);
  }
  for (int32_t r = 0; r < forward; ++r) {
    Layer& layer = layers[static_cast<size_t>(r)];
    if (layer.convolution && layer.away.empty()) layer.begins = first_backward(program, r, forward);
  }
  return layers;
}

// The layer whose inputs come back beside the backward op of layer `now` (figure 10).
Layer* layer_to_fetch(std::vector<Layer>& layers, size_t now, bool window) {
  for (size_t id = now; id-- > 0;) {
    Layer& layer = layers[id];
    if (!layer.away.empty() && !layer.fetched) return &layer;
    if (window && layer.convolution) return nullptr;
  }
  return nullptr;
}

using Fetches = std::map<std::pair<int32_t, int32_t>, int32_t>;  // instance, touch: comes beside

Fetches fetches_of(std::vector<Layer>& layers, int32_t forward, bool window) {
  Fetches out;
  auto fetch = [&](size_t now, int32_t rank) {
    Layer* layer = layer_to_fetch(layers, now, window);
    if (!layer) return;
    layer->fetched = true;
    for (const Gap& gap : layer->away) out[{gap.instance, gap.touch}] = std::min(rank, gap.to);
  };
  std::vector<std::pair<int32_t, size_t>> backward;
  for (size_t id = 0; id < layers.size(); ++id)
    if (layers[id].begins != kNever) backward.emplace_back(layers[id].begins, id);
  std::sort(backward.begin(), backward.end());
  for (const auto& [rank, id] : backward) {
    layers[id].fetched = true;  // now, if nobody did before
    fetch(id, std::max(rank, forward));
  }
  return out;
}

Status plan_policies(Search& search, const std::string& name, const std::vector<VdnnRules>& ways) {
  const Problem& problem = search.problem();
  const Case& c = search.step();
  if (!problem.allow.swap)
    return bad_input("planner {} only swaps, and swapping is not allowed; allow it", name);
  RealiseOptions thorough;
  thorough.effort = Effort::kThorough;
  std::optional<Trouble> trouble;
  auto try_one = [&](const Decision& decision) {
    Trouble why;
    std::optional<Plan> plan = realise(c, decision, why, thorough);
    problem.deadline->spend(1);
    if (plan) {
      search.offer(*plan);
    } else if (!trouble || why.tier != Tier::kDevice ||
               (trouble->tier == Tier::kDevice && why.height < trouble->height)) {
      trouble = why;
    }
  };
  if (ways.size() > 1) {
    Program kept = plain_program(c);
    std::vector<Move> moves = timed_moves(c, kept, problem.budgets.device);
    try_one({std::move(kept), std::move(moves)});
  }
  if (ways.size() == 1 || !search.best())
    for (const VdnnRules& rules : ways) try_one(decide_vdnn(c, rules));
  if (search.best()) return Done{};
  return search.infeasible(name, *trouble,
                           [&](int64_t budget) { return budget >= trouble->height; });
}

}  // namespace

Decision decide_vdnn(const Case& c, const VdnnRules& rules) {
  Program program = plain_program(c);
  int32_t forward = static_cast<int32_t>(forward_ops(*c.problem->graph));
  std::vector<Layer> layers = layers_of(c, program, forward, rules.all);
  Fetches fetches;
  if (rules.prefetch) fetches = fetches_of(layers, forward, rules.window);
  std::vector<Move> moves = timed_moves(c, program, c.problem->budgets.device);
  for (const Layer& layer : layers)
    for (const Gap& gap : layer.away) {
      Move* move = move_of(moves, gap);
      move->release = gap.from + 1;
      move->out_after = gap.from - 1;
      if (rules.wait) move->out_by = gap.from + 1;
      auto at = fetches.find({gap.instance, gap.touch});
      int32_t beside = at == fetches.end() ? gap.to : at->second;
      move->arrive = std::max(beside, move->release);
      move->in_after = move->arrive - 1;
      move->in_by = rules.wait ? std::min(move->arrive + 1, gap.to) : gap.to;
    }
  return {std::move(program), std::move(moves)};
}

Status plan_vdnn(Search& search) {
  return plan_policies(search, "vdnn", {{.all = false}, {.all = true}});
}

Status plan_vdnn_all(Search& search) { return plan_policies(search, "vdnn-all", {{.all = true}}); }

Status plan_vdnn_conv(Search& search) {
  return plan_policies(search, "vdnn-conv", {{.all = false}});
}

}  // namespace outsize::planning
