// outsize machine list | show NAME | measure -o FILE
#include "outsize/profile/machine.h"

#include <memory>

#include "outsize/base/bytes.h"
#include "outsize/cli/command.h"
#include "outsize/cli/inputs.h"
#include "outsize/cli/machine_measure.h"
#include "outsize/cli/table.h"
#include "outsize/profile/machine_json.h"

namespace outsize::cli {
namespace {

std::string rate(int64_t bytes_per_s) {
  return bytes_per_s == 0 ? "-" : fmt::format("{:.1f}", static_cast<double>(bytes_per_s) / 1e9);
}

std::string memory(int64_t bytes) { return bytes == 0 ? "-" : format_bytes(bytes); }

std::string link_words(const Link& link) {
  if (link.bytes_per_s == 0) return "none";
  return fmt::format("{} GB/s, {} a copy", rate(link.bytes_per_s), format_ns(link.latency_ns));
}

Result<Answer> list() {
  Answer answer;
  std::vector<JsonObject> objects;
  Table table({"machine", ">device", ">host", ">memory GB/s", ">out GB/s", ">in GB/s", ">both GB/s",
               ">write GB/s", ">read GB/s"});
  for (const Machine& m : preset_machines()) {
    objects.push_back(JsonObject::of_text(to_json(m)));
    table.row({m.name, memory(m.device_bytes), memory(m.host_bytes), rate(m.memory_bytes_per_s),
               rate(m.out.bytes_per_s), rate(m.in.bytes_per_s), rate(m.both_bytes_per_s),
               rate(m.write.bytes_per_s), rate(m.read.bytes_per_s)});
  }
  answer.fields.set("machines", objects);
  answer.text = table.text();
  return answer;
}

Answer answer_of(const Machine& m) {
  Answer answer;
  answer.fields = JsonObject::of_text(to_json(m));
  Facts facts;
  facts.add("machine", m.name);
  facts.add("source", m.source);
  facts.add("memory", fmt::format("device {}, host {}, disk {}", memory(m.device_bytes),
                                  memory(m.host_bytes), memory(m.disk_bytes)));
  facts.add("alignment",
            fmt::format("{} B on the device, {} B on disk", m.alignment, m.disk_alignment));
  std::string peaks;
  for (const auto& [dtype, flops] : m.flops_per_s)
    peaks += fmt::format("{}{} {:.4g} T/s", peaks.empty() ? "" : ", ", dtype, flops / 1e12);
  if (!peaks.empty())
    facts.add("operations",
              fmt::format("{}; {:.0f}% of that reached", peaks, 100 * m.achieved_fraction));
  facts.add("memory rate", fmt::format("{} GB/s", rate(m.memory_bytes_per_s)));
  facts.add("launch", format_ns(m.launch_ns));
  facts.add("out", link_words(m.out));
  facts.add("in", link_words(m.in));
  if (m.both_bytes_per_s > 0)
    facts.add("out and in at once", fmt::format("{} GB/s together", rate(m.both_bytes_per_s)));
  facts.add("write", link_words(m.write));
  facts.add("read", link_words(m.read));
  if (m.disk_both_bytes_per_s > 0)
    facts.add("write and read at once",
              fmt::format("{} GB/s together", rate(m.disk_both_bytes_per_s)));
  if (m.sync_bytes_per_s > 0)
    facts.add("copies in the compute stream", fmt::format("{} GB/s", rate(m.sync_bytes_per_s)));
  if (m.compute_permille_beside_copy < 1000 || m.copy_permille_beside_compute < 1000)
    facts.add("beside each other",
              fmt::format("ops at {:.1f}% of their speed, copies at {:.1f}%",
                          static_cast<double>(m.compute_permille_beside_copy) / 10,
                          static_cast<double>(m.copy_permille_beside_compute) / 10));
  if (m.compute_permille_beside_disk < 1000 || m.disk_permille_beside_compute < 1000)
    facts.add("beside the disk",
              fmt::format("ops at {:.1f}% of their speed, its copies at {:.1f}%",
                          static_cast<double>(m.compute_permille_beside_disk) / 10,
                          static_cast<double>(m.disk_permille_beside_compute) / 10));
  answer.text = facts.text();
  return answer;
}

Result<Answer> show(const std::string& name, const std::string& output) {
  if (Status writable = check_output(output); !writable.ok()) return writable.error();
  const Result<Machine> machine = load_machine(name);
  if (!machine.ok()) return machine.error();
  if (!output.empty())
    if (Status written = write_output(output, to_json(*machine)); !written.ok())
      return written.error();
  return answer_of(*machine);
}

Result<Answer> measure(const MeasureOptions& options, const std::string& output) {
  if (output.empty()) return bad_input("-o FILE is required: where the measured machine goes");
  if (Status writable = check_output(output); !writable.ok()) return writable.error();
  const Result<std::string> text = measured_machine(options);
  if (!text.ok()) return text.error();
  const Result<Machine> machine = machine_from_json(*text);
  if (!machine.ok())
    return Error{ErrorKind::kInternal,
                 fmt::format("measuring gave no machine: {}", machine.error().message)};
  if (Status written = write_output(output, to_json(*machine)); !written.ok())
    return written.error();
  return answer_of(*machine);
}

}  // namespace

void add_machine(Command& parent) {
  Command command = parent.subcommand("machine", "Lists, shows and measures machines.");
  Command list_command = command.subcommand("list", "The presets.");
  list_command.does([] { return list(); });

  auto name = std::make_shared<std::string>();
  auto copy = std::make_shared<std::string>();
  Command show_command = command.subcommand("show", "One machine.");
  show_command.argument("NAME", *name, "a preset or a file");
  show_command.output_file(*copy, "also write it as a machine file, to change and use");
  show_command.does([name, copy] { return show(*name, *copy); });

  auto options = std::make_shared<MeasureOptions>();
  auto output = std::make_shared<std::string>();
  Command measure_command =
      command.subcommand("measure", "Measures this machine: some seconds, best alone.");
  measure_command.output_file(*output, "the machine file; - is standard output");
  measure_command.option("--name", "NAME", options->name, "what to call it");
  measure_command.option("--disk-dir", "FOLDER", options->disk_dir,
                         "measure this folder's disk as well");
  measure_command.does([options, output] { return measure(*options, *output); });
}

}  // namespace outsize::cli
