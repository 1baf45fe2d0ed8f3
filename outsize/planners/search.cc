#include "outsize/planners/search.h"

#include <algorithm>

#include "outsize/base/bytes.h"
#include "outsize/bound/floor.h"
#include "outsize/simulate/simulate.h"

namespace outsize::planning {
namespace {

std::string describe(const Graph& graph, OpId id) {
  if (!id.valid()) return "no op";
  const Op& op = graph.op(id);
  std::string out = fmt::format("op {} {}", id.value, op.name);
  std::string site = op.site.module;
  if (!op.site.file.empty())
    site += fmt::format("{}{}:{}", site.empty() ? "" : ", ", op.site.file, op.site.line);
  return site.empty() ? out : fmt::format("{} ({})", out, site);
}

// The least budget that works, between one that doesn't and one that does, to half a percent.
int64_t least_working(int64_t fails, int64_t does, const std::function<bool(int64_t)>& works) {
  while (does - fails > does / 200 + 1) {
    int64_t middle = fails + (does - fails) / 2;
    (works(middle) ? does : fails) = middle;
  }
  return does;
}

}  // namespace

int64_t Search::offer(const Plan& plan) {
  Result<int64_t> ns = simulated_ns(*problem_->graph, *problem_->profile, *problem_->machine, plan);
  OUTSIZE_CHECK(ns.ok(), "the simulator refuses a plan: {}", ns.error().message);
  if (!best_ || *ns < best_ns_) {
    best_ = plan;
    best_ns_ = *ns;
    double seconds = problem_->deadline->seconds();
    history_.emplace_back(seconds, *ns);
    if (problem_->on_better) problem_->on_better(seconds, *ns);
  }
  return *ns;
}

Error Search::infeasible(const std::string& name, const Trouble& trouble,
                         const std::function<bool(int64_t)>& works) const {
  const Graph& graph = *problem_->graph;
  std::vector<int64_t> workspaces = workspaces_of(*problem_->profile);
  Floor floor = floor_of(graph, workspaces);
  int64_t budget = problem_->budgets.device;
  std::string why = fmt::format("budget {} on the device: ", format_bytes(budget));
  if (trouble.tier != Tier::kDevice && trouble.height > problem_->budgets.of(trouble.tier)) {
    const std::string_view below =
        kTierNames.name(trouble.tier == Tier::kHost ? problem_->far : trouble.tier);
    return ::outsize::infeasible(
        "planner {}: needs {} on the {}, budget {}; give a larger {} or device budget", name,
        format_bytes(trouble.height), below, format_bytes(problem_->budgets.of(trouble.tier)),
        below);
  }
  if (floor.bytes > budget)
    why += fmt::format("below the floor of any plan, {}, set by {}; ", format_bytes(floor.bytes),
                       describe(graph, floor.op));
  else if (trouble.shortfall)
    why +=
        fmt::format("{} still needs {}; the floor of any plan is {}, set by {}; ",
                    describe(graph, trouble.shortfall->op), format_bytes(trouble.shortfall->needed),
                    format_bytes(floor.bytes), describe(graph, floor.op));
  else
    why += fmt::format("the addresses need {}; the floor of any plan is {}, set by {}; ",
                       format_bytes(trouble.height), format_bytes(floor.bytes),
                       describe(graph, floor.op));
  int64_t enough = std::max(peak_program_order(graph, workspaces), budget + 1);
  for (int i = 0; i < 4 && !works(enough); ++i) enough += enough / 4;
  if (!works(enough))
    return ::outsize::infeasible("planner {}: {}no budget found that would do", name, why);
  int64_t least = least_working(std::max(budget, floor.bytes - 1), enough, works);
  return ::outsize::infeasible("planner {}: {}this planner needs {} ({} bytes)", name, why,
                               format_bytes(least), least);
}

}  // namespace outsize::planning
