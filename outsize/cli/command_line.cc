#include "outsize/cli/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <exception>

#include "outsize/base/names.h"
#include "outsize/cli/command.h"

namespace outsize::cli {
namespace {

CLI::App* chosen_app(CLI::App& root) {
  CLI::App* app = &root;
  for (auto below = app->get_subcommands(); !below.empty(); below = app->get_subcommands())
    app = below.front();
  return app;
}

std::string full_name(const CLI::App& app) {
  if (app.get_parent() == nullptr) return app.get_name();
  return full_name(*app.get_parent()) + " " + app.get_name();
}

std::vector<std::string> option_names(CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
  }
  return names;
}

std::vector<std::string> subcommand_names(CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(sub->get_name());
  return names;
}

// The first word that no command or option took, if there is one.
std::optional<Error> unknown_word(CLI::App& root) {
  CLI::App* app = chosen_app(root);
  const std::vector<std::string> left = root.remaining(true);
  if (left.empty()) return std::nullopt;
  // An option that is not known leaves its value behind as another word.
  const auto option = std::find_if(left.begin(), left.end(), [](const std::string& word) {
    return word.size() > 1 && word.front() == '-' && word != "--json";
  });
  const std::string command = full_name(*app);
  if (option != left.end()) {
    const std::string name = option->substr(0, option->find('='));
    return bad_input("{}: no option '{}'{}", command, name, suggestion(name, option_names(*app)));
  }
  const std::vector<std::string> commands = subcommand_names(*app);
  if (!commands.empty())
    return bad_input("{}no command '{}'{}; there are {}", app == &root ? "" : command + ": ",
                     left.front(), suggestion(left.front(), commands), fmt::join(commands, ", "));
  return bad_input("{}: '{}' is one word too many; see {} --help", command, left.front(), command);
}

Printed print(const Answer& answer, bool json, bool stdout_taken) {
  Printed printed;
  if (answer.error) printed.code = exit_code(answer.error->kind);
  if (json) {
    JsonObject all;
    all.set("outsize", OUTSIZE_VERSION);
    all.merge(answer.fields);
    if (answer.error) {
      JsonObject error;
      error.set("kind", name_of(answer.error->kind)).set("message", answer.error->message);
      all.set("error", error.merge(answer.error_fields));
    }
    printed.out = all.lines();
    return printed;
  }
  (stdout_taken ? printed.err : printed.out) = answer.text;
  if (answer.error) printed.err += fmt::format("outsize: {}\n", answer.error->message);
  return printed;
}

Printed print_error(const Error& error, bool json) {
  Answer answer;
  answer.error = error;
  return print(answer, json, false);
}

// Two files can't both be standard input, and an answer can't share standard output with a file.
std::optional<Error> dash_conflict(const Registry::Entry& entry, bool json) {
  const auto dashes = [](const std::vector<const std::string*>& files) {
    return std::count_if(files.begin(), files.end(), [](const auto* file) { return *file == "-"; });
  };
  if (dashes(entry.inputs) > 1)
    return bad_input("only one of the files can be '-', standard input");
  if (json && dashes(entry.outputs) > 0)
    return bad_input("-o - and --json both want standard output; give -o a file");
  return std::nullopt;
}

Printed run(const std::vector<std::string>& words) {
  // Also where the words can't be parsed: a script that asked for JSON gets it.
  const bool json = std::find(words.begin(), words.end(), "--json") != words.end();
  CLI::App root(
      "Plans training steps that outsize their device: what to move, drop and recompute, and "
      "where every byte lies.",
      "outsize");
  Registry registry;
  root.set_version_flag("--version", OUTSIZE_VERSION);
  root.allow_extras();
  root.failure_message(CLI::FailureMessage::simple);
  Command top(root, registry);
  for (const auto add :
       {add_import, add_generate, add_machine, add_bound, add_plan, add_check, add_simulate,
        add_compare, add_sweep, add_explain, add_pack, add_share, add_tune})
    add(top);
  try {
    // The parser takes words from the back.
    root.parse(std::vector<std::string>(words.rbegin(), words.rend()));
  } catch (const CLI::Success& done) {
    std::ostringstream out, err;
    root.exit(done, out, err);
    return {.code = 0, .out = out.str(), .err = err.str()};
  } catch (const CLI::ParseError& failure) {
    if (const auto error = unknown_word(root)) return print_error(*error, json);
    if (chosen_app(root) == &root && words.empty())
      return {.code = exit_code(ErrorKind::kBadInput), .out = "", .err = root.help()};
    return print_error(bad_input("{}", failure.what()), json);
  }
  if (const auto error = unknown_word(root)) return print_error(*error, json);
  for (const Registry::Entry& entry : registry.entries) {
    if (!entry.app->parsed()) continue;
    if (const auto error = dash_conflict(entry, json)) return print_error(*error, json);
    const Result<Answer> answer = entry.action();
    if (!answer.ok()) return print_error(answer.error(), json);
    const bool taken = std::any_of(entry.outputs.begin(), entry.outputs.end(),
                                   [](const std::string* file) { return *file == "-"; });
    return print(*answer, json, taken);
  }
  return print_error({ErrorKind::kInternal, "no command took the words"}, json);
}

}  // namespace

int exit_code(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kInfeasible:
    case ErrorKind::kIllegal:
      return 1;
    case ErrorKind::kBadInput:
      return 2;
    case ErrorKind::kCancelled:
    case ErrorKind::kDevice:
    case ErrorKind::kInternal:
      return 3;
  }
  return 3;
}

Printed run_command_line(const std::vector<std::string>& words) {
  const bool json = std::find(words.begin(), words.end(), "--json") != words.end();
  try {
    return run(words);
  } catch (const std::bad_alloc&) {
    return print_error({ErrorKind::kInternal, "out of memory"}, json);
  } catch (const std::exception& failure) {
    return print_error({ErrorKind::kInternal, failure.what()}, json);
  }
}

// --- command.h

Command Command::subcommand(const std::string& name, const std::string& help) {
  app_->require_subcommand(1);
  CLI::App* sub = app_->add_subcommand(name, help);
  sub->allow_extras();
  return {*sub, *registry_};
}

Registry::Entry& Command::entry() {
  for (Registry::Entry& entry : registry_->entries)
    if (entry.app == app_) return entry;
  registry_->entries.push_back({.app = app_, .action = {}, .outputs = {}, .inputs = {}});
  return registry_->entries.back();
}

void Command::argument(const std::string& name, std::string& into, const std::string& help) {
  app_->add_option(name, into, help)->required();
}

void Command::input_file(const std::string& name, std::string& into, const std::string& help) {
  argument(name, into, help);
  entry().inputs.push_back(&into);
}

void Command::input_files(const std::string& name, std::vector<std::string>& into,
                          const std::string& help) {
  app_->add_option(name, into, help);
}

void Command::option(const std::string& names, const std::string& value, std::string& into,
                     const std::string& help) {
  app_->add_option(names, into, help)->type_name(value);
}

void Command::option(const std::string& names, const std::string& value,
                     std::optional<std::string>& into, const std::string& help) {
  app_->add_option(names, into, help)->type_name(value);
}

void Command::option(const std::string& names, const std::string& value,
                     std::optional<double>& into, const std::string& help) {
  app_->add_option(names, into, help)->type_name(value);
}

void Command::option(const std::string& names, const std::string& value,
                     std::optional<int64_t>& into, const std::string& help) {
  app_->add_option(names, into, help)->type_name(value);
}

void Command::flag(const std::string& names, bool& into, const std::string& help) {
  app_->add_flag(names, into, help);
}

void Command::output_file(std::string& into, const std::string& help) {
  option("-o,--output", "FILE", into, help);
  entry().outputs.push_back(&into);
}

void Command::does(Action action) {
  app_->add_flag("--json", registry_->json, "one JSON object on standard output");
  entry().action = std::move(action);
}

}  // namespace outsize::cli
