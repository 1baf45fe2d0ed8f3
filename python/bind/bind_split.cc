// outsize/split and outsize/torch/prove.h: graphs whose large ops are split, bits unchanged.
#include "outsize/graph/graph_json.h"
#include "outsize/split/choose.h"
#include "outsize/split/pointwise.h"
#include "outsize/split/rows.h"
#include "outsize/torch/prove.h"
#include "python/bind/convert.h"

namespace outsize::bind {
namespace {

ProveOptions prove_options(Options& given) {
  ProveOptions options;
  options.runs = given.get<int>("runs", options.runs);
  options.seed = given.get<uint64_t>("seed", options.seed);
  options.cache_dir = given.get<std::string>("cache_dir", options.cache_dir);
  options.use_cache = given.get<bool>("use_cache", options.use_cache);
  return options;
}

Cut cut_from(const py::handle& object) {
  const auto dict = object.cast<py::dict>();
  Cut cut;
  cut.op = OpId{dict["op"].cast<int64_t>()};
  const auto name = dict["kind"].cast<std::string>();
  const auto kind = kCutKindNames.find(name);
  if (!kind) raise(bad_input("no kind of cut '{}'", name));
  cut.kind = *kind;
  cut.bounds = dict["bounds"].cast<std::vector<int64_t>>();
  if (dict.contains("run")) cut.run = dict["run"].cast<int64_t>();
  return cut;
}

py::dict split_text(const std::string& graph_text, const py::dict& dict) {
  const Graph graph = value_or_raise(without_gil([&] { return graph_from_json(graph_text); }));
  Options given(dict);
  SplitOptions options;
  options.largest_bytes = given.get<int64_t>("largest_bytes", 0);
  options.workspace_bytes =
      given.get<std::vector<int64_t>>("workspace_bytes", options.workspace_bytes);
  options.least_piece_bytes = given.get<int64_t>("least_piece_bytes", options.least_piece_bytes);
  const ProveOptions proving = prove_options(given);
  given.finish();
  Prover prover(proving);
  std::exception_ptr thrown;
  options.prove = [&](const Graph& of, const Cut& cut) -> Result<Proof> {
    {
      const py::gil_scoped_acquire gil;
      if (PyErr_CheckSignals() != 0) {
        thrown = std::make_exception_ptr(py::error_already_set());
        return Error{ErrorKind::kCancelled, "proving cuts was interrupted"};
      }
    }
    return prover.prove(of, cut);
  };
  std::string text;
  const Result<Split> split = without_gil([&] {
    Result<Split> made = split_graph(graph, options);
    if (made.ok()) text = to_json(made->graph);
    return made;
  });
  if (thrown) std::rethrow_exception(thrown);
  if (!split.ok()) raise(split.error());
  py::list cuts, refused;
  for (const SplitDone& done : split->done) {
    py::dict one;
    one["op"] = done.op;
    one["kind"] = std::string(kCutKindNames.name(done.kind));
    one["pieces"] = done.pieces;
    one["bytes_before"] = done.bytes_before;
    one["bytes_after"] = done.bytes_after;
    cuts.append(one);
  }
  for (const SplitRefused& refusal : split->refused) {
    py::dict one;
    one["op"] = refusal.op;
    one["kind"] = std::string(kCutKindNames.name(refusal.kind));
    one["why"] = refusal.why;
    refused.append(one);
  }
  py::dict d;
  d["graph"] = text;
  d["cuts"] = cuts;
  d["refused"] = refused;
  d["proved"] = prover.proved();
  d["from_cache"] = prover.from_cache();
  return d;
}

py::list cuts_text(const std::string& graph_text) {
  const Graph graph = value_or_raise(graph_from_json(graph_text));
  py::list out;
  for (size_t t = 0; t < graph.ops.size(); ++t)
    for (const Cut& cut : cuts_of(graph, OpId(static_cast<int64_t>(t)))) {
      py::dict one;
      one["op"] = cut.op.value;
      one["kind"] = std::string(kCutKindNames.name(cut.kind));
      one["bounds"] = cut.bounds;
      out.append(one);
    }
  return out;
}

py::dict prove_text(const std::string& graph_text, const py::dict& cut, const py::dict& dict) {
  const Graph graph = value_or_raise(graph_from_json(graph_text));
  Options given(dict);
  const ProveOptions options = prove_options(given);
  given.finish();
  const Cut wanted = cut_from(cut);
  const Proof proof =
      value_or_raise(without_gil([&] { return Prover(options).prove(graph, wanted); }));
  py::dict d;
  d["equal"] = proof.equal;
  d["why"] = proof.why;
  return d;
}

std::string apply_text(const std::string& graph_text, const py::list& list) {
  const Graph graph = value_or_raise(graph_from_json(graph_text));
  std::vector<Cut> cuts;
  for (const py::handle& one : list) cuts.push_back(cut_from(one));
  settle_runs(graph, cuts);
  return to_json(value_or_raise(apply_cuts(graph, cuts)));
}

std::vector<int64_t> held_text(const std::string& graph_text) {
  return held_bytes(value_or_raise(graph_from_json(graph_text)), {});
}

}  // namespace

void bind_split(py::module_& module) {
  module.def("split", &split_text, py::arg("graph"), py::arg("options"));
  module.def("cuts_of", &cuts_text, py::arg("graph"));
  module.def("prove_cut", &prove_text, py::arg("graph"), py::arg("cut"),
             py::arg("options") = py::dict());
  module.def("apply_cuts", &apply_text, py::arg("graph"), py::arg("cuts"));
  module.def("row_ops", &row_ops);
  module.def("pointwise_ops", &pointwise_ops);
  module.def("held_bytes", &held_text, py::arg("graph"));
}

}  // namespace outsize::bind
