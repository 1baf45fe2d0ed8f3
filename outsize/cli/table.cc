#include "outsize/cli/table.h"

#include <algorithm>

#include "outsize/base/bytes.h"
#include "outsize/base/check.h"

namespace outsize::cli {

std::string format_ns(int64_t ns) {
  if (ns < 1000) return fmt::format("{} ns", ns);
  constexpr const char* kUnits[] = {"us", "ms", "s"};
  double amount = static_cast<double>(ns) / 1000;
  size_t unit = 0;
  // What would print as 1000 of a unit is 1 of the next.
  while (unit < 2 && amount >= 999.5) {
    amount /= 1000;
    ++unit;
  }
  const int digits = amount < 9.995 ? 2 : amount < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f} {}", amount, digits, kUnits[unit]);
}

std::string format_exact_bytes(int64_t bytes) {
  if (bytes < 1024) return format_bytes(bytes);
  return fmt::format("{} ({})", bytes, format_bytes(bytes));
}

Table::Table(std::vector<std::string> headings) {
  for (std::string& heading : headings) {
    right_.push_back(heading.starts_with('>'));
    if (right_.back()) heading.erase(0, 1);
  }
  rows_.push_back(std::move(headings));
}

void Table::row(std::vector<std::string> cells) {
  OUTSIZE_CHECK(cells.size() == right_.size(), "{} cells for {} columns", cells.size(),
                right_.size());
  rows_.push_back(std::move(cells));
}

std::string Table::text() const {
  std::vector<size_t> widths(right_.size(), 0);
  for (const auto& row : rows_)
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::string out;
  for (const auto& row : rows_) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      if (i > 0) line += "  ";
      line += right_[i] ? fmt::format("{:>{}}", row[i], widths[i])
                        : fmt::format("{:<{}}", row[i], widths[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

void Facts::add(std::string key, std::string value) {
  facts_.emplace_back(std::move(key), std::move(value));
}

std::string Facts::text() const {
  size_t width = 0;
  for (const auto& [key, value] : facts_) width = std::max(width, key.size());
  std::string out;
  for (const auto& [key, value] : facts_) out += fmt::format("{:<{}}  {}\n", key, width, value);
  return out;
}

}  // namespace outsize::cli
