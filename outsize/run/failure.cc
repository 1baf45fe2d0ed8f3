#include "outsize/run/failure.h"

#include <set>

namespace outsize {
namespace {

struct HomeRange {
  StorageId storage;
  Tier tier = Tier::kDevice;
  Interval range;
};

std::vector<HomeRange> entry_homes(const Plan& plan) {
  std::vector<HomeRange> homes;
  for (const BorderItem& item : plan.entry) {
    if (!item.home) continue;
    const Residency& residency = plan.residency(item.residency);
    homes.push_back({residency.part.storage, residency.tier, residency.range()});
  }
  return homes;
}

}  // namespace

Failure failure_after(const Graph& graph, const Plan& plan, const Program& program,
                      const std::array<int64_t, kStreams>& begun) {
  const std::vector<HomeRange> homes = entry_homes(plan);
  std::set<StorageId> changed, displaced;
  for (size_t s = 0; s < begun.size(); ++s)
    for (size_t i = 0; i < static_cast<size_t>(begun[s]); ++i) {
      const ProgramStep& step = program.streams[s][i];
      for (const Touch& touch : touches_of(graph, plan, step.instruction)) {
        if (!touch.writes) continue;
        if (step.kind != InstructionKind::kCopy && touch.storage.valid()) {
          const Storage& storage = graph.storage(touch.storage);
          if (storage.persistent && storage.entry) changed.insert(touch.storage);
        }
        for (const HomeRange& home : homes)
          if (home.storage != touch.storage && home.tier == touch.tier &&
              home.range.overlaps(touch.range))
            displaced.insert(home.storage);
      }
    }
  return {InstructionId{}, {changed.begin(), changed.end()}, {displaced.begin(), displaced.end()}};
}

}  // namespace outsize
