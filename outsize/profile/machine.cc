#include "outsize/profile/machine.h"

#include <cmath>

#include "outsize/base/bytes.h"
#include "outsize/base/files.h"
#include "outsize/base/names.h"
#include "outsize/profile/machine_json.h"

namespace outsize {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;
constexpr int64_t kGB = 1'000'000'000;

int64_t per_s(double gb) { return static_cast<int64_t>(std::llround(gb * 1e9)); }

// What a preset card says of itself; links in GB/s as reached with pinned memory and large copies.
struct Card {
  const char* name;
  const char* source;
  int64_t device_gb;
  int64_t host_gib;
  double memory_gb_per_s;
  double float32_tf, tf32_tf, half_tf, bfloat16_tf, float8_tf;  // dense peaks; 0: not there
  double achieved_fraction;
  double out_gb_per_s, in_gb_per_s, both_gb_per_s;  // 0: no such link
};

constexpr const char* kPcie3 =
    "data sheet; PCIe 3.0 x16 as commonly measured with pinned memory, both directions at once 1.7 "
    "times one";
constexpr const char* kPcie4 =
    "data sheet; PCIe 4.0 x16 as commonly measured with pinned memory, both directions at once 1.8 "
    "times one";
constexpr const char* kPcie5 =
    "data sheet; PCIe 5.0 x16 as commonly measured with pinned memory, both directions at once 1.8 "
    "times one";
constexpr const char* kUnified =
    "data sheet; memory is unified, so there is no host link to swap over";

constexpr Card kCards[] = {
    {"p100-16gb-pcie3", kPcie3, 16, 128, 732, 9.5, 0, 19.1, 0, 0, 0.75, 12.8, 11.8, 20.9},
    {"v100-16gb-pcie3",
     "data sheet; PCIe 3.0 x16 at 12 GB/s one way and 20 GB/s both ways, the link of the swapping "
     "literature",
     16, 128, 897, 14.1, 0, 112, 0, 0, 0.75, 12, 12, 20},
    {"t4-16gb-pcie3", kPcie3, 15, 64, 320, 8.1, 0, 65, 0, 0, 0.4, 12.5, 12, 20.8},
    {"rtx3090-24gb-pcie4", kPcie4, 24, 128, 936, 35.6, 35.6, 71, 71, 0, 0.75, 25.5, 24.5, 45},
    {"rtx4090-24gb-pcie4", kPcie4, 24, 128, 1008, 82.6, 82.6, 165, 165, 330, 0.75, 26, 25, 45.9},
    {"a100-40gb-pcie4", kPcie4, 40, 256, 1555, 19.5, 156, 312, 312, 0, 0.55, 26, 24.5, 45.4},
    {"a100-80gb-pcie4", kPcie4, 80, 256, 2039, 19.5, 156, 312, 312, 0, 0.55, 26, 24.5, 45.4},
    {"h100-80gb-pcie5", kPcie5, 80, 512, 3350, 66.9, 494.7, 989, 989, 1979, 0.55, 55, 53, 97.2},
    {"h200-141gb-pcie5", kPcie5, 141, 512, 4800, 66.9, 494.7, 989, 989, 1979, 0.55, 55, 53, 97.2},
    {"gh200-96gb-c2c",
     "data sheet; NVLink-C2C as measured by Comm|Scope (arXiv 2407.07850); each direction has a "
     "link "
     "of its own",
     96, 447, 4000, 66.9, 494.7, 989, 989, 1979, 0.55, 297, 375, 0},
    {"mi300x-192gb-pcie5", kPcie5, 192, 512, 5300, 163.4, 653.7, 1307, 1307, 0, 0.55, 53, 53, 95.4},
    {"m2-ultra-192gb", kUnified, 192, 0, 800, 27.2, 0, 27.2, 27.2, 0, 0.75, 0, 0, 0},
    {"m3-max-128gb", kUnified, 128, 0, 400, 14.2, 0, 28, 28, 0, 0.75, 0, 0, 0},
    {"m4-max-128gb", kUnified, 128, 0, 546, 17.5, 0, 34, 34, 0, 0.75, 0, 0, 0},
};

Machine machine_of(const Card& card) {
  Machine machine;
  machine.name = card.name;
  machine.source = card.source;
  machine.device_bytes = card.device_gb * kGB;
  machine.host_bytes = card.host_gib * kGiB;
  machine.disk_bytes = 1'000 * kGB;
  machine.alignment = 512;  // what PyTorch's allocator gives on these devices
  const auto rate = [&](const char* dtype, double tf) {
    if (tf > 0) machine.flops_per_s[dtype] = tf * 1e12;
  };
  rate("float32", card.float32_tf);
  rate("tf32", card.tf32_tf);
  rate("float16", card.half_tf);
  rate("bfloat16", card.bfloat16_tf);
  rate("float8_e4m3fn", card.float8_tf);
  machine.achieved_fraction = card.achieved_fraction;
  machine.memory_bytes_per_s = per_s(card.memory_gb_per_s);
  machine.launch_ns = 5'000;
  if (card.out_gb_per_s > 0) {
    machine.out = {9'000, per_s(card.out_gb_per_s)};  // 8 to 10 us per copy launched
    machine.in = {9'000, per_s(card.in_gb_per_s)};
    machine.both_bytes_per_s = per_s(card.both_gb_per_s);
  }
  // A PCIe 3.0 x4 NVMe drive.
  machine.write = {16'000, per_s(3.2)};
  machine.read = {12'000, per_s(3.2)};
  return machine;
}

// The setting of G10 (MICRO'23): an A100 whose link is the theoretical PCIe 3.0 x16 in each
// direction.
Machine g10_machine() {
  Machine machine;
  for (const Card& card : kCards)
    if (std::string_view(card.name) == "a100-40gb-pcie4") machine = machine_of(card);
  machine.name = "a100-40gb-g10";
  machine.source =
      "platformxlab/G10 (MICRO'23) simulator settings: 40 GB, 15.754 GB/s each way, host 128 GB, "
      "SSD "
      "3.2 GB/s";
  machine.host_bytes = 128 * kGB;
  machine.out = machine.in = {0, per_s(15.754)};
  machine.both_bytes_per_s = 0;
  return machine;
}

Status check_link(const Machine& machine, const Link& link, std::string_view name) {
  if (link.latency_ns < 0 || link.bytes_per_s < 0)
    return bad_input("machine {}: {} has a latency of {} ns and {} bytes/s", machine.name, name,
                     link.latency_ns, link.bytes_per_s);
  return Done{};
}

}  // namespace

Machine unit_machine() {
  Machine machine;
  machine.name = "unit";
  machine.source = "for tests: 1 byte = 1 ns on every link";
  machine.alignment = 1;
  machine.disk_alignment = 1;
  machine.memory_bytes_per_s = kGB;
  machine.out = machine.in = machine.write = machine.read = {0, kGB};
  return machine;
}

std::vector<Machine> preset_machines() {
  std::vector<Machine> machines{unit_machine()};
  for (const Card& card : kCards) machines.push_back(machine_of(card));
  machines.push_back(g10_machine());
  return machines;
}

Result<Machine> find_machine(const std::string& name_or_path) {
  std::vector<std::string> names;
  for (Machine& machine : preset_machines()) {
    if (machine.name == name_or_path) return std::move(machine);
    names.push_back(machine.name);
  }
  const Result<std::string> text = read_file(name_or_path);
  if (text.ok()) {
    Result<Machine> machine = machine_from_json(*text);
    if (!machine.ok()) return bad_input("{}: {}", name_or_path, machine.error().message);
    return machine;
  }
  const std::string nearest = nearest_match(name_or_path, names);
  return bad_input("no machine '{}': not a preset{}, and {}", name_or_path,
                   nearest.empty() ? fmt::format(" (known: {})", fmt::join(names, ", "))
                                   : fmt::format(" (did you mean '{}'?)", nearest),
                   text.error().message);
}

Status check_machine(const Machine& machine) {
  const auto power_of_two = [](int64_t x) { return x > 0 && (x & (x - 1)) == 0; };
  if (machine.name.empty()) return bad_input("a machine needs a name");
  for (const int64_t bytes : {machine.device_bytes, machine.host_bytes, machine.disk_bytes})
    if (bytes < 0 || bytes > kMaxBytes)
      return bad_input("machine {}: a tier of {} bytes; wanted 0 to 2^62", machine.name, bytes);
  if (!power_of_two(machine.alignment) || !power_of_two(machine.disk_alignment))
    return bad_input("machine {}: alignments {} and {}; wanted powers of two", machine.name,
                     machine.alignment, machine.disk_alignment);
  for (const auto& [dtype, rate] : machine.flops_per_s)
    if (!std::isfinite(rate) || rate <= 0)
      return bad_input("machine {}: {} operations/s for {}", machine.name, rate, dtype);
  if (!(machine.achieved_fraction > 0 && machine.achieved_fraction <= 1))
    return bad_input("machine {}: achieved_fraction {}; wanted more than 0, at most 1",
                     machine.name, machine.achieved_fraction);
  if (machine.memory_bytes_per_s < 0 || machine.launch_ns < 0 || machine.both_bytes_per_s < 0 ||
      machine.disk_both_bytes_per_s < 0 || machine.sync_bytes_per_s < 0)
    return bad_input("machine {}: a rate or time below 0", machine.name);
  for (const int64_t permille :
       {machine.compute_permille_beside_copy, machine.copy_permille_beside_compute,
        machine.compute_permille_beside_disk, machine.disk_permille_beside_compute})
    if (permille < 1 || permille > 1000)
      return bad_input("machine {}: {} permille of its speed; wanted 1 to 1000", machine.name,
                       permille);
  if (Status s = check_link(machine, machine.out, "out"); !s.ok()) return s;
  if (Status s = check_link(machine, machine.in, "in"); !s.ok()) return s;
  if (Status s = check_link(machine, machine.write, "write"); !s.ok()) return s;
  return check_link(machine, machine.read, "read");
}

}  // namespace outsize
