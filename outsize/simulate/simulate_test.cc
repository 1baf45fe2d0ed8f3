#include "outsize/simulate/simulate.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "outsize/base/random.h"
#include "outsize/plan/check.h"
#include "outsize/plan/check_testing.h"
#include "outsize/simulate/reference.h"

namespace outsize {
namespace {

constexpr Tier kDevice = Tier::kDevice;
constexpr Tier kHost = Tier::kHost;
constexpr Tier kDisk = Tier::kDisk;

// 1 byte per ns on every link, nothing shared, nothing slowed.
Machine one_byte_per_ns() {
  Machine m;
  m.name = "unit";
  m.alignment = 1;
  m.memory_bytes_per_s = 1'000'000'000;
  m.out.bytes_per_s = m.in.bytes_per_s = 1'000'000'000;
  m.write.bytes_per_s = m.read.bytes_per_s = 1'000'000'000;
  return m;
}

Profile times(const std::vector<int64_t>& ns) {
  Profile p;
  for (const int64_t t : ns) {
    OpCost cost;
    cost.ns = t;
    p.ops.push_back(cost);
  }
  return p;
}

// Both simulators, which must agree.
Simulation simulated(const PlanMaker& m, const std::vector<int64_t>& ns,
                     const Machine& machine = one_byte_per_ns()) {
  const Result<Simulation> s = simulate(m.graph, times(ns), machine, m.plan);
  EXPECT_TRUE(s.ok()) << s.error().message;
  const Result<Simulation> r = simulate_reference(m.graph, times(ns), machine, m.plan);
  EXPECT_TRUE(r.ok()) << r.error().message;
  EXPECT_TRUE(*s == *r);
  const Result<int64_t> step = simulated_ns(m.graph, times(ns), machine, m.plan);
  EXPECT_TRUE(step.ok() && *step == s->step_ns);
  return *s;
}

// The header's example. A (8 bytes at device 0) goes out; B is made over it.
//
//   ns       0         10       18   23
//   compute  |f -------|        |g --|
//   out                |A ------|
struct OutAndOver : PlanMaker {
  StorageId a = storage(8, "A"), b = storage(8, "B", kExit);
  ResidencyId ra, rh, rb;
  OutAndOver() {
    op("f", {}, {a});
    op("g", {}, {b});
    ra = on(kDevice, a, 0);
    rh = on(kHost, a, 4);
    rb = on(kDevice, b, 0);
    run(0, {ra}, {}, {8, 20});
    copy(Stream::kOut, ra, rh, {0});
    run(1, {rb}, {1});
    leave(rb);
  }
};

TEST(Simulate, OutAndOver) {
  const OutAndOver m;
  const Simulation s = simulated(m, {10, 5});
  EXPECT_EQ(s.step_ns, 10 + 8 + 5);
  EXPECT_EQ(s.compute_ns, 15);
  EXPECT_EQ(s.stall_ns, 8);
  EXPECT_EQ(s.spans, (std::vector<Span>{{0, 10}, {10, 18}, {18, 23}}));
  EXPECT_EQ(s.busy_ns, (std::array<int64_t, kStreams>{15, 8, 0, 0, 0}));
  EXPECT_EQ(s.moved_out, 8);
  EXPECT_EQ(s.moved_in, 0);
  // Device: A and f's workspace of 12, then A, until the copy has ended; then B, to the end. At 10
  // f ends before the copy begins; at 18 A is gone before B comes.
  EXPECT_EQ(s.tiers[0].levels, (std::vector<Level>{{0, 0}, {0, 20}, {10, 8}, {18, 0}, {18, 8}}));
  EXPECT_EQ(s.tiers[0].peak_live_bytes, 20);
  EXPECT_EQ(s.tiers[0].extent, 20);
  // Host: the copy lives while it is written and nobody wants it afterwards.
  EXPECT_EQ(s.tiers[1].levels, (std::vector<Level>{{0, 0}, {10, 8}, {18, 0}}));
  EXPECT_EQ(s.tiers[1].extent, 12);
  EXPECT_EQ(s.tiers[2], TierUse{});
}

TEST(Simulate, EmptyPlan) {
  const Simulation s = simulated(PlanMaker(), {});
  EXPECT_EQ(s.step_ns, 0);
  EXPECT_EQ(s.tiers[0], TierUse{});
}

// An op reads x, and `stream` copies x to the tier below.
struct OpAndCopy : PlanMaker {
  OpAndCopy(int64_t bytes, Tier below, Stream stream) {
    const StorageId x = storage(bytes, "x", kEntry);
    op("f", {x});
    const ResidencyId rx = on(kDevice, x, 0);
    enter(rx);
    run(0, {rx});
    copy(stream, rx, on(below, x, 0));
  }
};

TEST(Simulate, LatencyComesFirstAndMovesNothing) {
  Machine machine = one_byte_per_ns();
  machine.out.latency_ns = 3;
  machine.compute_permille_beside_copy = 500;
  const OpAndCopy m(8, kHost, Stream::kOut);
  //   ns       0    3             11     the op: 3 at full speed, 8 at half, that makes 7; 3 left
  //   compute  |f --|-- at half --|--|
  //   out      |wait|copy --------|  14
  const Simulation s = simulated(m, {10}, machine);
  EXPECT_EQ(s.spans, (std::vector<Span>{{0, 14}, {0, 11}}));
  EXPECT_EQ(s.stall_ns, 14 - 10);
}

TEST(Simulate, CopyBesideComputeSlows) {
  Machine machine = one_byte_per_ns();
  machine.copy_permille_beside_compute = 250;
  OutAndOver m;
  m.plan.instructions[2].waits.clear();  // a race, but time does not mind
  // From 10 to 15 beside g: 5 * 0.25 = 1.25 bytes; 6.75 left take 6.75 ns, so it ends at 21.75
  // -> 22.
  EXPECT_EQ(simulated(m, {10, 5}, machine).spans, (std::vector<Span>{{0, 10}, {10, 22}, {10, 15}}));
}

TEST(Simulate, TheDiskHasItsOwnInterference) {
  Machine machine = one_byte_per_ns();
  machine.compute_permille_beside_copy = machine.copy_permille_beside_compute = 100;
  machine.compute_permille_beside_disk = 800;
  machine.disk_permille_beside_compute = 500;
  const OpAndCopy m(4, kDisk, Stream::kWrite);
  // 4 bytes at 0.5 take 8 ns, in which the op does 8 * 0.8 = 6.4 of its 10; 3.6 left end at 11.6.
  const Simulation s = simulated(m, {10}, machine);
  EXPECT_EQ(s.spans, (std::vector<Span>{{0, 12}, {0, 8}}));
}

TEST(Simulate, ADiskCopyInTheComputeStreamGoesAtTheDisksRate) {
  Machine machine = one_byte_per_ns();
  machine.sync_bytes_per_s = 8 * machine.out.bytes_per_s;
  const OpAndCopy m(8, kDisk, Stream::kCompute);
  EXPECT_EQ(simulated(m, {10}, machine).spans, (std::vector<Span>{{0, 10}, {10, 18}}));
}

// x goes out while y comes in.
struct BothWays : PlanMaker {
  BothWays(int64_t x_bytes, int64_t y_bytes, Tier below, Tier above, Stream down, Stream up) {
    const StorageId x = storage(x_bytes, "x", kEntry), y = storage(y_bytes, "y", kEntry);
    const ResidencyId rx = on(above, x, 0), ry = on(below, y, 0);
    enter(rx);
    enter(ry);
    copy(down, rx, on(below, x, y_bytes));
    copy(up, ry, on(above, y, x_bytes));
  }
};

TEST(Simulate, BothWaysShareTheLink) {
  Machine machine = one_byte_per_ns();
  const BothWays m(60, 90, kHost, kDevice, Stream::kOut, Stream::kIn);
  EXPECT_EQ(simulated(m, {}, machine).spans, (std::vector<Span>{{0, 60}, {0, 90}}));
  machine.both_bytes_per_s = 1'200'000'000;
  // 0.6 bytes/ns each until x is out, at 100; y has 60 moved and 30 left, which go at 1: 130.
  EXPECT_EQ(simulated(m, {}, machine).spans, (std::vector<Span>{{0, 100}, {0, 130}}));
  machine.out.bytes_per_s = 3'000'000'000;
  machine.both_bytes_per_s = 3'000'000'000;
  // Own rates 3 and 1: of 3 in all, 2.25 and 0.75. x is out at 60 / 2.25 = 26.67 -> 27; y has moved
  // 27 * 0.75 = 20.25 and has 69.75 left: 27 + 69.75 -> 97.
  EXPECT_EQ(simulated(m, {}, machine).spans, (std::vector<Span>{{0, 27}, {0, 97}}));
  machine.both_bytes_per_s = 4'000'000'000;  // as much as the two together: nobody waits
  EXPECT_EQ(simulated(m, {}, machine).spans, (std::vector<Span>{{0, 20}, {0, 90}}));
  machine.disk_both_bytes_per_s = 1;  // another link's
  EXPECT_EQ(simulated(m, {}, machine).spans, (std::vector<Span>{{0, 20}, {0, 90}}));
}

TEST(Simulate, DiskSharesItsOwn) {
  Machine machine = one_byte_per_ns();
  machine.disk_both_bytes_per_s = 1'000'000'000;
  machine.both_bytes_per_s = 1;
  const BothWays m(60, 90, kDisk, kHost, Stream::kWrite, Stream::kRead);
  // Half a byte/ns each: x done at 120, y then has 30 left: 150. Directly from the device likewise.
  const Simulation s = simulated(m, {}, machine);
  EXPECT_EQ(s.spans, (std::vector<Span>{{0, 120}, {0, 150}}));
  EXPECT_EQ(s.moved_write, 60);
  EXPECT_EQ(s.moved_read, 90);
  const BothWays direct(60, 90, kDisk, kDevice, Stream::kWrite, Stream::kRead);
  EXPECT_EQ(simulated(direct, {}, machine).spans, (std::vector<Span>{{0, 120}, {0, 150}}));
}

TEST(Simulate, CopyInTheComputeStream) {
  Machine machine = one_byte_per_ns();
  OutAndOver m;
  m.plan.instructions[1].stream = Stream::kCompute;
  m.plan.instructions[1].waits.clear();
  m.plan.instructions[2].waits.clear();
  EXPECT_EQ(simulated(m, {10, 5}, machine).step_ns, 10 + 8 + 5);
  machine.sync_bytes_per_s = 4'000'000'000;
  machine.out.latency_ns = 1;
  const Simulation s = simulated(m, {10, 5}, machine);
  EXPECT_EQ(s.step_ns, 10 + (1 + 2) + 5);
  EXPECT_EQ(s.busy_ns[0], 18);
  EXPECT_EQ(s.stall_ns, 3);
  EXPECT_EQ(s.moved_out, 8);
}

TEST(Simulate, TwoCopiesOnOneRoadGetOneRoad) {
  PlanMaker m;  // both out, one of them in the compute stream
  const StorageId x = m.storage(8, "x", kEntry), y = m.storage(12, "y", kEntry);
  const ResidencyId rx = m.on(kDevice, x, 0), ry = m.on(kDevice, y, 8);
  m.enter(rx);
  m.enter(ry);
  m.copy(Stream::kOut, rx, m.on(kHost, x, 0));
  m.copy(Stream::kCompute, ry, m.on(kHost, y, 8));
  // Half each: x at 16; y has 4 left: 20, as one after the other would take.
  EXPECT_EQ(simulated(m, {}).spans, (std::vector<Span>{{0, 16}, {0, 20}}));
}

TEST(Simulate, MoveWithinATier) {
  PlanMaker m;
  const StorageId x = m.storage(8, "x", kEntry);
  const ResidencyId rx = m.on(kDevice, x, 0);
  m.enter(rx);
  m.copy(Stream::kCompute, rx, m.on(kDevice, x, 8));
  Machine machine = one_byte_per_ns();
  machine.memory_bytes_per_s = 500'000'000;
  const Simulation s = simulated(m, {}, machine);
  EXPECT_EQ(s.step_ns, 16);
  EXPECT_EQ(s.moved_out, 0);
}

TEST(Simulate, SlowLinkBesideManyShortOpsStillMoves) {
  Machine machine = one_byte_per_ns();
  machine.out.bytes_per_s = 300'000'000;  // 0.3 bytes/ns
  PlanMaker m;
  const StorageId x = m.storage(3, "x", kEntry);
  const ResidencyId rx = m.on(kDevice, x, 0);
  m.enter(rx);
  m.copy(Stream::kOut, rx, m.on(kHost, x, 0));
  std::vector<int64_t> ns;
  for (int i = 0; i < 20; ++i) {
    m.op("f", {x});
    m.run(i, {rx});
    ns.push_back(1);
  }
  const Simulation s = simulated(m, ns, machine);
  EXPECT_EQ(s.spans[0], (Span{0, 10}));  // 3 / 0.3, whatever happens meanwhile
  EXPECT_EQ(s.step_ns, 20);
}

TEST(Simulate, OpsWithoutTimeTakeTheirTurn) {
  PlanMaker m;
  const StorageId a = m.storage(8, "A"), b = m.storage(8, "B", kExit);
  m.op("f", {}, {a});
  m.op("g", {a}, {b});
  const ResidencyId ra = m.on(kDevice, a, 0), rb = m.on(kDevice, b, 8);
  m.run(0, {ra});
  m.run(1, {ra, rb});
  m.leave(rb);
  const Simulation s = simulated(m, {0, 0});
  EXPECT_EQ(s.step_ns, 0);
  EXPECT_EQ(s.tiers[0].levels, (std::vector<Level>{{0, 0}, {0, 8}, {0, 16}, {0, 8}}));
}

TEST(Simulate, RerunsAreRecompute) {
  PlanMaker m;
  const StorageId a = m.storage(8, "A", kExit);
  m.op("f", {}, {a});
  const ResidencyId ra = m.on(kDevice, a, 0);
  m.run(0, {ra});
  m.rerun(0, {ra});
  m.leave(ra);
  const Simulation s = simulated(m, {7});
  EXPECT_EQ(s.step_ns, 14);
  EXPECT_EQ(s.compute_ns, 7);
  EXPECT_EQ(s.recompute_ns, 7);
  EXPECT_EQ(s.stall_ns, 0);
}

TEST(Simulate, BorderLives) {
  PlanMaker m;
  const StorageId w = m.storage(8, "w", kEntry | kExit | kPersistent),
                  x = m.storage(4, "x", kEntry);
  const StorageId unused = m.storage(2, "unused", kEntry);
  m.op("f", {x}, {}, {w});
  const ResidencyId rw = m.on(kDevice, w, 0), rx = m.on(kDevice, x, 8);
  m.enter(rw, true);
  m.enter(rx);
  m.enter(m.on(kDevice, unused, 12));
  m.run(0, {rx, rw});
  m.leave(rw, true);
  // All is there at entry; what nobody reads goes at once; x goes after its reader; w stays.
  EXPECT_EQ(simulated(m, {5}).tiers[0].levels, (std::vector<Level>{{0, 14}, {0, 12}, {5, 8}}));
}

TEST(Simulate, LongWork) {
  Machine machine = one_byte_per_ns();
  PlanMaker m;
  const int64_t bytes = int64_t{1} << 44;  // 16 TiB: 2^44 * 1e9 does not fit 64 bits
  const StorageId x = m.storage(bytes, "x", kEntry);
  const ResidencyId rx = m.on(kHost, x, 0);
  m.enter(rx);
  m.copy(Stream::kWrite, rx, m.on(kDisk, x, 0));
  EXPECT_EQ(simulated(m, {}, machine).step_ns, bytes);
  machine.write.bytes_per_s = 1;
  const auto s = simulate(m.graph, times({}), machine, m.plan);
  ASSERT_FALSE(s.ok());
  EXPECT_EQ(s.error().message, "the step takes more than 2^62 ns on 'unit'");
}

TEST(Simulate, Refusals) {
  const auto message_of = [](const PlanMaker& m, const Machine& machine,
                             const std::vector<int64_t>& ns) {
    const auto s = simulate(m.graph, times(ns), machine, m.plan);
    const auto light = simulated_ns(m.graph, times(ns), machine, m.plan);
    EXPECT_FALSE(s.ok());
    EXPECT_FALSE(light.ok());
    EXPECT_EQ(s.error(), light.error());
    return s.error().message;
  };
  Machine machine = one_byte_per_ns();
  machine.out.bytes_per_s = 0;
  EXPECT_EQ(message_of(OutAndOver(), machine, {10, 5}),
            "instruction 1 copies from device to host, for which machine 'unit' has no link");
  machine = one_byte_per_ns();
  EXPECT_EQ(message_of(OutAndOver(), machine, {10}), "the profile has 1 ops, the graph 2");
  OutAndOver m;
  m.plan.instructions[0].waits = {InstructionId{1}};
  EXPECT_EQ(message_of(m, machine, {10, 5}), "instruction 0 waits for ever for instruction 1");
  m.plan.instructions[0].waits = {InstructionId{9}};
  EXPECT_EQ(message_of(m, machine, {10, 5}), "instruction 0 waits for instruction 9 of 3");
  m = {};
  m.plan.instructions[0].op = OpId{7};
  EXPECT_EQ(message_of(m, machine, {10, 5}), "instruction 0 runs op 7 of 2");
  m = {};
  m.plan.instructions[0].operands = {ResidencyId{3}};
  EXPECT_EQ(message_of(m, machine, {10, 5}), "instruction 0 has residency 3 of 3 as operand");
  m.plan.instructions[0].operands = {};
  EXPECT_EQ(message_of(m, machine, {10, 5}), "instruction 0 has 0 operands for 1 accesses");
  m = {};
  m.plan.instructions[1].to = ResidencyId{};
  EXPECT_EQ(message_of(m, machine, {10, 5}), "instruction 1 copies residency -1 of 3");
}

// --- the two simulators agree ---

Machine random_machine(Random& random) {
  Machine m;
  m.name = "random";
  const auto rate = [&] { return random.between(1, 40) * 100'000'000; };
  m.memory_bytes_per_s = rate();
  for (Link* link : {&m.out, &m.in, &m.write, &m.read})
    *link = {random.chance(0.5) ? 0 : random.between(1, 20), rate()};
  if (random.chance(0.6)) m.both_bytes_per_s = rate();
  if (random.chance(0.6)) m.disk_both_bytes_per_s = rate();
  if (random.chance(0.5)) m.sync_bytes_per_s = rate();
  if (random.chance(0.5)) m.compute_permille_beside_copy = random.between(1, 1001);
  if (random.chance(0.5)) m.copy_permille_beside_compute = random.between(1, 1001);
  if (random.chance(0.5)) m.compute_permille_beside_disk = random.between(1, 1001);
  if (random.chance(0.5)) m.disk_permille_beside_compute = random.between(1, 1001);
  return m;
}

// Any instructions in any streams, waiting for any earlier ones: it need not mean anything.
PlanMaker random_plan(Random& random, std::vector<int64_t>& ns) {
  PlanMaker m;
  const int64_t storages = random.between(1, 5);
  for (int64_t s = 0; s < storages; ++s) {
    const StorageId id = m.storage(random.below(50), "");
    for (int64_t k = random.between(1, 4); k > 0; --k)
      m.on(static_cast<Tier>(random.below(kTiers)), id, random.below(100));
  }
  const auto any = [&] {
    return ResidencyId{random.below(static_cast<int64_t>(m.plan.residencies.size()))};
  };
  const int64_t length = random.below(24);
  for (int64_t i = 0; i < length; ++i) {
    std::vector<int64_t> waits;
    for (int64_t w = 0; w < i; ++w)
      if (random.chance(0.1)) waits.push_back(w);
    if (random.chance(0.5)) {
      const ResidencyId from = any(), to = any();
      const int64_t end = random.below(60);
      m.copy(static_cast<Stream>(random.below(kStreams)), from, to, waits, {0, end});
      continue;
    }
    const ResidencyId read = any(), made = any(), changed = any();
    m.op("f", {m.plan.residency(read).part.storage}, {m.plan.residency(made).part.storage},
         {m.plan.residency(changed).part.storage});
    const Interval workspace = random.chance(0.5) ? Interval{} : Interval{5, random.between(5, 50)};
    m.run(static_cast<int64_t>(ns.size()), {read, made, changed}, waits, workspace);
    ns.push_back(random.chance(0.2) ? 0 : random.below(60));
  }
  for (int64_t k = random.below(4); k > 0; --k) m.enter(any());
  for (int64_t k = random.below(4); k > 0; --k) m.leave(any());
  return m;
}

TEST(SimulateProperty, EqualsTheReference) {
  for (uint64_t seed = 1; seed <= 3000; ++seed) {
    Random random(seed);
    std::vector<int64_t> ns;
    const PlanMaker m = random_plan(random, ns);
    const Machine machine = random_machine(random);
    const Result<Simulation> fast = simulate(m.graph, times(ns), machine, m.plan);
    const Result<Simulation> slow = simulate_reference(m.graph, times(ns), machine, m.plan);
    ASSERT_TRUE(fast.ok()) << "seed " << seed << ": " << fast.error().message;
    ASSERT_TRUE(slow.ok()) << "seed " << seed;
    ASSERT_EQ(fast->step_ns, slow->step_ns) << "seed " << seed;
    ASSERT_EQ(fast->spans, slow->spans) << "seed " << seed;
    for (size_t t = 0; t < kTiers; ++t)
      ASSERT_EQ(fast->tiers[t].levels, slow->tiers[t].levels) << "seed " << seed << " tier " << t;
    ASSERT_TRUE(*fast == *slow) << "seed " << seed;
    ASSERT_EQ(*simulated_ns(m.graph, times(ns), machine, m.plan), fast->step_ns);
    // A step is never shorter than its ops, nor than what any one stream is busy.
    ASSERT_GE(fast->stall_ns, 0) << "seed " << seed;
    for (const int64_t busy : fast->busy_ns) ASSERT_LE(busy, fast->step_ns) << "seed " << seed;
  }
}

TEST(SimulateProperty, TakesMicrosecondsPerInstruction) {
  PlanMaker m;
  std::vector<int64_t> ns;
  const StorageId x = m.storage(64, "x", kEntry | kExit);
  const ResidencyId rx = m.on(kDevice, x, 0), rh = m.on(kHost, x, 0);
  constexpr int64_t kTriples = 2000;
  for (int64_t i = 0; i < kTriples; ++i) {
    m.op("f", {}, {}, {x});
    ns.push_back(50 + i % 7);
    m.run(i, {rx}, i == 0 ? std::vector<int64_t>{} : std::vector<int64_t>{3 * i - 1});
    m.copy(Stream::kOut, rx, rh, {3 * i});
    m.copy(Stream::kIn, rh, rx, {3 * i + 1});
  }
  const Profile profile = times(ns);
  const Machine machine = one_byte_per_ns();
  const auto start = std::chrono::steady_clock::now();
  constexpr int kRounds = 10;
  for (int round = 0; round < kRounds; ++round)
    ASSERT_TRUE(simulated_ns(m.graph, profile, machine, m.plan).ok());
  const double us =
      std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count() /
      (kRounds * 3 * kTriples);
  RecordProperty("us_per_instruction", std::to_string(us));
  EXPECT_LT(us, 20);  // about 0.2; the rest is for sanitizers and busy machines
}

}  // namespace
}  // namespace outsize
