#include "outsize/bound/gaps.h"

#include <algorithm>

namespace outsize::bounding {
namespace {

struct Touch {
  Interval bytes;
  Moment op;
  bool writes;
};

void push_once(std::vector<Moment>& list, Moment op) {
  if (list.empty() || list.back() != op) list.push_back(op);
}

}  // namespace

std::vector<Grain> grains_of(const Graph& graph) {
  std::vector<std::vector<Touch>> touches(graph.storages.size());
  for (size_t t = 0; t < graph.ops.size(); ++t) {
    const Op& op = graph.ops[t];
    const auto add = [&](const std::vector<Access>& accesses, bool writes) {
      for (const Access& access : accesses)
        if (!access.bytes.empty())
          touches[access.storage.index()].push_back({access.bytes, static_cast<Moment>(t), writes});
    };
    add(op.reads, false);
    add(op.makes, true);
    add(op.mutates, true);
  }
  const auto end = static_cast<Moment>(graph.ops.size());
  std::vector<Grain> grains;
  for (size_t s = 0; s < touches.size(); ++s) {
    std::vector<int64_t> cuts;
    for (const Touch& touch : touches[s]) {
      cuts.push_back(touch.bytes.begin);
      cuts.push_back(touch.bytes.end);
    }
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    const Storage& storage = graph.storages[s];
    for (size_t c = 0; c + 1 < cuts.size(); ++c) {
      Grain grain;
      grain.storage = StorageId(static_cast<int64_t>(s));
      grain.bytes = {cuts[c], cuts[c + 1]};
      for (const Touch& touch : touches[s]) {
        if (!touch.bytes.contains(grain.bytes)) continue;
        push_once(grain.uses, touch.op);
        if (touch.writes) push_once(grain.writes, touch.op);
      }
      if (grain.uses.empty()) continue;
      grain.entry = storage.entry;
      grain.exit = storage.exit;
      grain.wraps = storage.persistent && storage.entry && storage.exit;
      grain.birth = storage.entry ? 0 : grain.uses.front();
      grain.death = storage.exit ? end - 1 : grain.uses.back();
      // Neighbours that every op touches alike are one grain.
      if (!grains.empty() && grains.back().storage == grain.storage &&
          grains.back().bytes.end == grain.bytes.begin && grains.back().uses == grain.uses &&
          grains.back().writes == grain.writes)
        grains.back().bytes.end = grain.bytes.end;
      else
        grains.push_back(std::move(grain));
    }
  }
  return grains;
}

std::vector<Gap> gaps_of(const Grain& grain, size_t grain_index, Moment ops) {
  std::vector<Gap> gaps;
  // The op of this step that wrote what lies there after op t; -1 if none has.
  const auto writer_at = [&](Moment t) {
    const auto next = std::upper_bound(grain.writes.begin(), grain.writes.end(), t);
    return next == grain.writes.begin() ? Moment{-1} : *(next - 1);
  };
  const auto add = [&](Moment a, Moment b, GapKind kind) {
    Gap gap{grain_index, a, b, kind, writer_at(a), false, false};
    if (gap.writer < 0) {
      if (grain.wraps && !grain.writes.empty()) {
        gap.writer = grain.writes.back();
        gap.last_step = true;
      } else {
        gap.clean = true;
      }
    }
    gaps.push_back(gap);
  };
  const std::vector<Moment>& uses = grain.uses;
  if (grain.entry && !grain.wraps && uses.front() > 0) add(-1, uses.front(), GapKind::kBefore);
  for (size_t i = 0; i + 1 < uses.size(); ++i)
    if (uses[i + 1] > uses[i] + 1) add(uses[i], uses[i + 1], GapKind::kInner);
  const bool at_end = uses.back() == ops - 1;
  if (grain.wraps) {
    if (!(at_end && uses.front() == 0)) add(uses.back(), uses.front(), GapKind::kWrap);
  } else if (grain.exit && !at_end) {
    add(uses.back(), ops, GapKind::kAfter);
  }
  return gaps;
}

}  // namespace outsize::bounding
