// What measuring one distinct op gave, and the folder it is kept in: one JSON file per op and
// surroundings (torch version, threads, processor, what the caches held).
//
//   MeasureCache cache(folder_or_default(""), "torch 2.13.0; 2 threads; AMD EPYC; evict 67108864");
//   if (auto kept = cache.find(key)) ...;  else cache.keep(key, measured);
//
// A file that is damaged, or of another key whose name's hash is equal, is measured again and said
// in `notes`. Files are replaced whole, so that several processes may share a folder.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "outsize/profile/profile.h"
#include "outsize/torch/measure.h"

namespace outsize {

// A finding about a distinct op, before it is told of each op in the graph.
struct LocalFinding {
  FindingKind kind = FindingKind::kGeometry;
  int64_t local = -1;  // index into local_storages; -1: none in particular
  std::string text;    // kGeometry: what was wanted and had; names no ids of the graph
  bool operator==(const LocalFinding&) const = default;
};

struct MeasuredOp {
  OpCost cost;
  int64_t runtime_bytes = 0;  // kept by kernel libraries beside PyTorch's allocator
  std::vector<LocalFinding> findings;
  std::vector<int64_t> made_bytes;  // per `makes`: bytes asked for; -1: no request seen
  bool operator==(const MeasuredOp&) const = default;
};

// `folder` if not empty; else $OUTSIZE_CACHE; else ~/.cache/outsize; empty if there is no home.
std::string measure_cache_folder(const std::string& folder);
// The processor's model name, as the system has it.
std::string processor_name();
// "load average 12.3 on 2 cores: ..." where others kept the machine busy; empty where they did not.
std::string busy_machine_note();

class MeasureCache {
 public:
  // An empty folder: keeps nothing. The folder is made when something is first kept.
  MeasureCache(std::string folder, std::string surroundings)
      : folder_(std::move(folder)), surroundings_(std::move(surroundings)) {}

  std::optional<MeasuredOp> find(const std::string& key);
  void keep(const std::string& key, const MeasuredOp& op);
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  std::string path_of(const std::string& key) const;
  void note(std::string text);

  std::string folder_;
  std::string surroundings_;
  std::vector<std::string> notes_;
};

}  // namespace outsize
