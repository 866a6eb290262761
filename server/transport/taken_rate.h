// TakenRate: whether a client takes an answer of several parts fast enough. A time-out for each
// part alone can be renewed by a byte for ever; here the parts share one account. The client owes
// the time in which a part waits for it. It pays with what it takes, at a second for each KiB and
// at least a second for each part, and with time in which nothing waits: a slow server is not its
// fault. It saves nothing up.
//
// A client that owes as much as it may leave one part waiting does not take its answer.
#ifndef SRU_SERVER_TRANSPORT_TAKEN_RATE_H_
#define SRU_SERVER_TRANSPORT_TAKEN_RATE_H_

#include <algorithm>
#include <chrono>
#include <cstddef>

#include "server/transport/timer_set.h"

namespace sru::server::transport {

class TakenRate {
 public:
  static constexpr size_t kBytesPerSecond = 1 << 10;

  // A part of so many bytes waits for the client. Returns since when a part with a time-out of its
  // own would have to wait so that both end together: earlier by what the client owes.
  SteadyTime BeginPart(SteadyTime now, size_t bytes) {
    Pay(now - since_);
    since_ = now;
    bytes_ = bytes;
    return now - owed_;
  }
  // The client has taken the part.
  void EndPart(SteadyTime now) {
    owed_ += now - since_;
    since_ = now;
    Pay(std::chrono::milliseconds(std::max(bytes_, kBytesPerSecond) * 1000 / kBytesPerSecond));
  }

 private:
  void Pay(SteadyTime::duration time) { owed_ -= std::min(owed_, time); }

  SteadyTime since_;  // the last part began or ended
  size_t bytes_ = 0;
  SteadyTime::duration owed_{0};
};

}  // namespace sru::server::transport

#endif  // SRU_SERVER_TRANSPORT_TAKEN_RATE_H_
