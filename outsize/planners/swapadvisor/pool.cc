#include "outsize/planners/swapadvisor/pool.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <queue>
#include <tuple>

#include "outsize/base/bytes.h"

namespace outsize::planning::swapadvisor {
namespace {

std::vector<Interval> taken_of(const Case& c, Tier tier) {
  std::vector<Interval> taken;
  for (const auto& [reserved, range] : c.problem->reserved)
    if (reserved == tier) taken.push_back(range);
  for (const Home& home : c.problem->border)
    if (home.tier == tier)
      taken.push_back({home.address, home.address + c.problem->graph->storage(home.storage).bytes});
  std::sort(taken.begin(), taken.end());
  return taken;
}

// Host and disk, by exact size; false where that takes more than the budget.
bool place_below(const Case& c, Sequence& sequence, Tier tier, int64_t& height) {
  const Problem& problem = *c.problem;
  int64_t alignment =
      tier == Tier::kDisk ? problem.machine->disk_alignment : problem.machine->alignment;
  int64_t fresh = 0;
  for (const Interval& range : taken_of(c, tier)) fresh = std::max(fresh, range.end);
  height = fresh;
  fresh = round_up(fresh, alignment);
  std::vector<size_t> order;
  for (size_t i = 0; i < sequence.stays.size(); ++i)
    if (sequence.plan.residencies[i].tier == tier) order.push_back(i);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return sequence.stays[a].life.begin < sequence.stays[b].life.begin;
  });
  std::map<int64_t, std::vector<int64_t>> free;        // by size
  using Busy = std::tuple<int64_t, int64_t, int64_t>;  // until, size, address
  std::priority_queue<Busy, std::vector<Busy>, std::greater<>> busy;
  for (size_t i : order) {
    const Stay& stay = sequence.stays[i];
    Residency& r = sequence.plan.residencies[i];
    if (stay.address) {
      r.address = *stay.address;
      height = std::max(height, r.range().end);
      continue;
    }
    for (; !busy.empty() && std::get<0>(busy.top()) <= stay.life.begin; busy.pop())
      free[std::get<1>(busy.top())].push_back(std::get<2>(busy.top()));
    int64_t bytes = round_up(r.part.bytes.size(), alignment);
    std::vector<int64_t>& slots = free[bytes];
    if (slots.empty()) {
      slots.push_back(fresh);
      fresh += bytes;
    }
    r.address = slots.back();
    slots.pop_back();
    height = std::max(height, r.address + bytes);
    busy.emplace(stay.life.end, bytes, r.address);
  }
  return height <= problem.budgets.of(tier);
}

}  // namespace

Pool pool_of(const Case& c) {
  Pool pool;
  pool.alignment = c.problem->machine->alignment;
  const Graph& graph = *c.problem->graph;
  size_t n = c.parts.parts.size();
  std::vector<int64_t> bytes(n);
  std::vector<bool> pinned(n, false);
  for (size_t p = 0; p < n; ++p) {
    const PartInfo& part = c.parts.parts[p];
    bytes[p] = c.homes[p] == 1 ? 0 : device_bytes_of(c, part);
    pinned[p] = !part.persistent && (part.entry || part.exit);
    if (bytes[p] > 0) pool.limits.sizes.push_back(bytes[p]);
  }
  std::vector<int64_t>& sizes = pool.limits.sizes;
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  pool.limits.tensors.assign(sizes.size(), 0);
  pool.size_of_part.assign(n, -1);
  std::vector<int32_t> always;
  for (size_t p = 0; p < n; ++p) {
    if (bytes[p] == 0) continue;
    auto at = std::lower_bound(sizes.begin(), sizes.end(), bytes[p]) - sizes.begin();
    pool.size_of_part[p] = static_cast<int32_t>(at);
    ++pool.limits.tensors[static_cast<size_t>(at)];
    if (pinned[p]) always.push_back(static_cast<int32_t>(at));
  }
  for (size_t op = 0; op < graph.ops.size(); ++op) {
    std::vector<int32_t> parts = c.parts.of_op[op];
    std::sort(parts.begin(), parts.end());
    parts.erase(std::unique(parts.begin(), parts.end()), parts.end());
    std::vector<int32_t> here = always;
    for (int32_t p : parts)
      if (pool.size_of_part[static_cast<size_t>(p)] >= 0 && !pinned[static_cast<size_t>(p)])
        here.push_back(pool.size_of_part[static_cast<size_t>(p)]);
    pool.limits.together.push_back(std::move(here));
    pool.scratch_bytes = std::max(
        pool.scratch_bytes,
        round_up(c.problem->profile->ops[op].workspace_bytes, c.problem->machine->alignment));
  }
  pool.taken = taken_of(c, Tier::kDevice);
  int64_t settled = 0;
  for (const Interval& range : pool.taken) settled += range.size();
  pool.limits.capacity = c.problem->budgets.device - pool.scratch_bytes - settled;
  return pool;
}

int64_t least_bytes(const Pool& pool) {
  Classes classes = tightest_classes(pool.limits);
  int64_t bytes = pool.scratch_bytes;
  for (const Interval& range : pool.taken) bytes += range.size();
  return bytes + pool_bytes(least_counts(classes, pool.limits), classes, pool.limits.sizes);
}

Rooms rooms_of(const Pool& pool, const Classes& classes, const Counts& counts) {
  Rooms rooms;
  for (int32_t size : pool.size_of_part) {
    rooms.class_of.push_back(size < 0 ? -1 : classes[static_cast<size_t>(size)]);
    rooms.takes.push_back(1);
  }
  rooms.room = counts;
  return rooms;
}

std::optional<Layout> lay_out(const Pool& pool, const Classes& classes, const Counts& counts,
                              int64_t budget) {
  std::vector<int64_t> object = object_bytes(classes, pool.limits.sizes);
  std::vector<Interval> gaps;  // between what is taken
  int64_t at = 0;
  for (const Interval& range : pool.taken) {
    if (range.begin > at) gaps.push_back({at, range.begin});
    at = std::max(at, range.end);
  }
  if (budget > at) gaps.push_back({at, budget});
  Layout layout;
  for (const Interval& range : pool.taken) layout.height = std::max(layout.height, range.end);
  // Every size is a multiple of the alignment, but what is taken may end anywhere.

  auto put = [&](int64_t bytes) -> std::optional<int64_t> {
    for (Interval& gap : gaps) {
      int64_t begin = round_up(gap.begin, pool.alignment);
      if (begin + bytes > gap.end) continue;
      gap.begin = begin + bytes;
      layout.height = std::max(layout.height, gap.begin);
      return begin;
    }
    return std::nullopt;
  };
  layout.objects.resize(counts.size());
  for (size_t c = counts.size(); c-- > 0;)
    for (int64_t k = 0; k < counts[c]; ++k) {
      std::optional<int64_t> address = put(object[c]);
      if (!address) return std::nullopt;
      layout.objects[c].push_back(*address);
    }
  if (pool.scratch_bytes > 0) {
    std::optional<int64_t> address = put(pool.scratch_bytes);
    if (!address) return std::nullopt;
    layout.scratch = *address;
  }
  return layout;
}

Placer pool_placer(const Case& c, const Rooms& rooms, const Layout& layout,
                   const std::vector<std::vector<int64_t>>& objects) {
  return [&c, &rooms, &layout, &objects](const Problem& problem, Sequence& sequence) {
    std::map<std::pair<int32_t, int64_t>, size_t> part_at;  // by storage and first byte
    for (size_t p = 0; p < c.parts.parts.size(); ++p) {
      const Access& where = c.parts.parts[p].where;
      part_at[{where.storage.value, where.bytes.begin}] = p;
    }
    std::vector<size_t> stays(c.parts.parts.size(), 0);
    Plan& plan = sequence.plan;
    for (size_t i = 0; i < plan.residencies.size(); ++i) {
      Residency& r = plan.residencies[i];
      if (r.tier != Tier::kDevice) continue;
      size_t p = part_at.at({r.part.storage.value, r.part.bytes.begin});
      if (sequence.stays[i].address) {
        r.address = *sequence.stays[i].address;
      } else if (rooms.class_of[p] >= 0) {
        OUTSIZE_CHECK(stays[p] < objects[p].size(), "part {} has {} stays, {} were planned", p,
                      stays[p] + 1, objects[p].size());
        size_t object = static_cast<size_t>(objects[p][stays[p]++]);
        r.address = layout.objects[static_cast<size_t>(rooms.class_of[p])][object];
      }
    }
    for (Instruction& instruction : plan.instructions)
      if (!instruction.workspace.empty())
        instruction.workspace = instruction.workspace.shifted(layout.scratch);
    Placement out;
    out.height[0] = layout.height;
    out.fits = true;
    for (Tier tier : {Tier::kHost, Tier::kDisk}) {
      int64_t& height = out.height[static_cast<size_t>(tier)];
      if (place_below(c, sequence, tier, height)) continue;
      Sequence packed = sequence;
      Placement tight = place(problem, packed, Effort::kQuick);
      height = tight.height[static_cast<size_t>(tier)];
      for (size_t i = 0; i < plan.residencies.size(); ++i)
        if (plan.residencies[i].tier == tier)
          plan.residencies[i].address = packed.plan.residencies[i].address;
    }
    return out;
  };
}

}  // namespace outsize::planning::swapadvisor
