#include "outsize/graph/forward.h"

#include <algorithm>
#include <cctype>
#include <string>

namespace outsize {

size_t forward_ops(const Graph& graph) {
  size_t last = 0;
  for (size_t i = 0; i < graph.ops.size(); ++i)
    if (graph.ops[i].site.phase == "forward") last = i + 1;
  if (last > 0) return last;
  for (size_t i = 1; i < graph.ops.size(); ++i)
    if (name_has(graph.ops[i], {"backward"})) return i;
  const OpId peak = liveness_of(graph, {}).peak_op;
  return peak.valid() ? peak.index() : 0;
}

bool name_has(const Op& op, std::initializer_list<std::string_view> words) {
  std::string name = op.name;
  for (char& letter : name)
    letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  return std::any_of(words.begin(), words.end(),
                     [&](std::string_view word) { return name.find(word) != std::string::npos; });
}

}  // namespace outsize
