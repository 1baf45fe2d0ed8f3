// The `outsize` command.
#include <cstdio>

#include "outsize/base/files.h"
#include "outsize/cli/command_line.h"

int main(int argc, char** argv) {
  const outsize::cli::Printed printed = outsize::cli::run_command_line(
      std::vector<std::string>(argv + (argc > 0 ? 1 : 0), argv + argc));
  std::fputs(printed.err.c_str(), stderr);
  if (printed.out.empty()) return printed.code;
  const outsize::Status written = outsize::write_file_atomically("-", printed.out);
  if (written.ok()) return printed.code;
  std::fprintf(stderr, "outsize: %s\n", written.error().message.c_str());
  return outsize::cli::exit_code(written.error().kind);
}
