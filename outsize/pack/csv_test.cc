#include "outsize/pack/csv.h"

#include <gtest/gtest.h>

namespace outsize {
namespace {

std::string error_of(std::string_view text) {
  const Result<PackFile> file = pack_file_from_csv(text);
  return file.ok() ? "" : file.error().message;
}

TEST(PackCsv, ReadsColumnsInAnyOrder) {
  const Result<PackFile> file = pack_file_from_csv("size,id,upper,lower\n4,b1,3,0\n8,b2,9,3\n");
  ASSERT_TRUE(file.ok()) << file.error().message;
  ASSERT_EQ(file->buffers.size(), 2u);
  EXPECT_EQ(file->names[1], "b2");
  EXPECT_EQ(file->buffers[1].life, (Interval{3, 9}));
  EXPECT_EQ(file->buffers[1].size, 8);
  EXPECT_EQ(file->buffers[1].alignment, 1);
  EXPECT_FALSE(file->buffers[1].offset);
}

TEST(PackCsv, EndIsInclusiveUpperIsNot) {
  const Result<PackFile> file = pack_file_from_csv("id,start,end,size\nb1,0,3,4\n");
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file->buffers[0].life, (Interval{0, 4}));
  EXPECT_EQ(pack_file_to_csv(*file, {0}), "id,start,end,size,offset\nb1,0,3,4,0\n");
}

TEST(PackCsv, ReadsAlignmentOffsetHintAndGaps) {
  const Result<PackFile> file = pack_file_from_csv(
      "id,lower,upper,size,alignment,offset,hint,gaps\r\n"
      "a,0,20,16,8,32,,2-4 6-9@0:8\r\n"
      "b,0,20,16,,,5,\r\n");
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file->buffers[0].alignment, 8);
  EXPECT_EQ(file->buffers[0].offset, 32);
  ASSERT_EQ(file->buffers[0].gaps.size(), 2u);
  EXPECT_EQ(file->buffers[0].gaps[0], (Gap{{2, 4}, std::nullopt}));
  EXPECT_EQ(file->buffers[0].gaps[1], (Gap{{6, 9}, Interval{0, 8}}));
  EXPECT_EQ(file->buffers[1].alignment, 1);
  EXPECT_FALSE(file->buffers[1].offset);
}

TEST(PackCsv, WrittenAndReadAgainIsTheSameWithOffsetsFixed) {
  Result<PackFile> file = pack_file_from_csv(
      "id,lower,upper,size,alignment,gaps\na,0,20,16,8,2-4 6-9@0:8\nb,1,3,5,1,\n");
  ASSERT_TRUE(file.ok()) << file.error().message;
  Result<PackFile> again = pack_file_from_csv(pack_file_to_csv(*file, {0, 16}));
  ASSERT_TRUE(again.ok()) << again.error().message;
  file->buffers[0].offset = 0;
  file->buffers[1].offset = 16;
  EXPECT_EQ(*file, *again);
}

TEST(PackCsv, ErrorsNameLineAndColumn) {
  EXPECT_EQ(error_of("id,lower,uper,size\n"), "line 1: unknown column 'uper' (nearest: 'upper')");
  EXPECT_EQ(error_of("id,lower,upper\n"), "line 1: no column 'size'");
  EXPECT_EQ(error_of("id,id,lower,upper,size\n"), "line 1: column 'id' is there twice");
  EXPECT_EQ(error_of("id,lower,end,size\n"),
            "line 1: wants the columns 'lower' and 'upper' (upper exclusive), or 'start' and 'end' "
            "(end inclusive)");
  EXPECT_EQ(error_of("id,lower,upper,size\na,0,3\n"),
            "line 2: 3 fields, but line 1 names 4 columns");
  EXPECT_EQ(error_of("id,lower,upper,size\na,0,3,4\nb,0,3,4.5\n"),
            "line 3, column 'size': '4.5' is not a whole number within 2^60");
  EXPECT_EQ(error_of("id,lower,upper,size\na,0,3,-4\n"), "line 2, column 'size': -4 is below 0");
  EXPECT_EQ(error_of("id,lower,upper,size\na,3,0,4\n"), "line 2: life [3, 0) runs backwards");
  EXPECT_EQ(error_of("id,lower,upper,size\na,0,3,4\na,0,3,4\n"),
            "line 3, column 'id': 'a' is already on line 2");
  EXPECT_EQ(error_of("id,lower,upper,size,offset\na,0,3,4,x\n"),
            "line 2, column 'offset': 'x' is not a whole number within 2^60");
  EXPECT_EQ(error_of("id,lower,upper,size,gaps\na,0,9,4,2..3\n"),
            "line 2, column 'gaps': '2..3' is not lo-hi or lo-hi@wlo:whi");
  EXPECT_EQ(error_of("id,lower,upper,size,gaps\na,0,9,4,2-5 4-6\n"),
            "line 2, column 'gaps': [4, 6) is empty, outside the life [0, 9) or meets another gap");
  EXPECT_EQ(error_of("id,lower,upper,size,gaps\na,0,9,4,2-5@0:5\n"),
            "line 2, column 'gaps': window [0, 5) is empty or outside the 4 bytes");
  EXPECT_EQ(error_of(""), "line 1: empty; the first line must name the columns");
  EXPECT_NE(error_of("id,lower,upper,size\na,0,99999999999999999999,4\n"), "");
}

}  // namespace
}  // namespace outsize
