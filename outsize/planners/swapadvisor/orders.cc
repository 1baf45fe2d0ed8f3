#include "outsize/planners/swapadvisor/orders.h"

#include <algorithm>
#include <limits>
#include <list>
#include <optional>

#include "outsize/graph/order.h"

namespace outsize::planning::swapadvisor {
namespace {

std::vector<std::vector<size_t>> after_of(const std::vector<std::vector<OpId>>& before) {
  std::vector<std::vector<size_t>> after(before.size());
  for (size_t op = 0; op < before.size(); ++op)
    for (OpId b : before[op]) after[b.index()].push_back(op);
  return after;
}

std::vector<size_t> open_of(const std::vector<std::vector<OpId>>& before) {
  std::vector<size_t> open;
  for (const std::vector<OpId>& b : before) open.push_back(b.size());
  return open;
}

// A cache of storages by when they were used.
class Cache {
 public:
  Cache(const Graph& graph, int64_t capacity) : graph_(graph), capacity_(capacity) {
    at_.assign(graph.storages.size(), hot_.end());
  }
  bool holds(size_t s) const { return at_[s] != hot_.end(); }
  void use(size_t s) {
    if (holds(s)) {
      hot_.splice(hot_.end(), hot_, at_[s]);
      return;
    }
    at_[s] = hot_.insert(hot_.end(), s);
    bytes_ += graph_.storages[s].bytes;
    while (bytes_ > capacity_ && hot_.size() > 1) drop(hot_.front());
  }
  void drop(size_t s) {
    if (!holds(s)) return;
    bytes_ -= graph_.storages[s].bytes;
    hot_.erase(at_[s]);
    at_[s] = hot_.end();
  }

 private:
  const Graph& graph_;
  int64_t capacity_;
  int64_t bytes_ = 0;
  std::list<size_t> hot_;
  std::vector<std::list<size_t>::iterator> at_;
};

}  // namespace

std::vector<std::vector<OpId>> dependencies_by_part(const Graph& graph, const Parts& parts) {
  std::vector<std::vector<OpId>> before = dependencies_of(graph);
  for (const PartInfo& part : parts.parts) {
    std::optional<OpId> writer;
    std::vector<OpId> readers;
    for (const PartUse& use : part.uses) {
      std::vector<OpId>& mine = before[use.op.index()];
      if (writer) mine.push_back(*writer);
      if (!use.writes) {
        readers.push_back(use.op);
        continue;
      }
      mine.insert(mine.end(), readers.begin(), readers.end());
      readers.clear();
      writer = use.op;
    }
  }
  for (std::vector<OpId>& mine : before) {
    std::sort(mine.begin(), mine.end());
    mine.erase(std::unique(mine.begin(), mine.end()), mine.end());
  }
  return before;
}

bool keeps(const std::vector<OpId>& order, const std::vector<std::vector<OpId>>& before) {
  std::vector<bool> done(order.size(), false);
  for (OpId op : order) {
    for (OpId b : before[op.index()])
      if (!done[b.index()]) return false;
    done[op.index()] = true;
  }
  return true;
}

std::vector<OpId> depth_first(const Graph& graph, const std::vector<std::vector<OpId>>& before,
                              bool last_of_several) {
  std::vector<std::vector<size_t>> after = after_of(before);
  std::vector<size_t> open = open_of(before), stack;
  for (size_t op = graph.ops.size(); op-- > 0;)
    if (open[op] == 0) stack.push_back(op);
  std::vector<OpId> order;
  while (!stack.empty()) {
    size_t op = stack.back();
    stack.pop_back();
    order.emplace_back(static_cast<int64_t>(op));
    size_t first = stack.size();
    for (size_t next : after[op])
      if (--open[next] == 0) stack.push_back(next);
    if (!last_of_several)
      std::reverse(stack.begin() + static_cast<std::ptrdiff_t>(first), stack.end());
  }
  return order;
}

std::vector<OpId> nearest_first(const Graph& graph, const std::vector<std::vector<OpId>>& before,
                                int64_t capacity) {
  std::vector<std::vector<size_t>> after = after_of(before);
  std::vector<size_t> open = open_of(before), ready;
  std::vector<std::vector<size_t>> touched(graph.ops.size());
  std::vector<int64_t> uses(graph.storages.size(), 0);
  for (size_t op = 0; op < graph.ops.size(); ++op) {
    const Op& o = graph.ops[op];
    for (const auto* accesses : {&o.reads, &o.makes, &o.mutates})
      for (const Access& access : *accesses) touched[op].push_back(access.storage.index());
    std::sort(touched[op].begin(), touched[op].end());
    touched[op].erase(std::unique(touched[op].begin(), touched[op].end()), touched[op].end());
    for (size_t s : touched[op]) ++uses[s];
    if (open[op] == 0) ready.push_back(op);
  }
  Cache cache(graph, capacity);
  auto brings = [&](size_t op) {
    int64_t bytes = 0;
    for (size_t s : touched[op]) {
      if (!cache.holds(s)) bytes += graph.storages[s].bytes;
      if (uses[s] == 1 && !graph.storages[s].exit) bytes -= graph.storages[s].bytes;
    }
    return bytes;
  };
  std::vector<OpId> order;
  while (!ready.empty()) {
    size_t best = 0;
    int64_t least = std::numeric_limits<int64_t>::max();
    for (size_t k = 0; k < ready.size(); ++k) {
      int64_t bytes = brings(ready[k]);
      if (bytes < least || (bytes == least && ready[k] < ready[best])) least = bytes, best = k;
    }
    size_t op = ready[best];
    ready[best] = ready.back();
    ready.pop_back();
    order.emplace_back(static_cast<int64_t>(op));
    for (size_t s : touched[op]) {
      cache.use(s);
      if (--uses[s] == 0 && !graph.storages[s].exit) cache.drop(s);
    }
    for (size_t next : after[op])
      if (--open[next] == 0) ready.push_back(next);
  }
  return order;
}

}  // namespace outsize::planning::swapadvisor
