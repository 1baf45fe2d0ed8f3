#include "outsize/share/jobs_json.h"

#include "outsize/base/json.h"
#include "outsize/base/json_text.h"

namespace outsize::share {
namespace {

void append_device(std::string& out, const SharedDevice& device) {
  append_json_name(out, "device", kJsonNextLine);
  out += "{\"memory_bytes\": ";
  append_json(out, device.memory_bytes);
  append_json_field(out, "page_bytes", device.page_bytes);
  append_json_field(out, "memory_bytes_per_s", device.memory_bytes_per_s);
  append_json_field(out, "swap_in_bytes_per_s", device.swap_in_bytes_per_s);
  append_json_field(out, "swap_out_bytes_per_s", device.swap_out_bytes_per_s);
  append_json_field(out, "compute_units", device.compute_units);
  append_json_field(out, "slice_ns", device.slice_ns);
  append_json_field(out, "idle_release_ns", device.idle_release_ns);
  out += '}';
}

void append_point(std::string& out, const CurvePoint& point) {
  out += "{\"budget_bytes\": ";
  append_json(out, point.budget_bytes);
  append_json_field(out, "burst_ns", point.burst_ns);
  append_json_field(out, "moved_bytes", point.moved_bytes);
  out += '}';
}

void append_job(std::string& out, const Job& job) {
  out += "{\"name\": ";
  append_json(out, job.name);
  append_json_field(out, "arrives_ns", job.arrives_ns);
  append_json_field(out, "subtasks", job.subtasks);
  append_json_field(out, "subtask_bytes", job.subtask_bytes);
  append_json_field(out, "rounds", job.rounds);
  append_json_field(out, "compute_ns", job.compute_ns);
  append_json_field(out, "host_first_ns", job.host_first_ns);
  append_json_field(out, "host_ns", job.host_ns);
  append_json_name(out, "writes");
  out += job.writes ? "true" : "false";
  append_json_field(out, "compute_units", job.compute_units);
  if (!job.curve.empty()) {
    append_json_name(out, "curve");
    append_json_list(out, job.curve, append_point);
  }
  out += '}';
}

SharedDevice read_device(const JsonNode& node) {
  SharedDevice device;
  JsonFields fields(node);
  device.memory_bytes = fields.required("memory_bytes").integer(1);
  fields.optional_integer("page_bytes", device.page_bytes, 1);
  fields.optional_integer("memory_bytes_per_s", device.memory_bytes_per_s, 0);
  device.swap_in_bytes_per_s = fields.required("swap_in_bytes_per_s").integer(1);
  device.swap_out_bytes_per_s = fields.required("swap_out_bytes_per_s").integer(1);
  fields.optional_integer("compute_units", device.compute_units, 0);
  fields.optional_integer("slice_ns", device.slice_ns, 0);
  fields.optional_integer("idle_release_ns", device.idle_release_ns, 0);
  fields.finish();
  return device;
}

CurvePoint read_point(const JsonNode& node) {
  CurvePoint point;
  JsonFields fields(node);
  point.budget_bytes = fields.required("budget_bytes").integer(1);
  point.burst_ns = fields.required("burst_ns").integer(1);
  fields.optional_integer("moved_bytes", point.moved_bytes, 0);
  fields.finish();
  return point;
}

Job read_job(const JsonNode& node) {
  Job job;
  JsonFields fields(node);
  job.name = fields.required("name").string();
  fields.optional_integer("arrives_ns", job.arrives_ns, 0);
  fields.optional_integer("subtasks", job.subtasks, 1);
  job.subtask_bytes = fields.required("subtask_bytes").integer(1);
  fields.optional_integer("rounds", job.rounds, 1);
  const JsonNode bursts = fields.required("compute_ns");
  for (size_t i = 0; i < bursts.size(); ++i) job.compute_ns.push_back(bursts.at(i).integer(0));
  fields.optional_integer("host_first_ns", job.host_first_ns, 0);
  fields.optional_integer("host_ns", job.host_ns, 0);
  fields.optional_bool("writes", job.writes);
  fields.optional_integer("compute_units", job.compute_units, 0);
  if (const auto curve = fields.optional("curve"))
    for (size_t i = 0; i < curve->size(); ++i) job.curve.push_back(read_point(curve->at(i)));
  fields.finish();
  return job;
}

}  // namespace

std::string to_json(const Workload& workload) {
  std::string out = "{\"format\": \"outsize-jobs\", \"version\": 1";
  append_json_field(out, "name", workload.name);
  append_json_field(out, "source", workload.source);
  append_device(out, workload.device);
  append_json_table(out, "jobs", workload.jobs, append_job);
  out += "}\n";
  return out;
}

Result<Workload> workload_from_json(std::string_view text) {
  const Result<Json> json = parse_json(text);
  if (!json.ok()) return json.error();
  JsonErrors errors;
  const JsonNode root(*json, errors);
  JsonFields fields(root);
  read_json_head(fields, "outsize-jobs", 1);
  Workload workload;
  fields.optional_string("name", workload.name);
  fields.optional_string("source", workload.source);
  workload.device = read_device(fields.required("device"));
  const JsonNode jobs = fields.required("jobs");
  for (size_t i = 0; i < jobs.size(); ++i) workload.jobs.push_back(read_job(jobs.at(i)));
  fields.finish();
  if (errors.any()) return errors.first();
  if (const Status sound = check_workload(workload); !sound.ok()) return sound.error();
  return workload;
}

}  // namespace outsize::share
