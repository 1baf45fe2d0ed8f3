#include "outsize/run/executor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "outsize/plan/check.h"
#include "outsize/run/executor_unchecked.h"
#include "outsize/run/streams.h"
#include "outsize/run/testing/fake_device.h"
#include "outsize/run/testing/random_plans.h"
#include "outsize/run/testing/steps.h"

namespace outsize {
namespace {

using testing::Case;
using testing::Contents;
using testing::expect_same_as_program_order;
using testing::FakeDevice;
using testing::profile_of;
using testing::random_case;
using testing::random_entry;
using testing::threads_now;

#ifdef OUTSIZE_SANITIZED
constexpr uint64_t kCases = 20;
#else
constexpr uint64_t kCases = 120;
#endif

Storage storage_of(int64_t bytes, Role role, bool entry, bool exit, bool persistent,
                   const std::string& name) {
  return {bytes, role, entry, exit, persistent, name};
}

Op op_of(const std::string& name, std::vector<Access> reads, std::vector<Access> makes,
         std::vector<Access> mutates) {
  Op op;
  op.name = name;
  op.reads = std::move(reads);
  op.makes = std::move(makes);
  op.mutates = std::move(mutates);
  return op;
}

template <typename IdType>
std::vector<IdType> ids(const std::vector<int64_t>& numbers) {
  std::vector<IdType> out;
  for (const int64_t n : numbers) out.push_back(IdType{n});
  return out;
}

Instruction run_of(int64_t op, const std::vector<int64_t>& operands,
                   const std::vector<int64_t>& waits) {
  Instruction run;
  run.op = OpId{op};
  run.operands = ids<ResidencyId>(operands);
  run.waits = ids<InstructionId>(waits);
  return run;
}

Instruction copy_of(Stream stream, int64_t from, int64_t to, Interval bytes,
                    const std::vector<int64_t>& waits) {
  Instruction copy;
  copy.stream = stream;
  copy.kind = InstructionKind::kCopy;
  copy.from = ResidencyId{from};
  copy.to = ResidencyId{to};
  copy.bytes = bytes;
  copy.waits = ids<InstructionId>(waits);
  return copy;
}

// The plan of plan.h's picture, by hand:  #0 Run(op0 makes A)  #1 out A  #2 Run(op1 over A's place)
// #3 in A  #4 Run(op2 reads A).
Case hand_case() {
  Case c;
  c.graph.storages = {storage_of(8, Role::kParameter, true, true, true, "w"),
                      storage_of(16, Role::kActivation, false, false, false, "A"),
                      storage_of(16, Role::kActivation, false, false, false, "B"),
                      storage_of(8, Role::kOutput, false, true, false, "y")};
  const Access w{StorageId{0}, {0, 8}}, a{StorageId{1}, {0, 16}}, b{StorageId{2}, {0, 16}},
      y{StorageId{3}, {0, 8}};
  c.graph.ops = {op_of("test.make", {w}, {a}, {}), op_of("test.over", {w}, {b}, {}),
                 op_of("test.last", {a}, {y}, {w})};
  c.workspaces = {0, 4, 0};
  c.plan.budgets = {36, 16, 0};
  c.plan.residencies = {{Tier::kDevice, w, 0}, {Tier::kDevice, a, 8}, {Tier::kHost, a, 0},
                        {Tier::kDevice, b, 8}, {Tier::kDevice, a, 8}, {Tier::kDevice, y, 24}};
  c.plan.instructions = {run_of(0, {0, 1}, {}), copy_of(Stream::kOut, 1, 2, {0, 16}, {0}),
                         run_of(1, {0, 3}, {1}), copy_of(Stream::kIn, 2, 4, {0, 16}, {1, 2}),
                         run_of(2, {4, 5, 0}, {3})};
  c.plan.instructions[2].workspace = {32, 36};
  c.plan.entry = {{ResidencyId{0}, true}};
  c.plan.exit = {{ResidencyId{0}, true}, {ResidencyId{5}, false}};
  return c;
}

TEST(Executor, CarriesOutAPlanByHand) {
  const Case c = hand_case();
  FakeDevice device(c.graph, c.plan);
  auto executor = Executor::create(c.graph, profile_of(c), c.plan, device, 4, {});
  ASSERT_TRUE(executor.ok()) << executor.error().message;
  const Contents entry = random_entry(c.graph, 1);
  device.set_entry(entry);
  const Result<StepReport> report = (*executor)->step();
  ASSERT_TRUE(report.ok()) << report.error().message;
  expect_same_as_program_order(c, device, entry, 77);
  EXPECT_EQ(report->moved_out, 16);
  EXPECT_EQ(report->moved_in, 16);
  EXPECT_EQ(report->moved_write + report->moved_read, 0);
  EXPECT_TRUE(report->rerun_ops.empty());
  EXPECT_EQ(report->swapped, (std::map<Role, int64_t>{{Role::kActivation, 32}}));
  ASSERT_EQ(report->times.size(), 5u);
  for (size_t k = 1; k < 5; ++k) {  // every instruction of this plan waits for the one before
    EXPECT_LE(report->times[k - 1].end_ns, report->times[k].begin_ns);
    EXPECT_LE(report->times[k].begin_ns, report->times[k].end_ns);
  }
  EXPECT_LE(report->times[4].end_ns, report->step_ns);
}

TEST(Executor, RefusesAPlanThatTheCheckerRefuses) {
  Case c = hand_case();
  c.plan.instructions[2].waits.clear();
  FakeDevice device(c.graph, c.plan);
  const auto executor = Executor::create(c.graph, profile_of(c), c.plan, device, 4, {});
  ASSERT_FALSE(executor.ok());
  EXPECT_EQ(executor.error().kind, ErrorKind::kIllegal);
  EXPECT_NE(executor.error().message.find("race"), std::string::npos) << executor.error().message;
}

TEST(Executor, RefusesWhatWouldBeUndefinedEvenUnchecked) {
  const auto refusal = [](auto&& damage) {
    Case c = hand_case();
    damage(c.plan);
    FakeDevice device(c.graph, c.plan);
    const auto executor = unchecked_executor(c.graph, c.plan, device, {});
    return executor.ok() ? std::string() : executor.error().message;
  };
  EXPECT_NE(refusal([](Plan& p) { p.instructions[0].op = OpId{9}; }).find("op 9 of 3"),
            std::string::npos);
  EXPECT_NE(refusal([](Plan& p) { p.instructions[0].operands.pop_back(); }).find("1 operands"),
            std::string::npos);
  EXPECT_NE(refusal([](Plan& p) { p.instructions[0].operands[1] = ResidencyId{2}; }).find("host"),
            std::string::npos);
  EXPECT_NE(refusal([](Plan& p) { p.instructions[1].from = ResidencyId{6}; }).find("6 of 6"),
            std::string::npos);
  EXPECT_NE(refusal([](Plan& p) { p.instructions[1].bytes = {0, 17}; }).find("[0, 16)"),
            std::string::npos);
  EXPECT_NE(refusal([](Plan& p) { p.instructions[1].waits = {InstructionId{1}}; }).find("earlier"),
            std::string::npos);
  EXPECT_NE(refusal([](Plan& p) { p.instructions[2].stream = Stream::kIn; }).find("stream in"),
            std::string::npos);
}

// The first error's step counts nothing in the next one.
TEST(Executor, AFailedStepLeavesNothingInTheNextOnesCounts) {
  const Case c = hand_case();
  FakeDevice device(c.graph, c.plan);
  auto executor = Executor::create(c.graph, profile_of(c), c.plan, device, 4, {});
  ASSERT_TRUE(executor.ok());
  device.set_entry(random_entry(c.graph, 1));
  device.fault = FakeDevice::Fault::kError;
  device.fault_at = InstructionId{3};  // the copy in; A has been copied out by then
  ASSERT_FALSE((*executor)->step().ok());
  device.fault = FakeDevice::Fault::kNone;
  const Result<StepReport> report = (*executor)->step();
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->moved_out, 16);
  EXPECT_EQ(report->moved_in, 16);
}

TEST(Executor, RandomPlansGiveWhatProgramOrderGives) {
  size_t reruns = 0;
  int64_t disk_bytes = 0;
  for (uint64_t seed = 1; seed <= kCases; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const Case c = random_case(seed);
    FakeDevice device(c.graph, c.plan);
    auto executor = Executor::create(c.graph, profile_of(c), c.plan, device, 1, {});
    ASSERT_TRUE(executor.ok()) << executor.error().message;
    StepReport counted;
    int64_t swapped = 0;
    for (uint64_t step = 0; step < 3; ++step) {
      const uint64_t generator = device.generator;
      const Contents entry = random_entry(c.graph, seed * 10 + step);
      device.set_entry(entry);
      const Result<StepReport> report = (*executor)->step();
      ASSERT_TRUE(report.ok()) << report.error().message;
      expect_same_as_program_order(c, device, entry, generator);
      counted.moved_out += report->moved_out;
      counted.moved_in += report->moved_in;
      counted.moved_write += report->moved_write;
      counted.moved_read += report->moved_read;
      counted.rerun_ops.insert(counted.rerun_ops.end(), report->rerun_ops.begin(),
                               report->rerun_ops.end());
      for (const auto& [role, bytes] : report->swapped) swapped += bytes;
    }
    // What the device itself has seen.
    constexpr size_t kDevice = 0, kHost = 1, kDisk = 2;
    EXPECT_EQ(counted.moved_out, device.moved[kDevice][kHost]);
    EXPECT_EQ(counted.moved_in, device.moved[kHost][kDevice]);
    EXPECT_EQ(counted.moved_write, device.moved[kDevice][kDisk] + device.moved[kHost][kDisk]);
    EXPECT_EQ(counted.moved_read, device.moved[kDisk][kDevice] + device.moved[kDisk][kHost]);
    EXPECT_EQ(counted.rerun_ops, device.rerun_ops);
    EXPECT_EQ(swapped,
              counted.moved_out + counted.moved_in + counted.moved_write + counted.moved_read);
    reruns += device.rerun_ops.size();
    disk_bytes += counted.moved_read;
    EXPECT_EQ(device.begins, 3);
    EXPECT_EQ(device.ends, 3);
  }
  EXPECT_GT(reruns, 0);  // the cases do recompute and do reach the disk
  EXPECT_GT(disk_bytes, 0);
}

TEST(Executor, ClockModeWithDelaysAgrees) {
  for (uint64_t seed = 1; seed <= kCases / 4; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const Case c = random_case(seed);
    FakeDevice device(c.graph, c.plan);
    auto executor =
        Executor::create(c.graph, profile_of(c), c.plan, device, 1,
                         {.clock_mode = true, .seed = seed, .longest_delay_ns = 20'000});
    ASSERT_TRUE(executor.ok()) << executor.error().message;
    const Contents entry = random_entry(c.graph, seed);
    device.set_entry(entry);
    const Result<StepReport> report = (*executor)->step();
    ASSERT_TRUE(report.ok()) << report.error().message;
    expect_same_as_program_order(c, device, entry, 77);
  }
}

// Whether `earlier` is ordered before `later` by the streams and the waits alone, by search.
bool ordered(const Plan& plan, InstructionId earlier, InstructionId later) {
  std::vector<bool> before(plan.instructions.size(), false);
  std::vector<InstructionId> open = {later};
  while (!open.empty()) {
    const InstructionId at = open.back();
    open.pop_back();
    if (at == earlier) return true;
    if (before[at.index()]) continue;
    before[at.index()] = true;
    for (const InstructionId wait : plan.instruction(at).waits) open.push_back(wait);
    for (int64_t k = at.value - 1; k >= 0; --k)
      if (plan.instruction(InstructionId{k}).stream == plan.instruction(at).stream) {
        open.push_back(InstructionId{k});
        break;
      }
  }
  return false;
}

// Every wait of every plan, taken away: clock mode reports it exactly when nothing else orders the
// pair (each wait of a random plan stands for a conflict), and the checker agrees.
TEST(Executor, ClockModeCatchesEveryRemovedWaitThatMatters) {
  int64_t caught = 0, implied = 0;
  for (uint64_t seed = 1; seed <= kCases / 10; ++seed)
    for (size_t i = 0; i < random_case(seed).plan.instructions.size(); ++i) {
      const Case whole = random_case(seed);
      for (size_t w = 0; w < whole.plan.instructions[i].waits.size(); ++w) {
        Case c = whole;
        const InstructionId later{static_cast<int64_t>(i)};
        std::vector<InstructionId>& waits = c.plan.instructions[i].waits;
        const InstructionId removed = waits[w];
        waits.erase(waits.begin() + static_cast<int64_t>(w));
        FakeDevice device(c.graph, c.plan);
        auto executor = unchecked_executor(c.graph, c.plan, device, {.clock_mode = true});
        ASSERT_TRUE(executor.ok());
        device.set_entry(random_entry(c.graph, seed));
        const Result<StepReport> report = (*executor)->step();
        const bool harmless = ordered(c.plan, removed, later);
        EXPECT_EQ(report.ok(), harmless)
            << "seed " << seed << ": " << later.value << " no longer waits for " << removed.value;
        if (!report.ok()) {
          EXPECT_EQ(report.error().kind, ErrorKind::kIllegal);
          EXPECT_NE(report.error().message.find("not ordered after"), std::string::npos);
        }
        EXPECT_EQ(check_plan(c.graph, c.workspaces, c.plan, c.plan.budgets, 1).ok(), harmless);
        ++(harmless ? implied : caught);
      }
    }
  EXPECT_GT(caught, 20);
  EXPECT_GT(implied, 0);
}

// A fault at every instruction, of every kind: its name comes back, nothing hangs, no thread is
// left, and the executor can be used again.
TEST(Executor, FirstErrorNamesItsInstruction) {
  const int threads_before = threads_now();
  for (uint64_t seed = 1; seed <= kCases / 20; ++seed) {
    const Case c = random_case(seed);
    FakeDevice device(c.graph, c.plan);
    auto executor = Executor::create(c.graph, profile_of(c), c.plan, device, 1, {});
    ASSERT_TRUE(executor.ok()) << executor.error().message;
    const Contents entry = random_entry(c.graph, seed);
    for (size_t i = 0; i < c.plan.instructions.size(); ++i) {
      SCOPED_TRACE(fmt::format("seed {} instruction {}", seed, i));
      const InstructionId id{static_cast<int64_t>(i)};
      device.fault_at = id;
      device.fault = static_cast<FakeDevice::Fault>(1 + i % 3);
      device.set_entry(entry);
      const Result<StepReport> report = (*executor)->step();
      ASSERT_FALSE(report.ok());
      EXPECT_EQ(report.error().kind, ErrorKind::kDevice);
      EXPECT_EQ(report.error().message.find(describe_instruction(c.graph, c.plan, id)), 0u)
          << report.error().message;
      EXPECT_EQ((*executor)->failure().instruction, id);
      EXPECT_EQ(device.begins, device.ends);
    }
    device.fault = FakeDevice::Fault::kNone;
    device.set_entry(entry);
    const uint64_t generator = device.generator;
    ASSERT_TRUE((*executor)->step().ok());
    expect_same_as_program_order(c, device, entry, generator);
  }
  EXPECT_EQ(threads_now(), threads_before);
}

// Asked before each instruction of the compute stream, and more often where that waits for long; an
// error at any of them stops the step, and the next step runs.
TEST(Executor, StopsBetweenInstructionsWhenAsked) {
  const Case c = random_case(3);
  FakeDevice device(c.graph, c.plan);
  auto executor = Executor::create(c.graph, profile_of(c), c.plan, device, 1, {});
  ASSERT_TRUE(executor.ok()) << executor.error().message;
  const Contents entry = random_entry(c.graph, 3);
  std::vector<InstructionId> computed;
  for (size_t i = 0; i < c.plan.instructions.size(); ++i)
    if (c.plan.instructions[i].stream == Stream::kCompute)
      computed.push_back(InstructionId{static_cast<int64_t>(i)});
  for (size_t last = 0; last < computed.size(); ++last) {
    size_t asked = 0;
    device.set_entry(entry);
    const Result<StepReport> report = (*executor)->step([&]() -> Status {
      if (asked++ < last) return Done{};
      return Error{ErrorKind::kCancelled, "enough"};
    });
    ASSERT_FALSE(report.ok());
    EXPECT_EQ(report.error().kind, ErrorKind::kCancelled);
    EXPECT_EQ(asked, last + 1);
    EXPECT_LE((*executor)->failure().instruction, computed[last]);
  }
  device.set_entry(entry);
  const uint64_t generator = device.generator;
  size_t asked = 0;
  ASSERT_TRUE((*executor)
                  ->step([&]() -> Status {
                    ++asked;
                    return Done{};
                  })
                  .ok());
  EXPECT_GE(asked, computed.size());
  expect_same_as_program_order(c, device, entry, generator);
}

// A step that is given up after its end has changed all that it changes.
TEST(Executor, FailureAtEndNamesAllThatAStepChanges) {
  const Case c = hand_case();
  FakeDevice device(c.graph, c.plan);
  auto executor = Executor::create(c.graph, profile_of(c), c.plan, device, 4, {});
  ASSERT_TRUE(executor.ok());
  ASSERT_TRUE((*executor)->step().ok());
  EXPECT_EQ((*executor)->failure_at_end().changed.size(), 1u);
}

// A stream that waits for one that never comes on is told when its patience is over.
TEST(Streams, AWaitCanEndUnfinished) {
  StreamCounts counts;
  const WaitFor first{Stream::kOut, 1};
  EXPECT_EQ(counts.wait_for(first, std::chrono::milliseconds(1)), std::nullopt);
  counts.advance(Stream::kOut);
  EXPECT_EQ(counts.wait_for(first, std::chrono::milliseconds(1)), true);
  EXPECT_TRUE(counts.wait(first));
  counts.stop();
  EXPECT_EQ(counts.wait_for({Stream::kOut, 2}, std::chrono::milliseconds(1)), false);
}

TEST(Executor, FailureSaysWhatWasChanged) {
  const Case c = hand_case();
  FakeDevice device(c.graph, c.plan);
  auto executor = Executor::create(c.graph, profile_of(c), c.plan, device, 4, {});
  ASSERT_TRUE(executor.ok());
  device.set_entry(random_entry(c.graph, 1));
  device.fault = FakeDevice::Fault::kError;
  device.fault_at = InstructionId{3};
  ASSERT_FALSE((*executor)->step().ok());
  EXPECT_TRUE((*executor)->failure().changed.empty());
  device.fault_at = InstructionId{4};  // the op that mutates w
  ASSERT_FALSE((*executor)->step().ok());
  EXPECT_EQ((*executor)->failure().changed, std::vector<StorageId>{StorageId{0}});
  EXPECT_TRUE((*executor)->failure().displaced.empty());
}

// The first op's output may lie where w's home was once w has been copied away; w is then displaced
// though nothing changed it.
TEST(Executor, FailureSaysWhoseHomeWasWrittenOver) {
  const Access w{StorageId{0}, {0, 8}}, a{StorageId{1}, {0, 8}};
  Graph graph;
  graph.storages = {storage_of(8, Role::kParameter, true, true, true, "w"),
                    storage_of(8, Role::kOutput, false, true, false, "")};
  graph.ops = {op_of("test.make", {}, {a}, {})};
  Plan plan;
  plan.budgets = {8, 8, 0};
  plan.residencies = {{Tier::kDevice, w, 0}, {Tier::kHost, w, 0}, {Tier::kDevice, a, 0}};
  plan.instructions = {copy_of(Stream::kOut, 0, 1, {0, 8}, {}), run_of(0, {2}, {0})};
  plan.entry = {{ResidencyId{0}, true}};
  plan.exit = {{ResidencyId{1}, true}, {ResidencyId{2}, false}};
  FakeDevice device(graph, plan);
  Profile profile;
  profile.how = "stated";
  profile.ops.resize(1);
  auto executor = Executor::create(graph, profile, plan, device, 8, {});
  ASSERT_TRUE(executor.ok()) << executor.error().message;
  device.set_entry(random_entry(graph, 1));
  device.fault = FakeDevice::Fault::kError;
  device.fault_at = InstructionId{0};
  ASSERT_FALSE((*executor)->step().ok());
  EXPECT_TRUE((*executor)->failure().displaced.empty());
  device.fault_at = InstructionId{1};
  ASSERT_FALSE((*executor)->step().ok());
  EXPECT_TRUE((*executor)->failure().changed.empty());
  EXPECT_EQ((*executor)->failure().displaced, std::vector<StorageId>{StorageId{0}});
}

class FailingBorders : public FakeDevice {
 public:
  using FakeDevice::FakeDevice;
  Status begin_step() override {
    ++begins;
    if (fail_begin) throw std::runtime_error("no begin");
    return Done{};
  }
  Status end_step() override {
    ++ends;
    return fail_end ? Status(device_error("no end")) : Status(Done{});
  }
  bool fail_begin = false, fail_end = false;
};

TEST(Executor, FailuresAtTheBordersOfAStepComeBack) {
  const Case c = hand_case();
  FailingBorders device(c.graph, c.plan);
  auto executor = Executor::create(c.graph, profile_of(c), c.plan, device, 4, {});
  ASSERT_TRUE(executor.ok());
  device.fail_begin = true;
  Result<StepReport> report = (*executor)->step();
  ASSERT_FALSE(report.ok());
  EXPECT_NE(report.error().message.find("no begin"), std::string::npos);
  EXPECT_EQ(device.ends, 0);
  EXPECT_FALSE((*executor)->failure().instruction.valid());
  device.fail_begin = false;
  device.fail_end = true;
  report = (*executor)->step();
  ASSERT_FALSE(report.ok());
  EXPECT_NE(report.error().message.find("no end"), std::string::npos);
  EXPECT_EQ((*executor)->failure().changed.size(), 1u);
}

TEST(Executor, RecordsTimesOnlyWhenAsked) {
  const Case c = random_case(3);
  FakeDevice device(c.graph, c.plan);
  auto executor =
      Executor::create(c.graph, profile_of(c), c.plan, device, 1, {.record_times = false});
  ASSERT_TRUE(executor.ok());
  device.set_entry(random_entry(c.graph, 1));
  const Result<StepReport> report = (*executor)->step();
  ASSERT_TRUE(report.ok());
  EXPECT_TRUE(report->times.empty());
  EXPECT_GT(report->step_ns, 0);
}

TEST(Program, LeavesOutWaitsThatAreAlreadyMet) {
  Case c = hand_case();
  const Result<Program> program = program_of(c.graph, c.plan);
  ASSERT_TRUE(program.ok());
  const auto& compute = program->of(Stream::kCompute);
  ASSERT_EQ(compute.size(), 3u);
  EXPECT_TRUE(compute[0].waits.empty());
  EXPECT_EQ(compute[1].waits, (std::vector<WaitFor>{{Stream::kOut, 1}}));
  EXPECT_EQ(compute[2].waits, (std::vector<WaitFor>{{Stream::kIn, 1}}));
  EXPECT_EQ(program->of(Stream::kIn)[0].waits,
            (std::vector<WaitFor>{{Stream::kCompute, 2}, {Stream::kOut, 1}}));
  c.plan.instructions[4].waits = {InstructionId{1}, InstructionId{3}};  // #2 has waited for #1
  EXPECT_EQ(program_of(c.graph, c.plan)->of(Stream::kCompute)[2].waits,
            (std::vector<WaitFor>{{Stream::kIn, 1}}));
}

}  // namespace
}  // namespace outsize
