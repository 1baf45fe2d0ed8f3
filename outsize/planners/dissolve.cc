#include "outsize/planners/dissolve.h"

#include <algorithm>

namespace outsize::planning {
namespace {

// Each round dissolves something; this many write-outs are a few seconds at 10,000 steps.
constexpr int kRounds = 60;

bool meets(Interval ranks, int64_t from, int64_t to) {  // steps strictly between the two
  return to - from >= 2 && from + 1 < ranks.end && to > ranks.begin;
}

bool dissolve_instance(const Program& program, Instance& in, Interval ranks) {
  bool changed = false;
  if ((in.entry || in.exit) && !Chooser::home_on_host(in)) {
    in.away_at_entry = in.entry;
    if (in.exit && !in.touches.empty()) in.touches.back().away = true;
    changed = true;
  }
  for (size_t k = 0; k + 1 < in.touches.size(); ++k) {
    Touch& touch = in.touches[k];
    if (touch.away || !meets(ranks, program.rank(touch.step), program.rank(in.touches[k + 1].step)))
      continue;
    touch.away = true;
    changed = true;
  }
  return changed;
}

bool lives_at(const Program& program, const Instance& in, Interval ranks) {
  if (in.touches.empty()) return in.entry && !in.away_at_entry;
  const int64_t first = in.entry && !in.away_at_entry ? -1 : program.rank(in.touches.front().step);
  const int64_t last = in.exit && !in.touches.back().away ? static_cast<int64_t>(program.size())
                                                          : program.rank(in.touches.back().step);
  return first < ranks.end && last >= ranks.begin;
}

}  // namespace

bool dissolve(const Chooser& chooser, Program& program, Interval ranks) {
  bool changed = false;
  for (size_t i = 0; i < program.instances().size(); ++i) {
    Instance& in = program.instance(static_cast<int32_t>(i));
    const PartInfo& part = program.part_of(static_cast<int32_t>(i));
    if (!chooser.may_swap(part, in.part) || !lives_at(program, in, ranks)) continue;
    changed |= dissolve_instance(program, in, ranks);
  }
  return changed;
}

Program all_away(const Case& c, const Chooser& chooser) {
  Program program = plain_program(c);
  dissolve(chooser, program, {0, static_cast<int64_t>(program.size())});
  return program;
}

std::optional<Solution> solve_dissolving(const Case& c, Chooser& chooser, Program program,
                                         Trouble& trouble) {
  const auto steps = static_cast<int64_t>(program.size());
  int64_t margin = 0;
  for (int round = 0; round < kRounds; ++round) {
    if (std::optional<Plan> plan =
            write_plan(c, chooser, program, Style{}, Effort::kThorough, trouble)) {
      const double cost = chooser.cost(program);
      return Solution{std::move(program), std::move(*plan), cost, c.problem->budgets.device};
    }
    if (trouble.tier != Tier::kDevice) return std::nullopt;
    bool changed = false;
    while (!changed && margin <= steps) {
      for (const Interval& ranks : trouble.crowded)
        changed |= dissolve(chooser, program, {ranks.begin - margin, ranks.end + margin});
      if (!changed) margin = 2 * margin + 1;
    }
    if (!changed) return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace outsize::planning
