#include "outsize/planners/atp.h"

#include <algorithm>
#include <map>

namespace outsize::planning {
namespace {

constexpr int kMostRounds = 2000;
constexpr int64_t kNoRoom = int64_t{1} << 40;  // ns; a price nobody pays

enum class Way : int8_t { kSwap, kRecompute };

// A gap over the step where room is short.
struct Candidate {
  int32_t instance = 0;
  int32_t step = 0;  // of the touch before the gap; touches move when ops are run again
  int64_t bytes = 0;
  double free_ns = 0;    // between the end of its copy out and the latest start of its copy in
  double swap_ns = 0;    // both copies, if nothing hides them
  double remake_ns = 0;  // negative: can't be
  AtpWish wish = AtpWish::kByModel;
};

class Decider {
 public:
  Decider(const Case& c, const StepShape& shape, const AtpTarget& target,
          const std::vector<AtpWish>& wishes, int64_t capacity, const AtpParams& params)
      : c_(c),
        target_(target),
        wishes_(wishes),
        capacity_(capacity),
        params_(params),
        program_(plain_program(c)),
        may_swap_(can_swap(*c.problem)) {
    for (const Remake& r : shape.remakes) remake_ns_[r.storage.value] = r.ns;
  }

  std::optional<Decision> decide(Trouble& trouble) {
    for (int round = 0; round < kMostRounds; ++round) {
      usage_ = usage_of(c_, program_, {});
      const std::optional<Shortfall> shortfall = shortfall_of(program_, usage_, capacity_);
      if (!shortfall) return timed();
      if (!relieve()) {
        trouble.shortfall = shortfall;
        return std::nullopt;
      }
    }
    trouble.shortfall = shortfall_of(program_, usage_, capacity_);
    return std::nullopt;
  }

 private:
  std::optional<Decision> timed() {
    std::vector<Move> moves =
        params_.pool ? timed_moves(c_, program_, capacity_) : moves_of(program_);
    if (shortfall_of(program_, usage_of(c_, program_, moves), capacity_))
      moves = moves_of(program_);
    if (params_.pool) fetch_earlier(moves);
    return Decision{std::move(program_), std::move(moves)};
  }

  // A copy in whose room was freed by a step that waited may start before its planned rank.
  void fetch_earlier(std::vector<Move>& moves) const {
    const std::vector<int64_t> starts = starts_of(c_, program_);
    std::vector<int64_t> usage = usage_of(c_, program_, moves);
    for (Move& m : moves) {
      if (!m.returns) continue;
      const PartInfo& part = program_.part_of(m.instance);
      const int64_t bytes = device_bytes_of(c_, part);
      const int64_t latest =
          starts[static_cast<size_t>(m.to)] - copy_ns_of(c_.problem->machine->in, part.bytes());
      while (m.arrive > m.release && starts[static_cast<size_t>(m.arrive)] > latest) {
        int64_t& before = usage[static_cast<size_t>(m.arrive) - 1];
        if (before + bytes > capacity_) break;
        before += bytes;
        --m.arrive;
      }
    }
  }

  // Sends away what the step with most bytes has too many; false where nothing more can go.
  bool relieve() {
    const auto rank =
        static_cast<int32_t>(std::max_element(usage_.begin(), usage_.end()) - usage_.begin());
    int64_t need = usage_[static_cast<size_t>(rank)] - capacity_;
    std::vector<Candidate> candidates = candidates_over(rank);
    bool any = false;
    while (need > 0 && !candidates.empty()) {
      const auto [index, way] = next(candidates);
      const Candidate chosen = candidates[index];
      candidates.erase(candidates.begin() + static_cast<std::ptrdiff_t>(index));
      if (!send(chosen, way)) continue;
      need -= chosen.bytes;
      any = true;
    }
    return any;
  }

  std::vector<Candidate> candidates_over(int32_t rank) const {
    const std::vector<int64_t> starts = starts_of(c_, program_);
    std::vector<Candidate> out;
    for (size_t i = 0; i < program_.instances().size(); ++i) {
      const Instance& in = program_.instances()[i];
      const PartInfo& part = program_.part_of(static_cast<int32_t>(i));
      if (part.persistent || part.bytes() == 0) continue;
      for (size_t k = 0; k + 1 < in.touches.size(); ++k) {
        const int32_t from = program_.rank(in.touches[k].step);
        const int32_t to = program_.rank(in.touches[k + 1].step);
        if (from >= rank || to <= rank || in.touches[k].away) continue;
        Candidate candidate;
        candidate.instance = static_cast<int32_t>(i);
        candidate.step = in.touches[k].step;
        candidate.bytes = device_bytes_of(c_, part);
        const Machine& machine = *c_.problem->machine;
        candidate.swap_ns = static_cast<double>(copy_ns_of(machine.out, part.bytes())) +
                            static_cast<double>(copy_ns_of(machine.in, part.bytes()));
        candidate.free_ns = static_cast<double>(starts[static_cast<size_t>(to)] -
                                                starts[static_cast<size_t>(from) + 1]) -
                            candidate.swap_ns;
        const auto remake = remake_ns_.find(part.where.storage.value);
        const bool can_remake = c_.problem->allow.recompute && remake != remake_ns_.end();
        candidate.remake_ns = can_remake ? remake->second : -1;
        if (!may_swap_ && !can_remake) continue;
        if (!wishes_.empty()) candidate.wish = wishes_[static_cast<size_t>(in.part)];
        out.push_back(candidate);
      }
    }
    return out;
  }

  // The candidate to send away next, and how: swaps until their target is met, those with most time
  // first; then recomputations, those with most bytes per ns; then whatever costs least per byte.
  std::pair<size_t, Way> next(const std::vector<Candidate>& candidates) const {
    size_t best = 0;
    Way best_way = Way::kSwap;
    std::pair<int, double> best_key{99, 0};
    const auto offer = [&](size_t i, Way way, int level, double cost) {
      if (candidates[i].wish == AtpWish::kKeep) level += 10;
      const std::pair<int, double> key{level, cost};
      if (key >= best_key) return;
      best_key = key, best = i, best_way = way;
    };
    for (size_t i = 0; i < candidates.size(); ++i) {
      const Candidate& c = candidates[i];
      const auto bytes = static_cast<double>(c.bytes);
      const bool can_remake = c.remake_ns >= 0;
      const bool only_remake = c.wish == AtpWish::kRecompute && can_remake;
      const bool only_swap = c.wish == AtpWish::kSwap && may_swap_;
      if (may_swap_ && !only_remake) {
        const bool wanted = only_swap || (params_.model && swapped_ < target_.swap_bytes);
        if (wanted)
          offer(i, Way::kSwap, only_swap ? 0 : 1, -c.free_ns);
        else
          offer(i, Way::kSwap, 3, c.swap_ns / bytes);
      }
      if (can_remake && !only_swap) {
        const bool wanted = params_.model && remade_ < target_.recompute_bytes;
        offer(i, Way::kRecompute, only_remake ? 0 : (wanted ? 2 : 3), c.remake_ns / bytes);
      }
    }
    return {best, best_way};
  }

  bool send(const Candidate& candidate, Way way) {
    Instance& in = program_.instance(candidate.instance);
    size_t k = 0;
    while (k < in.touches.size() && in.touches[k].step != candidate.step) ++k;
    if (k + 1 >= in.touches.size()) return false;  // an earlier recomputation has cut it
    if (way == Way::kRecompute && drop(candidate, k)) {
      remade_ += candidate.bytes;
      return true;
    }
    if (!may_swap_) return false;
    in.touches[k].away = true;
    swapped_ += candidate.bytes;
    return true;
  }

  bool drop(const Candidate& candidate, size_t k) {
    const Program::RunPrice run = run_times(c_);
    // Sources are held for nothing where there is room, or where less than half is held for it;
    // else they are made again.
    const auto hold = [&](int32_t from, int32_t to, int64_t bytes) -> int64_t {
      if (2 * bytes <= candidate.bytes) return 0;
      for (int32_t r = from + 1; r < to && r < static_cast<int32_t>(usage_.size()); ++r)
        if (usage_[static_cast<size_t>(r)] + bytes > capacity_) return kNoRoom;
      return 0;
    };
    const std::optional<Program::Draft> draft =
        program_.draft_drop(candidate.instance, k, run, hold);
    if (!draft || draft->hold_ns >= kNoRoom) return false;
    if (may_swap_ && static_cast<double>(draft->run_ns) > candidate.swap_ns &&
        candidate.wish != AtpWish::kRecompute)
      return false;  // its sources are gone by now: the model's price no longer holds
    program_.drop(candidate.instance, k, *draft);
    return true;
  }

  const Case& c_;
  AtpTarget target_;
  const std::vector<AtpWish>& wishes_;
  int64_t capacity_;
  AtpParams params_;
  Program program_;
  bool may_swap_;
  std::map<int64_t, double> remake_ns_;  // by storage
  std::vector<int64_t> usage_;           // per rank, when the round began
  int64_t swapped_ = 0, remade_ = 0;
};

int64_t bytes_to_go(const Case& c, const StepShape& shape) {
  return std::max<int64_t>(0, shape.peak_bytes - c.problem->budgets.device);
}

// One choice, written out.
std::optional<Plan> atp_plan(const Case& c, const StepShape& shape, const AtpTarget& target,
                             const std::vector<AtpWish>& wishes, const AtpParams& params,
                             Trouble& trouble) {
  RealiseOptions options;
  options.copies = params.streams ? CopyStyle::kWriteBehind : CopyStyle::kBesideOps;
  return realise_within(
      c,
      [&](int64_t capacity, Trouble& why) {
        return decide_atp(c, shape, target, wishes, capacity, params, why);
      },
      trouble, options);
}

// Other splits of the same bytes, a quarter at a time: the model doesn't know which tensors there
// are.
AtpTarget search_split(Search& search, const StepShape& shape, const AtpTarget& from,
                       const AtpParams& params, Trouble& trouble) {
  const Problem& problem = *search.step().problem;
  AtpTarget best = from;
  int64_t best_ns = -1;
  std::vector<AtpTarget> targets{from};
  if (params.search && params.model)
    for (int64_t quarter = 4; quarter >= 0; --quarter) {
      const int64_t need = bytes_to_go(search.step(), shape);
      targets.push_back({need * quarter / 4, need - need * quarter / 4});
    }
  for (const AtpTarget& target : targets) {
    if (best_ns >= 0 && problem.deadline->reached()) break;
    const std::optional<Plan> plan = atp_plan(search.step(), shape, target, {}, params, trouble);
    problem.deadline->spend(1);
    if (!plan) continue;
    const int64_t ns = search.offer(*plan);
    if (best_ns >= 0 && ns >= best_ns) continue;
    best_ns = ns;
    best = target;
  }
  return best;
}

// Local search over the fate of single tensors, from the best split. A wish or a few change at a
// time; what is no slower is gone on from, the best is kept apart by `search`.
void search_tensors(Search& search, const StepShape& shape, const AtpTarget& target,
                    const AtpParams& params) {
  constexpr int kIdleRounds = 80;
  constexpr int64_t kMostChanges = 3;
  const Problem& problem = *search.step().problem;
  std::vector<size_t> parts;
  for (const Stash& stash : stashes_of(*problem.graph))
    for (size_t p = 0; p < search.step().parts.parts.size(); ++p)
      if (search.step().parts.parts[p].where.storage == stash.storage) parts.push_back(p);
  if (parts.empty()) return;
  Random random(problem.seed);
  std::vector<AtpWish> current(search.step().parts.parts.size(), AtpWish::kByModel);
  int64_t current_ns = search.best_ns();
  for (int idle = 0; idle < kIdleRounds && !problem.deadline->reached(); ++idle) {
    problem.deadline->spend(1);
    std::vector<AtpWish> wishes = current;
    for (int64_t n = 1 + random.below(kMostChanges); n > 0; --n)
      wishes[parts[static_cast<size_t>(random.below(static_cast<int64_t>(parts.size())))]] =
          static_cast<AtpWish>(random.below(4));
    Trouble trouble;
    const std::optional<Plan> plan =
        atp_plan(search.step(), shape, target, wishes, params, trouble);
    if (!plan) continue;
    const int64_t before = search.best_ns();
    const int64_t ns = search.offer(*plan);
    if (ns < before) idle = -1;
    if (ns > current_ns) continue;
    current = std::move(wishes);
    current_ns = ns;
  }
}

}  // namespace

AtpTarget atp_target(const Case& c, const StepShape& shape) {
  const Problem& problem = *c.problem;
  ThroughputLimits limits{problem.budgets.device, problem.budgets.host, can_swap(problem),
                          problem.allow.recompute};
  const ThroughputPoint point = best_split(shape, *problem.machine, limits);
  const int64_t need = bytes_to_go(c, shape);
  return {need - point.recompute_bytes, point.recompute_bytes};
}

std::optional<Decision> decide_atp(const Case& c, const StepShape& shape, const AtpTarget& target,
                                   const std::vector<AtpWish>& wishes, int64_t capacity,
                                   const AtpParams& params, Trouble& trouble) {
  return Decider(c, shape, target, wishes, capacity, params).decide(trouble);
}

Status plan_atp_with(Search& search, const AtpParams& params) {
  const Case& c = search.step();
  const Problem& problem = *c.problem;
  const StepShape shape = shape_of(*problem.graph, *problem.profile, 1);
  Trouble trouble;
  const AtpTarget target = search_split(search, shape, atp_target(c, shape), params, trouble);
  if (!search.best())
    return search.infeasible(
        "atp", trouble, works_at(c, [&](const Case& at) {
          Trouble why;
          return atp_plan(at, shape, atp_target(at, shape), {}, params, why).has_value();
        }));
  if (params.search && bytes_to_go(c, shape) > 0) search_tensors(search, shape, target, params);
  return Done{};
}

Status plan_atp(Search& search) { return plan_atp_with(search, {}); }

}  // namespace outsize::planning
