// outsize tune GRAPH... --machine M --device B [--batches N,N...] [--curve FILE]
#include <algorithm>
#include <memory>

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
  std::optional<std::string> planner;
  std::string batches, curve, allow;

  std::string planner_name() const { return planner.value_or("atp"); }
};

// A graph at one batch and what became of it.
struct TunedBatch {
  int64_t batch = 0;
  ThroughputPoint model;
  std::optional<Row> row;  // none where only a curve is known
  double rate_of(int64_t step_ns) const {
    return static_cast<double>(batch) * 1e9 / static_cast<double>(step_ns);
  }
  double samples_per_s() const { return row && row->planned ? rate_of(row->planned->step_ns) : 0; }
};

Result<std::vector<int64_t>> read_batches(const std::string& text, size_t graphs) {
  const Result<std::vector<std::string>> words = split_list("--batches", text);
  if (!words.ok()) return words.error();
  std::vector<int64_t> batches;
  for (const std::string& word : *words) {
    const std::optional<int64_t> batch = parse_number<int64_t>(word);
    if (!batch || *batch < 1)
      return bad_input("--batches: wanted whole numbers of samples above 0, had '{}'", word);
    batches.push_back(*batch);
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
  return check_planner("--planner", options.planner_name());
}

// With a curve nothing is planned: what a planner alone would obey is refused.
Status check_curve_options(const Options& options, const Freedoms& allow) {
  const SearchOptions& search = options.search;
  for (const auto& [option, given] : {std::pair{"--planner", options.planner.has_value()},
                                      {"--disk", !options.of.disk.empty()},
                                      {"--seconds", search.seconds.has_value()},
                                      {"--work", search.work.has_value()},
                                      {"--seed", search.seed.has_value()},
                                      {"--threads", search.threads.has_value()}})
    if (given) return bad_input("{} goes with graphs; with --curve nothing is planned", option);
  if (!options.allow.empty() && (allow.reorder || allow.split))
    return bad_input("--allow {}: of a curve's steps the model knows swap and recompute alone",
                     options.allow);
  return Done{};
}

// What a curve is tuned for: the machine and budgets alone.
Result<Case> case_of_curve(const CaseOptions& of) {
  const Result<Machine> machine = load_required_machine(of);
  if (!machine.ok()) return machine.error();
  Case c;
  c.machine = *machine;
  c.budgets = {machine->device_bytes, machine->host_bytes, 0};
  if (Status sound = read_budgets(of, std::nullopt, c.budgets); !sound.ok()) return sound.error();
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
    fields.set("bound_samples_per_s", tuned.rate_of(tuned.row->bound_ns));
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
    table.row({std::to_string(t.batch), model, rate(t.samples_per_s()),
               rate(t.rate_of(t.row->bound_ns)), format_bytes(p.statistics.moved_out),
               format_bytes(p.statistics.moved_in), format_ns(p.recompute_ns)});
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

// Each batch planned, until Ctrl-C; those of a curve are only looked up in the model.
Result<std::vector<TunedBatch>> tune_batches(const Options& options, const Freedoms& allow,
                                             const Loaded& loaded, const ThroughputModel& model) {
  std::vector<TunedBatch> batches;
  for (size_t i = 0; i < loaded.shapes.size() && !interrupted_flag()->load(); ++i) {
    const int64_t batch = loaded.shapes[i].batch;
    TunedBatch& tuned = batches.emplace_back(TunedBatch{batch, model.at(batch), {}});
    if (options.graphs.empty()) continue;
    tuned.row = plan_row(loaded.cases[i], {.planner = options.planner_name(),
                                           .budgets = loaded.cases[i].budgets,
                                           .allow = allow,
                                           .search = &options.search});
    if (tuned.row->error && tuned.row->error->kind != ErrorKind::kInfeasible)
      return *tuned.row->error;
  }
  return batches;
}

// Of equal ones the first; null where none was planned.
const TunedBatch* fastest(const std::vector<TunedBatch>& batches) {
  const TunedBatch* best = nullptr;
  for (const TunedBatch& t : batches)
    if (t.samples_per_s() > (best ? best->samples_per_s() : 0)) best = &t;
  return best;
}

Result<Answer> tune(const Options& options) {
  if (Status sound = check_options(options); !sound.ok()) return sound.error();
  const Result<Freedoms> allow = read_freedoms(options.allow);
  if (!allow.ok()) return allow.error();
  if (!options.curve.empty())
    if (Status sound = check_curve_options(options, *allow); !sound.ok()) return sound.error();
  const Result<Loaded> loaded = load(options);
  if (!loaded.ok()) return loaded.error();
  const Case& first = loaded->cases.front();
  const Result<ThroughputModel> model = ThroughputModel::fit(
      loaded->shapes, first.machine,
      {first.budgets.device, first.budgets.host, allow->swap, allow->recompute});
  if (!model.ok()) return model.error();
  const Result<std::vector<TunedBatch>> batches = tune_batches(options, *allow, *loaded, *model);
  if (!batches.ok()) return batches.error();
  const TunedBatch* const best = fastest(*batches);
  const bool interrupted = interrupted_flag()->load();
  std::vector<JsonObject> rows;
  for (size_t i = 0; i < batches->size(); ++i)
    rows.push_back(
        fields_of_batch((*batches)[i], loaded->cases[options.curve.empty() ? i : 0].graph));

  const ThroughputPoint peak = model->best();
  Answer answer;
  const auto if_peak = [&](auto value) {
    return peak.feasible ? std::optional(value) : std::nullopt;
  };
  answer.fields.set("planner", options.planner_name());
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
  if (interrupted) answer.fields.set("interrupted", true);

  Facts facts;
  if (peak.feasible)
    facts.add("model",
              fmt::format("{} samples/s at a batch of {}: {} swapped, {} recomputed",
                          rate(peak.samples_per_s), peak.batch, format_bytes(peak.swap_bytes),
                          format_bytes(peak.recompute_bytes)));
  if (best)
    facts.add("achieved", fmt::format("{} samples/s at a batch of {} by {}, {:.1f}% of the model's",
                                      rate(achieved), best->batch, options.planner_name(),
                                      peak.feasible ? 100 * achieved / peak.samples_per_s : 0.0));
  answer.text = facts.text() + table_of_batches(*batches);
  if (options.graphs.empty() ? !peak.feasible : best == nullptr) {
    if (interrupted && batches->size() < loaded->shapes.size())
      return Error{ErrorKind::kCancelled, "interrupted before a batch was planned"};
    int64_t least = peak.least_budget;
    for (const TunedBatch& t : *batches)
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
  options->of.declare_machine(command);
  options->of.declare_budgets(command);
  command.option("--batches", "LIST", options->batches,
                 "samples per step, one per graph; else read off the graphs' inputs");
  command.option("--curve", "FILE", options->curve,
                 "in place of graphs: CSV of batch,forward_ns,backward_ns,peak_bytes,least_bytes");
  command.option("--planner", "NAME", options->planner,
                 fmt::format("{}; atp by default", fmt::join(planner_names(), ", ")));
  declare_allow(command, options->allow);
  options->search.declare(command);
  command.does([options] { return tune(*options); });
}

}  // namespace outsize::cli
