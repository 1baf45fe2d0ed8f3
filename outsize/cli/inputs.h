// What commands read: graphs with their costs, machines, budgets, limits of a search.
//
//   CaseOptions options;  options.declare(command);      // GRAPH --machine M --device B [--host B]
//   ... Result<Case> c = load_case(options);                 // at run time c->budgets.device
//
// Plain data and pure functions, but for reading files.
#pragma once

#include <atomic>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "outsize/base/deadline.h"
#include "outsize/cli/command.h"
#include "outsize/graph/graph.h"
#include "outsize/plan/plan.h"
#include "outsize/planners/planner.h"
#include "outsize/profile/graph_file.h"
#include "outsize/profile/machine.h"
#include "outsize/profile/profile.h"

namespace outsize::cli {

// --- files

// A graph with its profile inside; the error of one without says how to get it.
Result<GraphFile> load_profiled(const std::string& path);
// A preset's name or a file; a file may be what `machine show --json` printed.
Result<Machine> load_machine(const std::string& name_or_path);
Result<Plan> load_plan(const std::string& path);
// Refuses, before any work, a path that can't be written; {} is fine.
Status check_output(const std::string& path);
// To `path`, all of it or nothing.
Status write_output(const std::string& path, const std::string& text);
// How messages name an input file: "standard input" where it is "-".
std::string shown_input(const std::string& path);

// --- graph, machine and budgets

struct CaseOptions {
  std::string graph, machine, device, host, disk;
  void declare(Command& command);  // GRAPH, --machine, --device, --host, --disk
  // Parts of it, where a command has its own form of another.
  void declare_graph(Command& command);
  void declare_machine(Command& command);
  void declare_budgets(Command& command);      // --device, --host, --disk
  void declare_lower_tiers(Command& command);  // --host, --disk
};

struct Case {
  Graph graph;
  Profile profile;
  Machine machine;
  Budgets budgets;
  std::vector<int64_t> workspaces;
  int64_t peak = 0;  // program order
};

// The budgets left out: device and host are the machine's memory (host of unknown size: all the
// step's bytes), disk is none. The device budget must come from somewhere.
Result<Case> load_case(const CaseOptions& options);
// The graph and the machine alone; budgets stay 0.
Result<Case> load_graph_and_machine(const CaseOptions& options);
// All that a step has, each storage at an aligned place: more than this no tier below can hold.
int64_t all_bytes(const Graph& graph, int64_t alignment);
// The machine of --machine, which must be there.
Result<Machine> load_required_machine(const CaseOptions& options);
// "25%" is a share of `peak`; the error names `option`.
Result<int64_t> read_budget(const std::string& option, const std::string& text,
                            std::optional<int64_t> peak);
// Those that are given, into `budgets`.
Status read_budgets(const CaseOptions& options, std::optional<int64_t> peak, Budgets& budgets);

// --- a search's limits

struct SearchOptions {
  std::optional<double> seconds;
  std::optional<int64_t> work, seed, threads;
  void declare(Command& command);  // --seconds, --work, --seed, --threads
  Status check() const;
  // Requires: check() passed. Neither limit given: kDefaultSeconds.
  Deadline deadline(const std::atomic<bool>* cancel) const;
  int thread_count() const { return static_cast<int>(threads.value_or(1)); }
  uint64_t seed_value() const { return static_cast<uint64_t>(seed.value_or(1)); }
};
inline constexpr double kDefaultSeconds = 10;

// --- words of options

// --allow of commands that plan.
void declare_allow(Command& command, std::string& into);
// "swap,recompute" or "none".
Result<Freedoms> read_freedoms(const std::string& text);
// All of `text` as a number; nothing where it is none, or more follows.
template <typename T>
std::optional<T> parse_number(std::string_view text) {
  T value{};
  const char* const end = text.data() + text.size();
  const auto [last, failure] = std::from_chars(text.data(), end, value);
  if (failure != std::errc() || last != end) return std::nullopt;
  return value;
}
// "a,b,c" into its parts; an empty part is an error that names `option`.
Result<std::vector<std::string>> split_list(const std::string& option, const std::string& text);

// Set by Ctrl-C and SIGTERM from the first call on; a second one ends the process.
const std::atomic<bool>* interrupted_flag();

}  // namespace outsize::cli
