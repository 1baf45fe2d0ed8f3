#include "outsize/pack/csv.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>

#include "outsize/base/names.h"

namespace outsize {
namespace {

enum class Column { kId, kLower, kUpper, kStart, kEnd, kSize, kAlignment, kHint, kGaps, kOffset };
constexpr EnumNames<Column, 10> kColumnNames{{{{Column::kId, "id"},
                                               {Column::kLower, "lower"},
                                               {Column::kUpper, "upper"},
                                               {Column::kStart, "start"},
                                               {Column::kEnd, "end"},
                                               {Column::kSize, "size"},
                                               {Column::kAlignment, "alignment"},
                                               {Column::kHint, "hint"},
                                               {Column::kGaps, "gaps"},
                                               {Column::kOffset, "offset"}}}};
constexpr int64_t kLargest = int64_t{1} << 60;

std::string_view trimmed(std::string_view text) {
  const auto begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

std::vector<std::string_view> split(std::string_view line, char separator) {
  std::vector<std::string_view> fields;
  while (true) {
    const auto at = line.find(separator);
    fields.push_back(trimmed(line.substr(0, at)));
    if (at == std::string_view::npos) return fields;
    line.remove_prefix(at + 1);
  }
}

std::optional<int64_t> whole_number(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  if (value > kLargest || value < -kLargest) return std::nullopt;
  return value;
}

// "lo-hi" or "lo-hi@wlo:whi"
std::optional<Gap> gap_from(std::string_view text) {
  std::string_view window;
  const auto at = text.find('@');
  if (at != std::string_view::npos) {
    window = text.substr(at + 1);
    text = text.substr(0, at);
  }
  // The second '-' may be a sign.
  const auto dash = text.find('-', 1);
  if (dash == std::string_view::npos) return std::nullopt;
  const auto low = whole_number(text.substr(0, dash)), high = whole_number(text.substr(dash + 1));
  if (!low || !high) return std::nullopt;
  Gap gap{{*low, *high}, std::nullopt};
  if (at == std::string_view::npos) return gap;
  const auto colon = window.find(':');
  if (colon == std::string_view::npos) return std::nullopt;
  const auto from = whole_number(window.substr(0, colon)),
             to = whole_number(window.substr(colon + 1));
  if (!from || !to) return std::nullopt;
  gap.window = Interval{*from, *to};
  return gap;
}

class Reader {
 public:
  Result<PackFile> read(std::string_view text) {
    int64_t line_number = 0;
    bool header = false;
    while (!text.empty()) {
      const auto end = text.find('\n');
      const std::string_view line = trimmed(text.substr(0, end));
      text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
      ++line_number;
      if (line.empty()) continue;
      const Status status =
          header ? read_buffer(line, line_number) : read_header(line, line_number);
      if (!status.ok()) return status.error();
      header = true;
    }
    if (!header) return bad_input("line 1: empty; the first line must name the columns");
    return std::move(file_);
  }

 private:
  Status read_header(std::string_view line, int64_t number) {
    for (std::string_view name : split(line, ',')) {
      const auto column = kColumnNames.find(name);
      if (!column) {
        const std::string nearest = nearest_match(name, kColumnNames.all());
        return bad_input("line {}: unknown column '{}'{}", number, name,
                         nearest.empty() ? "" : fmt::format(" (nearest: '{}')", nearest));
      }
      if (has(*column)) return bad_input("line {}: column '{}' is there twice", number, name);
      columns_.push_back(*column);
    }
    file_.inclusive_end = has(Column::kEnd);
    const bool exclusive = has(Column::kLower) && has(Column::kUpper);
    const bool inclusive = has(Column::kStart) && has(Column::kEnd);
    const int named =
        has(Column::kLower) + has(Column::kUpper) + has(Column::kStart) + has(Column::kEnd);
    if (!(exclusive || inclusive) || named != 2)
      return bad_input(
          "line {}: wants the columns 'lower' and 'upper' (upper exclusive), or 'start' "
          "and 'end' (end inclusive)",
          number);
    for (Column wanted : {Column::kId, Column::kSize})
      if (!has(wanted))
        return bad_input("line {}: no column '{}'", number, kColumnNames.name(wanted));
    return Done{};
  }

  Status read_buffer(std::string_view line, int64_t number) {
    const auto fields = split(line, ',');
    if (fields.size() != columns_.size())
      return bad_input("line {}: {} fields, but line 1 names {} columns", number, fields.size(),
                       columns_.size());
    Buffer buffer;
    buffer.id = static_cast<int64_t>(file_.buffers.size());
    for (size_t i = 0; i < fields.size(); ++i) {
      const Status status = read_field(columns_[i], fields[i], number, buffer);
      if (!status.ok()) return status;
    }
    if (file_.inclusive_end) ++buffer.life.end;
    if (buffer.life.begin > buffer.life.end)
      return bad_input("line {}: life [{}, {}) runs backwards", number, buffer.life.begin,
                       buffer.life.end);
    const Status gaps = check_gaps(buffer, number);
    if (!gaps.ok()) return gaps;
    file_.buffers.push_back(std::move(buffer));
    return Done{};
  }

  Status read_field(Column column, std::string_view text, int64_t number, Buffer& buffer) {
    if (column == Column::kId) {
      const auto [at, fresh] = line_of_.try_emplace(std::string(text), number);
      if (!fresh)
        return bad_input("line {}, column 'id': '{}' is already on line {}", number, text,
                         at->second);
      file_.names.emplace_back(text);
      return Done{};
    }
    if (column == Column::kGaps) return read_gaps(text, number, buffer);
    const bool optional =
        column == Column::kAlignment || column == Column::kOffset || column == Column::kHint;
    if (optional && text.empty()) return Done{};
    const auto value = whole_number(text);
    if (!value)
      return bad_input("line {}, column '{}': '{}' is not a whole number within 2^60", number,
                       kColumnNames.name(column), text);
    const int64_t least = column == Column::kAlignment ? 1 : 0;
    const bool bounded = optional || column == Column::kSize;
    if (bounded && column != Column::kHint && *value < least)
      return bad_input("line {}, column '{}': {} is below {}", number, kColumnNames.name(column),
                       *value, least);
    switch (column) {
      case Column::kLower:
      case Column::kStart:
        buffer.life.begin = *value;
        break;
      case Column::kUpper:
      case Column::kEnd:
        buffer.life.end = *value;
        break;
      case Column::kSize:
        buffer.size = *value;
        break;
      case Column::kAlignment:
        buffer.alignment = *value;
        break;
      case Column::kOffset:
        buffer.offset = *value;
        break;
      case Column::kHint:
      case Column::kId:
      case Column::kGaps:
        break;
    }
    return Done{};
  }

  Status read_gaps(std::string_view text, int64_t number, Buffer& buffer) {
    for (std::string_view word : split(text, ' ')) {
      if (word.empty()) continue;
      const auto gap = gap_from(word);
      if (!gap)
        return bad_input("line {}, column 'gaps': '{}' is not lo-hi or lo-hi@wlo:whi", number,
                         word);
      buffer.gaps.push_back(*gap);
      if (file_.inclusive_end) ++buffer.gaps.back().life.end;
    }
    std::stable_sort(buffer.gaps.begin(), buffer.gaps.end(),
                     [](const Gap& a, const Gap& b) { return a.life.begin < b.life.begin; });
    return Done{};
  }

  static Status check_gaps(const Buffer& buffer, int64_t number) {
    int64_t at = buffer.life.begin;
    for (const Gap& gap : buffer.gaps) {
      if (gap.life.empty() || gap.life.begin < at || gap.life.end > buffer.life.end)
        return bad_input(
            "line {}, column 'gaps': [{}, {}) is empty, outside the life [{}, {}) or "
            "meets another gap",
            number, gap.life.begin, gap.life.end, buffer.life.begin, buffer.life.end);
      if (gap.window &&
          (gap.window->empty() || gap.window->begin < 0 || gap.window->end > buffer.size))
        return bad_input("line {}, column 'gaps': window [{}, {}) is empty or outside the {} bytes",
                         number, gap.window->begin, gap.window->end, buffer.size);
      at = gap.life.end;
    }
    return Done{};
  }

  bool has(Column column) const {
    return std::find(columns_.begin(), columns_.end(), column) != columns_.end();
  }

  PackFile file_;
  std::vector<Column> columns_;
  std::map<std::string, int64_t> line_of_;
};

std::string gaps_to_text(const Buffer& buffer, int64_t end_shift) {
  std::string text;
  for (const Gap& gap : buffer.gaps) {
    text +=
        fmt::format("{}{}-{}", text.empty() ? "" : " ", gap.life.begin, gap.life.end - end_shift);
    if (gap.window) text += fmt::format("@{}:{}", gap.window->begin, gap.window->end);
  }
  return text;
}

}  // namespace

Result<PackFile> pack_file_from_csv(std::string_view text) { return Reader().read(text); }

std::string pack_file_to_csv(const PackFile& file, const std::vector<int64_t>& offsets) {
  OUTSIZE_CHECK(offsets.size() == file.buffers.size(), "{} offsets for {} buffers", offsets.size(),
                file.buffers.size());
  bool aligned = false, gaps = false;
  for (const Buffer& buffer : file.buffers) {
    aligned = aligned || buffer.alignment != 1;
    gaps = gaps || !buffer.gaps.empty();
  }
  std::string text = file.inclusive_end ? "id,start,end,size" : "id,lower,upper,size";
  if (aligned) text += ",alignment";
  if (gaps) text += ",gaps";
  text += ",offset\n";
  const int64_t shift = file.inclusive_end ? 1 : 0;
  for (size_t b = 0; b < file.buffers.size(); ++b) {
    const Buffer& buffer = file.buffers[b];
    text += fmt::format("{},{},{},{}", file.names[b], buffer.life.begin, buffer.life.end - shift,
                        buffer.size);
    if (aligned) text += fmt::format(",{}", buffer.alignment);
    if (gaps) text += "," + gaps_to_text(buffer, shift);
    text += fmt::format(",{}\n", offsets[b]);
  }
  return text;
}

}  // namespace outsize
