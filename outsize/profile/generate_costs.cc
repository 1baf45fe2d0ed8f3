#include "outsize/profile/generate_costs.h"

#include "outsize/base/random.h"

namespace outsize {

Profile equal_costs(const Graph& graph, int64_t ns) {
  Profile profile;
  profile.how = "stated";
  profile.ops.resize(graph.ops.size());
  for (OpCost& cost : profile.ops) cost.ns = ns;
  return profile;
}

Profile random_costs(const Graph& graph, uint64_t seed, const RandomCostOptions& options) {
  OUTSIZE_CHECK(options.longest_ns >= 1 && options.largest_workspace >= 1, "costs without room");
  Random random(seed);
  Profile profile = equal_costs(graph, 0);
  for (OpCost& cost : profile.ops) {
    cost.ns = random.between(1, options.longest_ns + 1);
    if (random.chance(options.workspace))
      cost.workspace_bytes = random.between(1, options.largest_workspace + 1) * options.unit_bytes;
  }
  return profile;
}

Profile byte_costs(const Graph& graph, int64_t bytes_per_ns) {
  OUTSIZE_CHECK(bytes_per_ns >= 1, "{} bytes per ns", bytes_per_ns);
  Profile profile = equal_costs(graph, 1);
  for (size_t t = 0; t < graph.ops.size(); ++t) {
    const Op& op = graph.ops[t];
    int64_t touched = 0;
    for (const auto* accesses : {&op.reads, &op.makes, &op.mutates})
      for (const Access& access : *accesses) touched += access.bytes.size();
    profile.ops[t].ns += touched / bytes_per_ns;
  }
  return profile;
}

}  // namespace outsize
