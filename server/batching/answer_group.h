// AnswerGroup: while one lives on a thread, what the thread writes to the sockets that were named
// to it is held back by the system (TCP_CORK); it leaves when the group ends. So the answers of a
// batch reach a client in one piece: sent one by one, each would go through the network stack and
// wake the client by itself, which costs about as much as a short forward pass.
//
//   AnswerGroup group;
//   for (...) {
//     if (AnswerGroup* current = AnswerGroup::Current()) current->Hold(socket);
//     ... write an answer ...
//   }
#ifndef SRU_SERVER_BATCHING_ANSWER_GROUP_H_
#define SRU_SERVER_BATCHING_ANSWER_GROUP_H_

#include <vector>

namespace sru::server {

class AnswerGroup {
 public:
  AnswerGroup();
  ~AnswerGroup();
  AnswerGroup(const AnswerGroup&) = delete;
  AnswerGroup& operator=(const AnswerGroup&) = delete;

  // The innermost one on this thread; null when there is none.
  static AnswerGroup* Current();

  // Holds what is written to `socket` from now on. Nothing happens for -1, for one that is held
  // already, and for what is no TCP socket: so a descriptor that was closed and given to somebody
  // else meanwhile does no harm, since all that can happen to it is to be held for a moment.
  void Hold(int socket);

 private:
  AnswerGroup* const outer_;
  std::vector<int> held_;
};

}  // namespace sru::server

#endif  // SRU_SERVER_BATCHING_ANSWER_GROUP_H_
