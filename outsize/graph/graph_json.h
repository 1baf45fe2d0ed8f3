// The graph's JSON form: docs/formats/graph.md. Reading what `to_json` wrote gives an equal graph,
// and writing that gives the same bytes.
#pragma once

#include <string>
#include <string_view>

#include "outsize/base/json.h"
#include "outsize/base/result.h"
#include "outsize/graph/graph.h"

namespace outsize {

// One storage, value, scalar, guard or op per line. A non-empty `profile` is the text of an
// outsize-profile object, put in as the field "profile".
std::string to_json(const Graph& graph, std::string_view profile = {});
// Strict; the graph that comes out has passed check_graph. A field "profile" is not looked at (see
// profile/graph_file.h for both).
Result<Graph> graph_from_json(std::string_view text);
// The same from a document that is already open; its graph has *not* passed check_graph.
Graph read_graph(const JsonNode& node);

}  // namespace outsize
