#include <algorithm>
#include <set>

#include "outsize/split/choose.h"

namespace outsize {

std::vector<int64_t> held_bytes(const Graph& graph, const std::vector<int64_t>& workspace_bytes) {
  std::vector<std::vector<Interval>> parts(graph.storages.size());
  const auto each_access = [](const Op& op, const auto& visit) {
    for (const auto* list : {&op.reads, &op.makes, &op.mutates})
      for (const Access& access : *list) visit(access);
  };
  for (const Op& op : graph.ops)
    each_access(op, [&](const Access& access) {
      if (!access.bytes.empty()) parts[access.storage.index()].push_back(access.bytes);
    });
  for (size_t s = 0; s < parts.size(); ++s) {
    const Storage& storage = graph.storages[s];
    if (storage.entry || storage.exit || storage.persistent) {
      parts[s] = {{0, storage.bytes}};
      continue;
    }
    std::sort(parts[s].begin(), parts[s].end());
    std::vector<Interval> joined;
    for (const Interval& part : parts[s]) {
      if (!joined.empty() && part.begin < joined.back().end)
        joined.back().end = std::max(joined.back().end, part.end);
      else
        joined.push_back(part);
    }
    parts[s] = std::move(joined);
  }
  std::vector<int64_t> held;
  for (size_t t = 0; t < graph.ops.size(); ++t) {
    std::set<std::pair<StorageId, int64_t>> counted;
    int64_t bytes = workspace_bytes.empty() ? 0 : workspace_bytes[t];
    each_access(graph.ops[t], [&](const Access& access) {
      if (access.bytes.empty()) return;
      const auto& of = parts[access.storage.index()];
      const auto after =
          std::upper_bound(of.begin(), of.end(), access.bytes.begin,
                           [](int64_t at, const Interval& part) { return at < part.begin; });
      OUTSIZE_CHECK(after != of.begin(), "no part of storage {} holds byte {}",
                    access.storage.value, access.bytes.begin);
      if (counted.emplace(access.storage, (after - 1)->begin).second) bytes += (after - 1)->size();
    });
    held.push_back(bytes);
  }
  return held;
}

}  // namespace outsize
