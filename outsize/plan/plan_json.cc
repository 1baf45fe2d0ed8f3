#include "outsize/plan/plan_json.h"

#include <array>

#include "outsize/base/bytes.h"
#include "outsize/base/json.h"
#include "outsize/base/json_text.h"

namespace outsize {
namespace {

constexpr int64_t kMaxId = std::numeric_limits<int32_t>::max();

template <typename Tag>
void append(std::string& out, Id<Tag> id) {
  append_json(out, int64_t{id.value});
}

void append(std::string& out, const Interval& interval) {
  append_json(out, std::array<int64_t, 2>{interval.begin, interval.end});
}

template <typename Tag>
void append(std::string& out, const std::vector<Id<Tag>>& ids) {
  append_json_list(out, ids, [](std::string& to, Id<Tag> id) { append(to, id); });
}

template <typename T>
void append_field(std::string& out, std::string_view name, const T& value) {
  append_json_name(out, name);
  append(out, value);
}

void append_entry(std::string& out, const Residency& residency) {
  out += "{\"tier\": ";
  append_json(out, kTierNames.name(residency.tier));
  append_field(out, "storage", residency.part.storage);
  append_field(out, "bytes", residency.part.bytes);
  append_json_field(out, "address", residency.address);
  out += '}';
}

// Fields that mean nothing for the kind (the op of a copy) are left out.
void append_entry(std::string& out, const Instruction& instruction) {
  const bool copy = instruction.kind == InstructionKind::kCopy;
  out += "{\"stream\": ";
  append_json(out, kStreamNames.name(instruction.stream));
  append_json_field(out, "kind", kInstructionKindNames.name(instruction.kind));
  if (copy) {
    append_field(out, "from", instruction.from);
    append_field(out, "to", instruction.to);
    append_field(out, "bytes", instruction.bytes);
  } else {
    append_field(out, "op", instruction.op);
    append_field(out, "operands", instruction.operands);
    if (instruction.workspace != Interval{}) append_field(out, "workspace", instruction.workspace);
  }
  if (!instruction.waits.empty()) append_field(out, "waits", instruction.waits);
  out += '}';
}

void append_entry(std::string& out, const BorderItem& item) {
  out += "{\"residency\": ";
  append(out, item.residency);
  out += item.home ? ", \"home\": true}" : "}";
}

template <typename T>
void append_table(std::string& out, std::string_view name, const std::vector<T>& table) {
  append_json_table(out, name, table,
                    [](std::string& to, const T& entry) { append_entry(to, entry); });
}

template <typename IdType>
IdType read_id(const JsonNode& node) {
  return IdType(node.integer(0, kMaxId));
}

template <typename IdType>
std::vector<IdType> read_ids(const JsonNode& node) {
  std::vector<IdType> ids(node.size());
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = read_id<IdType>(node.at(i));
  return ids;
}

Interval read_interval(const JsonNode& node) {
  if (!node.has_size(2)) return {};
  const int64_t begin = node.at(0).integer(0, kMaxBytes);
  return {begin, node.at(1).integer(begin, kMaxBytes)};
}

void read_entry(const JsonNode& node, Residency& residency) {
  JsonFields fields(node);
  residency.tier = fields.required("tier").name(kTierNames);
  residency.part.storage = read_id<StorageId>(fields.required("storage"));
  residency.part.bytes = read_interval(fields.required("bytes"));
  residency.address = fields.required("address").integer(0, kMaxBytes);
  fields.finish();
}

void read_entry(const JsonNode& node, Instruction& instruction) {
  JsonFields fields(node);
  instruction.stream = fields.required("stream").name(kStreamNames);
  instruction.kind = fields.required("kind").name(kInstructionKindNames);
  if (instruction.kind == InstructionKind::kCopy) {
    instruction.from = read_id<ResidencyId>(fields.required("from"));
    instruction.to = read_id<ResidencyId>(fields.required("to"));
    instruction.bytes = read_interval(fields.required("bytes"));
  } else {
    instruction.op = read_id<OpId>(fields.required("op"));
    instruction.operands = read_ids<ResidencyId>(fields.required("operands"));
    if (auto workspace = fields.optional("workspace"))
      instruction.workspace = read_interval(*workspace);
  }
  if (auto waits = fields.optional("waits")) instruction.waits = read_ids<InstructionId>(*waits);
  fields.finish();
}

void read_entry(const JsonNode& node, BorderItem& item) {
  JsonFields fields(node);
  item.residency = read_id<ResidencyId>(fields.required("residency"));
  fields.optional_bool("home", item.home);
  fields.finish();
}

template <typename T>
void read_table(const JsonNode& node, std::vector<T>& table) {
  table.resize(node.size());
  for (size_t i = 0; i < table.size() && !node.failed(); ++i) read_entry(node.at(i), table[i]);
}

}  // namespace

std::string to_json(const Plan& plan) {
  std::string out = "{\"format\": \"outsize-plan\", \"version\": 1, \"planner\": ";
  append_json(out, plan.planner);
  out += ", \"budgets\": {\"device\": ";
  append_json(out, plan.budgets.device);
  append_json_field(out, "host", plan.budgets.host);
  append_json_field(out, "disk", plan.budgets.disk);
  out += '}';
  append_table(out, "residencies", plan.residencies);
  append_table(out, "instructions", plan.instructions);
  append_table(out, "entry", plan.entry);
  append_table(out, "exit", plan.exit);
  out += "}\n";
  return out;
}

Result<Plan> plan_from_json(std::string_view text) {
  const Result<Json> json = parse_json(text);
  if (!json.ok()) return json.error();
  JsonErrors errors;
  const JsonNode root(*json, errors);
  JsonFields fields(root);
  read_json_head(fields, "outsize-plan", 1);
  Plan plan;
  plan.planner = fields.required("planner").string();
  {
    const JsonNode node = fields.required("budgets");
    JsonFields budgets(node);
    plan.budgets.device = budgets.required("device").integer(0, kMaxBytes);
    plan.budgets.host = budgets.required("host").integer(0, kMaxBytes);
    plan.budgets.disk = budgets.required("disk").integer(0, kMaxBytes);
    budgets.finish();
  }
  read_table(fields.required("residencies"), plan.residencies);
  read_table(fields.required("instructions"), plan.instructions);
  read_table(fields.required("entry"), plan.entry);
  read_table(fields.required("exit"), plan.exit);
  fields.finish();
  if (errors.any()) return errors.first();
  return plan;
}

}  // namespace outsize
