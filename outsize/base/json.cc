#include "outsize/base/json.h"

#include <algorithm>
#include <cmath>

namespace outsize {
namespace {

constexpr size_t kNoIndex = std::numeric_limits<size_t>::max();
const Json kNull;

void append_step(std::string& path, std::string_view key, size_t index) {
  if (!key.empty() || index == kNoIndex) {
    if (!path.empty()) path += '.';
    path += key;
  } else {
    path += fmt::format("[{}]", index);
  }
}

// "line 3, column 14" of the byte that is the `position`th, counted from 1.
std::string place_of(std::string_view text, size_t position) {
  const std::string_view before = text.substr(0, position > 0 ? position - 1 : 0);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const size_t newline = before.rfind('\n');
  const size_t column =
      newline == std::string_view::npos ? before.size() + 1 : before.size() - newline;
  return fmt::format("line {}, column {}", line, column);
}

// Builds the document. nlohmann's own builder lets repeated keys, integers too large for 64 bits
// and any depth pass.
class Builder : public nlohmann::json_sax<Json> {
 public:
  explicit Builder(std::string_view text) : text_(text) {}

  bool null() override { return put(nullptr) != nullptr; }
  bool boolean(bool value) override { return put(value) != nullptr; }
  bool number_integer(int64_t value) override { return put(value) != nullptr; }
  bool number_unsigned(uint64_t value) override {
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
      return refuse(fmt::format("integer {} is beyond 64 bits", value));
    return put(static_cast<int64_t>(value)) != nullptr;
  }
  bool number_float(double value, const std::string& written) override {
    if (written.find_first_of(".eE") == std::string::npos)
      return refuse(fmt::format("integer {} is beyond 64 bits", written));
    return put(value) != nullptr;
  }
  bool string(std::string& value) override { return put(std::move(value)) != nullptr; }
  bool binary(Json::binary_t&) override { return refuse("binary data"); }
  bool key(std::string& value) override {
    Frame& top = stack_.back();
    top.key = value;
    const auto [place, fresh] =
        top.json->get_ref<Json::object_t&>().emplace(std::move(value), nullptr);
    if (!fresh) return refuse("field is given twice");
    top.slot = &place->second;
    return true;
  }
  bool start_object(size_t) override { return open(Json::object()); }
  bool start_array(size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool parse_error(size_t position, const std::string& token,
                   const nlohmann::detail::exception& exception) override {
    // nlohmann's text repeats its own name for the error and the place; the reason stands at its
    // end.
    std::string_view reason = exception.what();
    if (const size_t at = reason.find("; expected"); at != std::string_view::npos)
      reason = reason.substr(at + 2);
    else if (const size_t last = reason.rfind(": "); last != std::string_view::npos)
      reason = reason.substr(last + 2);
    std::string shown = token.substr(0, 40);
    for (char& c : shown)
      if (static_cast<unsigned char>(c) < 32 || static_cast<unsigned char>(c) > 126) c = '?';
    error = bad_input("{}: not JSON at '{}': {}", place_of(text_, position), shown, reason);
    return false;
  }

  Json document;
  std::optional<Error> error;

 private:
  struct Frame {
    Json* json;
    Json* slot;       // of an object: where the value of `key` goes
    std::string key;  // for paths
  };

  bool refuse(std::string_view message) {
    std::string path;
    for (const Frame& frame : stack_) {
      // The entry that is open is in its array already, the one refused now is not.
      const size_t open_entry = &frame == &stack_.back() ? 0 : 1;
      if (frame.json->is_object())
        append_step(path, frame.key, kNoIndex);
      else
        append_step(path, {}, frame.json->size() - open_entry);
    }
    error = bad_input("{}{}{}", path, path.empty() ? "" : ": ", message);
    return false;
  }
  Json* put(Json&& value) {
    if (stack_.empty()) {
      document = std::move(value);
      return &document;
    }
    Frame& top = stack_.back();
    if (top.json->is_object()) {
      *top.slot = std::move(value);
      return top.slot;
    }
    auto& array = top.json->get_ref<Json::array_t&>();
    array.push_back(std::move(value));
    return &array.back();
  }
  bool open(Json&& value) {
    if (stack_.size() >= kMaxJsonDepth)
      return refuse(fmt::format("nested deeper than {} levels", kMaxJsonDepth));
    stack_.push_back({put(std::move(value)), nullptr, {}});
    return true;
  }
  bool close() {
    stack_.pop_back();
    return true;
  }

  std::string_view text_;
  std::vector<Frame> stack_;
};

std::string_view type_of(const Json& json) {
  switch (json.type()) {
    case Json::value_t::null:
      return "null";
    case Json::value_t::object:
      return "an object";
    case Json::value_t::array:
      return "an array";
    case Json::value_t::string:
      return "a string";
    case Json::value_t::boolean:
      return "a bool";
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned:
      return "an integer";
    case Json::value_t::number_float:
      return "a number with a fraction";
    default:
      return "something else";
  }
}

std::string in_brackets(const std::string& word, const std::vector<std::string>& known) {
  const std::string nearest = nearest_match(word, known);
  return nearest.empty() ? "" : fmt::format(" (did you mean '{}'?)", nearest);
}

}  // namespace

Result<Json> parse_json(std::string_view text) {
  Builder builder(text);
  const bool good = Json::sax_parse(text.begin(), text.end(), &builder);
  if (builder.error) return *builder.error;
  OUTSIZE_CHECK(good, "JSON parser stopped without an error");
  return std::move(builder.document);
}

std::string JsonNode::path() const {
  std::vector<const JsonNode*> chain;
  for (const JsonNode* node = this; node->parent_ != nullptr; node = node->parent_)
    chain.push_back(node);
  std::string path;
  for (auto node = chain.rbegin(); node != chain.rend(); ++node)
    append_step(path, (*node)->key_, (*node)->index_);
  return path;
}

void JsonNode::fail(std::string_view message) const {
  if (errors_->any()) return;
  const std::string where = path();
  errors_->add(bad_input("{}{}{}", where, where.empty() ? "" : ": ", message));
}

void JsonNode::fail_type(std::string_view wanted) const {
  if (errors_->any()) return;
  fail(fmt::format("wanted {}, had {}", wanted, type_of(*json_)));
}

void JsonNode::fail_name(const std::string& text, const std::vector<std::string>& known) const {
  if (errors_->any()) return;
  const std::string nearest = in_brackets(text, known);
  fail(nearest.empty() ? fmt::format("unknown name '{}'; known: {}", text, fmt::join(known, ", "))
                       : fmt::format("unknown name '{}'{}", text, nearest));
}

int64_t JsonNode::integer(int64_t low, int64_t high) const {
  if (!json_->is_number_integer()) {
    fail_type("an integer");
    return 0;
  }
  const int64_t value = json_->get<int64_t>();
  if (value >= low && value <= high) return value;
  if (!errors_->any()) {
    if (high == std::numeric_limits<int64_t>::max())
      fail(fmt::format("wanted {} or more, had {}", low, value));
    else
      fail(fmt::format("wanted {} to {}, had {}", low, high, value));
  }
  return 0;
}

double JsonNode::number() const {
  if (!json_->is_number()) {
    fail_type("a number");
    return 0;
  }
  return json_->get<double>();
}

bool JsonNode::boolean() const {
  if (!json_->is_boolean()) {
    fail_type("a bool");
    return false;
  }
  return json_->get<bool>();
}

std::string JsonNode::string() const {
  if (!json_->is_string()) {
    fail_type("a string");
    return {};
  }
  return json_->get<std::string>();
}

size_t JsonNode::size() const {
  if (!json_->is_array()) {
    fail_type("an array");
    return 0;
  }
  return json_->size();
}

bool JsonNode::has_size(size_t count) const {
  if (!json_->is_array()) {
    fail_type(fmt::format("an array of {}", count));
    return false;
  }
  if (json_->size() == count) return true;
  fail(fmt::format("wanted an array of {}, had {} entries", count, json_->size()));
  return false;
}

JsonNode JsonNode::at(size_t index) const {
  OUTSIZE_CHECK(json_->is_array() && index < json_->size(), "entry {} of {}", index, path());
  return JsonNode((*json_)[index], *this, {}, index);
}

JsonFields::JsonFields(const JsonNode& node) : node_(&node) {
  if (!node.json().is_object()) node.fail_type("an object");
}

std::optional<JsonNode> JsonFields::optional(std::string_view key) {
  asked_.push_back(key);
  if (!node_->json().is_object()) return std::nullopt;
  const auto found = node_->json().find(key);
  if (found == node_->json().end()) return std::nullopt;
  ++found_;
  return JsonNode(*found, *node_, key, kNoIndex);
}

JsonNode JsonFields::required(std::string_view key) {
  if (auto field = optional(key)) return *field;
  node_->fail(fmt::format("field '{}' is missing", key));
  return JsonNode(kNull, *node_, key, kNoIndex);
}

void JsonFields::finish() {
  if (!node_->json().is_object() || found_ == node_->json().size() || node_->failed()) return;
  std::vector<std::string> known(asked_.begin(), asked_.end());
  for (const auto& item : node_->json().items()) {
    if (std::find(known.begin(), known.end(), item.key()) != known.end()) continue;
    node_->fail(fmt::format("unknown field '{}'{}", item.key(), in_brackets(item.key(), known)));
    return;
  }
}

void JsonFields::optional_string(std::string_view key, std::string& into) {
  if (auto field = optional(key)) into = field->string();
}
void JsonFields::optional_bool(std::string_view key, bool& into) {
  if (auto field = optional(key)) into = field->boolean();
}
void JsonFields::optional_integer(std::string_view key, int64_t& into, int64_t low) {
  if (auto field = optional(key)) into = field->integer(low);
}

void read_json_head(JsonFields& fields, std::string_view format, int64_t version) {
  const JsonNode format_field = fields.required("format");
  const std::string had = format_field.string();
  if (had != format) format_field.fail(fmt::format("wanted '{}', had '{}'", format, had));
  const JsonNode version_field = fields.required("version");
  const int64_t had_version = version_field.integer(1);
  if (had_version != version)
    version_field.fail(fmt::format("this reader knows version {}, had {}", version, had_version));
}

}  // namespace outsize
