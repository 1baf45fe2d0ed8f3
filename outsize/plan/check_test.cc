#include "outsize/plan/check.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "outsize/plan/check_ranges.h"
#include "outsize/plan/check_testing.h"
#include "outsize/plan/check_testing_swap.h"

namespace outsize {
namespace {

TEST(RangeMap, VisitsPiecesAndGaps) {
  RangeMap<char> map;
  map.assign({0, 8}, 'a');
  map.assign({2, 4}, 'b');
  std::string seen;
  const auto note = [&](Interval range, const char* fact) {
    seen += std::to_string(range.begin) + "-" + std::to_string(range.end) + (fact ? *fact : '.');
    return true;
  };
  map.visit({1, 9}, note);
  EXPECT_EQ(seen, "1-2a2-4b4-8a8-9.");
  map.erase({3, 5});
  map.update({2, 6}, 'n', [](char& fact) { fact = static_cast<char>(fact + 1); });
  seen.clear();
  map.visit({0, 9}, note);
  EXPECT_EQ(seen, "0-2a2-3c3-5o5-6b6-8a8-9.");
}

TEST(CheckPlan, SwapIsLegal) { expect_legal(Swap()); }

TEST(CheckPlan, EmptyPlanOfEmptyGraphIsLegal) { expect_legal(PlanMaker()); }

// --- races ---

TEST(CheckPlan, RunOverWriterOfCopyOutRaces) {
  Swap m;
  m.at(2).waits = {};  // B is made over A while A is still on its way out
  expect_violation(m, ViolationKind::kRace, "instruction 2 (run op 1 g)",
                   "and instruction 1 (copy storage 1 \"A\" [0, 8) device -> host) both touch "
                   "device [8, 16), one of them writing, and nothing orders them");
}

TEST(CheckPlan, CopyOutBeforeItsContentRaces) {
  Swap m;
  m.at(1).waits = {};
  expect_violation(m, ViolationKind::kRace,
                   "instruction 1 (copy storage 1 \"A\" [0, 8) device -> host)",
                   "and instruction 0 (run op 0 f) both touch device [8, 16), one of them writing, "
                   "and nothing orders them");
}

TEST(CheckPlan, HostBytesRaceToo) {
  Swap m;
  m.at(2).waits = {};
  m.at(2).operands[1] = m.rb = m.on(kDevice, m.b, 24);  // B elsewhere: #2 is free of #1
  m.at(3).waits = {InstructionId{2}};                   // in no longer waits for out
  expect_violation(m, ViolationKind::kRace,
                   "instruction 3 (copy storage 1 \"A\" [0, 8) host -> device)",
                   "and instruction 1 (copy storage 1 \"A\" [0, 8) device -> host) both touch host "
                   "[0, 8), one of them writing, and nothing orders them");
}

TEST(CheckPlan, OrderThroughAThirdStreamCounts) {
  Swap m;
  m.at(3).waits = {InstructionId{2}};  // #1 before #2 before #3
  expect_legal(m);
}

TEST(CheckPlan, WorkspaceRacesWithCopy) {
  Swap m;
  m.at(5).workspace = {8, 9};  // over A, after its last reader
  expect_legal(m);
  m.at(2).workspace = {4, 8};  // inside w, its own operand
  expect_violation(m, ViolationKind::kRace, "instruction 2 (run op 1 g)",
                   "touches device [4, 8) as two things, writing at least one");
  Swap n;
  n.at(2).operands[1] = n.on(kDevice, n.b, 24);
  n.at(2).waits = {};
  n.at(2).workspace = {12, 14};
  expect_violation(n, ViolationKind::kRace, "instruction 2 (run op 1 g)",
                   "and instruction 1 (copy storage 1 \"A\" [0, 8) device -> host) both touch "
                   "device [12, 14), one of them writing, and nothing orders them");
}

TEST(CheckPlan, OpOverItsOwnOperandRaces) {
  Swap m;
  m.at(4).operands[1] = m.on(kDevice, m.y, 12);  // y over A, which h reads
  expect_violation(m, ViolationKind::kRace, "instruction 4 (run op 2 h)",
                   "touches device [12, 16) as two things, writing at least one");
}

// Chains a -> b and c -> d, in program order a b c d. B and C lie at one address. The copy that
// keeps B for its reader e moves it out before C is made there.
//
//   device   0  A   8  B / C   16  D   24  E
//   compute  #0 a   #1 b            #3 c (after #2)   #4 d            #6 e (after #5)
//   out                   #2 B out                         #5 B in, over A
struct TwoChains : PlanMaker {
  ResidencyId rc;
  TwoChains() {
    const StorageId x = storage(8, "x", kEntry), sa = storage(8, "A"), sb = storage(8, "B");
    const StorageId sc = storage(8, "C"), sd = storage(8, "D", kExit), se = storage(8, "E", kExit);
    op("a", {x}, {sa});
    op("b", {sa}, {sb});
    op("c", {x}, {sc});
    op("d", {sc}, {sd});
    op("e", {sb}, {se});
    const ResidencyId rx = on(kDevice, x, 32), ra = on(kDevice, sa, 0), rb = on(kDevice, sb, 8);
    rc = on(kDevice, sc, 8);
    const ResidencyId rd = on(kDevice, sd, 16), re = on(kDevice, se, 24);
    const ResidencyId hb = on(kHost, sb, 0), rb2 = on(kDevice, sb, 0);
    enter(rx);
    run(0, {rx, ra});
    run(1, {ra, rb});
    copy(Stream::kOut, rb, hb, {1});
    run(2, {rx, rc}, {2});
    run(3, {rc, rd});
    copy(Stream::kIn, hb, rb2, {1, 2});
    run(4, {rb2, re}, {5});
    leave(rd);
    leave(re);
  }
};

TEST(CheckPlan, TwoChainsOnOneAddress) {
  expect_legal(TwoChains());
  TwoChains m;  // the way back put in another stream, its wait for the way out gone
  m.plan.instructions[5].waits = {InstructionId{1}};
  expect_violation(m, ViolationKind::kRace,
                   "instruction 5 (copy storage 2 \"B\" [0, 8) host -> device)",
                   "and instruction 2 (copy storage 2 \"B\" [0, 8) device -> host) both touch host "
                   "[0, 8), one of them writing, and nothing orders them");
  TwoChains n;  // the way out in the compute stream, where it needs no wait of its own ...
  n.plan.instructions[2].stream = Stream::kCompute;
  n.plan.instructions[2].waits = {};
  n.plan.instructions[3].waits = {};
  expect_legal(n);
  n.plan.instructions[2].stream = Stream::kOut;  // ... and moved back without one
  expect_violation(n, ViolationKind::kRace,
                   "instruction 2 (copy storage 2 \"B\" [0, 8) device -> host)",
                   "and instruction 1 (run op 1 b) both touch device [8, 16), one of them writing, "
                   "and nothing orders them");
}

TEST(CheckPlan, ReusedAddressBeforeItsLastReaderIsStale) {
  TwoChains m;  // c is run before B leaves: the copy then finds C there
  std::swap(m.plan.instructions[2], m.plan.instructions[3]);
  m.plan.instructions[2].waits = {};
  m.plan.instructions[3].waits = {InstructionId{2}};
  m.plan.instructions[5].waits = {InstructionId{3}};
  expect_violation(m, ViolationKind::kStale,
                   "instruction 3 (copy storage 2 \"B\" [0, 8) device -> host)",
                   "takes storage 2 \"B\" [0, 8) from device [8, 16), which holds storage 3 \"C\" "
                   "[0, 8) with what op 2 (c) writes");
  TwoChains n;  // d is run before c: it reads B's bytes
  std::swap(n.plan.instructions[3], n.plan.instructions[4]);
  n.plan.instructions[3].waits = {InstructionId{2}};
  expect_violation(n, ViolationKind::kStale, "instruction 3 (run op 3 d)",
                   "operand 0 (reads): storage 3 \"C\" [0, 8) must hold what op 2 (c) writes; "
                   "device [8, 16) holds storage 2 \"B\" [0, 8) with what op 1 (b) writes");
}

// --- versions ---

TEST(CheckPlan, ReadOfNothingIsStale) {
  Swap m;
  m.at(3).to = m.on(kDevice, m.a, 32);  // A comes back elsewhere; h reads the old place, now B's
  expect_violation(m, ViolationKind::kStale, "instruction 4 (run op 2 h)",
                   "operand 0 (reads): storage 1 \"A\" [0, 8) must hold what op 0 (f) writes; "
                   "device [8, 16) holds storage 2 \"B\" [0, 8) with what op 1 (g) writes");
  m.at(4).operands[0] = m.on(kDevice, m.a, 40);
  expect_violation(m, ViolationKind::kStale, "instruction 4 (run op 2 h)",
                   "operand 0 (reads): storage 1 \"A\" [0, 8) must hold what op 0 (f) writes; "
                   "device [40, 48) holds nothing");
}

TEST(CheckPlan, WorkspaceDestroysWhatItCovers) {
  Swap m;
  m.at(2).operands[1] = m.on(kDevice, m.b, 24);
  m.at(2).workspace = {8, 10};  // over A, which h would still find here
  m.at(4).operands[0] = m.ra;
  m.plan.instructions.erase(m.plan.instructions.begin() + 3);
  m.at(3).waits = {};
  expect_violation(m, ViolationKind::kStale, "instruction 3 (run op 2 h)",
                   "operand 0 (reads): storage 1 \"A\" [0, 2) must hold what op 0 (f) writes; "
                   "device [8, 10) holds nothing");
}

// x is read by f, changed in place by step, read by g; both versions are needed at the end.
struct InPlace : PlanMaker {
  StorageId x = storage(8, "x", kEntry), y = storage(8, "y", kExit), z = storage(8, "z", kExit);
  ResidencyId rx, ry, rz;
  InPlace() {
    op("f", {x}, {y});
    op("step", {}, {}, {x});
    op("g", {x}, {z});
    rx = on(kDevice, x, 0);
    ry = on(kDevice, y, 8);
    rz = on(kDevice, z, 16);
    enter(rx);
    run(0, {rx, ry});
    run(1, {rx});
    run(2, {rx, rz});
    leave(ry);
    leave(rz);
  }
};

TEST(CheckPlan, MutationMakesANewVersion) {
  expect_legal(InPlace());
  InPlace m;
  std::swap(m.plan.instructions[1], m.plan.instructions[2]);
  expect_violation(m, ViolationKind::kStale, "instruction 1 (run op 2 g)",
                   "operand 0 (reads): storage 0 \"x\" [0, 8) must hold what op 1 (step) writes; "
                   "device [0, 8) holds storage 0 \"x\" [0, 8) with entry content");
  InPlace n;
  std::swap(n.plan.instructions[0], n.plan.instructions[1]);
  expect_violation(n, ViolationKind::kStale, "instruction 1 (run op 0 f)",
                   "operand 0 (reads): storage 0 \"x\" [0, 8) must hold entry content; device "
                   "[0, 8) holds storage 0 \"x\" [0, 8) with what op 1 (step) writes");
}

TEST(CheckPlan, CopyOfAnOldVersionServesAReaderOfIt) {
  InPlace m;  // x's entry content kept on the host; f runs last, from there
  const ResidencyId rh = m.on(kHost, m.x, 0), rx2 = m.on(kDevice, m.x, 24);
  m.plan.instructions.clear();
  m.copy(Stream::kOut, m.rx, rh);
  m.run(1, {m.rx}, {0});
  m.run(2, {m.rx, m.rz});
  m.copy(Stream::kIn, rh, rx2, {0});
  m.run(0, {rx2, m.ry}, {3});
  expect_legal(m);
  m.plan.instructions[2].operands[0] = rx2;  // g would read the old version, after #3
  std::swap(m.plan.instructions[2], m.plan.instructions[3]);
  m.plan.instructions[3].waits = {InstructionId{2}};
  m.plan.instructions[4].waits = {};
  expect_violation(m, ViolationKind::kStale, "instruction 3 (run op 2 g)",
                   "operand 0 (reads): storage 0 \"x\" [0, 8) must hold what op 1 (step) writes; "
                   "device [24, 32) holds storage 0 \"x\" [0, 8) with entry content");
}

TEST(CheckPlan, MutatedStorageInTwoPlacesIsMalformed) {
  PlanMaker
      m;  // x[4, 8) += x[0, 6): must be one place, or the op sees its own writes or not by chance
  const StorageId x = m.storage(8, "x", kEntry | kExit);
  m.op("shift", {{x, 0, 6}}, {}, {{x, 4, 8}});
  const ResidencyId r0 = m.on(kDevice, x, 0), r1 = m.on(kDevice, x, 8);
  m.enter(r0);
  m.run(0, {r0, r0});
  m.leave(r0);
  expect_legal(m);
  m.enter(r1);
  m.plan.instructions[0].operands[0] = r1;
  expect_violation(m, ViolationKind::kMalformed, "instruction 0 (run op 0 shift)",
                   "is given storage 0 \"x\" [4, 6) at two places and writes at one of them");
}

// --- recompute ---

// A is dropped after its first reader and made again for its second.
struct Recompute : PlanMaker {
  StorageId x = storage(8, "x", kEntry), a = storage(8, "A"), b = storage(8, "B");
  StorageId y = storage(8, "y", kExit);
  ResidencyId rx, ra, rb, ra2, ry;
  Recompute() {
    op("f", {x}, {a});
    op("g", {a}, {b});
    op("h", {b}, {}, {b});
    op("k", {a, b}, {y});
    rx = on(kDevice, x, 0);
    ra = on(kDevice, a, 8);
    rb = on(kDevice, b, 16);
    ra2 = on(kDevice, a, 24);
    ry = on(kDevice, y, 8);
    enter(rx);
    run(0, {rx, ra});
    run(1, {ra, rb});
    run(2, {rb, rb});
    rerun(0, {rx, ra2});
    run(3, {ra2, rb, ry});
    leave(ry);
  }
};

TEST(CheckPlan, RerunMakesTheSameVersion) { expect_legal(Recompute()); }

TEST(CheckPlan, RerunNeedsItsInputs) {
  Recompute m;
  m.plan.instructions[2].workspace = {4, 6};  // over x, which f reads again
  expect_violation(m, ViolationKind::kStale, "instruction 3 (rerun op 0 f)",
                   "operand 0 (reads): storage 0 \"x\" [4, 6) must hold entry content; device "
                   "[4, 6) holds nothing");
}

TEST(CheckPlan, RerunOfAMutationNeedsTheOldVersion) {
  Recompute m;
  m.plan.instructions[3] = m.plan.instructions[2];
  m.plan.instructions[3].kind = InstructionKind::kRerun;
  m.plan.instructions[4].operands[0] = m.ra;
  m.plan.instructions[4].operands[2] = m.on(kDevice, m.y, 32);
  m.plan.exit[0].residency = m.plan.instructions[4].operands[2];
  expect_violation(m, ViolationKind::kStale, "instruction 3 (rerun op 2 h)",
                   "operand 0 (reads): storage 2 \"B\" [0, 8) must hold what op 1 (g) writes; "
                   "device [16, 24) holds storage 2 \"B\" [0, 8) with what op 2 (h) writes");
  // Made again from its producer, it may run again.
  Instruction producer = m.plan.instructions[1];
  producer.kind = InstructionKind::kRerun;
  m.plan.instructions.insert(m.plan.instructions.begin() + 3, producer);
  expect_legal(m);
}

TEST(CheckPlan, EachOpRunsOnceAndRerunsLater) {
  Recompute m;
  m.plan.instructions[3].kind = InstructionKind::kRun;
  expect_violation(m, ViolationKind::kMissingOp, "instruction 3 (run op 0 f)",
                   "op 0 (f) has already run, as instruction 0");
  m.plan.instructions[0].kind = InstructionKind::kRerun;
  expect_violation(m, ViolationKind::kMissingOp, "instruction 0 (rerun op 0 f)",
                   "op 0 (f) has not run before");
  Recompute n;
  n.plan.instructions.pop_back();
  expect_violation(n, ViolationKind::kMissingOp, "op 3 (k)", "no instruction runs it");
}

// --- chains and scalars ---

TEST(CheckPlan, RandomAndCollectiveOpsKeepTheirOrder) {
  for (const bool collective : {false, true}) {
    PlanMaker m;
    const StorageId a = m.storage(8, "a", kExit), b = m.storage(8, "b", kExit);
    m.op("p", {}, {a});
    m.op("q", {}, {b});
    const ResidencyId ra = m.on(kDevice, a, 0), rb = m.on(kDevice, b, 8);
    m.run(1, {rb});
    m.run(0, {ra});
    m.leave(ra);
    m.leave(rb);
    expect_legal(m);
    (collective ? m.graph.ops[0].collective : m.graph.ops[0].uses_rng) = true;
    expect_legal(m);
    (collective ? m.graph.ops[1].collective : m.graph.ops[1].uses_rng) = true;
    expect_violation(
        m, ViolationKind::kOrder, "instruction 1 (run op 0 p)",
        std::string("op 0 (p) ") + (collective ? "is collective" : "draws random numbers") +
            ", as does op 1 (q), which comes later in program order but has run before");
  }
}

TEST(CheckPlan, NumbersReadOffTensorsComeFirst) {
  PlanMaker m;
  const StorageId x = m.storage(8, "x", kEntry), y = m.storage(8, "y", kExit);
  m.op("item", {x});
  m.op("full", {}, {y});
  m.graph.scalars = {{ScalarKind::kItem, "", "", {}, {}},
                     {ScalarKind::kOp, "", "neg", {Argument{ScalarId{0}}}, {}}};
  m.graph.ops[0].results = {Argument{ScalarId{0}}};
  m.graph.ops[1].args = {Argument{Argument::List{Argument{ScalarId{1}}}}};
  const ResidencyId rx = m.on(kDevice, x, 0), ry = m.on(kDevice, y, 8);
  m.enter(rx);
  m.run(0, {rx});
  m.run(1, {ry});
  m.leave(ry);
  expect_legal(m);
  std::swap(m.plan.instructions[0], m.plan.instructions[1]);
  expect_violation(m, ViolationKind::kStale, "instruction 0 (run op 1 full)",
                   "takes scalar 1, which needs op 0 (item), and that has not run before");
}

// --- parts ---

// A's halves are made by two ops, the first half is swapped out and in, and one op reads the whole,
// which must then lie together.
struct Parts : PlanMaker {
  StorageId a = storage(16, "A"), y = storage(8, "y", kExit);
  ResidencyId whole, low, host, ry;
  Parts() {
    op("left", {}, {{a, 0, 8}});
    op("right", {}, {{a, 8, 16}});
    op("join", {a}, {y});
    whole = on(kDevice, a, 0);
    low = on(kDevice, {a, 0, 8}, 32);
    host = on(kHost, {a, 0, 8}, 100);
    ry = on(kDevice, y, 16);
    run(0, {low});                                // #0
    copy(Stream::kOut, low, host, {0});           // #1
    run(1, {whole});                              // #2
    copy(Stream::kIn, host, whole, {1}, {0, 8});  // #3
    run(2, {whole, ry}, {3});                     // #4
    leave(ry);
  }
};

TEST(CheckPlan, PartsComeTogether) {
  expect_legal(Parts());
  Parts m;
  m.plan.instructions[3].bytes = {0, 6};
  expect_violation(m, ViolationKind::kStale, "instruction 4 (run op 2 join)",
                   "operand 0 (reads): storage 0 \"A\" [6, 8) must hold what op 0 (left) writes; "
                   "device [6, 8) holds nothing");
}

TEST(CheckPlan, BytesOfTheRightStorageAtTheWrongOffsetAreStale) {
  Parts m;  // A[0, 8) lies where A[8, 16) is looked for
  m.plan.residencies[m.host.index()].address = 100;
  const ResidencyId crooked = m.on(kHost, {m.a, 8, 16}, 100);
  m.plan.instructions[3].from = crooked;
  m.plan.instructions[3].bytes = {8, 16};
  m.plan.instructions[3].waits = {InstructionId{1}, InstructionId{2}};
  expect_violation(
      m, ViolationKind::kStale, "instruction 3 (copy storage 0 \"A\" [8, 16) host -> device)",
      "takes storage 0 \"A\" [8, 16) from host [100, 108), which holds storage 0 \"A\" "
      "[0, 8) with what op 0 (left) writes");
}

// --- borders ---

// w's home is on disk; it comes in, is updated, goes back; a host copy is carried to the next step.
struct Homes : PlanMaker {
  StorageId w = storage(8, "w", kEntry | kExit | kPersistent);
  ResidencyId disk, host, device;
  Homes() {
    op("update", {}, {}, {w});
    disk = on(kDisk, w, 0);
    host = on(kHost, w, 0);
    device = on(kDevice, w, 0);
    enter(disk, true);
    enter(host);
    copy(Stream::kIn, host, device);        // #0
    run(0, {device}, {0});                  // #1
    copy(Stream::kOut, device, host, {1});  // #2
    copy(Stream::kWrite, host, disk, {2});  // #3
    leave(disk, true);
    leave(host);
  }
};

TEST(CheckPlan, CarriedCopyAndHomeOnDisk) {
  expect_legal(Homes());
  Homes m;  // directly from the device to the disk
  m.plan.instructions[3].from = m.device;
  m.plan.instructions[3].waits = {InstructionId{1}};
  expect_legal(m);
}

TEST(CheckPlan, StaleAtExit) {
  Homes m;
  m.plan.instructions.pop_back();
  expect_violation(m, ViolationKind::kExit, "residency 0 (storage 0 \"w\" [0, 8) at disk [0, 8))",
                   "storage 0 \"w\" [0, 8) must hold what op 0 (update) writes; disk [0, 8) holds "
                   "storage 0 \"w\" [0, 8) with entry content");
  Homes n;  // the carried copy is not brought up to date
  n.plan.instructions[3].from = n.device;
  n.plan.instructions[3].waits = {InstructionId{1}};
  n.plan.instructions.erase(n.plan.instructions.begin() + 2);
  n.plan.instructions[2].waits = {InstructionId{1}};
  expect_violation(n, ViolationKind::kExit, "residency 1 (storage 0 \"w\" [0, 8) at host [0, 8))",
                   "storage 0 \"w\" [0, 8) must hold what op 0 (update) writes; host [0, 8) holds "
                   "storage 0 \"w\" [0, 8) with entry content");
  n.plan.exit.pop_back();
  expect_legal(n);
}

TEST(CheckPlan, ExitContentMustNotBeOverwritten) {
  Swap m;
  m.at(5).workspace = {16, 20};
  expect_violation(m, ViolationKind::kExit,
                   "residency 5 (storage 3 \"y\" [0, 8) at device [16, 24))",
                   "storage 3 \"y\" [0, 4) must hold what op 2 (h) writes; device [16, 20) holds "
                   "nothing");
}

TEST(CheckPlan, BordersAreComplete) {
  Homes m;
  m.plan.entry[0].home = false;
  expect_violation(m, ViolationKind::kEntry, "storage 0 \"w\" at entry",
                   "is persistent and has no home for byte 0 of 8");
  m.plan.entry.clear();
  expect_violation(m, ViolationKind::kEntry, "storage 0 \"w\" at entry",
                   "no residency holds its byte 0 (it has 8)");
  Homes n;
  n.plan.entry[1].home = true;
  expect_violation(n, ViolationKind::kEntry, "storage 0 \"w\" at entry",
                   "has two homes for byte 0; one is residency 1 (storage 0 \"w\" [0, 8) at host "
                   "[0, 8))");
  Homes o;
  o.plan.exit.erase(o.plan.exit.begin());
  expect_violation(o, ViolationKind::kExit, "storage 0 \"w\" at exit",
                   "is persistent and has no home for byte 0 of 8");
  Swap p;
  p.plan.exit.pop_back();
  expect_violation(p, ViolationKind::kExit, "storage 3 \"y\" at exit",
                   "no residency holds its byte 0 (it has 8)");
  Swap q;
  q.enter(q.ry);
  expect_violation(q, ViolationKind::kEntry,
                   "residency 5 (storage 3 \"y\" [0, 8) at device [16, 24))",
                   "is listed at entry, where storage 3 \"y\" has no content");
  Swap r;
  r.plan.exit[1].home = true;
  expect_violation(r, ViolationKind::kExit,
                   "residency 5 (storage 3 \"y\" [0, 8) at device [16, 24))",
                   "is listed as a home, and storage 3 \"y\" is not persistent");
}

TEST(CheckPlan, EntryContentsDoNotOverlap) {
  PlanMaker m;
  const StorageId x = m.storage(8, "x", kEntry), y = m.storage(8, "y", kEntry);
  m.enter(m.on(kDevice, x, 0));
  m.enter(m.on(kDevice, y, 6));
  expect_violation(m, ViolationKind::kEntry,
                   "residency 1 (storage 1 \"y\" [0, 8) at device [6, 14))",
                   "device [6, 8) already holds storage 0 \"x\" [6, 8) with entry content");
}

TEST(CheckPlan, HomesInPartsTileTheStorage) {
  PlanMaker m;
  const StorageId w = m.storage(16, "w", kEntry | kExit | kPersistent);
  m.enter(m.on(kHost, {w, 8, 16}, 0), true);
  m.enter(m.on(kHost, {w, 0, 8}, 100), true);
  m.plan.exit = m.plan.entry;
  expect_legal(m);
  m.plan.residencies[1].tier = kDisk;
  expect_violation(
      m, ViolationKind::kEntry, "storage 0 \"w\" at entry",
      "has homes on two tiers: residency 1 (storage 0 \"w\" [0, 8) at disk [100, 108)) "
      "and residency 0 (storage 0 \"w\" [8, 16) at host [0, 8))");
  m.plan.residencies[1].tier = kHost;
  m.plan.residencies[1].part.bytes = {0, 7};
  expect_violation(m, ViolationKind::kEntry, "storage 0 \"w\" at entry",
                   "no residency holds its byte 7 (it has 16)");
}

TEST(CheckPlan, GradientDroppedFirstNeedsNoHomeAtExit) {
  PlanMaker m;
  const StorageId g = m.storage(8, "grad", kEntry | kPersistent);
  m.enter(m.on(kDevice, g, 0), true);
  expect_legal(m);
}

// --- size ---

TEST(CheckPlan, TenThousandOpsInWellUnderASecond) {
  // A chain of 10,000 ops; each result goes out, comes back and is read again: 30,000 instructions.
  PlanMaker m;
  m.plan.budgets = {1 << 20, 1 << 20, 0};
  constexpr int64_t kOps = 10'000;
  std::vector<StorageId> made;
  const StorageId x = m.storage(8, "", kEntry);
  const ResidencyId rx = m.on(kDevice, x, 0);
  m.enter(rx);
  ResidencyId previous = rx;
  for (int64_t i = 0; i < kOps; ++i) {
    const bool last = i + 1 == kOps;
    const StorageId s = m.storage(8, "", last ? kExit : 0);
    m.op("f", {i == 0 ? x : made.back()}, {s});
    made.push_back(s);
    const ResidencyId here = m.on(kDevice, s, 8 + 8 * (i % 100));
    const ResidencyId host = m.on(kHost, s, 8 * i);
    const ResidencyId back = m.on(kDevice, s, 8 + 8 * (100 + i % 100));
    const int64_t at = 3 * i;
    // Waits for the last copies that touched the places it uses, 100 ops ago, and for its input.
    std::vector<int64_t> waits;
    if (i >= 100) waits.push_back(at - 299);
    if (i > 0) waits.push_back(at - 1);
    m.run(i, {previous, here}, waits);
    m.copy(Stream::kOut, here, host, {at});
    m.copy(Stream::kIn, host, back, {at, at + 1});
    previous = back;
    if (last) m.leave(back);
  }
  const auto start = std::chrono::steady_clock::now();
  expect_legal(m);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  RecordProperty("seconds", std::to_string(seconds));
  EXPECT_LT(seconds, 5.0);  // about 0.05; the rest is for sanitizers and busy machines
}

}  // namespace
}  // namespace outsize
