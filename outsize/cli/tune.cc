// outsize tune GRAPH... --machine M --device B [--batches N,N...] [--curve FILE]
#include <algorithm>
#include <charconv>
#include <memory>
#include <numeric>

#include "outsize/base/bytes.h"
#include "outsize/base/files.h"
#include "outsize/bound/throughput.h"
#include "outsize/cli/command.h"
#include "outsize/cli/inputs.h"
#include "outsize/cli/planning.h"
#include "outsize/cli/table.h"

namespace outsize::cli {
namespace {

struct Options {
  CaseOptions of;  // but for the graph
  SearchOptions search;
  std::vector<std::string> graphs;
  std::string planner = "atp";
  std::string batches, curve, allow;
};

// A graph at one batch and what became of it.
struct TunedBatch {
  int64_t batch = 0;
  ThroughputPoint model;
  std::optional<Row> row;  // none where only a curve is known
  double samples_per_s() const {
    return row && row->planned
               ? static_cast<double>(batch) * 1e9 / static_cast<double>(row->planned->step_ns)
               : 0;
  }
};

Result<std::vector<int64_t>> read_batches(const std::string& text, size_t graphs) {
  const Result<std::vector<std::string>> words = split_list("--batches", text);
  if (!words.ok()) return words.error();
  std::vector<int64_t> batches;
  for (const std::string& word : *words) {
    int64_t batch = 0;
    const char* const end = word.data() + word.size();
    const auto [last, failure] = std::from_chars(word.data(), end, batch);
    if (failure != std::errc() || last != end || batch < 1)
      return bad_input("--batches: wanted whole numbers of samples above 0, had '{}'", word);
    batches.push_back(batch);
  }
  if (batches.size() != graphs)
    return bad_input("--batches: {} batches for {} graphs; give one for each, in their order",
                     batches.size(), graphs);
  return batches;
}

// The first size that all tensors of the batch agree on.
Result<int64_t> batch_of(const Graph& graph, const std::string& path) {
  int64_t batch = 0;
  for (const Value& value : graph.values) {
    if (graph.storage(value.storage).role != Role::kInput || value.sizes.empty()) continue;
    if (batch != 0 && value.sizes.front() != batch) batch = -1;
    if (batch == 0) batch = value.sizes.front();
  }
  if (batch >= 1) return batch;
  return bad_input("{}: its inputs don't tell the batch; say it with --batches, one per graph",
                   path);
}

Result<std::vector<StepShape>> read_curve(const std::string& path) {
  const Result<std::string> text = read_file(path);
  if (!text.ok()) return text.error();
  Result<std::vector<StepShape>> shapes = shapes_from_csv(*text);
  if (!shapes.ok()) return bad_input("--curve: {}: {}", path, shapes.error().message);
  return shapes;
}

Status check_options(const Options& options) {
  if (Status sound = options.search.check(); !sound.ok()) return sound;
  if (options.graphs.empty() == options.curve.empty())
    return bad_input(
        "give graphs of one model at several batches, or --curve FILE; one of the two");
  if (!options.curve.empty() && !options.batches.empty())
    return bad_input("--batches goes with graphs; a curve names its own");
  if (options.of.device.ends_with('%'))
    return bad_input(
        "--device {}: a share of the peak differs from batch to batch; give bytes, such as 16GB",
        options.of.device);
  const std::vector<std::string> known = planner_names();
  if (std::find(known.begin(), known.end(), options.planner) != known.end()) return Done{};
  const std::string nearest = nearest_match(options.planner, known);
  return bad_input("--planner: no planner is called '{}'{}; there are {}", options.planner,
                   nearest.empty() ? "" : fmt::format("; did you mean '{}'?", nearest),
                   fmt::join(known, ", "));
}

// What a curve is tuned for: the machine and budgets alone.
Result<Case> case_of_curve(const CaseOptions& of) {
  if (of.machine.empty())
    return bad_input("--machine is required: a preset (see outsize machine list) or a file");
  const Result<Machine> machine = load_machine(of.machine);
  if (!machine.ok()) return machine.error();
  Case c;
  c.machine = *machine;
  c.budgets = {machine->device_bytes, machine->host_bytes, 0};
  for (const auto& [option, text, into] : {std::tuple{"--device", &of.device, &c.budgets.device},
                                           std::tuple{"--host", &of.host, &c.budgets.host}}) {
    if (text->empty()) continue;
    const Result<int64_t> bytes = read_budget(option, *text, std::nullopt);
    if (!bytes.ok()) return bytes.error();
    *into = *bytes;
  }
  if (c.budgets.device <= 0)
    return bad_input("--device is required: machine {} doesn't say how much it has", machine->name);
  return c;
}

JsonObject fields_of_point(const ThroughputPoint& p) {
  JsonObject fields;
  fields.set("feasible", p.feasible);
  if (!p.feasible) return fields.set("least_budget", p.least_budget);
  fields.set("step_ns", static_cast<int64_t>(p.step_ns)).set("samples_per_s", p.samples_per_s);
  fields.set("swap_bytes", p.swap_bytes).set("recompute_bytes", p.recompute_bytes);
  fields.set("recompute_ns", static_cast<int64_t>(p.recompute_ns));
  return fields.set("exposed_ns", static_cast<int64_t>(p.exposed_ns));
}

JsonObject fields_of_batch(const TunedBatch& tuned, const Graph& graph) {
  JsonObject fields;
  fields.set("batch", tuned.batch).set("model", fields_of_point(tuned.model));
  if (!tuned.row) return fields;
  fields.set("samples_per_s",
             tuned.row->planned ? std::optional(tuned.samples_per_s()) : std::optional<double>());
  if (tuned.row->bound_ns > 0)
    fields.set("bound_samples_per_s",
               static_cast<double>(tuned.batch) * 1e9 / static_cast<double>(tuned.row->bound_ns));
  return fields.merge(fields_of(graph, *tuned.row));
}

std::string rate(double samples_per_s) { return fmt::format("{:.4g}", samples_per_s); }

std::string table_of_batches(const std::vector<TunedBatch>& batches) {
  Table table({">batch", ">model/s", ">achieved/s", ">bound/s", ">out", ">in", ">recompute"});
  for (const TunedBatch& t : batches) {
    const std::string model = t.model.feasible ? rate(t.model.samples_per_s)
                                               : "needs " + format_bytes(t.model.least_budget);
    if (!t.row || !t.row->planned) {
      const bool known = t.row && t.row->least_budget;
      const std::string why =
          known ? "needs " + format_bytes(*t.row->least_budget) : (t.row ? "no plan" : "-");
      table.row({std::to_string(t.batch), model, why, "-", "-", "-", "-"});
      continue;
    }
    const Planned& p = *t.row->planned;
    const double bound = static_cast<double>(t.batch) * 1e9 / static_cast<double>(t.row->bound_ns);
    table.row({std::to_string(t.batch), model, rate(t.samples_per_s()), rate(bound),
               format_bytes(p.statistics.moved_out), format_bytes(p.statistics.moved_in),
               format_ns(p.recompute_ns)});
  }
  return table.text();
}

struct Loaded {
  std::vector<Case> cases;  // one per graph; one without a graph for a curve
  std::vector<StepShape> shapes;
};

Result<Loaded> load(const Options& options) {
  Loaded loaded;
  if (!options.curve.empty()) {
    Result<std::vector<StepShape>> shapes = read_curve(options.curve);
    if (!shapes.ok()) return shapes.error();
    Result<Case> c = case_of_curve(options.of);
    if (!c.ok()) return c.error();
    loaded.shapes = *std::move(shapes);
    loaded.cases.push_back(*std::move(c));
    return loaded;
  }
  std::vector<int64_t> batches;
  if (!options.batches.empty()) {
    Result<std::vector<int64_t>> read = read_batches(options.batches, options.graphs.size());
    if (!read.ok()) return read.error();
    batches = *std::move(read);
  }
  for (size_t i = 0; i < options.graphs.size(); ++i) {
    CaseOptions of = options.of;
    of.graph = options.graphs[i];
    Result<Case> c = load_case(of);
    if (!c.ok()) return c.error();
    if (options.batches.empty()) {
      const Result<int64_t> batch = batch_of(c->graph, of.graph);
      if (!batch.ok()) return batch.error();
      batches.push_back(*batch);
    }
    loaded.shapes.push_back(shape_of(c->graph, c->profile, batches[i]));
    loaded.cases.push_back(*std::move(c));
  }
  return loaded;
}

Result<Answer> tune(const Options& options) {
  if (Status sound = check_options(options); !sound.ok()) return sound.error();
  const Result<Freedoms> allow = read_freedoms(options.allow);
  if (!allow.ok()) return allow.error();
  const Result<Loaded> loaded = load(options);
  if (!loaded.ok()) return loaded.error();
  const Case& first = loaded->cases.front();
  const Result<ThroughputModel> model = ThroughputModel::fit(
      loaded->shapes, first.machine,
      {first.budgets.device, first.budgets.host, allow->swap, allow->recompute});
  if (!model.ok()) return model.error();

  std::vector<TunedBatch> batches;
  std::vector<JsonObject> rows;
  const std::atomic<bool>* interrupt = interrupted_flag();
  const TunedBatch* best = nullptr;
  for (size_t i = 0; i < loaded->shapes.size() && !interrupt->load(); ++i) {
    TunedBatch tuned{loaded->shapes[i].batch, model->at(loaded->shapes[i].batch), {}};
    if (!options.graphs.empty()) {
      Request request;
      request.planner = options.planner;
      request.budgets = loaded->cases[i].budgets;
      request.allow = *allow;
      request.search = &options.search;
      request.interrupt = interrupt;
      request.progress = true;
      tuned.row = plan_row(loaded->cases[i], request);
      if (tuned.row->error && tuned.row->error->kind != ErrorKind::kInfeasible)
        return *tuned.row->error;
    }
    batches.push_back(std::move(tuned));
  }
  for (size_t i = 0; i < batches.size(); ++i) {
    rows.push_back(fields_of_batch(batches[i], loaded->cases[options.curve.empty() ? i : 0].graph));
    if (batches[i].samples_per_s() > (best ? best->samples_per_s() : 0)) best = &batches[i];
  }

  const ThroughputPoint peak = model->best();
  Answer answer;
  const auto if_peak = [&](auto value) {
    return peak.feasible ? std::optional(value) : std::nullopt;
  };
  answer.fields.set("planner", options.planner);
  answer.fields.set("peak_samples_per_s", if_peak(peak.samples_per_s));
  answer.fields.set("peak_batch", if_peak(peak.batch));
  answer.fields.set("swap_bytes", if_peak(peak.swap_bytes));
  answer.fields.set("recompute_bytes", if_peak(peak.recompute_bytes));
  const auto if_best = [&](auto value) { return best ? std::optional(value) : std::nullopt; };
  const double achieved = best ? best->samples_per_s() : 0;
  answer.fields.set("batch", if_best(best ? best->batch : 0));
  answer.fields.set("achieved_samples_per_s", if_best(achieved));
  answer.fields.set("achieved_of_peak", if_best(peak.feasible ? achieved / peak.samples_per_s : 0));
  answer.fields.set("rows", rows);
  if (interrupt->load()) answer.fields.set("interrupted", true);

  Facts facts;
  if (peak.feasible)
    facts.add("model",
              fmt::format("{} samples/s at a batch of {}: {} swapped, {} recomputed",
                          rate(peak.samples_per_s), peak.batch, format_bytes(peak.swap_bytes),
                          format_bytes(peak.recompute_bytes)));
  if (best)
    facts.add("achieved", fmt::format("{} samples/s at a batch of {} by {}, {:.1f}% of the model's",
                                      rate(achieved), best->batch, options.planner,
                                      peak.feasible ? 100 * achieved / peak.samples_per_s : 0.0));
  answer.text = facts.text() + table_of_batches(batches);
  if (options.graphs.empty() ? !peak.feasible : best == nullptr) {
    if (interrupt->load() && batches.size() < loaded->shapes.size())
      return Error{ErrorKind::kCancelled, "interrupted before a batch was planned"};
    int64_t least = peak.least_budget;
    for (const TunedBatch& t : batches)
      if (t.row && t.row->least_budget) least = std::min(least, *t.row->least_budget);
    answer.error =
        infeasible("no batch has a plan in {} on the device; the least that would do: {}",
                   format_bytes(first.budgets.device), format_exact_bytes(least));
    answer.error_fields.set("least_budget", least);
  }
  return answer;
}

}  // namespace

void add_tune(Command& parent) {
  auto options = std::make_shared<Options>();
  Command command = parent.subcommand(
      "tune", "The batch with the highest throughput, from graphs of one model at several.");
  command.input_files("GRAPH", options->graphs, "graphs with their profiles, one per batch");
  command.option("--machine", "NAME|FILE", options->of.machine,
                 "a preset (outsize machine list) or a file");
  options->of.declare_budgets(command);
  command.option("--batches", "LIST", options->batches,
                 "samples per step, one per graph; else read off the graphs' inputs");
  command.option("--curve", "FILE", options->curve,
                 "in place of graphs: CSV of batch,forward_ns,backward_ns,peak_bytes,least_bytes");
  command.option("--planner", "NAME", options->planner,
                 fmt::format("{}; atp by default", fmt::join(planner_names(), ", ")));
  command.option("--allow", "LIST", options->allow,
                 "what plans may do: swap,recompute,reorder,split or none; all by default");
  options->search.declare(command);
  command.does([options] { return tune(*options); });
}

}  // namespace outsize::cli
