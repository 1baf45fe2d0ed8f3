// Broken invariants: always-on checks that throw InternalError, the only exception the core throws.
//
//   OUTSIZE_CHECK(begin <= end, "interval runs backwards: [{}, {})", begin, end);
//
// It is caught at thread entry points, in `main` and in the Python binding only. Expected outcomes
// (infeasible, bad file, disk full) are `Result`s instead; see result.h.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>

namespace outsize {

class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

[[noreturn]] inline void throw_internal(const char* condition, const char* file, int line,
                                        const std::string& message) {
  throw InternalError(fmt::format("{}:{}: check failed: {}: {}", file, line, condition, message));
}

}  // namespace outsize

#define OUTSIZE_CHECK(condition, ...)                                                        \
  do {                                                                                       \
    if (!(condition)) [[unlikely]]                                                           \
      ::outsize::throw_internal(#condition, __FILE__, __LINE__, ::fmt::format(__VA_ARGS__)); \
  } while (false)

#ifdef NDEBUG
#define OUTSIZE_DCHECK(condition, ...) \
  do {                                 \
  } while (false)
#else
#define OUTSIZE_DCHECK(condition, ...) OUTSIZE_CHECK(condition, __VA_ARGS__)
#endif
