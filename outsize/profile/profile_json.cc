#include "outsize/profile/profile_json.h"

#include "outsize/base/bytes.h"
#include "outsize/base/json_text.h"

namespace outsize {
namespace {

void append_field(std::string& out, std::string_view name, int64_t value) {
  if (value == 0) return;
  out += ", \"";
  out += name;
  out += "\": ";
  append_json(out, value);
}

void append_cost(std::string& out, const OpCost& cost) {
  out += "{\"ns\": ";
  append_json(out, cost.ns);
  append_field(out, "spread_ns", cost.spread_ns);
  append_field(out, "workspace_bytes", cost.workspace_bytes);
  if (cost.scratch) out += ", \"scratch\": true";
  if (!cost.requests.empty()) {
    out += ", \"requests\": [";
    for (size_t i = 0; i < cost.requests.size(); ++i) {
      out += i > 0 ? ", [" : "[";
      append_json(out, cost.requests[i].bytes);
      out += ", ";
      append_json(out, int64_t{cost.requests[i].output});
      out += ", ";
      append_json(out, cost.requests[i].offset);
      out += ']';
    }
    out += ']';
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
  std::string out = "{\"format\": \"outsize-profile\", \"version\": 1, \"how\": ";
  append_json(out, profile.how);
  out += ", \"machine\": ";
  append_json(out, profile.machine);
  out += ", \"torch_version\": ";
  append_json(out, profile.torch_version);
  out += ", \"threads\": ";
  append_json(out, profile.threads);
  out += ", \"runtime_bytes\": ";
  append_json(out, profile.runtime_bytes);
  out += ",\n \"ops\": [";
  for (size_t i = 0; i < profile.ops.size(); ++i) {
    out += i > 0 ? ",\n  " : "\n  ";
    append_cost(out, profile.ops[i]);
  }
  out += "]}\n";
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
