#include "outsize/profile/graph_file.h"

#include "outsize/base/files.h"
#include "outsize/base/json.h"
#include "outsize/graph/graph_json.h"
#include "outsize/profile/profile_json.h"

namespace outsize {

Result<GraphFile> graph_file_from_json(std::string_view text) {
  const Result<Json> json = parse_json(text);
  if (!json.ok()) return json.error();
  JsonErrors errors;
  const JsonNode root(*json, errors);
  GraphFile file;
  file.graph = read_graph(root);
  JsonFields fields(root);
  if (auto profile = fields.optional("profile")) file.profile = read_profile(*profile);
  if (errors.any()) return errors.first();
  if (const Status legal = check_graph(file.graph); !legal.ok()) return legal.error();
  if (!file.profile) return file;
  if (Status fits = check_profile(file.graph, *file.profile); !fits.ok())
    return bad_input("profile: {}", fits.error().message);
  return file;
}

std::string to_json(const GraphFile& file) {
  return to_json(file.graph, file.profile ? to_json(*file.profile) : "");
}

Result<GraphFile> read_graph_file(const std::string& path) {
  const Result<std::string> text = read_file(path);
  if (!text.ok()) return text.error();
  Result<GraphFile> file = graph_file_from_json(*text);
  if (!file.ok()) return bad_input("{}: {}", path, file.error().message);
  return file;
}

Status write_graph_file(const std::string& path, const GraphFile& file) {
  return write_file_atomically(path, to_json(file));
}

}  // namespace outsize
