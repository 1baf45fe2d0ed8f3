// Measuring: what every op of a graph costs on this machine, by running each distinct op (name,
// arguments, geometry of its tensors) on operands of the right shapes, and looking at what it does.
//
//   Result<Measured> m = measure_profile(graph, entry_tensors, {.machine = "here"});
//   m->profile.ops[17].ns, .requests, .workspace_bytes;   m->findings: where the graph is wrong
//
// While at it the graph is checked against what the ops do: an input changed that the graph calls
// read only, an output that lies on an input, sizes or strides that differ. Needs memory for one
// op's operands and outputs at a time plus the evicting buffer, never more. Results are kept on
// disk per distinct op, torch version, thread count and processor. Threads: runs on the calling
// thread (and torch's own); nothing else should use the machine.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "outsize/base/names.h"
#include "outsize/base/result.h"
#include "outsize/graph/graph.h"
#include "outsize/profile/profile.h"

namespace outsize {

struct MeasureOptions {
  std::string machine = "this machine";  // Profile::machine
  // Affects result: timed runs of each distinct op (1 warm-up run comes before), fewer (not below
  // 2) once `longest_op_ns` is spent on one.
  int timed_runs = 5;
  int64_t longest_op_ns = 2'000'000'000;
  // Affects result: bytes walked over before each timed run, so that operands lie cold as they do
  // in a step. 0: warm.
  int64_t evict_bytes = int64_t{64} << 20;
  uint64_t seed = 1;
  // Affects speed: a folder for results; "": $OUTSIZE_CACHE, else ~/.cache/outsize.
  std::string cache_dir;
  bool use_cache = true;
  // Called now and then with distinct ops done and to do; returning false cancels.
  std::function<bool(int64_t done, int64_t total)> progress;
};

enum class FindingKind {
  kChangedInput,   // an input that the graph does not say is mutated was changed
  kOutputOnInput,  // an output that the graph says is made lies on an input
  kGeometry,       // a result's sizes, strides, offset or dtype are not the graph's
  kStorageBytes,   // an output asked for other bytes than its storage has: see
                   // Measured::storage_bytes
};
inline constexpr EnumNames<FindingKind, 4> kFindingKindNames{
    {{{FindingKind::kChangedInput, "changed input"},
      {FindingKind::kOutputOnInput, "output on input"},
      {FindingKind::kGeometry, "geometry"},
      {FindingKind::kStorageBytes, "storage bytes"}}}};

struct Finding {
  FindingKind kind = FindingKind::kGeometry;
  OpId op;            // each op concerned has its own
  StorageId storage;  // the one concerned; none where it is about a result alone
  std::string text;   // names op, site, what was wanted and what was seen
  bool operator==(const Finding&) const = default;
};

struct StorageCorrection {
  StorageId storage;
  int64_t bytes = 0;  // what the op that makes it asks for
  bool operator==(const StorageCorrection&) const = default;
};

struct Measured {
  Profile profile;
  std::vector<Finding> findings;                 // program order
  std::vector<StorageCorrection> storage_bytes;  // by storage id
  std::vector<std::string> notes;                // damaged cache entries and the like
  int64_t distinct = 0;                          // distinct ops
  int64_t from_cache = 0;                        // of those, taken from the cache
  int64_t peak_bytes = 0;                        // most that measuring held at once
  double seconds = 0;
};

// `entry_tensors`: real tensors for entry storages, where the caller has them (a batch: token ids
// must be ids); their bytes are copied, never changed. Others get random numbers of their dtype.
// Fails (naming op and site) where an op can't be called; what an op does otherwise than the graph
// says is a finding. The caller decides about findings.
Result<Measured> measure_profile(const Graph& graph,
                                 const std::map<StorageId, at::Tensor>& entry_tensors,
                                 const MeasureOptions& options);

}  // namespace outsize
