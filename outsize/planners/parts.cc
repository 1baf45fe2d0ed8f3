#include "outsize/planners/parts.h"

#include <algorithm>

namespace outsize::planning {
namespace {

bool holds_scalar(const Argument& argument) {
  if (std::holds_alternative<ScalarId>(argument.data)) return true;
  if (const auto* list = std::get_if<Argument::List>(&argument.data))
    return std::any_of(list->begin(), list->end(), holds_scalar);
  return false;
}

// Ranges that share bytes (or, `adjacent`, touch) become one; returned disjoint and ascending.
std::vector<Interval> joined(std::vector<Interval> ranges, bool adjacent) {
  std::sort(ranges.begin(), ranges.end());
  std::vector<Interval> out;
  for (const Interval& r : ranges) {
    if (!out.empty() && r.begin < out.back().end + (adjacent ? 1 : 0))
      out.back().end = std::max(out.back().end, r.end);
    else
      out.push_back(r);
  }
  return out;
}

}  // namespace

Parts parts_of(const Graph& graph) {
  size_t storages = graph.storages.size();
  std::vector<std::vector<Interval>> ranges(storages);
  std::vector<std::vector<OperandAccess>> accesses(graph.ops.size());
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    accesses[i] = accesses_of(graph.ops[i]);
    for (const OperandAccess& a : accesses[i])
      ranges[a.access.storage.index()].push_back(a.access.bytes);
  }

  Parts out;
  std::vector<int32_t> first_part(storages + 1, 0);
  for (size_t s = 0; s < storages; ++s) {
    const Storage& storage = graph.storages[s];
    first_part[s] = static_cast<int32_t>(out.parts.size());
    bool border = storage.entry || storage.exit || storage.persistent;
    bool has_empty = std::any_of(ranges[s].begin(), ranges[s].end(),
                                 [](const Interval& r) { return r.empty(); });
    std::vector<Interval> pieces;
    if (border || (has_empty && !ranges[s].empty()))
      pieces = {{0, storage.bytes}};
    else
      pieces = joined(ranges[s], false);
    for (const Interval& piece : pieces) {
      PartInfo part;
      part.where = {StorageId(static_cast<int64_t>(s)), piece};
      part.entry = storage.entry;
      part.exit = storage.exit;
      part.persistent = storage.persistent;
      part.written.emplace_back();
      if (part.entry && !piece.empty()) part.written[0].push_back(piece);
      out.parts.push_back(std::move(part));
    }
  }
  first_part[storages] = static_cast<int32_t>(out.parts.size());

  auto part_of = [&](const Access& access) {
    size_t s = access.storage.index();
    auto begin = out.parts.begin() + first_part[s], end = out.parts.begin() + first_part[s + 1];
    auto after =
        std::upper_bound(begin, end, access.bytes.begin,
                         [](int64_t at, const PartInfo& p) { return at < p.where.bytes.begin; });
    OUTSIZE_CHECK(after != begin, "no part of storage {} holds byte {}", s, access.bytes.begin);
    return static_cast<int32_t>(after - 1 - out.parts.begin());
  };

  out.of_op.resize(graph.ops.size());
  out.use_of_op.resize(graph.ops.size());
  out.rerunnable.resize(graph.ops.size());
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    const Op& op = graph.ops[i];
    OpId id(static_cast<int64_t>(i));
    bool rerunnable = !op.collective && !op.host_sync &&
                      std::none_of(op.results.begin(), op.results.end(), holds_scalar);
    for (const OperandAccess& a : accesses[i]) {
      int32_t p = part_of(a.access);
      PartInfo& part = out.parts[static_cast<size_t>(p)];
      out.of_op[i].push_back(p);
      if (part.uses.empty() || part.uses.back().op != id) {
        int32_t version = part.uses.empty() ? 0 : part.uses.back().after;
        part.uses.push_back({id, false, false, version, version});
      }
      PartUse& use = part.uses.back();
      use.reads |= a.reads;
      if (a.writes && !use.writes) {
        use.writes = true;
        use.after = use.before + 1;
        part.writers.push_back(id);
        part.written.push_back(part.written.back());
      }
      if (a.writes && !a.access.bytes.empty()) {
        part.written.back().push_back(a.access.bytes);
        part.written.back() = joined(std::move(part.written.back()), true);
      }
      if (a.writes && (part.entry || part.persistent)) rerunnable = false;
    }
    out.rerunnable[i] = rerunnable;
    for (int32_t p : out.of_op[i])
      out.use_of_op[i].push_back(out.parts[static_cast<size_t>(p)].uses.back());
  }
  out.accesses = std::move(accesses);
  return out;
}

}  // namespace outsize::planning
