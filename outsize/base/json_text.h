// Writing JSON by appending to a string: strings escaped, doubles such that they read back to the
// same bits and never look like integers.
//
//   std::string out;  append_json(out, 1.0);  append_json(out, "a\"b");     // 1.0"a\"b"
#pragma once

#include <cstdint>
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

}  // namespace outsize
