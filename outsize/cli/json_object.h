// An object for `--json`: fields in the order they are set, values of the plain types.
//
//   JsonObject peak;  peak.set("device", 100).set("host", 0);
//   JsonObject all;   all.set("feasible", true).set("peak", peak);
//   all.text() == R"({"feasible": true, "peak": {"device": 100, "host": 0}})"
//
// A missing optional and a number that is not finite are null. A name may be set once. A value
// type.
#pragma once

#include <cmath>
#include <concepts>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "outsize/base/json_text.h"

namespace outsize::cli {

class JsonObject {
 public:
  template <typename T>
  JsonObject& set(std::string_view name, const T& value) {
    std::string field;
    append_json(field, name);
    field += ": ";
    append_value(field, value);
    fields_.push_back(std::move(field));
    return *this;
  }
  // The fields of `other`, after those that are there.
  JsonObject& merge(const JsonObject& other) {
    fields_.insert(fields_.end(), other.fields_.begin(), other.fields_.end());
    return *this;
  }
  // Requires: `json` is one JSON object; its fields are taken as they are written.
  static JsonObject of_text(std::string_view json) {
    json = json.substr(json.find('{') + 1);
    JsonObject object;
    object.fields_.emplace_back(json.substr(0, json.rfind('}')));
    return object;
  }

  std::string text() const { return "{" + joined(", ") + "}"; }
  // One field a line.
  std::string lines() const { return "{" + joined(",\n ") + "}\n"; }

 private:
  std::string joined(std::string_view separator) const {
    std::string out;
    for (const std::string& field : fields_) {
      if (!out.empty()) out += separator;
      out += field;
    }
    return out;
  }

  static void append_value(std::string& out, const JsonObject& value) { out += value.text(); }
  static void append_value(std::string& out, std::string_view value) { append_json(out, value); }
  static void append_value(std::string& out, const char* value) { append_json(out, value); }
  static void append_value(std::string& out, const std::string& value) { append_json(out, value); }
  static void append_value(std::string& out, double value) {
    if (std::isfinite(value))
      append_json(out, value);
    else
      out += "null";
  }
  static void append_value(std::string& out, std::same_as<bool> auto value) {
    out += value ? "true" : "false";
  }
  template <std::integral T>
    requires(!std::same_as<T, bool>)
  static void append_value(std::string& out, T value) {
    append_json(out, static_cast<int64_t>(value));
  }
  template <typename T>
  static void append_value(std::string& out, const std::optional<T>& value) {
    if (value)
      append_value(out, *value);
    else
      out += "null";
  }
  template <typename A, typename B>
  static void append_value(std::string& out, const std::pair<A, B>& value) {
    out += '[';
    append_value(out, value.first);
    out += ", ";
    append_value(out, value.second);
    out += ']';
  }
  template <typename T>
  static void append_value(std::string& out, const std::vector<T>& values) {
    append_json_list(out, values, [](std::string& to, const T& value) { append_value(to, value); });
  }

  std::vector<std::string> fields_;  // "name": value
};

}  // namespace outsize::cli
