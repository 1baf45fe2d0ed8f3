// outsize import FORMAT FILE -o GRAPH
#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "outsize/base/bytes.h"
#include "outsize/base/files.h"
#include "outsize/base/names.h"
#include "outsize/cli/command.h"
#include "outsize/cli/inputs.h"
#include "outsize/cli/table.h"
#include "outsize/pack/csv.h"
#include "outsize/profile/import_op_trace.h"

namespace outsize::cli {
namespace {

struct Options {
  std::string format, file, output;
};

// MiniMalloc's CSV: an op per section of time, which makes those that begin in it and reads those
// that end with it, so that lives from first to last use are the file's. One ns a unit of time.
Result<GraphFile> import_minimalloc(std::string_view text) {
  const Result<PackFile> file = pack_file_from_csv(text);
  if (!file.ok()) return file.error();
  std::vector<int64_t> times;
  nlohmann::json trace = {{"format", "op-trace"},
                          {"version", 1},
                          {"title", "minimalloc"},
                          {"source", "minimalloc"},
                          {"storages", nlohmann::json::array()},
                          {"ops", nlohmann::json::array()}};
  for (size_t b = 0; b < file->buffers.size(); ++b) {
    const Buffer& buffer = file->buffers[b];
    if (buffer.offset || !buffer.gaps.empty() || buffer.alignment != 1)
      return bad_input(
          "buffer '{}' has an offset, gaps or an alignment, for which a graph has no "
          "place; `outsize pack` takes them",
          file->names[b]);
    if (buffer.life.empty()) continue;
    times.push_back(buffer.life.begin);
    times.push_back(buffer.life.end);
    trace["storages"].push_back(
        {{"id", file->names[b]}, {"bytes", buffer.size}, {"role", "activation"}});
  }
  std::sort(times.begin(), times.end());
  times.erase(std::unique(times.begin(), times.end()), times.end());
  std::map<int64_t, std::vector<size_t>> begins, ends;
  for (size_t b = 0; b < file->buffers.size(); ++b) {
    if (file->buffers[b].life.empty()) continue;
    begins[file->buffers[b].life.begin].push_back(b);
    ends[file->buffers[b].life.end].push_back(b);
  }
  for (size_t t = 0; t + 1 < times.size(); ++t) {
    nlohmann::json op = {{"name", fmt::format("section{}", t)},
                         {"ns", times[t + 1] - times[t]},
                         {"reads", nlohmann::json::array()},
                         {"makes", nlohmann::json::array()},
                         {"mutates", nlohmann::json::array()}};
    for (size_t b : begins[times[t]]) op["makes"].push_back(file->names[b]);
    for (size_t b : ends[times[t + 1]])
      if (file->buffers[b].life.begin < times[t]) op["reads"].push_back(file->names[b]);
    trace["ops"].push_back(std::move(op));
  }
  // Bytes that are no UTF-8 in a name would not pass as JSON.
  return import_op_trace(trace.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

struct Format {
  const char* name;
  Result<GraphFile> (*import)(std::string_view text);
};
constexpr Format kFormats[] = {{"minimalloc", import_minimalloc}, {"op-trace", import_op_trace}};

// What a reader of the trace may have got otherwise than it was meant.
std::vector<std::string> warnings_of(const GraphFile& file) {
  std::vector<std::string> warnings;
  const auto add = [&](int64_t count, std::string_view what) {
    if (count > 0) warnings.push_back(fmt::format("{} {}", count, what));
  };
  std::vector<bool> touched(file.graph.storages.size(), false);
  int64_t idle = 0;
  for (const Op& op : file.graph.ops) {
    if (op.reads.empty() && op.makes.empty() && op.mutates.empty()) ++idle;
    for (const auto* accesses : {&op.reads, &op.makes, &op.mutates})
      for (const Access& access : *accesses) touched[access.storage.index()] = true;
  }
  if (file.graph.ops.empty()) warnings.push_back("the trace has no ops");
  add(std::count(touched.begin(), touched.end(), false), "storages are touched by no op");
  add(idle, "ops touch no storage");
  add(std::count_if(file.profile->ops.begin(), file.profile->ops.end(),
                    [](const OpCost& cost) { return cost.ns == 0; }),
      "ops take no time");
  return warnings;
}

Result<Answer> import(const Options& options) {
  std::vector<std::string> names;
  const Format* format = nullptr;
  for (const Format& f : kFormats) {
    names.emplace_back(f.name);
    if (options.format == f.name) format = &f;
  }
  if (format == nullptr)
    return bad_input("no format '{}' to import{}; there are {}", options.format,
                     suggestion(options.format, names), fmt::join(names, ", "));
  if (options.output.empty()) return bad_input("-o GRAPH is required: where the graph goes");
  if (Status writable = check_output(options.output); !writable.ok()) return writable.error();
  const Result<std::string> text = read_file(options.file);
  if (!text.ok()) return text.error();
  const Result<GraphFile> file = format->import(*text);
  if (!file.ok()) return bad_input("{}: {}", shown_input(options.file), file.error().message);
  const int64_t compute = compute_ns(*file->profile);
  int64_t persistent = 0;
  for (const Storage& storage : file->graph.storages)
    if (storage.persistent) persistent += storage.bytes;
  const std::vector<std::string> warnings = warnings_of(*file);
  if (Status written = write_output(options.output, to_json(*file)); !written.ok())
    return written.error();

  Answer answer;
  answer.fields.set("ops", file->graph.ops.size()).set("storages", file->graph.storages.size());
  answer.fields.set("compute_ns", compute).set("persistent_bytes", persistent);
  answer.fields.set("warnings", warnings);
  Facts facts;
  facts.add("ops", fmt::format("{}, {}", file->graph.ops.size(), format_ns(compute)));
  facts.add("storages", fmt::format("{}, {} of them persistent", file->graph.storages.size(),
                                    format_bytes(persistent)));
  for (const std::string& warning : warnings) facts.add("warning", warning);
  facts.add("written", options.output);
  answer.text = facts.text();
  return answer;
}

}  // namespace

void add_import(Command& parent) {
  auto options = std::make_shared<Options>();
  Command command = parent.subcommand("import", "Makes a graph of a file that you have.");
  command.argument("FORMAT", options->format, "minimalloc, op-trace");
  command.input_file("FILE", options->file, "- is standard input");
  command.output_file(options->output, "the graph, its profile inside; - is standard output");
  command.does([options] { return import(*options); });
}

}  // namespace outsize::cli
