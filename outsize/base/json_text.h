// Writing JSON by appending to a string: strings escaped, doubles such that they read back to the
// same bits and never look like integers.
//
//   std::string out;  append_json(out, 1.0);  append_json(out, "a\"b");     // 1.0"a\"b"
//   out = "{\"x\": 1";  append_json_field(out, "y", sizes);                // {"x": 1, "y": [2, 3]
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace outsize {

void append_json(std::string& out, int64_t value);
void append_json(std::string& out,
                 bool value) = delete;  // say "true" or "false" where it is written
// Requires: finite. Shortest text that reads back to the same double, always with a point or
// exponent.
void append_json(std::string& out, double value);
// Quoted. Bytes that are not UTF-8 are written as U+FFFD, since JSON can't carry them.
void append_json(std::string& out, std::string_view text);
inline void append_json(std::string& out, const std::string& text) {
  append_json(out, std::string_view(text));
}
inline void append_json(std::string& out, const char* text) {
  append_json(out, std::string_view(text));
}

// Before a field that is neither its object's first nor on the line of the one before it.
inline constexpr std::string_view kJsonNextLine = ",\n ";

// `, "name": `: all of a field but its value. `name` is written as it is.
void append_json_name(std::string& out, std::string_view name, std::string_view separator = ", ");

// `[a, b]`; `append_item(out, a)` writes an item.
template <typename Items, typename Append>
void append_json_list(std::string& out, const Items& items, Append append_item) {
  out += '[';
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += ", ";
    append_item(out, items[i]);
  }
  out += ']';
}
inline void append_json(std::string& out, std::span<const int64_t> values) {
  append_json_list(out, values, [](std::string& to, int64_t value) { append_json(to, value); });
}

// `, "name": value`.
template <typename T>
void append_json_field(std::string& out, std::string_view name, const T& value,
                       std::string_view separator = ", ") {
  append_json_name(out, name, separator);
  append_json(out, value);
}

// A field on a line of its own, each item on another:
//   ,
//    "name": [
//     a,
//     b]
template <typename Items, typename Append>
void append_json_table(std::string& out, std::string_view name, const Items& items,
                       Append append_item) {
  append_json_name(out, name, kJsonNextLine);
  out += '[';
  for (size_t i = 0; i < items.size(); ++i) {
    out += i > 0 ? ",\n  " : "\n  ";
    append_item(out, items[i]);
  }
  out += ']';
}

}  // namespace outsize
