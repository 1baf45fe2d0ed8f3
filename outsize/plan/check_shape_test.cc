// Violations that can be seen without happens-before: ids, budgets, alignment, streams, waits.
#include <gtest/gtest.h>

#include <limits>

#include "outsize/plan/check_testing_swap.h"

namespace outsize {
namespace {

TEST(CheckShape, Budgets) {
  Swap m;
  m.plan.budgets.device = 23;
  expect_violation(
      m, ViolationKind::kBudget, "residency 5",
      "8 bytes of storage 3 \"y\" at device address 16 do not lie in the budget [0, 23)");
  Swap n;
  n.plan.budgets.host = 7;
  expect_violation(n, ViolationKind::kBudget, "residency 3",
                   "8 bytes of storage 1 \"A\" at host address 0 do not lie in the budget [0, 7)");
  Swap o;
  o.plan.residencies[0].address = -1;
  expect_violation(
      o, ViolationKind::kBudget, "residency 0",
      "8 bytes of storage 0 \"w\" at device address -1 do not lie in the budget [0, 1000)");
  Swap p;
  p.at(5).workspace = {990, 1001};
  expect_violation(p, ViolationKind::kBudget, "instruction 5 (run op 3 update)",
                   "its workspace [990, 1001) does not lie in the device budget [0, 1000)");
  Swap q;  // no sum overflows
  q.plan.residencies[0].address = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(check(q).kind, ViolationKind::kBudget);
}

TEST(CheckShape, Alignment) {
  Swap m;
  EXPECT_TRUE(check(m, {}, 8).ok());
  const Violation v = check(m, {}, 16);
  EXPECT_EQ(v.kind, ViolationKind::kAlignment);
  EXPECT_EQ(
      v.witness,
      "residency 1 (storage 1 \"A\" [0, 8) at device [8, 16)) does not begin at a multiple of 16");
  m.at(5).workspace = {36, 40};
  EXPECT_EQ(check(m, {}, 8).witness, "its workspace [36, 40) does not begin at a multiple of 8");
  m.at(5).workspace = {};
  m.plan.residencies[m.rh.index()].address = 3;  // on the host any address will do
  EXPECT_TRUE(check(m, {}, 8).ok());
}

TEST(CheckShape, Workspaces) {
  Swap m;
  const Violation v = check(m, {0, 0, 0, 12});
  EXPECT_EQ(v.kind, ViolationKind::kWorkspace);
  EXPECT_EQ(v.where, "instruction 5 (run op 3 update)");
  EXPECT_EQ(v.witness, "needs a workspace of 12 bytes and has 0");
  m.at(5).workspace = {32, 44};
  expect_legal(m, {0, 0, 0, 12});
  m.at(5).workspace = {32, 43};
  EXPECT_EQ(check(m, {0, 0, 0, 12}).witness, "needs a workspace of 12 bytes and has 11");
  EXPECT_EQ(check(m, {0}).kind, ViolationKind::kMalformed);
}

TEST(CheckShape, Streams) {
  Swap m;
  m.at(1).stream = Stream::kIn;
  expect_violation(m, ViolationKind::kStream,
                   "instruction 1 (copy storage 1 \"A\" [0, 8) device -> host)",
                   "stands in the in stream; it belongs to out or compute");
  m.at(1).stream = Stream::kCompute;
  EXPECT_TRUE(check(m).ok());
  m.at(2).stream = Stream::kOut;
  expect_violation(m, ViolationKind::kStream, "instruction 2 (run op 1 g)",
                   "stands in the out stream; ops run in compute");
}

TEST(CheckShape, MovesWithinATierStandInCompute) {
  Swap m;
  const ResidencyId elsewhere = m.on(kDevice, m.y, 40);
  m.copy(Stream::kCompute, m.ry, elsewhere);
  m.plan.exit[1].residency = elsewhere;
  expect_legal(m);
  m.plan.instructions.back().stream = Stream::kOut;
  m.plan.instructions.back().waits = {InstructionId{4}};
  EXPECT_EQ(check(m).witness, "stands in the out stream; it belongs to compute");
  m.plan.instructions.back().stream = Stream::kCompute;
  m.plan.residencies[elsewhere.index()].address = 20;
  EXPECT_EQ(check(m).witness, "touches device [20, 24) as two things, writing at least one");
}

TEST(CheckShape, Waits) {
  Swap m;
  m.at(3).waits = {InstructionId{4}};
  expect_violation(m, ViolationKind::kDeadlock,
                   "instruction 3 (copy storage 1 \"A\" [0, 8) host -> device)",
                   "waits for instruction 4, which is not earlier in the list");
  m.at(3).waits = {InstructionId{3}};
  EXPECT_EQ(check(m).kind, ViolationKind::kDeadlock);
  m.at(3).waits = {InstructionId{2}, InstructionId{1}};
  EXPECT_EQ(check(m).kind, ViolationKind::kMalformed);
  EXPECT_EQ(check(m).witness, "lists its wait for instruction 1 after the one for 2; waits ascend");
  m.at(3).waits = {InstructionId{99}};
  EXPECT_EQ(check(m).witness, "waits for instruction 99 of 6");
}

TEST(CheckShape, Malformed) {
  const auto witness_of = [](auto edit) {
    Swap m;
    edit(m);
    const Violation v = check(m);
    EXPECT_EQ(kViolationKindNames.name(v.kind), "malformed") << v.witness;
    return v.witness;
  };
  EXPECT_EQ(witness_of([](Swap& m) { m.at(0).op = OpId{4}; }), "names op 4 of 4");
  EXPECT_EQ(witness_of([](Swap& m) { m.at(0).operands.pop_back(); }),
            "has 1 operands for 2 accesses");
  EXPECT_EQ(witness_of([](Swap& m) { m.at(0).operands[1] = ResidencyId{6}; }),
            "operand 1 (makes storage 1 \"A\" [0, 8)) names residency 6 of 6");
  EXPECT_EQ(witness_of([](Swap& m) { m.at(0).operands[1] = m.rb; }),
            "operand 1 (makes storage 1 \"A\" [0, 8)) does not lie in residency 2 (storage 2 \"B\" "
            "[0, 8) at device [8, 16))");
  EXPECT_EQ(witness_of([](Swap& m) { m.at(4).operands[0] = m.rh; }),
            "operand 0 (reads storage 1 \"A\" [0, 8)) does not lie in residency 3 (storage 1 \"A\" "
            "[0, 8) at host [0, 8))");
  EXPECT_EQ(witness_of([](Swap& m) { m.plan.residencies[1].part.bytes.end = 7; }),
            "operand 1 (makes storage 1 \"A\" [0, 8)) does not lie in residency 1 (storage 1 \"A\" "
            "[0, 7) at device [8, 15))");
  EXPECT_EQ(witness_of([](Swap& m) { m.plan.residencies[1].part.bytes.end = 9; }),
            "holds bytes [0, 9) of storage 1, which has no such bytes");
  EXPECT_EQ(witness_of([](Swap& m) { m.at(1).to = m.ry; }),
            "goes between two storages: residency 1 (storage 1 \"A\" [0, 8) at device [8, 16)) and "
            "residency 5 (storage 3 \"y\" [0, 8) at device [16, 24))");
  EXPECT_EQ(witness_of([](Swap& m) { m.at(1).bytes = {4, 9}; }),
            "moves bytes [4, 9), which residency 1 (storage 1 \"A\" [0, 8) at device [8, 16)) does "
            "not hold");
  EXPECT_EQ(witness_of([](Swap& m) { m.at(1).from = ResidencyId{}; }),
            "goes from residency -1 to residency 3 of 6");
  EXPECT_EQ(witness_of([](Swap& m) { m.plan.exit[0].residency = ResidencyId{9}; }),
            "names residency 9 of 6");
  EXPECT_EQ(witness_of([](Swap& m) { m.at(0).from = m.ra; }), "runs an op but has a copy's fields");
  EXPECT_EQ(witness_of([](Swap& m) { m.at(1).operands = {m.ra}; }),
            "is a copy with an op's fields");
  EXPECT_EQ(witness_of([](Swap& m) { m.graph.ops[0].reads[0].bytes.end = 9; }),
            "its access 0 is bytes [0, 9) of storage 0, which has no such bytes");
}

}  // namespace
}  // namespace outsize
