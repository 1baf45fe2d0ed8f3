// outsize/torch/measure.h and measure_machine.h: what ops and links cost here.
#include "outsize/graph/graph_json.h"
#include "outsize/profile/machine_json.h"
#include "outsize/torch/measure.h"
#include "outsize/torch/measure_machine.h"
#include "python/bind/convert.h"
#include "python/bind/tensor.h"

namespace outsize::bind {
namespace {

py::dict to_dict(const Measured& measured) {
  py::dict d;
  d["profile"] = to_json(measured.profile);
  py::list findings;
  for (const Finding& finding : measured.findings) {
    py::dict one;
    one["kind"] = std::string(kFindingKindNames.name(finding.kind));
    one["op"] = finding.op.value;
    one["storage"] = finding.storage.value;
    one["text"] = finding.text;
    findings.append(one);
  }
  d["findings"] = findings;
  py::dict storage_bytes;
  for (const StorageCorrection& c : measured.storage_bytes)
    storage_bytes[py::int_(c.storage.value)] = c.bytes;
  d["storage_bytes"] = storage_bytes;
  d["notes"] = measured.notes;
  d["distinct"] = measured.distinct;
  d["from_cache"] = measured.from_cache;
  d["peak_bytes"] = measured.peak_bytes;
  d["seconds"] = measured.seconds;
  return d;
}

py::dict measure_profile_text(const std::string& graph_text, const py::dict& entry_tensors,
                              const py::dict& dict) {
  const Graph graph = value_or_raise(without_gil([&] { return graph_from_json(graph_text); }));
  std::map<StorageId, at::Tensor> tensors;
  for (const auto& [key, value] : entry_tensors)
    tensors[StorageId{key.cast<int64_t>()}] = tensor_of(value, "entry tensor");
  MeasureOptions options;
  Options given(dict);
  options.machine = given.get<std::string>("machine", options.machine);
  options.timed_runs = given.get<int>("timed_runs", options.timed_runs);
  options.longest_op_ns = given.get<int64_t>("longest_op_ns", options.longest_op_ns);
  options.evict_bytes = given.get<int64_t>("evict_bytes", options.evict_bytes);
  options.seed = given.get<uint64_t>("seed", options.seed);
  options.cache_dir = given.get<std::string>("cache_dir", options.cache_dir);
  options.use_cache = given.get<bool>("use_cache", options.use_cache);
  const auto progress = given.get<py::object>("progress", py::none());
  given.finish();
  std::exception_ptr thrown;
  options.progress = [&](int64_t done, int64_t total) {
    const py::gil_scoped_acquire gil;
    try {
      if (PyErr_CheckSignals() != 0) throw py::error_already_set();
      if (!progress.is_none()) progress(done, total);
    } catch (...) {
      thrown = std::current_exception();
      return false;
    }
    return true;
  };
  const Result<Measured> measured =
      without_gil([&] { return measure_profile(graph, tensors, options); });
  if (thrown) std::rethrow_exception(thrown);
  if (!measured.ok()) raise(measured.error());
  return to_dict(*measured);
}

std::string measure_machine_text(const py::dict& dict) {
  MeasureMachineOptions options;
  Options given(dict);
  options.name = given.get<std::string>("name", options.name);
  options.disk_dir = given.get<std::string>("disk_dir", options.disk_dir);
  options.copy_bytes = given.get<int64_t>("copy_bytes", options.copy_bytes);
  options.disk_bytes = given.get<int64_t>("disk_bytes", options.disk_bytes);
  options.rounds = given.get<int>("rounds", options.rounds);
  const auto progress = given.get<py::object>("progress", py::none());
  given.finish();
  std::exception_ptr thrown;
  if (!progress.is_none())
    options.progress = [&](const std::string& what) {
      const py::gil_scoped_acquire gil;
      try {
        if (!thrown) progress(what);
      } catch (...) {
        thrown = std::current_exception();
      }
    };
  const Result<Machine> machine = without_gil([&] { return measure_machine(options); });
  if (thrown) std::rethrow_exception(thrown);
  if (!machine.ok()) raise(machine.error());
  return to_json(*machine);
}

}  // namespace

void bind_measure(py::module_& module) {
  module.def("measure_profile", &measure_profile_text, py::arg("graph"),
             py::arg("entry_tensors") = py::dict(), py::arg("options") = py::dict());
  module.def("measure_machine", &measure_machine_text, py::arg("options") = py::dict());
}

}  // namespace outsize::bind
