#include "outsize/bound/floor.h"

#include <algorithm>

#include "outsize/base/check.h"
#include "outsize/bound/touched.h"

namespace outsize {
namespace {

int64_t workspace_of(const std::vector<int64_t>& workspace_bytes, size_t op) {
  return workspace_bytes.empty() ? 0 : workspace_bytes[op];
}

}  // namespace

int64_t working_set_bytes(const Graph& graph, OpId op) {
  int64_t sum = 0;
  for (const auto& [storage, bytes] : touched_bytes(graph, op)) sum += bytes;
  return sum;
}

Floor floor_of(const Graph& graph, const std::vector<int64_t>& workspace_bytes) {
  OUTSIZE_CHECK(workspace_bytes.empty() || workspace_bytes.size() == graph.ops.size(),
                "{} workspaces for {} ops", workspace_bytes.size(), graph.ops.size());
  Floor floor;
  for (size_t t = 0; t < graph.ops.size(); ++t) {
    const OpId op(static_cast<int64_t>(t));
    const int64_t bytes = working_set_bytes(graph, op) + workspace_of(workspace_bytes, t);
    if (!floor.op.valid() || bytes > floor.bytes) floor = {bytes, op};
  }
  return floor;
}

int64_t peak_program_order(const Graph& graph, const std::vector<int64_t>& workspace_bytes) {
  OUTSIZE_CHECK(workspace_bytes.empty() || workspace_bytes.size() == graph.ops.size(),
                "{} workspaces for {} ops", workspace_bytes.size(), graph.ops.size());
  const size_t ops = graph.ops.size();
  const size_t storages = graph.storages.size();
  constexpr size_t kNever = static_cast<size_t>(-1);
  std::vector<size_t> first(storages, kNever), last(storages, 0);
  for (size_t t = 0; t < ops; ++t)
    for (const auto* list : {&graph.ops[t].reads, &graph.ops[t].makes, &graph.ops[t].mutates})
      for (const Access& access : *list) {
        const size_t s = access.storage.index();
        if (first[s] == kNever) first[s] = t;
        last[s] = t;
      }
  std::vector<int64_t> change(ops + 1, 0);
  for (size_t s = 0; s < storages; ++s) {
    const Storage& storage = graph.storages[s];
    if (storage.persistent) {
      first[s] = 0;
      last[s] = ops - 1;
    } else if (first[s] == kNever && !storage.entry) {
      continue;
    } else {
      if (storage.entry) first[s] = 0;
      if (storage.exit) last[s] = ops - 1;
    }
    if (ops == 0) continue;
    change[first[s]] += storage.bytes;
    change[last[s] + 1] -= storage.bytes;
  }
  int64_t live = 0, peak = 0;
  for (size_t t = 0; t < ops; ++t) {
    live += change[t];
    peak = std::max(peak, live + workspace_of(workspace_bytes, t));
  }
  return peak;
}

}  // namespace outsize
