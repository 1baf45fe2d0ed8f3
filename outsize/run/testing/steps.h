// What tests that run steps share: what is there at entry, what has to be there at exit, and that
// no thread stays behind.
//
//   device.set_entry(entry = random_entry(c.graph, 1));
//   executor->step();
//   expect_same_as_program_order(c, device, entry, generator);  // the device's before the step
#pragma once

#include <dirent.h>
#include <gtest/gtest.h>

#include "outsize/base/random.h"
#include "outsize/profile/profile.h"
#include "outsize/run/testing/fake_device.h"
#include "outsize/run/testing/random_plans.h"

namespace outsize::testing {

inline Contents random_entry(const Graph& graph, uint64_t seed) {
  Random random(seed);
  Contents contents;
  for (size_t s = 0; s < graph.storages.size(); ++s) {
    if (!graph.storages[s].entry) continue;
    auto& bytes = contents[StorageId{static_cast<int64_t>(s)}];
    bytes.resize(static_cast<size_t>(graph.storages[s].bytes));
    for (uint8_t& b : bytes) b = static_cast<uint8_t>(random.next());
  }
  return contents;
}

// 1 ns an op, and the case's workspaces.
inline Profile profile_of(const Case& c) {
  Profile profile;
  profile.how = "stated";
  for (const int64_t workspace : c.workspaces) {
    OpCost cost;
    cost.ns = 1;
    cost.workspace_bytes = workspace;
    profile.ops.push_back(cost);
  }
  return profile;
}

inline void expect_same_as_program_order(const Case& c, FakeDevice& device, const Contents& entry,
                                         uint64_t generator) {
  const Contents wanted = program_order(c.graph, entry, generator);
  for (const auto& [storage, bytes] : device.exit_contents())
    EXPECT_EQ(bytes, wanted.at(storage)) << "storage " << storage.value;
}

inline int threads_now() {
  int count = 0;
  DIR* tasks = opendir("/proc/self/task");
  while (const dirent* entry = readdir(tasks)) count += entry->d_name[0] != '.' ? 1 : 0;
  closedir(tasks);
  return count;
}

}  // namespace outsize::testing
