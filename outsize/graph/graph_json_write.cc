#include <array>
#include <cmath>

#include "outsize/base/json_text.h"
#include "outsize/graph/graph_json.h"

namespace outsize {
namespace {

void append(std::string& out, std::string_view text) { out += text; }

void append_flag(std::string& out, std::string_view name, bool flag) {
  if (!flag) return;
  append_json_name(out, name);
  out += "true";
}

// JSON has no infinities and no NaN; an argument says {"float": "inf"}.
void append_float(std::string& out, double value) {
  if (std::isfinite(value)) return append_json(out, value);
  append(out, std::isnan(value) ? R"({"float": "nan"})"
              : value > 0       ? R"({"float": "inf"})"
                                : R"({"float": "-inf"})");
}

void append_tagged(std::string& out, std::string_view tag, int64_t id) {
  out += "{\"";
  out += tag;
  out += "\": ";
  append_json(out, id);
  out += '}';
}

void append_argument(std::string& out, const Argument& argument);

void append_arguments(std::string& out, const std::vector<Argument>& arguments) {
  append_json_list(out, arguments, append_argument);
}

struct ArgumentWriter {
  std::string& out;
  void operator()(std::monostate) { out += "null"; }
  void operator()(bool value) { out += value ? "true" : "false"; }
  void operator()(int64_t value) { append_json(out, value); }
  void operator()(double value) { append_float(out, value); }
  void operator()(const std::string& value) { append_json(out, value); }
  void operator()(ValueId value) { append_tagged(out, "value", value.value); }
  void operator()(ScalarId value) { append_tagged(out, "scalar", value.value); }
  void operator()(const Keyword& value) {
    out += '{';
    append_json(out, value.kind);
    out += ": ";
    append_json(out, value.text);
    out += '}';
  }
  void operator()(const Argument::List& value) { append_arguments(out, value); }
};

void append_argument(std::string& out, const Argument& argument) {
  std::visit(ArgumentWriter{out}, argument.data);
}

void append_number(std::string& out, const Number& number) {
  std::visit(ArgumentWriter{out}, number);
}

void append_string_field(std::string& out, std::string_view name, const std::string& text) {
  if (text.empty()) return;
  append_json_field(out, name, text);
}

void append_site(std::string& out, const Site& site) {
  if (site == Site{}) return;
  std::string fields;
  append_string_field(fields, "module", site.module);
  append_string_field(fields, "file", site.file);
  if (site.line != 0) append_json_field(fields, "line", site.line);
  append_string_field(fields, "phase", site.phase);
  out += ", \"site\": {";
  out += std::string_view(fields).substr(2);
  out += '}';
}

void append_entry(std::string& out, const Storage& storage) {
  out += "{\"bytes\": ";
  append_json(out, storage.bytes);
  append_json_field(out, "role", kRoleNames.name(storage.role));
  append_flag(out, "entry", storage.entry);
  append_flag(out, "exit", storage.exit);
  append_flag(out, "persistent", storage.persistent);
  append_string_field(out, "name", storage.name);
  out += '}';
}

void append_entry(std::string& out, const Value& value) {
  out += "{\"storage\": ";
  append_json(out, int64_t{value.storage.value});
  append_json_field(out, "dtype", value.dtype);
  append_json_field(out, "sizes", value.sizes);
  append_json_field(out, "strides", value.strides);
  append_json_field(out, "offset", value.offset);
  append_flag(out, "conj", value.conj);
  append_flag(out, "neg", value.neg);
  out += '}';
}

void append_entry(std::string& out, const Scalar& scalar) {
  out += "{\"kind\": ";
  append_json(out, kScalarKindNames.name(scalar.kind));
  append_string_field(out, "name", scalar.name);
  append_string_field(out, "function", scalar.function);
  if (!scalar.args.empty()) {
    out += ", \"args\": ";
    append_arguments(out, scalar.args);
  }
  if (scalar.present) {
    out += ", \"present\": ";
    append_number(out, *scalar.present);
  }
  out += '}';
}

void append_entry(std::string& out, const Guard& guard) {
  out += "{\"scalar\": ";
  append_json(out, int64_t{guard.scalar.value});
  out += ", \"outcome\": ";
  append_number(out, guard.outcome);
  append_site(out, guard.site);
  out += '}';
}

void append_access(std::string& out, const Access& access) {
  append_json(out,
              std::array<int64_t, 3>{access.storage.value, access.bytes.begin, access.bytes.end});
}

void append_accesses(std::string& out, std::string_view name, const std::vector<Access>& accesses) {
  if (accesses.empty()) return;
  append_json_name(out, name);
  append_json_list(out, accesses, append_access);
}

void append_entry(std::string& out, const Op& op) {
  out += "{\"name\": ";
  append_json(out, op.name);
  if (!op.args.empty()) {
    out += ", \"args\": ";
    append_arguments(out, op.args);
  }
  if (!op.results.empty()) {
    out += ", \"results\": ";
    append_arguments(out, op.results);
  }
  append_accesses(out, "reads", op.reads);
  append_accesses(out, "makes", op.makes);
  append_accesses(out, "mutates", op.mutates);
  append_flag(out, "uses_rng", op.uses_rng);
  append_flag(out, "collective", op.collective);
  append_flag(out, "host_sync", op.host_sync);
  append_site(out, op.site);
  out += '}';
}

template <typename T>
void append_table(std::string& out, std::string_view name, const std::vector<T>& table) {
  append_json_table(out, name, table,
                    [](std::string& to, const T& entry) { append_entry(to, entry); });
}

}  // namespace

std::string to_json(const Graph& graph, std::string_view profile) {
  std::string out = "{\"format\": \"outsize-graph\", \"version\": 1, \"title\": ";
  append_json(out, graph.title);
  append_json_field(out, "torch_version", graph.torch_version, kJsonNextLine);
  append_json_field(out, "device_type", graph.device_type);
  append_json_field(out, "threads", graph.threads);
  append_table(out, "storages", graph.storages);
  append_table(out, "values", graph.values);
  append_table(out, "scalars", graph.scalars);
  append_table(out, "guards", graph.guards);
  append_table(out, "ops", graph.ops);
  if (!profile.empty()) {
    while (profile.ends_with('\n')) profile.remove_suffix(1);
    out += ",\n \"profile\": ";
    out += profile;
  }
  out += "}\n";
  return out;
}

}  // namespace outsize
