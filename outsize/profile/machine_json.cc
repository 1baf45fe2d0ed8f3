#include "outsize/profile/machine_json.h"

#include "outsize/base/bytes.h"
#include "outsize/base/json.h"
#include "outsize/base/json_text.h"

namespace outsize {
namespace {

template <typename T>
void append_field(std::string& out, std::string_view name, const T& value) {
  append_json_field(out, name, value, kJsonNextLine);
}

void append_link(std::string& out, std::string_view name, const Link& link) {
  append_json_name(out, name, kJsonNextLine);
  out += "{\"latency_ns\": ";
  append_json(out, link.latency_ns);
  append_json_field(out, "bytes_per_s", link.bytes_per_s);
  out += '}';
}

Link read_link(const JsonNode& node) {
  Link link;
  JsonFields fields(node);
  fields.optional_integer("latency_ns", link.latency_ns, 0);
  link.bytes_per_s = fields.required("bytes_per_s").integer(0);
  fields.finish();
  return link;
}

}  // namespace

std::string to_json(const Machine& machine) {
  std::string out = "{\"format\": \"outsize-machine\", \"version\": 1";
  append_field(out, "name", machine.name);
  append_field(out, "source", machine.source);
  append_field(out, "device_bytes", machine.device_bytes);
  append_field(out, "host_bytes", machine.host_bytes);
  append_field(out, "disk_bytes", machine.disk_bytes);
  append_field(out, "alignment", machine.alignment);
  append_field(out, "disk_alignment", machine.disk_alignment);
  append_json_name(out, "flops_per_s", kJsonNextLine);
  out += '{';
  bool first = true;
  for (const auto& [dtype, rate] : machine.flops_per_s) {
    if (!std::exchange(first, false)) out += ", ";
    append_json(out, dtype);
    out += ": ";
    append_json(out, rate);
  }
  out += '}';
  append_field(out, "achieved_fraction", machine.achieved_fraction);
  append_field(out, "memory_bytes_per_s", machine.memory_bytes_per_s);
  append_field(out, "launch_ns", machine.launch_ns);
  append_link(out, "out", machine.out);
  append_link(out, "in", machine.in);
  append_field(out, "both_bytes_per_s", machine.both_bytes_per_s);
  append_link(out, "write", machine.write);
  append_link(out, "read", machine.read);
  append_field(out, "disk_both_bytes_per_s", machine.disk_both_bytes_per_s);
  append_field(out, "sync_bytes_per_s", machine.sync_bytes_per_s);
  append_field(out, "compute_permille_beside_copy", machine.compute_permille_beside_copy);
  append_field(out, "copy_permille_beside_compute", machine.copy_permille_beside_compute);
  append_field(out, "compute_permille_beside_disk", machine.compute_permille_beside_disk);
  append_field(out, "disk_permille_beside_compute", machine.disk_permille_beside_compute);
  out += "}\n";
  return out;
}

Result<Machine> machine_from_json(std::string_view text) {
  const Result<Json> json = parse_json(text);
  if (!json.ok()) return json.error();
  JsonErrors errors;
  const JsonNode root(*json, errors);
  JsonFields fields(root);
  read_json_head(fields, "outsize-machine", 1);
  Machine machine;
  machine.name = fields.required("name").string();
  fields.optional_string("source", machine.source);
  fields.optional_integer("device_bytes", machine.device_bytes, 0);
  fields.optional_integer("host_bytes", machine.host_bytes, 0);
  fields.optional_integer("disk_bytes", machine.disk_bytes, 0);
  fields.optional_integer("alignment", machine.alignment, 1);
  fields.optional_integer("disk_alignment", machine.disk_alignment, 1);
  if (auto rates = fields.optional("flops_per_s")) {
    // Keys here are dtype names, not fields of ours.
    JsonFields by_dtype(*rates);
    if (rates->json().is_object())
      for (const auto& item : rates->json().items())
        machine.flops_per_s[item.key()] = by_dtype.required(item.key()).number();
  }
  if (auto fraction = fields.optional("achieved_fraction"))
    machine.achieved_fraction = fraction->number();
  fields.optional_integer("memory_bytes_per_s", machine.memory_bytes_per_s, 0);
  fields.optional_integer("launch_ns", machine.launch_ns, 0);
  machine.out = read_link(fields.required("out"));
  machine.in = read_link(fields.required("in"));
  fields.optional_integer("both_bytes_per_s", machine.both_bytes_per_s, 0);
  if (auto link = fields.optional("write")) machine.write = read_link(*link);
  if (auto link = fields.optional("read")) machine.read = read_link(*link);
  fields.optional_integer("disk_both_bytes_per_s", machine.disk_both_bytes_per_s, 0);
  fields.optional_integer("sync_bytes_per_s", machine.sync_bytes_per_s, 0);
  fields.optional_integer("compute_permille_beside_copy", machine.compute_permille_beside_copy, 1);
  fields.optional_integer("copy_permille_beside_compute", machine.copy_permille_beside_compute, 1);
  fields.optional_integer("compute_permille_beside_disk", machine.compute_permille_beside_disk, 1);
  fields.optional_integer("disk_permille_beside_compute", machine.disk_permille_beside_compute, 1);
  fields.finish();
  if (errors.any()) return errors.first();
  if (const Status sound = check_machine(machine); !sound.ok()) return sound.error();
  return machine;
}

}  // namespace outsize
