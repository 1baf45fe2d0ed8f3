#include <cmath>

#include "outsize/base/bytes.h"
#include "outsize/base/json.h"
#include "outsize/graph/graph_json.h"

namespace outsize {
namespace {

constexpr int64_t kMaxId = std::numeric_limits<int32_t>::max();

double read_float_word(const JsonNode& node) {
  const std::string word = node.string();
  if (word == "inf") return INFINITY;
  if (word == "-inf") return -INFINITY;
  if (word == "nan") return NAN;
  node.fail(fmt::format("wanted 'inf', '-inf' or 'nan', had '{}'", word));
  return 0;
}

Argument read_argument(const JsonNode& node);

std::vector<Argument> read_arguments(const JsonNode& node) {
  std::vector<Argument> arguments(node.size());
  for (size_t i = 0; i < arguments.size(); ++i) arguments[i] = read_argument(node.at(i));
  return arguments;
}

// {"value": 3}, {"scalar": 0}, {"float": "inf"}, {"dtype": "float32"}, ...
Argument read_tagged(const JsonNode& node) {
  if (node.json().size() != 1) {
    node.fail("wanted an object with one field, such as {\"value\": 3}");
    return {};
  }
  JsonFields fields(node);
  if (auto field = fields.optional("value")) return {ValueId(field->integer(0, kMaxId))};
  if (auto field = fields.optional("scalar")) return {ScalarId(field->integer(0, kMaxId))};
  if (auto field = fields.optional("float")) return {read_float_word(*field)};
  for (const std::string_view kind : kKeywordKinds)
    if (auto field = fields.optional(kind)) return {Keyword{std::string(kind), field->string()}};
  fields.finish();
  return {};
}

Argument read_argument(const JsonNode& node) {
  switch (node.json().type()) {
    case Json::value_t::null:
      return {};
    case Json::value_t::boolean:
      return {node.boolean()};
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned:
      return {node.integer()};
    case Json::value_t::number_float:
      return {node.number()};
    case Json::value_t::string:
      return {node.string()};
    case Json::value_t::array:
      return {read_arguments(node)};
    default:
      return read_tagged(node);
  }
}

Number read_number(const JsonNode& node) {
  if (node.json().is_boolean()) return node.boolean();
  if (node.json().is_number_integer()) return node.integer();
  if (node.json().is_number_float()) return node.number();
  if (node.json().is_object()) {
    JsonFields fields(node);
    const double value = read_float_word(fields.required("float"));
    fields.finish();
    return value;
  }
  node.fail("wanted a bool or a number");
  return false;
}

std::vector<int64_t> read_integers(const JsonNode& node) {
  std::vector<int64_t> integers(node.size());
  for (size_t i = 0; i < integers.size(); ++i) integers[i] = node.at(i).integer();
  return integers;
}

void read_site(JsonFields& owner, Site& site) {
  const auto node = owner.optional("site");
  if (!node) return;
  JsonFields fields(*node);
  fields.optional_string("module", site.module);
  fields.optional_string("file", site.file);
  fields.optional_integer("line", site.line, 0);
  fields.optional_string("phase", site.phase);
  fields.finish();
}

void read_entry(const JsonNode& node, Storage& storage) {
  JsonFields fields(node);
  storage.bytes = fields.required("bytes").integer(0, kMaxBytes);
  storage.role = fields.required("role").name(kRoleNames);
  fields.optional_bool("entry", storage.entry);
  fields.optional_bool("exit", storage.exit);
  fields.optional_bool("persistent", storage.persistent);
  fields.optional_string("name", storage.name);
  fields.finish();
}

void read_entry(const JsonNode& node, Value& value) {
  JsonFields fields(node);
  value.storage = StorageId(fields.required("storage").integer(0, kMaxId));
  value.dtype = fields.required("dtype").string();
  value.sizes = read_integers(fields.required("sizes"));
  value.strides = read_integers(fields.required("strides"));
  value.offset = fields.required("offset").integer(0);
  fields.optional_bool("conj", value.conj);
  fields.optional_bool("neg", value.neg);
  fields.finish();
}

void read_entry(const JsonNode& node, Scalar& scalar) {
  JsonFields fields(node);
  scalar.kind = fields.required("kind").name(kScalarKindNames);
  fields.optional_string("name", scalar.name);
  fields.optional_string("function", scalar.function);
  if (auto args = fields.optional("args")) scalar.args = read_arguments(*args);
  if (auto present = fields.optional("present")) scalar.present = read_number(*present);
  fields.finish();
}

void read_entry(const JsonNode& node, Guard& guard) {
  JsonFields fields(node);
  guard.scalar = ScalarId(fields.required("scalar").integer(0, kMaxId));
  guard.outcome = read_number(fields.required("outcome"));
  read_site(fields, guard.site);
  fields.finish();
}

void read_accesses(JsonFields& owner, std::string_view name, std::vector<Access>& accesses) {
  const auto node = owner.optional(name);
  if (!node) return;
  accesses.resize(node->size());
  for (size_t i = 0; i < accesses.size(); ++i) {
    const JsonNode entry = node->at(i);
    if (!entry.has_size(3)) return;
    accesses[i].storage = StorageId(entry.at(0).integer(0, kMaxId));
    accesses[i].bytes.begin = entry.at(1).integer(0, kMaxBytes);
    accesses[i].bytes.end = entry.at(2).integer(accesses[i].bytes.begin, kMaxBytes);
  }
}

void read_entry(const JsonNode& node, Op& op) {
  JsonFields fields(node);
  op.name = fields.required("name").string();
  if (auto args = fields.optional("args")) op.args = read_arguments(*args);
  if (auto results = fields.optional("results")) op.results = read_arguments(*results);
  read_accesses(fields, "reads", op.reads);
  read_accesses(fields, "makes", op.makes);
  read_accesses(fields, "mutates", op.mutates);
  fields.optional_bool("uses_rng", op.uses_rng);
  fields.optional_bool("collective", op.collective);
  fields.optional_bool("host_sync", op.host_sync);
  read_site(fields, op.site);
  fields.finish();
}

template <typename T>
void read_table(const JsonNode& node, std::vector<T>& table) {
  table.resize(node.size());
  for (size_t i = 0; i < table.size() && !node.failed(); ++i) read_entry(node.at(i), table[i]);
}

}  // namespace

Graph read_graph(const JsonNode& node) {
  JsonFields fields(node);
  read_json_head(fields, "outsize-graph", 1);
  Graph graph;
  fields.optional_string("title", graph.title);
  fields.optional_string("torch_version", graph.torch_version);
  fields.optional_string("device_type", graph.device_type);
  fields.optional_integer("threads", graph.threads, 0);
  read_table(fields.required("storages"), graph.storages);
  if (auto values = fields.optional("values")) read_table(*values, graph.values);
  if (auto scalars = fields.optional("scalars")) read_table(*scalars, graph.scalars);
  if (auto guards = fields.optional("guards")) read_table(*guards, graph.guards);
  read_table(fields.required("ops"), graph.ops);
  fields.skip("profile");
  fields.finish();
  return graph;
}

Result<Graph> graph_from_json(std::string_view text) {
  const Result<Json> json = parse_json(text);
  if (!json.ok()) return json.error();
  JsonErrors errors;
  Graph graph = read_graph(JsonNode(*json, errors));
  if (errors.any()) return errors.first();
  if (const Status legal = check_graph(graph); !legal.ok()) return legal.error();
  return graph;
}

}  // namespace outsize
