#include "outsize/share/policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "outsize/base/random.h"

namespace outsize::share {
namespace {

using testing::ElementsAre;

TEST(Weights, LengtheningOverTheTimeAloneForEachSubtask) {
  // (30 - 10) / 10 / 4 and (15 - 10) / 10 / 1
  const std::vector<Contention> jobs{{10, 30, 4}, {10, 15, 1}};
  EXPECT_THAT(contention_weights(jobs), ElementsAre(0.5, 0.5));
  EXPECT_THAT(contention_weights(jobs, false), ElementsAre(2.0, 0.5));
}

TEST(Ranks, LargestWeightFirstThenTheOneNamedFirst) {
  const std::vector<double> weights{0.5, 2.0, 0.5, 1.0};
  EXPECT_THAT(priority_ranks(weights), ElementsAre(2, 0, 3, 1));
}

TEST(SwapPercents, FromTheLowestPriorityUp) {
  const std::vector<int> ranks{0, 1};
  EXPECT_THAT(swap_percents(std::vector<int64_t>{6, 6}, ranks, 12), ElementsAre(0, 0));
  EXPECT_THAT(swap_percents(std::vector<int64_t>{6, 6}, ranks, 9), ElementsAre(0, 50));
  // 7 are wanted: all 6 of the lower, then 1 of 6: 16.7 %, up to a whole percent.
  EXPECT_THAT(swap_percents(std::vector<int64_t>{6, 6}, ranks, 5), ElementsAre(17, 100));
}

// The thesis's own sets: 20 * 314,573 - 4,718,592 = 1,572,868 pages are too many; the lowest task
// has 1,572,865 and gives all, the next ceil(3 / 1,572,865). And 32 * 197,000 - 4,718,592 =
// 1,585,408 of the 2,167,000 of the task with 11 sub-tasks: 73.2 %.
TEST(SwapPercents, OfTheThesisSets) {
  const std::vector<int64_t> equal(4, 5 * 314'573);
  EXPECT_THAT(swap_percents(equal, std::vector<int>{3, 2, 1, 0}, 4'718'592),
              ElementsAre(100, 1, 0, 0));
  const std::vector<int64_t> varied{5 * 197'000, 7 * 197'000, 9 * 197'000, 11 * 197'000};
  EXPECT_THAT(swap_percents(varied, std::vector<int>{0, 1, 2, 3}, 4'718'592),
              ElementsAre(0, 0, 0, 74));
}

TEST(SwapPercents, WhatIsLeftAlwaysFits) {
  Random random(3);
  for (int round = 0; round < 2000; ++round) {
    std::vector<int64_t> pages;
    std::vector<double> weights;
    for (int64_t j = random.between(1, 6); j > 0; --j) {
      pages.push_back(random.between(1, 2000));
      weights.push_back(static_cast<double>(random.below(4)));
    }
    const std::vector<int> ranks = priority_ranks(weights);
    const int64_t memory = random.between(1, 6000);
    const std::vector<int> percents = swap_percents(pages, ranks, memory);
    int64_t left = 0;
    for (size_t j = 0; j < pages.size(); ++j) {
      left += pages[j] - (pages[j] * percents[j] + 99) / 100;
      // A job gives only when every lower one has given all.
      for (size_t k = 0; k < pages.size(); ++k) {
        if (percents[j] > 0 && ranks[k] > ranks[j]) {
          EXPECT_EQ(percents[k], 100);
        }
      }
    }
    EXPECT_LE(left, memory);
  }
}

TEST(NextCommand, ByArrivalByRankAndPastAClosedJob) {
  const std::vector<Queued> commands{{0, 5}, {1, 5}, {2, 0}};
  const std::vector<int> ranks{2, 0, 1};
  QueueView queue{commands, 4, ranks, std::nullopt, true};
  EXPECT_EQ(next_command(Policy::kLru, queue), 0u);
  EXPECT_EQ(next_command(Policy::kSwapAware, queue), 1u);
  EXPECT_EQ(next_command(Policy::kMat, queue), 0u);
  queue.closed = 0;
  EXPECT_EQ(next_command(Policy::kMat, queue), 1u);
  queue.free_pages = 5;  // what it lacks fits: it is open again
  EXPECT_EQ(next_command(Policy::kMat, queue), 0u);
  queue.free_pages = 4;
  queue.others_unfinished = false;  // nobody to yield to
  EXPECT_EQ(next_command(Policy::kMat, queue), 0u);
  const std::vector<Queued> closed_alone{{0, 5}};
  queue = {closed_alone, 4, ranks, 0, true};
  EXPECT_EQ(next_command(Policy::kMat, queue), std::nullopt);
}

TEST(Turns, EndWithTheQuantumOrWhenIdle) {
  TurnView turn{.now_ns = 10,
                .granted_ns = 5,
                .quantum_ns = 30,
                .idle_since_ns = {},
                .idle_release_ns = 4,
                .others_wait = false};
  EXPECT_EQ(turn_ends_ns(turn), std::nullopt);
  turn.others_wait = true;
  EXPECT_EQ(turn_ends_ns(turn), 35);
  turn.idle_since_ns = 8;
  EXPECT_EQ(turn_ends_ns(turn), 12);
  turn.idle_release_ns = 0;
  EXPECT_EQ(turn_ends_ns(turn), 35);
  turn.idle_since_ns.reset();
  turn.now_ns = 35;
  EXPECT_EQ(turn_ends_ns(turn), 35);
  turn.now_ns = 36;  // nobody waited at 35: a second quantum runs
  EXPECT_EQ(turn_ends_ns(turn), 65);
}

TEST(Admitted, InOrderWhileTheyFit) {
  EXPECT_EQ(admitted(std::vector<int64_t>{6, 3, 1}, 0, 9), 2u);
  EXPECT_EQ(admitted(std::vector<int64_t>{6, 3, 1}, 4, 9), 0u);  // 1 would fit, and waits its turn
  EXPECT_EQ(admitted(std::vector<int64_t>{12}, 0, 9), 1u);
  EXPECT_EQ(admitted(std::vector<int64_t>{12}, 1, 9), 0u);
}

TEST(ChooseOffers, TheLinkIsPromisedOnce) {
  // At 4 pages either job takes half as long again and the link for 60 % of that.
  const std::vector<Offer> offers{{.pages = 4, .time_ns = 150, .link_ppm = 600'000},
                                  {.pages = 6, .time_ns = 120, .link_ppm = 300'000},
                                  {.pages = 10, .time_ns = 100, .link_ppm = 0}};
  const std::vector<std::vector<Offer>> two{offers, offers};
  EXPECT_THAT(choose_offers(two, 20, 1'000'000)->offers, ElementsAre(2, 2));
  EXPECT_THAT(choose_offers(two, 12, 1'000'000)->offers, ElementsAre(1, 1));  // 0.2 + 0.2
  EXPECT_DOUBLE_EQ(choose_offers(two, 10, 1'000'000)->loss, 0.7);
  EXPECT_EQ(choose_offers(two, 9, 1'000'000), std::nullopt);
  EXPECT_EQ(choose_offers(two, 8, 1'000'000), std::nullopt);  // memory would do, the link would not
  EXPECT_THAT(choose_offers(two, 8, 1'200'000)->offers, ElementsAre(0, 0));
}

double loss_of(const std::vector<std::vector<Offer>>& jobs, const std::vector<size_t>& chosen) {
  double loss = 0;
  for (size_t j = 0; j < jobs.size(); ++j) {
    int64_t best = jobs[j][0].time_ns;
    for (const Offer& offer : jobs[j]) best = std::min(best, offer.time_ns);
    loss += static_cast<double>(jobs[j][chosen[j]].time_ns - best) / static_cast<double>(best);
  }
  return loss;
}

TEST(ChooseOffers, EqualsTryingAll) {
  Random random(11);
  int found = 0;
  for (int round = 0; round < 500; ++round) {
    std::vector<std::vector<Offer>> jobs(static_cast<size_t>(random.between(1, 5)));
    for (auto& offers : jobs)
      for (int64_t o = random.between(1, 4); o > 0; --o)
        offers.push_back({random.between(0, 10), random.between(50, 90), random.below(700'000)});
    const int64_t memory = random.between(1, 25);
    std::optional<double> least;
    std::vector<size_t> chosen(jobs.size(), 0);
    while (true) {
      int64_t pages = 0, link = 0;
      for (size_t j = 0; j < jobs.size(); ++j) {
        pages += jobs[j][chosen[j]].pages;
        link += jobs[j][chosen[j]].link_ppm;
      }
      if (pages <= memory && link <= 1'000'000)
        least = std::min(least.value_or(1e9), loss_of(jobs, chosen));
      size_t at = 0;
      while (at < jobs.size() && ++chosen[at] == jobs[at].size()) chosen[at++] = 0;
      if (at == jobs.size()) break;
    }
    const auto choice = choose_offers(jobs, memory, 1'000'000);
    ASSERT_EQ(choice.has_value(), least.has_value());
    if (!choice) continue;
    ++found;
    EXPECT_NEAR(choice->loss, *least, 1e-12);
    EXPECT_NEAR(loss_of(jobs, choice->offers), *least, 1e-12);
  }
  EXPECT_GT(found, 100);
}

TEST(StartJobs, WaitsWhereThatLosesLess) {
  // Side by side the second takes 900 instead of 100; after the first it waits 100.
  const std::vector<Offer> offers{{.pages = 2, .time_ns = 900}, {.pages = 8, .time_ns = 100}};
  const std::vector<std::vector<Offer>> two{offers, offers};
  const Choice choice = start_jobs(two, {}, 10, 1'000'000);
  EXPECT_THAT(choice.offers, ElementsAre(1));
  EXPECT_DOUBLE_EQ(choice.loss, 1.0);
  // Beside a job that ends in 5000 it starts with 2 pages, beside one that ends in 500 it waits.
  const std::vector<std::vector<Offer>> one{offers};
  EXPECT_THAT(start_jobs(one, std::vector<Running>{{8, 0, 5000}}, 10, 1'000'000).offers,
              ElementsAre(0));
  EXPECT_TRUE(start_jobs(one, std::vector<Running>{{8, 0, 500}}, 10, 1'000'000).offers.empty());
}

}  // namespace
}  // namespace outsize::share
