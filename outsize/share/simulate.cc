#include "outsize/share/simulate.h"

#include <algorithm>

#include "outsize/base/check.h"
#include "outsize/share/engine.h"

namespace outsize::share {
namespace {

// The job with the device to itself, `swap_percent` of its pages in swap.
int64_t time_alone(const Workload& workload, const Job& job, int swap_percent = 0) {
  Setup setup;
  setup.swap_percents = {swap_percent};
  const Workload single{workload.name, workload.source, workload.device, {job}};
  return Engine(single, setup).run().makespan_ns;
}

// Priorities and shares from a run of each job alone and one of all together.
void settle_swap_aware(const Workload& workload, const std::vector<int64_t>& alone, Setup& setup,
                       std::vector<double>& weights) {
  const Rules& rules = setup.options.rules;
  const Outcome together = Engine(workload, {}).run();
  std::vector<Contention> measured;
  std::vector<int64_t> pages;
  for (size_t j = 0; j < workload.jobs.size(); ++j) {
    const Job& job = workload.jobs[j];
    measured.push_back(
        {std::max<int64_t>(1, alone[j]), together.jobs[j].response_ns, job.subtasks});
    pages.push_back(pages_of(job.subtask_bytes, workload.device) * job.subtasks);
  }
  weights = contention_weights(measured, rules.for_each_subtask);
  setup.ranks = priority_ranks(weights);
  if (!rules.use_in_swap) return;
  std::vector<int> giving = setup.ranks;
  if (!rules.lowest_first)
    for (int& rank : giving) rank = -rank;
  setup.swap_percents = swap_percents(pages, giving, workload.device.pages());
}

void settle_broker(const Workload& workload, Setup& setup) {
  for (const Job& job : workload.jobs) {
    std::vector<int64_t>& times_ns = setup.swap_times_ns.emplace_back();
    if (!job.curve.empty()) continue;
    for (int percent = 0; percent <= 100; ++percent)
      times_ns.push_back(time_alone(workload, job, percent));
  }
}

}  // namespace

std::vector<int64_t> alone_times(const Workload& workload) {
  std::vector<int64_t> times;
  for (const Job& job : workload.jobs) times.push_back(time_alone(workload, job));
  return times;
}

Outcome simulate(const Workload& workload, const Options& options) {
  OUTSIZE_CHECK(options.quantum_ns > 0, "a quantum of {} ns", options.quantum_ns);
  const std::vector<int64_t> alone = alone_times(workload);
  Setup setup;
  setup.options = options;
  std::vector<double> weights;
  if (options.policy == Policy::kSwapAware) settle_swap_aware(workload, alone, setup, weights);
  if (options.policy == Policy::kBroker) settle_broker(workload, setup);
  Outcome outcome = Engine(workload, setup).run();
  for (size_t j = 0; j < workload.jobs.size(); ++j) {
    JobOutcome& job = outcome.jobs[j];
    job.alone_ns = alone[j];
    if (alone[j] > 0)
      job.slowdown = static_cast<double>(job.response_ns) / static_cast<double>(alone[j]);
    if (!weights.empty()) job.weight = weights[j];
    if (!setup.ranks.empty()) job.rank = setup.ranks[j];
    if (!setup.swap_percents.empty()) job.swap_percent = setup.swap_percents[j];
  }
  return outcome;
}

}  // namespace outsize::share
