#include "server/door/door_metrics.h"

#include <nghttp2/nghttp2.h>

#include <chrono>
#include <string>
#include <utility>

namespace sru::server::door {
namespace {

using transport::AddCounter;
}  // namespace

DoorMetrics::DoorMetrics(prometheus::Registry* registry)
    : closed_(registry, "sru_door_connections_closed_total",
              "Connections that ended: peer, handshake, protocol (not HTTP/2), too_slow, "
              "not_taken (--send_timeout_s), flood, made_way (for another one), age, "
              "drain, revoked (certificate), answered (HTTP/1.1, after its last answer).",
              "cause", kCloseCauseNames),
      streams_(AddCounter(registry, "sru_door_streams_total",
                          "HTTP/2 streams that clients have opened.")),
      floods_(registry, "sru_door_floods_total",
              "Connections that were ended for a flood, by what came too often.", "reason",
              kFloodNames),
      read_bytes_(AddCounter(registry, "sru_door_read_bytes_total",
                             "Bytes read from clients, without TLS.")),
      written_bytes_(AddCounter(registry, "sru_door_written_bytes_total",
                                "Bytes written to clients, without TLS.")),
      go_aways_(AddCounter(registry, "sru_door_goaways_total",
                           "Connections that were told to reconnect elsewhere (GOAWAY).")),
      lag_(prometheus::BuildHistogram()
               .Name("sru_door_loop_lag_seconds")
               .Help("Time that answers wait until their event loop takes them.")
               .Register(*registry)
               .Add({},
                    prometheus::Histogram::BucketBoundaries{0.00001, 0.0001, 0.001, 0.01, 0.1, 1})),
      turns_(prometheus::BuildHistogram()
                 .Name("sru_door_long_turn_seconds")
                 .Help("Processor time of single tasks on an event loop that took a quarter of a "
                       "millisecond or more, while its other connections waited.")
                 .Register(*registry)
                 .Add({}, prometheus::Histogram::BucketBoundaries{0.0005, 0.001, 0.002, 0.005, 0.01,
                                                                  0.1})) {
  auto& connections =
      prometheus::BuildGauge()
          .Name("sru_door_connections")
          .Help("Open connections, by protocol; not_begun: the client has sent nothing yet.")
          .Register(*registry);
  auto& resets = prometheus::BuildCounter()
                     .Name("sru_door_resets_total")
                     .Help("HTTP/2 streams that were reset, by whom and why.")
                     .Register(*registry);
  for (const bool on : {false, true}) {
    for (size_t i = 0; i < std::size(kProtocolNames); ++i) {
      connections_[on][i] =
          &connections.Add({{"transport", on ? "tls" : "plain"}, {"protocol", kProtocolNames[i]}});
    }
    for (size_t i = 0; i < kNumResetReasons; ++i) {
      resets_[on][i] =
          &resets.Add({{"by", on ? "client" : "server"}, {"reason", kResetReasons[i]}});
    }
  }
}

transport::LoopWatch DoorMetrics::Watch() {
  const auto observe_in = [](prometheus::Histogram& histogram) {
    return [&histogram](transport::SteadyTime::duration time) {
      histogram.Observe(std::chrono::duration<double>(time).count());
    };
  };
  return {observe_in(lag_), observe_in(turns_)};
}

void DoorMetrics::OnReset(bool by_client, uint32_t code) {
  const size_t reason = code == NGHTTP2_CANCEL           ? 0
                        : code == NGHTTP2_REFUSED_STREAM ? 1
                        : code == NGHTTP2_NO_ERROR       ? 2
                                                         : 3;
  resets_[by_client][reason]->Increment();
}

}  // namespace sru::server::door
