#include "outsize/planners/place.h"

#include <algorithm>
#include <array>

#include "outsize/pack/pack.h"

namespace outsize::planning {
namespace {

// Orders of the packer, tried until one fits. "size" and "skyline-size" come within a percent of the best
// of all in most steps, at a tenth of the time.
constexpr std::array<const char*, 2> kQuickMethods = {"size", "skyline-size"};
constexpr std::array<const char*, 2> kThoroughMethods = {"size", "fast"};

int64_t rounded(int64_t bytes, int64_t alignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

// Homes without an address go into the lowest bytes that no settled one has, in order of residencies.
void settle_homes(const Problem& problem, Sequence& sequence, Tier tier, int64_t alignment) {
  std::vector<Interval> taken;
  for (const auto& [reserved_tier, range] : problem.reserved)
    if (reserved_tier == tier) taken.push_back(range);
  const Plan& plan = sequence.plan;
  for (size_t i = 0; i < sequence.stays.size(); ++i)
    if (plan.residencies[i].tier == tier && sequence.stays[i].address)
      taken.push_back(Interval{*sequence.stays[i].address,
                               *sequence.stays[i].address + plan.residencies[i].part.bytes.size()});
  std::sort(taken.begin(), taken.end());
  int64_t at = 0;
  size_t next = 0;
  for (size_t i = 0; i < sequence.stays.size(); ++i) {
    Stay& stay = sequence.stays[i];
    if (plan.residencies[i].tier != tier || !stay.home || stay.address) continue;
    int64_t bytes = plan.residencies[i].part.bytes.size();
    while (next < taken.size() && taken[next].begin < at + bytes) {
      at = std::max(at, rounded(taken[next].end, alignment));
      ++next;
    }
    stay.address = at;
    at = rounded(at + bytes, alignment);
  }
}

}  // namespace

Placement place(const Problem& problem, Sequence& sequence, Effort effort) {
  Placement out;
  out.fits = true;
  Plan& plan = sequence.plan;
  for (Tier tier : {Tier::kDevice, Tier::kHost}) {
    int64_t alignment = problem.machine->alignment;
    settle_homes(problem, sequence, tier, alignment);
    std::vector<Buffer> buffers;
    std::vector<std::pair<bool, size_t>> owners;  // workspace of an instruction, or residency
    for (size_t i = 0; i < sequence.stays.size(); ++i) {
      if (plan.residencies[i].tier != tier) continue;
      const Stay& stay = sequence.stays[i];
      int64_t bytes = plan.residencies[i].part.bytes.size();
      Buffer b;
      b.id = static_cast<int64_t>(i);
      b.life = stay.life;
      b.size = bytes;
      b.alignment = alignment;
      b.offset = stay.address;
      buffers.push_back(std::move(b));
      owners.emplace_back(false, i);
    }
    if (tier == Tier::kDevice) {
      for (size_t i = 0; i < plan.instructions.size(); ++i) {
        if (plan.instructions[i].workspace.empty()) continue;
        Buffer b;
        b.id = static_cast<int64_t>(sequence.stays.size() + i);
        b.life = {static_cast<int64_t>(i), static_cast<int64_t>(i) + 1};
        b.size = plan.instructions[i].workspace.size();
        b.alignment = alignment;
        buffers.push_back(std::move(b));
        owners.emplace_back(true, i);
      }
    }
    for (const auto& [reserved_tier, range] : problem.reserved) {
      if (reserved_tier != tier) continue;
      Buffer b;
      b.id = static_cast<int64_t>(buffers.size());
      b.life = {0, static_cast<int64_t>(plan.instructions.size()) + 1};
      b.size = range.size();
      b.offset = range.begin;
      buffers.push_back(std::move(b));
    }
    PackOptions options;
    options.capacity = problem.budgets.of(tier);
    options.seed = problem.seed;
    Packing packing;
    bool first = true;
    for (const char* method : effort == Effort::kQuick ? kQuickMethods : kThoroughMethods) {
      options.method = method;
      Packing tried = pack(buffers, options);
      if (first || tried.height < packing.height) packing = std::move(tried);
      first = false;
      if (packing.fits() || packing.proved_infeasible || packing.conflict) break;
    }
    OUTSIZE_CHECK(!packing.conflict, "homes on {} collide", kTierNames.name(tier));
    size_t t = static_cast<size_t>(tier);
    out.height[t] = packing.height;
    out.lowest[t] = packing.lower_bound;
    out.fits &= packing.fits() && packing.height <= problem.budgets.of(tier);
    for (size_t b = 0; b < owners.size(); ++b) {
      auto [workspace, index] = owners[b];
      if (workspace)
        plan.instructions[index].workspace =
            plan.instructions[index].workspace.shifted(packing.offsets[b]);
      else
        plan.residencies[index].address = packing.offsets[b];
    }
  }
  return out;
}

}  // namespace outsize::planning
