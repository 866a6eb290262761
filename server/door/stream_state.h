// StreamState: how far each side of a stream has come. Each side only moves forward, by Reach().
//
//   request   what the client sends    answer    what the server sends     call      who answers
//
//   kHead     its header arrives       kNone                               kNone     not made yet
//     | OnHead()                         | Send()                            | start()
//   kFirst    nothing was delivered    kBegun    the header is submitted   kRunning
//     | a message                        | Finish(), or Fail()               | Finish()
//   kMore     others may follow        kComplete its end is known          kFinished
//     | END_STREAM, or its time is up    | END_STREAM is framed              | nothing can be sent
//   kEnded                             kFramed                             kLeaving  a side thread
//                                        | nghttp2 forgets the stream        |       still uses it
//                                      kClosed                               | OnDone()
//                                        | all of it was written           kOver
//                                      kGone
//
// A step may pass over states. In the terms of RFC 9113, 5.1, a stream is "half-closed (remote)" at
// kEnded, "half-closed (local)" at kFramed, and "closed" at kClosed; else it is "open". It is
// deleted once the answer is kGone and no call works on it.
//
// A message that the call writes, and one that it reads, come and go meanwhile: `writing`,
// `reading`.
#ifndef SRU_SERVER_DOOR_STREAM_STATE_H_
#define SRU_SERVER_DOOR_STREAM_STATE_H_

#include <algorithm>

namespace sru::server::door {

struct StreamState {
  enum class Request { kHead, kFirst, kMore, kEnded } request = Request::kHead;
  enum class Answer { kNone, kBegun, kComplete, kFramed, kClosed, kGone } answer = Answer::kNone;
  enum class Call { kNone, kRunning, kFinished, kLeaving, kOver } call = Call::kNone;
  // A Write() whose OnWritten() is owed: its message is being sent, or framed and not yet written.
  enum class Writing { kNothing, kMessage, kFramed } writing = Writing::kNothing;
  // Whether the call has asked for a message. kLater: the last one is still given to it.
  enum class Reading { kNo, kYes, kLater } reading = Reading::kNo;

  void Reach(Request to) { request = std::max(request, to); }
  void Reach(Answer to) { answer = std::max(answer, to); }
  void Reach(Call to) { call = std::max(call, to); }

  // Returns whether the call was to get a message now.
  bool StopReading() {
    const bool was_reading = is_reading();
    if (was_reading) reading = Reading::kNo;
    return was_reading;
  }

  // Whether an answer, or more of one, can still be given to nghttp2.
  bool can_answer() const { return answer < Answer::kComplete; }
  bool is_reading() const { return reading == Reading::kYes; }
  // Whether there is a call that has not asked to finish.
  bool is_running() const { return call == Call::kRunning; }
  bool has_finished() const { return call == Call::kFinished || call == Call::kLeaving; }
  bool is_over() const {
    return answer == Answer::kGone && (call == Call::kNone || call == Call::kOver);
  }
};

}  // namespace sru::server::door

#endif  // SRU_SERVER_DOOR_STREAM_STATE_H_
