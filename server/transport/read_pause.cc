#include "server/transport/read_pause.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "server/base/clock.h"

namespace sru::server::transport {
namespace {

// Linux takes a mark for any kind of socket, but only TCP's is wanted.
bool IsTcp(int socket) {
  int protocol = 0;
  socklen_t size = sizeof(protocol);
  return getsockopt(socket, SOL_SOCKET, SO_PROTOCOL, &protocol, &size) == 0 &&
         protocol == IPPROTO_TCP;
}

// When what has arrived reaches the mark already, setting it wakes the reader.
bool SetMark(int socket, int bytes) {
  return setsockopt(socket, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof(bytes)) == 0;
}

// While it is set, only full segments leave; what has gathered leaves when it is taken back.
void SetCork(int socket, int value) {
  setsockopt(socket, IPPROTO_TCP, TCP_CORK, &value, sizeof(value));
}

}  // namespace

ReadPause::ReadPause(absl::Duration length) : length_(length) {
  if (length_ > absl::ZeroDuration()) thread_ = std::thread([this] { Run(); });
}

ReadPause::~ReadPause() {
  {
    MutexLock lock(&mutex_);
    closed_ = true;
  }
  changed_.SignalAll();
  if (thread_.joinable()) thread_.join();
  // Those that the thread has not seen any more.
  MutexLock lock(&mutex_);
  EndAll();
}

void ReadPause::Start(int socket) {
  if (socket < 0 || length_ <= absl::ZeroDuration()) return;
  {
    MutexLock lock(&mutex_);
    if (closed_ || paused_.count(socket) != 0 || !IsTcp(socket) || !SetMark(socket, kPauseBytes)) {
      return;
    }
    paused_.insert(socket);
    SetCork(socket, 1);
    if (paused_.size() > 1) return;
  }
  changed_.SignalAll();
}

void ReadPause::Run() {
  MutexLock lock(&mutex_);
  while (!closed_) {
    while (paused_.empty() && !closed_) changed_.Wait(&mutex_);
    // Those that join meanwhile have a shorter pause.
    const absl::Time end = SteadyNow() + length_;
    for (absl::Time now = SteadyNow(); now < end && !closed_; now = SteadyNow()) {
      changed_.WaitFor(&mutex_, end - now);
    }
    EndAll();
  }
}

void ReadPause::EndAll() {
  for (const int socket : paused_) {
    SetCork(socket, 0);
    SetMark(socket, 1);
  }
  paused_.clear();
}

}  // namespace sru::server::transport
