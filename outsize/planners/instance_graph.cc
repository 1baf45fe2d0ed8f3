#include "outsize/planners/instance_graph.h"

#include "outsize/planners/realise.h"

namespace outsize::planning {

InstanceGraph instance_graph(const Case& c, const Program& program) {
  InstanceGraph out;
  for (size_t i = 0; i < program.instances().size(); ++i) {
    const Instance& in = program.instances()[i];
    const PartInfo& part = program.parts()[in.part];
    Storage& storage = out.graph.storages.emplace_back();
    storage.bytes = device_bytes_of(c, part);
    storage.entry = in.entry;
    storage.exit = in.exit;
    storage.persistent = part.persistent;
  }
  const std::vector<OpCost>& costs = c.problem->profile->ops;
  for (int32_t s : program.order()) {
    const OpCost& cost = costs[program.step(s).op.index()];
    out.graph.ops.emplace_back();
    OpCost& copy = out.profile.ops.emplace_back();
    copy.ns = cost.ns;
    copy.workspace_bytes = cost.workspace_bytes;
  }
  for (size_t i = 0; i < program.instances().size(); ++i) {
    const Instance& in = program.instances()[i];
    const Access whole{StorageId(static_cast<int64_t>(i)), {0, out.graph.storages[i].bytes}};
    for (size_t k = 0; k < in.touches.size(); ++k) {
      const Touch& t = in.touches[k];
      Op& op = out.graph.ops[static_cast<size_t>(program.rank(t.step))];
      if (!t.writes || t.before == t.after)
        op.reads.push_back(whole);
      else if (k == 0 && !in.entry)
        op.makes.push_back(whole);
      else
        op.mutates.push_back(whole);
    }
  }
  return out;
}

}  // namespace outsize::planning
