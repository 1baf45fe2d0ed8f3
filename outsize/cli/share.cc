// outsize share simulate JOBS --policy P... [--quantum S...]; outsize share cases; outsize share
// case NAME
#include <memory>

#include "outsize/base/files.h"
#include "outsize/base/names.h"
#include "outsize/cli/command.h"
#include "outsize/cli/inputs.h"
#include "outsize/cli/table.h"
#include "outsize/share/cases.h"
#include "outsize/share/jobs_json.h"
#include "outsize/share/simulate.h"

namespace outsize::cli {
namespace {

using share::Policy;

struct SimulateWords {
  std::string jobs;
  std::string policies = fmt::format("{}", fmt::join(share::kPolicyNames.all(), ","));
  std::string quanta = "30";
};

double seconds(int64_t ns) { return static_cast<double>(ns) / 1e9; }

// A case's name, where no file has it.
Result<share::Workload> load_workload(const std::string& name_or_path) {
  if (auto workload = share::named_case(name_or_path)) return *workload;
  const Result<std::string> text = read_file(name_or_path);
  if (!text.ok()) {
    const std::string nearest = nearest_match(name_or_path, share::case_names());
    return bad_input("{}; cases by name: {}{}", text.error().message,
                     fmt::join(share::case_names(), ", "),
                     nearest.empty() ? "" : fmt::format("; did you mean {}?", nearest));
  }
  Result<share::Workload> workload = share::workload_from_json(*text);
  if (!workload.ok()) return bad_input("{}: {}", name_or_path, workload.error().message);
  return workload;
}

Result<std::vector<Policy>> read_policies(const std::string& text) {
  const Result<std::vector<std::string>> names = split_list("--policy", text);
  if (!names.ok()) return names.error();
  std::vector<Policy> policies;
  for (const std::string& name : *names) {
    const auto policy = share::kPolicyNames.find(name);
    if (!policy)
      return bad_input("--policy: no policy '{}'{}; there are {}", name,
                       suggestion(name, share::kPolicyNames.all()),
                       fmt::join(share::kPolicyNames.all(), ", "));
    policies.push_back(*policy);
  }
  return policies;
}

Result<std::vector<int64_t>> read_quanta(const std::string& text) {
  const Result<std::vector<std::string>> words = split_list("--quantum", text);
  if (!words.ok()) return words.error();
  std::vector<int64_t> quanta;
  for (const std::string& word : *words) {
    const std::optional<double> value = parse_number<double>(word);
    if (!value || !(*value >= 1e-6) || *value > 1e6)
      return bad_input("--quantum: wanted seconds from 0.000001 to 1000000, had '{}'", word);
    quanta.push_back(static_cast<int64_t>(*value * 1e9));
  }
  return quanta;
}

JsonObject job_object(const share::Workload& workload, const share::Outcome& outcome, size_t j) {
  const share::JobOutcome& job = outcome.jobs[j];
  JsonObject object;
  object.set("name", workload.jobs[j].name).set("response_s", seconds(job.response_ns));
  object.set("alone_s", seconds(job.alone_ns)).set("slowdown", job.slowdown);
  object.set("swap_share", job.swap_share);
  if (outcome.policy == Policy::kSwapAware) object.set("weight", job.weight).set("rank", job.rank);
  if (outcome.policy == Policy::kSwapAware || outcome.policy == Policy::kBroker)
    object.set("swap_percent", job.swap_percent);
  if (outcome.policy == Policy::kBroker) object.set("budget_bytes", job.budget_bytes);
  return object;
}

Result<Answer> simulate_jobs(const SimulateWords& words) {
  const Result<std::vector<Policy>> policies = read_policies(words.policies);
  if (!policies.ok()) return policies.error();
  const Result<std::vector<int64_t>> quanta = read_quanta(words.quanta);
  if (!quanta.ok()) return quanta.error();
  const Result<share::Workload> workload = load_workload(words.jobs);
  if (!workload.ok()) return workload.error();

  Answer answer;
  std::vector<JsonObject> rows;
  Table table({"policy", ">makespan", "job", ">response", ">slowdown", ">through swap"});
  for (const Policy policy : *policies) {
    const bool turns = policy == Policy::kRoundRobin;
    for (size_t q = 0; q < (turns ? quanta->size() : 1); ++q) {
      const int64_t quantum_ns = (*quanta)[q];
      const share::Outcome outcome =
          share::simulate(*workload, {.policy = policy, .quantum_ns = quantum_ns});
      std::vector<JsonObject> jobs;
      std::string name{share::kPolicyNames.name(policy)};
      std::string label = turns ? fmt::format("{} {} s", name, seconds(quantum_ns)) : name;
      std::string makespan = format_ns(outcome.makespan_ns);
      for (size_t j = 0; j < outcome.jobs.size(); ++j) {
        const share::JobOutcome& job = outcome.jobs[j];
        jobs.push_back(job_object(*workload, outcome, j));
        table.row({std::exchange(label, ""), std::exchange(makespan, ""), workload->jobs[j].name,
                   format_ns(job.response_ns), fmt::format("{:.3f}", job.slowdown),
                   fmt::format("{:.1f}%", 100 * job.swap_share)});
      }
      JsonObject row;
      row.set("policy", name).set("makespan_s", seconds(outcome.makespan_ns));
      if (turns) row.set("quantum_s", seconds(quantum_ns)).set("turns", outcome.turns);
      row.set("swapped_in", outcome.swapped_in_bytes);
      row.set("swapped_out", outcome.swapped_out_bytes).set("jobs", jobs);
      rows.push_back(std::move(row));
    }
  }
  answer.fields.set("name", workload->name).set("rows", rows);
  answer.text = table.text();
  return answer;
}

Result<Answer> write_case(const std::string& name, const std::string& output) {
  const auto workload = share::named_case(name);
  if (!workload)
    return bad_input("no case '{}'{}; there are {}", name, suggestion(name, share::case_names()),
                     fmt::join(share::case_names(), ", "));
  const std::string text = share::to_json(*workload);
  Answer answer;
  answer.fields.merge(JsonObject::of_text(text));
  if (output.empty()) {
    answer.text = text;
    return answer;
  }
  if (const Status written = write_output(output, text); !written.ok()) return written.error();
  if (output != "-") answer.text = "written " + output + "\n";
  return answer;
}

Result<Answer> list_cases() {
  Answer answer;
  Table table({"case", ">jobs", "source"});
  for (const std::string& name : share::case_names()) {
    const share::Workload workload = *share::named_case(name);
    table.row({name, std::to_string(workload.jobs.size()), workload.source});
  }
  answer.fields.set("cases", share::case_names());
  answer.text = table.text();
  return answer;
}

}  // namespace

void add_share(Command& parent) {
  Command command = parent.subcommand("share", "Several jobs on one device's memory.");

  auto words = std::make_shared<SimulateWords>();
  Command simulate = command.subcommand("simulate", "Policies on a list of jobs, side by side.");
  simulate.input_file(
      "JOBS", words->jobs,
      "a file of jobs, or a case's name (outsize share cases); - is standard input");
  simulate.option("--policy", "LIST", words->policies,
                  fmt::format("{}; all by default", fmt::join(share::kPolicyNames.all(), ", ")));
  simulate.option("--quantum", "LIST", words->quanta,
                  "seconds of a turn under round-robin, a row for each; 30 by default");
  simulate.does([words] { return simulate_jobs(*words); });

  command.subcommand("cases", "Lists the jobs that are known by name.").does([] {
    return list_cases();
  });

  auto name = std::make_shared<std::string>();
  auto output = std::make_shared<std::string>();
  Command one = command.subcommand("case", "Prints a case's jobs, to change and simulate.");
  one.argument("NAME", *name, "see outsize share cases");
  one.output_file(*output, "where to; standard output by default");
  one.does([name, output] { return write_case(*name, *output); });
}

}  // namespace outsize::cli
