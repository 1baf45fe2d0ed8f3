#include "outsize/planners/realise.h"

#include <algorithm>

#include "outsize/base/bytes.h"

namespace outsize::planning {
namespace {

constexpr int kRepairs = 8;

Chooser counter(const Case& c, int64_t capacity) {
  ChooseParams params;
  params.capacity = capacity;
  return Chooser(*c.problem, Prices{}, params);
}

}  // namespace

std::optional<Plan> realise(const Case& c, const Decision& decision, Trouble& trouble,
                            const RealiseOptions& options) {
  Sequence sequence = write_sequence(*c.problem, decision.program, decision.moves, options.copies);
  Placement placement = options.placer ? options.placer(*c.problem, sequence)
                                       : place(*c.problem, sequence, options.effort);
  return lower_placed(c, std::move(sequence), placement, trouble);
}

std::optional<Plan> realise_within(const Case& c, const Decide& decide, Trouble& trouble,
                                   const RealiseOptions& options) {
  int64_t budget = c.problem->budgets.device, capacity = budget;
  for (int attempt = 0; attempt < kRepairs && capacity > 0; ++attempt) {
    Trouble why;
    std::optional<Decision> decision = decide(capacity, why);
    if (!decision) {
      // What the addresses asked for at the capacity before stands as the trouble.
      if (attempt == 0) trouble = why;
      return std::nullopt;
    }
    if (std::optional<Plan> plan = realise(c, *decision, trouble, options)) return plan;
    if (trouble.tier != Tier::kDevice) return std::nullopt;
    capacity -= std::max<int64_t>(trouble.height - budget, budget / 200 + 1);
  }
  return std::nullopt;
}

std::vector<int64_t> op_times(const Case& c, const Program& program) {
  std::vector<int64_t> times;
  for (int32_t s : program.order())
    times.push_back(c.problem->profile->ops[program.step(s).op.index()].ns);
  return times;
}

std::vector<int64_t> starts_of(const Case& c, const Program& program) {
  std::vector<int64_t> starts{0};
  for (int64_t ns : op_times(c, program)) starts.push_back(starts.back() + ns);
  return starts;
}

std::vector<int64_t> usage_of(const Case& c, const Program& program,
                              const std::vector<Move>& moves) {
  std::vector<int64_t> usage = counter(c, 0).usage(program);
  std::vector<int64_t> delta(usage.size() + 1, 0);
  auto hold = [&](int32_t from, int32_t to, int64_t bytes) {
    if (from >= to) return;
    delta[static_cast<size_t>(from)] += bytes;
    delta[static_cast<size_t>(to)] -= bytes;
  };
  for (const Move& m : moves) {
    int64_t bytes = device_bytes_of(c, program.part_of(m.instance));
    if (m.returns && m.touch >= 0 && m.release >= m.arrive) {
      hold(m.from + 1, m.to, bytes);  // never away
      continue;
    }
    if (m.touch >= 0) hold(m.from + 1, m.release, bytes);
    if (m.returns) hold(m.arrive, m.to, bytes);
  }
  int64_t more = 0;
  for (size_t r = 0; r < usage.size(); ++r) usage[r] += more += delta[r];
  return usage;
}

int64_t peak_of(const Case& c, const Program& program, const std::vector<Move>& moves) {
  const std::vector<int64_t> usage = usage_of(c, program, moves);
  return usage.empty() ? 0 : *std::max_element(usage.begin(), usage.end());
}

std::optional<Shortfall> shortfall_of(const Program& program, const std::vector<int64_t>& usage,
                                      int64_t capacity) {
  auto most = std::max_element(usage.begin(), usage.end());
  if (most == usage.end() || *most <= capacity) return std::nullopt;
  int32_t step = program.order()[static_cast<size_t>(most - usage.begin())];
  return Shortfall{program.step(step).op, *most, capacity};
}

int64_t device_bytes_of(const Case& c, const PartInfo& part) {
  return round_up(part.bytes(), c.problem->machine->alignment);
}

int64_t copy_ns_of(const Link& link, int64_t bytes) {
  if (link.bytes_per_s <= 0) return kNeverNs;
  return link.latency_ns + static_cast<int64_t>(static_cast<double>(bytes) * 1e9 /
                                                static_cast<double>(link.bytes_per_s));
}

std::vector<Move> timed_moves(const Case& c, const Program& program, int64_t capacity,
                              double slack) {
  return schedule_moves(*c.problem, counter(c, capacity), program, CopyStyle::kWriteBehind, slack);
}

std::function<bool(int64_t)> works_at(const Case& c, std::function<bool(const Case&)> plans) {
  return [&c, plans = std::move(plans)](int64_t device_budget) {
    Problem other = *c.problem;
    other.budgets.device = device_budget;
    Case at = c;
    at.problem = &other;
    return plans(at);
  };
}

}  // namespace outsize::planning
