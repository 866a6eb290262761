// The native door's metrics for Prometheus. Thread-safe.
#ifndef SRU_SERVER_DOOR_DOOR_METRICS_H_
#define SRU_SERVER_DOOR_DOOR_METRICS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>

#include "prometheus/counter.h"
#include "prometheus/gauge.h"
#include "prometheus/histogram.h"
#include "prometheus/registry.h"
#include "server/door/flood_guard.h"
#include "server/transport/byte_stream.h"
#include "server/transport/loop.h"
#include "server/transport/reason_counters.h"

namespace sru::server::door {

// Why a connection has ended.
enum class CloseCause {
  kPeer,       // the peer has closed it, or it broke
  kHandshake,  // TLS failed
  kProtocol,   // what came is not HTTP/2
  kTooSlow,    // no handshake, preface, SETTINGS or acknowledgement in time
  kNotTaken,   // the peer does not take what is sent to it
  kFlood,
  kMadeWay,  // for another one
  kAge,
  kDrain,
  kRevoked,  // the client's certificate is no longer accepted
  kAnswered  // over HTTP/1.1: after the answer that was said to be the last
};
inline constexpr const char* kCloseCauseNames[] = {"peer",      "handshake", "protocol", "too_slow",
                                                   "not_taken", "flood",     "made_way", "age",
                                                   "drain",     "revoked",   "answered"};
static_assert(std::size(kCloseCauseNames) ==
              size_t{1} + static_cast<size_t>(CloseCause::kAnswered));

// The protocol of a connection.
enum class Protocol { kNotBegun, kHttp1, kHttp2 };
inline constexpr const char* kProtocolNames[] = {"not_begun", "http1", "http2"};

// Must not outlive the registry.
class DoorMetrics {
 public:
  explicit DoorMetrics(prometheus::Registry* registry);

  // Where an open connection is counted, with TLS or not.
  prometheus::Gauge& Connections(bool tls, Protocol protocol) {
    return *connections_[tls][static_cast<size_t>(protocol)];
  }
  void OnClosed(CloseCause cause) { closed_.Count(cause); }
  void OnStream() { streams_.Increment(); }
  // `code` is HTTP/2's.
  void OnReset(bool by_client, uint32_t code);
  void OnFlood(Flood flood) { floods_.Count(flood); }
  void OnRead(size_t bytes) { read_bytes_.Increment(static_cast<double>(bytes)); }
  void OnWritten(size_t bytes) { written_bytes_.Increment(static_cast<double>(bytes)); }
  void OnGoAway() { go_aways_.Increment(); }
  // For the loops, which must not outlive this.
  transport::LoopWatch Watch();

 private:
  static constexpr const char* kResetReasons[] = {"cancel", "refused", "no_error", "error"};
  static constexpr size_t kNumResetReasons = std::size(kResetReasons);

  std::array<std::array<prometheus::Gauge*, std::size(kProtocolNames)>, 2> connections_{};
  transport::ReasonCounters<CloseCause, std::size(kCloseCauseNames)> closed_;
  prometheus::Counter& streams_;
  std::array<std::array<prometheus::Counter*, kNumResetReasons>, 2> resets_{};
  transport::ReasonCounters<Flood, kNumFloods> floods_;
  prometheus::Counter& read_bytes_;
  prometheus::Counter& written_bytes_;
  prometheus::Counter& go_aways_;
  prometheus::Histogram& lag_;
  prometheus::Histogram& turns_;
};

}  // namespace sru::server::door

#endif  // SRU_SERVER_DOOR_DOOR_METRICS_H_
