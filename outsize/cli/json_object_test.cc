#include "outsize/cli/json_object.h"

#include <gtest/gtest.h>

#include <limits>

namespace outsize::cli {
namespace {

TEST(JsonObject, KeepsOrderAndNests) {
  JsonObject peak;
  peak.set("device", 100).set("host", int64_t{1} << 40);
  JsonObject all;
  all.set("feasible", true).set("peak", peak).set("name", "a\"b");
  EXPECT_EQ(
      all.text(),
      R"({"feasible": true, "peak": {"device": 100, "host": 1099511627776}, "name": "a\"b"})");
  EXPECT_EQ(JsonObject().lines(), "{}\n");
  EXPECT_EQ(JsonObject().set("a", 1).set("b", 2).lines(), "{\"a\": 1,\n \"b\": 2}\n");
}

TEST(JsonObject, WritesWhatIsNotThereAsNull) {
  JsonObject object;
  object.set("least", std::optional<int64_t>()).set("known", std::optional<int64_t>(3));
  object.set("gap", std::numeric_limits<double>::infinity()).set("ideal", 1.0);
  EXPECT_EQ(object.text(), R"({"least": null, "known": 3, "gap": null, "ideal": 1.0})");
}

TEST(JsonObject, WritesListsOfPairsAndObjects) {
  JsonObject object;
  object.set("history", std::vector<std::pair<double, int64_t>>{{0.5, 20}, {1.5, 10}});
  object.set("rows", std::vector<JsonObject>{JsonObject().set("a", 1), JsonObject()});
  EXPECT_EQ(object.text(), R"({"history": [[0.5, 20], [1.5, 10]], "rows": [{"a": 1}, {}]})");
}

TEST(JsonObject, TakesOverTheFieldsOfAnObjectInText) {
  JsonObject all;
  all.set("outsize", "1")
      .merge(JsonObject::of_text("{\"name\": \"unit\",\n \"out\": {\"a\": 1}}\n"));
  EXPECT_EQ(all.text(), "{\"outsize\": \"1\", \"name\": \"unit\",\n \"out\": {\"a\": 1}}");
}

}  // namespace
}  // namespace outsize::cli
