// Random damage to valid text, for tests that a reader never does worse than refuse.
#pragma once

#include <string>
#include <string_view>

#include "outsize/base/random.h"

namespace outsize {

// `text` with one to four bytes or stretches changed, dropped, repeated or replaced by what often
// trips readers: huge and negative numbers, other types, brackets.
inline std::string damaged(std::string_view text, Random& random) {
  static constexpr std::string_view kPieces[] = {"-1",
                                                 "0",
                                                 "99999999999999999999",
                                                 "9223372036854775807",
                                                 "4611686018427387905",
                                                 "1e400",
                                                 "null",
                                                 "[]",
                                                 "{}",
                                                 "\"\"",
                                                 "true",
                                                 "1.5",
                                                 "[",
                                                 "}",
                                                 "\"",
                                                 ",",
                                                 "\\",
                                                 "2147483648"};
  std::string out(text);
  for (int64_t edits = random.between(1, 5); edits > 0 && !out.empty(); --edits) {
    const auto at = static_cast<size_t>(random.below(std::ssize(out)));
    const auto length = static_cast<size_t>(random.between(1, 9));
    switch (random.below(5)) {
      case 0:
        out[at] = static_cast<char>(random.below(256));
        break;
      case 1:
        out.erase(at, length);
        break;
      case 2:
        out.insert(at, out.substr(at, length));
        break;
      case 3:
        out.replace(at, 1, kPieces[random.below(std::ssize(kPieces))]);
        break;
      default: {
        // A whole number or word.
        const size_t end = out.find_first_of(",]}", at);
        const size_t begin = out.find_last_of(":[,{ ", at);
        if (end == std::string::npos || begin == std::string::npos || begin + 1 >= end) break;
        out.replace(begin + 1, end - begin - 1, kPieces[random.below(std::ssize(kPieces))]);
      }
    }
  }
  return out;
}

}  // namespace outsize
