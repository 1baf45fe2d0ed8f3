#include "outsize/base/bytes.h"

#include <array>
#include <limits>
#include <utility>

#include "outsize/base/check.h"

namespace outsize {
namespace {

using Wide = __int128;

// A decimal number as digits / scale, exactly.
struct Decimal {
  Wide digits = 0;
  Wide scale = 1;
  bool fraction = false;
};

constexpr std::array<std::pair<std::string_view, int64_t>, 9> kUnits{{
    {"b", 1},
    {"kb", 1'000},
    {"mb", 1'000'000},
    {"gb", 1'000'000'000},
    {"tb", 1'000'000'000'000},
    {"kib", int64_t{1} << 10},
    {"mib", int64_t{1} << 20},
    {"gib", int64_t{1} << 30},
    {"tib", int64_t{1} << 40},
}};

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

// Takes the number at the start of `text`; nothing if there is none or it has over 18 digits.
std::optional<Decimal> take_number(std::string_view& text) {
  Decimal number;
  int digits = 0;
  while (!text.empty()) {
    const char c = text.front();
    if (c == '.' && !number.fraction) {
      number.fraction = true;
    } else if (c >= '0' && c <= '9') {
      if (++digits > 19) return std::nullopt;
      number.digits = number.digits * 10 + (c - '0');
      if (number.fraction) number.scale *= 10;
    } else {
      break;
    }
    text.remove_prefix(1);
  }
  if (digits == 0) return std::nullopt;
  return number;
}

Error not_bytes(std::string_view text) {
  return bad_input("'{}' is not an amount of bytes; write 6GiB, 6GB or 6442450944", text);
}

}  // namespace

Result<int64_t> parse_bytes(std::string_view text) {
  std::string_view rest = trimmed(text);
  const auto number = take_number(rest);
  if (!number) return not_bytes(text);
  std::string unit;
  for (const char c : trimmed(rest)) unit += static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  int64_t factor = 0;
  if (unit.empty() && !number->fraction) factor = 1;
  for (const auto& [name, bytes] : kUnits)
    if (unit == name) factor = bytes;
  if (factor == 0) return not_bytes(text);
  const Wide bytes = number->digits * factor / number->scale;
  if (bytes > kMaxBytes) return bad_input("'{}' is more than 2^62 bytes", text);
  return static_cast<int64_t>(bytes);
}

Result<int64_t> parse_budget(std::string_view text, std::optional<int64_t> peak) {
  std::string_view rest = trimmed(text);
  if (rest.empty() || rest.back() != '%') return parse_bytes(text);
  rest.remove_suffix(1);
  const auto number = take_number(rest);
  if (!number || !trimmed(rest).empty())
    return bad_input("'{}' is not a share of the peak; write 25%", text);
  if (!peak)
    return bad_input("'{}' is a share of a peak that is not known here; write bytes", text);
  OUTSIZE_CHECK(*peak >= 0 && *peak <= kMaxBytes, "peak of {} bytes", *peak);
  // At most 10^19 x 2^62 < 2^127.
  const Wide bytes = number->digits * *peak / (number->scale * 100);
  if (bytes > kMaxBytes) return bad_input("'{}' is more than 2^62 bytes", text);
  return static_cast<int64_t>(bytes);
}

std::string format_bytes(int64_t bytes) {
  if (bytes < 0)
    return "-" + format_bytes(bytes == std::numeric_limits<int64_t>::min()
                                  ? std::numeric_limits<int64_t>::max()
                                  : -bytes);
  if (bytes < 1024) return fmt::format("{} B", bytes);
  constexpr std::array<std::string_view, 4> kNames{"KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  double amount = static_cast<double>(bytes) / 1024;
  // 1023.995 and more would print as 1024.00.
  while (unit + 1 < kNames.size() && amount >= 1023.995) {
    amount /= 1024;
    ++unit;
  }
  return fmt::format("{:.2f} {}", amount, kNames[unit]);
}

}  // namespace outsize
