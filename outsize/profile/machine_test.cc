#include "outsize/profile/machine.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "outsize/base/files.h"
#include "outsize/base/text_edits.h"
#include "outsize/profile/machine_json.h"

namespace outsize {
namespace {

// The example of docs/formats/machine.md: the unit machine.
constexpr std::string_view kUnit = R"(
{"format": "outsize-machine", "version": 1, "name": "unit", "source": "for tests: 1 byte = 1 ns on every link",
 "device_bytes": 0, "host_bytes": 0, "disk_bytes": 0, "alignment": 1, "disk_alignment": 1,
 "flops_per_s": {}, "achieved_fraction": 1.0, "memory_bytes_per_s": 1000000000, "launch_ns": 0,
 "out": {"latency_ns": 0, "bytes_per_s": 1000000000}, "in": {"latency_ns": 0, "bytes_per_s": 1000000000},
 "both_bytes_per_s": 0, "write": {"latency_ns": 0, "bytes_per_s": 1000000000},
 "read": {"latency_ns": 0, "bytes_per_s": 1000000000}, "disk_both_bytes_per_s": 0, "sync_bytes_per_s": 0,
 "compute_permille_beside_copy": 1000, "copy_permille_beside_compute": 1000,
 "compute_permille_beside_disk": 1000, "disk_permille_beside_compute": 1000}
)";

TEST(MachineJson, ReadsThePageOfItsFormat) {
  const Result<Machine> machine = machine_from_json(kUnit);
  ASSERT_TRUE(machine.ok()) << machine.error().message;
  EXPECT_EQ(*machine, unit_machine());
}

TEST(MachineJson, OnlyThreeFieldsAreNeeded) {
  const Result<Machine> machine = machine_from_json(
      R"({"format": "outsize-machine", "version": 1, "name": "m", "out": {"bytes_per_s": 5},
          "in": {"bytes_per_s": 6}, "flops_per_s": {"float32": 2, "bfloat16": 0.5}})");
  ASSERT_TRUE(machine.ok()) << machine.error().message;
  Machine expected;
  expected.name = "m";
  expected.out.bytes_per_s = 5;
  expected.in.bytes_per_s = 6;
  expected.flops_per_s = {{"float32", 2.0}, {"bfloat16", 0.5}};
  EXPECT_EQ(*machine, expected);
}

TEST(MachineJson, RejectsWithThePath) {
  const auto error_with = [](std::string_view from, std::string_view to) -> std::string {
    std::string text(kUnit);
    text.replace(text.find(from), from.size(), to);
    const Result<Machine> machine = machine_from_json(text);
    return machine.ok() ? "" : machine.error().message;
  };
  EXPECT_EQ(error_with("\"latency_ns\": 0", "\"latency\": 0"),
            "out: unknown field 'latency' (did you mean 'latency_ns'?)");
  EXPECT_EQ(error_with("\"flops_per_s\": {}", "\"flops_per_s\": {\"float32\": \"fast\"}"),
            "flops_per_s.float32: wanted a number, had a string");
  EXPECT_EQ(error_with("\"alignment\": 1", "\"alignment\": 0"),
            "alignment: wanted 1 or more, had 0");
  EXPECT_EQ(error_with("\"alignment\": 1", "\"alignment\": 24"),
            "machine unit: alignments 24 and 1; wanted powers of two");
  EXPECT_EQ(error_with("\"name\": \"unit\", ", ""), "field 'name' is missing");
}

TEST(MachineJson, DamageIsRefusedOrHarmless) {
  Random random(31);
  for (int i = 0; i < 3'000; ++i) {
    const Result<Machine> machine = machine_from_json(damaged(kUnit, random));
    if (machine.ok()) {
      ASSERT_TRUE(check_machine(*machine).ok());
      ASSERT_EQ(*machine_from_json(to_json(*machine)), *machine);
    }
  }
}

TEST(Presets, AreSoundNamedOnceAndRoundTrip) {
  std::set<std::string> names;
  for (const Machine& machine : preset_machines()) {
    EXPECT_TRUE(check_machine(machine).ok()) << check_machine(machine).error().message;
    EXPECT_TRUE(names.insert(machine.name).second) << machine.name;
    EXPECT_FALSE(machine.source.empty()) << machine.name;
    const std::string text = to_json(machine);
    EXPECT_EQ(*machine_from_json(text), machine);
    EXPECT_EQ(to_json(*machine_from_json(text)), text);
    EXPECT_EQ(*find_machine(machine.name), machine);
    // Both directions together are no slower than one and no faster than two.
    if (machine.both_bytes_per_s > 0) {
      EXPECT_GE(machine.both_bytes_per_s,
                std::max(machine.out.bytes_per_s, machine.in.bytes_per_s));
      EXPECT_LE(machine.both_bytes_per_s, machine.out.bytes_per_s + machine.in.bytes_per_s);
    }
  }
  const Machine v100 = *find_machine("v100-16gb-pcie3");
  EXPECT_EQ(v100.out.bytes_per_s, 12'000'000'000);
  EXPECT_EQ(v100.in.bytes_per_s, 12'000'000'000);
  EXPECT_EQ(v100.both_bytes_per_s, 20'000'000'000);
  EXPECT_EQ(v100.device_bytes, 16'000'000'000);
  const Machine g10 = *find_machine("a100-40gb-g10");
  EXPECT_EQ(g10.out.bytes_per_s, 15'754'000'000);
  EXPECT_EQ(g10.in.bytes_per_s, 15'754'000'000);
  EXPECT_EQ(g10.both_bytes_per_s, 0);
  EXPECT_EQ(g10.host_bytes, 128'000'000'000);
}

TEST(FindMachine, FilesAndNearNames) {
  const std::string path = testing::TempDir() + "outsize-machine.json";
  Machine machine = unit_machine();
  machine.name = "mine";
  ASSERT_TRUE(write_file_atomically(path, to_json(machine)).ok());
  EXPECT_EQ(*find_machine(path), machine);
  ASSERT_TRUE(write_file_atomically(path, "[]").ok());
  EXPECT_EQ(find_machine(path).error().message.substr(0, path.size() + 2), path + ": ");
  const Result<Machine> none = find_machine("v100-16g-pcie3");
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(
      none.error().message,
      "no machine 'v100-16g-pcie3': not a preset (did you mean 'v100-16gb-pcie3'?), and can't "
      "open v100-16g-pcie3: No such file or directory");
}

TEST(CheckMachine, OneNegativePerRule) {
  const auto bad = [](auto change) {
    Machine machine = unit_machine();
    change(machine);
    return !check_machine(machine).ok();
  };
  EXPECT_FALSE(bad([](Machine&) {}));
  EXPECT_FALSE(bad([](Machine& m) { m.out.bytes_per_s = 0; }));  // no such link
  EXPECT_TRUE(bad([](Machine& m) { m.name.clear(); }));
  EXPECT_TRUE(bad([](Machine& m) { m.device_bytes = -1; }));
  EXPECT_TRUE(bad([](Machine& m) { m.alignment = 3; }));
  EXPECT_TRUE(bad([](Machine& m) { m.disk_alignment = 0; }));
  EXPECT_TRUE(bad([](Machine& m) { m.flops_per_s["float32"] = 0; }));
  EXPECT_TRUE(bad([](Machine& m) { m.flops_per_s["float32"] = INFINITY; }));
  EXPECT_TRUE(bad([](Machine& m) { m.achieved_fraction = 0; }));
  EXPECT_TRUE(bad([](Machine& m) { m.achieved_fraction = NAN; }));
  EXPECT_TRUE(bad([](Machine& m) { m.achieved_fraction = 1.5; }));
  EXPECT_TRUE(bad([](Machine& m) { m.memory_bytes_per_s = -1; }));
  EXPECT_TRUE(bad([](Machine& m) { m.launch_ns = -1; }));
  EXPECT_TRUE(bad([](Machine& m) { m.both_bytes_per_s = -1; }));
  EXPECT_TRUE(bad([](Machine& m) { m.disk_both_bytes_per_s = -1; }));
  EXPECT_TRUE(bad([](Machine& m) { m.sync_bytes_per_s = -1; }));
  EXPECT_TRUE(bad([](Machine& m) { m.compute_permille_beside_copy = 0; }));
  EXPECT_TRUE(bad([](Machine& m) { m.copy_permille_beside_compute = 1001; }));
  EXPECT_TRUE(bad([](Machine& m) { m.compute_permille_beside_disk = 0; }));
  EXPECT_TRUE(bad([](Machine& m) { m.disk_permille_beside_compute = 1001; }));
  EXPECT_TRUE(bad([](Machine& m) { m.in.latency_ns = -1; }));
  EXPECT_TRUE(bad([](Machine& m) { m.out.bytes_per_s = -1; }));
  EXPECT_TRUE(bad([](Machine& m) { m.write.bytes_per_s = -1; }));
  EXPECT_TRUE(bad([](Machine& m) { m.read.latency_ns = -1; }));
}

}  // namespace
}  // namespace outsize
