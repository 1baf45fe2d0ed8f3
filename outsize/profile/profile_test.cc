#include "outsize/profile/profile.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "outsize/base/files.h"
#include "outsize/base/text_edits.h"
#include "outsize/graph/generate.h"
#include "outsize/profile/generate_costs.h"
#include "outsize/profile/graph_file.h"
#include "outsize/profile/profile_json.h"

namespace outsize {
namespace {

// The example of docs/formats/profile.md.
constexpr std::string_view kTiny = R"(
{"format": "outsize-profile", "version": 1, "how": "measured", "machine": "this", "torch_version": "2.13.0",
 "threads": 2, "runtime_bytes": 5500000,
 "ops": [{"ns": 81000, "spread_ns": 900, "workspace_bytes": 65536, "requests": [[400, 0, 0], [65536, -1, 0]]},
         {"ns": 4000}]}
)";

// Costs with requests that fit the graph's ops.
Profile full_profile(const Graph& graph, uint64_t seed) {
  Random random(seed);
  Profile profile = random_costs(graph, seed);
  profile.how = "measured";
  profile.machine = "this";
  profile.torch_version = "2.13.0";
  profile.threads = random.below(4);
  profile.runtime_bytes = random.below(1000);
  for (size_t t = 0; t < graph.ops.size(); ++t) {
    OpCost& cost = profile.ops[t];
    cost.spread_ns = random.below(5);
    cost.scratch = random.chance(0.1);
    for (size_t i = 0; i < graph.ops[t].makes.size(); ++i)
      cost.requests.push_back({graph.ops[t].makes[i].bytes.size(), static_cast<int32_t>(i), 0});
    if (cost.workspace_bytes > 0) cost.requests.push_back({cost.workspace_bytes, -1, 0});
  }
  return profile;
}

TEST(ProfileJson, ReadsThePageOfItsFormat) {
  const Result<Profile> profile = profile_from_json(kTiny);
  ASSERT_TRUE(profile.ok()) << profile.error().message;
  EXPECT_EQ(profile->how, "measured");
  EXPECT_EQ(profile->runtime_bytes, 5'500'000);
  EXPECT_EQ(profile->ops[0].requests, (std::vector<Request>{{400, 0, 0}, {65536, -1, 0}}));
  EXPECT_EQ(profile->ops[1], (OpCost{4000, 0, 0, false, {}}));
  EXPECT_EQ(workspaces_of(*profile), (std::vector<int64_t>{65536, 0}));
  EXPECT_EQ(compute_ns(*profile), 85'000);
}

TEST(ProfileJson, RoundTrips) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const Graph graph = random_graph(seed, 12);
    const Profile profile = full_profile(graph, seed);
    ASSERT_TRUE(check_profile(graph, profile).ok())
        << check_profile(graph, profile).error().message;
    const std::string text = to_json(profile);
    const Result<Profile> back = profile_from_json(text);
    ASSERT_TRUE(back.ok()) << back.error().message;
    ASSERT_EQ(*back, profile);
    ASSERT_EQ(to_json(*back), text);
  }
}

TEST(ProfileJson, RejectsWithThePath) {
  const auto error_with = [](std::string_view from, std::string_view to) -> std::string {
    std::string text(kTiny);
    text.replace(text.find(from), from.size(), to);
    const Result<Profile> profile = profile_from_json(text);
    return profile.ok() ? "" : profile.error().message;
  };
  EXPECT_EQ(error_with("\"how\": \"measured\"", "\"how\": \"guessed\""),
            "how: wanted measured, roofline or stated, had 'guessed'");
  EXPECT_EQ(error_with("[65536, -1, 0]", "[65536, -2, 0]"),
            "ops[0].requests[1][1]: wanted -1 to 2147483647, had -2");
  EXPECT_EQ(error_with("{\"ns\": 4000}", "{}"), "ops[1]: field 'ns' is missing");
  EXPECT_EQ(error_with("\"ns\": 4000", "\"ns\": 4e3"),
            "ops[1].ns: wanted an integer, had a number with a fraction");
  EXPECT_EQ(error_with("\"spread_ns\"", "\"spread\""),
            "ops[0]: unknown field 'spread' (did you mean 'spread_ns'?)");
}

TEST(ProfileJson, DamageIsRefusedOrHarmless) {
  Random random(21);
  const Graph graph = random_graph(3, 10);
  const std::string texts[] = {std::string(kTiny), to_json(full_profile(graph, 3))};
  for (int i = 0; i < 3'000; ++i) {
    const Result<Profile> profile = profile_from_json(damaged(texts[i % 2], random));
    if (profile.ok()) {
      ASSERT_EQ(*profile_from_json(to_json(*profile)), *profile);
      const Status fits = check_profile(graph, *profile);
      if (fits.ok()) {
        ASSERT_EQ(profile->ops.size(), graph.ops.size());
      }
    } else {
      ASSERT_FALSE(profile.error().message.empty());
    }
  }
}

TEST(CheckProfile, OneNegativePerRule) {
  const Graph graph = chain_graph(1, 4);  // forward makes one output
  const auto message = [&](auto change) -> std::string {
    Profile profile = equal_costs(graph, 5);
    profile.ops[0].workspace_bytes = 10;
    change(profile);
    const Status status = check_profile(graph, profile);
    return status.ok() ? "" : status.error().message;
  };
  EXPECT_EQ(message([](Profile&) {}), "");
  EXPECT_EQ(message([](Profile& p) { p.how = "x"; }),
            "how: wanted measured, roofline or stated, had 'x'");
  EXPECT_EQ(message([](Profile& p) { p.ops.pop_back(); }), "the profile has 4 ops, its graph 5");
  EXPECT_EQ(message([](Profile& p) { p.ops[1].ns = -1; }),
            "op 1 (loss) takes -1 ns; wanted 0 to 2^53");
  EXPECT_EQ(message([](Profile& p) { p.ops[1].ns = p.ops[2].ns = int64_t{1} << 53; }),
            "ops 0 to 1 take more than 2^53 ns together");
  EXPECT_EQ(message([](Profile& p) { p.ops[1].spread_ns = -1; }),
            "op 1 (loss) has a spread of -1 ns");
  EXPECT_EQ(message([](Profile& p) { p.ops[1].workspace_bytes = -1; }),
            "op 1 (loss) has a workspace of -1 bytes; wanted 0 to 2^62");
  EXPECT_EQ(message([](Profile& p) { p.threads = -1; }), "threads: wanted 0 or more, had -1");
  EXPECT_EQ(message([](Profile& p) { p.runtime_bytes = -1; }),
            "runtime_bytes: wanted 0 to 2^62, had -1");
  EXPECT_EQ(message([](Profile& p) { p.ops[0].requests = {{-4, 0, 0}}; }),
            "request 0 of op 0 (forward) is for -4 bytes");
  EXPECT_EQ(message([](Profile& p) { p.ops[0].requests = {{4, 1, 0}}; }),
            "request 0 of op 0 (forward) is for output 1; the op makes 1");
  EXPECT_EQ(message([](Profile& p) { p.ops[0].requests = {{4, 0, 0}, {4, 0, 0}}; }),
            "request 1 of op 0 (forward) is the second one for output 0");
  EXPECT_EQ(message([](Profile& p) { p.ops[0].requests = {{4, -2, 0}}; }),
            "request 0 of op 0 (forward) is for output -2; wanted -1 or more");
  EXPECT_EQ(message([](Profile& p) { p.ops[0].requests = {{4, -1, 7}}; }),
            "request 0 of op 0 (forward) lies at [7, 7+4) of a workspace of 10 bytes");
  EXPECT_EQ(message([](Profile& p) { p.ops[0].requests = {{4, -1, 6}}; }), "");
  EXPECT_EQ(message([](Profile& p) {
              p.ops[0].scratch = true;
              p.ops[0].requests = {{4, -1, 7}};
            }),
            "");
}

TEST(GenerateCosts, AreStatedAndDeterministic) {
  const Graph graph = chain_graph(2, 1000);
  EXPECT_EQ(random_costs(graph, 1), random_costs(graph, 1));
  EXPECT_NE(random_costs(graph, 1), random_costs(graph, 2));
  // forward reads x and w0 and makes a0: 1 + 3000 / 10.
  EXPECT_EQ(byte_costs(graph, 10).ops[0].ns, 301);
  EXPECT_EQ(compute_ns(equal_costs(graph, 7)), 8 * 7);
}

TEST(GraphFile, BothInOneAndOnDisk) {
  const Graph graph = random_graph(4, 9);
  const GraphFile with{graph, full_profile(graph, 4)}, without{graph, std::nullopt};
  EXPECT_EQ(*graph_file_from_json(to_json(with)), with);
  EXPECT_EQ(*graph_file_from_json(to_json(without)), without);

  std::string folder = testing::TempDir() + "outsize-graph-XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const std::string path = folder + "/graph.json";
  ASSERT_TRUE(write_graph_file(path, with).ok());
  EXPECT_EQ(*read_graph_file(path), with);
  ASSERT_TRUE(write_file_atomically(path, "{}").ok());
  EXPECT_EQ(read_graph_file(path).error().message, path + ": field 'format' is missing");
  std::filesystem::remove_all(folder);
}

TEST(GraphFile, RefusesAProfileThatDoesNotFit) {
  const Graph graph = random_graph(4, 9);
  GraphFile file{graph, full_profile(graph, 4)};
  file.profile->ops.pop_back();
  EXPECT_EQ(graph_file_from_json(to_json(file)).error().message,
            "profile: the profile has 8 ops, its graph 9");
  std::string text = to_json(GraphFile{graph, full_profile(graph, 4)});
  const size_t at = text.rfind("\"ns\"");
  text.replace(at, 4, "\"nss\"");
  EXPECT_EQ(graph_file_from_json(text).error().message, "profile.ops[8]: field 'ns' is missing");
}

}  // namespace
}  // namespace outsize
