#include "outsize/planners/realise.h"

#include <gtest/gtest.h>

#include "outsize/planners/case_testing.h"

namespace outsize::planning {
namespace {

// The gap's a leaves after f and is back for k. 10 ns an op.
struct Fixture : TestCase {
  explicit Fixture(int64_t device) : TestCase(gap_graph(), 10, device, 1000) {}
  Decision swapped() const {
    Program program = plain_program(c);
    program.instance(part(1)).touches[0].away = true;
    std::vector<Move> moves = moves_of(program);
    return {std::move(program), std::move(moves)};
  }
};

int64_t begin_of(const Plan& plan, const Simulation& s, Stream stream) {
  for (size_t i = 0; i < plan.instructions.size(); ++i)
    if (plan.instructions[i].kind == InstructionKind::kCopy &&
        plan.instructions[i].stream == stream)
      return s.spans[i].begin_ns;
  return -1;
}

TEST(Realise, CopiesStartAsSoonAsTheyMay) {
  Fixture f(1000);
  Decision d = f.swapped();
  ASSERT_EQ(d.moves.size(), 1u);
  EXPECT_EQ(d.moves[0].from, 0);
  EXPECT_EQ(d.moves[0].to, 4);
  // Out 10 to 50. The packer lays c where A was, so g waits to 50 and i ends at 80; in to 120, k
  // 130.
  Simulation s = f.run(d);
  EXPECT_EQ(begin_of(f.plan_made, s, Stream::kOut), 10);
  EXPECT_EQ(begin_of(f.plan_made, s, Stream::kIn), 80);
  EXPECT_EQ(s.step_ns, 130);
}

TEST(Realise, KeepsThePlannersTimes) {
  Fixture f(1000);
  Decision d = f.swapped();
  Move& m = d.moves[0];
  m.release = 2, m.out_after = 0, m.out_by = 2;  // h waits for the copy out: g 20, copy 50, h 60
  m.arrive = 3, m.in_after = 2, m.in_by = 4;     // in from 60 to 100, i beside it; k to 110
  Simulation s = f.run(d);
  EXPECT_EQ(begin_of(f.plan_made, s, Stream::kOut), 10);
  EXPECT_EQ(begin_of(f.plan_made, s, Stream::kIn), 60);
  EXPECT_EQ(s.step_ns, 110);
}

TEST(Realise, CountsWhatIsOnItsWay) {
  Fixture f(1000);
  Decision d = f.swapped();
  d.moves[0].release = 2;
  d.moves[0].arrive = 3;
  // x 1 throughout f and g; A at f and g (not gone yet), not at h, at i (on its way back) and k.
  EXPECT_EQ(usage_of(f.c, d.program, d.moves), (std::vector<int64_t>{41, 42, 2, 42, 42}));
  EXPECT_EQ(starts_of(f.c, d.program), (std::vector<int64_t>{0, 10, 20, 30, 40, 50}));
}

TEST(Realise, GoesToTheDisk) {
  Fixture f(1000);
  f.problem.budgets.disk = 8192;
  f.machine.write = f.machine.read = {0, 1'000'000'000};
  Decision d = f.swapped();
  d.moves[0].below = Tier::kDisk;
  Simulation s = f.run(d);
  EXPECT_EQ(s.moved_write, 40);
  EXPECT_EQ(s.moved_read, 40);
  EXPECT_EQ(s.moved_out, 0);
  f.machine.disk_alignment = 4096;  // in whole blocks
  f.problem.budgets.disk = 4095;
  Trouble trouble;
  EXPECT_FALSE(realise(f.c, d, trouble));
  EXPECT_EQ(trouble.tier, Tier::kDisk);
}

TEST(Realise, LowersTheCapacityUntilAddressesFit) {
  Fixture f(42);
  f.profile.ops[2].workspace_bytes = 1;
  std::vector<int64_t> asked;
  Trouble trouble;
  std::optional<Plan> plan = realise_within(
      f.c,
      [&](int64_t capacity, Trouble&) -> std::optional<Decision> {
        asked.push_back(capacity);
        if (asked.size() > 1) return f.swapped();
        Program program = plain_program(f.c);
        return Decision{program, {}};
      },
      trouble);
  ASSERT_TRUE(plan);
  // Kept, h needs A 40, c, d and its workspace: 43, one over.
  EXPECT_EQ(asked, (std::vector<int64_t>{42, 41}));
}

TEST(Realise, TakesAPlannersAddresses) {
  Fixture f(1000);
  EXPECT_EQ(f.run(f.swapped(), TestCase::apart()).tiers[0].extent, 40 + 40 + 5);
  f.problem.budgets.device = 84;
  Trouble trouble;
  EXPECT_FALSE(realise(f.c, f.swapped(), trouble, TestCase::apart()));
  EXPECT_EQ(trouble.height, 85);
}

}  // namespace
}  // namespace outsize::planning
