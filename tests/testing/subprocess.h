// A child process whose output goes to files and which never outlives its object.
#ifndef SRU_TESTS_TESTING_SUBPROCESS_H_
#define SRU_TESTS_TESTING_SUBPROCESS_H_

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tests/testing/poll.h"
#include "tests/testing/test_files.h"

namespace sru::testing {

class Subprocess {
 public:
  // `environment` holds NAME=VALUE entries on top of this process' own.
  explicit Subprocess(std::vector<std::string> arguments,
                      const std::vector<std::string>& environment = {}) {
    const std::string out = directory_.path("out");
    const std::string err = directory_.path("err");
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);  // even if the test itself is killed
      for (const std::string& entry : environment) putenv(const_cast<char*>(entry.c_str()));
      dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
      dup2(open(out.c_str(), O_WRONLY | O_CREAT, 0600), STDOUT_FILENO);
      dup2(open(err.c_str(), O_WRONLY | O_CREAT, 0600), STDERR_FILENO);
      execvp(argv[0], argv.data());
      _exit(127);
    }
  }
  Subprocess(const Subprocess&) = delete;
  Subprocess& operator=(const Subprocess&) = delete;
  ~Subprocess() {
    if (pid_ <= 0 || exited_) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }

  pid_t pid() const { return pid_; }

  void Signal(int signal) const { kill(pid_, signal); }

  // The exit code; 128 + signal if a signal ended it; -1 if it still runs after `timeout`.
  int Wait(absl::Duration timeout = absl::Seconds(60)) {
    return PollUntil([this] { return HasExited(); }, timeout) ? exit_code_ : -1;
  }

  bool HasExited() {
    int status = 0;
    if (!exited_ && waitpid(pid_, &status, WNOHANG) == pid_) {
      exited_ = true;
      exit_code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    return exited_;
  }

  // Waits until it has written a line or has ended.
  bool AwaitLine() {
    return PollUntil([this] { return HasExited() || out().find('\n') != std::string::npos; });
  }

  std::string out() const { return Read("out"); }
  std::string err() const { return Read("err"); }

 private:
  std::string Read(const std::string& name) const {
    std::ifstream file(directory_.path(name), std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }

  models::TempDirectory directory_;
  pid_t pid_ = -1;
  bool exited_ = false;
  int exit_code_ = -1;
};

}  // namespace sru::testing

#endif  // SRU_TESTS_TESTING_SUBPROCESS_H_
