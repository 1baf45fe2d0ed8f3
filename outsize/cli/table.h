// Words for people: times, shares, tables.
//
//   Table t({"planner", ">step"});  t.row({"keep", format_ns(1500)});
//   t.text() == "planner     step\nkeep     1.50 us\n"
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace outsize::cli {

// "412 ns", "1.50 us", "12.3 ms", "1.23 s".
std::string format_ns(int64_t ns);
// "6442450944 (6.00 GiB)"; small amounts once: "412 B".
std::string format_exact_bytes(int64_t bytes);

class Table {
 public:
  // A heading that starts with '>' stands, like its column, at the right.
  explicit Table(std::vector<std::string> headings);
  // Requires: as many cells as headings.
  void row(std::vector<std::string> cells);
  std::string text() const;

 private:
  std::vector<bool> right_;
  std::vector<std::vector<std::string>> rows_;
};

// "key   value" lines, keys as wide as the longest.
class Facts {
 public:
  void add(std::string key, std::string value);
  std::string text() const;

 private:
  std::vector<std::pair<std::string, std::string>> facts_;
};

}  // namespace outsize::cli
