#include "outsize/plan/check_shape.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "outsize/plan/check_text.h"

namespace outsize {
namespace {

class ShapeChecker {
 public:
  ShapeChecker(const Graph& graph, const std::vector<int64_t>& workspace_bytes, const Plan& plan,
               const Budgets& budgets, int64_t alignment)
      : graph_(graph),
        workspace_bytes_(workspace_bytes),
        plan_(plan),
        budgets_(budgets),
        alignment_(alignment) {}

  Violation check() {
    if (check_inputs() && check_residencies() && check_instructions()) check_runs();
    return violation_;
  }

 private:
  bool fail(ViolationKind kind, std::string where, std::string witness) {
    violation_ = {kind, std::move(where), std::move(witness)};
    return false;
  }
  bool fail_at(ViolationKind kind, InstructionId at, std::string witness) {
    return fail(kind, text_of_instruction(graph_, plan_, at), std::move(witness));
  }

  bool check_inputs() {
    if (!workspace_bytes_.empty() && workspace_bytes_.size() != graph_.ops.size())
      return fail(ViolationKind::kMalformed, "workspaces",
                  fmt::format("{} workspaces are given for {} ops", workspace_bytes_.size(),
                              graph_.ops.size()));
    for (size_t i = 0; i < graph_.ops.size(); ++i)
      for (size_t k = 0; k < access_count(graph_.ops[i]); ++k) {
        const Access access = access_at(graph_.ops[i], k).access;
        if (!is_part(access))
          return fail(
              ViolationKind::kMalformed, text_of_op(graph_, OpId{static_cast<int64_t>(i)}),
              fmt::format("its access {} is bytes {} of storage {}, which has no such bytes", k,
                          text_of(access.bytes), access.storage.value));
      }
    return true;
  }

  bool is_part(const Part& part) const {
    return part.storage.valid() && part.storage.index() < graph_.storages.size() &&
           0 <= part.bytes.begin && part.bytes.begin <= part.bytes.end &&
           part.bytes.end <= graph_.storage(part.storage).bytes;
  }
  bool is_residency(ResidencyId id) const {
    return id.valid() && id.index() < plan_.residencies.size();
  }

  bool check_residencies() {
    for (size_t i = 0; i < plan_.residencies.size(); ++i) {
      const Residency& residency = plan_.residencies[i];
      const ResidencyId id{static_cast<int64_t>(i)};
      const auto where = [&] { return fmt::format("residency {}", i); };
      if (!is_part(residency.part))
        return fail(ViolationKind::kMalformed, where(),
                    fmt::format("holds bytes {} of storage {}, which has no such bytes",
                                text_of(residency.part.bytes), residency.part.storage.value));
      const int64_t budget = budgets_.of(residency.tier);
      const int64_t bytes = residency.part.bytes.size();
      if (residency.address < 0 || bytes > budget || residency.address > budget - bytes)
        return fail(ViolationKind::kBudget, where(),
                    fmt::format("{} bytes of {} at {} address {} do not lie in the budget [0, {})",
                                bytes, text_of_storage(graph_, residency.part.storage),
                                kTierNames.name(residency.tier), residency.address, budget));
      if (residency.tier == Tier::kDevice && !aligned(residency.address))
        return fail(ViolationKind::kAlignment, where(),
                    fmt::format("{} does not begin at a multiple of {}",
                                text_of_residency(graph_, plan_, id), alignment_));
    }
    for (const bool entry : {true, false})
      for (const BorderItem& item : entry ? plan_.entry : plan_.exit)
        if (!is_residency(item.residency))
          return fail(ViolationKind::kMalformed, entry ? "entry" : "exit",
                      fmt::format("names residency {} of {}", item.residency.value,
                                  plan_.residencies.size()));
    return true;
  }

  bool aligned(int64_t address) const { return alignment_ <= 1 || address % alignment_ == 0; }

  bool check_instructions() {
    for (size_t i = 0; i < plan_.instructions.size(); ++i) {
      const Instruction& instruction = plan_.instructions[i];
      const InstructionId id{static_cast<int64_t>(i)};
      const bool good = instruction.kind == InstructionKind::kCopy ? check_copy(id, instruction)
                                                                   : check_run(id, instruction);
      if (!good) return false;
      InstructionId before;
      for (const InstructionId wait : instruction.waits) {
        if (!wait.valid() || wait.index() >= plan_.instructions.size())
          return fail_at(
              ViolationKind::kMalformed, id,
              fmt::format("waits for instruction {} of {}", wait.value, plan_.instructions.size()));
        if (wait >= id)
          return fail_at(ViolationKind::kDeadlock, id,
                         fmt::format("waits for instruction {}, which is not earlier in the list",
                                     wait.value));
        if (wait <= before)
          return fail_at(
              ViolationKind::kMalformed, id,
              fmt::format("lists its wait for instruction {} after the one for {}; waits "
                          "ascend",
                          wait.value, before.value));
        before = wait;
      }
    }
    return true;
  }

  bool check_copy(InstructionId id, const Instruction& copy) {
    const auto plain = [&] { return fmt::format("instruction {} (copy)", id.value); };
    if (!is_residency(copy.from) || !is_residency(copy.to))
      return fail(ViolationKind::kMalformed, plain(),
                  fmt::format("goes from residency {} to residency {} of {}", copy.from.value,
                              copy.to.value, plan_.residencies.size()));
    const Residency& from = plan_.residency(copy.from);
    const Residency& to = plan_.residency(copy.to);
    if (from.part.storage != to.part.storage)
      return fail(ViolationKind::kMalformed, plain(),
                  fmt::format("goes between two storages: {} and {}",
                              text_of_residency(graph_, plan_, copy.from),
                              text_of_residency(graph_, plan_, copy.to)));
    for (const ResidencyId end : {copy.from, copy.to})
      if (copy.bytes.begin > copy.bytes.end ||
          !plan_.residency(end).part.bytes.contains(copy.bytes))
        return fail(ViolationKind::kMalformed, plain(),
                    fmt::format("moves bytes {}, which {} does not hold", text_of(copy.bytes),
                                text_of_residency(graph_, plan_, end)));
    if (!copy.operands.empty() || !copy.workspace.empty() || copy.op.valid())
      return fail_at(ViolationKind::kMalformed, id, "is a copy with an op's fields");
    if (copy.stream != Stream::kCompute && copy.stream != stream_of(from.tier, to.tier))
      return fail_at(
          ViolationKind::kStream, id,
          fmt::format(
              "stands in the {} stream; it belongs to {}compute", kStreamNames.name(copy.stream),
              from.tier == to.tier
                  ? std::string()
                  : fmt::format("{} or ", kStreamNames.name(stream_of(from.tier, to.tier)))));
    return true;
  }

  // The stream for a copy's direction; a move within a tier belongs to compute alone.
  static Stream stream_of(Tier from, Tier to) {
    if (from == to) return Stream::kCompute;
    if (to == Tier::kDisk) return Stream::kWrite;
    if (from == Tier::kDisk) return Stream::kRead;
    return from == Tier::kDevice ? Stream::kOut : Stream::kIn;
  }

  bool check_run(InstructionId id, const Instruction& run) {
    const auto plain = [&] {
      return fmt::format("instruction {} ({})", id.value, kInstructionKindNames.name(run.kind));
    };
    if (!run.op.valid() || run.op.index() >= graph_.ops.size())
      return fail(ViolationKind::kMalformed, plain(),
                  fmt::format("names op {} of {}", run.op.value, graph_.ops.size()));
    if (run.from.valid() || run.to.valid() || !run.bytes.empty())
      return fail_at(ViolationKind::kMalformed, id, "runs an op but has a copy's fields");
    if (run.stream != Stream::kCompute)
      return fail_at(ViolationKind::kStream, id,
                     fmt::format("stands in the {} stream; ops run in compute",
                                 kStreamNames.name(run.stream)));
    const Op& op = graph_.op(run.op);
    if (run.operands.size() != access_count(op))
      return fail_at(
          ViolationKind::kMalformed, id,
          fmt::format("has {} operands for {} accesses", run.operands.size(), access_count(op)));
    for (size_t k = 0; k < run.operands.size(); ++k) {
      const AccessView view = access_at(op, k);
      if (!is_residency(run.operands[k]))
        return fail_at(ViolationKind::kMalformed, id,
                       fmt::format("{} names residency {} of {}", text_of_operand(op, k),
                                   run.operands[k].value, plan_.residencies.size()));
      const Residency& residency = plan_.residency(run.operands[k]);
      if (residency.tier != Tier::kDevice || residency.part.storage != view.access.storage ||
          !residency.part.bytes.contains(view.access.bytes))
        return fail_at(ViolationKind::kMalformed, id,
                       fmt::format("{} does not lie in {}", text_of_operand(op, k),
                                   text_of_residency(graph_, plan_, run.operands[k])));
    }
    return check_workspace(id, run);
  }

  std::string text_of_operand(const Op& op, size_t k) const {
    const Access access = access_at(op, k).access;
    return fmt::format("operand {} ({} {} {})", k, text_of_access(op, k),
                       text_of_storage(graph_, access.storage), text_of(access.bytes));
  }

  bool check_workspace(InstructionId id, const Instruction& run) {
    const int64_t wanted = workspace_bytes_.empty() ? 0 : workspace_bytes_[run.op.index()];
    const Interval had = run.workspace;
    if (had.begin > had.end)
      return fail_at(ViolationKind::kMalformed, id,
                     fmt::format("has the workspace {}, which runs backwards", text_of(had)));
    if (!had.empty() && (had.begin < 0 || had.end > budgets_.device))
      return fail_at(ViolationKind::kBudget, id,
                     fmt::format("its workspace {} does not lie in the device budget [0, {})",
                                 text_of(had), budgets_.device));
    if (!had.empty() && !aligned(had.begin))
      return fail_at(ViolationKind::kAlignment, id,
                     fmt::format("its workspace {} does not begin at a multiple of {}",
                                 text_of(had), alignment_));
    if (wanted > 0 && (had.empty() || had.end - had.begin < wanted))
      return fail_at(ViolationKind::kWorkspace, id,
                     fmt::format("needs a workspace of {} bytes and has {}", wanted,
                                 had.empty() ? 0 : had.size()));
    return true;
  }

  // --- ops: each once, reruns later, chains in order ---

  bool check_runs() {
    std::vector<InstructionId> run_of(graph_.ops.size());
    OpId last_rng, last_collective;
    find_scalar_sources();
    for (size_t i = 0; i < plan_.instructions.size(); ++i) {
      const Instruction& instruction = plan_.instructions[i];
      if (instruction.kind == InstructionKind::kCopy) continue;
      const InstructionId id{static_cast<int64_t>(i)};
      InstructionId& run = run_of[instruction.op.index()];
      if (instruction.kind == InstructionKind::kRerun) {
        // Both stand in the compute stream, so the list's order is the order of execution.
        if (!run.valid())
          return fail_at(ViolationKind::kMissingOp, id,
                         fmt::format("{} has not run before", text_of_op(graph_, instruction.op)));
        continue;
      }
      if (run.valid())
        return fail_at(ViolationKind::kMissingOp, id,
                       fmt::format("{} has already run, as instruction {}",
                                   text_of_op(graph_, instruction.op), run.value));
      const Op& op = graph_.op(instruction.op);
      if (!has_scalars(id, op.args, run_of)) return false;
      run = id;
      if (op.uses_rng && !in_chain(id, "draws random numbers", last_rng)) return false;
      if (op.collective && !in_chain(id, "is collective", last_collective)) return false;
    }
    for (size_t i = 0; i < run_of.size(); ++i)
      if (!run_of[i].valid())
        return fail(ViolationKind::kMissingOp, text_of_op(graph_, OpId{static_cast<int64_t>(i)}),
                    "no instruction runs it");
    return true;
  }

  // Numbers that ops read off tensors: for each scalar, the ops that must have run before it is
  // known.
  void find_scalar_sources() {
    scalar_sources_.assign(graph_.scalars.size(), {});
    for (size_t i = 0; i < graph_.ops.size(); ++i)
      each_scalar(graph_.ops[i].results, [&](ScalarId scalar) {
        scalar_sources_[scalar.index()].push_back(OpId{static_cast<int64_t>(i)});
      });
    for (size_t i = 0; i < graph_.scalars.size(); ++i) {
      std::vector<OpId>& sources = scalar_sources_[i];
      each_scalar(graph_.scalars[i].args, [&](ScalarId scalar) {
        const std::vector<OpId>& theirs = scalar_sources_[scalar.index()];
        sources.insert(sources.end(), theirs.begin(), theirs.end());
      });
      std::sort(sources.begin(), sources.end());
      sources.erase(std::unique(sources.begin(), sources.end()), sources.end());
    }
  }

  template <typename Visit>
  void each_scalar(const Argument::List& arguments, Visit&& visit) const {
    for (const Argument& argument : arguments) {
      if (const auto* scalar = std::get_if<ScalarId>(&argument.data)) {
        if (scalar->valid() && scalar->index() < graph_.scalars.size()) visit(*scalar);
      } else if (const auto* list = std::get_if<Argument::List>(&argument.data)) {
        each_scalar(*list, visit);
      }
    }
  }

  bool has_scalars(InstructionId id, const Argument::List& arguments,
                   const std::vector<InstructionId>& run_of) {
    OpId missing;
    ScalarId wanted;
    each_scalar(arguments, [&](ScalarId scalar) {
      for (const OpId source : scalar_sources_[scalar.index()])
        if (!missing.valid() && !run_of[source.index()].valid()) missing = source, wanted = scalar;
    });
    return !missing.valid() ||
           fail_at(ViolationKind::kStale, id,
                   fmt::format("takes scalar {}, which needs {}, and that has not run before",
                               wanted.value, text_of_op(graph_, missing)));
  }

  bool in_chain(InstructionId id, const char* why, OpId& last) {
    const OpId op = plan_.instruction(id).op;
    if (op < last)
      return fail_at(ViolationKind::kOrder, id,
                     fmt::format("{} {}, as does {}, which comes later in program order but has "
                                 "run before",
                                 text_of_op(graph_, op), why, text_of_op(graph_, last)));
    last = op;
    return true;
  }

  const Graph& graph_;
  const std::vector<int64_t>& workspace_bytes_;
  const Plan& plan_;
  const Budgets& budgets_;
  const int64_t alignment_;
  std::vector<std::vector<OpId>> scalar_sources_;
  Violation violation_;
};

}  // namespace

Violation check_shape(const Graph& graph, const std::vector<int64_t>& workspace_bytes,
                      const Plan& plan, const Budgets& budgets, int64_t alignment) {
  return ShapeChecker(graph, workspace_bytes, plan, budgets, alignment).check();
}

}  // namespace outsize
