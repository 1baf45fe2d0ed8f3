#include "outsize/torch/measure.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <initializer_list>

#include "outsize/profile/machine.h"
#include "outsize/torch/allocator.h"
#include "outsize/torch/generator.h"
#include "outsize/torch/measure_cache.h"
#include "outsize/torch/measure_key.h"
#include "outsize/torch/measure_machine.h"
#include "outsize/torch/measure_operands.h"
#include "outsize/torch/op_call.h"

namespace outsize {
namespace {

// Graphs of tensors that each have a storage of their own.
class Tensors {
 public:
  ValueId tensor(const std::vector<int64_t>& sizes, const std::string& dtype = "float32",
                 bool entry = false) {
    Value value;
    value.storage = StorageId{static_cast<int64_t>(graph.storages.size())};
    value.dtype = dtype;
    value.sizes = sizes;
    value.strides.assign(sizes.size(), 1);
    for (size_t d = sizes.size(); d-- > 1;) value.strides[d - 1] = value.strides[d] * sizes[d];
    int64_t bytes = element_bytes(dtype);
    for (const int64_t size : sizes) bytes *= size;
    Storage storage;
    storage.bytes = bytes;
    storage.entry = entry;
    storage.role = entry ? Role::kInput : Role::kActivation;
    graph.storages.push_back(storage);
    graph.values.push_back(value);
    return ValueId{static_cast<int64_t>(graph.values.size()) - 1};
  }
  ValueId input(const std::vector<int64_t>& sizes, const std::string& dtype = "float32") {
    return tensor(sizes, dtype, true);
  }
  Access all(ValueId v) const {
    const StorageId storage = graph.value(v).storage;
    return {storage, {0, graph.storage(storage).bytes}};
  }
  Op& op(const std::string& name, const std::vector<Argument>& args,
         const std::vector<ValueId>& results, const std::vector<ValueId>& reads,
         const std::vector<ValueId>& makes, const std::vector<ValueId>& mutates = {}) {
    Op op;
    op.name = name;
    op.args = args;
    for (const ValueId v : results) op.results.push_back({v});
    for (const ValueId v : reads) op.reads.push_back(all(v));
    for (const ValueId v : makes) op.makes.push_back(all(v));
    for (const ValueId v : mutates) op.mutates.push_back(all(v));
    op.site = {"net", "train.py", static_cast<int64_t>(graph.ops.size()) + 1, "forward"};
    graph.ops.push_back(op);
    return graph.ops.back();
  }
  Graph graph;
};

MeasureOptions quick() {
  MeasureOptions options;
  options.timed_runs = 2;
  options.evict_bytes = 1 << 20;
  options.use_cache = false;
  return options;
}

Measured measure(const Graph& graph, const std::map<StorageId, at::Tensor>& entry = {},
                 const MeasureOptions& options = quick()) {
  Result<Measured> measured = measure_profile(graph, entry, options);
  OUTSIZE_CHECK(measured.ok(), "{}", measured.ok() ? "" : measured.error().message);
  EXPECT_TRUE(check_profile(graph, measured->profile).ok());
  return std::move(*measured);
}

const Argument kNone{};

// Calls an op at planned addresses as a step does, with the requests that measuring found.
Status replay(const Graph& graph, OpId id, const OpCost& cost) {
  const Op& op = graph.op(id);
  TouchedBlock memory("replay");
  int64_t bytes = cost.workspace_bytes;
  for (const Storage& storage : graph.storages) bytes += storage.bytes + 64;
  if (Status reserved = memory.reserve(bytes + 64); !reserved.ok()) return reserved;
  int64_t at = (cost.workspace_bytes + 63) / 64 * 64;
  std::map<StorageId, int64_t> offsets;
  std::vector<std::byte*> addresses;
  for (const auto* list : {&op.reads, &op.makes, &op.mutates})
    for (const Access& access : *list) {
      if (offsets.try_emplace(access.storage, at).second)
        at += (graph.storage(access.storage).bytes + 63) / 64 * 64;
      addresses.push_back(memory.base() + offsets.at(access.storage) + access.bytes.begin);
    }
  Result<OpCall> call = OpCall::prepare(graph, id);
  if (!call.ok()) return call.error();
  Result<BoundOp> bound = call->bind(addresses);
  if (!bound.ok()) return bound.error();
  std::vector<PlannedRequest> requests;
  for (const Request& r : cost.requests)
    requests.push_back({r.bytes, r.output >= 0
                                     ? addresses[op.reads.size() + static_cast<size_t>(r.output)]
                                 : cost.scratch ? nullptr
                                                : memory.base() + r.offset});
  PlannedCall planned({.op = op.name,
                       .requests = requests,
                       .scratch = cost.scratch,
                       .workspace = memory.base(),
                       .workspace_bytes = cost.workspace_bytes});
  Result<std::vector<c10::IValue>> results = call->invoke(*bound);
  if (!results.ok()) {
    (void)planned.finish().ok();
    return results.error();
  }
  Status same = call->check_results(*bound, *results, nullptr);
  results->clear();
  Status finished = planned.finish();
  return finished.ok() ? same : finished;
}

void expect_replays(const Graph& graph, const Profile& profile) {
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    const OpId id{static_cast<int64_t>(i)};
    const Status replayed = replay(graph, id, profile.ops[i]);
    EXPECT_TRUE(replayed.ok()) << replayed.error().message;
  }
}

TEST(Measure, MatrixProductAsksForItsOutput) {
  Tensors t;
  const ValueId x = t.input({256, 128}), w = t.input({128, 64}), y = t.tensor({256, 64});
  t.op("aten.mm.default", {{x}, {w}}, {y}, {x, w}, {y});
  const Measured m = measure(t.graph);
  EXPECT_TRUE(m.findings.empty()) << m.findings[0].text;
  const OpCost& cost = m.profile.ops[0];
  EXPECT_GT(cost.ns, 1000);  // 4 million multiplications
  EXPECT_FALSE(cost.scratch);
  ASSERT_GE(cost.requests.size(), 1u);
  EXPECT_EQ(cost.requests[0].bytes, 256 * 64 * 4);
  EXPECT_EQ(cost.requests[0].output, 0);
  EXPECT_EQ(m.profile.how, "measured");
  EXPECT_EQ(m.profile.threads, at::get_num_threads());
  EXPECT_GT(m.peak_bytes, (256 * 128 + 128 * 64 + 256 * 64) * 4);
  expect_replays(t.graph, m.profile);
}

TEST(Measure, EachDistinctOpOnce) {
  Tensors t;
  const ValueId x = t.input({64, 64}), y = t.tensor({64, 64}), z = t.tensor({64, 64}),
                half = t.tensor({32, 64}), small = t.input({32, 64});
  t.op("aten.relu.default", {{x}}, {y}, {x}, {y});
  t.op("aten.relu.default", {{y}}, {z}, {y}, {z});
  t.op("aten.relu.default", {{small}}, {half}, {small}, {half});
  const Measured m = measure(t.graph);
  EXPECT_EQ(m.distinct, 2);
  EXPECT_EQ(m.profile.ops[0], m.profile.ops[1]);
  EXPECT_NE(m.profile.ops[0].requests, m.profile.ops[2].requests);
  expect_replays(t.graph, m.profile);
}

TEST(Measure, InPlaceOpsAskForNothingAndAreFine) {
  Tensors t;
  const ValueId p = t.input({1000}), g = t.input({1000});
  t.op("aten.add_.Tensor", {{p}, {g}, {0.1}}, {p}, {g}, {}, {p});
  const Measured m = measure(t.graph);
  EXPECT_TRUE(m.findings.empty()) << m.findings[0].text;
  EXPECT_TRUE(m.profile.ops[0].requests.empty());
  EXPECT_EQ(m.profile.ops[0].workspace_bytes, 0);
  expect_replays(t.graph, m.profile);
}

TEST(Measure, TemporariesGetAWorkspace) {
  Tensors t;
  // A column sum of a product written by composite kernels: norm over a strided view needs none,
  // var of bfloat16 does its sums in float and sort its indices.
  const ValueId x = t.input({64, 33}), s = t.tensor({64, 33}), i = t.tensor({64, 33}, "int64");
  t.op("aten.sort.default", {{x}, {int64_t{0}}, {true}}, {s, i}, {x}, {s, i});
  const ValueId n = t.input({2, 8, 16, 16}), w = t.input({8, 8, 3, 3}),
                c = t.tensor({2, 8, 16, 16});
  const auto list = [](std::initializer_list<int64_t> numbers) {
    Argument::List out;
    for (const int64_t k : numbers) out.push_back({k});
    return Argument{out};
  };
  t.op("aten.convolution.default",
       {{n},
        {w},
        kNone,
        list({1, 1}),
        list({1, 1}),
        list({1, 1}),
        {false},
        list({0, 0}),
        {int64_t{1}}},
       {c}, {n, w}, {c});
  const Measured m = measure(t.graph);
  EXPECT_TRUE(m.findings.empty()) << m.findings[0].text;
  int64_t temporaries = 0;
  for (const OpCost& cost : m.profile.ops)
    for (const Request& request : cost.requests) temporaries += request.output < 0 ? 1 : 0;
  EXPECT_GT(temporaries, 0);
  EXPECT_GT(m.profile.ops[0].workspace_bytes + m.profile.ops[1].workspace_bytes, 0);
  expect_replays(t.graph, m.profile);
}

// bfloat16 flash attention backward: OpenMP threads ask for memory of their own, in any order.
TEST(Measure, WorkersRequestsMakeScratch) {
  if (at::get_num_threads() < 2) GTEST_SKIP() << "needs two threads";
  Tensors t;
  const std::vector<int64_t> shape = {2, 4, 128, 32};
  std::vector<ValueId> in;
  for (int k = 0; k < 5; ++k) in.push_back(t.input(shape, "bfloat16"));
  const ValueId lse = t.input({2, 4, 128}, "float32");
  std::vector<ValueId> out;
  for (int k = 0; k < 3; ++k) out.push_back(t.tensor(shape, "bfloat16"));
  // The kernel lays its results out as [batch, row, head, column].
  for (const ValueId v : out) t.graph.values[v.index()].strides = {128 * 4 * 32, 32, 4 * 32, 1};
  std::vector<ValueId> reads = in;
  reads.push_back(lse);
  t.op("aten._scaled_dot_product_flash_attention_for_cpu_backward.default",
       {{in[0]}, {in[1]}, {in[2]}, {in[3]}, {in[4]}, {lse}, {0.0}, {false}}, out, reads, out);
  const Measured m = measure(t.graph);
  EXPECT_TRUE(m.findings.empty()) << m.findings[0].text;
  EXPECT_TRUE(m.profile.ops[0].scratch);
  EXPECT_GT(m.profile.ops[0].workspace_bytes, 0);
  expect_replays(t.graph, m.profile);
}

const Finding* find(const Measured& m, FindingKind kind) {
  for (const Finding& finding : m.findings)
    if (finding.kind == kind) return &finding;
  return nullptr;
}

TEST(Measure, FindsAnInputThatIsChanged) {
  Tensors t;
  const ValueId x = t.input({100});
  t.op("aten.relu_.default", {{x}}, {x}, {x}, {});  // the graph should say mutates
  const Measured m = measure(t.graph);
  const Finding* finding = find(m, FindingKind::kChangedInput);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->op, OpId{0});
  EXPECT_EQ(finding->storage, t.graph.value(x).storage);
  EXPECT_NE(finding->text.find("op 0 aten.relu_.default (net, train.py:1)"), std::string::npos);
}

TEST(Measure, FindsAnOutputThatLiesOnAnInput) {
  Tensors t;
  const ValueId x = t.input({10, 10}), y = t.tensor({10, 10});
  t.op("aten.detach.default", {{x}}, {y}, {x}, {y});
  const Finding finding = *find(measure(t.graph), FindingKind::kOutputOnInput);
  EXPECT_EQ(finding.storage, t.graph.value(x).storage);
}

TEST(Measure, FindsOtherSizesStridesAndTypes) {
  Tensors t;
  const ValueId x = t.input({10, 20}), sizes = t.tensor({20}), type = t.tensor({10, 20}, "int64"),
                strides = t.tensor({10, 20});
  t.graph.values[strides.index()].strides = {1, 10};
  t.op("aten.relu.default", {{x}}, {sizes}, {x}, {sizes});
  t.op("aten.relu.default", {{x}}, {type}, {x}, {type});
  t.op("aten.relu.default", {{x}}, {strides}, {x}, {strides});
  const Measured m = measure(t.graph);
  std::vector<std::string> texts;
  for (const Finding& finding : m.findings)
    if (finding.kind == FindingKind::kGeometry) texts.push_back(finding.text);
  ASSERT_EQ(texts.size(), 3u);
  EXPECT_NE(texts[0].find("wanted sizes [20], had [10, 20]"), std::string::npos) << texts[0];
  EXPECT_NE(texts[1].find("wanted dtype int64, had float32"), std::string::npos) << texts[1];
  EXPECT_NE(texts[2].find("wanted strides [1, 10], had [20, 1]"), std::string::npos) << texts[2];
}

TEST(Measure, CorrectsStorageBytes) {
  Tensors t;
  const ValueId x = t.input({100}), y = t.tensor({100}), z = t.tensor({100});
  t.graph.storages[t.graph.value(y).storage.index()].bytes = 512;
  t.op("aten.relu.default", {{x}}, {y}, {x}, {y});
  t.op("aten.relu.default", {{x}}, {z}, {x}, {z});
  const Measured m = measure(t.graph);
  EXPECT_EQ(m.storage_bytes, (std::vector<StorageCorrection>{{t.graph.value(y).storage, 400}}));
  ASSERT_EQ(m.findings.size(), 1u);
  EXPECT_EQ(m.findings[0].kind, FindingKind::kStorageBytes);
}

TEST(Measure, UsesTheRealBatchAndLeavesItAlone) {
  Tensors t;
  const ValueId weight = t.input({50, 8}), ids = t.input({4}, "int64"), y = t.tensor({4, 8});
  t.op("aten.embedding.default", {{weight}, {ids}}, {y}, {weight, ids}, {y});
  const at::Tensor real = at::full({4}, 49, at::kLong);
  const StorageId storage = t.graph.value(ids).storage;
  EXPECT_TRUE(measure(t.graph, {{storage, real}}).findings.empty());
  EXPECT_TRUE(at::equal(real, at::full({4}, 49, at::kLong)));
  // They are really used: an id past the table's end fails, by name.
  const auto bad = measure_profile(t.graph, {{storage, at::full({4}, 50, at::kLong)}}, quick());
  ASSERT_FALSE(bad.ok());
  EXPECT_NE(bad.error().message.find("op 0 aten.embedding.default (net, train.py:1)"),
            std::string::npos)
      << bad.error().message;
  const auto few = measure_profile(t.graph, {{storage, at::full({2}, 1, at::kLong)}}, quick());
  ASSERT_FALSE(few.ok());
  EXPECT_NE(few.error().message.find("has 16 bytes, the op reads up to 32"), std::string::npos)
      << few.error().message;
}

TEST(Measure, LeavesTheGeneratorWhereItWas) {
  Tensors t;
  const ValueId x = t.input({1000}), y = t.tensor({1000}), mask = t.tensor({1000}, "bool");
  t.op("aten.native_dropout.default", {{x}, {0.5}, {true}}, {y, mask}, {x}, {y, mask}).uses_rng =
      true;
  const at::Tensor before = generator_state().clone();
  EXPECT_TRUE(measure(t.graph).findings.empty());
  EXPECT_TRUE(at::equal(before, generator_state()));
}

TEST(Measure, NamesWhatCannotBeCalled) {
  Tensors t;
  const ValueId x = t.input({4}), y = t.tensor({4});
  t.op("aten.no_such_op.default", {{x}}, {y}, {x}, {y});
  const auto measured = measure_profile(t.graph, {}, quick());
  ASSERT_FALSE(measured.ok());
  EXPECT_EQ(measured.error().kind, ErrorKind::kBadInput);
  EXPECT_NE(measured.error().message.find("aten.no_such_op.default (net, train.py:1)"),
            std::string::npos);
}

TEST(Measure, CanBeCancelled) {
  Tensors t;
  const ValueId x = t.input({4}), y = t.tensor({4}), z = t.tensor({4});
  t.op("aten.relu.default", {{x}}, {y}, {x}, {y});
  t.op("aten.neg.default", {{y}}, {z}, {y}, {z});
  MeasureOptions options = quick();
  std::vector<int64_t> seen;
  options.progress = [&](int64_t done, int64_t total) {
    EXPECT_EQ(total, 2);
    seen.push_back(done);
    return done < 1;
  };
  const auto measured = measure_profile(t.graph, {}, options);
  ASSERT_FALSE(measured.ok());
  EXPECT_EQ(measured.error().kind, ErrorKind::kCancelled);
  EXPECT_EQ(seen, (std::vector<int64_t>{0, 1}));
}

TEST(Measure, KeepsResultsAndMeasuresDamagedOnesAgain) {
  Tensors t;
  const ValueId x = t.input({100}), y = t.tensor({100}), z = t.tensor({100}, "int64");
  t.op("aten.relu.default", {{x}}, {y}, {x}, {y});
  t.op("aten.neg.default", {{y}}, {z}, {y}, {z});  // wrong on purpose: findings are kept too
  MeasureOptions options = quick();
  options.use_cache = true;
  options.cache_dir = ::testing::TempDir() + "/outsize_measure_cache";
  std::filesystem::remove_all(options.cache_dir);
  const Measured first = measure(t.graph, {}, options);
  EXPECT_EQ(first.from_cache, 0);
  const Measured second = measure(t.graph, {}, options);
  EXPECT_EQ(second.from_cache, 2);
  EXPECT_EQ(second.profile, first.profile);
  EXPECT_EQ(second.findings, first.findings);
  EXPECT_TRUE(second.notes.empty());  // nothing was measured, nothing is damaged
  MeasureOptions other = options;
  other.evict_bytes *= 2;  // another way of measuring is another result
  EXPECT_EQ(measure(t.graph, {}, other).from_cache, 0);

  for (const auto& file : std::filesystem::recursive_directory_iterator(options.cache_dir))
    if (file.is_regular_file()) std::ofstream(file.path(), std::ios::trunc) << "{\"format\": ";
  const Measured third = measure(t.graph, {}, options);
  EXPECT_EQ(third.from_cache, 0);
  ASSERT_GE(third.notes.size(), 2u);  // a busy machine is noted, too
  EXPECT_NE(third.notes[0].find("damaged"), std::string::npos);
  EXPECT_NE(third.notes[1].find("damaged"), std::string::npos);
  EXPECT_EQ(measure(t.graph, {}, options).from_cache, 2);
}

TEST(Measure, KeysTellGeometryApart) {
  Tensors t;
  const ValueId x = t.input({4, 4}), y = t.tensor({4, 4}), z = t.tensor({4, 4});
  t.op("aten.add.Tensor", {{x}, {x}}, {y}, {x}, {y});
  t.op("aten.add.Tensor", {{y}, {y}}, {z}, {y}, {z});
  const ValueId w = t.tensor({4, 4});
  t.op("aten.add.Tensor", {{y}, {x}}, {w}, {y, x}, {w});
  const std::string aliased = measure_key(t.graph, OpId{0}, {});
  EXPECT_EQ(aliased, measure_key(t.graph, OpId{1}, {}));
  EXPECT_NE(aliased, measure_key(t.graph, OpId{2}, {}));
  EXPECT_NE(aliased, measure_key(t.graph, OpId{0}, {t.graph.value(x).storage}));
  t.graph.values[x.index()].strides = {1, 4};
  EXPECT_NE(aliased, measure_key(t.graph, OpId{0}, {}));
}

TEST(MeasureMachine, DescribesThisMachine) {
  MeasureMachineOptions options;
  options.copy_bytes = 4 << 20;
  options.disk_bytes = 4 << 20;
  options.rounds = 2;
  options.disk_dir = ::testing::TempDir();
  std::vector<std::string> told;
  options.progress = [&](const std::string& what) { told.push_back(what); };
  const Result<Machine> machine = measure_machine(options);
  ASSERT_TRUE(machine.ok()) << machine.error().message;
  EXPECT_EQ(told.size(), 3u);
  EXPECT_TRUE(check_machine(*machine).ok());
  // Between a tape drive and a miracle.
  for (const int64_t rate : {machine->out.bytes_per_s, machine->in.bytes_per_s,
                             machine->both_bytes_per_s, machine->sync_bytes_per_s}) {
    EXPECT_GT(rate, 100'000'000);
    EXPECT_LT(rate, 10'000'000'000'000);
  }
  EXPECT_GT(machine->read.bytes_per_s, 0);
  EXPECT_GT(machine->write.bytes_per_s, 0);
  EXPECT_GT(machine->disk_bytes, 0);
  EXPECT_GT(machine->flops_per_s.at("float32"), 1e8);
  EXPECT_GT(machine->launch_ns, 50);
  options.disk_dir = "/nowhere/at/all";
  EXPECT_FALSE(measure_machine(options).ok());
}

}  // namespace
}  // namespace outsize
