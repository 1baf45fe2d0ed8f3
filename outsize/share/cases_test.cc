// The published tables beside what the rebuilt cases give.
#include "outsize/share/cases.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "outsize/share/jobs_json.h"
#include "outsize/share/simulate.h"

namespace outsize::share {
namespace {

int64_t lengthened(const JobOutcome& job) { return job.response_ns - job.alone_ns; }

struct Ends {
  size_t lowest = 0, highest = 0;
};
Ends ends_of(const Outcome& outcome) {
  Ends ends;
  for (size_t j = 0; j < outcome.jobs.size(); ++j) {
    if (outcome.jobs[j].rank == 0) ends.highest = j;
    if (outcome.jobs[j].rank + 1 == static_cast<int>(outcome.jobs.size())) ends.lowest = j;
  }
  return ends;
}

// How much shorter swap-aware makes the lengthening of its lowest job than `policy` does, in
// percent.
double saved_percent(const Workload& workload, Policy policy) {
  const Outcome aware = simulate(workload, {.policy = Policy::kSwapAware});
  const size_t lowest = ends_of(aware).lowest;
  const Outcome other = simulate(workload, {.policy = policy});
  return 100 - 100 * static_cast<double>(lengthened(aware.jobs[lowest])) /
                   static_cast<double>(lengthened(other.jobs[lowest]));
}

TEST(Cases, AllReadBackAsTheyWereWritten) {
  for (const std::string& name : case_names()) {
    const Workload workload = *named_case(name);
    EXPECT_TRUE(check_workload(workload).ok()) << name;
    const Result<Workload> read = workload_from_json(to_json(workload));
    ASSERT_TRUE(read.ok()) << read.error().message;
    EXPECT_EQ(*read, workload);
  }
  EXPECT_FALSE(named_case("equal").has_value());
}

TEST(Cases, HaveThePublishedSizes) {
  const Workload equal = *named_case("equal-low");
  const Workload polybench = *named_case("polybench");
  int64_t pages = 0;
  for (const Job& job : equal.jobs) pages += job.bytes() / 4096;
  EXPECT_EQ(pages, 20 * 314'573);
  EXPECT_EQ(equal.device.pages(), 18 * (int64_t{1} << 30) / 4096);
  pages = 0;
  for (const Job& job : polybench.jobs) pages += job.bytes() / 4096;
  EXPECT_NEAR(static_cast<double>(pages), 81'976, 0.005 * 81'976);  // whole sub-tasks
}

// Published, against lru and mat: 81/76, 79/73, 80/73, 84/78, 70/60.
TEST(Cases, TheLowestPriorityIsLengthenedFarLess) {
  struct Row {
    const char* name;
    double lru, mat, within;
  };
  for (const Row& row :
       {Row{"equal-low", 81, 76, 3}, Row{"equal-high", 79, 73, 6}, Row{"varied-low", 80, 73, 8},
        Row{"varied-high", 84, 78, 10}, Row{"polybench", 70, 60, 33}}) {
    const Workload workload = *named_case(row.name);
    EXPECT_NEAR(saved_percent(workload, Policy::kLru), row.lru, row.within) << row.name;
    EXPECT_NEAR(saved_percent(workload, Policy::kMat), row.mat, row.within) << row.name;
    EXPECT_GE(saved_percent(workload, Policy::kLru), 60) << row.name;
    EXPECT_GE(saved_percent(workload, Policy::kMat), 60) << row.name;
    const Outcome aware = simulate(workload, {.policy = Policy::kSwapAware});
    const JobOutcome& highest = aware.jobs[ends_of(aware).highest];
    EXPECT_LE(highest.slowdown, 1.001) << row.name;
  }
}

TEST(Cases, EachRuleOfSwapAwareMatters) {
  const Workload workload = *named_case("equal-low");
  const Outcome all = simulate(workload, {.policy = Policy::kSwapAware});
  const Ends ends = ends_of(all);
  const auto without = [&](bool Rules::* rule) {
    Options options{.policy = Policy::kSwapAware};
    options.rules.*rule = false;
    return simulate(workload, options);
  };
  // By arrival, the highest waits behind the swap of the lowest.
  EXPECT_GT(lengthened(without(&Rules::priority).jobs[ends.highest]), int64_t{1'000'000'000});
  // Brought in instead of used in swap, the pages of the lowest drive out those of the highest.
  const Workload high = *named_case("equal-high");
  const Outcome in_swap = simulate(high, {.policy = Policy::kSwapAware});
  Options brought_in{.policy = Policy::kSwapAware};
  brought_in.rules.use_in_swap = false;
  const Outcome thrashing = simulate(high, brought_in);
  EXPECT_EQ(in_swap.jobs[ends.highest].swap_share, 0);
  EXPECT_GT(thrashing.jobs[ends.highest].swap_share, 0.1);
  EXPECT_GT(thrashing.jobs[ends.highest].slowdown, 1.1);
  // Taken from the highest, the share makes that one slow.
  const Outcome reversed = without(&Rules::lowest_first);
  EXPECT_EQ(reversed.jobs[ends.highest].swap_percent, 100);
  EXPECT_GT(reversed.jobs[ends.highest].slowdown, 10);
  // Weights for each sub-task: the task of 11 is the lowest, else another would be.
  const Workload varied = *named_case("varied-high");
  EXPECT_EQ(ends_of(simulate(varied, {.policy = Policy::kSwapAware})).lowest, 3u);
  Options whole{.policy = Policy::kSwapAware};
  whole.rules.for_each_subtask = false;
  const Outcome undivided = simulate(varied, whole);
  EXPECT_NEAR(undivided.jobs[3].weight,
              11 * simulate(varied, {.policy = Policy::kSwapAware}).jobs[3].weight, 1e-9);
}

TEST(Cases, TheBrokerWaitsRatherThanThrash) {
  for (const char* name : {"equal-low", "varied-low"}) {
    const Workload workload = *named_case(name);
    const int64_t broker = simulate(workload, {.policy = Policy::kBroker}).makespan_ns;
    for (const Policy policy : {Policy::kLru, Policy::kMat, Policy::kSwapAware})
      EXPECT_LT(broker * 5, simulate(workload, {.policy = policy}).makespan_ns) << name;
  }
}

// Makespans in seconds of two instances, as published.
struct Column {
  const char* name;
  std::map<int, double> by_quantum;
  double unscheduled;
};
const Column kColumns[] = {
    {"nvshare-small-50",
     {{1000, 2053},
      {300, 2010},
      {100, 2010},
      {60, 2020},
      {30, 2017},
      {15, 1983},
      {10, 2009},
      {5, 1982}},
     1772},
    {"nvshare-small-90",
     {{1000, 1361},
      {300, 1354},
      {100, 1351},
      {60, 1348},
      {30, 1366},
      {15, 1341},
      {10, 1360},
      {5, 1334}},
     1128},
    {"nvshare-big-50",
     {{1000, 2043},
      {300, 2085},
      {100, 2100},
      {60, 2122},
      {30, 2170},
      {15, 2305},
      {10, 2465},
      {5, 3496}},
     11757},
    {"nvshare-big-90",
     {{1000, 1380},
      {300, 1418},
      {100, 1435},
      {60, 1468},
      {30, 1521},
      {15, 1668},
      {10, 1821},
      {5, 2788}},
     11434},
};

TEST(Cases, TurnsTakeAsLongAsPublished) {
  for (const Column& column : kColumns) {
    const Workload workload = *named_case(column.name);
    for (const auto& [quantum_s, published] : column.by_quantum) {
      const Outcome outcome = simulate(
          workload, {.policy = Policy::kRoundRobin, .quantum_ns = quantum_s * 1'000'000'000ll});
      const double within = quantum_s >= 15 ? 0.10 : 0.20;
      EXPECT_NEAR(static_cast<double>(outcome.makespan_ns) * 1e-9, published, within * published)
          << column.name << " at " << quantum_s;
    }
    const Outcome unscheduled = simulate(workload, {.policy = Policy::kLru});
    EXPECT_NEAR(static_cast<double>(unscheduled.makespan_ns) * 1e-9, column.unscheduled,
                0.10 * column.unscheduled)
        << column.name;
  }
}

TEST(Jobs, WrongFilesAreRefusedByPath) {
  const auto refusal = [](const char* text) {
    const Result<Workload> read = workload_from_json(text);
    return read.ok() ? std::string("accepted") : read.error().message;
  };
  const std::string head =
      R"({"format": "outsize-jobs", "version": 1, "device": {"memory_bytes": 8192,
    "swap_in_bytes_per_s": 1, "swap_out_bytes_per_s": 1}, "jobs": [)";
  const auto with_job = [&](const char* job) { return refusal((head + job + "]}").c_str()); };
  EXPECT_EQ(with_job(R"({"name": "a", "subtask_bytes": 4096, "compute_ns": [5]})"), "accepted");
  EXPECT_THAT(with_job(R"({"name": "a", "subtask_bytes": 8193, "compute_ns": [5]})"),
              testing::HasSubstr("job 'a': each sub-task holds 8.00 KiB at once"));
  EXPECT_THAT(with_job(R"({"name": "a", "subtask_bytes": 1, "compute_ns": [5, 6]})"),
              testing::HasSubstr("one for each of 1 sub-tasks, had 2"));
  EXPECT_THAT(with_job(R"({"name": "a", "subtask_bytes": 1, "compute": [5]})"),
              testing::HasSubstr("compute_ns"));
  EXPECT_THAT(with_job(R"({"name": "a", "subtask_bytes": 1, "compute_ns": [-5]})"),
              testing::HasSubstr("jobs[0].compute_ns[0]"));
  EXPECT_THAT(refusal((head + "]}").c_str()), testing::HasSubstr("no jobs"));
}

}  // namespace
}  // namespace outsize::share
