// Whole files as strings: read, and written so that a reader sees the old content or the new, never
// half.
//
//   Result<std::string> text = read_file("graph.json");         // "-": standard input
//   Status done = write_file_atomically("plan.json", text);     // "-": standard output
#pragma once

#include <string>
#include <string_view>

#include "outsize/base/result.h"

namespace outsize {

// kBadInput if it is not there or can't be read.
Result<std::string> read_file(const std::string& path);
// Writes beside `path` under a name of its own, flushes it to the disk and renames it. kDevice on
// failure, with nothing left behind. A path that is not a regular file (/dev/stdout, a pipe) is
// written directly.
Status write_file_atomically(const std::string& path, std::string_view text);

}  // namespace outsize
