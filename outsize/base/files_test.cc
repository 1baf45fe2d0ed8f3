#include "outsize/base/files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

namespace outsize {
namespace {

class Files : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "outsize-files-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  size_t entries() const {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder_), {}));
  }
  std::string folder_;
};

TEST_F(Files, ReadsBackWhatWasWritten) {
  std::string text(300'000, 'x');
  text[7] = '\0';
  ASSERT_TRUE(write_file_atomically(path("a"), text).ok());
  EXPECT_EQ(*read_file(path("a")), text);
  ASSERT_TRUE(write_file_atomically(path("a"), "short").ok());
  EXPECT_EQ(*read_file(path("a")), "short");
  ASSERT_TRUE(write_file_atomically(path("a"), "").ok());
  EXPECT_EQ(*read_file(path("a")), "");
  EXPECT_EQ(entries(), 1u);
}

TEST_F(Files, FailureLeavesTheOldFileAndNoDraft) {
  // A folder with entries stands where the file should go: the rename fails.
  std::filesystem::create_directories(path("taken/inner"));
  const Status done = write_file_atomically(path("taken"), "text");
  ASSERT_FALSE(done.ok());
  EXPECT_EQ(done.error().kind, ErrorKind::kDevice);
  EXPECT_NE(done.error().message.find("taken"), std::string::npos);
  EXPECT_EQ(entries(), 1u);
  EXPECT_FALSE(write_file_atomically(path("no/such/folder"), "text").ok());
}

TEST_F(Files, MissingFileIsBadInput) {
  const Result<std::string> text = read_file(path("none"));
  ASSERT_FALSE(text.ok());
  EXPECT_EQ(text.error().kind, ErrorKind::kBadInput);
  EXPECT_EQ(text.error().message, "can't open " + path("none") + ": No such file or directory");
  EXPECT_FALSE(read_file(folder_).ok());
}

TEST_F(Files, FullDiskIsSaid) {
  if (::access("/dev/full", W_OK) != 0) GTEST_SKIP() << "no /dev/full here";
  const Status done = write_file_atomically("/dev/full", "text");
  ASSERT_FALSE(done.ok());
  EXPECT_NE(done.error().message.find("No space left"), std::string::npos);
}

}  // namespace
}  // namespace outsize
