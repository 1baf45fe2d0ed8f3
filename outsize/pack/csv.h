// MiniMalloc's CSV: one buffer a line, columns named by the first line, in any order.
//
//   id,lower,upper,size          b1 is live in [0, 3), 4 bytes; with "start,end" instead of
//   b1,0,3,4                     "lower,upper" the end is inclusive: [0, 3]
//   b2,3,9,4
//
// Further columns: alignment (empty: 1), offset (where the buffer must lie; empty: free), gaps
// ("lo-hi" or "lo-hi@wlo:whi", separated by spaces), hint (read, and has no effect). Pure
// functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "outsize/base/result.h"
#include "outsize/pack/pack.h"

namespace outsize {

struct PackFile {
  std::vector<Buffer> buffers;     // ids are positions
  std::vector<std::string> names;  // the id column, as written
  bool inclusive_end = false;      // start,end
  bool operator==(const PackFile&) const = default;
};

// Errors name line and column ("line 3, column 'size': ...") and, for an unknown column, the
// nearest.
Result<PackFile> pack_file_from_csv(std::string_view text);

// The buffers with their offsets; columns alignment and gaps only where some buffer has them.
// Requires: as many offsets as buffers.
std::string pack_file_to_csv(const PackFile& file, const std::vector<int64_t>& offsets);

}  // namespace outsize
