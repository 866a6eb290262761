// sru_server: flags, signals, exit codes. 0 after a complete drain, a start that a signal ended, or
// --help; 1 for a wrong start or a drain that ran out of time; 128 + signal when a second signal
// cuts the drain short. --check_config: 0 if all is right, 2 if a flag is wrong, else 1. A crash
// keeps the signal's own status (server/base/crash_report.h).
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <iterator>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/build_info.h"
#include "base/flags.h"
#include "base/mutex.h"
#include "google/protobuf/stubs/logging.h"
#include "server/base/clock.h"
#include "server/base/crash_report.h"
#include "server/base/log.h"
#include "server/base/on_demand.h"
#include "server/lifecycle/model_manager.h"
#include "server/options.h"
#include "server/server.h"
#include "server/tracing/tracing_options.h"
#include "server/wiring/check_config.h"

namespace sru::server {
namespace {

constexpr int kStandardOutputWaitMs = 1000;
// How long a signal that ends the process at once waits for its own line to be written.
constexpr absl::Duration kLastLinesWait = absl::Milliseconds(200);
// After a drain, for what is left of it but at least this long.
constexpr absl::Duration kLastLoadWait = absl::Seconds(5);
// A supervisor that signals the process and then its group, as timeout(1) does, asks once.
constexpr absl::Duration kSameRequest = absl::Seconds(1);

int Fail(const absl::Status& status) {
  LogError(status.message());
  return 1;
}

// On standard output, for programs that start the server on ports of the system's choice; in the
// format of the log, since collectors often read both streams as one.
void PrintAddresses(const Server& server) {
  const std::string address = server.address().ToString();
  const std::string metrics = server.metrics_address().ToString();
  const std::optional<ListenAddress> admin = server.admin_address();
  const std::optional<ListenAddress> http = server.http_address();
  std::string line = absl::StrCat("listening on ", address, ", metrics on ", metrics);
  if (admin.has_value()) absl::StrAppend(&line, ", admin on ", admin->ToString());
  if (http.has_value()) absl::StrAppend(&line, ", HTTP on ", http->ToString());
  if (GetLogOptions().format == LogFormat::kJson) {
    line = FormatLogLine(LogLevel::kInfo, line, absl::Now(),
                         {{"address", address},
                          {"metrics_address", metrics},
                          {"admin_address", admin.has_value() ? admin->ToString() : ""},
                          {"http_address", http.has_value() ? http->ToString() : ""}},
                         LogFormat::kJson);
  }
  // A pipe that is full because nobody reads it must not hold up the start.
  pollfd out = {STDOUT_FILENO, POLLOUT, 0};
  if (poll(&out, 1, kStandardOutputWaitMs) == 0) {
    LogWarning(absl::StrCat("standard output is not read, so it is said here: ", line));
    return;
  }
  std::puts(line.c_str());
  std::fflush(stdout);
}

// Tells systemd how far a service of Type=notify is (sd_notify(3)). Does nothing without systemd.
void TellSystemd(absl::string_view state) {
  const char* const name = std::getenv("NOTIFY_SOCKET");
  sockaddr_un address = {};
  const size_t length = name == nullptr ? 0 : std::strlen(name);
  if (length == 0 || length >= std::size(address.sun_path)) return;
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, name, length);
  if (name[0] == '@') address.sun_path[0] = '\0';  // a name that is no file's
  const int out = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (out < 0 ||
      sendto(out, state.data(), state.size(), MSG_NOSIGNAL, reinterpret_cast<sockaddr*>(&address),
             static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + length)) < 0) {
    LogWarning(absl::StrCat("cannot tell systemd ", state, ": ", std::strerror(errno)));
  }
  if (out >= 0) close(out);
}

// What the process does with SIGTERM, SIGINT and SIGHUP, on a thread of its own, so that they are
// heard while models load too. Never destroyed: its thread runs until the process ends.
class Signals {
 public:
  // Before any other thread is started: they inherit that the signals are blocked.
  Signals() {
    sigemptyset(&signals_);
    for (const int signal : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&signals_, signal);
    pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
  }

  void StartThread() {
    std::thread([this] { Run(); }).detach();
  }

  // From now on the first SIGTERM or SIGINT begins the drain and SIGHUP reloads.
  void SetServing(Server* server) {
    MutexLock lock(&mutex_);
    server_ = server;
  }

  // After it the server is not touched any more.
  void AwaitDrain() {
    MutexLock lock(&mutex_);
    while (!draining_) changed_.Wait(&mutex_);
  }

  // Begins the drain, unless it has begun.
  void Drain(const std::string& why) {
    MutexLock lock(&mutex_);
    if (!draining_) BeginDrain(why);
  }

 private:
  void Run() {
    for (;;) {
      int signal = 0;
      if (sigwait(&signals_, &signal) == 0) Handle(signal);
    }
  }

  void Handle(int signal) {
    MutexLock lock(&mutex_);
    const std::string got = absl::StrCat("got ", strsignal(signal));
    if (signal == SIGHUP) {
      if (server_ == nullptr) {
        LogInfo(absl::StrCat(got, " while ", draining_ ? "draining" : "starting",
                             ", which changes nothing"));
      } else {
        LogInfo(absl::StrCat(got, ", reloading"));
        server_->Reload();
      }
    } else if (!draining_) {
      BeginDrain(got);
    } else if (SteadyNow() < drains_since_ + kSameRequest) {
      LogInfo(absl::StrCat(got, " again, draining"));
    } else {
      LogWarning(absl::StrCat(got, " while draining, exiting at once"));
      FlushLog(kLastLinesWait);
      std::_Exit(128 + signal);
    }
  }

  void BeginDrain(const std::string& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (server_ == nullptr) {
      // Nothing is served, so there is nothing to drain, and a load cannot be cut short.
      LogInfo(absl::StrCat(why, " while starting, bye"));
      FlushLog(kLastLinesWait);
      std::_Exit(0);
    }
    server_ = nullptr;
    draining_ = true;
    drains_since_ = SteadyNow();
    LogInfo(absl::StrCat(why, ", draining"));
    changed_.SignalAll();
  }

  sigset_t signals_;  // constant
  Mutex mutex_;
  CondVar changed_;
  Server* server_ ABSL_GUARDED_BY(mutex_) = nullptr;  // while it serves
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Time drains_since_ ABSL_GUARDED_BY(mutex_);
};

// The line of a start: which build with which flags, each as it was given.
void LogStart(const Options& options) {
  std::vector<std::string> flags;
  for (const Flags::Setting& flag : options.changed) {
    flags.push_back(
        absl::StrCat(flag.source == "flag" ? "--" + flag.name : flag.source, "=", flag.value));
  }
  Log(LogLevel::kInfo, absl::StrCat("start: ", VersionText()),
      {{"build_id", BuildId()}, {"flags", absl::StrJoin(flags, " ")}});
}

// Says what is wrong with flags and with what they name.
int Check(const Options& options, const std::vector<absl::Status>& parse_errors) {
  LogOptions quiet = options.logging.lines;
  quiet.level = std::max(quiet.level, LogLevel::kWarning);
  SetLogOptions(quiet);
  const std::vector<absl::Status> rules = OptionErrors(options);
  std::string checked;
  const std::vector<std::string> problems = wiring::CheckConfig(options, &checked);
  for (const auto* errors : {&parse_errors, &rules}) {
    for (const absl::Status& error : *errors) LogError(error.message());
  }
  for (const std::string& problem : problems) LogError(problem);
  if (!parse_errors.empty() || !rules.empty()) return 2;
  if (!problems.empty()) return 1;
  std::puts(absl::StrCat("the configuration is right: ", checked).c_str());
  return 0;
}

int Main(int argc, char** argv) {
  crash::Install("sru_server");
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (std::find(arguments.begin(), arguments.end(), "--version") != arguments.end()) {
    std::puts(VersionText().c_str());
    return 0;
  }
  Options options;
  Flags flags(Flags::Environment::kAll);
  AddFlags(&options, &flags);
  const absl::Status parsed = flags.ParseFlagsOnly(arguments);
  if (flags.help_requested()) {
    std::fputs(HelpText(flags.full_help_requested()).c_str(), stdout);
    return 0;
  }
  // Before anything is logged: an error, too, is written in the format that was asked for.
  SetLogOptions(options.logging.lines);
  for (const std::string& warning : flags.UnknownVariables(environ)) LogWarning(warning);
  absl::StatusOr<tracing::TracingOptions> tracing = tracing::ReadTracingOptions();
  if (options.check_config) {
    std::vector<absl::Status> errors = flags.errors();
    if (!tracing.ok()) errors.push_back(tracing.status());
    return Check(options, errors);
  }
  if (!parsed.ok()) return Fail(parsed);
  if (absl::Status status = ValidateOptions(options); !status.ok()) return Fail(status);
  options.changed = flags.changed();
  if (!tracing.ok()) return Fail(tracing.status());
  options.tracing = *std::move(tracing);
  if (absl::Status status = lifecycle::UseBundledModels(&options.models); !status.ok()) {
    return Fail(status);
  }

  // The distributions' Abseil looks for deadlocks at each lock; gRPC takes many of them per call.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);

  auto* const signals = new Signals();
  // A client that closes its connection must not end the process.
  std::signal(SIGPIPE, SIG_IGN);
  // Someone has taken the server for a program that does something on these.
  for (const int signal : {SIGUSR1, SIGUSR2}) std::signal(signal, SIG_IGN);
  // The caller is told what is wrong with its bytes, and a stranger must not fill our log.
  google::protobuf::SetLogHandler(nullptr);
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);

  LogStart(options);
  for (const std::string& warning : ExposureWarnings(options)) LogWarning(warning);
  if (options.tracing.enabled()) {
    LogInfo(absl::StrCat("spans of calls go to ", options.tracing.endpoint.text));
  }
  if (const std::string notice = ReachNotice(options); !notice.empty()) LogInfo(notice);
  if (absl::Status status = WriteAddressFile(options.address_file, ""); !status.ok()) {
    return Fail(status);
  }
  signals->StartThread();
  const absl::Status watch =
      WatchLock(options.while_locked, [signals] { signals->Drain("nobody holds --while_locked"); });
  if (!watch.ok()) return Fail(watch);
  absl::StatusOr<std::unique_ptr<Server>> server = Server::Start(options);
  if (!server.ok()) return Fail(server.status());
  signals->SetServing(server->get());
  PrintAddresses(**server);
  const std::string address = (*server)->address().ToString();
  if (absl::Status status = WriteAddressFile(options.address_file, address); !status.ok()) {
    return Fail(status);
  }
  TellSystemd("READY=1");
  signals->AwaitDrain();
  TellSystemd("STOPPING=1");
  RemoveAddressFile(options.address_file, address);
  const absl::Time end = SteadyNow() + options.drain_timeout;
  const bool complete = (*server)->Drain();
  if (!complete) {
    LogError("drain ran out of time (--drain_timeout_s); some calls were answered UNAVAILABLE");
  }
  // No call waits for a load that is under way, which cannot be cut short.
  std::thread([end, complete] {
    absl::SleepFor(std::max(end - SteadyNow(), kLastLoadWait));
    LogWarning("a model is still loading, exiting without it");
    FlushLog(kLastLinesWait);
    std::_Exit(complete ? 0 : 1);
  }).detach();
  server->reset();
  if (!complete) return 1;
  LogInfo("drained, bye");
  return 0;
}

}  // namespace
}  // namespace sru::server

int main(int argc, char** argv) {
  try {
    return sru::server::Main(argc, argv);
  } catch (const std::exception& error) {  // memory, or a thread that the system did not give
    return sru::server::Fail(sru::server::lifecycle::ExplainFailure(error));
  }
}
