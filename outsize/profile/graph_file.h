// A graph and what it costs, in one file: what `capture`, `import` and the tests hand to planners.
//
//   Result<GraphFile> file = read_graph_file("gpt2.json");
//   if (!file->profile) ...;  // a graph alone; costs come from elsewhere
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "outsize/base/result.h"
#include "outsize/graph/graph.h"
#include "outsize/profile/profile.h"

namespace outsize {

struct GraphFile {
  Graph graph;
  std::optional<Profile> profile;
  bool operator==(const GraphFile&) const = default;
};

// What comes out has passed check_graph and check_profile.
Result<GraphFile> graph_file_from_json(std::string_view text);
std::string to_json(const GraphFile& file);
// "-": standard input. The error names the path.
Result<GraphFile> read_graph_file(const std::string& path);
Status write_graph_file(const std::string& path, const GraphFile& file);

}  // namespace outsize
