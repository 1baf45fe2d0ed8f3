#include "outsize/cli/inputs.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <limits>

#include "outsize/base/bytes.h"
#include "outsize/base/files.h"
#include "outsize/base/json.h"
#include "outsize/base/names.h"
#include "outsize/bound/floor.h"
#include "outsize/plan/plan_json.h"
#include "outsize/profile/machine_json.h"

namespace outsize::cli {
namespace {

std::atomic<bool> interrupted = false;
static_assert(std::atomic<bool>::is_always_lock_free);

void on_signal(int) { interrupted.store(true, std::memory_order_relaxed); }

Error in_file(const std::string& path, const Error& error) {
  return {error.kind, fmt::format("{}: {}", shown_input(path), error.message)};
}

}  // namespace

// --- files

Result<GraphFile> load_profiled(const std::string& path) {
  Result<GraphFile> file = read_graph_file(path);
  if (!file.ok()) return file.error();
  if (!file->profile)
    return bad_input(
        "{}: the graph has no profile, so what its ops cost is not known; import a trace "
        "that has times (outsize import op-trace FILE -o GRAPH), or put a profile into the "
        "file (docs/formats/profile.md)",
        shown_input(path));
  return file;
}

Result<Machine> load_machine(const std::string& name_or_path) {
  std::error_code ignored;
  if (name_or_path != "-" && !std::filesystem::exists(name_or_path, ignored))
    return find_machine(name_or_path);
  for (Machine& machine : preset_machines())
    if (machine.name == name_or_path) return std::move(machine);
  const Result<std::string> text = read_file(name_or_path);
  if (!text.ok()) return text.error();
  Result<Json> json = parse_json(*text);
  if (!json.ok()) return in_file(name_or_path, json.error());
  // What `machine show --json` adds to the machine's own form.
  const bool answer = json->is_object() && json->erase("outsize") > 0;
  Result<Machine> machine = machine_from_json(answer ? json->dump() : *text);
  if (!machine.ok()) return in_file(name_or_path, machine.error());
  return machine;
}

Result<Plan> load_plan(const std::string& path) {
  const Result<std::string> text = read_file(path);
  if (!text.ok()) return text.error();
  Result<Plan> plan = plan_from_json(*text);
  if (!plan.ok()) return in_file(path, plan.error());
  return plan;
}

Status check_output(const std::string& path) {
  if (path.empty() || path == "-") return Done{};
  struct stat facts;
  if (::stat(path.c_str(), &facts) == 0) {
    if (S_ISDIR(facts.st_mode)) return bad_input("can't write {}: it is a directory", path);
    if (!S_ISREG(facts.st_mode)) return Done{};
  }
  std::string folder = std::filesystem::path(path).parent_path().string();
  if (folder.empty()) folder = ".";
  if (::access(folder.c_str(), W_OK | X_OK) != 0)
    return bad_input("can't write {}: {}: {}", path, folder, std::strerror(errno));
  return Done{};
}

Status write_output(const std::string& path, const std::string& text) {
  if (Status writable = check_output(path); !writable.ok()) return writable;
  return write_file_atomically(path, text);
}

std::string shown_input(const std::string& path) { return path == "-" ? "standard input" : path; }

// --- graph, machine and budgets

void CaseOptions::declare(Command& command) {
  declare_graph(command);
  declare_machine(command);
  declare_budgets(command);
}

void CaseOptions::declare_graph(Command& command) {
  command.input_file("GRAPH", graph, "a graph with its profile; - is standard input");
}

void CaseOptions::declare_machine(Command& command) {
  command.option("--machine", "NAME|FILE", machine, "a preset (outsize machine list) or a file");
}

void CaseOptions::declare_budgets(Command& command) {
  command.option("--device", "BYTES", device,
                 "device memory: 6GiB, 6GB, 1048576, or 25% of the peak in program order");
  declare_lower_tiers(command);
}

void CaseOptions::declare_lower_tiers(Command& command) {
  command.option("--host", "BYTES", host, "host memory to move to; else the machine's");
  command.option("--disk", "BYTES", disk, "disk to move to; else none");
}

Result<int64_t> read_budget(const std::string& option, const std::string& text,
                            std::optional<int64_t> peak) {
  Result<int64_t> bytes = parse_budget(text, peak);
  if (!bytes.ok()) return bad_input("{}: {}", option, bytes.error().message);
  return bytes;
}

Status read_budgets(const CaseOptions& options, std::optional<int64_t> peak, Budgets& budgets) {
  struct Given {
    const char* option;
    const std::string& text;
    int64_t& into;
  };
  for (const Given& given :
       {Given{"--device", options.device, budgets.device},
        Given{"--host", options.host, budgets.host}, Given{"--disk", options.disk, budgets.disk}}) {
    if (given.text.empty()) continue;
    const Result<int64_t> bytes = read_budget(given.option, given.text, peak);
    if (!bytes.ok()) return bytes.error();
    given.into = *bytes;
  }
  return Done{};
}

int64_t all_bytes(const Graph& graph, int64_t alignment) {
  int64_t sum = 0;
  for (const Storage& storage : graph.storages)
    sum = std::min(sum + round_up(storage.bytes, alignment), kMaxBytes);
  return sum;
}

Result<Machine> load_required_machine(const CaseOptions& options) {
  if (options.machine.empty())
    return bad_input("--machine is required: a preset (see outsize machine list) or a file");
  return load_machine(options.machine);
}

Result<Case> load_graph_and_machine(const CaseOptions& options) {
  Result<Machine> machine = load_required_machine(options);
  if (!machine.ok()) return machine.error();
  Result<GraphFile> file = load_profiled(options.graph);
  if (!file.ok()) return file.error();
  Case c;
  c.graph = std::move(file->graph);
  c.profile = std::move(*file->profile);
  c.machine = *std::move(machine);
  c.workspaces = workspaces_of(c.profile);
  c.peak = peak_program_order(c.graph, c.workspaces);
  return c;
}

Result<Case> load_case(const CaseOptions& options) {
  // A budget that can't be read is said before a large graph has been.
  Budgets read;
  if (Status sound = read_budgets(options, 0, read); !sound.ok()) return sound.error();
  Result<Case> loaded = load_graph_and_machine(options);
  if (!loaded.ok()) return loaded;
  Case& c = *loaded;
  c.budgets.device = c.machine.device_bytes;
  c.budgets.host = c.machine.host_bytes;
  if (c.budgets.host == 0 && c.machine.out.bytes_per_s > 0)
    c.budgets.host = all_bytes(c.graph, c.machine.alignment);
  if (options.device.empty() && c.budgets.device == 0)
    return bad_input("--device is required: machine {} doesn't say how much memory it has",
                     c.machine.name);
  if (Status sound = read_budgets(options, c.peak, c.budgets); !sound.ok()) return sound.error();
  return loaded;
}

// --- a search's limits

void SearchOptions::declare(Command& command) {
  command.option("--seconds", "S", seconds, "stop at the next work boundary after S seconds");
  command.option("--work", "N", work, "stop after N units of work: the same plan on any machine");
  command.option("--seed", "N", seed, "of the search's random choices; 1 by default");
  command.option("--threads", "N", threads,
                 "of swapadvisor's and home's searches; others run on one. Speed only, never the "
                 "answer; 1 by default");
}

Status SearchOptions::check() const {
  if (seconds && !(std::isfinite(*seconds) && *seconds >= 0))
    return bad_input("--seconds: wanted 0 or more, had {}", *seconds);
  if (work && *work < 0) return bad_input("--work: wanted 0 or more, had {}", *work);
  if (seed && *seed < 0) return bad_input("--seed: wanted 0 or more, had {}", *seed);
  if (threads && (*threads < 1 || *threads > 1024))
    return bad_input("--threads: wanted 1 to 1024, had {}", *threads);
  return Done{};
}

Deadline SearchOptions::deadline(const std::atomic<bool>* cancel) const {
  constexpr double kNoLimit = std::numeric_limits<double>::infinity();
  const double limit = seconds.value_or(work ? kNoLimit : kDefaultSeconds);
  return Deadline::of(limit, work.value_or(std::numeric_limits<int64_t>::max()), cancel);
}

Result<std::vector<std::string>> split_list(const std::string& option, const std::string& text) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    if (end == begin) return bad_input("{}: an empty name in '{}'", option, text);
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

// --- words of options

void declare_allow(Command& command, std::string& into) {
  command.option("--allow", "LIST", into,
                 "what plans may do: swap,recompute,reorder,split or none; all by default");
}

Result<Freedoms> read_freedoms(const std::string& text) {
  Freedoms allow;
  if (text.empty()) return allow;
  allow = {.swap = false, .recompute = false, .reorder = false, .split = false};
  if (text == "none") return allow;
  const Result<std::vector<std::string>> names = split_list("--allow", text);
  if (!names.ok()) return names.error();
  for (const std::string& name : *names) {
    if (name == "swap") {
      allow.swap = true;
    } else if (name == "recompute") {
      allow.recompute = true;
    } else if (name == "reorder") {
      allow.reorder = true;
    } else if (name == "split") {
      allow.split = true;
    } else {
      return bad_input(
          "--allow: no freedom '{}'{}; there are swap, recompute, reorder, split, and none", name,
          suggestion(name, {"swap", "recompute", "reorder", "split", "none"}));
    }
  }
  return allow;
}

const std::atomic<bool>* interrupted_flag() {
  static const bool installed = [] {
    struct sigaction action = {};
    action.sa_handler = on_signal;
    action.sa_flags = static_cast<int>(SA_RESETHAND);
    ::sigaction(SIGINT, &action, nullptr);
    ::sigaction(SIGTERM, &action, nullptr);
    return true;
  }();
  (void)installed;
  return &interrupted;
}

}  // namespace outsize::cli
