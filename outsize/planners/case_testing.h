// A case for tests of planners: a graph on the unit machine (1 byte = 1 ns each way), budgets, and
// what becomes of a decision. For tests only.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "outsize/graph/builder.h"
#include "outsize/plan/check.h"
#include "outsize/planners/realise.h"
#include "outsize/profile/generate_costs.h"
#include "outsize/simulate/simulate.h"

namespace outsize::planning {

struct TestCase {
  Graph graph;
  Profile profile;
  Machine machine = unit_machine();
  Deadline deadline = Deadline::after_work(1000);
  Problem problem;
  Case c;

  TestCase(Graph g, Profile p, int64_t device, int64_t host = 1 << 20)
      : graph(std::move(g)), profile(std::move(p)) {
    problem.graph = &graph;
    problem.profile = &profile;
    problem.machine = &machine;
    problem.budgets = {device, host, 0};
    problem.deadline = &deadline;
    c = case_of(problem);
  }
  TestCase(const TestCase&) = delete;
  TestCase& operator=(const TestCase&) = delete;

  // Checked and simulated; the plan stays in `plan`.
  Simulation run(const Decision& decision, const RealiseOptions& options = {}) {
    Trouble trouble;
    std::optional<Plan> made = realise(c, decision, trouble, options);
    EXPECT_TRUE(made) << "needs " << trouble.height;
    if (!made) return {};
    plan = *made;
    Violation v =
        check_plan(graph, workspaces_of(profile), plan, problem.budgets, machine.alignment);
    EXPECT_TRUE(v.ok()) << v.where << ": " << v.witness;
    Result<Simulation> s = simulate(graph, profile, machine, plan);
    EXPECT_TRUE(s.ok());
    return s.ok() ? *s : Simulation{};
  }
  Result<Planned> named(const std::string& name) const {
    Deadline fresh = Deadline::after_work(1000);
    Problem same = problem;
    same.deadline = &fresh;
    return run_planner(name, same);
  }
  // The move of the storage with this number in the gap after its touch `k`; null if it stays.
  const Move* move(const Decision& decision, int64_t storage, int32_t k) const {
    for (const Move& m : decision.moves)
      if (decision.program.part_of(m.instance).where.storage == StorageId(storage) && m.touch == k)
        return &m;
    return nullptr;
  }

  // Nothing of what is kept may share bytes, so that what a plan waits for are its own waits alone.
  static RealiseOptions apart() {
    RealiseOptions options;
    options.placer = [](const Problem& problem, Sequence& sequence) {
      Placement out;
      int64_t at[kTiers] = {0, 0, 0};
      for (Residency& r : sequence.plan.residencies) {
        size_t t = static_cast<size_t>(r.tier);
        r.address = at[t];
        at[t] += r.part.bytes.size();
        out.height[t] = at[t];
      }
      for (Instruction& i : sequence.plan.instructions)
        if (i.workspace.size() > 0) {
          i.workspace = {at[0], at[0] + i.workspace.size()};
          out.height[0] = at[0] = i.workspace.end;
        }
      out.fits = out.height[0] <= problem.budgets.device;
      return out;
    };
    return options;
  }

  Plan plan;
};

// Convolutions, one after the other, and their backward passes. conv_i reads a_(i-1) and makes a_i,
// its backward op reads both and the gradient of a_i. Storages: 0 is a_0 (a batch handed in), then
// a_1 ... a_n, the weights w_1 ... w_n (1 B), the gradients g_(n-1) ... g_1, the loss.
inline Graph convolutions(int n, int64_t bytes) {
  auto of = [](const char* letter, int i) { return letter + std::to_string(i); };
  GraphBuilder b;
  b.input("a0", bytes);
  for (int i = 1; i <= n; ++i) b.activation(of("a", i), bytes);
  for (int i = 1; i <= n; ++i) b.parameter(of("w", i), 1);
  for (int i = n - 1; i >= 1; --i) b.gradient(of("g", i), 1);
  for (int i = 1; i <= n; ++i)
    b.op("conv").reads(of("a", i - 1), of("w", i)).makes(of("a", i)).phase("forward");
  for (int i = n; i >= 1; --i) {
    auto op = b.op("conv_backward").phase("backward");
    op.reads(of("a", i - 1));
    if (i < n) op.reads(of("g", i));
    if (i == n) op.reads(of("a", n));
    if (i > 1) op.makes(of("g", i - 1));
    op.mutates(of("w", i));
  }
  return b.build();
}

}  // namespace outsize::planning
