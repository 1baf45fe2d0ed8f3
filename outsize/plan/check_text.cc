#include "outsize/plan/check_text.h"

#include <fmt/format.h>

#include "outsize/plan/check_versions.h"

namespace outsize {

std::string text_of(Interval range) { return fmt::format("[{}, {})", range.begin, range.end); }

std::string text_of_op(const Graph& graph, OpId op) {
  return fmt::format("op {} ({})", op.value, graph.op(op).name);
}

std::string text_of_storage(const Graph& graph, StorageId storage) {
  const std::string& name = graph.storage(storage).name;
  return name.empty() ? fmt::format("storage {}", storage.value)
                      : fmt::format("storage {} \"{}\"", storage.value, name);
}

std::string text_of_instruction(const Graph& graph, const Plan& plan, InstructionId id) {
  const Instruction& instruction = plan.instruction(id);
  if (instruction.kind != InstructionKind::kCopy)
    return fmt::format("instruction {} ({} op {} {})", id.value,
                       kInstructionKindNames.name(instruction.kind), instruction.op.value,
                       graph.op(instruction.op).name);
  const Residency& from = plan.residency(instruction.from);
  const Residency& to = plan.residency(instruction.to);
  return fmt::format("instruction {} (copy {} {} {} -> {})", id.value,
                     text_of_storage(graph, from.part.storage), text_of(instruction.bytes),
                     kTierNames.name(from.tier), kTierNames.name(to.tier));
}

std::string text_of_residency(const Graph& graph, const Plan& plan, ResidencyId id) {
  const Residency& residency = plan.residency(id);
  return fmt::format("residency {} ({} {} at {} {})", id.value,
                     text_of_storage(graph, residency.part.storage), text_of(residency.part.bytes),
                     kTierNames.name(residency.tier), text_of(residency.range()));
}

std::string text_of_version(const Graph& graph, int32_t version) {
  if (version == kEntryVersion) return "entry content";
  if (version == kNoVersion) return "nothing";
  return fmt::format("what {} writes", text_of_op(graph, OpId{version}));
}

const char* text_of_access(const Op& op, size_t access) {
  if (access < op.reads.size()) return "reads";
  return access < op.reads.size() + op.makes.size() ? "makes" : "mutates";
}

}  // namespace outsize
