#include "outsize/cli/machine_measure.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

extern char** environ;  // NOLINT: POSIX asks programs to declare it

namespace outsize::cli {
namespace {

// The answer travels between two marks, since libraries may print on standard output as well.
constexpr const char* kBegin = "<<<outsize-machine\n";
constexpr const char* kEnd = "\noutsize-machine>>>";
constexpr int kNotBuilt = 2;  // the script's exit code where an import fails
constexpr const char* kScript = R"py(
import sys
try:
    import torch
    import outsize_core
except ImportError as error:
    print(f"outsize: {error}", file=sys.stderr)
    sys.exit(2)
options = {"name": sys.argv[1]}
if sys.argv[2]:
    options["disk_dir"] = sys.argv[2]
if sys.stderr.isatty():
    options["progress"] = lambda what: print("measuring", what, file=sys.stderr)
try:
    text = outsize_core.measure_machine(options)
except outsize_core.Error as error:
    print(f"outsize: {error}", file=sys.stderr)
    sys.exit(3)
print("<<<outsize-machine", text.strip(), "outsize-machine>>>", sep="\n", flush=True)
)py";

class Pipe {
 public:
  Pipe() : ok_(::pipe(ends_.data()) == 0) {}
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  ~Pipe() {
    close(0);
    close(1);
  }
  bool ok() const { return ok_; }
  int end(size_t i) const { return ends_[i]; }
  void close(size_t i) {
    const int descriptor = std::exchange(ends_[i], -1);
    if (descriptor >= 0) ::close(descriptor);
  }

 private:
  std::array<int, 2> ends_ = {-1, -1};
  bool ok_;
};

std::string read_all(int descriptor) {
  std::string text;
  std::array<char, 4096> chunk;
  while (true) {
    const ssize_t got = ::read(descriptor, chunk.data(), chunk.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return text;
    text.append(chunk.data(), static_cast<size_t>(got));
  }
}

}  // namespace

Result<std::string> measured_machine(const MeasureOptions& options) {
  namespace fs = std::filesystem;
  std::error_code failure;
  const fs::path self = fs::read_symlink("/proc/self/exe", failure);
  if (failure) return device_error("can't find this program's own path: {}", failure.message());
  const fs::path build = self.parent_path().parent_path();
  const fs::path python = build / "venv" / "bin" / "python";
  if (::access(python.c_str(), X_OK) != 0)
    return bad_input(
        "measuring takes PyTorch, and there is no Python environment at {}: run `make "
        "build`, or take a preset (outsize machine list)",
        python.string());

  Pipe pipe;
  if (!pipe.ok()) return device_error("can't make a pipe: {}", std::strerror(errno));
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, pipe.end(1), STDOUT_FILENO);
  posix_spawn_file_actions_addclose(&actions, pipe.end(0));
  posix_spawn_file_actions_addclose(&actions, pipe.end(1));
  std::string words[] = {python.string(), "-c", kScript, options.name, options.disk_dir};
  std::array<char*, 6> arguments = {words[0].data(), words[1].data(), words[2].data(),
                                    words[3].data(), words[4].data(), nullptr};
  pid_t child = 0;
  const int spawned =
      ::posix_spawn(&child, python.c_str(), &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (spawned != 0)
    return device_error("can't start {}: {}", python.string(), std::strerror(spawned));
  pipe.close(1);
  const std::string text = read_all(pipe.end(0));
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == kNotBuilt)
    return bad_input(
        "measuring takes the Python extension outsize_core, which {} can't load (it says why "
        "above): "
        "run `make build`",
        python.string());
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    return device_error("measuring failed: {} {} {}; what it said is above", python.string(),
                        WIFEXITED(status) ? "ended with code" : "was ended by signal",
                        WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
  const size_t begin = text.find(kBegin);
  const size_t end = text.rfind(kEnd);
  if (begin == std::string::npos || end == std::string::npos || end < begin)
    return device_error("measuring gave no answer; {} printed {} bytes", python.string(),
                        text.size());
  const size_t first = begin + std::strlen(kBegin);
  return text.substr(first, end - first);
}

}  // namespace outsize::cli
