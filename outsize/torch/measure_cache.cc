#include "outsize/torch/measure_cache.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <utility>

#include "outsize/base/files.h"
#include "outsize/base/json.h"

namespace outsize {
namespace {

constexpr std::string_view kFormat = "outsize-op-cost";
constexpr int64_t kVersion = 2;
constexpr size_t kMostNotes = 10;

// FNV-1a: a name for a file, nothing more; the key itself stands inside.
uint64_t name_hash(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325ull;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return hash;
}

std::string dump(const Json& json) {
  return json.dump(-1, ' ', true, Json::error_handler_t::replace);
}

// Of all other fields: a file whose numbers have changed by accident is told from a good one.
std::string digest_of(const Json& json) { return fmt::format("{:016x}", name_hash(dump(json))); }

std::string text_of(const std::string& surroundings, const std::string& key, const MeasuredOp& op) {
  Json requests = Json::array();
  for (const Request& request : op.cost.requests)
    requests.push_back({request.bytes, request.output, request.offset});
  Json findings = Json::array();
  for (const LocalFinding& finding : op.findings)
    findings.push_back({{"kind", std::string(kFindingKindNames.name(finding.kind))},
                        {"local", finding.local},
                        {"text", finding.text}});
  Json json = {{"format", std::string(kFormat)},
               {"version", kVersion},
               {"surroundings", surroundings},
               {"key", key},
               {"ns", op.cost.ns},
               {"spread_ns", op.cost.spread_ns},
               {"workspace_bytes", op.cost.workspace_bytes},
               {"scratch", op.cost.scratch},
               {"requests", requests},
               {"runtime_bytes", op.runtime_bytes},
               {"findings", findings},
               {"made_bytes", op.made_bytes}};
  json["digest"] = digest_of(json);
  return dump(json) + "\n";
}

Result<std::optional<MeasuredOp>> op_from(const std::string& text, const std::string& surroundings,
                                          const std::string& key) {
  const Result<Json> json = parse_json(text);
  if (!json.ok()) return json.error();
  JsonErrors errors;
  const JsonNode root(*json, errors);
  JsonFields fields(root);
  read_json_head(fields, kFormat, kVersion);
  MeasuredOp op;
  const bool same = fields.required("surroundings").string() == surroundings &&
                    fields.required("key").string() == key;
  op.cost.ns = fields.required("ns").integer(0);
  op.cost.spread_ns = fields.required("spread_ns").integer(0);
  op.cost.workspace_bytes = fields.required("workspace_bytes").integer(0);
  op.cost.scratch = fields.required("scratch").boolean();
  const JsonNode requests = fields.required("requests");
  for (size_t i = 0; i < requests.size(); ++i) {
    const JsonNode request = requests.at(i);
    if (!request.has_size(3)) break;
    op.cost.requests.push_back({request.at(0).integer(0),
                                static_cast<int32_t>(request.at(1).integer(-1, INT32_MAX)),
                                request.at(2).integer(0)});
  }
  const std::string digest = fields.required("digest").string();
  op.runtime_bytes = fields.required("runtime_bytes").integer(0);
  const JsonNode findings = fields.required("findings");
  for (size_t i = 0; i < findings.size(); ++i) {
    const JsonNode node = findings.at(i);
    JsonFields finding(node);
    const auto kind = finding.required("kind").name(kFindingKindNames);
    const int64_t local = finding.required("local").integer(-1);
    op.findings.push_back({kind, local, finding.required("text").string()});
    finding.finish();
  }
  const JsonNode made = fields.required("made_bytes");
  for (size_t i = 0; i < made.size(); ++i) op.made_bytes.push_back(made.at(i).integer(-1));
  fields.finish();
  if (errors.any()) return errors.first();
  Json rest = *json;
  rest.erase("digest");
  if (digest != digest_of(rest)) return bad_input("its numbers do not fit its digest");
  if (!same) return std::optional<MeasuredOp>();
  return std::optional<MeasuredOp>(std::move(op));
}

}  // namespace

std::string measure_cache_folder(const std::string& folder) {
  if (!folder.empty()) return folder;
  if (const char* chosen = std::getenv("OUTSIZE_CACHE"); chosen != nullptr && *chosen != '\0')
    return chosen;
  if (const char* home = std::getenv("HOME"); home != nullptr && *home != '\0')
    return std::string(home) + "/.cache/outsize";
  return "";
}

std::string processor_name() {
  std::ifstream info("/proc/cpuinfo");
  std::string line;
  while (std::getline(info, line))
    if (line.starts_with("model name"))
      if (const size_t colon = line.find(": "); colon != std::string::npos)
        return line.substr(colon + 2);
  return "unknown processor";
}

std::string busy_machine_note() {
  double load = 0;
  const long cores = std::max(1L, sysconf(_SC_NPROCESSORS_ONLN));
  // What is measured keeps all cores busy itself.
  if (getloadavg(&load, 1) != 1 || load <= 1.5 * static_cast<double>(cores)) return "";
  return fmt::format(
      "load average {:.1f} on {} cores: other work made the times longer than they are", load,
      cores);
}

std::string MeasureCache::path_of(const std::string& key) const {
  return fmt::format("{}/ops/{:016x}.json", folder_, name_hash(surroundings_ + "\n" + key));
}

void MeasureCache::note(std::string text) {
  if (notes_.size() < kMostNotes) notes_.push_back(std::move(text));
}

std::optional<MeasuredOp> MeasureCache::find(const std::string& key) {
  if (folder_.empty()) return std::nullopt;
  const std::string path = path_of(key);
  std::error_code ignored;  // a file that can't be looked at counts as not there
  if (!std::filesystem::exists(path, ignored)) return std::nullopt;
  const Result<std::string> text = read_file(path);
  if (!text.ok()) {
    note(fmt::format("measured again: {}", text.error().message));
    return std::nullopt;
  }
  Result<std::optional<MeasuredOp>> op = op_from(*text, surroundings_, key);
  if (!op.ok()) {
    note(fmt::format("measured again: {} is damaged: {}", path, op.error().message));
    return std::nullopt;
  }
  return *op;
}

void MeasureCache::keep(const std::string& key, const MeasuredOp& op) {
  if (folder_.empty()) return;
  const std::string path = path_of(key);
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  const Status kept = error ? Status(device_error("{}: {}", folder_, error.message()))
                            : write_file_atomically(path, text_of(surroundings_, key, op));
  if (kept.ok()) return;
  note(fmt::format("not kept for later: {}", kept.error().message));
  folder_.clear();  // once is enough
}

}  // namespace outsize
