#include "server/transport/acceptor.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "server/base/cores.h"
#include "server/base/log.h"
#include "server/transport/listening_sockets.h"

namespace sru::server::transport {
namespace {

// How long what waits at the sockets is left there when the system lacks something.
constexpr absl::Duration kFailureWait = absl::Milliseconds(50);

}  // namespace

Acceptor::Acceptor(std::vector<int> sockets, std::string name, OnConnection on_connection,
                   OnFailure on_failure)
    : sockets_(std::move(sockets)),
      name_(std::move(name)),
      on_connection_(std::move(on_connection)),
      on_failure_(std::move(on_failure)) {}

absl::StatusOr<std::unique_ptr<Acceptor>> Acceptor::Create(std::vector<int> sockets,
                                                           std::string name,
                                                           OnConnection on_connection,
                                                           OnFailure on_failure) {
  std::unique_ptr<Acceptor> acceptor(new Acceptor(std::move(sockets), std::move(name),
                                                  std::move(on_connection), std::move(on_failure)));
  acceptor->wake_ = eventfd(0, EFD_CLOEXEC);
  if (acceptor->wake_ < 0) {
    return absl::UnavailableError(absl::StrCat("cannot accept connections to ", acceptor->name_,
                                               ": eventfd: ", SystemErrorText()));
  }
  return acceptor;
}

Acceptor::~Acceptor() {
  Stop();
  if (wake_ >= 0) close(wake_);
}

void Acceptor::Start() {
  thread_ = std::thread([this] { Run(); });
}

void Acceptor::Stop() {
  if (thread_.joinable()) {
    stopping_ = true;
    eventfd_write(wake_, 1);
    thread_.join();
    for (const int socket : sockets_) Accept(socket);
  }
  for (const int socket : sockets_) close(socket);
  sockets_.clear();
}

void Acceptor::NoteFailure(const char* what) {
  const std::string why = SystemErrorText();
  if (failures_.fetch_add(1, std::memory_order_relaxed) > 0) return;
  LogWarning(absl::StrCat("connections to ", name_, " have to wait: ", what, ": ", why,
                          "; further failures are not logged"));
}

void Acceptor::Run() {
  NameThisThread("sru_acceptor");
  std::vector<pollfd> polled = {{wake_, POLLIN, 0}};
  for (const int socket : sockets_) polled.push_back({socket, POLLIN, 0});
  const int wait_ms = static_cast<int>(absl::ToInt64Milliseconds(kFailureWait));
  bool failed = false;
  while (!stopping_) {
    // After a failure what waits at the sockets is left there for a moment.
    const nfds_t count = failed ? 1 : polled.size();
    if (poll(polled.data(), count, failed ? wait_ms : -1) < 0 && errno != EINTR) {
      NoteFailure("poll");
      absl::SleepFor(kFailureWait);
    }
    failed = false;
    for (const int socket : sockets_) {
      if (stopping_) return;
      if (!Accept(socket)) failed = true;
    }
  }
}

bool Acceptor::Accept(int socket) {
  for (;;) {
    sockaddr_storage address{};
    socklen_t size = sizeof(address);
    const int fd =
        accept4(socket, reinterpret_cast<sockaddr*>(&address), &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
      if (errno == EINTR || IsAboutConnection(errno)) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return true;
      NoteFailure("accept");
      if (on_failure_ != nullptr) on_failure_();
      return false;
    }
    on_connection_(fd, address);
  }
}

}  // namespace sru::server::transport
