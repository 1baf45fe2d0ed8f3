#include "outsize/share/workload.h"

#include <algorithm>

#include "outsize/base/bytes.h"

namespace outsize::share {
namespace {

constexpr int64_t kMostSubtasks = 100'000;
constexpr int64_t kMostNs = int64_t{1} << 50;  // 13 days: sums of many still fit
constexpr int64_t kMostRounds = 10'000'000;
constexpr int64_t kMostBytes = int64_t{1} << 50;

Status check_curve(const Job& job, const SharedDevice& device) {
  for (size_t i = 0; i < job.curve.size(); ++i) {
    const CurvePoint& point = job.curve[i];
    if (point.budget_bytes < 1 || point.budget_bytes > device.memory_bytes)
      return bad_input("job '{}': curve point {} wants {}, the device has {}", job.name, i,
                       format_bytes(point.budget_bytes), format_bytes(device.memory_bytes));
    if (point.burst_ns < 1 || point.burst_ns > kMostNs || point.moved_bytes < 0)
      return bad_input(
          "job '{}': curve point {}: wanted a burst of 1 ns or more and 0 or more bytes "
          "moved, had {} ns and {} bytes",
          job.name, i, point.burst_ns, point.moved_bytes);
    if (i > 0 && point.budget_bytes <= job.curve[i - 1].budget_bytes)
      return bad_input("job '{}': curve point {}: wanted more bytes than the point before, had {}",
                       job.name, i, point.budget_bytes);
  }
  if (!job.curve.empty() && job.subtasks != 1)
    return bad_input("job '{}': a curve is for a job of one sub-task, had {}", job.name,
                     job.subtasks);
  return Done{};
}

Status check_job(const Job& job, const SharedDevice& device) {
  if (job.subtasks < 1 || job.subtasks > kMostSubtasks)
    return bad_input("job '{}': wanted 1 to {} sub-tasks, had {}", job.name, kMostSubtasks,
                     job.subtasks);
  if (job.subtask_bytes < 1 || pages_of(job.subtask_bytes, device) > device.pages())
    return bad_input("job '{}': each sub-task holds {} at once, the device has {}", job.name,
                     format_bytes(job.subtask_bytes), format_bytes(device.memory_bytes));
  if (job.subtask_bytes > kMostBytes / job.subtasks)
    return bad_input("job '{}': {} sub-tasks of {} are more than {}", job.name, job.subtasks,
                     format_bytes(job.subtask_bytes), format_bytes(kMostBytes));
  if (job.rounds < 1 || job.rounds > kMostRounds)
    return bad_input("job '{}': wanted 1 to {} rounds, had {}", job.name, kMostRounds, job.rounds);
  const size_t bursts = job.compute_ns.size();
  if (bursts != 1 && bursts != static_cast<size_t>(job.subtasks))
    return bad_input("job '{}': wanted one compute time, or one for each of {} sub-tasks, had {}",
                     job.name, job.subtasks, bursts);
  for (const int64_t ns : job.compute_ns)
    if (ns < 0 || ns > kMostNs)
      return bad_input("job '{}': wanted a compute time of 0 to {} ns, had {}", job.name, kMostNs,
                       ns);
  for (const int64_t ns : {job.arrives_ns, job.host_first_ns, job.host_ns})
    if (ns < 0 || ns > kMostNs)
      return bad_input("job '{}': arrival and host times must lie in 0 to {} ns, had {}", job.name,
                       kMostNs, ns);
  if (job.compute_units < 0)
    return bad_input("job '{}': wanted 0 or more compute units, had {}", job.name,
                     job.compute_units);
  return check_curve(job, device);
}

}  // namespace

Status check_workload(const Workload& workload) {
  const SharedDevice& device = workload.device;
  if (device.page_bytes < 1 || device.memory_bytes < device.page_bytes)
    return bad_input("the device has {} in pages of {}: wanted at least one page",
                     format_bytes(device.memory_bytes), device.page_bytes);
  if (device.memory_bytes > kMostBytes)
    return bad_input("the device has {}: wanted at most {}", format_bytes(device.memory_bytes),
                     format_bytes(kMostBytes));
  if (device.swap_in_bytes_per_s < 1 || device.swap_out_bytes_per_s < 1)
    return bad_input("the swap's rates are {} in and {} out: wanted 1 byte/s or more",
                     device.swap_in_bytes_per_s, device.swap_out_bytes_per_s);
  if (device.memory_bytes_per_s < 0 || device.compute_units < 0 || device.slice_ns < 0 ||
      device.idle_release_ns < 0)
    return bad_input("the device: no rate, count or time may be below 0");
  if (workload.jobs.empty()) return bad_input("no jobs: wanted at least one");
  std::vector<std::string> names;
  for (const Job& job : workload.jobs) {
    if (const Status sound = check_job(job, device); !sound.ok()) return sound.error();
    names.push_back(job.name);
  }
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) return bad_input("two jobs are named '{}'", *twice);
  return Done{};
}

int64_t pages_of(int64_t bytes, const SharedDevice& device) {
  return bytes / device.page_bytes + (bytes % device.page_bytes != 0 ? 1 : 0);
}

int64_t transfer_ns(int64_t bytes, int64_t bytes_per_s) {
  if (bytes_per_s == 0) return 0;
  const __int128 scaled = static_cast<__int128>(bytes) * 1'000'000'000;
  return static_cast<int64_t>((scaled + bytes_per_s - 1) / bytes_per_s);
}

}  // namespace outsize::share
