#include "outsize/graph/graph.h"

#include <gtest/gtest.h>

#include "outsize/graph/builder.h"

namespace outsize {
namespace {

// The message of the first violation; empty if there is none.
std::string violation(const Graph& graph) {
  const Status status = check_graph(graph);
  return status.ok() ? "" : status.error().message;
}

// x ─op0─► a ─op1─► y
Graph small() {
  GraphBuilder b;
  b.input("x", 100).activation("a", 100).output("y", 100).parameter("w", 8);
  b.op("mul").reads("x").makes("a");
  b.op("relu").reads("a").makes("y").mutates("w");
  return b.build();
}

Value value_of(int64_t storage, std::string dtype, std::vector<int64_t> sizes,
               std::vector<int64_t> strides, int64_t offset) {
  return {StorageId(storage),
          std::move(dtype),
          std::move(sizes),
          std::move(strides),
          offset,
          false,
          false};
}

TEST(BytesOf, StridedViews) {
  // 4 rows of 3 in a row-major 4 x 5 matrix, from column 1: elements 1 .. 1 + 3*5 + 2 = 18.
  EXPECT_EQ(bytes_of(value_of(0, "float32", {4, 3}, {5, 1}, 1)), (Interval{4, 76}));
  EXPECT_EQ(bytes_of(value_of(0, "float64", {}, {}, 2)), (Interval{16, 24}));
  EXPECT_EQ(bytes_of(value_of(0, "bool", {7}, {0}, 3)), (Interval{3, 4}));
  EXPECT_TRUE(bytes_of(value_of(0, "int64", {2, 0}, {1, 1}, 5)).empty());
  EXPECT_THROW(bytes_of(value_of(0, "float33", {1}, {1}, 0)), InternalError);
}

TEST(ElementBytes, ByDtype) {
  const std::pair<const char*, int64_t> cases[] = {
      {"bool", 1},        {"uint8", 1},          {"int8", 1},
      {"int16", 2},       {"float16", 2},        {"bfloat16", 2},
      {"int32", 4},       {"float32", 4},        {"int64", 8},
      {"float64", 8},     {"complex32", 4},      {"complex64", 8},
      {"complex128", 16}, {"float8_e4m3fn", 1},  {"float8_e5m2fnuz", 1},
      {"uint64", 8},      {"float8_e8m0fnu", 1}, {"", 0},
      {"Float32", 0}};
  for (const auto& [dtype, bytes] : cases) EXPECT_EQ(element_bytes(dtype), bytes) << dtype;
}

TEST(CheckGraph, AcceptsTheSmallOne) {
  EXPECT_EQ(violation(small()), "");
  EXPECT_EQ(violation(Graph{}), "");
  GraphBuilder b;
  b.activation("nothing", 0).input("x", 4);
  b.op("empty").reads("x").makes("nothing");
  b.op("size").reads("nothing");
  EXPECT_EQ(violation(b.unchecked()), "");
}

TEST(CheckGraph, Storages) {
  Graph graph = small();
  graph.storages[1].bytes = -1;
  EXPECT_EQ(violation(graph), "storage 1 has -1 bytes; wanted 0 to 2^62");
  graph = small();
  graph.storages[1].bytes = (int64_t{1} << 62) + 1;
  EXPECT_EQ(violation(graph), "storage 1 has 4611686018427387905 bytes; wanted 0 to 2^62");
  graph = small();
  graph.storages[1].bytes = int64_t{1} << 62;
  EXPECT_EQ(violation(graph), "storages 0 to 1 have more than 2^62 bytes together");
  graph = small();
  graph.storages.push_back(graph.storages[3]);
  EXPECT_EQ(violation(graph), "storages 3 and 4 are both persistent and both named 'w'");
  graph.storages[4].persistent = false;
  EXPECT_EQ(violation(graph), "");
  graph = small();
  graph.storages[3].entry = graph.storages[3].exit = false;
  EXPECT_EQ(violation(graph),
            "storage 3 (w) is persistent but has content neither at entry nor at exit");
}

TEST(CheckGraph, Accesses) {
  Graph graph = small();
  graph.ops[0].reads[0].storage = StorageId(4);
  EXPECT_EQ(violation(graph), "op 0 (mul) reads storage 4; there are 4");
  graph.ops[0].reads[0].storage = StorageId();
  EXPECT_EQ(violation(graph), "op 0 (mul) reads storage -1; there are 4");
  graph = small();
  graph.ops[0].reads[0].bytes = {0, 101};
  EXPECT_EQ(violation(graph), "op 0 (mul) reads bytes [0, 101) of storage 0, which has 100");
  graph = small();
  graph.ops[1].mutates[0].bytes = {-1, 4};
  EXPECT_EQ(violation(graph), "op 1 (relu) mutates bytes [-1, 4) of storage 3 (w), which has 8");
  graph = small();
  graph.ops[1].makes[0].bytes = {6, 5};
  EXPECT_EQ(violation(graph), "op 1 (relu) makes bytes [6, 5) of storage 2, which has 100");
}

TEST(CheckGraph, ContentBeforeUse) {
  Graph graph = small();
  std::swap(graph.ops[0], graph.ops[1]);
  EXPECT_EQ(
      violation(graph),
      "op 0 (relu) reads bytes [0, 100) of storage 1, but nothing has written [0, 100) before "
      "it");
  // Half made, all read.
  graph = small();
  graph.ops[0].makes[0].bytes = {0, 40};
  EXPECT_EQ(
      violation(graph),
      "op 1 (relu) reads bytes [0, 100) of storage 1, but nothing has written [40, 100) before "
      "it");
  // An op's own output is no input of it.
  graph = small();
  graph.ops[0].reads.push_back({StorageId(1), {0, 100}});
  EXPECT_NE(violation(graph), "");
  graph = small();
  graph.ops[0].mutates.push_back({StorageId(1), {0, 1}});
  EXPECT_EQ(
      violation(graph),
      "op 0 (mul) mutates bytes [0, 1) of storage 1, but nothing has written [0, 1) before it");
}

TEST(CheckGraph, MakesAreFirstWrites) {
  Graph graph = small();
  graph.ops[1].makes.push_back({StorageId(1), {10, 20}});
  EXPECT_EQ(violation(graph),
            "op 1 (relu) makes bytes [10, 20) of storage 1, but [10, 20) was written before");
  graph = small();
  graph.ops[0].makes.push_back({StorageId(1), {99, 100}});  // twice by one op
  EXPECT_EQ(violation(graph),
            "op 0 (mul) makes bytes [99, 100) of storage 1, but [99, 100) was written before");
  graph = small();
  graph.ops[1].makes.push_back({StorageId(0), {0, 100}});  // the batch has content at entry
  EXPECT_EQ(violation(graph),
            "op 1 (relu) makes bytes [0, 100) of storage 0, but [0, 100) was written before");
}

TEST(CheckGraph, ExitContentIsWritten) {
  Graph graph = small();
  graph.ops[1].makes[0].bytes = {0, 60};
  EXPECT_EQ(violation(graph),
            "storage 2 has content at exit, but nothing has written bytes [60, 100)");
}

TEST(CheckGraph, Values) {
  Graph graph = small();
  graph.values = {value_of(0, "float32", {25}, {1}, 0)};
  EXPECT_EQ(violation(graph), "");
  graph.values[0].sizes = {26};
  EXPECT_EQ(violation(graph), "value 0 reaches past the end of storage 0, which has 100 bytes");
  graph.values[0].dtype = "";  // unknown: can't be told
  EXPECT_EQ(violation(graph), "");
  graph.values[0] = value_of(0, "float32", {int64_t{1} << 40, 1 << 30}, {int64_t{1} << 40, 1}, 0);
  EXPECT_EQ(violation(graph), "value 0 reaches past the end of storage 0, which has 100 bytes");
  graph.values[0] = value_of(4, "float32", {1}, {1}, 0);
  EXPECT_EQ(violation(graph), "value 0 is on storage 4; there are 4");
  graph.values[0] = value_of(0, "flaot32", {1}, {1}, 0);
  EXPECT_EQ(violation(graph), "value 0 has unknown dtype 'flaot32'");
  graph.values[0] = value_of(0, "float32", {1, 2}, {1}, 0);
  EXPECT_EQ(violation(graph), "value 0 has 2 sizes and 1 strides");
  graph.values[0] = value_of(0, "float32", {-1}, {1}, 0);
  EXPECT_EQ(violation(graph), "value 0 has size -1 in dimension 0");
  graph.values[0] = value_of(0, "float32", {1}, {-1}, 0);
  EXPECT_EQ(violation(graph), "value 0 has stride -1 in dimension 0");
  graph.values[0] = value_of(0, "float32", {1}, {1}, -1);
  EXPECT_EQ(violation(graph), "value 0 has offset -1");
}

TEST(CheckGraph, Arguments) {
  Graph graph = small();
  graph.ops[0].args = {Argument{Argument::List{Argument{ValueId(0)}}}};
  EXPECT_EQ(violation(graph), "op 0 (mul) names value 0; there are 0");
  graph.ops[0].args = {Argument{ScalarId(2)}};
  EXPECT_EQ(violation(graph), "op 0 (mul) names scalar 2; there are 0");
  graph.ops[0].args = {Argument{Keyword{"dtpye", "float32"}}};
  EXPECT_EQ(violation(graph), "op 0 (mul) has a keyword of unknown kind 'dtpye'");
  Argument deep;
  for (int i = 0; i < 70; ++i) deep = Argument{Argument::List{deep}};
  graph.ops[0].args = {deep};
  EXPECT_EQ(violation(graph), "op 0 (mul) has an argument of lists nested deeper than 64");
}

TEST(CheckGraph, Scalars) {
  const auto input = [](const char* name) {
    Scalar scalar;
    scalar.name = name;
    return scalar;
  };
  const auto made = [](const char* function, std::vector<Argument> args) {
    Scalar scalar;
    scalar.kind = ScalarKind::kOp;
    scalar.function = function;
    scalar.args = std::move(args);
    return scalar;
  };
  Scalar item;
  item.kind = ScalarKind::kItem;
  Graph graph = small();
  graph.scalars = {input("lr"), made("mul", {{ScalarId(0)}, {2.0}}), made("neg", {{ScalarId(1)}})};
  EXPECT_EQ(violation(graph), "");
  graph.scalars[1].args[0] = {ScalarId(1)};
  EXPECT_EQ(violation(graph), "scalar 1 is made from scalar 1, which is not before it");
  graph.scalars = {input("lr"), input("lr")};
  EXPECT_EQ(violation(graph), "scalars 0 and 1 are both inputs named 'lr'");
  graph.scalars = {input("")};
  EXPECT_EQ(violation(graph), "scalar 0 is an input without a name");
  graph.scalars = {made("mull", {{int64_t{1}}, {int64_t{2}}})};
  EXPECT_EQ(violation(graph), "scalar 0 has unknown function 'mull'");
  graph.scalars = {made("mul", {{int64_t{1}}})};
  EXPECT_EQ(violation(graph), "scalar 0 gives 1 arguments to 'mul', which takes 2");
  graph.scalars = {made("neg", {{std::string("x")}})};
  EXPECT_EQ(violation(graph), "scalar 0 has an argument that is neither a number nor a scalar");
  graph.scalars = {input("lr")};
  graph.scalars[0].function = "mul";
  EXPECT_EQ(violation(graph), "scalar 0 is of kind input but has a function or arguments");
  graph.scalars = {input("lr")};
  graph.guards = {{ScalarId(1), true, {}}};
  EXPECT_EQ(violation(graph), "guard 0 names scalar 1; there are 1");
  graph.guards.clear();
  graph.scalars = {item};
  EXPECT_EQ(violation(graph), "scalar 0 is an item that no op returns");
  graph.ops[0].results = {{ScalarId(0)}};
  EXPECT_EQ(violation(graph), "");
  graph.ops[1].results = {{ScalarId(0)}};
  EXPECT_EQ(violation(graph), "op 1 (relu) and op 0 both return scalar 0");
  graph.ops[1].results.clear();
  graph.scalars.push_back(made("neg", {{ScalarId(0)}}));
  graph.ops[1].args = {{ScalarId(1)}};
  EXPECT_EQ(violation(graph), "");
  graph.ops[0].args = {{ScalarId(1)}};
  EXPECT_EQ(violation(graph), "op 0 (mul) takes scalar 1, which is known only after op 0");
  graph.ops[0].args.clear();
  graph.ops[0].results = {{ScalarId(1)}};
  EXPECT_EQ(violation(graph), "op 0 (mul) returns scalar 1, which is not an item");
}

TEST(CheckGraph, Threads) {
  Graph graph = small();
  graph.threads = -1;
  EXPECT_EQ(violation(graph), "threads: wanted 0 or more, had -1");
}

// Storage by storage, over ops 0 1 2 3 (each row: when it lives):
//   w   parameter     8   1 1 1 1
//   x   input        10   1 1 0 0     last read by op 1
//   a   activation   20   1 1 1 0     made by op 0, last read by op 2
//   s   new state    30   0 1 1 1     made by op 1, exit
//   o   old gradient 40   1 0 0 0     entry only, touched by op 0
//   u   unused input 50   0 0 0 0     entry only, never touched
//   h   handed on    60   1 1 1 1     entry and exit, never touched
//   y   output       70   0 0 0 1     made by op 3
Graph eight_kinds() {
  GraphBuilder b;
  b.parameter("w", 8).input("x", 10).activation("a", 20);
  b.storage("s", {30, Role::kOptimizerState, false, true, true, "s"});
  b.storage("o", {40, Role::kGradient, true, false, true, "o"});
  b.input("u", 50).storage("h", {60, Role::kInput, true, true, false, ""}).output("y", 70);
  b.op("op0").reads("x", "o").makes("a");
  b.op("op1").reads("x").makes("s");
  b.op("op2").reads("a").mutates("s");
  b.op("op3").reads("w").makes("y");
  return b.build();
}

TEST(Liveness, EightKindsOfStorage) {
  const Liveness liveness = liveness_of(eight_kinds(), {});
  // 8+10+20+40+60, 8+10+20+30+60, 8+20+30+60, 8+30+60+70
  EXPECT_EQ(liveness.live_bytes, (std::vector<int64_t>{138, 128, 118, 168}));
  EXPECT_EQ(liveness.peak_bytes, 168);
  EXPECT_EQ(liveness.peak_op, OpId(3));
  // Working sets: x+o+a = 70, x+s = 40, a+s = 50, w+y = 78.
  EXPECT_EQ(liveness.largest_working_set, 78);
  EXPECT_EQ(liveness.largest_op, OpId(3));
  EXPECT_EQ(liveness.persistent_bytes, 8 + 30 + 40);
  EXPECT_EQ(liveness.touched_by[1], (std::vector<OpId>{OpId(0), OpId(1)}));
  EXPECT_EQ(liveness.touched_by[3], (std::vector<OpId>{OpId(1), OpId(2)}));
  EXPECT_TRUE(liveness.touched_by[5].empty());
}

TEST(Liveness, WorkspacesCountAtTheirOp) {
  const Liveness liveness = liveness_of(eight_kinds(), {40, 0, 0, 5});
  EXPECT_EQ(liveness.live_bytes, (std::vector<int64_t>{178, 128, 118, 173}));
  EXPECT_EQ(liveness.peak_op, OpId(0));
  EXPECT_EQ(liveness.largest_working_set, 110);
  EXPECT_EQ(liveness.largest_op, OpId(0));
}

TEST(Liveness, PartsLiveAsTheirStorageAndCountOnceInAWorkingSet) {
  GraphBuilder b;
  b.input("x", 10).activation("a", 100).output("y", 10);
  b.op("op0").reads("x").makes_part("a", 0, 50);
  b.op("op1").reads("x").makes_part("a", 50, 100);
  b.op("op2").reads_part("a", 0, 60).reads_part("a", 40, 70).reads_part("a", 90, 100).makes("y");
  const Liveness liveness = liveness_of(b.build(), {});
  EXPECT_EQ(liveness.live_bytes, (std::vector<int64_t>{110, 110, 110}));
  EXPECT_EQ(liveness.largest_working_set, 70 + 10 + 10);
  EXPECT_EQ(liveness.largest_op, OpId(2));
  EXPECT_EQ(liveness.touched_by[1], (std::vector<OpId>{OpId(0), OpId(1), OpId(2)}));
}

TEST(Liveness, NoOps) {
  GraphBuilder b;
  b.parameter("w", 8);
  const Liveness liveness = liveness_of(b.build(), {});
  EXPECT_EQ(liveness.peak_bytes, 0);
  EXPECT_FALSE(liveness.peak_op.valid());
  EXPECT_EQ(liveness.persistent_bytes, 8);
}

}  // namespace
}  // namespace outsize
