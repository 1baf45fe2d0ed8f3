#include "outsize/bound/holders.h"

#include <algorithm>

#include "outsize/bound/touched.h"

namespace outsize {
namespace {

std::vector<Holder> largest_first(std::vector<Holder> holders) {
  std::erase_if(holders, [](const Holder& h) { return h.bytes == 0; });
  std::sort(holders.begin(), holders.end(), [](const Holder& a, const Holder& b) {
    return a.bytes != b.bytes ? a.bytes > b.bytes : a.storage < b.storage;
  });
  return holders;
}

Holder holder_of(const Graph& graph, StorageId storage, int64_t bytes,
                 const std::vector<OpId>& touched_by) {
  if (touched_by.empty()) return {storage, bytes, {}, {}};
  return {storage, bytes, graph.storage(storage).entry ? OpId() : touched_by.front(),
          touched_by.back()};
}

std::vector<Holder> alive(const Graph& graph, const Liveness& liveness, OpId at) {
  std::vector<Holder> holders;
  for (size_t s = 0; s < graph.storages.size(); ++s) {
    const Storage& storage = graph.storages[s];
    const std::vector<OpId>& touched_by = liveness.touched_by[s];
    const bool here = touched_by.empty() ? storage.entry && storage.exit
                                         : (storage.entry || touched_by.front() <= at) &&
                                               (storage.exit || at <= touched_by.back());
    if (here)
      holders.push_back(
          holder_of(graph, StorageId(static_cast<int64_t>(s)), storage.bytes, touched_by));
  }
  return largest_first(std::move(holders));
}

std::vector<Holder> touched(const Graph& graph, const Liveness& liveness, OpId at) {
  std::vector<Holder> holders;
  for (const auto& [storage, bytes] : touched_bytes(graph, at))
    holders.push_back(holder_of(graph, storage, bytes, liveness.touched_by[storage.index()]));
  return largest_first(std::move(holders));
}

}  // namespace

std::vector<Holder> alive_while(const Graph& graph, OpId at) {
  return alive(graph, liveness_of(graph, {}), at);
}

std::vector<Holder> touched_while(const Graph& graph, OpId at) {
  return touched(graph, liveness_of(graph, {}), at);
}

Explanation explain_bytes(const Graph& graph, const std::vector<int64_t>& workspace_bytes,
                          int64_t device_bytes) {
  const Liveness liveness = liveness_of(graph, workspace_bytes);
  Explanation e;
  e.peak_bytes = liveness.peak_bytes;
  e.peak_op = liveness.peak_op;
  e.floor = floor_of(graph, workspace_bytes);
  e.below_floor = device_bytes < e.floor.bytes;
  e.at = e.below_floor ? e.floor.op : e.peak_op;
  if (!e.at.valid()) return e;
  if (!workspace_bytes.empty()) e.workspace_bytes = workspace_bytes[e.at.index()];
  e.holders = e.below_floor ? touched(graph, liveness, e.at) : alive(graph, liveness, e.at);
  return e;
}

}  // namespace outsize
