// outsize pack FILE.csv [--capacity B] [--method M] [--seconds S] [--work N] [--seed N] [-o
// OUT.csv]
#include "outsize/pack/pack.h"

#include <algorithm>
#include <memory>

#include "outsize/base/bytes.h"
#include "outsize/base/files.h"
#include "outsize/base/names.h"
#include "outsize/cli/command.h"
#include "outsize/cli/inputs.h"
#include "outsize/cli/table.h"
#include "outsize/pack/csv.h"

namespace outsize::cli {
namespace {

struct Options {
  std::string file, capacity, method, output;
  SearchOptions search;
};

Status check_method(const std::string& method) {
  const std::vector<std::string> known = pack_methods();
  if (method.empty() || std::find(known.begin(), known.end(), method) != known.end()) return Done{};
  return bad_input("--method: there is no '{}'{}; there are {}", method, suggestion(method, known),
                   fmt::join(known, ", "));
}

std::optional<Error> why_not(const PackFile& file, const Packing& packing, int64_t capacity) {
  if (packing.conflict)
    return infeasible("buffers {} and {} are fixed where they share bytes while both live",
                      file.names[packing.conflict->first], file.names[packing.conflict->second]);
  if (packing.over.empty()) return std::nullopt;
  if (packing.proved_infeasible)
    return infeasible(
        "no packing fits {} bytes; the lower bound is {}, the lowest found is {}, {} too many",
        capacity, packing.lower_bound, packing.height, packing.height - capacity);
  return infeasible(
      "no packing found in {} bytes: the lowest is {} bytes high, {} too many, where {} of {} "
      "buffers end above; {} may exist; give more --seconds or --capacity",
      capacity, packing.height, packing.height - capacity, packing.over.size(), file.buffers.size(),
      packing.lower_bound);
}

// What the step's storages and workspaces are in program order, to be packed: a storage that is
// there at entry lives from op 0, one wanted at exit to the last op, others from first to last use.
PackFile buffers_of(const GraphFile& file) {
  PackFile out;
  const auto add = [&](std::string name, Interval life, int64_t bytes) {
    Buffer& buffer = out.buffers.emplace_back();
    buffer.id = static_cast<int64_t>(out.names.size());
    buffer.life = life;
    buffer.size = bytes;
    out.names.push_back(std::move(name));
  };
  const Liveness liveness = liveness_of(file.graph, {});
  const auto ops = static_cast<int64_t>(file.graph.ops.size());
  for (size_t s = 0; s < file.graph.storages.size(); ++s) {
    const Storage& storage = file.graph.storages[s];
    const std::vector<OpId>& touched = liveness.touched_by[s];
    if (touched.empty() && !(storage.entry && storage.exit)) continue;
    const int64_t begin = storage.entry ? 0 : static_cast<int64_t>(touched.front().index());
    const int64_t end = storage.exit ? ops : static_cast<int64_t>(touched.back().index()) + 1;
    add(fmt::format("{}", s), {begin, end}, storage.bytes);
  }
  if (!file.profile) return out;
  for (int64_t op = 0; op < ops; ++op) {
    const int64_t bytes = file.profile->ops[static_cast<size_t>(op)].workspace_bytes;
    if (bytes > 0) add(fmt::format("workspace{}", op), {op, op + 1}, bytes);
  }
  return out;
}

// MiniMalloc's CSV, or a graph: what begins with a brace.
Result<PackFile> pack_file_from(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos || text[first] != '{') return pack_file_from_csv(text);
  const Result<GraphFile> graph = graph_file_from_json(text);
  if (!graph.ok()) return graph.error();
  return buffers_of(*graph);
}

Result<Answer> run(const Options& options) {
  if (Status sound = options.search.check(); !sound.ok()) return sound.error();
  if (Status known = check_method(options.method); !known.ok()) return known.error();
  if (Status writable = check_output(options.output); !writable.ok()) return writable.error();
  const Result<std::string> text = read_file(options.file);
  if (!text.ok()) return text.error();
  const Result<PackFile> file = pack_file_from(*text);
  if (!file.ok()) return bad_input("{}: {}", shown_input(options.file), file.error().message);
  PackOptions asked;
  if (!options.capacity.empty()) {
    const Result<int64_t> capacity =
        read_budget("--capacity", options.capacity, max_live(file->buffers));
    if (!capacity.ok()) return capacity.error();
    if (*capacity == 0) return bad_input("--capacity: wanted more than 0");
    asked.capacity = *capacity;
  }
  asked.method = options.method.empty() ? "search" : options.method;
  asked.seed = options.search.seed_value();
  Deadline deadline = options.search.deadline(interrupted_flag());
  asked.deadline = &deadline;
  const Packing packing = pack(file->buffers, asked);
  const double seconds = deadline.seconds();

  Answer answer;
  answer.error = why_not(*file, packing, asked.capacity);
  const double waste =
      packing.lower_bound > 0
          ? static_cast<double>(packing.height) / static_cast<double>(packing.lower_bound) - 1
          : 0;
  answer.fields.set("buffers", file->buffers.size()).set("lower_bound", packing.lower_bound);
  answer.fields.set("height", packing.height).set("waste", waste);
  answer.fields.set("optimal", packing.optimal);
  answer.fields.set("proved_infeasible", packing.proved_infeasible);
  answer.fields.set("method", packing.method).set("seconds", seconds).set("work", packing.work);
  if (asked.capacity != 0)
    answer.fields.set("capacity", asked.capacity).set("fits", packing.fits());
  Facts facts;
  facts.add("buffers", fmt::format("{}", file->buffers.size()));
  facts.add("lower bound", format_exact_bytes(packing.lower_bound));
  facts.add("height",
            fmt::format("{}, {:.2f}% above the bound{}", format_exact_bytes(packing.height),
                        100 * waste, packing.optimal ? ": no packing is lower" : ""));
  if (asked.capacity != 0)
    facts.add("capacity", fmt::format("{}: {}", format_exact_bytes(asked.capacity),
                                      packing.fits()              ? "it fits"
                                      : packing.proved_infeasible ? "nothing fits"
                                                                  : "not found"));
  facts.add("method", fmt::format("{}, {:.2f} s", packing.method, seconds));
  if (!options.output.empty() && !answer.error) {
    if (Status written = write_output(options.output, pack_file_to_csv(*file, packing.offsets));
        !written.ok())
      return written.error();
    facts.add("written", options.output);
  }
  answer.text = facts.text();
  return answer;
}

}  // namespace

void add_pack(Command& parent) {
  auto options = std::make_shared<Options>();
  Command command =
      parent.subcommand("pack", "Gives addresses to buffers whose lifetimes are known (CSV).");
  command.input_file(
      "FILE", options->file,
      "id,lower,upper,size[,alignment,...], or a graph: its storages in program order; - is "
      "standard input");
  command.option("--capacity", "BYTES", options->capacity,
                 "find a packing no higher; 110% of the most bytes live at once is read too");
  command.option("--method", "NAME", options->method,
                 fmt::format("{}; search where none is given", fmt::join(pack_methods(), ", ")));
  options->search.declare(command);
  command.output_file(options->output, "the buffers with their offsets; - is standard output");
  command.does([options] { return run(*options); });
}

}  // namespace outsize::cli
