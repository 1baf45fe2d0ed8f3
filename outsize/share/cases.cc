#include "outsize/share/cases.h"

#include <fmt/format.h>

namespace outsize::share {
namespace {

constexpr int64_t kPage = 4096;
constexpr int64_t kTickNs = 10'000'000;

// The simulated board of the swap-aware scheduler's evaluation: memory 20,000 MB/s, an SSD.
SharedDevice unified_memory(int64_t pages) {
  SharedDevice device;
  device.memory_bytes = pages * kPage;
  device.page_bytes = kPage;
  device.memory_bytes_per_s = 20'000'000'000;
  device.swap_in_bytes_per_s = 492'000'000;
  device.swap_out_bytes_per_s = 445'000'000;
  return device;
}

Job kernel(std::string name, int64_t subtasks, int64_t subtask_pages,
           std::vector<int64_t> compute_ns) {
  Job job;
  job.name = std::move(name);
  job.subtasks = subtasks;
  job.subtask_bytes = subtask_pages * kPage;
  job.compute_ns = std::move(compute_ns);
  return job;
}

// "High compute" is up to six times what it takes to swap a sub-task's bytes in and out; six here.
int64_t high_compute(int64_t bytes, const SharedDevice& device) {
  return 6 * (transfer_ns(bytes, device.swap_in_bytes_per_s) +
              transfer_ns(bytes, device.swap_out_bytes_per_s));
}

constexpr int64_t kEqualPages = 314'573;     // 24 GiB in 20 sub-tasks
constexpr int64_t kVariedPages = 197'000;    // 24.05 GiB in 32
constexpr int64_t kMemoryPages = 4'718'592;  // 18 GiB

Workload task_set(std::string_view name, std::vector<int64_t> subtasks, int64_t pages, bool high) {
  Workload workload;
  workload.name = name;
  workload.source = "swap-aware scheduler, simulated task set";
  workload.device = unified_memory(kMemoryPages);
  for (size_t i = 0; i < subtasks.size(); ++i) {
    const int64_t compute_ns = high ? high_compute(pages * kPage, workload.device) : kTickNs;
    workload.jobs.push_back(kernel(fmt::format("task{}", i + 1), subtasks[i], pages, {compute_ns}));
  }
  return workload;
}

// 4096 x 4096 floats. Of sub-tasks only gesummv's are published: 128, 31 ticks each, 634 ticks
// alone. 32,780 pages are then 256 each (rounded up, so 128 * 257); the others are given as many of
// that size as hold their bytes. 7 at once make gesummv's 19 waves of 31 ticks.
Workload polybench() {
  Workload workload;
  workload.name = "polybench";
  workload.source = "swap-aware scheduler, four PolyBench kernels at 4096 x 4096";
  workload.device = unified_memory(61'482);
  for (const auto& [name, pages, subtasks] :
       {std::tuple{"atax", 16'396, 64}, std::tuple{"bicg", 16'400, 64},
        std::tuple{"mvt", 16'400, 64}, std::tuple{"gesummv", 32'780, 128}}) {
    Job job = kernel(name, subtasks, (pages + subtasks - 1) / subtasks, {31 * kTickNs});
    job.compute_units = 7;
    workload.jobs.push_back(job);
  }
  return workload;
}

constexpr int64_t kSecond = 1'000'000'000;

// Fitted: docs/sharing.md says on what.
TurnsModel turns_model(int64_t working_set_bytes, int64_t solo_s, int64_t device_phase_s) {
  TurnsModel model;
  model.working_set_bytes = working_set_bytes;
  model.solo_ns = solo_s * kSecond;
  model.device_phase_ns = device_phase_s * kSecond;
  model.round_ns = 366'000'000;
  model.busy_permille = 770;
  model.fault_bytes_per_s = 9'300'000'000;
  return model;
}

struct TurnsCase {
  std::string_view name;
  TurnsModel model;
};
std::vector<TurnsCase> turns_cases() {
  constexpr int64_t kSmall = 7'200'000'000, kBig = 15'300'000'000;
  return {{"nvshare-small-50", turns_model(kSmall, 1332, 722)},
          {"nvshare-small-90", turns_model(kSmall, 711, 651)},
          {"nvshare-big-50", turns_model(kBig, 1385, 658)},
          {"nvshare-big-90", turns_model(kBig, 724, 656)}};
}

}  // namespace

Workload turns_workload(const TurnsModel& model) {
  Workload workload;
  workload.source = "nvshare, two jobs on a P100 with 16 GB";
  workload.device.memory_bytes = int64_t{16} << 30;
  workload.device.page_bytes = int64_t{2} << 20;
  workload.device.swap_in_bytes_per_s = model.fault_bytes_per_s;
  workload.device.swap_out_bytes_per_s = model.fault_bytes_per_s;
  workload.device.compute_units = 1;
  workload.device.idle_release_ns = 5 * kSecond;
  Job job;
  job.subtask_bytes = model.working_set_bytes;
  job.host_first_ns = model.solo_ns - model.device_phase_ns;
  job.rounds = model.device_phase_ns / model.round_ns;
  const int64_t burst_ns = model.round_ns * model.busy_permille / 1000;
  job.compute_ns = {burst_ns};
  job.host_ns = model.round_ns - burst_ns;
  job.writes = false;
  for (const char* name : {"one", "two"}) {
    job.name = name;
    workload.jobs.push_back(job);
  }
  return workload;
}

std::vector<std::string> case_names() {
  std::vector<std::string> names{"equal-low", "equal-high", "varied-low", "varied-high",
                                 "polybench"};
  for (const TurnsCase& entry : turns_cases()) names.emplace_back(entry.name);
  return names;
}

std::optional<Workload> named_case(std::string_view name) {
  if (name == "equal-low") return task_set(name, {5, 5, 5, 5}, kEqualPages, false);
  if (name == "equal-high") return task_set(name, {5, 5, 5, 5}, kEqualPages, true);
  if (name == "varied-low") return task_set(name, {5, 7, 9, 11}, kVariedPages, false);
  if (name == "varied-high") return task_set(name, {5, 7, 9, 11}, kVariedPages, true);
  if (name == "polybench") return polybench();
  for (const TurnsCase& entry : turns_cases()) {
    if (entry.name != name) continue;
    Workload workload = turns_workload(entry.model);
    workload.name = name;
    return workload;
  }
  return std::nullopt;
}

}  // namespace outsize::share
