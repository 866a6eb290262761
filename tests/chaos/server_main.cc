// chaos_server: sru_server, with its flags, on two devices of which SIGUSR1 loses one after the
// other. Exit codes as sru_server's.
#include <csignal>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/flags.h"
#include "server/base/log.h"
#include "server/options.h"
#include "server/server.h"
#include "tests/testing/failing_backend.h"

namespace sru::testing {
namespace {

constexpr int kDevices = 2;

int Main(int argc, char** argv) {
  server::Options options;
  Flags flags;
  server::AddFlags(&options, &flags);
  absl::Status status = flags.ParseFlagsOnly({argv + 1, argv + argc});
  if (status.ok()) status = server::ValidateOptions(options);
  server::SetLogOptions(options.logging.lines);
  if (!status.ok()) {
    server::LogError(status.message());
    return 1;
  }
  // Before any other thread is started: they inherit that the signals are blocked.
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR1}) sigaddset(&signals, signal);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);

  const auto devices = std::make_shared<FailingDevices>(kDevices);
  auto server = server::Server::Start(options, std::make_unique<FailingBackend>(devices));
  if (!server.ok()) {
    server::LogError(server.status().message());
    return 1;
  }
  std::string line = absl::StrCat("listening on ", (*server)->address().ToString(), ", metrics on ",
                                  (*server)->metrics_address().ToString());
  if (const auto http = (*server)->http_address(); http.has_value()) {
    absl::StrAppend(&line, ", HTTP on ", http->ToString());
  }
  std::puts(line.c_str());
  std::fflush(stdout);
  for (int lost = 0;;) {
    int signal = 0;
    sigwait(&signals, &signal);
    if (signal == SIGUSR1) {
      if (lost < kDevices) devices->failed[lost++] = true;
      server::LogInfo(absl::StrCat("lost ", lost, " of ", kDevices, " devices"));
    } else if (signal == SIGHUP) {
      (*server)->Reload();
    } else {
      break;
    }
  }
  const bool complete = (*server)->Drain();
  server->reset();
  if (complete) server::LogInfo("drained, bye");
  return complete ? 0 : 1;
}

}  // namespace
}  // namespace sru::testing

int main(int argc, char** argv) { return sru::testing::Main(argc, argv); }
