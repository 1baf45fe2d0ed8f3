#include "outsize/graph/order.h"

#include <algorithm>
#include <iterator>
#include <map>

#include "outsize/base/random.h"

namespace outsize {
namespace {

// The present content of one storage: stretches of bytes, each with the op that wrote it last and
// those that have read it since.
class Content {
 public:
  explicit Content(int64_t bytes) {
    if (bytes > 0) stretches_[0] = {bytes, {}, {}};
  }
  void read(const Interval& bytes, OpId op, std::vector<OpId>& before) {
    for_each_in(bytes, [&](Stretch& stretch) {
      if (stretch.writer.valid()) before.push_back(stretch.writer);
      if (stretch.readers.empty() || stretch.readers.back() != op) stretch.readers.push_back(op);
    });
  }
  void write(const Interval& bytes, OpId op, std::vector<OpId>& before) {
    for_each_in(bytes, [&](Stretch& stretch) {
      if (stretch.writer.valid()) before.push_back(stretch.writer);
      before.insert(before.end(), stretch.readers.begin(), stretch.readers.end());
      stretch.writer = op;
      stretch.readers.clear();
    });
  }

 private:
  struct Stretch {
    int64_t end = 0;
    OpId writer;
    std::vector<OpId> readers;
  };

  // Makes `at` a border between two stretches.
  void cut(int64_t at) {
    auto after = stretches_.upper_bound(at);
    if (after == stretches_.begin()) return;
    auto holder = std::prev(after);
    if (holder->first == at || holder->second.end <= at) return;
    stretches_.emplace_hint(after, at, holder->second);
    holder->second.end = at;
  }
  template <typename F>
  void for_each_in(const Interval& bytes, const F& f) {
    if (bytes.empty()) return;
    cut(bytes.begin);
    cut(bytes.end);
    for (auto it = stretches_.lower_bound(bytes.begin);
         it != stretches_.end() && it->first < bytes.end; ++it)
      f(it->second);
  }
  std::map<int64_t, Stretch> stretches_;  // by first byte; together they are the storage
};

void collect_scalars(const std::vector<Argument>& arguments, std::vector<ScalarId>& into) {
  for (const Argument& argument : arguments) {
    if (const auto* id = std::get_if<ScalarId>(&argument.data)) into.push_back(*id);
    if (const auto* list = std::get_if<Argument::List>(&argument.data))
      collect_scalars(*list, into);
  }
}

// Per scalar, the ops that must have run before it is known.
std::vector<std::vector<OpId>> givers_of(const Graph& graph) {
  std::vector<std::vector<OpId>> givers(graph.scalars.size());
  std::vector<ScalarId> scalars;
  for (size_t t = 0; t < graph.ops.size(); ++t) {
    scalars.clear();
    collect_scalars(graph.ops[t].results, scalars);
    for (const ScalarId id : scalars) givers[id.index()] = {OpId(static_cast<int64_t>(t))};
  }
  for (size_t i = 0; i < graph.scalars.size(); ++i) {
    scalars.clear();
    collect_scalars(graph.scalars[i].args, scalars);
    for (const ScalarId id : scalars)
      givers[i].insert(givers[i].end(), givers[id.index()].begin(), givers[id.index()].end());
    std::sort(givers[i].begin(), givers[i].end());
    givers[i].erase(std::unique(givers[i].begin(), givers[i].end()), givers[i].end());
  }
  return givers;
}

}  // namespace

std::vector<std::vector<OpId>> dependencies_of(const Graph& graph) {
  std::vector<Content> contents;
  contents.reserve(graph.storages.size());
  for (const Storage& storage : graph.storages) contents.emplace_back(storage.bytes);
  const std::vector<std::vector<OpId>> givers = givers_of(graph);
  std::vector<std::vector<OpId>> dependencies(graph.ops.size());
  OpId last_rng, last_collective;
  std::vector<ScalarId> scalars;
  for (size_t t = 0; t < graph.ops.size(); ++t) {
    const Op& op = graph.ops[t];
    const OpId id(static_cast<int64_t>(t));
    std::vector<OpId>& before = dependencies[t];
    for (const Access& access : op.reads)
      contents[access.storage.index()].read(access.bytes, id, before);
    for (const auto* writes : {&op.makes, &op.mutates})
      for (const Access& access : *writes)
        contents[access.storage.index()].write(access.bytes, id, before);
    if (op.uses_rng && last_rng.valid()) before.push_back(last_rng);
    if (op.uses_rng) last_rng = id;
    if (op.collective && last_collective.valid()) before.push_back(last_collective);
    if (op.collective) last_collective = id;
    scalars.clear();
    collect_scalars(op.args, scalars);
    for (const ScalarId scalar : scalars)
      before.insert(before.end(), givers[scalar.index()].begin(), givers[scalar.index()].end());
    std::sort(before.begin(), before.end());
    before.erase(std::unique(before.begin(), before.end()), before.end());
    // An op that reads and mutates the same bytes does not wait for itself.
    std::erase(before, id);
  }
  return dependencies;
}

Status check_order(const Graph& graph, std::span<const OpId> order) {
  if (order.size() != graph.ops.size())
    return bad_input("the order has {} ops, the graph {}", order.size(), graph.ops.size());
  std::vector<int64_t> place(graph.ops.size(), -1);
  for (size_t i = 0; i < order.size(); ++i) {
    const OpId op = order[i];
    if (!op.valid() || op.index() >= graph.ops.size())
      return bad_input("place {} has op {}; there are {}", i, op.value, graph.ops.size());
    if (place[op.index()] >= 0)
      return bad_input("op {} is at places {} and {}", op.value, place[op.index()], i);
    place[op.index()] = static_cast<int64_t>(i);
  }
  const auto dependencies = dependencies_of(graph);
  for (const OpId op : order)
    for (const OpId before : dependencies[op.index()])
      if (place[before.index()] > place[op.index()])
        return bad_input("op {} ({}) must come after op {} ({}), but is at place {} before {}",
                         op.value, graph.op(op).name, before.value, graph.op(before).name,
                         place[op.index()], place[before.index()]);
  return Done{};
}

bool is_legal_order(const Graph& graph, std::span<const OpId> order) {
  return check_order(graph, order).ok();
}

std::vector<OpId> program_order(const Graph& graph) {
  std::vector<OpId> order;
  order.reserve(graph.ops.size());
  for (size_t t = 0; t < graph.ops.size(); ++t) order.emplace_back(static_cast<int64_t>(t));
  return order;
}

std::vector<OpId> random_topological_order(const Graph& graph, uint64_t seed) {
  const auto dependencies = dependencies_of(graph);
  std::vector<std::vector<OpId>> followers(graph.ops.size());
  std::vector<size_t> waiting_for(graph.ops.size());
  std::vector<OpId> ready, order;
  for (size_t t = 0; t < graph.ops.size(); ++t) {
    const OpId id(static_cast<int64_t>(t));
    waiting_for[t] = dependencies[t].size();
    for (const OpId before : dependencies[t]) followers[before.index()].push_back(id);
    if (waiting_for[t] == 0) ready.push_back(id);
  }
  Random random(seed);
  while (!ready.empty()) {
    std::swap(ready[static_cast<size_t>(random.below(std::ssize(ready)))], ready.back());
    const OpId op = ready.back();
    ready.pop_back();
    order.push_back(op);
    for (const OpId follower : followers[op.index()])
      if (--waiting_for[follower.index()] == 0) ready.push_back(follower);
  }
  OUTSIZE_CHECK(order.size() == graph.ops.size(), "{} of {} ops ordered", order.size(),
                graph.ops.size());
  return order;
}

Graph reordered(const Graph& graph, std::span<const OpId> order) {
  const Status legal = check_order(graph, order);
  OUTSIZE_CHECK(legal.ok(), "{}", legal.error().message);
  Graph result = graph;
  for (size_t i = 0; i < order.size(); ++i) result.ops[i] = graph.op(order[i]);
  return result;
}

}  // namespace outsize
