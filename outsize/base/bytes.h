// Amounts of bytes as people write them.
//
//   parse_bytes("6GiB") == 6442450944;  parse_bytes("6GB") == 6000000000;  parse_bytes("1048576")
//   parse_budget("25%", 1000) == 250;   format_bytes(1610612736) == "1.50 GiB"
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "outsize/base/result.h"

namespace outsize {

// The largest size anything may have: sums of two still fit in 64 bits.
inline constexpr int64_t kMaxBytes = int64_t{1} << 62;

// The least multiple of `unit` that is not below `bytes`. Requires: bytes >= 0, unit > 0.
constexpr int64_t round_up(int64_t bytes, int64_t unit) { return (bytes + unit - 1) / unit * unit; }

// A number, with B, KB, MB, GB, TB (powers of 1000) or KiB, MiB, GiB, TiB (of 1024) in any case; a
// fraction of a unit is rounded down to a whole byte.
Result<int64_t> parse_bytes(std::string_view text);
// Also "25%" of `peak`, where one is known.
Result<int64_t> parse_budget(std::string_view text, std::optional<int64_t> peak);
// Three digits or so, in powers of 1024: "512 B", "1.50 GiB".
std::string format_bytes(int64_t bytes);

}  // namespace outsize
