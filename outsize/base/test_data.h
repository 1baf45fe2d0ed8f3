// Where the public instances lie. For tests only.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>

namespace outsize {

// $OUTSIZE_DATA, or ../shared/data beside the repository.
inline std::filesystem::path data_folder() {
  const char* named = std::getenv("OUTSIZE_DATA");
  if (named != nullptr && *named != 0) return named;
#ifdef OUTSIZE_SOURCE_DIR
  return std::filesystem::path(OUTSIZE_SOURCE_DIR) / ".." / "shared" / "data";
#else
  return std::filesystem::path("..") / "shared" / "data";
#endif
}

// The text of a file in it, if it is there.
inline std::optional<std::string> data_text(const std::string& name) {
  std::ifstream file(data_folder() / name, std::ios::binary);
  if (!file) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

}  // namespace outsize
