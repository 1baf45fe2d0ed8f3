#include "outsize/simulate/work.h"

#include <fmt/format.h>

#include <string>
#include <utility>

namespace outsize {
namespace {

Error illegal(std::string message) { return {ErrorKind::kIllegal, std::move(message)}; }

Road road_of(Tier from, Tier to) {
  if (from == to) return Road::kWithin;
  if (to == Tier::kDisk) return Road::kWrite;
  if (from == Tier::kDisk) return Road::kRead;
  return from == Tier::kDevice ? Road::kOut : Road::kIn;
}

Link link_of(const Machine& machine, Road road) {
  switch (road) {
    case Road::kOut:
      return machine.out;
    case Road::kIn:
      return machine.in;
    case Road::kWrite:
      return machine.write;
    case Road::kRead:
      return machine.read;
    default:
      return {0, machine.memory_bytes_per_s};
  }
}

Result<Work> work_of_copy(const Machine& machine, const Plan& plan, size_t i) {
  const Instruction& copy = plan.instructions[i];
  for (const ResidencyId id : {copy.from, copy.to})
    if (!id.valid() || id.index() >= plan.residencies.size())
      return illegal(fmt::format("instruction {} copies residency {} of {}", i, id.value,
                                 plan.residencies.size()));
  if (copy.bytes.begin > copy.bytes.end)
    return illegal(
        fmt::format("instruction {} copies bytes [{}, {})", i, copy.bytes.begin, copy.bytes.end));
  const Tier from = plan.residency(copy.from).tier;
  const Tier to = plan.residency(copy.to).tier;
  const Road road = road_of(from, to);
  const Link link = link_of(machine, road);
  if (link.bytes_per_s <= 0)
    return bad_input("instruction {} copies from {} to {}, for which machine '{}' has no link", i,
                     kTierNames.name(from), kTierNames.name(to), machine.name);
  Work work{road, link.latency_ns, copy.bytes.size(), link.bytes_per_s};
  if (copy.stream == Stream::kCompute && machine.sync_bytes_per_s > 0 && !is_disk(road))
    work.bytes_per_s = machine.sync_bytes_per_s;
  return work;
}

}  // namespace

Result<std::vector<Work>> works_of(const Graph& graph, const Profile& profile,
                                   const Machine& machine, const Plan& plan) {
  if (profile.ops.size() != graph.ops.size())
    return bad_input("the profile has {} ops, the graph {}", profile.ops.size(), graph.ops.size());
  for (const auto* border : {&plan.entry, &plan.exit})
    for (const BorderItem& item : *border)
      if (!item.residency.valid() || item.residency.index() >= plan.residencies.size())
        return illegal(fmt::format("a border names residency {} of {}", item.residency.value,
                                   plan.residencies.size()));
  std::vector<Work> works;
  works.reserve(plan.instructions.size());
  for (size_t i = 0; i < plan.instructions.size(); ++i) {
    const Instruction& instruction = plan.instructions[i];
    for (const InstructionId wait : instruction.waits)
      if (!wait.valid() || wait.index() >= plan.instructions.size())
        return illegal(fmt::format("instruction {} waits for instruction {} of {}", i, wait.value,
                                   plan.instructions.size()));
    if (instruction.kind == InstructionKind::kCopy) {
      Result<Work> work = work_of_copy(machine, plan, i);
      if (!work.ok()) return work.error();
      works.push_back(*work);
      continue;
    }
    if (!instruction.op.valid() || instruction.op.index() >= graph.ops.size())
      return illegal(fmt::format("instruction {} runs op {} of {}", i, instruction.op.value,
                                 graph.ops.size()));
    const Op& op = graph.op(instruction.op);
    const size_t accesses = op.reads.size() + op.makes.size() + op.mutates.size();
    if (instruction.operands.size() != accesses)
      return illegal(fmt::format("instruction {} has {} operands for {} accesses", i,
                                 instruction.operands.size(), accesses));
    for (const ResidencyId id : instruction.operands)
      if (!id.valid() || id.index() >= plan.residencies.size())
        return illegal(fmt::format("instruction {} has residency {} of {} as operand", i, id.value,
                                   plan.residencies.size()));
    if (instruction.stream != Stream::kCompute)
      return illegal(fmt::format("instruction {} runs op {} in stream {}", i, instruction.op.value,
                                 kStreamNames.name(instruction.stream)));
    works.push_back({Road::kNone, profile.ops[instruction.op.index()].ns, 0, 0});
  }
  return works;
}

}  // namespace outsize
