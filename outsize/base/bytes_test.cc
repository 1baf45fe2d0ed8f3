#include "outsize/base/bytes.h"

#include <gtest/gtest.h>

namespace outsize {
namespace {

TEST(Bytes, Parse) {
  const std::pair<const char*, int64_t> cases[] = {
      {"0", 0},
      {"1048576", 1048576},
      {"512B", 512},
      {"6GiB", 6442450944},
      {"6GB", 6000000000},
      {"6 gib", 6442450944},
      {"1.5GiB", 1610612736},
      {"0.1GB", 100000000},
      {".5KiB", 512},
      {"1.7B", 1},
      {"2TiB", 2199023255552},
      {"1KB", 1000},
      {"3MiB", 3145728},
      {"7MB", 7000000},
      {"1TB", 1000000000000},
      {"4611686018427387904", int64_t{1} << 62},
  };
  for (const auto& [text, bytes] : cases) {
    const Result<int64_t> parsed = parse_bytes(text);
    ASSERT_TRUE(parsed.ok()) << text << ": " << parsed.error().message;
    EXPECT_EQ(*parsed, bytes) << text;
  }
}

TEST(Bytes, ParseRefuses) {
  for (const char* text :
       {"", "GiB", "-1", "1.5", "6G", "6 GiB x", "1e9", "0x10", "1.2.3GiB", "25%", "5000000TiB",
        "4611686018427387905", "99999999999999999999", "6GiBB", "."})
    EXPECT_FALSE(parse_bytes(text).ok()) << text;
  EXPECT_EQ(parse_bytes("6G").error().kind, ErrorKind::kBadInput);
  EXPECT_EQ(parse_bytes("6G").error().message,
            "'6G' is not an amount of bytes; write 6GiB, 6GB or 6442450944");
}

TEST(Bytes, Budget) {
  EXPECT_EQ(*parse_budget("25%", 1000), 250);
  EXPECT_EQ(*parse_budget("12.5 %", 1000), 125);
  EXPECT_EQ(*parse_budget("33%", 10), 3);
  EXPECT_EQ(*parse_budget("150%", 1000), 1500);
  EXPECT_EQ(*parse_budget("100%", int64_t{1} << 62), int64_t{1} << 62);
  EXPECT_EQ(*parse_budget("1KiB", 1000), 1024);
  EXPECT_FALSE(parse_budget("25%", std::nullopt).ok());
  EXPECT_FALSE(parse_budget("%", 1000).ok());
  EXPECT_FALSE(parse_budget("x%", 1000).ok());
  EXPECT_FALSE(parse_budget("101%", int64_t{1} << 62).ok());
  EXPECT_FALSE(parse_budget("-5%", 1000).ok());
}

TEST(Bytes, Format) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1024), "1.00 KiB");
  EXPECT_EQ(format_bytes(1610612736), "1.50 GiB");
  EXPECT_EQ(format_bytes((int64_t{1} << 30) - 1), "1.00 GiB");
  EXPECT_EQ(format_bytes(-2048), "-2.00 KiB");
  EXPECT_EQ(format_bytes(std::numeric_limits<int64_t>::min()), "-8388608.00 TiB");
}

}  // namespace
}  // namespace outsize
