#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>

#include "outsize/base/files.h"
#include "outsize/base/json.h"
#include "outsize/cli/command_line.h"
#include "outsize/graph/generate.h"
#include "outsize/profile/generate_costs.h"
#include "outsize/profile/graph_file.h"

namespace outsize::cli {
namespace {

class Tune : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() /
              ("outsize_tune_" + std::to_string(::testing::UnitTest::GetInstance()->random_seed()) +
               testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(folder_);
    for (int64_t batch : {2, 4, 8}) {
      GraphFile file;
      file.graph =
          transformer_graph({.layers = 2, .batch = batch, .hidden = 64, .vocabulary = 100});
      file.profile = byte_costs(file.graph, 2);
      peak_ = liveness_of(file.graph, {}).peak_bytes;
      graphs_.push_back((folder_ / (std::to_string(batch) + ".json")).string());
      ASSERT_TRUE(write_graph_file(graphs_.back(), file).ok());
    }
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  Printed tune(std::vector<std::string> more) const {
    std::vector<std::string> words{"tune", "--machine", "unit", "--json", "--work", "4"};
    words.insert(words.end(), more.begin(), more.end());
    return run_command_line(words);
  }
  std::vector<std::string> all(int64_t device) const {
    return {graphs_[0],
            graphs_[1],
            graphs_[2],
            "--batches",
            "2,4,8",
            "--device",
            std::to_string(device),
            "--host",
            "1GiB"};
  }

  std::filesystem::path folder_;
  std::vector<std::string> graphs_;
  int64_t peak_ = 0;  // at the largest batch
};

TEST_F(Tune, NamesTheBatch) {
  const Printed printed = tune(all(peak_ * 3 / 4));
  ASSERT_EQ(printed.code, 0) << printed.err;
  for (const char* field : {"\"peak_samples_per_s\": ", "\"batch\": ", "\"swap_bytes\": ",
                            "\"recompute_bytes\": ", "\"achieved_samples_per_s\": ", "\"rows\": "})
    EXPECT_NE(printed.out.find(field), std::string::npos) << field;
  EXPECT_EQ(tune(all(peak_ * 3 / 4)).out.substr(0, 200), printed.out.substr(0, 200));
}

TEST_F(Tune, SaysTheLeastBudget) {
  const Printed printed = tune(all(1000));
  EXPECT_EQ(printed.code, 1);
  EXPECT_NE(printed.out.find("least_budget"), std::string::npos);
}

TEST_F(Tune, FollowsACurve) {
  const std::string curve = (folder_ / "curve.csv").string();
  ASSERT_TRUE(
      write_file_atomically(curve,
                            "batch,forward_ns,backward_ns,peak_bytes,least_bytes\n1,100,200,20,10\n"
                            "3,120,240,40,10\n4,200,400,50,10\n")
          .ok());
  const auto follow = [&](std::vector<std::string> more) {
    std::vector<std::string> words{"tune",    "--machine", "unit",     "--json",
                                   "--curve", curve,       "--device", "1000"};
    words.insert(words.end(), more.begin(), more.end());
    return run_command_line(words);
  };
  const Printed printed = follow({});
  ASSERT_EQ(printed.code, 0) << printed.err;
  EXPECT_NE(printed.out.find("\"peak_batch\": 3"), std::string::npos) << printed.out;
  for (const char* allow : {"swap", "recompute", "swap,recompute", "none"})
    EXPECT_EQ(follow({"--allow", allow}).code, 0) << allow;
  // What only a plan would obey.
  for (const auto& [option, value] :
       std::vector<std::pair<std::string, std::string>>{{"--planner", "atp"},
                                                        {"--planner", ""},
                                                        {"--disk", "1GiB"},
                                                        {"--seconds", "1"},
                                                        {"--work", "4"},
                                                        {"--seed", "1"},
                                                        {"--threads", "1"},
                                                        {"--batches", "1,3,4"},
                                                        {"--allow", "swap,reorder"},
                                                        {"--allow", "split"}}) {
    const Printed refused = follow({option, value});
    EXPECT_EQ(refused.code, 2) << option << ' ' << value;
    EXPECT_NE(refused.out.find(option), std::string::npos) << refused.out;
  }
}

TEST_F(Tune, RefusesBadUse) {
  EXPECT_EQ(tune({"--device", "1000"}).code, 2);              // nothing to tune
  EXPECT_EQ(tune({graphs_[0], "--device", "1GiB"}).code, 2);  // no batch to read
  EXPECT_EQ(tune({graphs_[0], "--batches", "1,2", "--device", "1GiB"}).code, 2);
  EXPECT_EQ(tune({graphs_[0], "--batches", "0", "--device", "1GiB"}).code, 2);
  EXPECT_EQ(tune({graphs_[0], "--batches", "2", "--device", "50%"}).code, 2);
  const Printed planner =
      tune({graphs_[0], "--batches", "2", "--device", "1GiB", "--planner", "apt"});
  EXPECT_EQ(planner.code, 2);
  EXPECT_NE((planner.out + planner.err).find("did you mean 'atp'"), std::string::npos);
}

}  // namespace
}  // namespace outsize::cli
