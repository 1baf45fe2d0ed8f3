#include "outsize/torch/cpu_device.h"

#include <algorithm>
#include <cstring>

#include "outsize/torch/openmp.h"

namespace outsize {
namespace {

void find_items(const Argument& result, std::vector<ScalarId>& items) {
  if (const auto* scalar = std::get_if<ScalarId>(&result.data)) items.push_back(*scalar);
  if (const auto* list = std::get_if<Argument::List>(&result.data))
    for (const Argument& item : *list) find_items(item, items);
}

Status check_inside(const Plan& plan, const CpuTiers& tiers) {
  const auto refuse = [](Tier tier, Interval range, int64_t had) {
    return bad_input("the plan uses {} bytes [{}, {}), the session has {}", kTierNames.name(tier),
                     range.begin, range.end, had);
  };
  for (const Residency& r : plan.residencies) {
    TierMemory* memory = tiers.of(r.tier);
    const int64_t bytes = memory == nullptr ? 0 : memory->bytes();
    if (r.address < 0 || r.range().end > bytes) return refuse(r.tier, r.range(), bytes);
  }
  for (const Instruction& i : plan.instructions)
    if (i.workspace.begin < 0 || i.workspace.end > tiers.device->bytes())
      return refuse(Tier::kDevice, i.workspace, tiers.device->bytes());
  return Done{};
}

}  // namespace

void copy_with_all_threads(std::byte* to, const std::byte* from, int64_t bytes) {
  constexpr int64_t kLeast = int64_t{1} << 20;
  constexpr int64_t kGrain = 4096;
  if (bytes < 2 * kLeast) {
    std::memcpy(to, from, static_cast<size_t>(bytes));
    return;
  }
  OpenMp::get().run_on_all([=](int thread, int threads) {
    const int64_t used = std::min<int64_t>(threads, bytes / kLeast);
    if (thread >= used) return;
    const int64_t share = (bytes / used + kGrain - 1) / kGrain * kGrain;
    const int64_t begin = std::min(bytes, share * thread);
    const int64_t end = thread == used - 1 ? bytes : std::min(bytes, begin + share);
    std::memcpy(to + begin, from + begin, static_cast<size_t>(end - begin));
  });
}

CpuDevice::CpuDevice(const Graph& graph, const Profile& profile, const Plan& plan,
                     const CpuTiers& tiers, bool record_levels)
    : graph_(&graph),
      profile_(&profile),
      tiers_(tiers),
      program_(graph),
      live_(plan, record_levels) {}

Result<std::unique_ptr<CpuDevice>> CpuDevice::create(const Graph& graph, const Profile& profile,
                                                     const Plan& plan, const CpuTiers& tiers,
                                                     bool record_levels) {
  OUTSIZE_CHECK(allocator_installed(), "the allocator's hook is not in place");
  OUTSIZE_CHECK(tiers.device != nullptr && tiers.device->base() != nullptr, "no device arena");
  if (profile.how != "measured")
    return bad_input("a step runs on a measured profile; this one is '{}'", profile.how);
  if (Status status = check_profile(graph, profile); !status) return status.error();
  if (Status status = check_inside(plan, tiers); !status) return status.error();
  std::unique_ptr<CpuDevice> device(new CpuDevice(graph, profile, plan, tiers, record_levels));
  if (Status status = device->bind_all(plan); !status) return status.error();
  return device;
}

Status CpuDevice::bind_all(const Plan& plan) {
  calls_.resize(graph_->ops.size());
  items_.resize(graph_->ops.size());
  descriptions_.resize(graph_->ops.size());
  for (size_t o = 0; o < graph_->ops.size(); ++o) {
    const OpId id{static_cast<int64_t>(o)};
    Result<OpCall> call = OpCall::prepare(*graph_, id);
    if (!call.ok()) return call.error();
    calls_[o].emplace(std::move(*call));
    descriptions_[o] = describe_op(*graph_, id);
    for (const Argument& result : graph_->ops[o].results) find_items(result, items_[o]);
  }
  for (const Instruction& instruction : plan.instructions) {
    bound_.emplace_back();
    if (instruction.kind == InstructionKind::kCopy) continue;
    Result<Bound> bound = bind(instruction, plan);
    if (!bound.ok()) return bound.error();
    bound_.back() = std::make_unique<Bound>(std::move(*bound));
  }
  return Done{};
}

Result<CpuDevice::Bound> CpuDevice::bind(const Instruction& instruction, const Plan& plan) {
  const Op& op = graph_->op(instruction.op);
  const OpCost& cost = profile_->ops[instruction.op.index()];
  const std::string& what = descriptions_[instruction.op.index()];
  std::byte* const base = tiers_.device->base();
  const std::vector<OperandAccess> accesses = accesses_of(op);
  std::vector<std::byte*> addresses;
  for (size_t k = 0; k < accesses.size(); ++k) {
    const Residency& r = plan.residency(instruction.operands[k]);
    addresses.push_back(base + r.address + accesses[k].access.bytes.begin - r.part.bytes.begin);
  }
  Result<BoundOp> bound = calls_[instruction.op.index()]->bind(addresses);
  if (!bound.ok()) return bound.error();

  Bound result{std::move(*bound), {}};
  for (size_t k = 0; k < cost.requests.size(); ++k) {
    const Request& request = cost.requests[k];
    if (request.output >= 0) {
      const auto output = static_cast<size_t>(request.output);
      if (output >= op.makes.size())
        return bad_input("{}: request {} is for output {} of {}", what, k, output, op.makes.size());
      const size_t operand = op.reads.size() + output;
      const Residency& r = plan.residency(instruction.operands[operand]);
      const int64_t room = r.part.bytes.end - op.makes[output].bytes.begin;
      if (request.bytes > room)
        return bad_input("{}: asks {} bytes for output {}, its residency holds {}", what,
                         request.bytes, output, room);
      result.requests.push_back({request.bytes, addresses[operand]});
    } else if (cost.scratch) {
      result.requests.push_back({request.bytes, nullptr});
    } else {
      if (request.offset < 0 || request.offset + request.bytes > instruction.workspace.size())
        return bad_input("{}: asks {} bytes at {} of its workspace of {}", what, request.bytes,
                         request.offset, instruction.workspace.size());
      result.requests.push_back(
          {request.bytes, base + instruction.workspace.begin + request.offset});
    }
  }
  return result;
}

Status CpuDevice::begin_step() {
  generators_.clear();
  highest_copied_ = 0;
  live_.begin_step();
  mark_worker_threads();
  return Done{};
}

Status CpuDevice::end_step() {
  generators_.clear();
  return Done{};
}

Status CpuDevice::run_op(const RunCall& call) {
  Bound* bound = bound_[call.instruction.index()].get();
  OUTSIZE_CHECK(bound != nullptr, "instruction {} runs no op", call.instruction.value);
  for (size_t k = 0; k < call.addresses.size(); ++k)
    OUTSIZE_CHECK(bound->op.addresses[k] == tiers_.device->base() + call.addresses[k],
                  "{}: operand {} is not where the plan that was loaded has it",
                  descriptions_[call.op.index()], k);
  live_.begin(call.instruction);
  Status status = call_op(call, *calls_[call.op.index()], *bound);
  live_.end(call.instruction);
  return status;
}

Status CpuDevice::call_op(const RunCall& call, const OpCall& op, Bound& bound) {
  if (op.takes_scalars())
    if (Status status = op.fill_scalars(bound.op, scalars_); !status) return status;
  const OpCost& cost = profile_->ops[call.op.index()];
  PlannedCall planned({descriptions_[call.op.index()], bound.requests, cost.scratch,
                       tiers_.device->base() + call.workspace.begin, call.workspace.size()});
  Status status = Done{};
  {
    Result<std::vector<c10::IValue>> results = op.invoke(bound.op);
    status =
        results.ok() ? op.check_results(bound.op, *results, &scalars_) : Status(results.error());
  }
  // A request outside the plan is the cause of whatever the op or the check say.
  const bool violated = !planned.violation().empty();
  Status ended = planned.finish();
  if (violated || status.ok()) status = ended;
  if (!status.ok()) return status;
  for (const ScalarId item : items_[call.op.index()])
    if (Status settled = program_.settle(scalars_, item); !settled) return settled;
  return Done{};
}

Status CpuDevice::copy(const CopyCall& call) {
  live_.begin(call.instruction);
  Status status = move(call);
  live_.end(call.instruction);
  return status;
}

void CpuDevice::note_highest(int64_t end) {
  int64_t known = highest_copied_.load();
  while (known < end && !highest_copied_.compare_exchange_weak(known, end)) {
  }
}

Status CpuDevice::move(const CopyCall& call) {
  TierMemory* from = tiers_.of(call.from);
  TierMemory* to = tiers_.of(call.to);
  OUTSIZE_CHECK(from != nullptr && to != nullptr, "a copy between tiers that are not there");
  if (call.from == Tier::kDevice) note_highest(call.from_address + call.bytes);
  if (call.to == Tier::kDevice) note_highest(call.to_address + call.bytes);
  if (call.to == Tier::kDisk && from->base() != nullptr)
    return to->write(call.to_address, from->base() + call.from_address, call.bytes);
  if (call.from == Tier::kDisk && to->base() != nullptr)
    return from->read(call.from_address, to->base() + call.to_address, call.bytes);
  std::byte* const target = to->base() + call.to_address;
  const std::byte* const source = from->base() + call.from_address;
  if (call.in_compute)
    copy_with_all_threads(target, source, call.bytes);
  else
    std::memcpy(target, source, static_cast<size_t>(call.bytes));
  return Done{};
}

}  // namespace outsize
