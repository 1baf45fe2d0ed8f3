// What program order gives each op to read: which op wrote each byte last.
//
//   op 0 makes A[0,8), op 1 mutates A[0,4), op 2 reads A[0,8)
//   wanted by op 2, access 0:  A[0,4) version 1, A[4,8) version 0
//
// For the plan checker, which demands that every instruction finds these versions. A version is the
// index of the op that wrote the byte, kEntryVersion for content from before the step, or
// kNoVersion.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "outsize/graph/graph.h"

namespace outsize {

inline constexpr int32_t kEntryVersion = -1;
inline constexpr int32_t kNoVersion = -2;

struct WantedPiece {
  Interval bytes;  // of the access's storage
  int32_t version = kNoVersion;
};

// Accesses of an op count reads, then makes, then mutates, as the operands of an instruction do.
class Versions {
 public:
  // Requires: every access lies inside its storage.
  explicit Versions(const Graph& graph);

  // What `access` of `op` must hold before it runs; tiles the access. Empty for makes.
  std::span<const WantedPiece> wanted(OpId op, size_t access) const;
  // What `storage` holds after the last op of the program; tiles the storage.
  std::span<const WantedPiece> last(StorageId storage) const;

 private:
  std::vector<WantedPiece> pieces_;
  std::vector<size_t> first_access_;  // per op: where its accesses begin in access_begin_
  std::vector<size_t> access_begin_;  // per access, then per storage, then one more: in pieces_
  size_t first_storage_ = 0;
};

}  // namespace outsize
