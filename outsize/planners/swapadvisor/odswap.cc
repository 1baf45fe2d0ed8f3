// `odswap`: SwapAdvisor's baseline (ASPLOS'20, section 6.1): program order, no size classes; what
// lies unused longest leaves when room is short, and copies in come before the op that needs them,
// by what a first iteration has found. The paper says no more than "LRU" and "prefetch"; here a
// swap begins one op ahead of the op that makes it necessary, and the first iteration is the scan's
// first pass.
#include <algorithm>

#include "outsize/planners/plan_once.h"
#include "outsize/planners/swapadvisor/scan.h"

namespace outsize::planning {
namespace {

using swapadvisor::Rooms;

swapadvisor::SwapRules on_demand() {
  swapadvisor::SwapRules rules;
  rules.belady = false;
  rules.recency = 0;
  rules.early = false;
  rules.ahead = 1;
  return rules;
}

// One class of all bytes.
Rooms bytes_of(const Case& c, int64_t capacity) {
  Rooms rooms;
  rooms.objects = false;
  rooms.room = {capacity};
  for (size_t p = 0; p < c.parts.parts.size(); ++p) {
    int64_t bytes = device_bytes_of(c, c.parts.parts[p]);
    rooms.class_of.push_back(bytes == 0 || c.homes[p] == 1 ? -1 : 0);
    rooms.takes.push_back(bytes);
  }
  return rooms;
}

// Bytes that are not the scan's to give: the largest workspace, settled homes, reserved ranges.
int64_t others(const Case& c) {
  int64_t bytes = 0;
  for (const OpCost& cost : c.problem->profile->ops) bytes = std::max(bytes, cost.workspace_bytes);
  for (size_t p = 0; p < c.parts.parts.size(); ++p)
    if (c.homes[p] == 1) bytes += device_bytes_of(c, c.parts.parts[p]);
  for (const auto& [tier, range] : c.problem->reserved)
    if (tier == Tier::kDevice) bytes += range.size();
  return bytes;
}

std::optional<Plan> plan_at(const Case& c, Trouble& trouble) {
  auto decide = [&](int64_t capacity, Trouble& why) -> std::optional<Decision> {
    std::optional<swapadvisor::Swaps> swaps =
        plan_swaps(c, bytes_of(c, capacity - others(c)), on_demand(), why);
    if (!swaps) return std::nullopt;
    if (swaps->swapped > 0 && !c.problem->allow.swap) {
      why = {std::nullopt, capacity + 1, Tier::kDevice, {}};
      return std::nullopt;
    }
    return std::move(swaps->decision);
  };
  RealiseOptions options;
  options.effort = Effort::kThorough;
  return realise_within(c, decide, trouble, options);
}

}  // namespace

Status plan_odswap(Search& search) { return plan_once(search, "odswap", plan_at); }

}  // namespace outsize::planning
