// Random small steps to try the executor on: three parameters, of which later ops change some, a
// batch, ops that read up to four storages and make up to three, outputs here and there, random
// ops.
//
//   Random random(seed);  Graph graph = random_graph(random, 14);
#pragma once

#include <set>
#include <string>
#include <vector>

#include "outsize/base/random.h"
#include "outsize/graph/graph.h"

namespace outsize::testing {

inline Graph random_graph(Random& random, int ops) {
  Graph graph;
  const auto add = [&](Role role, bool entry, bool exit, bool persistent) {
    const StorageId id{static_cast<int64_t>(graph.storages.size())};
    graph.storages.push_back({.bytes = random.between(1, 9) * 8,
                              .role = role,
                              .entry = entry,
                              .exit = exit,
                              .persistent = persistent,
                              .name = "s" + std::to_string(id.value)});
    return id;
  };
  std::vector<StorageId> parameters, all;
  for (int i = 0; i < 3; ++i) parameters.push_back(add(Role::kParameter, true, true, true));
  all = parameters;
  all.push_back(add(Role::kInput, true, false, false));
  const auto whole = [&](StorageId s) { return Access{s, {0, graph.storage(s).bytes}}; };
  for (int i = 0; i < ops; ++i) {
    Op op;
    op.name = "test.op" + std::to_string(i);
    op.site = {"block." + std::to_string(i / 3), "train.py", i + 1, "forward"};
    op.uses_rng = random.chance(0.3);
    std::set<StorageId> taken;
    for (int64_t r = random.between(1, 4); r > 0; --r)
      taken.insert(all[static_cast<size_t>(random.below(static_cast<int64_t>(all.size())))]);
    if (i > ops / 2 && random.chance(0.4)) {
      const StorageId p = parameters[static_cast<size_t>(random.below(3))];
      taken.erase(p);
      op.mutates.push_back(whole(p));
    }
    for (const StorageId s : taken) op.reads.push_back(whole(s));
    for (int64_t m = random.between(op.mutates.empty() ? 1 : 0, 3); m > 0; --m) {
      const bool output = random.chance(0.15);
      const StorageId s = add(output ? Role::kOutput : Role::kActivation, false, output, false);
      op.makes.push_back(whole(s));
      all.push_back(s);
    }
    graph.ops.push_back(op);
  }
  return graph;
}

}  // namespace outsize::testing
