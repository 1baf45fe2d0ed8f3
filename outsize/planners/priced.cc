#include "outsize/planners/priced.h"

#include <algorithm>
#include <map>

#include "outsize/bound/floor.h"
#include "outsize/bound/rates.h"
#include "outsize/bound/step_program.h"
#include "outsize/planners/instance_graph.h"
#include "outsize/planners/realise.h"

namespace outsize::planning {
namespace {

using bounding::GapKind;
using bounding::GapShare;
using bounding::LpStatus;
using bounding::Moment;
using bounding::Rates;
using bounding::StepBound;
using bounding::StepLimits;
using Surcharges = std::map<std::pair<StorageId, Moment>, double>;

constexpr double kRounded = 0.5;  // shares from here on are done in whole
constexpr int kDropRounds = 3;    // drops, then more where their inputs made room short
constexpr int64_t kSlots = 200;   // of the linear programs
constexpr int32_t kIterations = 20'000;
// Shares of the links that the choice of drops counts on: the inputs of what is made again take
// room too, which only the links can then give.
constexpr double kLinkShares[] = {0.8, 0.6, 1.0, 0.4};
// Shares of the budget that swaps are chosen for: whole storages on their way need more room than
// a fluid, and addresses leave some unused.
constexpr double kCapacities[] = {0.97, 0.94, 0.91, 0.87};
constexpr int kTimings = 3;  // of one choice, each with less room for what is on its way
constexpr double kSlacks[] = {1.0, 1.2};  // see schedule_moves

void scale(Rates& rates, double share) {
  for (int64_t* rate :
       {&rates.out, &rates.in, &rates.both, &rates.sync_out, &rates.sync_in, &rates.sync_both})
    *rate = static_cast<int64_t>(share * static_cast<double>(*rate));
}

bool solved(const StepBound& bound) {
  return bound.status == LpStatus::kOptimal || bound.status == LpStatus::kStopped;
}

// What a byte on the device costs over ranks of a program that changes.
class HoldPrices {
 public:
  HoldPrices(const Program& program, const std::vector<bounding::BytePrice>& prices) {
    for (const bounding::BytePrice& price : prices)
      of_step_[program.order()[static_cast<size_t>(price.at)]] = price.ns;
  }
  // To be called after each change of the program.
  void follow(const Program& program) {
    before_.assign(program.size() + 1, 0);
    for (size_t r = 0; r < program.size(); ++r) {
      const auto found = of_step_.find(program.order()[r]);
      before_[r + 1] = before_[r] + (found != of_step_.end() ? found->second : 0);
    }
  }
  // Of ranks (from, to).
  int64_t price(int32_t from, int32_t to, int64_t bytes) const {
    if (to <= from + 1) return 0;
    const double ns = before_[static_cast<size_t>(to)] - before_[static_cast<size_t>(from + 1)];
    return static_cast<int64_t>(ns * static_cast<double>(bytes));
  }

 private:
  std::map<int32_t, double> of_step_;
  std::vector<double> before_;  // per rank
};

class Priced {
 public:
  Priced(Search& search, const Prices& prices, const ChooseParams& params)
      : search_(search), c_(search.step()), prices_(prices), params_(params) {
    const Problem& p = problem();
    for (size_t i = 0; i < p.graph->ops.size(); ++i)
      working_sets_.push_back(working_set_bytes(*p.graph, OpId(static_cast<int64_t>(i))) +
                              p.profile->ops[i].workspace_bytes);
  }

  std::optional<PricedSolution> run() {
    if (!params_.recompute || !params_.swap) {
      realise_best(params_.recompute ? with_drops(scaled(kCapacities[0]), 1.0) : plain_program(c_));
      return std::move(best_);
    }
    for (double share : kLinkShares) {
      if (ended()) break;
      Program program = with_drops(scaled(kCapacities[0]), share);
      const StepBound fluid = solve_step(program, scaled(kCapacities[0]), false, 1.0);
      problem().deadline->spend(1);
      if (solved(fluid) && (!best_ || fluid.value_ns < static_cast<double>(best_->ns)))
        realise_best(program);
    }
    return std::move(best_);
  }

 private:
  const Problem& problem() const { return *c_.problem; }
  bool ended() const { return search_.best() && problem().deadline->reached(); }
  int64_t scaled(double share) const {
    return static_cast<int64_t>(share * static_cast<double>(params_.capacity));
  }

  // Plans with these drops, for less and less capacity while addresses don't fit or plans get
  // faster.
  void realise_best(const Program& program) {
    int64_t least = 0;  // ns, of this program's plans
    for (double share : kCapacities) {
      if (ended()) return;
      const std::optional<int64_t> ns = plan(program, scaled(share));
      problem().deadline->spend(1);
      if (ns && least > 0 && *ns >= least) return;
      if (ns) least = *ns;
    }
  }

  StepBound solve_step(const Program& program, int64_t capacity, bool recompute,
                       double link_share) const {
    const InstanceGraph step = instance_graph(c_, program);
    StepLimits limits;
    limits.device_bytes = capacity;
    limits.away_bytes = problem().budgets.host + problem().budgets.disk;
    limits.swap = params_.swap;
    limits.recompute = recompute;
    limits.most_slots = kSlots;
    limits.seconds = bounding::kInfinity;
    limits.most_iterations = kIterations;
    if (recompute) limits.surcharges = undroppable(program);
    Rates rates = bounding::rates_of(*problem().machine, problem().budgets.disk > 0);
    scale(rates, link_share);
    return bounding::bound_step(step.graph, step.profile, rates, limits);
  }

  // Gaps whose content can't be made again, in the linear program's words.
  Surcharges undroppable(const Program& program) const {
    Surcharges out;
    for (size_t i = 0; i < program.instances().size(); ++i) {
      const auto id = static_cast<int32_t>(i);
      const Instance& in = program.instance(id);
      for (size_t k = 0; k + 1 < in.touches.size(); ++k) {
        const int32_t from = program.rank(in.touches[k].step);
        if (program.rank(in.touches[k + 1].step) - from < 2) continue;
        if (!program.draft_drop(id, k, run_price(), held_for_nothing))
          out[{StorageId(static_cast<int64_t>(i)), from}] = -1;
      }
    }
    return out;
  }

  Program::RunPrice run_price() const {
    return [this](OpId op) -> std::optional<int64_t> {
      if (working_sets_[op.index()] > params_.capacity) return std::nullopt;
      return problem().profile->ops[op.index()].ns;
    };
  }

  // The plain program with the drops that the linear program wants.
  Program with_drops(int64_t capacity, double link_share) {
    Program program = plain_program(c_);
    for (int round = 0; round < kDropRounds && !ended(); ++round) {
      const StepBound bound = solve_step(program, capacity, true, link_share);
      if (!solved(bound)) break;
      std::vector<GapShare> drops;
      for (const GapShare& share : bound.shares)
        if (share.dropped >= kRounded && share.gap.a >= 0) drops.push_back(share);
      // From the last on, so that instances keep their ids before the gaps still to come.
      std::stable_sort(drops.begin(), drops.end(), [](const GapShare& a, const GapShare& b) {
        return a.gap.b != b.gap.b ? a.gap.b > b.gap.b : a.gap.a > b.gap.a;
      });
      HoldPrices holds(program, bound.prices);
      const std::vector<int32_t> step_at = program.order();  // as the shares count
      size_t done = 0;
      for (const GapShare& share : drops)
        done += drop(program, static_cast<int32_t>(share.storage.value),
                     step_at[static_cast<size_t>(share.gap.a)], holds);
      if (done == 0) break;
    }
    return program;
  }

  bool drop(Program& program, int32_t id, int32_t step, HoldPrices& holds) const {
    const Instance& in = program.instance(id);
    const auto touch = std::find_if(in.touches.begin(), in.touches.end(),
                                    [&](const Touch& t) { return t.step == step; });
    if (touch == in.touches.end() || touch + 1 == in.touches.end()) return false;
    const auto k = static_cast<size_t>(touch - in.touches.begin());
    holds.follow(program);
    const std::optional<Program::Draft> draft = program.draft_drop(
        id, k, run_price(),
        [&](int32_t from, int32_t to, int64_t bytes) { return holds.price(from, to, bytes); });
    if (draft) program.drop(id, k, *draft);
    return draft.has_value();
  }

  // The time of the best plan with swaps for this capacity; none where there is no such plan.
  std::optional<int64_t> plan(Program program, int64_t capacity) {
    if (params_.swap) choose_swaps(program, capacity);
    ChooseParams params = params_;
    params.capacity = capacity;
    params.homes = c_.homes;
    Chooser chooser(problem(), prices_, params);
    Random random(problem().seed);
    if (chooser.fit(program, random)) return std::nullopt;
    if (!params_.swap) chooser.prune(program);
    std::optional<int64_t> least;
    for (double slack : kSlacks) {
      const std::optional<int64_t> ns = realise_timed(program, capacity, slack);
      if (ns && (!least || *ns < *least)) least = ns;
      if (!params_.swap || ended()) break;
    }
    return least;
  }

  std::optional<int64_t> realise_timed(const Program& program, int64_t capacity, double slack) {
    const int64_t budget = params_.capacity;
    int64_t room = budget;
    for (int timing = 0; timing < kTimings && room >= capacity / 2; ++timing) {
      Trouble trouble;
      const Decision decision{program, timed_moves(c_, program, room, slack)};
      std::optional<Plan> plan =
          realise(c_, decision, trouble, {CopyStyle::kWriteBehind, Effort::kThorough, {}});
      if (plan) {
        const int64_t ns = search_.offer(*plan);
        if (!best_ || ns < best_->ns)
          best_ = PricedSolution{{program, std::move(*plan), 0, capacity}, ns};
        return ns;
      }
      if (trouble.tier != Tier::kDevice) return std::nullopt;
      room -= std::max<int64_t>(trouble.height - budget, budget / 100);
    }
    return std::nullopt;
  }

  // Sets what is away as the swap program wants.
  void choose_swaps(Program& program, int64_t capacity) {
    const StepBound bound = solve_step(program, capacity, false, 1.0);
    if (!solved(bound)) return;
    for (const GapShare& share : bound.shares)
      if (share.away >= kRounded) leave_home(program, static_cast<int32_t>(share.storage.value));
    for (const GapShare& share : bound.shares)
      if (share.away >= kRounded) set_away(program, share);
  }

  // A persistent storage can be away only if its home is on the host.
  void leave_home(Program& program, int32_t id) {
    Instance& in = program.instance(id);
    if (!program.part_of(id).persistent || c_.homes[static_cast<size_t>(in.part)] == 1) return;
    in.away_at_entry = in.entry;
    if (in.exit) in.touches.back().away = true;
  }

  static void set_away(Program& program, const GapShare& share) {
    const auto id = static_cast<int32_t>(share.storage.value);
    Instance& in = program.instance(id);
    const bool persistent = program.part_of(id).persistent;
    if (persistent && !Chooser::home_on_host(in)) return;
    if (share.gap.kind == GapKind::kBefore && !persistent) in.away_at_entry = true;
    if (share.gap.kind != GapKind::kInner) return;
    for (size_t k = 0; k + 1 < in.touches.size(); ++k)
      if (program.rank(in.touches[k].step) == share.gap.a) in.touches[k].away = true;
  }

  Search& search_;
  const Case& c_;
  const Prices& prices_;
  const ChooseParams& params_;
  std::vector<int64_t> working_sets_;  // per op, workspace included
  std::optional<PricedSolution> best_;
};

}  // namespace

std::optional<PricedSolution> choose_by_prices(Search& search, const Prices& prices,
                                               const ChooseParams& params) {
  return Priced(search, prices, params).run();
}

}  // namespace outsize::planning
