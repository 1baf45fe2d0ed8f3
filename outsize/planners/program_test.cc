#include "outsize/planners/program.h"

#include <gtest/gtest.h>

#include "outsize/graph/builder.h"

namespace outsize::planning {
namespace {

std::vector<OpId> in_order(const Graph& graph) {
  std::vector<OpId> order;
  for (size_t i = 0; i < graph.ops.size(); ++i) order.emplace_back(static_cast<int64_t>(i));
  return order;
}

std::optional<int64_t> one(OpId) { return 1; }
int64_t for_nothing(int32_t, int32_t, int64_t) { return 0; }
int64_t never(int32_t, int32_t, int64_t) { return kNeverNs; }

std::vector<std::string> names(const Graph& graph, const Program& program) {
  std::vector<std::string> out;
  for (int32_t s : program.order())
    out.push_back((program.step(s).rerun ? "again " : "") + graph.op(program.step(s).op).name);
  return out;
}

// The worked example of parts.h.
TEST(Parts, AreCutWhereNoAccessCrosses) {
  GraphBuilder b;
  b.activation("s", 200);
  b.op("op0").makes_part("s", 0, 100);
  b.op("op1").makes_part("s", 100, 200);
  b.op("op2").reads_part("s", 0, 100);
  b.op("op3").reads_part("s", 100, 200);
  Parts parts = parts_of(b.build());
  ASSERT_EQ(parts.parts.size(), 2u);
  EXPECT_EQ(parts[0].where.bytes, (Interval{0, 100}));
  EXPECT_EQ(parts[1].where.bytes, (Interval{100, 200}));
  EXPECT_EQ(parts.of_op[3], (std::vector<int32_t>{1}));
  b.op("op4").reads("s");
  parts = parts_of(b.build());
  ASSERT_EQ(parts.parts.size(), 1u);
  EXPECT_EQ(parts[0].written[1], (std::vector<Interval>{{0, 100}}));
  EXPECT_EQ(parts[0].written[2], (std::vector<Interval>{{0, 200}}));
}

TEST(Parts, OpsThatChangeWhatWasThereAreNotRerunnable) {
  GraphBuilder b;
  b.parameter("w", 8).activation("a", 8).output("y", 8);
  b.op("make").reads("w").makes("a");
  b.op("relu").mutates("a");
  b.op("step").reads("a").mutates("w");
  b.op("sum").reads("a").makes("y").collective();
  EXPECT_EQ(parts_of(b.build()).rerunnable, (std::vector<bool>{true, true, false, false}));
}

// x → f → a → g → c → h → d, then k reads a and c.
Graph chain() {
  GraphBuilder b;
  b.input("x", 8).activation("a", 8).activation("c", 8).activation("d", 8).output("y", 8);
  b.op("f").reads("x").makes("a");
  b.op("g").reads("a").makes("c");
  b.op("h").reads("c").makes("d");
  b.op("i").reads("d").makes("y");
  b.op("k").reads("a", "c", "x").mutates("y");
  return b.build();
}

TEST(Program, DropRunsTheMakerAgainJustBeforeTheUse) {
  Graph graph = chain();
  Parts parts = parts_of(graph);
  Program program(parts, in_order(graph));
  std::optional<Program::Draft> draft = program.draft_drop(1, 1, one, for_nothing);
  ASSERT_TRUE(draft);
  EXPECT_EQ(draft->run_ns, 1);
  program.drop(1, 1, *draft);
  EXPECT_EQ(names(graph, program), (std::vector<std::string>{"f", "g", "h", "i", "again f", "k"}));
}

TEST(Program, DropOfAChainSharesItsReruns) {
  Graph graph = chain();
  Parts parts = parts_of(graph);
  Program program(parts, in_order(graph));
  program.drop(1, 1, *program.draft_drop(1, 1, one, for_nothing));  // a, made again before k
  // c needs a at k as well: g alone is added, after f.
  std::optional<Program::Draft> draft = program.draft_drop(2, 1, one, never);
  ASSERT_TRUE(draft);
  program.drop(2, 1, *draft);
  EXPECT_EQ(names(graph, program),
            (std::vector<std::string>{"f", "g", "h", "i", "again f", "again g", "k"}));
}

TEST(Program, UndropGivesBackTheProgram) {
  Graph graph = chain();
  Parts parts = parts_of(graph);
  Program program(parts, in_order(graph));
  program.drop(1, 1, *program.draft_drop(1, 1, one, for_nothing));
  int32_t rerun = program.order()[4];
  std::optional<Program::Undo> undo = program.draft_undrop(rerun);
  ASSERT_TRUE(undo);
  std::vector<int32_t> changed;
  program.undrop(*undo, changed);
  EXPECT_EQ(names(graph, program), (std::vector<std::string>{"f", "g", "h", "i", "k"}));
  EXPECT_EQ(program.instance(1).touches.size(), 3u);
}

TEST(Program, NothingIsMadeAgainFromAParameterThatHasChanged) {
  GraphBuilder b;
  b.parameter("w", 8).activation("a", 8).activation("c", 8).output("y", 8);
  b.op("f").reads("w").makes("a");
  b.op("g").reads("a").makes("c");
  b.op("step").reads("c").mutates("w");
  b.op("k").reads("a").makes("y");
  Graph graph = b.build();
  Parts parts = parts_of(graph);
  Program program(parts, in_order(graph));
  EXPECT_FALSE(program.draft_drop(1, 1, one, for_nothing));
}

}  // namespace
}  // namespace outsize::planning
