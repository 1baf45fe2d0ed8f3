#include <map>

#include "outsize/split/split.h"

namespace outsize {
namespace {

// aten.zeros_like.default(self, [fill,] dtype, layout, device, pin_memory, memory_format) makes a
// contiguous tensor of self's sizes: aten.zeros.default(sizes, [fill,] dtype, layout, device,
// pin_memory).
struct Twin {
  const char* name;
  size_t options;     // index of `dtype` among the arguments
  bool takes_format;  // the twin has a memory_format too
};
const std::map<std::string, Twin>& twins() {
  static const std::map<std::string, Twin> kTwins = {
      {"aten.empty_like.default", {"aten.empty.memory_format", 1, true}},
      {"aten.zeros_like.default", {"aten.zeros.default", 1, false}},
      {"aten.ones_like.default", {"aten.ones.default", 1, false}},
      {"aten.full_like.default", {"aten.full.default", 2, false}},
  };
  return kTwins;
}

}  // namespace

Graph without_shape_reads(const Graph& graph) {
  Graph out = graph;
  for (Op& op : out.ops) {
    const auto twin = twins().find(op.name);
    if (twin == twins().end() || op.makes.size() != 1) continue;
    const ValueId* result = value_in(op.results, 0);
    if (result == nullptr || value_in(op.args, 0) == nullptr) continue;
    const Value& value = graph.value(*result);
    // Another layout than the twin's would need a format to be named.
    if (!is_contiguous(value)) continue;
    Argument::List sizes;
    for (const int64_t size : value.sizes) sizes.push_back(Argument{size});
    std::vector<Argument> args = {Argument{std::move(sizes)}};
    if (twin->second.options == 2) args.push_back(op.args[1]);
    args.push_back(Argument{Keyword{"dtype", value.dtype}});
    args.push_back(Argument{});
    args.push_back(
        Argument{Keyword{"device", graph.device_type.empty() ? "cpu" : graph.device_type}});
    args.push_back(Argument{});
    if (twin->second.takes_format) args.push_back(Argument{});
    op.name = twin->second.name;
    op.args = std::move(args);
    op.reads.clear();
  }
  return out;
}

}  // namespace outsize
