#include "outsize/profile/links.h"

#include <gtest/gtest.h>

namespace outsize {
namespace {

// 100 operations/ns reached, copies of 10 bytes/ns, halved beside ops and halving them.
Machine here() {
  Machine machine = unit_machine();
  machine.name = "here";
  machine.flops_per_s["float32"] = 100e9;
  machine.out = machine.in = {5, 10'000'000'000};
  machine.sync_bytes_per_s = 20'000'000'000;
  machine.compute_permille_beside_copy = 500;
  machine.copy_permille_beside_compute = 500;
  return machine;
}

// 10,000 operations/ns reached: a hundred times as many.
Machine card() {
  Machine machine;
  machine.name = "card";
  machine.flops_per_s["float32"] = 20e12;
  machine.achieved_fraction = 0.5;
  machine.out = {9'000, 12'000'000'000};
  machine.in = {8'000, 11'000'000'000};
  machine.both_bytes_per_s = 20'000'000'000;
  return machine;
}

TEST(WithLinksOf, KeepsComputeOverLink) {
  const Result<Machine> made = with_links_of(here(), card());
  ASSERT_TRUE(made.ok()) << made.error().message;
  EXPECT_EQ(made->name, "here with the links of card");
  EXPECT_EQ(made->out, (Link{900'000, 120'000'000}));
  EXPECT_EQ(made->in, (Link{800'000, 110'000'000}));
  EXPECT_EQ(made->both_bytes_per_s, 200'000'000);
  EXPECT_EQ(made->sync_bytes_per_s, 0);
  EXPECT_EQ(made->write, here().write);
  EXPECT_EQ(made->flops_per_s, here().flops_per_s);
}

// 200 MB/s of the 10 GB/s that halve an op take a fiftieth of that half.
TEST(WithLinksOf, ASlowerCopySlowsOpsLess) {
  const Result<Machine> made = with_links_of(here(), card());
  ASSERT_TRUE(made.ok()) << made.error().message;
  EXPECT_EQ(made->compute_permille_beside_copy, 990);
  EXPECT_EQ(made->copy_permille_beside_compute, 1000);
}

TEST(WithLinksOf, DirectionsWithLinksOfTheirOwnShareNothing) {
  Machine apart = card();
  apart.both_bytes_per_s = 0;
  const Result<Machine> made = with_links_of(here(), apart);
  ASSERT_TRUE(made.ok()) << made.error().message;
  EXPECT_EQ(made->both_bytes_per_s, 0);
  EXPECT_EQ(made->compute_permille_beside_copy, 1000 - 12);  // 230 MB/s: 11.5 thousandths
}

TEST(WithLinksOf, RefusesLinksFasterThanThisMachineCopiesBesideItsOps) {
  Machine fast = card();
  fast.out.bytes_per_s = fast.in.bytes_per_s = 300'000'000'000;  // 3 GB/s here each way
  fast.both_bytes_per_s = 500'000'000'000;                       // 5 GB/s, what there is
  EXPECT_TRUE(with_links_of(here(), fast).ok());
  fast.both_bytes_per_s = 510'000'000'000;
  const Result<Machine> refused = with_links_of(here(), fast);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("slower links"), std::string::npos);
}

TEST(WithLinksOf, RefusesAMachineWithoutALinkOrARate) {
  Machine unified = card();
  unified.out = unified.in = {};
  EXPECT_NE(with_links_of(here(), unified).error().message.find("card has no link"),
            std::string::npos);
  Machine silent = here();
  silent.flops_per_s.clear();
  EXPECT_NE(with_links_of(silent, card()).error().message.find("here doesn't say its float32"),
            std::string::npos);
}

}  // namespace
}  // namespace outsize
