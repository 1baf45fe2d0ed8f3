// The checker's tests share this: one small legal plan with a swap in it, and what they expect of
// plans.
//
//   Swap m;  m.plan.instructions[2].waits = {};  expect_violation(m, ViolationKind::kRace, ...);
//
// Not for use outside tests.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "outsize/plan/check.h"
#include "outsize/plan/check_testing.h"

namespace outsize {

inline constexpr Tier kDevice = Tier::kDevice;
inline constexpr Tier kHost = Tier::kHost;
inline constexpr Tier kDisk = Tier::kDisk;

inline Violation check(const PlanMaker& m, std::vector<int64_t> workspace_bytes = {},
                       int64_t alignment = 1) {
  return check_plan(m.graph, workspace_bytes, m.plan, m.plan.budgets, alignment);
}

inline void expect_legal(const PlanMaker& m, std::vector<int64_t> workspace_bytes = {}) {
  const Violation v = check(m, std::move(workspace_bytes));
  EXPECT_TRUE(v.ok()) << kViolationKindNames.name(v.kind) << ": " << v.where << ": " << v.witness;
}

inline void expect_violation(const PlanMaker& m, ViolationKind kind, const std::string& where,
                             const std::string& witness) {
  const Violation v = check(m);
  EXPECT_EQ(kViolationKindNames.name(v.kind), kViolationKindNames.name(kind)) << v.witness;
  EXPECT_EQ(v.where, where);
  EXPECT_EQ(v.witness, witness);
}

// One storage swapped out and in around another's use of its place; w stays, and is updated.
//
//   device   0      8      16     24            host
//            | w    | A    | y    |             r3: A at 0
//            |      | B    |      |
//
//   compute  #0 f: w -> A     #2 g: w -> B     #4 h: A, B2 -> y     #5 update: w
//   out             #1 A -> host
//   in                               #3 host -> A (second stay)
struct Swap : PlanMaker {
  StorageId w = storage(8, "w", kEntry | kExit | kPersistent);
  StorageId a = storage(8, "A");
  StorageId b = storage(8, "B");
  StorageId y = storage(8, "y", kExit);
  ResidencyId rw, ra, rb, rh, ra2, ry;
  Swap() {
    op("f", {w}, {a});
    op("g", {w}, {b});
    op("h", {a}, {y});
    op("update", {}, {}, {w});
    rw = on(kDevice, w, 0);
    ra = on(kDevice, a, 8);
    rb = on(kDevice, b, 8);
    rh = on(kHost, a, 0);
    ra2 = on(kDevice, a, 8);
    ry = on(kDevice, y, 16);
    enter(rw, true);
    run(0, {rw, ra});                    // #0
    copy(Stream::kOut, ra, rh, {0});     // #1
    run(1, {rw, rb}, {1});               // #2
    copy(Stream::kIn, rh, ra2, {1, 2});  // #3
    run(2, {ra2, ry}, {3});              // #4
    run(3, {rw});                        // #5
    leave(rw, true);
    leave(ry);
  }
  Instruction& at(size_t i) { return plan.instructions[i]; }
};

}  // namespace outsize
