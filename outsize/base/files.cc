#include "outsize/base/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace outsize {
namespace {

class File {
 public:
  explicit File(int descriptor) : descriptor_(descriptor) {}
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() {
    if (descriptor_ > 2) ::close(descriptor_);
  }
  int descriptor() const { return descriptor_; }
  // The result of close matters once: a network file system reports a full disk there.
  int close() { return ::close(std::exchange(descriptor_, -1)); }

 private:
  int descriptor_;
};

int write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor, text.data(), text.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      return errno;
    }
    text.remove_prefix(static_cast<size_t>(written));
  }
  return 0;
}

}  // namespace

Result<std::string> read_file(const std::string& path) {
  File file(path == "-" ? STDIN_FILENO : ::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.descriptor() < 0) return bad_input("can't open {}: {}", path, std::strerror(errno));
  std::string text;
  struct stat facts;
  if (::fstat(file.descriptor(), &facts) == 0 && S_ISREG(facts.st_mode))
    text.reserve(static_cast<size_t>(facts.st_size) + 1);
  constexpr size_t kChunk = size_t{1} << 16;
  while (true) {
    const size_t had = text.size();
    text.resize(had + kChunk);
    const ssize_t got = ::read(file.descriptor(), text.data() + had, kChunk);
    if (got < 0) {
      if (errno == EINTR) {
        text.resize(had);
        continue;
      }
      return bad_input("can't read {}: {}", path, std::strerror(errno));
    }
    text.resize(had + static_cast<size_t>(got));
    if (got == 0) return text;
  }
}

Status write_file_atomically(const std::string& path, std::string_view text) {
  struct stat facts;
  const bool direct = path == "-" || (::stat(path.c_str(), &facts) == 0 && !S_ISREG(facts.st_mode));
  if (direct) {
    File file(path == "-" ? STDOUT_FILENO : ::open(path.c_str(), O_WRONLY | O_CLOEXEC));
    if (file.descriptor() < 0)
      return device_error("can't open {} for writing: {}", path, std::strerror(errno));
    if (const int failure = write_all(file.descriptor(), text); failure != 0)
      return device_error("can't write {} bytes to {}: {}", text.size(), path,
                          std::strerror(failure));
    return Done{};
  }
  const std::string draft = fmt::format("{}.draft.{}", path, ::getpid());
  File file(::open(draft.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (file.descriptor() < 0)
    return device_error("can't create {}: {}", draft, std::strerror(errno));
  int failure = write_all(file.descriptor(), text);
  if (failure == 0 && ::fsync(file.descriptor()) != 0) failure = errno;
  if (file.close() != 0 && failure == 0) failure = errno;
  if (failure == 0 && ::rename(draft.c_str(), path.c_str()) != 0) failure = errno;
  if (failure == 0) return Done{};
  ::unlink(draft.c_str());
  return device_error("can't write {} bytes to {}: {}", text.size(), path, std::strerror(failure));
}

}  // namespace outsize
