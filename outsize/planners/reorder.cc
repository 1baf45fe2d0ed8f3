#include "outsize/planners/reorder.h"

#include <queue>

#include "outsize/graph/order.h"

namespace outsize::planning {

std::vector<OpId> early_updates(const Graph& graph) {
  std::vector<std::vector<OpId>> before = dependencies_of(graph);
  std::vector<std::vector<int32_t>> after(graph.ops.size());
  std::vector<size_t> open(graph.ops.size());
  using Key = std::pair<bool, int32_t>;  // not an update, op
  std::priority_queue<Key, std::vector<Key>, std::greater<>> ready;
  auto key = [&](int32_t op) {
    return Key{graph.ops[static_cast<size_t>(op)].site.phase != "optimizer", op};
  };
  for (size_t i = 0; i < before.size(); ++i) {
    open[i] = before[i].size();
    for (OpId b : before[i]) after[b.index()].push_back(static_cast<int32_t>(i));
    if (open[i] == 0) ready.push(key(static_cast<int32_t>(i)));
  }
  std::vector<OpId> order;
  while (!ready.empty()) {
    int32_t op = ready.top().second;
    ready.pop();
    order.emplace_back(op);
    for (int32_t next : after[static_cast<size_t>(op)])
      if (--open[static_cast<size_t>(next)] == 0) ready.push(key(next));
  }
  return order;
}

}  // namespace outsize::planning
