#include "outsize/bound/touched.h"

#include <algorithm>

namespace outsize {

std::vector<std::pair<StorageId, int64_t>> touched_bytes(const Graph& graph, OpId op) {
  const Op& o = graph.op(op);
  std::vector<Access> touched;
  for (const auto* list : {&o.reads, &o.makes, &o.mutates})
    touched.insert(touched.end(), list->begin(), list->end());
  std::sort(touched.begin(), touched.end(), [](const Access& a, const Access& b) {
    return a.storage != b.storage ? a.storage < b.storage : a.bytes < b.bytes;
  });
  std::vector<std::pair<StorageId, int64_t>> bytes;
  int64_t end = 0;
  for (const Access& access : touched) {
    if (bytes.empty() || bytes.back().first != access.storage) {
      bytes.emplace_back(access.storage, 0);
      end = 0;
    }
    bytes.back().second +=
        std::max<int64_t>(0, access.bytes.end - std::max(end, access.bytes.begin));
    end = std::max(end, access.bytes.end);
  }
  return bytes;
}

}  // namespace outsize
