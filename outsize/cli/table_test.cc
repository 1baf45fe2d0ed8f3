#include "outsize/cli/table.h"

#include <gtest/gtest.h>

namespace outsize::cli {
namespace {

TEST(Table, AlignsColumns) {
  Table table({"planner", ">step"});
  table.row({"keep", "1.50 us"});
  table.row({"outsize", "9 ns"});
  EXPECT_EQ(table.text(),
            "planner     step\n"
            "keep     1.50 us\n"
            "outsize     9 ns\n");
}

TEST(Table, FactsAreAsWideAsTheLongestKey) {
  Facts facts;
  facts.add("step", "1 ns");
  facts.add("moved", "none");
  EXPECT_EQ(facts.text(), "step   1 ns\nmoved  none\n");
}

TEST(Table, TimesHaveThreeDigitsOrSo) {
  EXPECT_EQ(format_ns(0), "0 ns");
  EXPECT_EQ(format_ns(999), "999 ns");
  EXPECT_EQ(format_ns(1000), "1.00 us");
  EXPECT_EQ(format_ns(1500), "1.50 us");
  EXPECT_EQ(format_ns(12'345'678), "12.3 ms");
  EXPECT_EQ(format_ns(999'400'000), "999 ms");
  EXPECT_EQ(format_ns(999'600'000), "1.00 s");
  EXPECT_EQ(format_ns(123'000'000'000), "123 s");
}

TEST(Table, BytesAreExactAndReadable) {
  EXPECT_EQ(format_exact_bytes(412), "412 B");
  EXPECT_EQ(format_exact_bytes(6442450944), "6442450944 (6.00 GiB)");
}

}  // namespace
}  // namespace outsize::cli
