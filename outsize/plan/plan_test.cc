#include "outsize/plan/plan.h"

#include <gtest/gtest.h>

#include "outsize/base/text_edits.h"
#include "outsize/plan/plan_json.h"

namespace outsize {
namespace {

// The example of docs/formats/plan.md.
constexpr std::string_view kTiny = R"(
{"format": "outsize-plan", "version": 1, "planner": "outsize", "budgets": {"device": 1000, "host": 1000, "disk": 0},
 "residencies": [{"tier": "device", "storage": 0, "bytes": [0, 400], "address": 0},
                 {"tier": "host", "storage": 0, "bytes": [0, 400], "address": 0}],
 "instructions": [{"stream": "in", "kind": "copy", "from": 1, "to": 0, "bytes": [0, 400]},
                  {"stream": "compute", "kind": "run", "op": 0, "operands": [0], "workspace": [400, 464], "waits": [0]}],
 "entry": [{"residency": 1, "home": true}], "exit": [{"residency": 1, "home": true}]}
)";

TEST(PlanJson, ReadsThePageOfItsFormat) {
  const Result<Plan> plan = plan_from_json(kTiny);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_EQ(plan->budgets, (Budgets{1000, 1000, 0}));
  EXPECT_EQ(plan->residencies[1], (Residency{Tier::kHost, {StorageId(0), {0, 400}}, 0}));
  const Instruction& copy = plan->instructions[0];
  EXPECT_EQ(copy.stream, Stream::kIn);
  EXPECT_EQ(copy.kind, InstructionKind::kCopy);
  EXPECT_EQ(copy.from, ResidencyId(1));
  EXPECT_EQ(copy.to, ResidencyId(0));
  const Instruction& run = plan->instructions[1];
  EXPECT_EQ(run.workspace, (Interval{400, 464}));
  EXPECT_EQ(run.waits, (std::vector<InstructionId>{InstructionId(0)}));
  EXPECT_EQ(plan->entry, (std::vector<BorderItem>{{ResidencyId(1), true}}));
  EXPECT_EQ(*plan_from_json(to_json(*plan)), *plan);
}

// Any plan that the form can say; legal or not is no matter here.
Plan random_plan(uint64_t seed) {
  Random random(seed);
  const auto interval = [&] {
    const int64_t begin = random.below(1000);
    return Interval{begin, random.between(begin, 1001)};
  };
  Plan plan;
  plan.planner = "random \"plan\"";
  plan.budgets = {random.below(1'000'000), int64_t{1} << 62, random.below(2)};
  for (int64_t n = random.below(10); n > 0; --n)
    plan.residencies.push_back({kTierNames.entries[static_cast<size_t>(random.below(3))].first,
                                {StorageId(random.below(50)), interval()},
                                random.below(int64_t{1} << 61)});
  for (int64_t n = random.below(20); n > 0; --n) {
    Instruction instruction;
    instruction.stream = kStreamNames.entries[static_cast<size_t>(random.below(5))].first;
    instruction.kind = kInstructionKindNames.entries[static_cast<size_t>(random.below(3))].first;
    if (instruction.kind == InstructionKind::kCopy) {
      instruction.from = ResidencyId(random.below(10));
      instruction.to = ResidencyId(random.below(10));
      instruction.bytes = interval();
    } else {
      instruction.op = OpId(random.below(30));
      for (int64_t m = random.below(5); m > 0; --m)
        instruction.operands.emplace_back(random.below(10));
      if (random.chance(0.5)) instruction.workspace = interval();
    }
    for (int64_t m = random.below(3); m > 0; --m) instruction.waits.emplace_back(random.below(20));
    plan.instructions.push_back(instruction);
  }
  for (auto* border : {&plan.entry, &plan.exit})
    for (int64_t n = random.below(4); n > 0; --n)
      border->push_back({ResidencyId(random.below(10)), random.chance(0.5)});
  return plan;
}

TEST(PlanJson, RoundTrips) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const Plan plan = random_plan(seed);
    const std::string text = to_json(plan);
    const Result<Plan> back = plan_from_json(text);
    ASSERT_TRUE(back.ok()) << back.error().message << "\n" << text;
    ASSERT_EQ(*back, plan);
    ASSERT_EQ(to_json(*back), text);
  }
}

TEST(PlanJson, RejectsWithThePath) {
  const auto error_with = [](std::string_view from, std::string_view to) -> std::string {
    std::string text(kTiny);
    text.replace(text.find(from), from.size(), to);
    const Result<Plan> plan = plan_from_json(text);
    return plan.ok() ? "" : plan.error().message;
  };
  EXPECT_EQ(error_with("\"stream\": \"in\"", "\"stream\": \"inn\""),
            "instructions[0].stream: unknown name 'inn' (did you mean 'in'?)");
  EXPECT_EQ(error_with("\"from\": 1, ", ""), "instructions[0]: field 'from' is missing");
  EXPECT_EQ(error_with("\"from\": 1, ", "\"from\": 1, \"op\": 0, "),
            "instructions[0]: unknown field 'op' (did you mean 'to'?)");
  EXPECT_EQ(error_with("[400, 464]", "[464, 400]"),
            "instructions[1].workspace[1]: wanted 464 to 4611686018427387904, had 400");
  EXPECT_EQ(error_with("[400, 464]", "[464]"),
            "instructions[1].workspace: wanted an array of 2, had 1 entries");
  EXPECT_EQ(error_with("\"waits\": [0]", "\"waits\": [-1]"),
            "instructions[1].waits[0]: wanted 0 to 2147483647, had -1");
  EXPECT_EQ(error_with("\"home\": true", "\"home\": 1"),
            "entry[0].home: wanted a bool, had an integer");
  EXPECT_EQ(error_with("\"disk\": 0", "\"dsk\": 0"), "budgets: field 'disk' is missing");
  // Ids that are not there are the checker's to refuse, with its own kinds of violation.
  EXPECT_EQ(error_with("\"from\": 1, ", "\"from\": 77, "), "");
}

TEST(PlanJson, DamageIsRefusedOrHarmless) {
  Random random(51);
  const std::string texts[] = {std::string(kTiny), to_json(random_plan(3)),
                               to_json(random_plan(4))};
  for (int i = 0; i < 4'000; ++i) {
    const Result<Plan> plan = plan_from_json(damaged(texts[i % 3], random));
    if (plan.ok()) {
      ASSERT_EQ(*plan_from_json(to_json(*plan)), *plan);
    }
  }
}

TEST(AccessesOf, ReadsMakesMutates) {
  Op op;
  op.reads = {{StorageId(0), {0, 4}}};
  op.makes = {{StorageId(1), {0, 8}}};
  op.mutates = {{StorageId(2), {2, 3}}};
  const std::vector<OperandAccess> accesses = accesses_of(op);
  ASSERT_EQ(accesses.size(), 3u);
  EXPECT_EQ(accesses[0].access, op.reads[0]);
  EXPECT_TRUE(accesses[0].reads && !accesses[0].writes);
  EXPECT_EQ(accesses[1].access, op.makes[0]);
  EXPECT_TRUE(!accesses[1].reads && accesses[1].writes);
  EXPECT_EQ(accesses[2].access, op.mutates[0]);
  EXPECT_TRUE(accesses[2].reads && accesses[2].writes);
}

TEST(Statistics, BytesByDirection) {
  Plan plan;
  const Part part{StorageId(0), {0, 100}};
  plan.residencies = {{Tier::kDevice, part, 64}, {Tier::kHost, part, 10}, {Tier::kDisk, part, 0}};
  const auto copy = [](Stream stream, int from, int to, Interval bytes) {
    Instruction instruction;
    instruction.stream = stream;
    instruction.kind = InstructionKind::kCopy;
    instruction.from = ResidencyId(from);
    instruction.to = ResidencyId(to);
    instruction.bytes = bytes;
    return instruction;
  };
  Instruction rerun;
  rerun.kind = InstructionKind::kRerun;
  rerun.op = OpId(0);
  rerun.workspace = {200, 300};
  plan.instructions = {
      copy(Stream::kOut, 0, 1, {0, 1}),    copy(Stream::kCompute, 0, 1, {0, 2}),
      copy(Stream::kIn, 1, 0, {0, 4}),     copy(Stream::kWrite, 1, 2, {0, 8}),
      copy(Stream::kWrite, 0, 2, {0, 16}), copy(Stream::kRead, 2, 1, {0, 32}),
      copy(Stream::kRead, 2, 0, {0, 64}),  rerun,
  };
  const PlanStatistics expected{.moved_out = 1 + 2,
                                .moved_in = 4,
                                .moved_write = 8 + 16,
                                .moved_read = 32 + 64,
                                .reruns = 1,
                                .copies = 7,
                                .extent = {300, 110, 100}};
  EXPECT_EQ(statistics_of(plan), expected);
  plan.instructions[0].from = ResidencyId(3);
  EXPECT_THROW(statistics_of(plan), InternalError);
}

}  // namespace
}  // namespace outsize
