#include "outsize/graph/graph_json.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>

#include "outsize/base/random.h"
#include "outsize/base/text_edits.h"
#include "outsize/graph/generate.h"

namespace outsize {
namespace {

#ifdef OUTSIZE_SANITIZED
constexpr int kSlowdown = 10;
#else
constexpr int kSlowdown = 1;
#endif

// The example of docs/formats/graph.md.
constexpr std::string_view kTiny = R"(
{"format": "outsize-graph", "version": 1, "title": "tiny",
 "torch_version": "2.13.0", "device_type": "cpu", "threads": 2,
 "storages": [{"bytes": 400, "role": "parameter", "entry": true, "exit": true, "persistent": true, "name": "w"},
              {"bytes": 400, "role": "activation"},
              {"bytes": 4, "role": "output", "exit": true}],
 "values": [{"storage": 0, "dtype": "float32", "sizes": [10, 10], "strides": [10, 1], "offset": 0},
            {"storage": 1, "dtype": "float32", "sizes": [10, 10], "strides": [10, 1], "offset": 0},
            {"storage": 2, "dtype": "float32", "sizes": [], "strides": [], "offset": 0}],
 "scalars": [{"kind": "input", "name": "optimizer.0.group.0.lr", "present": 0.1},
             {"kind": "op", "function": "mul", "args": [{"scalar": 0}, 2.0], "present": 0.2}],
 "guards": [{"scalar": 1, "outcome": true, "site": {"file": "train.py", "line": 12}}],
 "ops": [{"name": "aten.mul.Tensor", "args": [{"value": 0}, {"value": 0}], "results": [{"value": 1}],
          "reads": [[0, 0, 400]], "makes": [[1, 0, 400]], "mutates": [],
          "site": {"module": "layer.0", "file": "train.py", "line": 10, "phase": "forward"}},
         {"name": "aten.sum.default", "args": [{"value": 1}], "results": [{"value": 2}],
          "reads": [[1, 0, 400]], "makes": [[2, 0, 4]]}]}
)";

Argument random_argument(Random& random, const Graph& graph, int depth) {
  switch (random.below(depth > 2 ? 9 : 10)) {
    case 0:
      return {};
    case 1:
      return {random.chance(0.5)};
    case 2:
      return {static_cast<int64_t>(random.next())};
    case 3:
      return {random.chance(0.3) ? 3.0 : (random.uniform() - 0.5) * 1e6};
    case 4:
      return {random.chance(0.5) ? INFINITY : -INFINITY};
    case 5:
      return {std::string("a \"quoted\"\nword")};
    case 6:
      return {ValueId(random.below(std::ssize(graph.values)))};
    case 7:
      return {ScalarId(0)};  // an input: known from the start
    case 8: {
      const std::string kind(kKeywordKinds[random.below(std::ssize(kKeywordKinds))]);
      return {Keyword{kind, "float32"}};
    }
    default: {
      Argument::List list;
      for (int64_t n = random.below(4); n > 0; --n)
        list.push_back(random_argument(random, graph, depth + 1));
      return {list};
    }
  }
}

// A random graph with everything that the form can say.
Graph full_graph(uint64_t seed) {
  Random random(seed);
  Graph graph = random_graph(seed, static_cast<int>(random.between(1, 12)));
  graph.title = "graph \\ " + std::to_string(seed);
  graph.torch_version = "2.13.0";
  graph.device_type = random.chance(0.5) ? "cpu" : "";
  graph.threads = random.below(3);
  for (size_t s = 0; s < graph.storages.size(); ++s) {
    const int64_t bytes = graph.storages[s].bytes;
    Value value{StorageId(static_cast<int64_t>(s)), "uint8", {bytes}, {1}, 0, false, false};
    value.conj = random.chance(0.2);
    value.neg = random.chance(0.2);
    graph.values.push_back(value);
    if (random.chance(0.2)) graph.values.back().dtype = "";
  }
  Scalar input{ScalarKind::kInput, "lr", "", {}, Number{0.1}};
  Scalar item{ScalarKind::kItem, "", "", {}, std::nullopt};
  Scalar made{
      ScalarKind::kOp, "", "max", {{ScalarId(0)}, {int64_t{-3}}, {true}}, Number{int64_t{4}}};
  graph.scalars = {input, item, made};
  graph.scalars[2].present = random.chance(0.5) ? Number{true} : Number{-INFINITY};
  graph.guards = {{ScalarId(2), Number{random.chance(0.5)}, {"m", "f.py", 3, ""}},
                  {ScalarId(1), Number{1.5}, {}},
                  {ScalarId(1), Number{int64_t{7}}, {}}};
  for (Op& op : graph.ops) {
    op.host_sync = random.chance(0.2);
    for (int64_t n = random.below(4); n > 0; --n)
      op.args.push_back(random_argument(random, graph, 0));
    if (random.chance(0.5)) op.results = {{ValueId(0)}, {}};
    if (random.chance(0.5)) op.site = {"layer.0", "train.py", random.below(99), "backward"};
  }
  graph.ops[0].results.push_back({ScalarId(1)});
  return graph;
}

TEST(GraphJson, ReadsThePageOfItsFormat) {
  const Result<Graph> graph = graph_from_json(kTiny);
  ASSERT_TRUE(graph.ok()) << graph.error().message;
  EXPECT_EQ(graph->title, "tiny");
  EXPECT_EQ(graph->threads, 2);
  EXPECT_EQ(graph->storages[0], (Storage{400, Role::kParameter, true, true, true, "w"}));
  EXPECT_EQ(graph->values[1].sizes, (std::vector<int64_t>{10, 10}));
  EXPECT_EQ(graph->scalars[1].args[1].data, Argument{2.0}.data);
  EXPECT_EQ(graph->guards[0].outcome, Number{true});
  EXPECT_EQ(graph->guards[0].site.line, 12);
  EXPECT_EQ(graph->ops[0].site.phase, "forward");
  EXPECT_EQ(graph->ops[1].makes, (std::vector<Access>{{StorageId(2), {0, 4}}}));
  EXPECT_EQ(*graph_from_json(to_json(*graph)), *graph);
}

TEST(GraphJson, RoundTripsWhateverItCanSay) {
  for (uint64_t seed = 0; seed < 150; ++seed) {
    const Graph graph = full_graph(seed);
    const std::string text = to_json(graph);
    const Result<Graph> back = graph_from_json(text);
    ASSERT_TRUE(back.ok()) << seed << ": " << back.error().message << "\n" << text;
    ASSERT_EQ(*back, graph) << seed;
    ASSERT_EQ(to_json(*back), text) << seed;
  }
}

TEST(GraphJson, NumbersKeepTheirKind) {
  Graph graph = *graph_from_json(kTiny);
  graph.ops[0].args = {{int64_t{1}}, {1.0}, {true}, {NAN}};
  const Graph back = *graph_from_json(to_json(graph));
  EXPECT_TRUE(std::holds_alternative<int64_t>(back.ops[0].args[0].data));
  EXPECT_TRUE(std::holds_alternative<double>(back.ops[0].args[1].data));
  EXPECT_TRUE(std::holds_alternative<bool>(back.ops[0].args[2].data));
  EXPECT_TRUE(std::isnan(std::get<double>(back.ops[0].args[3].data)));
}

// `kTiny` with `from`, which must be there, replaced by `to`: the reader's message.
std::string error_with(std::string_view from, std::string_view to) {
  std::string text(kTiny);
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  text.replace(at, from.size(), to);
  const Result<Graph> graph = graph_from_json(text);
  return graph.ok() ? "" : graph.error().message;
}

TEST(GraphJson, RejectsWithThePath) {
  EXPECT_EQ(error_with("[2, 0, 4]", "[2, 0, \"4\"]"),
            "ops[1].makes[0][2]: wanted an integer, had a string");
  EXPECT_EQ(error_with("[2, 0, 4]", "[2, 0]"),
            "ops[1].makes[0]: wanted an array of 3, had 2 entries");
  EXPECT_EQ(error_with("[2, 0, 4]", "[2, 4, 0]"),
            "ops[1].makes[0][2]: wanted 4 to 4611686018427387904, had 0");
  EXPECT_EQ(error_with("\"role\": \"activation\"", "\"role\": \"actvation\""),
            "storages[1].role: unknown name 'actvation' (did you mean 'activation'?)");
  EXPECT_EQ(error_with("\"phase\"", "\"phas\""),
            "ops[0].site: unknown field 'phas' (did you mean 'phase'?)");
  EXPECT_EQ(error_with("\"title\"", "\"titel\""), "unknown field 'titel' (did you mean 'title'?)");
  EXPECT_EQ(error_with("{\"bytes\": 4,", "{"), "storages[2]: field 'bytes' is missing");
  EXPECT_EQ(error_with("\"bytes\": 4,", "\"bytes\": 4.0,"),
            "storages[2].bytes: wanted an integer, had a number with a fraction");
  EXPECT_EQ(error_with("\"args\": [{\"value\": 1}]", "\"args\": [[{\"vlaue\": 1}]]"),
            "ops[1].args[0][0]: unknown field 'vlaue' (did you mean 'value'?)");
  EXPECT_EQ(error_with("\"args\": [{\"value\": 1}]", "\"args\": [{\"value\": 1, \"scalar\": 0}]"),
            "ops[1].args[0]: wanted an object with one field, such as {\"value\": 3}");
  EXPECT_EQ(error_with("\"args\": [{\"value\": 1}]", "\"args\": [{\"float\": \"infinite\"}]"),
            "ops[1].args[0].float: wanted 'inf', '-inf' or 'nan', had 'infinite'");
  EXPECT_EQ(error_with("\"outcome\": true", "\"outcome\": \"yes\""),
            "guards[0].outcome: wanted a bool or a number");
  EXPECT_EQ(error_with("\"storage\": 2", "\"storage\": 4294967296"),
            "values[2].storage: wanted 0 to 2147483647, had 4294967296");
  EXPECT_EQ(error_with("\"version\": 1", "\"version\": 2"),
            "version: this reader knows version 1, had 2");
  EXPECT_EQ(error_with("[0, 0, 400]", "[3, 0, 400]"),
            "op 0 (aten.mul.Tensor) reads storage 3; there are 3");
}

TEST(GraphJson, LeavesTheProfileAlone) {
  std::string text(kTiny);
  text.insert(text.rfind('}'), ", \"profile\": {\"whatever\": [1, 2]}");
  EXPECT_TRUE(graph_from_json(text).ok());
  EXPECT_EQ(*graph_from_json(to_json(*graph_from_json(kTiny), "{\"a\": 1}\n")),
            *graph_from_json(kTiny));
}

// Whatever the bytes, the answer is an error with a message or a legal graph.
TEST(GraphJson, DamageIsRefusedOrHarmless) {
  Random random(11);
  const std::string texts[] = {std::string(kTiny), to_json(full_graph(5)), to_json(full_graph(6))};
  int refused = 0, read = 0;
  for (int i = 0; i < 6'000 / kSlowdown; ++i) {
    const std::string text = damaged(texts[i % 3], random);
    const Result<Graph> graph = graph_from_json(text);
    if (graph.ok()) {
      ++read;
      ASSERT_TRUE(check_graph(*graph).ok());
      liveness_of(*graph, {});
      const std::string again = to_json(*graph);
      const Result<Graph> back = graph_from_json(again);
      ASSERT_TRUE(back.ok()) << back.error().message << "\n" << again;
      ASSERT_EQ(to_json(*back), again);
    } else {
      ++refused;
      ASSERT_FALSE(graph.error().message.empty());
      ASSERT_EQ(graph.error().kind, ErrorKind::kBadInput);
    }
  }
  EXPECT_GT(refused, 100 / kSlowdown);
  EXPECT_GT(read, 10 / kSlowdown);
}

TEST(GraphJson, TenThousandOpsAreQuick) {
  const Graph graph = transformer_graph({.layers = 300});
  ASSERT_GT(graph.ops.size(), 10'000u);
  const auto start = std::chrono::steady_clock::now();
  const std::string text = to_json(graph);
  const auto written = std::chrono::steady_clock::now();
  const Result<Graph> back = graph_from_json(text);
  const auto read = std::chrono::steady_clock::now();
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(*back, graph);
  const auto ms = [](auto span) {
    return std::chrono::duration_cast<std::chrono::milliseconds>(span).count();
  };
  // The bounds leave room for a loaded machine; alone it takes a tenth of this.
  RecordProperty("write_ms", static_cast<int>(ms(written - start)));
  RecordProperty("read_ms", static_cast<int>(ms(read - written)));
  EXPECT_LT(ms(written - start), 1'000 * kSlowdown);
  EXPECT_LT(ms(read - written), 3'000 * kSlowdown);
}

}  // namespace
}  // namespace outsize
