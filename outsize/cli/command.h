// A subcommand: the options it declares and what it does with them. Hides the parser of the command
// line, which only command_line.cc knows.
//
//   void add_greet(Command& parent) {
//     auto name = std::make_shared<std::string>();
//     Command greet = parent.subcommand("greet", "Says hello.");
//     greet.argument("NAME", *name, "whom");
//     greet.does([name]() -> Result<Answer> { return Answer{.text = "hello " + *name + "\n"}; });
//   }
//
// Variables that options are read into must outlive the parsing: the command's function owns them.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "outsize/base/result.h"
#include "outsize/cli/json_object.h"

namespace CLI {
class App;
}

namespace outsize::cli {

// What a command has to say, both ways; the caller prints one of them.
struct Answer {
  JsonObject fields;           // with --json
  std::string text;            // without
  std::optional<Error> error;  // makes the exit code; `fields` may say more beside it
  JsonObject error_fields;     // more fields of "error"
};

using Action = std::function<Result<Answer>()>;

struct Registry {
  struct Entry {
    CLI::App* app = nullptr;
    Action action;
    // Every variable that an option -o is read into: "-" there leaves no room for the answer.
    std::vector<const std::string*> outputs;
    std::vector<const std::string*> inputs;
  };
  std::vector<Entry> entries;
  bool json = false;
};

class Command {
 public:
  Command(CLI::App& app, Registry& registry) : app_(&app), registry_(&registry) {}

  Command subcommand(const std::string& name, const std::string& help);
  // A word that must be there, in the order of the calls. `FILE`s may be "-".
  void argument(const std::string& name, std::string& into, const std::string& help);
  void input_file(const std::string& name, std::string& into, const std::string& help);
  // Any number of them, none included.
  void input_files(const std::string& name, std::vector<std::string>& into,
                   const std::string& help);
  // `names`: "-o,--output"; `value`: how help names what follows.
  void option(const std::string& names, const std::string& value, std::string& into,
              const std::string& help);
  void option(const std::string& names, const std::string& value, std::optional<std::string>& into,
              const std::string& help);
  void option(const std::string& names, const std::string& value, std::optional<double>& into,
              const std::string& help);
  void option(const std::string& names, const std::string& value, std::optional<int64_t>& into,
              const std::string& help);
  void flag(const std::string& names, bool& into, const std::string& help);
  // -o FILE.
  void output_file(std::string& into, const std::string& help);
  void does(Action action);

 private:
  Registry::Entry& entry();
  CLI::App* app_;
  Registry* registry_;
};

// One per file <name>.cc.
void add_import(Command& parent);
void add_generate(Command& parent);
void add_machine(Command& parent);
void add_bound(Command& parent);
void add_plan(Command& parent);
void add_check(Command& parent);
void add_simulate(Command& parent);
void add_compare(Command& parent);
void add_sweep(Command& parent);
void add_explain(Command& parent);
void add_pack(Command& parent);
void add_share(Command& parent);
void add_tune(Command& parent);

}  // namespace outsize::cli
