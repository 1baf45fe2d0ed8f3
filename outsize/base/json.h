// Strict reading of JSON: every field is asked for once, by name, and whatever is wrong (a missing
// or unknown field, a wrong type, a number out of range) is one error that names the path of the
// field.
//
//   Result<Json> json = parse_json(text);             // {"bytes": -1, "rol": "input"}
//   JsonErrors errors;
//   JsonNode root(*json, errors);
//   JsonFields fields(root);
//   int64_t bytes = fields.required("bytes").integer(0);      // "bytes: wanted 0 or more, had -1"
//   if (auto role = fields.optional("role")) ... ;
//   fields.finish();                                  // "unknown field 'rol' (did you mean
//   'role'?)" if (errors.any()) return errors.first();
//
// The first error wins: after it reads go on and give empty values, so a reader needs one check, at
// its end. A JsonNode borrows its document, its errors and the node it came from; all must outlive
// it. Not thread-safe. Writing is in json_text.h: forms are appended to a string, without a
// document.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "outsize/base/names.h"
#include "outsize/base/result.h"

namespace outsize {

using Json = nlohmann::json;

// The document in `text`. Errors name line and column; repeated keys, integers beyond 64 bits,
// nesting deeper than kMaxJsonDepth and trailing text are errors too.
inline constexpr size_t kMaxJsonDepth = 100;
Result<Json> parse_json(std::string_view text);

class JsonErrors {
 public:
  bool any() const { return first_.has_value(); }
  // Requires: any().
  const Error& first() const { return *first_; }
  void add(Error error) {
    if (!first_) first_ = std::move(error);
  }

 private:
  std::optional<Error> first_;
};

class JsonNode {
 public:
  JsonNode(const Json& json, JsonErrors& errors) : json_(&json), errors_(&errors) {}

  const Json& json() const { return *json_; }
  // "ops[17].reads[0][2]"; empty for the document itself.
  std::string path() const;
  // Records an error at this path.
  void fail(std::string_view message) const;
  bool failed() const { return errors_->any(); }

  // Each fails, and gives an empty value, where the node is of another type or out of range.
  int64_t integer(int64_t low = std::numeric_limits<int64_t>::min(),
                  int64_t high = std::numeric_limits<int64_t>::max()) const;
  double number() const;  // an integer counts as a number
  bool boolean() const;
  std::string string() const;
  template <typename E, size_t N>
  E name(const EnumNames<E, N>& names) const {
    const std::string text = string();
    if (const auto found = names.find(text)) return *found;
    fail_name(text, names.all());
    return names.entries[0].first;
  }
  // Number of entries of an array.
  size_t size() const;
  // Of an array that must have exactly `count` entries; false, with an error, if it does not.
  bool has_size(size_t count) const;
  // Requires: index < size(). Borrows this node.
  JsonNode at(size_t index) const;

 private:
  friend class JsonFields;
  JsonNode(const Json& json, const JsonNode& parent, std::string_view key, size_t index)
      : json_(&json), errors_(parent.errors_), parent_(&parent), key_(key), index_(index) {}
  void fail_type(std::string_view wanted) const;
  void fail_name(const std::string& text, const std::vector<std::string>& known) const;

  const Json* json_;
  JsonErrors* errors_;
  const JsonNode* parent_ = nullptr;
  std::string_view
      key_;  // borrowed from the caller of required/optional; empty for an array's entry
  size_t index_ = 0;
};

// The fields of one object. Borrows the node; keys passed in must outlive it (they are literals).
class JsonFields {
 public:
  explicit JsonFields(const JsonNode& node);
  JsonNode required(std::string_view key);
  std::optional<JsonNode> optional(std::string_view key);
  // Accepts the field, if there, without looking at it.
  void skip(std::string_view key) { optional(key); }
  // Fails on the first field that was never asked for.
  void finish();

  // Shorthands for the commonest optional fields.
  void optional_string(std::string_view key, std::string& into);
  void optional_bool(std::string_view key, bool& into);
  void optional_integer(std::string_view key, int64_t& into, int64_t low);

 private:
  const JsonNode* node_;
  std::vector<std::string_view> asked_;
  size_t found_ = 0;
};

// The head of every form: fails unless fields "format" and "version" are these.
void read_json_head(JsonFields& fields, std::string_view format, int64_t version);

}  // namespace outsize
