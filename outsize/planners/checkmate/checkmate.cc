#include "outsize/planners/checkmate/checkmate.h"

#include <algorithm>
#include <utility>

#include "outsize/planners/checkmate/stage_program.h"
#include "outsize/planners/search.h"

namespace outsize::planning {
namespace {

// Keeps the cheapest of the schedules it is shown that fits.
class Cheapest {
 public:
  Cheapest(const Case& c, const Stages& stages, int64_t capacity)
      : c_(c), stages_(stages), capacity_(capacity) {}
  void show(Saved saved) {
    Staged staged = completed(stages_, std::move(saved));
    if (best_ && staged.rerun_ns >= best_->rerun_ns) return;
    const Decision decision = decision_of(c_, stages_, staged);
    if (peak_of(c_, decision.program, decision.moves) <= capacity_) best_ = std::move(staged);
  }
  std::optional<Staged> best() && { return std::move(best_); }

 private:
  const Case& c_;
  const Stages& stages_;
  const int64_t capacity_;
  std::optional<Staged> best_;
};

// Saves the chosen values for as long as anything reads them, others only over gaps of at most
// `near` stages between two readers.
Saved saves_of(const Stages& stages, const std::vector<char>& chosen, int32_t near) {
  Saved saved = save_everything(stages);
  for (size_t v = 0; v < stages.values.size(); ++v) {
    if (chosen[v]) continue;
    int32_t from = stages.values[v].maker;
    for (int32_t to : stages.values[v].readers) {
      for (int32_t t = from + 1; to - from > near && t <= to; ++t)
        saved[static_cast<size_t>(t)][v] = 0;
      from = to;
    }
    for (int32_t t = from + 1; stages.values[v].exit && t <= stages.count(); ++t)
      saved[static_cast<size_t>(t)][v] = 1;
  }
  return saved;
}

// Values by what a byte of theirs costs to make, dearest first.
std::vector<int32_t> by_price(const Stages& stages) {
  std::vector<int32_t> out;
  for (size_t v = 0; v < stages.values.size(); ++v) out.push_back(static_cast<int32_t>(v));
  auto price = [&](int32_t v) {
    const Stages::Value& value = stages.values[static_cast<size_t>(v)];
    return static_cast<double>(stages.nodes[static_cast<size_t>(value.maker)].ns) /
           static_cast<double>(std::max<int64_t>(value.bytes, 1));
  };
  std::stable_sort(out.begin(), out.end(),
                   [&](int32_t a, int32_t b) { return price(a) > price(b); });
  return out;
}

// Of the relaxation, within the work left; -1 where that is no limit.
int32_t iterations_left(const Deadline& deadline) {
  constexpr int64_t kPerUnit = 2000, kMost = 1'000'000;
  return deadline.work_left() < kMost ? static_cast<int32_t>(deadline.work_left() * kPerUnit) : -1;
}

Status refuse(const Search& search, int32_t ops) {
  if (!search.problem().allow.recompute)
    return bad_input("planner checkmate only recomputes, and recomputing is not allowed; allow it");
  if (ops > kCheckmateMostOps)
    return bad_input(
        "planner checkmate: the step has {} ops, its integer program is for at most {}; dtr and "
        "outsize recompute in larger steps",
        ops, kCheckmateMostOps);
  return Done{};
}

}  // namespace

std::optional<Staged> checkmate_greedy(const Case& c, const Stages& stages, int64_t capacity) {
  constexpr int32_t kNear[] = {8, 2, 1};
  constexpr size_t kShares = 8, kApart[] = {2, 3, 4, 6, 8, 12, 16};
  Cheapest cheapest(c, stages, capacity);
  cheapest.show(save_everything(stages));
  const std::vector<int32_t> prices = by_price(stages);
  const size_t n = stages.values.size();
  for (int32_t near : kNear) {
    for (size_t share = 0; share < kShares; ++share) {
      std::vector<char> chosen(n, 0);
      for (size_t i = 0; i < n * share / kShares; ++i) chosen[static_cast<size_t>(prices[i])] = 1;
      cheapest.show(saves_of(stages, chosen, near));
    }
    for (size_t apart : kApart) {
      std::vector<char> chosen(n, 0);
      for (size_t v = 0; v < n; v += apart) chosen[v] = 1;
      cheapest.show(saves_of(stages, chosen, near));
    }
  }
  return std::move(cheapest).best();
}

std::optional<Staged> checkmate_rounded(const Case& c, const Stages& stages, int64_t capacity,
                                        double seconds, int32_t iterations,
                                        const CheckmateRules& rules) {
  StageProgram program(stages, capacity, rules.free);
  const auto relaxed = program.relaxed(seconds, iterations);
  if (!relaxed) return std::nullopt;
  const std::vector<double> thresholds =
      rules.thresholds ? std::vector<double>{0.5, 0.3, 0.7, 0.1, 0.9, 0.01, 0.99}
                       : std::vector<double>{0.5};
  Cheapest cheapest(c, stages, capacity);
  for (double threshold : thresholds) {
    Saved saved(relaxed->size(), std::vector<char>(stages.values.size(), 0));
    for (size_t t = 0; t < relaxed->size(); ++t)
      for (size_t v = 0; v < saved[t].size(); ++v) saved[t][v] = (*relaxed)[t][v] > threshold;
    cheapest.show(std::move(saved));
  }
  return std::move(cheapest).best();
}

CheckmateSolved checkmate_solved(const Case& c, const Stages& stages, int64_t capacity,
                                 Deadline& deadline, const CheckmateRules& rules) {
  StageProgram program(stages, capacity, rules.free);
  const StageProgram::Solved solved = program.solved(deadline.seconds_left(), deadline.work_left(),
                                                     checkmate_greedy(c, stages, capacity));
  deadline.spend(std::max<int64_t>(1, solved.nodes));
  CheckmateSolved out{std::nullopt, solved.proved, solved.bound_ns};
  if (!solved.saved) return out;
  Cheapest cheapest(c, stages, capacity);
  cheapest.show(*solved.saved);
  out.staged = std::move(cheapest).best();
  return out;
}

Status plan_checkmate(Search& search) {
  const Case& step = search.step();
  if (Status s = refuse(search, static_cast<int32_t>(step.order.size())); !s.ok()) return s;
  const Stages stages = stages_of(step);
  Deadline& deadline = *search.problem().deadline;
  RealiseOptions options;
  options.effort = Effort::kThorough;
  using Form = std::function<std::optional<Staged>(int64_t capacity)>;
  auto plan = [&](const Case& c, Trouble& trouble, const Form& form) {
    return realise_within(
        c,
        [&](int64_t capacity, Trouble& why) -> std::optional<Decision> {
          if (std::optional<Staged> staged = form(capacity)) return decision_of(c, stages, *staged);
          const Decision whole = decision_of(c, stages, completed(stages, save_everything(stages)));
          why.shortfall =
              shortfall_of(whole.program, usage_of(c, whole.program, whole.moves), capacity);
          return std::nullopt;
        },
        trouble, options);
  };
  const auto greedy = [&](const Case& c) {
    return [&](int64_t capacity) { return checkmate_greedy(c, stages, capacity); };
  };
  Trouble trouble;
  if (std::optional<Plan> made = plan(step, trouble, greedy(step))) search.offer(*made);
  deadline.spend(1);
  bool relaxed = false;  // and rounded: the integer program, which is slower, is worth beginning
  const Form forms[] = {[&](int64_t capacity) {
                          if (deadline.reached()) return std::optional<Staged>();
                          std::optional<Staged> staged =
                              checkmate_rounded(step, stages, capacity, deadline.seconds_left(),
                                                iterations_left(deadline));
                          relaxed |= staged.has_value();
                          return staged;
                        },
                        [&](int64_t capacity) {
                          if (deadline.reached()) return std::optional<Staged>();
                          return checkmate_solved(step, stages, capacity, deadline).staged;
                        }};
  for (const Form& form : forms) {
    if (deadline.reached()) break;
    if (&form != forms && !relaxed && iterations_left(deadline) >= 0) break;
    Trouble why;
    if (std::optional<Plan> made = plan(step, why, form)) search.offer(*made);
    deadline.spend(1);
  }
  if (search.best()) return Done{};
  return search.infeasible("checkmate", trouble, works_at(step, [&](const Case& at) {
                             Trouble why;
                             return plan(at, why, greedy(at)).has_value();
                           }));
}

}  // namespace outsize::planning
