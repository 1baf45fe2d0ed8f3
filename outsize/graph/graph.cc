#include "outsize/graph/graph.h"

#include <algorithm>
#include <array>
#include <utility>

namespace outsize {
namespace {

// PyTorch's dtypes of fixed size per element.
constexpr std::array<std::pair<std::string_view, int64_t>, 27> kDtypes{{
    {"float32", 4},
    {"float64", 8},
    {"float16", 2},
    {"bfloat16", 2},
    {"int64", 8},
    {"int32", 4},
    {"int16", 2},
    {"int8", 1},
    {"uint8", 1},
    {"uint16", 2},
    {"uint32", 4},
    {"uint64", 8},
    {"bool", 1},
    {"complex32", 4},
    {"complex64", 8},
    {"complex128", 16},
    {"float8_e4m3fn", 1},
    {"float8_e5m2", 1},
    {"float8_e4m3fnuz", 1},
    {"float8_e5m2fnuz", 1},
    {"float8_e8m0fnu", 1},
    {"float4_e2m1fn_x2", 1},
    {"bits8", 1},
    {"bits16", 2},
    {"bits1x8", 1},
    {"bits2x4", 1},
    {"bits4x2", 1},
}};

}  // namespace

int64_t element_bytes(const std::string& dtype) {
  for (const auto& [name, bytes] : kDtypes)
    if (name == dtype) return bytes;
  return 0;
}

Interval bytes_of(const Value& value) {
  const int64_t element = element_bytes(value.dtype);
  OUTSIZE_CHECK(element > 0, "bytes of a value of dtype '{}'", value.dtype);
  OUTSIZE_CHECK(value.sizes.size() == value.strides.size(), "{} sizes and {} strides",
                value.sizes.size(), value.strides.size());
  int64_t last = value.offset;
  for (size_t i = 0; i < value.sizes.size(); ++i) {
    if (value.sizes[i] == 0) return {value.offset * element, value.offset * element};
    last += (value.sizes[i] - 1) * value.strides[i];
  }
  return {value.offset * element, (last + 1) * element};
}

Liveness liveness_of(const Graph& graph, const std::vector<int64_t>& workspace_bytes) {
  OUTSIZE_CHECK(workspace_bytes.empty() || workspace_bytes.size() == graph.ops.size(),
                "{} workspaces for {} ops", workspace_bytes.size(), graph.ops.size());
  const size_t ops = graph.ops.size();
  Liveness result;
  result.touched_by.resize(graph.storages.size());
  result.live_bytes.resize(ops);

  std::vector<std::pair<StorageId, Interval>> touched;
  for (size_t t = 0; t < ops; ++t) {
    const Op& op = graph.ops[t];
    touched.clear();
    for (const auto* accesses : {&op.reads, &op.makes, &op.mutates})
      for (const Access& access : *accesses) touched.emplace_back(access.storage, access.bytes);
    std::sort(touched.begin(), touched.end());
    int64_t working_set = workspace_bytes.empty() ? 0 : workspace_bytes[t];
    // A byte that an op touches through two accesses counts once.
    StorageId storage;
    int64_t counted_to = 0;
    for (const auto& [id, bytes] : touched) {
      if (id != storage) {
        storage = id;
        counted_to = 0;
        result.touched_by[id.index()].emplace_back(static_cast<int64_t>(t));
      }
      const int64_t begin = std::max(bytes.begin, counted_to);
      if (bytes.end > begin) working_set += bytes.end - begin;
      counted_to = std::max(counted_to, bytes.end);
    }
    if (!result.largest_op.valid() || working_set > result.largest_working_set) {
      result.largest_working_set = working_set;
      result.largest_op = OpId(static_cast<int64_t>(t));
    }
  }

  // Bytes that come to life at an op, less those whose last op is the one before.
  std::vector<int64_t> change(ops + 1, 0);
  for (size_t s = 0; s < graph.storages.size(); ++s) {
    const Storage& storage = graph.storages[s];
    const std::vector<OpId>& touches = result.touched_by[s];
    if (storage.persistent) result.persistent_bytes += storage.bytes;
    // Content that no op makes, uses or hands on needs no room.
    if (touches.empty() && !(storage.entry && storage.exit)) continue;
    const size_t begin = storage.entry ? 0 : touches.front().index();
    const size_t end = storage.exit ? ops : touches.back().index() + 1;
    change[begin] += storage.bytes;
    change[end] -= storage.bytes;
  }
  int64_t live = 0;
  for (size_t t = 0; t < ops; ++t) {
    live += change[t];
    result.live_bytes[t] = live + (workspace_bytes.empty() ? 0 : workspace_bytes[t]);
    if (!result.peak_op.valid() || result.live_bytes[t] > result.peak_bytes) {
      result.peak_bytes = result.live_bytes[t];
      result.peak_op = OpId(static_cast<int64_t>(t));
    }
  }
  return result;
}

}  // namespace outsize
