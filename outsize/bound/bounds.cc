#include "outsize/bound/bounds.h"

#include <algorithm>

#include "outsize/bound/gaps.h"
#include "outsize/bound/step_program.h"

namespace outsize {
namespace {

using bounding::Grain;
using bounding::LpStatus;
using bounding::Rates;
using bounding::StepBound;
using bounding::StepLimits;

// Whole ns that `bytes` take at `bytes_per_s`; 0 where there are none, or no link to judge by.
int64_t ns_of(int64_t bytes, int64_t bytes_per_s) {
  if (bytes <= 0 || bytes_per_s <= 0) return 0;
  const __int128 wide = static_cast<__int128>(bytes) * 1'000'000'000 + bytes_per_s - 1;
  return static_cast<int64_t>(wide / bytes_per_s);
}

struct BorderBytes {
  int64_t entry = 0;  // there before the step and touched by it
  int64_t exit = 0;   // wanted after the step and written by it
};

BorderBytes border_bytes(const std::vector<Grain>& grains) {
  BorderBytes border;
  for (const Grain& grain : grains) {
    if (grain.entry) border.entry += grain.bytes.size();
    if (grain.exit && !grain.writes.empty()) border.exit += grain.bytes.size();
  }
  return border;
}

// Whatever does not fit on the device at the border must come in, and go out, during the step.
int64_t link_ns(const BorderBytes& border, const Rates& rates, int64_t device_bytes) {
  const int64_t in = std::max<int64_t>(0, border.entry - device_bytes);
  const int64_t out = std::max<int64_t>(0, border.exit - device_bytes);
  int64_t ns =
      std::max(ns_of(in, rates.in + rates.sync_in), ns_of(out, rates.out + rates.sync_out));
  if (rates.both > 0) ns = std::max(ns, ns_of(in + out, rates.both + rates.sync_both));
  return ns;
}

// Likewise for what fits neither on the device nor on the host.
int64_t disk_link_ns(const BorderBytes& border, const Machine& machine, const Budgets& budgets) {
  const int64_t room = budgets.device + budgets.host;
  const int64_t in = std::max<int64_t>(0, border.entry - room);
  const int64_t out = std::max<int64_t>(0, border.exit - room);
  int64_t ns = std::max(ns_of(in, machine.read.bytes_per_s), ns_of(out, machine.write.bytes_per_s));
  if (machine.disk_both_bytes_per_s > 0)
    ns = std::max(ns, ns_of(in + out, machine.disk_both_bytes_per_s));
  return ns;
}

bool applies(HoldsFor holds_for, const BoundOptions& options) {
  switch (holds_for) {
    case HoldsFor::kAnyOrder:
      return true;
    case HoldsFor::kThisOrder:
      return !options.reorder;
    case HoldsFor::kNoRecompute:
      return !options.reorder && !options.recompute;
    case HoldsFor::kNoSwap:
      return !options.reorder && !options.swap;
  }
  return false;
}

// The graph and its costs with the ops in another order; values are left out.
struct Ordered {
  Graph graph;
  Profile profile;
};
Ordered ordered(const Graph& graph, const Profile& profile, const std::vector<OpId>& order) {
  Ordered out;
  out.graph.storages = graph.storages;
  for (OpId id : order) {
    const Op& op = graph.op(id);
    Op& copy = out.graph.ops.emplace_back();
    copy.name = op.name;
    copy.reads = op.reads;
    copy.makes = op.makes;
    copy.mutates = op.mutates;
    out.profile.ops.push_back(
        {profile.ops[id.index()].ns, 0, profile.ops[id.index()].workspace_bytes, false, {}});
  }
  return out;
}

// Above 300 slots bounds on traces of 1,200 to 2,800 ops gain less than 0.02 %, and take two to ten
// times as long.
constexpr int64_t kFewSlots = 300;
constexpr int32_t kFewIterations = 20'000;

}  // namespace

Bound bound_in_order(const Graph& graph, const Profile& profile, const Machine& machine,
                     const std::vector<OpId>& order, const BoundOptions& options) {
  OUTSIZE_CHECK(order.size() == graph.ops.size(), "an order of {} of {} ops", order.size(),
                graph.ops.size());
  const Ordered at = ordered(graph, profile, order);
  BoundOptions quick = options;
  quick.reorder = false;
  quick.most_slots = kFewSlots;
  quick.most_iterations = kFewIterations;
  quick.seconds = bounding::kInfinity;
  if (peak_program_order(at.graph, workspaces_of(at.profile)) <= options.budgets.device)
    quick.swap = quick.recompute = false;  // nothing has to move
  const Bounds bounds = bounds_of(at.graph, at.profile, machine, quick);
  Bound best{"compute", HoldsFor::kAnyOrder, bounds.compute_ns};
  for (const Bound& bound : bounds.bounds)
    if (applies(bound.holds_for, quick) && bound.ns > best.ns) best = bound;
  return best;
}

Bounds bounds_of(const Graph& graph, const Profile& profile, const Machine& machine,
                 const BoundOptions& options) {
  Bounds result;
  const std::vector<int64_t> workspaces = workspaces_of(profile);
  result.floor = floor_of(graph, workspaces);
  result.peak_program_order = peak_program_order(graph, workspaces);
  result.compute_ns = compute_ns(profile);
  result.best_ns = result.compute_ns;
  result.bounds.push_back({"compute", HoldsFor::kAnyOrder, result.compute_ns});
  const Budgets& budgets = options.budgets;
  if (result.floor.bytes > budgets.device) {
    result.infeasible = fmt::format(
        "op {} ({}) alone needs {} bytes on the device, the budget is {}", result.floor.op.value,
        graph.op(result.floor.op).name, result.floor.bytes, budgets.device);
    return result;
  }
  const BorderBytes border = border_bytes(bounding::grains_of(graph));
  const Rates rates = bounding::rates_of(machine, budgets.disk > 0);
  const int64_t below = budgets.host + budgets.disk;
  const int64_t most_held = std::max(border.entry, border.exit);
  if (most_held > budgets.device + below) {
    result.infeasible = fmt::format("{} bytes must be kept between steps, the budgets hold {}",
                                    most_held, budgets.device + below);
    return result;
  }
  result.bounds.push_back({"link", HoldsFor::kAnyOrder, link_ns(border, rates, budgets.device)});
  if (machine.read.bytes_per_s > 0)
    result.bounds.push_back(
        {"disk link", HoldsFor::kAnyOrder, disk_link_ns(border, machine, budgets)});

  struct Program {
    const char* name;
    HoldsFor holds_for;
    bool swap, recompute;
  };
  for (const Program& program : {Program{"swap", HoldsFor::kNoRecompute, true, false},
                                 Program{"recompute", HoldsFor::kNoSwap, false, true},
                                 Program{"swap and recompute", HoldsFor::kThisOrder, true, true}}) {
    // The one that allows all that the planner may, and swap alone, which is sharper where it
    // holds.
    if (program.swap && !options.swap) continue;
    if (program.recompute && !options.recompute) continue;
    if (!program.swap && options.swap) continue;
    StepLimits limits;
    limits.device_bytes = budgets.device;
    limits.away_bytes = below;
    limits.swap = program.swap;
    limits.recompute = program.recompute;
    limits.most_slots = options.most_slots;
    limits.seconds = options.seconds;
    limits.most_iterations = options.most_iterations;
    const StepBound bound = bounding::bound_step(graph, profile, rates, limits);
    if (bound.status == LpStatus::kFailed || bound.status == LpStatus::kInfeasible) continue;
    result.bounds.push_back({program.name, program.holds_for, bound.ns});
  }
  for (const Bound& bound : result.bounds)
    if (applies(bound.holds_for, options)) result.best_ns = std::max(result.best_ns, bound.ns);
  return result;
}

}  // namespace outsize
