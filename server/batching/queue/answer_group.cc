#include "server/batching/queue/answer_group.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>

namespace sru::server::batching {
namespace {

thread_local AnswerGroup* current_group = nullptr;

bool SetCork(int socket, int value) {
  return setsockopt(socket, IPPROTO_TCP, TCP_CORK, &value, sizeof(value)) == 0;
}

}  // namespace

AnswerGroup::AnswerGroup() : outer_(current_group) { current_group = this; }

AnswerGroup::~AnswerGroup() {
  for (const int socket : held_) SetCork(socket, 0);
  current_group = outer_;
}

AnswerGroup* AnswerGroup::Current() { return current_group; }

void AnswerGroup::Hold(int socket) {
  if (socket < 0 || std::find(held_.begin(), held_.end(), socket) != held_.end()) return;
  held_.push_back(socket);  // first: a socket that is held but not listed would stay held
  if (!SetCork(socket, 1)) held_.pop_back();
}

}  // namespace sru::server::batching
