// AnswerGroup: while a group lives on a thread, the system holds back (TCP_CORK) what the thread
// writes to the sockets that were passed to Hold(), and sends it when the group ends. The answers
// of a batch thus reach a client in one piece: sent one by one, each would go through the network
// stack and wake the client by itself, which costs about as much as a short forward pass.
//
//   AnswerGroup group;
//   for (...) {
//     if (AnswerGroup* current = AnswerGroup::Current()) current->Hold(socket);
//     ... write an answer ...
//   }
#ifndef SRU_SERVER_BATCHING_QUEUE_ANSWER_GROUP_H_
#define SRU_SERVER_BATCHING_QUEUE_ANSWER_GROUP_H_

#include <vector>

namespace sru::server::batching {

class AnswerGroup {
 public:
  AnswerGroup();
  ~AnswerGroup();
  AnswerGroup(const AnswerGroup&) = delete;
  AnswerGroup& operator=(const AnswerGroup&) = delete;

  // The innermost group on this thread; null when there is none.
  static AnswerGroup* Current();

  // Holds what is written to `socket` from now on. Does nothing for -1, for a socket that is held
  // already, and for a descriptor that is no TCP socket. A descriptor that has meanwhile been
  // closed and reused does no harm: at worst its data is held for a moment.
  void Hold(int socket);

 private:
  AnswerGroup* const outer_;
  std::vector<int> held_;
};

}  // namespace sru::server::batching

#endif  // SRU_SERVER_BATCHING_QUEUE_ANSWER_GROUP_H_
