#include "outsize/planners/place.h"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <numeric>
#include <queue>
#include <tuple>

#include "outsize/base/bytes.h"
#include "outsize/pack/pack.h"

namespace outsize::planning {
namespace {

// Orders of the packer, tried until one fits. "size" and "skyline-size" come within a percent of
// the best of all in most steps, at a tenth of the time.
constexpr std::array<const char*, 2> kQuickMethods = {"size", "skyline-size"};
constexpr std::array<const char*, 2> kThoroughMethods = {"size", "fast"};

// Buffers under this share of the budget are small, and their region must stay under that one.
constexpr int64_t kSmallShare = 20'000;
constexpr int64_t kSmallRegionShare = 250;

// Homes without an address go into the lowest bytes that no settled one has, in order of
// residencies.
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
      at = std::max(at, round_up(taken[next].end, alignment));
      ++next;
    }
    stay.address = at;
    at = round_up(at + bytes, alignment);
  }
}

// Small buffers are most of a step's buffers and next to none of its bytes. Slots of doubling
// sizes, each used again as soon as it is free, place them in a region of their own in no time.
struct SmallRegion {
  std::vector<int64_t> offsets;  // within the region
  int64_t bytes = 0;
};

SmallRegion fill_small_region(const std::vector<Buffer>& buffers, int64_t alignment) {
  SmallRegion out;
  out.offsets.resize(buffers.size());
  std::vector<size_t> order(buffers.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return buffers[a].life.begin < buffers[b].life.begin;
  });
  std::map<int64_t, std::vector<int64_t>> free;        // by slot size
  using Busy = std::tuple<int64_t, int64_t, int64_t>;  // until, slot size, offset
  std::priority_queue<Busy, std::vector<Busy>, std::greater<>> busy;
  for (size_t b : order) {
    for (; !busy.empty() && std::get<0>(busy.top()) <= buffers[b].life.begin; busy.pop())
      free[std::get<1>(busy.top())].push_back(std::get<2>(busy.top()));
    int64_t slot = alignment;
    while (slot < buffers[b].size) slot *= 2;
    std::vector<int64_t>& slots = free[slot];
    if (slots.empty()) {
      slots.push_back(out.bytes);
      out.bytes += slot;
    }
    out.offsets[b] = slots.back();
    slots.pop_back();
    busy.emplace(buffers[b].life.end, slot, out.offsets[b]);
  }
  return out;
}

}  // namespace

Placement place(const Problem& problem, Sequence& sequence, Effort effort) {
  Placement out;
  out.fits = true;
  Plan& plan = sequence.plan;
  for (Tier tier : {Tier::kDevice, Tier::kHost, Tier::kDisk}) {
    const bool far = tier == Tier::kHost;
    const int64_t block = far                   ? problem.block
                          : tier == Tier::kDisk ? problem.machine->disk_alignment
                                                : 1;
    const int64_t alignment = std::max(block, tier == Tier::kDisk ? 1 : problem.machine->alignment);
    settle_homes(problem, sequence, tier, alignment);
    std::vector<Buffer> buffers;
    std::vector<std::pair<bool, size_t>> owners;  // workspace of an instruction, or residency
    for (size_t i = 0; i < sequence.stays.size(); ++i) {
      if (plan.residencies[i].tier != tier) continue;
      const Stay& stay = sequence.stays[i];
      const int64_t bytes = round_up(plan.residencies[i].part.bytes.size(), block);
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
    // Positions of the small ones, if their region is small as well.
    std::vector<size_t> large, small;
    for (size_t b = 0; b < buffers.size(); ++b)
      (buffers[b].size <= problem.budgets.of(tier) / kSmallShare && !buffers[b].offset ? small
                                                                                       : large)
          .push_back(b);
    std::vector<Buffer> small_buffers, to_pack;
    for (size_t b : small) small_buffers.push_back(buffers[b]);
    SmallRegion region = fill_small_region(small_buffers, alignment);
    if (region.bytes > problem.budgets.of(tier) / kSmallRegionShare) {
      large.resize(buffers.size());
      std::iota(large.begin(), large.end(), size_t{0});
      small.clear();
      region = {};
    }
    for (size_t b : large) to_pack.push_back(buffers[b]);
    if (region.bytes > 0) {
      Buffer whole;
      whole.id = -1;
      whole.life = {0, std::max<int64_t>(1, static_cast<int64_t>(plan.instructions.size()))};
      whole.size = region.bytes;
      whole.alignment = alignment;
      to_pack.push_back(whole);
    }
    PackOptions options;
    options.capacity = problem.budgets.of(tier);
    options.seed = problem.seed;
    Packing packing;
    bool first = true;
    for (const char* method : effort == Effort::kQuick ? kQuickMethods : kThoroughMethods) {
      options.method = method;
      Packing tried = pack(to_pack, options);
      if (first || tried.height < packing.height) packing = std::move(tried);
      first = false;
      if (packing.fits() || packing.proved_infeasible || packing.conflict) break;
    }
    OUTSIZE_CHECK(!packing.conflict, "homes on {} collide", kTierNames.name(tier));
    size_t t = static_cast<size_t>(tier);
    out.height[t] = packing.height;
    out.lowest[t] = packing.lower_bound;
    out.fits &= packing.fits() && packing.height <= problem.budgets.of(tier);
    auto settle = [&](size_t b, int64_t offset) {
      if (b >= owners.size()) return;  // reserved: not ours to place
      auto [workspace, index] = owners[b];
      if (workspace)
        plan.instructions[index].workspace = plan.instructions[index].workspace.shifted(offset);
      else
        plan.residencies[index].address = offset;
    };
    for (size_t i = 0; i < large.size(); ++i) settle(large[i], packing.offsets[i]);
    for (size_t i = 0; i < small.size(); ++i)
      settle(small[i], packing.offsets.back() + region.offsets[i]);
  }
  return out;
}

}  // namespace outsize::planning
