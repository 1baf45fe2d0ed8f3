#include "outsize/share/simulate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "outsize/base/random.h"

namespace outsize::share {
namespace {

// Pages of 1 byte; 1 ns a byte in memory, 10 from swap, 20 to swap.
Workload unit_workload(int64_t memory, std::vector<Job> jobs) {
  Workload workload;
  workload.device.memory_bytes = memory;
  workload.device.page_bytes = 1;
  workload.device.memory_bytes_per_s = 1'000'000'000;
  workload.device.swap_in_bytes_per_s = 100'000'000;
  workload.device.swap_out_bytes_per_s = 50'000'000;
  workload.jobs = std::move(jobs);
  return workload;
}

Job job_of(std::string name, int64_t bytes, int64_t compute_ns) {
  Job job;
  job.name = std::move(name);
  job.subtask_bytes = bytes;
  job.compute_ns = {compute_ns};
  return job;
}

std::vector<int64_t> responses(const Outcome& outcome) {
  std::vector<int64_t> times;
  for (const JobOutcome& job : outcome.jobs) times.push_back(job.response_ns);
  return times;
}

// Two jobs of 6 bytes in 10 bytes of memory: read 6, compute 100, write 6 = 112 alone.
Workload two_jobs() { return unit_workload(10, {job_of("a", 6, 100), job_of("b", 6, 100)}); }

TEST(Simulate, AJobAlone) {
  Job job = job_of("a", 4, 100);
  job.rounds = 2;
  job.host_ns = 50;
  job.host_first_ns = 7;
  // 7 + (4 + 100 + 4) + 50 + (4 + 100 + 4)
  const Workload workload = unit_workload(10, {job});
  for (const auto& [policy, name] : kPolicyNames.entries)
    EXPECT_EQ(simulate(workload, {.policy = policy}).makespan_ns, 273) << name;
}

// b's allocation puts 2 of a's bytes out: 2 * 20 = 40. Each read and write then lacks 2, puts 2 of
// the other's out and takes 2 in, 40 + 20 + 6 = 66: a reads until 106, b until 172, a computes
// until 206 and writes until 272. It frees its memory: b computes until 272, takes 2 in and
// writes, 26.
TEST(Simulate, LruThrashes) {
  const Outcome outcome = simulate(two_jobs(), {.policy = Policy::kLru});
  EXPECT_THAT(responses(outcome), testing::ElementsAre(272, 298));
  EXPECT_EQ(outcome.swapped_out_bytes, 4 * 2);
  EXPECT_EQ(outcome.swapped_in_bytes, 4 * 2);
  EXPECT_EQ(outcome.peak_pages, 10);
  EXPECT_DOUBLE_EQ(outcome.jobs[0].slowdown, 272.0 / 112);
  EXPECT_DOUBLE_EQ(outcome.jobs[0].swap_share, 4.0 / 12);
}

// b's allocation is short of memory: b is closed. a takes its 2 bytes back until 106 (66) and is
// done at 106 + 100 + 6; then b fits, takes 2 in: 26 + 100 + 6 from 212 on.
TEST(Simulate, MatClosesTheJobThatIsShort) {
  const Outcome outcome = simulate(two_jobs(), {.policy = Policy::kMat});
  EXPECT_THAT(responses(outcome), testing::ElementsAre(212, 344));
  Options open{.policy = Policy::kMat};
  open.rules.close = false;
  EXPECT_EQ(responses(simulate(two_jobs(), open)), responses(simulate(two_jobs(), {})));
}

// Under lru b suffers more (298), so it goes first, as if alone. 2 bytes are too many: 34 % of a's
// 6, 3 bytes, stay in swap. a reads 3 + 3 * 10 behind b's 6, computes until 139, writes 3 + 3 * 20.
TEST(Simulate, SwapAwareLeavesTheHighestAlone) {
  const Outcome outcome = simulate(two_jobs(), {.policy = Policy::kSwapAware});
  EXPECT_THAT(responses(outcome), testing::ElementsAre(202, 112));
  EXPECT_EQ(outcome.jobs[0].swap_percent, 34);
  EXPECT_EQ(outcome.jobs[0].rank, 1);
  EXPECT_DOUBLE_EQ(outcome.jobs[0].weight, (272.0 - 112) / 112);
  EXPECT_DOUBLE_EQ(outcome.jobs[0].swap_share, 0.5);
  EXPECT_EQ(outcome.jobs[1].swap_percent, 0);
}

// a has all 10 bytes when b arrives. b reads and writes at once whatever a waits for.
TEST(Simulate, AHigherPriorityInterrupts) {
  Job first = job_of("a", 10, 0);
  Job second = job_of("b", 6, 0);
  second.arrives_ns = 10;
  second.subtasks = 1;
  const Workload workload = unit_workload(10, {first, second});
  const Outcome outcome = simulate(workload, {.policy = Policy::kSwapAware});
  ASSERT_EQ(outcome.jobs[1].rank, 0);
  EXPECT_EQ(outcome.jobs[1].response_ns, 12);  // as alone: 6 + 6
  Options in_order{.policy = Policy::kSwapAware};
  in_order.rules.priority = false;
  EXPECT_GT(simulate(workload, in_order).jobs[1].response_ns, 12);
}

TEST(Simulate, FifoStartsWhatFits) {
  EXPECT_THAT(responses(simulate(two_jobs(), {.policy = Policy::kFifo})),
              testing::ElementsAre(112, 224));
  // 3 + 6 fit: only the memory queue is shared, b reads from 3 to 9.
  const Workload both = unit_workload(10, {job_of("a", 3, 100), job_of("b", 6, 100)});
  EXPECT_THAT(responses(simulate(both, {.policy = Policy::kFifo})), testing::ElementsAre(106, 115));
}

// Bursts of 60 in slices of 10, a quantum of 25. a runs until its slice ends at 30; b's allocation
// puts 2 bytes out until 70, past its quantum's end at 55, and so goes on.
TEST(Simulate, RoundRobinTakesTurns) {
  Workload workload = two_jobs();
  workload.device.memory_bytes_per_s = 0;
  workload.device.compute_units = 1;
  workload.device.slice_ns = 10;
  for (Job& job : workload.jobs) {
    job.compute_ns = {60};
    job.writes = false;
  }
  // Fits: 30 each, in turn.
  workload.device.memory_bytes = 12;
  const Outcome fits = simulate(workload, {.policy = Policy::kRoundRobin, .quantum_ns = 25});
  EXPECT_THAT(responses(fits), testing::ElementsAre(90, 120));
  EXPECT_EQ(fits.turns, 4);
  // 10 bytes: a 0-30; b's allocation, 40; a takes 2 back, 40 + 20, and a slice: 70-140; b the same
  // 140-210; every later turn is one such slice of 70 until a is done (2 more), and b then has
  // room.
  workload.device.memory_bytes = 10;
  const Outcome turns = simulate(workload, {.policy = Policy::kRoundRobin, .quantum_ns = 25});
  EXPECT_EQ(turns.jobs[0].response_ns, 420);
  EXPECT_EQ(turns.swapped_out_bytes, 2 * 6);
}

TEST(Simulate, AnIdleHolderGivesTheDeviceBack) {
  Workload workload = unit_workload(20, {job_of("a", 6, 10), job_of("b", 6, 10)});
  workload.device.memory_bytes_per_s = 0;
  workload.device.compute_units = 1;
  workload.device.idle_release_ns = 5;
  for (Job& job : workload.jobs) {
    job.rounds = 2;
    job.host_ns = 100;
    job.writes = false;
  }
  const Outcome outcome = simulate(workload, {.policy = Policy::kRoundRobin, .quantum_ns = 1000});
  // a 0-10, idle, gives up at 15; b 15-25, then nobody waits until a's second burst at 110.
  EXPECT_THAT(responses(outcome), testing::ElementsAre(120, 135));
  Options held{.policy = Policy::kRoundRobin, .quantum_ns = 1000};
  held.rules.early_release = false;
  EXPECT_THAT(responses(simulate(workload, held)), testing::ElementsAre(120, 240));
}

TEST(Simulate, TheBrokerTakesPointsOfTheCurves) {
  Workload workload = two_jobs();
  workload.device.memory_bytes_per_s = 0;
  for (Job& job : workload.jobs) {
    job.subtask_bytes = 8;
    job.writes = false;
    job.rounds = 10;
    job.curve = {{.budget_bytes = 5, .burst_ns = 110, .moved_bytes = 2},
                 {.budget_bytes = 8, .burst_ns = 100, .moved_bytes = 0}};
  }
  const Outcome outcome = simulate(workload, {.policy = Policy::kBroker});
  EXPECT_THAT(responses(outcome), testing::ElementsAre(1100, 1100));
  EXPECT_EQ(outcome.jobs[0].budget_bytes, 5);
  // 6 bytes at 20 ns take the slower direction 120 of 130: two such jobs want the link twice.
  for (Job& job : workload.jobs)
    job.curve[0] = {.budget_bytes = 5, .burst_ns = 130, .moved_bytes = 6};
  const Outcome limited = simulate(workload, {.policy = Policy::kBroker});
  EXPECT_THAT(responses(limited), testing::ElementsAre(1000, 2000));
  Options twice{.policy = Policy::kBroker};
  twice.rules.link_limit = false;
  EXPECT_THAT(responses(simulate(workload, twice)), testing::ElementsAre(1300, 1300));
}

Workload random_workload(Random& random) {
  std::vector<Job> jobs;
  const int64_t memory = random.between(8, 40);
  for (int64_t j = random.between(1, 5); j > 0; --j) {
    Job job = job_of("job" + std::to_string(j), random.between(1, memory + 1), 0);
    job.subtasks = random.between(1, 5);
    job.compute_ns.clear();
    for (int64_t k = 0; k < job.subtasks; ++k) job.compute_ns.push_back(random.below(200));
    job.rounds = random.between(1, 4);
    job.host_ns = random.below(100);
    job.host_first_ns = random.chance(0.3) ? random.below(500) : 0;
    job.arrives_ns = random.below(300);
    job.writes = random.chance(0.5);
    job.compute_units = random.below(3);
    jobs.push_back(job);
  }
  Workload workload = unit_workload(memory, std::move(jobs));
  workload.device.compute_units = random.below(4);
  workload.device.slice_ns = random.chance(0.5) ? random.between(5, 60) : 0;
  workload.device.idle_release_ns = random.below(30);
  return workload;
}

TEST(Simulate, EveryJobEndsInsideTheMemoryTheSameWayTwice) {
  Random random(5);
  for (int round = 0; round < 300; ++round) {
    const Workload workload = random_workload(random);
    ASSERT_TRUE(check_workload(workload).ok()) << check_workload(workload).error().message;
    for (const auto& [policy, name] : kPolicyNames.entries) {
      const Options options{.policy = policy, .quantum_ns = random.between(1, 200)};
      const Outcome outcome = simulate(workload, options);
      const Outcome again = simulate(workload, options);
      EXPECT_EQ(responses(outcome), responses(again)) << name;
      EXPECT_LE(outcome.peak_pages, workload.device.pages()) << name;
      for (size_t j = 0; j < workload.jobs.size(); ++j) {
        const Job& job = workload.jobs[j];
        int64_t longest = 0;
        for (int64_t k = 0; k < job.subtasks; ++k) longest = std::max(longest, job.burst_ns(k));
        EXPECT_GE(outcome.jobs[j].response_ns,
                  job.host_first_ns + job.rounds * longest + (job.rounds - 1) * job.host_ns)
            << name;
      }
      // What swap-aware leaves in memory fits: nothing is ever put out to make room.
      if (policy != Policy::kSwapAware) continue;
      for (const JobOutcome& job : outcome.jobs) {
        if (job.swap_percent == 0) {
          EXPECT_EQ(job.swap_share, 0);
        }
      }
    }
  }
}

TEST(Simulate, WhereAllFitsNobodySwaps) {
  Random random(6);
  for (int round = 0; round < 100; ++round) {
    Workload workload = random_workload(random);
    workload.device.memory_bytes = 1'000;
    const Outcome lru = simulate(workload, {.policy = Policy::kLru});
    EXPECT_EQ(lru.swapped_in_bytes + lru.swapped_out_bytes, 0);
    for (const Policy policy : {Policy::kMat, Policy::kFifo, Policy::kBroker})
      EXPECT_EQ(responses(simulate(workload, {.policy = policy})), responses(lru))
          << kPolicyNames.name(policy);
  }
}

}  // namespace
}  // namespace outsize::share
