#include <algorithm>

#include "outsize/base/interval_set.h"
#include "outsize/base/random.h"
#include "outsize/graph/generate.h"

namespace outsize {
namespace {

class RandomGraph {
 public:
  RandomGraph(uint64_t seed, const RandomGraphOptions& options)
      : random_(seed), options_(options) {}

  Graph make(int ops) {
    graph_.title = fmt::format("random graph of {} ops", ops);
    const int64_t parameters = random_.between(1, 2 + ops / 4);
    for (int64_t i = 0; i < parameters; ++i)
      add({size(), Role::kParameter, true, true, true, fmt::format("parameter.{}", i)}, true);
    // A gradient of the step before, dropped by this one.
    if (random_.chance(0.3)) add({size(), Role::kGradient, true, false, true, "old.grad"}, true);
    const int64_t inputs = random_.between(1, 3);
    for (int64_t i = 0; i < inputs; ++i)
      add({size(), Role::kInput, true, random_.chance(0.15), false, ""}, true);
    for (int t = 0; t < ops; ++t) add_op(t, t + 1 == ops);
    return std::move(graph_);
  }

 private:
  int64_t size() {
    if (random_.chance(0.02)) return 0;
    return random_.between(1, options_.largest_units + 1) * options_.unit_bytes;
  }
  StorageId add(Storage storage, bool written) {
    const StorageId id(static_cast<int64_t>(graph_.storages.size()));
    IntervalSet& set = written_.emplace_back();
    if (written) set.add({0, storage.bytes});
    graph_.storages.push_back(std::move(storage));
    if (written) ready_.push_back(id);
    return id;
  }
  // A part of a storage: whole, or now and then a stretch of it.
  Interval part_of(int64_t bytes) {
    const int64_t units = bytes / options_.unit_bytes;
    if (units < 2 || !random_.chance(options_.parts)) return {0, bytes};
    const int64_t begin = random_.below(units);
    const int64_t end = random_.between(begin + 1, units + 1);
    return {begin * options_.unit_bytes, end * options_.unit_bytes};
  }
  // One of the storages with content, the later the likelier, that this op does not touch yet.
  StorageId pick(const std::vector<StorageId>& taken) {
    for (int attempt = 0; attempt < 8; ++attempt) {
      const int64_t count = std::ssize(ready_);
      const int64_t window = random_.chance(0.6) ? std::min<int64_t>(count, 5) : count;
      const StorageId id = ready_[static_cast<size_t>(count - 1 - random_.below(window))];
      if (std::find(taken.begin(), taken.end(), id) == taken.end()) return id;
    }
    return {};
  }

  Storage new_storage() {
    const double kind = random_.uniform();
    if (kind < 0.1) return {size(), Role::kOutput, false, true, false, ""};
    if (kind < 0.2) {
      // Optimizer state that this step makes and later ones keep.
      const std::string name = fmt::format("state.{}", graph_.storages.size());
      return {size(), Role::kOptimizerState, false, true, true, name};
    }
    return {size(), Role::kActivation, false, false, false, ""};
  }

  // Makes the whole of a new storage, or its first stretch, leaving the rest to later ops.
  void make_new(Op& op) {
    const StorageId id = add(new_storage(), false);
    const int64_t bytes = graph_.storage(id).bytes;
    const int64_t units = bytes / options_.unit_bytes;
    const int64_t cut = units >= 2 && random_.chance(options_.parts)
                            ? random_.between(1, units) * options_.unit_bytes
                            : bytes;
    op.makes.push_back({id, {0, cut}});
    if (cut < bytes) unfinished_.push_back({id, {cut, bytes}});
  }

  void add_op(int t, bool last) {
    Op op;
    op.name = fmt::format("op{}", t);
    std::vector<StorageId> taken;
    const int64_t reads = random_.between(0, 4);
    for (int64_t i = 0; i < reads; ++i) {
      const StorageId id = pick(taken);
      if (!id.valid()) continue;
      taken.push_back(id);
      op.reads.push_back({id, part_of(graph_.storage(id).bytes)});
    }
    if (random_.chance(options_.mutates)) {
      const StorageId id = pick(taken);
      if (id.valid()) op.mutates.push_back({id, part_of(graph_.storage(id).bytes)});
    }
    std::vector<Access> rest;
    std::swap(rest, unfinished_);
    if (op.mutates.empty() || random_.chance(0.7)) make_new(op);
    if (random_.chance(0.2)) make_new(op);
    for (const Access& access : rest) {
      if (last || random_.chance(0.5))
        op.makes.push_back(access);
      else
        unfinished_.push_back(access);
    }
    // The last op leaves nothing half made.
    if (last) {
      for (const Access& access : unfinished_) op.makes.push_back(access);
      unfinished_.clear();
    }
    for (const Access& access : op.makes) {
      IntervalSet& set = written_[access.storage.index()];
      set.add(access.bytes);
      const Interval whole{0, graph_.storage(access.storage).bytes};
      const bool listed = std::find(ready_.begin(), ready_.end(), access.storage) != ready_.end();
      if (set.contains(whole) && !listed) ready_.push_back(access.storage);
    }
    op.uses_rng = random_.chance(options_.rng);
    op.collective = random_.chance(options_.collective);
    graph_.ops.push_back(std::move(op));
  }

  Random random_;
  RandomGraphOptions options_;
  Graph graph_;
  std::vector<IntervalSet> written_;
  std::vector<StorageId> ready_;    // wholly written, oldest first
  std::vector<Access> unfinished_;  // parts that some later op must make
};

}  // namespace

Graph random_graph(uint64_t seed, int ops, const RandomGraphOptions& options) {
  OUTSIZE_CHECK(ops >= 1 && options.unit_bytes >= 1 && options.largest_units >= 1,
                "a random graph of {} ops", ops);
  Graph graph = RandomGraph(seed, options).make(ops);
  const Status legal = check_graph(graph);
  OUTSIZE_CHECK(legal.ok(), "seed {}: {}", seed, legal.error().message);
  return graph;
}

}  // namespace outsize
