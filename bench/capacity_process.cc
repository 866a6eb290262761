#include "bench/capacity_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <filesystem>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace sru::bench {
namespace {

double Seconds(clockid_t clock) {
  timespec time{};
  if (clock_gettime(clock, &time) != 0) return 0;
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// Up to the first line that begins with "listening on", or the end. Empty lines are left out.
std::string ReadUntilReady(int descriptor, std::string* last) {
  std::string text;
  char byte = 0;
  while (read(descriptor, &byte, 1) == 1) {
    if (byte != '\n') {
      text += byte;
      continue;
    }
    if (absl::StartsWith(text, "listening on ")) return text;
    if (!text.empty()) *last = text;
    text.clear();
  }
  return "";
}

}  // namespace

std::string ServerBesideThisProgram() {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  const auto server = self.parent_path() / "sru_server";
  return !error && std::filesystem::exists(server, error) ? server.string() : "";
}

absl::StatusOr<std::unique_ptr<ServerProcess>> ServerProcess::Start(
    const std::string& program, const std::vector<std::string>& flags) {
  std::vector<std::string> arguments = {program};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return absl::UnavailableError("there is no pipe");
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(1);
    dup2(ends[1], STDOUT_FILENO);
    dup2(ends[1], STDERR_FILENO);
    execv(program.c_str(), pointers.data());
    _exit(127);
  }
  close(ends[1]);
  if (pid < 0) {
    close(ends[0]);
    return absl::UnavailableError("there is no process");
  }
  std::unique_ptr<ServerProcess> process(new ServerProcess(pid, ends[0]));
  std::string last = "it cannot be run";
  const std::string ready = ReadUntilReady(ends[0], &last);
  if (ready.empty()) return absl::UnavailableError(absl::StrCat(program, ": ", last));
  // What the server logs from now on, a few lines, fits into the pipe.
  process->address_ = ready.substr(13, ready.find(',') - 13);
  return process;
}

ServerProcess::~ServerProcess() {
  kill(pid_, SIGTERM);
  waitpid(pid_, nullptr, 0);
  close(output_);
}

double ServerProcess::cpu_seconds() const {
  clockid_t clock{};
  return clock_getcpuclockid(pid_, &clock) == 0 ? Seconds(clock) : 0;
}

double OwnCpuSeconds() { return Seconds(CLOCK_PROCESS_CPUTIME_ID); }

}  // namespace sru::bench
