// What the executor adds to each instruction: steps of instructions that do nothing.
#include <benchmark/benchmark.h>

#include "outsize/run/executor_unchecked.h"

namespace outsize {
namespace {

class IdleDevice : public Device {
 public:
  Status begin_step() override { return Done{}; }
  Status run_op(const RunCall& call) override {
    benchmark::DoNotOptimize(call.addresses.data());
    return Done{};
  }
  Status copy(const CopyCall& call) override {
    benchmark::DoNotOptimize(call.bytes);
    return Done{};
  }
  Status save_generator(OpId) override { return Done{}; }
  Status rewind_generator(OpId) override { return Done{}; }
  Status resume_generator() override { return Done{}; }
  Status end_step() override { return Done{}; }
};

// `copy_every` > 0: every so many runs a copy out of what the run made, waited for by the next run.
void bench_instructions(benchmark::State& state, int64_t copy_every) {
  constexpr int64_t kOps = 10'000;
  Graph graph;
  graph.storages.resize(1);
  graph.storages[0].bytes = 8;
  const Access all{StorageId{0}, {0, 8}};
  Plan plan;
  plan.residencies = {{Tier::kDevice, all, 0}, {Tier::kHost, all, 0}};
  for (int64_t i = 0; i < kOps; ++i) {
    Op op;
    op.name = "bench.op";
    op.mutates = {all};
    graph.ops.push_back(op);
    Instruction run;
    run.op = OpId{i};
    run.operands = {ResidencyId{0}};
    if (!plan.instructions.empty() && plan.instructions.back().kind == InstructionKind::kCopy)
      run.waits = {InstructionId{static_cast<int64_t>(plan.instructions.size()) - 1}};
    plan.instructions.push_back(run);
    if (copy_every == 0 || i % copy_every != 0) continue;
    Instruction copy;
    copy.stream = Stream::kOut;
    copy.kind = InstructionKind::kCopy;
    copy.from = ResidencyId{0};
    copy.to = ResidencyId{1};
    copy.bytes = {0, 8};
    copy.waits = {InstructionId{static_cast<int64_t>(plan.instructions.size()) - 1}};
    plan.instructions.push_back(copy);
  }
  IdleDevice device;
  auto executor = unchecked_executor(graph, plan, device, {});
  for (auto _ : state) benchmark::DoNotOptimize((*executor)->step().ok());
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(plan.instructions.size()));
}
void bm_runs(benchmark::State& state) { bench_instructions(state, 0); }
void bm_handovers(benchmark::State& state) { bench_instructions(state, 1); }
BENCHMARK(bm_runs);
BENCHMARK(bm_handovers);

}  // namespace
}  // namespace outsize
