// Steps for tests of planners, on the unit machine (1 byte = 1 ns each way), and what becomes of
// what a planner decides. For tests only.
//
//   Setting s(gap_graph(), 10);                      each op takes 10 ns
//   s.problem.allow.swap = false;
//   Result<Planned> planned = s.plan("outsize", 60);
//   TestCase t(gap_graph(), 10, 60);                 the same for a planner's pieces, with its case
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "outsize/bound/floor.h"
#include "outsize/graph/builder.h"
#include "outsize/plan/check.h"
#include "outsize/planners/planner.h"
#include "outsize/planners/realise.h"
#include "outsize/profile/generate_costs.h"
#include "outsize/simulate/simulate.h"

namespace outsize::planning {

inline constexpr int64_t kPlenty = int64_t{1} << 40;

// A step and what planners may do with it. A value: what `problem` points at, and its deadline, are
// set for each run.
struct Setting {
  Graph graph;
  Profile profile;
  Machine machine = unit_machine();
  Problem problem;
  int64_t work = 200;

  Setting(Graph g, Profile p) : graph(std::move(g)), profile(std::move(p)) {}
  Setting(Graph g, int64_t ns) : graph(std::move(g)), profile(equal_costs(graph, ns)) {}

  // Good as long as the setting and the deadline are.
  Problem ready(Deadline& deadline) const {
    Problem out = problem;
    out.graph = &graph;
    out.profile = &profile;
    out.machine = &machine;
    out.deadline = &deadline;
    return out;
  }
  // Within other budgets.
  Problem ready(Deadline& deadline, int64_t device, int64_t host = kPlenty) const {
    Problem out = ready(deadline);
    out.budgets = {device, host, 0};
    return out;
  }
  Result<Planned> plan(const std::string& name) const {
    Deadline deadline = Deadline::after_work(work);
    return run_planner(name, ready(deadline));
  }
  Result<Planned> plan(const std::string& name, int64_t device, int64_t host = kPlenty) const {
    Deadline deadline = Deadline::after_work(work);
    return run_planner(name, ready(deadline, device, host));
  }
  int64_t peak() const { return peak_program_order(graph, workspaces_of(profile)); }
  int64_t floor() const { return floor_of(graph, workspaces_of(profile)).bytes; }
};

// A setting that holds still, with its case.
struct TestCase : Setting {
  Deadline deadline = Deadline::after_work(1000);
  Case c;
  Plan plan_made;  // by `run`

  TestCase(Setting setting, int64_t device, int64_t host = 1 << 20) : Setting(std::move(setting)) {
    work = 1000;
    problem = ready(deadline, device, host);
    c = case_of(problem);
  }
  TestCase(Graph g, int64_t ns, int64_t device, int64_t host = 1 << 20)
      : TestCase(Setting(std::move(g), ns), device, host) {}
  TestCase(const TestCase&) = delete;
  TestCase& operator=(const TestCase&) = delete;

  // The part that a storage is; the plain program's instance has the same number.
  int32_t part(int64_t storage) const {
    for (size_t p = 0; p < c.parts.parts.size(); ++p)
      if (c.parts.parts[p].where.storage == StorageId(storage)) return static_cast<int32_t>(p);
    ADD_FAILURE() << "no part of storage " << storage;
    return -1;
  }
  // Checked and simulated; the plan stays in `plan_made`.
  Simulation run(const Decision& decision, const RealiseOptions& options = {}) {
    Trouble trouble;
    std::optional<Plan> made = realise(c, decision, trouble, options);
    EXPECT_TRUE(made) << "needs " << trouble.height;
    if (!made) return {};
    plan_made = *made;
    Violation v =
        check_plan(graph, workspaces_of(profile), plan_made, problem.budgets, machine.alignment);
    EXPECT_TRUE(v.ok()) << v.where << ": " << v.witness;
    Result<Simulation> s = simulate(graph, profile, machine, plan_made);
    EXPECT_TRUE(s.ok());
    return s.ok() ? *s : Simulation{};
  }
  // The names of ops in the order in which they run; reruns with a "+".
  std::string ops_of(const Program& program) const {
    std::string out;
    for (int32_t id : program.order()) {
      const Step& step = program.step(id);
      out += out.empty() ? "" : " ";
      out += step.rerun ? "+" : "";
      out += graph.op(step.op).name;
    }
    return out;
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
    options.placer = [](const Problem&, Sequence& sequence) {
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
      out.fits = true;  // the heights say whether it does
      return out;
    };
    return options;
  }
};

// The least budget that is named where a planner finds nothing: "... needs 34 B (34 bytes)".
inline int64_t least_named(const Result<Planned>& planned) {
  EXPECT_FALSE(planned.ok());
  if (planned.ok()) return -1;
  EXPECT_EQ(planned.error().kind, ErrorKind::kInfeasible);
  const std::string& message = planned.error().message;
  const size_t at = message.rfind('(');
  const bool named = at != std::string::npos && message.ends_with(" bytes)");
  EXPECT_TRUE(named) << message;
  return named ? std::stoll(message.substr(at + 1)) : -1;
}

// At a twentieth of the peak the planner says a least budget, below half of it, and that works.
inline void expect_least_budget_works(const Setting& s, const std::string& name) {
  const int64_t least = least_named(s.plan(name, s.peak() / 20));
  EXPECT_TRUE(s.plan(name, least).ok());
  EXPECT_LT(least, s.peak() / 2);
}

// The plan that one thread and three make.
inline Planned same_at_any_thread_count(Setting s, const std::string& name, int64_t device) {
  const Result<Planned> one = s.plan(name, device);
  s.problem.threads = 3;
  const Result<Planned> three = s.plan(name, device);
  EXPECT_TRUE(one.ok() && three.ok());
  if (!one.ok() || !three.ok()) return {};
  EXPECT_EQ(one->plan, three->plan);
  return *one;
}

// Of a planner that swaps and recomputes: neither where it may not, at seven tenths of the peak.
inline void expect_keeps_to_what_is_allowed(Setting s, const std::string& name) {
  const int64_t device = s.peak() * 7 / 10;
  s.problem.allow.recompute = false;
  EXPECT_EQ(s.plan(name, device)->statistics.reruns, 0);
  s.problem.allow = {};
  s.problem.allow.swap = false;
  EXPECT_EQ(s.plan(name, device)->statistics.copies, 0);
  s.problem.allow.recompute = false;
  EXPECT_EQ(s.plan(name, device).error().kind, ErrorKind::kInfeasible);
  EXPECT_EQ(s.plan(name, s.peak() * 11 / 10)->statistics.copies, 0);
}

// What a planner does in many steps.
struct Tally {
  int64_t plans = 0, copies = 0, reruns = 0;

  // There may be no plan, but for no other reason than the budget.
  void add(const Result<Planned>& planned) {
    if (!planned.ok()) {
      EXPECT_EQ(planned.error().kind, ErrorKind::kInfeasible) << planned.error().message;
      return;
    }
    ++plans;
    copies += planned->statistics.copies;
    reruns += planned->statistics.reruns;
  }
};

// f makes a (40 B); g, h and i make something small (1 B), from the batch x and from each other; k
// reads a and the last of them. Storages 0 to 5: x, a, c, d, e, y.
inline Graph gap_graph() {
  GraphBuilder b;
  b.input("x", 1).activation("a", 40).activation("c", 1).activation("d", 1).activation("e", 1);
  b.output("y", 1);
  b.op("f").reads("x").makes("a").phase("forward");
  b.op("g").reads("x").makes("c").phase("forward");
  b.op("h").reads("c").makes("d").phase("forward");
  b.op("i").reads("d").makes("e").phase("backward");
  b.op("k").reads("a", "e").makes("y").phase("backward");
  return b.build();
}

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
