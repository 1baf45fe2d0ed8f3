#include "outsize/profile/profile_json.h"

#include <array>

#include "outsize/base/bytes.h"
#include "outsize/base/json_text.h"

namespace outsize {
namespace {

void append_request(std::string& out, const Request& request) {
  append_json(out, std::array<int64_t, 3>{request.bytes, request.output, request.offset});
}

void append_cost(std::string& out, const OpCost& cost) {
  out += "{\"ns\": ";
  append_json(out, cost.ns);
  if (cost.spread_ns != 0) append_json_field(out, "spread_ns", cost.spread_ns);
  if (cost.workspace_bytes != 0) append_json_field(out, "workspace_bytes", cost.workspace_bytes);
  if (cost.scratch) out += ", \"scratch\": true";
  if (!cost.requests.empty()) {
    append_json_name(out, "requests");
    append_json_list(out, cost.requests, append_request);
  }
  out += '}';
}

OpCost read_cost(const JsonNode& node) {
  OpCost cost;
  JsonFields fields(node);
  cost.ns = fields.required("ns").integer(0);
  fields.optional_integer("spread_ns", cost.spread_ns, 0);
  fields.optional_integer("workspace_bytes", cost.workspace_bytes, 0);
  fields.optional_bool("scratch", cost.scratch);
  if (auto requests = fields.optional("requests")) {
    cost.requests.resize(requests->size());
    for (size_t i = 0; i < cost.requests.size(); ++i) {
      const JsonNode entry = requests->at(i);
      if (!entry.has_size(3)) break;
      Request& request = cost.requests[i];
      request.bytes = entry.at(0).integer(0, kMaxBytes);
      request.output =
          static_cast<int32_t>(entry.at(1).integer(-1, std::numeric_limits<int32_t>::max()));
      request.offset = entry.at(2).integer(0, kMaxBytes);
    }
  }
  fields.finish();
  return cost;
}

}  // namespace

std::string to_json(const Profile& profile) {
  std::string out = "{\"format\": \"outsize-profile\", \"version\": 1";
  append_json_field(out, "how", profile.how);
  append_json_field(out, "machine", profile.machine);
  append_json_field(out, "torch_version", profile.torch_version);
  append_json_field(out, "threads", profile.threads);
  append_json_field(out, "runtime_bytes", profile.runtime_bytes);
  append_json_table(out, "ops", profile.ops, append_cost);
  out += "}\n";
  return out;
}

Profile read_profile(const JsonNode& node) {
  Profile profile;
  JsonFields fields(node);
  read_json_head(fields, "outsize-profile", 1);
  const JsonNode how = fields.required("how");
  profile.how = how.string();
  if (profile.how != "measured" && profile.how != "roofline" && profile.how != "stated")
    how.fail(fmt::format("wanted measured, roofline or stated, had '{}'", profile.how));
  fields.optional_string("machine", profile.machine);
  fields.optional_string("torch_version", profile.torch_version);
  fields.optional_integer("threads", profile.threads, 0);
  fields.optional_integer("runtime_bytes", profile.runtime_bytes, 0);
  const JsonNode ops = fields.required("ops");
  profile.ops.resize(ops.size());
  for (size_t i = 0; i < profile.ops.size() && !node.failed(); ++i)
    profile.ops[i] = read_cost(ops.at(i));
  fields.finish();
  return profile;
}

Result<Profile> profile_from_json(std::string_view text) {
  const Result<Json> json = parse_json(text);
  if (!json.ok()) return json.error();
  JsonErrors errors;
  Profile profile = read_profile(JsonNode(*json, errors));
  if (errors.any()) return errors.first();
  return profile;
}

}  // namespace outsize
