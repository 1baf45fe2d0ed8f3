#include "outsize/run/undo.h"

#include <gtest/gtest.h>

#include <cstring>

#include "outsize/run/executor.h"
#include "outsize/run/faulty_device.h"
#include "outsize/run/testing/fake_device.h"
#include "outsize/run/testing/random_plans.h"
#include "outsize/run/testing/steps.h"
#include "outsize/tiers/faulty.h"

namespace outsize {
namespace {

using testing::Case;
using testing::Contents;
using testing::FakeDevice;
using testing::random_entry;
using testing::threads_now;

// A tier's bytes, or a shadow's, in a vector.
class VectorMemory : public TierMemory {
 public:
  explicit VectorMemory(std::vector<uint8_t>& bytes) : bytes_(bytes) {}
  const std::string& name() const override { return name_; }
  int64_t bytes() const override { return static_cast<int64_t>(bytes_.size()); }
  Status read(int64_t address, void* destination, int64_t bytes) override {
    if (Status inside = check_range(*this, "read", address, bytes); !inside.ok()) return inside;
    std::memcpy(destination, bytes_.data() + address, static_cast<size_t>(bytes));
    return Done{};
  }
  Status write(int64_t address, const void* source, int64_t bytes) override {
    if (Status inside = check_range(*this, "write", address, bytes); !inside.ok()) return inside;
    std::memcpy(bytes_.data() + address, source, static_cast<size_t>(bytes));
    return Done{};
  }
  std::byte* base() override { return reinterpret_cast<std::byte*>(bytes_.data()); }

 private:
  std::vector<uint8_t>& bytes_;
  const std::string name_ = "vector";
};

// Everything between a plan and its bytes, with a fault wherever it is wanted:
// executor -> undo -> faults -> bytes.
struct Stack {
  explicit Stack(const Case& c, const Faults& shadow_faults = {})
      : of(c),
        bytes(c.graph, c.plan),
        faulty(bytes),
        memories{VectorMemory(bytes.tier(Tier::kDevice)), VectorMemory(bytes.tier(Tier::kHost)),
                 VectorMemory(bytes.tier(Tier::kDisk))},
        shadow_bytes(static_cast<size_t>(undo_bytes(c.graph, c.plan))),
        plain_shadow(shadow_bytes),
        shadow(plain_shadow, shadow_faults),
        undo(c.graph, c.plan, faulty, {&memories[0], &memories[1], &memories[2]}, shadow) {
    auto made = Executor::create(c.graph, testing::profile_of(c), c.plan, undo, 1, {});
    OUTSIZE_CHECK(made.ok(), "{}", made.ok() ? "" : made.error().message);
    executor = std::move(*made);
  }
  // Of one that nothing is wrong with.
  int64_t calls_of_a_step(const Contents& entry) {
    bytes.set_entry(entry);
    EXPECT_TRUE(executor->step().ok());
    return faulty.calls();
  }
  // What the homes hold at entry, by storage.
  Contents homes() {
    Contents contents;
    for (const BorderItem& item : of.plan.entry) {
      if (!item.home) continue;
      const Residency& r = of.plan.residency(item.residency);
      const testing::Bytes& tier = bytes.tier(r.tier);
      contents[r.part.storage].assign(tier.begin() + r.address, tier.begin() + r.range().end);
    }
    return contents;
  }

  const Case& of;
  FakeDevice bytes;
  FaultyDevice faulty;
  std::array<VectorMemory, kTiers> memories;
  std::vector<uint8_t> shadow_bytes;
  VectorMemory plain_shadow;
  FaultyMemory shadow;
  UndoDevice undo;
  std::unique_ptr<Executor> executor;
};

#ifdef OUTSIZE_SANITIZED
constexpr uint64_t kCases = 4;
#else
constexpr uint64_t kCases = 12;
#endif

// A fault at every call of a step, early and late, error and exception: one error that names it, no
// thread left, homes as at entry, and the same step then runs and gives what it should.
TEST(Undo, AfterAFaultAtAnyCallTheStepRunsAgain) {
  const int threads_before = threads_now();
  int64_t faults = 0, undone_bytes = 0;
  for (uint64_t seed = 1; seed <= kCases; ++seed) {
    const Case c = testing::random_case(seed);
    Stack stack(c);
    const Contents entry = random_entry(c.graph, seed);
    const int64_t calls = stack.calls_of_a_step(entry);
    for (int64_t call = 0; call < calls; ++call) {
      SCOPED_TRACE(fmt::format("seed {} call {}", seed, call));
      stack.bytes.set_entry(entry);
      const Contents before = stack.homes();
      const uint64_t generator = stack.bytes.generator;
      const bool throws = call % 2 == 1;
      stack.faulty.fail({.call = call, .late = call % 3 != 0, .throws = throws});
      const Result<StepReport> report = stack.executor->step();
      ASSERT_FALSE(report.ok());
      EXPECT_EQ(report.error().kind, ErrorKind::kDevice);
      EXPECT_NE(report.error().message.find(throws ? "injected exception" : "injected failure"),
                std::string::npos)
          << report.error().message;
      undone_bytes += stack.undo.kept_bytes();
      ASSERT_TRUE(stack.undo.undo().ok());
      EXPECT_EQ(stack.homes(), before);
      ++faults;
      stack.bytes.set_batches(entry);  // handed in anew; homes are not
      stack.bytes.generator = generator;
      stack.faulty.fail({});
      ASSERT_TRUE(stack.executor->step().ok());
      testing::expect_same_as_program_order(c, stack.bytes, entry, generator);
    }
  }
  EXPECT_GT(faults, 100);
  EXPECT_GT(undone_bytes, 0);
  EXPECT_EQ(threads_now(), threads_before);
}

// Without undo, some of those faults leave homes changed: the test above can fail.
TEST(Undo, WithoutItHomesAreChanged) {
  int changed = 0;
  for (uint64_t seed = 1; seed <= kCases; ++seed) {
    const Case c = testing::random_case(seed);
    Stack stack(c);
    const Contents entry = random_entry(c.graph, seed);
    const int64_t calls = stack.calls_of_a_step(entry);
    for (int64_t call = 0; call < calls; ++call) {
      stack.bytes.set_entry(entry);
      const Contents before = stack.homes();
      stack.faulty.fail({.call = call, .late = true});
      ASSERT_FALSE(stack.executor->step().ok());
      changed += stack.homes() != before ? 1 : 0;
    }
  }
  EXPECT_GT(changed, 10);
}

// The shadow fails at every one of its calls: nothing that it should have kept was written over.
TEST(Undo, AFailingShadowLosesNothing) {
  int64_t faults = 0;
  for (uint64_t seed = 1; seed <= kCases; ++seed) {
    const Case c = testing::random_case(seed);
    const Contents entry = random_entry(c.graph, seed);
    for (int64_t call = 0;; ++call) {
      Stack stack(c, {.fail_call = call});
      stack.bytes.set_entry(entry);
      const Contents before = stack.homes();
      const Result<StepReport> report = stack.executor->step();
      if (report.ok()) break;  // it has no such call
      ++faults;
      EXPECT_NE(report.error().message.find("keeping what the step changes"), std::string::npos)
          << report.error().message;
      ASSERT_TRUE(stack.undo.undo().ok());
      EXPECT_EQ(stack.homes(), before) << "seed " << seed << " call " << call;
    }
  }
  EXPECT_GE(faults, static_cast<int64_t>(kCases));
}

// 8 bytes of w mutated by one op, 16 of v read only: the shadow has 8, and each is kept once.
TEST(Undo, KeepsOnlyWhatIsWrittenOver) {
  Case c;
  const auto storage = [](int64_t bytes, const char* name) {
    return Storage{bytes, Role::kParameter, true, true, true, name};
  };
  c.graph.storages = {storage(8, "w"), storage(16, "v")};
  const Access w{StorageId{0}, {0, 8}}, v{StorageId{1}, {0, 16}};
  for (int i = 0; i < 2; ++i) {
    Op op;
    op.name = "test.update";
    op.reads = {v};
    op.mutates = {w};
    c.graph.ops.push_back(op);
    Instruction run;
    run.op = OpId{i};
    run.operands = {ResidencyId{1}, ResidencyId{0}};
    c.plan.instructions.push_back(run);
  }
  c.workspaces = {0, 0};
  c.plan.budgets = {24, 0, 0};
  c.plan.residencies = {{Tier::kDevice, w, 0}, {Tier::kDevice, v, 8}};
  c.plan.entry = {{ResidencyId{0}, true}, {ResidencyId{1}, true}};
  c.plan.exit = c.plan.entry;
  EXPECT_EQ(undo_bytes(c.graph, c.plan), 8);
  Stack stack(c);
  stack.bytes.set_entry(random_entry(c.graph, 1));
  ASSERT_TRUE(stack.executor->step().ok());
  EXPECT_EQ(stack.undo.kept_bytes(), 8);
  EXPECT_EQ(stack.shadow.calls(), 1);
}

}  // namespace
}  // namespace outsize
