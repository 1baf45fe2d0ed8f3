#include "outsize/run/program.h"

#include <algorithm>
#include <set>

namespace outsize {
namespace {

template <typename... Args>
Error illegal(const Graph& graph, const Plan& plan, InstructionId id,
              fmt::format_string<Args...> text, Args&&... args) {
  return {ErrorKind::kIllegal, fmt::format("{}: {}", describe_instruction(graph, plan, id),
                                           fmt::format(text, std::forward<Args>(args)...))};
}

// The accesses of an op in operand order.
template <typename F>
void for_each_access(const Op& op, F&& visit) {
  for (const Access& access : op.reads) visit(access, false);
  for (const Access& access : op.makes) visit(access, true);
  for (const Access& access : op.mutates) visit(access, true);
}

size_t accesses_in(const Op& op) { return op.reads.size() + op.makes.size() + op.mutates.size(); }

int64_t address_in(const Residency& residency, int64_t byte) {
  return residency.address + (byte - residency.part.bytes.begin);
}

bool known(const Plan& plan, ResidencyId id) {
  return id.valid() && id.index() < plan.residencies.size();
}

Status check_instruction(const Graph& graph, const Plan& plan, InstructionId id) {
  const Instruction& instruction = plan.instruction(id);
  for (const InstructionId wait : instruction.waits)
    if (!wait.valid() || wait >= id)
      return illegal(graph, plan, id, "waits for instruction {}, which is not earlier in the list",
                     wait.value);
  if (instruction.kind == InstructionKind::kCopy) {
    for (const ResidencyId end : {instruction.from, instruction.to}) {
      if (!known(plan, end))
        return illegal(graph, plan, id, "residency {} of {}", end.value, plan.residencies.size());
      const Residency& residency = plan.residency(end);
      if (!residency.part.bytes.contains(instruction.bytes))
        return illegal(graph, plan, id, "residency {} holds bytes [{}, {})", end.value,
                       residency.part.bytes.begin, residency.part.bytes.end);
    }
    return Done{};
  }
  if (!instruction.op.valid() || instruction.op.index() >= graph.ops.size())
    return illegal(graph, plan, id, "op {} of {}", instruction.op.value, graph.ops.size());
  if (instruction.stream != Stream::kCompute)
    return illegal(graph, plan, id, "stands in stream {}", kStreamNames.name(instruction.stream));
  const Op& op = graph.op(instruction.op);
  if (instruction.operands.size() != accesses_in(op))
    return illegal(graph, plan, id, "has {} operands, the op has {} accesses",
                   instruction.operands.size(), accesses_in(op));
  Status status = Done{};
  size_t at = 0;
  for_each_access(op, [&](const Access& access, bool) {
    const ResidencyId operand = instruction.operands[at++];
    if (!status.ok()) return;
    if (!known(plan, operand))
      status =
          illegal(graph, plan, id, "residency {} of {}", operand.value, plan.residencies.size());
    else if (const Residency& residency = plan.residency(operand);
             residency.part.storage != access.storage ||
             !residency.part.bytes.contains(access.bytes) || residency.tier != Tier::kDevice)
      status = illegal(graph, plan, id,
                       "operand {} wants storage {} [{}, {}) on the device, "
                       "residency {} holds storage {} [{}, {}) on {}",
                       at - 1, access.storage.value, access.bytes.begin, access.bytes.end,
                       operand.value, residency.part.storage.value, residency.part.bytes.begin,
                       residency.part.bytes.end, kTierNames.name(residency.tier));
  });
  return status;
}

CopyCall copy_of(const Plan& plan, InstructionId id) {
  const Instruction& instruction = plan.instruction(id);
  const Residency& from = plan.residency(instruction.from);
  const Residency& to = plan.residency(instruction.to);
  return {.instruction = id,
          .from = from.tier,
          .to = to.tier,
          .from_address = address_in(from, instruction.bytes.begin),
          .to_address = address_in(to, instruction.bytes.begin),
          .bytes = instruction.bytes.size(),
          .in_compute = instruction.stream == Stream::kCompute};
}

}  // namespace

std::string describe_instruction(const Graph& graph, const Plan& plan, InstructionId id) {
  const Instruction& instruction = plan.instruction(id);
  if (instruction.kind == InstructionKind::kCopy) {
    if (!known(plan, instruction.from) || !known(plan, instruction.to))
      return fmt::format("instruction {} (copy)", id.value);
    const Residency& from = plan.residency(instruction.from);
    const Residency& to = plan.residency(instruction.to);
    return fmt::format("instruction {} ({} copy of storage {} [{}, {}), {} to {})", id.value,
                       kStreamNames.name(instruction.stream), from.part.storage.value,
                       instruction.bytes.begin, instruction.bytes.end, kTierNames.name(from.tier),
                       kTierNames.name(to.tier));
  }
  std::string text =
      fmt::format("instruction {} ({} of op {}", id.value,
                  kInstructionKindNames.name(instruction.kind), instruction.op.value);
  if (instruction.op.valid() && instruction.op.index() < graph.ops.size()) {
    const Op& op = graph.op(instruction.op);
    text += " " + op.name;
    if (!op.site.module.empty()) text += ", " + op.site.module;
    if (!op.site.file.empty()) text += fmt::format(", {}:{}", op.site.file, op.site.line);
  }
  return text + ")";
}

std::vector<Touch> touches_of(const Graph& graph, const Plan& plan, InstructionId id) {
  const Instruction& instruction = plan.instruction(id);
  std::vector<Touch> touches;
  if (instruction.kind == InstructionKind::kCopy) {
    const CopyCall copy = copy_of(plan, id);
    const StorageId storage = plan.residency(instruction.from).part.storage;
    touches.push_back(
        {copy.from, {copy.from_address, copy.from_address + copy.bytes}, false, storage});
    touches.push_back({copy.to, {copy.to_address, copy.to_address + copy.bytes}, true, storage});
    return touches;
  }
  size_t at = 0;
  for_each_access(graph.op(instruction.op), [&](const Access& access, bool writes) {
    const int64_t address =
        address_in(plan.residency(instruction.operands[at++]), access.bytes.begin);
    touches.push_back(
        {Tier::kDevice, {address, address + access.bytes.size()}, writes, access.storage});
  });
  if (!instruction.workspace.empty())
    touches.push_back({Tier::kDevice, instruction.workspace, true, StorageId{}});
  return touches;
}

Result<Program> program_of(const Graph& graph, const Plan& plan) {
  Program program;
  program.instructions = static_cast<int64_t>(plan.instructions.size());
  std::set<OpId> drawn_again;  // RNG ops that are rerun
  for (size_t i = 0; i < plan.instructions.size(); ++i) {
    const InstructionId id{static_cast<int64_t>(i)};
    if (Status status = check_instruction(graph, plan, id); !status.ok()) return status.error();
    const Instruction& instruction = plan.instruction(id);
    if (instruction.kind == InstructionKind::kRerun && graph.op(instruction.op).uses_rng)
      drawn_again.insert(instruction.op);
  }

  std::vector<int64_t> count_at(
      plan.instructions.size());  // completed in its stream once it has ended
  // Per stream, how far each other stream is known to have come.
  std::array<std::array<int64_t, kStreams>, kStreams> reached{};
  for (size_t i = 0; i < plan.instructions.size(); ++i) {
    const InstructionId id{static_cast<int64_t>(i)};
    const Instruction& instruction = plan.instruction(id);
    ProgramStep step;
    step.instruction = id;
    step.kind = instruction.kind;
    if (instruction.kind == InstructionKind::kCopy) {
      step.copy = copy_of(plan, id);
    } else {
      step.op = instruction.op;
      step.workspace = instruction.workspace;
      step.saves_generator =
          instruction.kind == InstructionKind::kRun && drawn_again.contains(instruction.op);
      step.rewinds_generator =
          instruction.kind == InstructionKind::kRerun && graph.op(instruction.op).uses_rng;
      size_t at = 0;
      for_each_access(graph.op(instruction.op), [&](const Access& access, bool) {
        const Residency& residency = plan.residency(instruction.operands[at++]);
        step.addresses.push_back(address_in(residency, access.bytes.begin));
      });
    }
    std::array<int64_t, kStreams> wanted{};
    for (const InstructionId wait : instruction.waits) {
      int64_t& count = wanted[static_cast<size_t>(plan.instruction(wait).stream)];
      count = std::max(count, count_at[wait.index()]);
    }
    const auto own = static_cast<size_t>(instruction.stream);
    for (size_t other = 0; other < kStreams; ++other) {
      if (other == own || wanted[other] <= reached[own][other]) continue;
      reached[own][other] = wanted[other];
      step.waits.push_back({static_cast<Stream>(other), wanted[other]});
    }
    std::vector<ProgramStep>& stream = program.of(instruction.stream);
    stream.push_back(std::move(step));
    count_at[i] = static_cast<int64_t>(stream.size());
  }
  return program;
}

}  // namespace outsize
