#include "outsize/torch/measure_machine.h"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/add.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "outsize/tiers/arena.h"
#include "outsize/tiers/disk.h"
#include "outsize/torch/cpu_device.h"
#include "outsize/torch/measure_cache.h"

namespace outsize {
namespace {

constexpr int64_t kMatrix = 1024;
constexpr int64_t kDiskPiece = int64_t{16} << 20;

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

template <typename F>
int64_t median_ns(int rounds, const F& work) {
  work();  // warm
  std::vector<int64_t> times;
  for (int r = 0; r < rounds; ++r) {
    const int64_t begin = now_ns();
    work();
    times.push_back(now_ns() - begin);
  }
  std::sort(times.begin(), times.end());
  return std::max<int64_t>(1, times[times.size() / 2]);
}

int64_t per_second(int64_t bytes, int64_t ns) {
  return static_cast<int64_t>(static_cast<double>(bytes) * 1e9 / static_cast<double>(ns));
}

int64_t permille(double part, double whole) {
  return std::clamp<int64_t>(static_cast<int64_t>(1000 * part / whole + 0.5), 1, 1000);
}

// Does the same work over and over on a thread of its own until destroyed, and counts.
class Background {
 public:
  template <typename F>
  explicit Background(F work) {
    thread_ = std::thread([this, work] {
      while (!stop_.load()) {
        work();
        done_.fetch_add(1);
      }
    });
  }
  ~Background() {
    stop_.store(true);
    thread_.join();
  }
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;
  int64_t done() const { return done_.load(); }

 private:
  std::atomic<bool> stop_{false};
  std::atomic<int64_t> done_{0};
  std::thread thread_;  // last: it uses the others
};

// How long it takes one thread to let another one, asleep, go on.
int64_t handover_ns() {
  constexpr int kTurns = 200;
  std::mutex mutex;
  std::condition_variable changed;
  int turn = 0;
  const auto play = [&](int parity) {
    for (int t = 0; t < kTurns; ++t) {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return turn % 2 == parity; });
      ++turn;
      changed.notify_one();
    }
  };
  const int64_t begin = now_ns();
  std::thread other(play, 1);
  play(0);
  other.join();
  return (now_ns() - begin) / (2 * kTurns);
}

struct Arenas {
  Arena device, host, device2, host2;
};

Result<Arenas> make_arenas(int64_t bytes) {
  std::vector<Arena> made;
  for (const char* name : {"device", "host", "device2", "host2"}) {
    Result<Arena> arena = Arena::create(name, bytes);
    if (!arena.ok()) return arena.error();
    made.push_back(std::move(*arena));
  }
  return Arenas{std::move(made[0]), std::move(made[1]), std::move(made[2]), std::move(made[3])};
}

void copy_arena(const Arena& from, const Arena& to) {
  std::memcpy(to.base(), from.base(), static_cast<size_t>(from.bytes()));
}

void measure_copies(const Arenas& a, int rounds, Machine& machine) {
  const int64_t bytes = a.device.bytes();
  const int64_t latency = handover_ns();
  machine.out = {latency,
                 per_second(bytes, median_ns(rounds, [&] { copy_arena(a.device, a.host); }))};
  machine.in = {latency,
                per_second(bytes, median_ns(rounds, [&] { copy_arena(a.host, a.device); }))};
  machine.sync_bytes_per_s = per_second(
      bytes,
      median_ns(rounds, [&] { copy_with_all_threads(a.host.base(), a.device.base(), bytes); }));
  machine.memory_bytes_per_s = 2 * std::max(machine.sync_bytes_per_s, machine.out.bytes_per_s);
  // Both ways: as many copies each way as the rounds, side by side.
  const int64_t both = median_ns(rounds, [&] {
    std::thread other([&] { copy_arena(a.host2, a.device2); });
    copy_arena(a.device, a.host);
    other.join();
  });
  machine.both_bytes_per_s = per_second(2 * bytes, both);
}

struct Product {
  at::Tensor x = at::ones({kMatrix, kMatrix}), y = at::ones({kMatrix, kMatrix});
  at::Tensor out = at::ones({kMatrix, kMatrix});
  void operator()() const {
    at::Tensor result = out;
    at::mm_out(result, x, y);
  }
};

struct Interference {
  int64_t op_permille = 1000, copy_permille = 1000;
};

// Products beside a thread that copies without pause, for at least some ten of its copies.
template <typename Copy>
Interference interference(const Product& product, int64_t alone_ns, int rounds, int64_t bytes,
                          int64_t bytes_per_s, Copy copy) {
  const int64_t copy_ns = 1'000'000'000 * (bytes / 1024) / std::max<int64_t>(1, bytes_per_s / 1024);
  const int products = static_cast<int>(std::max<int64_t>(rounds, 10 * copy_ns / alone_ns + 1));
  Background copying(copy);
  product();
  const int64_t copies_before = copying.done();
  const int64_t begin = now_ns();
  const int64_t beside_ns = median_ns(products, product);
  const int64_t elapsed = now_ns() - begin;
  const int64_t copied = (copying.done() - copies_before) * bytes;
  return {
      permille(static_cast<double>(alone_ns), static_cast<double>(beside_ns)),
      permille(static_cast<double>(per_second(copied, elapsed)), static_cast<double>(bytes_per_s))};
}

void measure_compute(const Arenas& a, int rounds, Machine& machine) {
  const Product product;
  const int64_t alone_ns = median_ns(rounds, product);
  const double operations = 2.0 * static_cast<double>(kMatrix * kMatrix * kMatrix);
  machine.flops_per_s["float32"] = operations * 1e9 / static_cast<double>(alone_ns);

  const at::Tensor small = at::ones({8});
  constexpr int kCalls = 2000;
  machine.launch_ns = median_ns(rounds,
                                [&] {
                                  for (int i = 0; i < kCalls; ++i) at::add(small, small);
                                }) /
                      kCalls;

  const Interference met =
      interference(product, alone_ns, rounds, a.device.bytes(), machine.out.bytes_per_s,
                   [&] { copy_arena(a.device, a.host); });
  machine.compute_permille_beside_copy = met.op_permille;
  machine.copy_permille_beside_compute = met.copy_permille;
}

// The first failure of several transfers; threads write one each.
Status first_failure(const std::vector<Status>& all) {
  for (const Status& status : all)
    if (!status.ok()) return status;
  return Done{};
}

Status measure_disk(const MeasureMachineOptions& options, const Arenas& a, Machine& machine) {
  auto made = DiskMemory::create(options.disk_dir, options.disk_bytes, {});
  if (!made.ok()) return made.error();
  DiskMemory& disk = **made;
  const int64_t piece = std::min({kDiskPiece, a.host.bytes(), disk.bytes() / 2});
  const int64_t half = disk.bytes() / 2 / piece * piece;
  std::vector<Status> status(2, Done{});
  const auto write = [&](int64_t begin, size_t who) {
    for (int64_t at = begin; at < begin + half && status[who].ok(); at += piece)
      status[who] = disk.write(at, a.host.base(), piece);
  };
  const auto read = [&](int64_t begin, size_t who) {
    for (int64_t at = begin; at < begin + half && status[who].ok(); at += piece)
      status[who] = disk.read(at, a.host2.base(), piece);
  };
  const int64_t write_ns = median_ns(options.rounds, [&] { write(0, 0); });
  const int64_t read_ns = median_ns(options.rounds, [&] { read(0, 0); });
  const int64_t both_ns = median_ns(options.rounds, [&] {
    std::thread other([&] { write(half, 1); });
    read(0, 0);
    other.join();
  });
  constexpr int64_t kLeast = 4096;
  const int64_t write_latency =
      median_ns(options.rounds, [&] { status[0] = disk.write(0, a.host.base(), kLeast); });
  const int64_t read_latency =
      median_ns(options.rounds, [&] { status[0] = disk.read(0, a.host2.base(), kLeast); });
  machine.write = {write_latency, per_second(half, write_ns)};
  machine.read = {read_latency, per_second(half, read_ns)};
  machine.disk_both_bytes_per_s = per_second(2 * half, both_ns);
  if (Status moved = first_failure(status); !moved.ok()) return moved;
  const Product product;
  const Interference met = interference(product, median_ns(options.rounds, product), options.rounds,
                                        half, machine.write.bytes_per_s, [&] { write(0, 0); });
  machine.compute_permille_beside_disk = met.op_permille;
  machine.disk_permille_beside_compute = met.copy_permille;
  struct statvfs space{};
  if (statvfs(options.disk_dir.c_str(), &space) == 0)
    machine.disk_bytes =
        static_cast<int64_t>(space.f_bavail) * static_cast<int64_t>(space.f_frsize) + disk.bytes();
  return first_failure(status);
}

}  // namespace

Result<Machine> measure_machine(const MeasureMachineOptions& options) {
  if (options.copy_bytes < (1 << 20))
    return bad_input("copy_bytes: wanted 1 MiB or more, had {}", options.copy_bytes);
  if (!options.disk_dir.empty() && options.disk_bytes < (1 << 20))
    return bad_input("disk_bytes: wanted 1 MiB or more, had {}", options.disk_bytes);
  if (options.rounds < 1) return bad_input("rounds: wanted 1 or more, had {}", options.rounds);
  const auto tell = [&](const std::string& what) {
    if (options.progress) options.progress(what);
  };
  Machine machine;
  machine.name = options.name;
  machine.source =
      fmt::format("measured on {} with {} threads", processor_name(), at::get_num_threads());
  const AvailableMemory memory = available_memory();
  machine.device_bytes = memory.bytes;
  machine.host_bytes = memory.bytes;
  Result<Arenas> arenas = make_arenas(options.copy_bytes);
  if (!arenas.ok()) return arenas.error();
  tell(fmt::format("copies of {} bytes between arenas", options.copy_bytes));
  measure_copies(*arenas, options.rounds, machine);
  tell("matrix products, alone and beside a copy");
  measure_compute(*arenas, options.rounds, machine);
  if (!options.disk_dir.empty()) {
    tell(fmt::format("reads and writes of {} bytes in {}", options.disk_bytes, options.disk_dir));
    if (Status disk = measure_disk(options, *arenas, machine); !disk.ok()) return disk.error();
  }
  if (const std::string busy = busy_machine_note(); !busy.empty()) machine.source += "; " + busy;
  if (Status valid = check_machine(machine); !valid.ok()) return valid.error();
  return machine;
}

}  // namespace outsize
