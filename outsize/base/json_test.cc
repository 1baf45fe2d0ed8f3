#include "outsize/base/json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "outsize/base/json_text.h"
#include "outsize/base/random.h"

namespace outsize {
namespace {

std::string error_of(std::string_view text) {
  const Result<Json> json = parse_json(text);
  return json.ok() ? "" : json.error().message;
}

TEST(ParseJson, NamesLineAndColumn) {
  EXPECT_EQ(error_of("{\"a\": 1}"), "");
  EXPECT_TRUE(error_of("{\"a\": 1,\n \"b\" 2}").starts_with("line 2, column 6: not JSON"));
  EXPECT_TRUE(error_of("{\"a\": 1} x").starts_with("line 1, column 10: not JSON"));
  EXPECT_TRUE(error_of("").starts_with("line 1, column 1"));
  EXPECT_TRUE(error_of("[1, 2").starts_with("line 1"));
}

TEST(ParseJson, RefusesWhatOthersLetPass) {
  EXPECT_EQ(error_of("{\"a\": [{\"b\": 1, \"b\": 2}]}"), "a[0].b: field is given twice");
  EXPECT_EQ(error_of("[1, 9223372036854775808]"),
            "[1]: integer 9223372036854775808 is beyond 64 bits");
  EXPECT_EQ(error_of("[99999999999999999999999]"),
            "[0]: integer 99999999999999999999999 is beyond 64 bits");
  EXPECT_EQ(error_of("[9223372036854775807, -9223372036854775808]"), "");
  EXPECT_NE(error_of("[1e999]"), "");
  EXPECT_NE(error_of("[NaN]"), "");
  EXPECT_NE(error_of("// comment\n1"), "");
  EXPECT_NE(error_of("\"\xff\""), "");
  const std::string deep(kMaxJsonDepth, '['), end(kMaxJsonDepth, ']');
  EXPECT_EQ(error_of(deep + end), "");
  EXPECT_NE(error_of("[" + deep + end + "]").find("deeper than 100"), std::string::npos);
  EXPECT_NE(error_of(std::string(1'000'000, '[')).find("deeper"), std::string::npos);
}

struct Thing {
  int64_t bytes = 0;
  std::string name;
  std::vector<int64_t> list;
};

enum class Colour { kRed, kGreen };
constexpr EnumNames<Colour, 2> kColourNames{{{{Colour::kRed, "red"}, {Colour::kGreen, "green"}}}};

Result<Thing> read_thing(std::string_view text) {
  const Result<Json> json = parse_json(text);
  if (!json.ok()) return json.error();
  JsonErrors errors;
  const JsonNode root(*json, errors);
  JsonFields fields(root);
  Thing thing;
  thing.bytes = fields.required("bytes").integer(0, 100);
  fields.optional_string("name", thing.name);
  if (auto colour = fields.optional("colour")) colour->name(kColourNames);
  if (auto list = fields.optional("list"))
    for (size_t i = 0; i < list->size(); ++i) {
      const JsonNode entry = list->at(i);
      if (entry.has_size(2)) thing.list.push_back(entry.at(1).integer());
    }
  fields.finish();
  if (errors.any()) return errors.first();
  return thing;
}

TEST(JsonFields, NameThePathAndTheNearest) {
  ASSERT_TRUE(read_thing(R"({"bytes": 5, "list": [[1, 2], [3, 4]]})").ok());
  EXPECT_EQ(read_thing(R"({"bytes": 5, "list": [[1, 2], [3, 4]]})")->list[1], 4);
  const auto message = [](std::string_view text) { return read_thing(text).error().message; };
  EXPECT_EQ(message(R"({})"), "field 'bytes' is missing");
  EXPECT_EQ(message(R"([])"), "wanted an object, had an array");
  EXPECT_EQ(message(R"({"bytes": 101})"), "bytes: wanted 0 to 100, had 101");
  EXPECT_EQ(message(R"({"bytes": 1.0})"), "bytes: wanted an integer, had a number with a fraction");
  EXPECT_EQ(message(R"({"bytes": "1"})"), "bytes: wanted an integer, had a string");
  EXPECT_EQ(message(R"({"bytes": 1, "nmae": ""})"), "unknown field 'nmae' (did you mean 'name'?)");
  EXPECT_EQ(message(R"({"bytes": 1, "zzzzzzzz": ""})"), "unknown field 'zzzzzzzz'");
  EXPECT_EQ(message(R"({"bytes": 1, "colour": "grene"})"),
            "colour: unknown name 'grene' (did you mean 'green'?)");
  EXPECT_EQ(message(R"({"bytes": 1, "list": [[1, 2], [3]]})"),
            "list[1]: wanted an array of 2, had 1 entries");
  EXPECT_EQ(message(R"({"bytes": 1, "list": [[1, 2], [3, null]]})"),
            "list[1][1]: wanted an integer, had null");
  EXPECT_EQ(message(R"({"bytes": 1, "list": 7})"), "list: wanted an array, had an integer");
}

TEST(JsonFields, FirstErrorWins) {
  EXPECT_EQ(read_thing(R"({"bytes": -1, "colour": 3, "x": 1})").error().message,
            "bytes: wanted 0 to 100, had -1");
}

TEST(JsonHead, FormatAndVersion) {
  const auto head = [](std::string_view text) -> std::string {
    const Result<Json> json = parse_json(text);
    JsonErrors errors;
    const JsonNode root(*json, errors);
    JsonFields fields(root);
    read_json_head(fields, "outsize-x", 1);
    return errors.any() ? errors.first().message : "";
  };
  EXPECT_EQ(head(R"({"format": "outsize-x", "version": 1})"), "");
  EXPECT_EQ(head(R"({"format": "outsize-y", "version": 1})"),
            "format: wanted 'outsize-x', had 'outsize-y'");
  EXPECT_EQ(head(R"({"format": "outsize-x", "version": 2})"),
            "version: this reader knows version 1, had 2");
  EXPECT_EQ(head(R"({"version": 1})"), "field 'format' is missing");
}

TEST(JsonText, DoublesReadBackToTheSameBits) {
  Random random(7);
  const auto round_trip = [](double value) {
    std::string text;
    append_json(text, value);
    const Result<Json> json = parse_json(text);
    ASSERT_TRUE(json.ok()) << text;
    ASSERT_TRUE(json->is_number_float()) << text;
    const double back = json->get<double>();
    EXPECT_EQ(std::memcmp(&back, &value, sizeof value), 0) << text;
  };
  for (const double value :
       {0.0, -0.0, 1.0, -1.0, 0.1, 1e15, 1e16, 1e17, 1e300, 5e-324, 1e-7, 0.999,
        1.7976931348623157e308, 2.2250738585072014e-308, 9007199254740993.0})
    round_trip(value);
  for (int i = 0; i < 20'000; ++i) {
    const uint64_t bits = random.next();
    double value;
    std::memcpy(&value, &bits, sizeof value);
    if (std::isfinite(value)) round_trip(value);
  }
}

TEST(JsonText, StringsReadBack) {
  Random random(9);
  for (int i = 0; i < 2'000; ++i) {
    // Code points of every length, controls and quotes among them.
    std::string text;
    for (int64_t n = random.below(12); n > 0; --n) {
      const std::string_view pieces[] = {"a",
                                         "\"",
                                         "\\",
                                         "\n",
                                         "\t",
                                         "\x01",
                                         "\x7f",
                                         "é",
                                         "€",
                                         "\U0001F600",
                                         std::string_view("\0", 1),
                                         "/"};
      text += pieces[random.below(std::ssize(pieces))];
    }
    std::string written;
    append_json(written, text);
    const Result<Json> json = parse_json(written);
    ASSERT_TRUE(json.ok()) << written;
    EXPECT_EQ(json->get<std::string>(), text);
  }
}

TEST(JsonText, FieldsListsAndTables) {
  const std::vector<int64_t> sizes{2, 3}, none;
  std::string out = "{\"a\": 1";
  append_json_field(out, "b", "x");
  append_json_field(out, "c", sizes, kJsonNextLine);
  append_json_field(out, "d", none);
  const auto append_size = [](std::string& to, int64_t size) { append_json(to, size); };
  append_json_table(out, "e", sizes, append_size);
  append_json_table(out, "f", none, append_size);
  EXPECT_EQ(out,
            "{\"a\": 1, \"b\": \"x\",\n \"c\": [2, 3], \"d\": [],\n \"e\": [\n  2,\n  3],\n"
            " \"f\": []");
}

TEST(JsonText, BytesThatAreNotUtf8AreReplaced) {
  for (const std::string_view bad : {"\xff", "\xc0\x80", "\xe0\x80\x80", "\xed\xa0\x80",
                                     "\xf5\x80\x80\x80", "\xe2\x82", "\x80", "\xf4\x90\x80\x80"}) {
    std::string written;
    append_json(written, std::string("a") + std::string(bad) + "b");
    const Result<Json> json = parse_json(written);
    ASSERT_TRUE(json.ok()) << written;
    EXPECT_TRUE(json->get<std::string>().starts_with("a\xef\xbf\xbd")) << written;
    EXPECT_TRUE(json->get<std::string>().ends_with("b"));
  }
}

}  // namespace
}  // namespace outsize
