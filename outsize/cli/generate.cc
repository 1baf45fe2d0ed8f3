// outsize generate MODEL --batch B --machine M -o GRAPH
#include <fmt/ranges.h>

#include <memory>

#include "outsize/base/bytes.h"
#include "outsize/cli/command.h"
#include "outsize/cli/inputs.h"
#include "outsize/cli/table.h"
#include "outsize/profile/literature/models.h"

namespace outsize::cli {
namespace {

struct Options {
  std::string model, machine = "v100-16gb-pcie3", output;
  std::optional<int64_t> batch;
};

Result<Answer> generate(const Options& options) {
  if (options.output.empty()) return bad_input("-o GRAPH is required: where the graph goes");
  if (!options.batch) return bad_input("--batch B is required: samples a step");
  if (Status writable = check_output(options.output); !writable.ok()) return writable.error();
  const Result<Machine> machine = load_machine(options.machine);
  if (!machine.ok()) return machine.error();
  const Result<GraphFile> file =
      literature::literature_graph(options.model, *options.batch, *machine);
  if (!file.ok()) return file.error();
  if (Status written = write_output(options.output, to_json(*file)); !written.ok())
    return written.error();

  const int64_t compute = compute_ns(*file->profile);
  const int64_t sizes = literature::distinct_sizes(file->graph);
  const int64_t bytes = literature::total_bytes(file->graph);
  Answer answer;
  answer.fields.set("model", options.model).set("batch", *options.batch);
  answer.fields.set("ops", file->graph.ops.size()).set("storages", file->graph.storages.size());
  answer.fields.set("distinct_sizes", sizes).set("total_bytes", bytes);
  answer.fields.set("compute_ns", compute);
  Facts facts;
  facts.add("ops", fmt::format("{}, {}", file->graph.ops.size(), format_ns(compute)));
  facts.add("storages", fmt::format("{} of {} sizes, {} in all", file->graph.storages.size(), sizes,
                                    format_bytes(bytes)));
  facts.add("written", options.output);
  answer.text = facts.text();
  return answer;
}

}  // namespace

void add_generate(Command& parent) {
  auto options = std::make_shared<Options>();
  Command command =
      parent.subcommand("generate", "Makes a training graph of the literature's evaluations.");
  command.argument("MODEL", options->model,
                   fmt::format("{}", fmt::join(literature::literature_names(), ", ")));
  command.option("--batch", "B", options->batch, "samples a step");
  command.option("--machine", "M", options->machine,
                 "whose times the ops get; v100-16gb-pcie3 by default");
  command.output_file(options->output, "the graph, its profile inside; - is standard output");
  command.does([options] { return generate(*options); });
}

}  // namespace outsize::cli
