#include "outsize/planners/realise.h"

#include <gtest/gtest.h>

#include "outsize/graph/builder.h"
#include "outsize/plan/check.h"
#include "outsize/profile/generate_costs.h"
#include "outsize/simulate/simulate.h"

namespace outsize::planning {
namespace {

// op0 makes A (40 B); op1, op2 and op3 make something small (1 B) from it or from each other; op4
// reads A again. 10 ns each, 1 byte = 1 ns.
struct Fixture {
  Graph graph;
  Profile profile;
  Machine machine = unit_machine();
  Deadline deadline = Deadline::after_work(10);
  Problem problem;
  Case c;
  int32_t a = 0;

  explicit Fixture(int64_t device, int64_t disk = 0) {
    GraphBuilder b;
    b.input("x", 1).activation("A", 40).activation("c", 1).activation("d", 1).activation("e", 1);
    b.output("y", 1);
    b.op("f").reads("x").makes("A");
    b.op("g").reads("x").makes("c");
    b.op("h").reads("c").makes("d");
    b.op("i").reads("d").makes("e");
    b.op("k").reads("A", "e").makes("y");
    graph = b.build();
    profile = equal_costs(graph, 10);
    machine.write = machine.read = {0, 1'000'000'000};
    problem.graph = &graph;
    problem.profile = &profile;
    problem.machine = &machine;
    problem.budgets = {device, 1000, disk};
    problem.deadline = &deadline;
    c = case_of(problem);
    for (size_t p = 0; p < c.parts.parts.size(); ++p)
      if (c.parts.parts[p].where.storage == StorageId(1)) a = static_cast<int32_t>(p);
  }
  Decision swapped() const {
    Program program = plain_program(c);
    program.instance(a).touches[0].away = true;
    std::vector<Move> moves = moves_of(program);
    return {std::move(program), std::move(moves)};
  }
  Simulation run(const Plan& plan) const {
    Violation v = check_plan(graph, {}, plan, problem.budgets, 1);
    EXPECT_TRUE(v.ok()) << v.where << ": " << v.witness;
    Result<Simulation> s = simulate(graph, profile, machine, plan);
    EXPECT_TRUE(s.ok());
    return *s;
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
  Trouble trouble;
  std::optional<Plan> plan = realise(f.c, d, trouble);
  ASSERT_TRUE(plan);
  // Out 10 to 50. The packer lays c where A was, so g waits to 50 and i ends at 80; in to 120, k
  // 130.
  Simulation s = f.run(*plan);
  EXPECT_EQ(begin_of(*plan, s, Stream::kOut), 10);
  EXPECT_EQ(begin_of(*plan, s, Stream::kIn), 80);
  EXPECT_EQ(s.step_ns, 130);
}

TEST(Realise, KeepsThePlannersTimes) {
  Fixture f(1000);
  Decision d = f.swapped();
  Move& m = d.moves[0];
  m.release = 2, m.out_after = 0, m.out_by = 2;  // h waits for the copy out: g 20, copy 50, h 60
  m.arrive = 3, m.in_after = 2, m.in_by = 4;     // in from 60 to 100, i beside it; k to 110
  Trouble trouble;
  std::optional<Plan> plan = realise(f.c, d, trouble);
  ASSERT_TRUE(plan);
  Simulation s = f.run(*plan);
  EXPECT_EQ(begin_of(*plan, s, Stream::kOut), 10);
  EXPECT_EQ(begin_of(*plan, s, Stream::kIn), 60);
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
  Fixture f(1000, 8192);
  Decision d = f.swapped();
  d.moves[0].below = Tier::kDisk;
  Trouble trouble;
  std::optional<Plan> plan = realise(f.c, d, trouble);
  ASSERT_TRUE(plan);
  Simulation s = f.run(*plan);
  EXPECT_EQ(s.moved_write, 40);
  EXPECT_EQ(s.moved_read, 40);
  EXPECT_EQ(s.moved_out, 0);
  f.machine.disk_alignment = 4096;  // in whole blocks
  f.problem.budgets.disk = 4095;
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
  RealiseOptions options;
  options.placer = [](const Problem&, Sequence& sequence) {
    Placement out;
    int64_t at[kTiers] = {0, 0, 0};
    for (Residency& r : sequence.plan.residencies) {  // nothing shares an address
      size_t t = static_cast<size_t>(r.tier);
      r.address = at[t];
      at[t] += r.part.bytes.size();
      out.height[t] = at[t];
    }
    out.fits = true;
    return out;
  };
  Trouble trouble;
  std::optional<Plan> plan = realise(f.c, f.swapped(), trouble, options);
  ASSERT_TRUE(plan);
  EXPECT_EQ(f.run(*plan).tiers[0].extent, 40 + 40 + 5);
  f.problem.budgets.device = 84;
  EXPECT_FALSE(realise(f.c, f.swapped(), trouble, options));
  EXPECT_EQ(trouble.height, 85);
}

}  // namespace
}  // namespace outsize::planning
