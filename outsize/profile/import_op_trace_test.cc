#include "outsize/profile/import_op_trace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "outsize/base/files.h"
#include "outsize/base/test_data.h"
#include "outsize/base/text_edits.h"

namespace outsize {
namespace {

constexpr std::string_view kTiny = R"(
{"format": "op-trace", "version": 1, "title": "tiny", "source": "by hand",
 "storages": [{"id": "w", "bytes": 8, "role": "persistent"}, {"id": 7, "bytes": 4, "role": "activation"},
              {"id": "7", "bytes": 5, "role": "activation"}, {"id": -1, "bytes": 6, "role": "output"},
              {"id": "b", "bytes": 3, "role": "input"}, {"id": 8, "bytes": 0, "role": "activation"}],
 "ops": [{"name": "mm", "ns": 10, "reads": ["w", "b", "7"], "makes": [7], "mutates": [], "phase": "forward"},
         {"name": "again", "ns": 20, "reads": [7, 7], "makes": [7, -1], "mutates": ["w"]},
         {"name": "last", "ns": 5, "reads": [-1], "makes": [8]}]}
)";

TEST(ImportOpTrace, RolesAndAccesses) {
  const Result<GraphFile> file = import_op_trace(kTiny);
  ASSERT_TRUE(file.ok()) << file.error().message;
  const Graph& graph = file->graph;
  EXPECT_EQ(graph.title, "tiny");
  EXPECT_EQ(graph.storages[0], (Storage{8, Role::kParameter, true, true, true, "w"}));
  EXPECT_EQ(graph.storages[1], (Storage{4, Role::kActivation, false, false, false, ""}));
  // Read before it was made: it came in.
  EXPECT_EQ(graph.storages[2], (Storage{5, Role::kInput, true, false, false, ""}));
  EXPECT_EQ(graph.storages[3], (Storage{6, Role::kOutput, false, true, false, ""}));
  EXPECT_EQ(graph.storages[4], (Storage{3, Role::kInput, true, false, false, ""}));
  using Accesses = std::vector<Access>;
  EXPECT_EQ(graph.ops[0].reads,
            (Accesses{{StorageId(0), {0, 8}}, {StorageId(4), {0, 3}}, {StorageId(2), {0, 5}}}));
  EXPECT_EQ(graph.ops[0].makes, (Accesses{{StorageId(1), {0, 4}}}));
  EXPECT_EQ(graph.ops[0].site.phase, "forward");
  // Made a second time: changed in place; and what an op changes it need not read as well.
  EXPECT_EQ(graph.ops[1].makes, (Accesses{{StorageId(3), {0, 6}}}));
  EXPECT_EQ(graph.ops[1].mutates, (Accesses{{StorageId(0), {0, 8}}, {StorageId(1), {0, 4}}}));
  EXPECT_EQ(graph.ops[1].reads, Accesses{});
  EXPECT_EQ(graph.ops[2].makes, (Accesses{{StorageId(5), {0, 0}}}));
  EXPECT_EQ(file->profile->how, "stated");
  EXPECT_EQ(compute_ns(*file->profile), 35);
  EXPECT_EQ(*graph_file_from_json(to_json(*file)), *file);
}

TEST(ImportOpTrace, RejectsWithThePath) {
  const auto error_with = [](std::string_view from, std::string_view to) -> std::string {
    std::string text(kTiny);
    text.replace(text.find(from), from.size(), to);
    const Result<GraphFile> file = import_op_trace(text);
    return file.ok() ? "" : file.error().message;
  };
  EXPECT_EQ(error_with("\"reads\": [-1]", "\"reads\": [-1, 9]"), "ops[2].reads[1]: no storage 9");
  EXPECT_EQ(error_with("\"id\": 8", "\"id\": 7"), "storages[5].id: storage 7 is there twice");
  EXPECT_EQ(error_with("\"ns\": 20", "\"ns\": -20"), "ops[1].ns: wanted 0 or more, had -20");
  EXPECT_EQ(error_with("\"role\": \"output\"", "\"role\": \"outputs\""),
            "storages[3].role: unknown name 'outputs' (did you mean 'output'?)");
  EXPECT_EQ(error_with("\"ns\": 5", "\"ns\": 5, \"time\": 1"),
            "ops[2]: unknown field 'time' (did you mean 'name'?)");
  EXPECT_EQ(error_with("[7, -1]", "[7]"), "");  // op 2 reads -1 now before any op makes it
  EXPECT_EQ(error_with("\"op-trace\"", "\"optrace\""), "format: wanted 'op-trace', had 'optrace'");
}

TEST(ImportOpTrace, DamageIsRefusedOrHarmless) {
  Random random(41);
  for (int i = 0; i < 3'000; ++i) {
    const Result<GraphFile> file = import_op_trace(damaged(kTiny, random));
    if (file.ok()) {
      ASSERT_TRUE(check_graph(file->graph).ok());
      ASSERT_TRUE(check_profile(file->graph, *file->profile).ok());
    }
  }
}

struct Known {
  const char* name;
  size_t ops, storages;
  double peak_gb;        // 0: not published
  double floor_gb;       // 0: only as a share of the peak
  double floor_percent;  // of the peak
  double persistent_gb;
  int64_t op_at_floor;
};
// Measured with an independent reader of the same files: program-order peak and largest working
// set.
constexpr Known kKnown[] = {
    {"checkmate-MobileNet_512", 185, 185, 34.701, 6.636, 19.1, 0, 175},
    {"checkmate-ResNet50_256", 353, 353, 38.059, 3.699, 9.7, 0, 325},
    {"checkmate-VGG16_256", 45, 45, 15.825, 13.153, 83.1, 0, 44},
    {"checkmate-VGG19_256", 51, 51, 17.058, 13.153, 77.1, 0, 50},
    {"checkmate-fcn_8_vgg_32", 73, 73, 13.485, 8.288, 61.5, 0, 72},
    {"checkmate-random-n100", 100, 100, 0, 0, 43.2, 0, 61},
    {"checkmate-random-n250", 250, 250, 0, 0, 59.7, 0, 248},
    {"checkmate-segnet_32", 77, 77, 19.944, 8.288, 41.6, 0, 74},
    {"checkmate-vgg_unet_32", 71, 71, 20.959, 8.288, 39.5, 0, 70},
    {"dtr-inceptionv4-64", 1258, 3118, 11.245, 1.101, 9.8, 0.240, 1247},
    {"dtr-transformer-10", 2821, 1904, 9.347, 0.671, 7.2, 0.263, 2017},
    {"dtr-tv_densenet121-84", 2072, 3041, 11.020, 0.809, 7.3, 0.083, 1982},
    {"dtr-unet-6", 247, 466, 8.410, 1.943, 23.1, 0.093, 142},
    {"g10-BERT-256", 1369, 1463, 51.282, 2.416, 4.7, 17.823, 1331},
    {"g10-Inceptionv3-512", 929, 2171, 47.995, 11.329, 23.6, 0.096, 912},
    {"g10-ResNet152-256", 1299, 3366, 58.919, 3.288, 5.6, 0.242, 1237},
    {"g10-VIT-1024", 1489, 1563, 49.319, 1.654, 3.4, 14.619, 1487},
};

TEST(ImportOpTrace, PublicTracesHaveTheirKnownPeaksAndFloors) {
  const std::string folder = (data_folder() / "trace").string();
  if (!std::filesystem::is_directory(folder))
    GTEST_SKIP() << "no public traces at " << folder << " (set OUTSIZE_DATA)";
  for (const Known& known : kKnown) {
    SCOPED_TRACE(known.name);
    const Result<std::string> text = read_file(folder + "/" + known.name + ".json");
    ASSERT_TRUE(text.ok()) << text.error().message;
    const Result<GraphFile> file = import_op_trace(*text);
    ASSERT_TRUE(file.ok()) << file.error().message;
    EXPECT_EQ(file->graph.ops.size(), known.ops);
    EXPECT_EQ(file->graph.storages.size(), known.storages);
    const Liveness liveness = liveness_of(file->graph, workspaces_of(*file->profile));
    const auto gb = [](int64_t bytes) {
      return std::round(static_cast<double>(bytes) / 1e6) / 1e3;
    };
    if (known.peak_gb > 0) {
      EXPECT_DOUBLE_EQ(gb(liveness.peak_bytes), known.peak_gb);
      EXPECT_DOUBLE_EQ(gb(liveness.largest_working_set), known.floor_gb);
    }
    const double percent = 100.0 * static_cast<double>(liveness.largest_working_set) /
                           static_cast<double>(liveness.peak_bytes);
    EXPECT_NEAR(percent, known.floor_percent, 0.0501);
    EXPECT_DOUBLE_EQ(gb(liveness.persistent_bytes), known.persistent_gb);
    EXPECT_EQ(liveness.largest_op, OpId(known.op_at_floor));
  }
}

}  // namespace
}  // namespace outsize
