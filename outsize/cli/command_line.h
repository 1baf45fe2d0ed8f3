// The command line: words in, what to print and the exit code out.
//
//   Printed p = run_command_line({"machine", "list", "--json"});   // without the program's name
//   p.code == 0;  p.out == "{\"outsize\": \"0.1.0\", ...}\n";  p.err == ""
//
// Exit codes: 0 done, 1 infeasible or not legal, 2 bad use or bad input, 3 anything else. Throws
// nothing: a broken invariant is code 3. Files named by options are read and written; "-" uses this
// process's own standard input and output.
#pragma once

#include <string>
#include <vector>

#include "outsize/base/result.h"

namespace outsize::cli {

struct Printed {
  int code = 0;
  std::string out;
  std::string err;
};

Printed run_command_line(const std::vector<std::string>& words);

int exit_code(ErrorKind kind);

}  // namespace outsize::cli
