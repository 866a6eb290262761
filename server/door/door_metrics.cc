#include "server/door/door_metrics.h"

#include <nghttp2/nghttp2.h>

namespace sru::server::door {
namespace {

prometheus::Family<prometheus::Counter>& Family(prometheus::Registry* registry, const char* name,
                                                const char* help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(*registry);
}

}  // namespace

const char* CloseCauseName(CloseCause cause) {
  switch (cause) {
    case CloseCause::kPeer:
      return "peer";
    case CloseCause::kHandshake:
      return "handshake";
    case CloseCause::kProtocol:
      return "protocol";
    case CloseCause::kTooSlow:
      return "too_slow";
    case CloseCause::kNotTaken:
      return "not_taken";
    case CloseCause::kFlood:
      return "flood";
    case CloseCause::kMadeWay:
      return "made_way";
    case CloseCause::kIdle:
      return "idle";
    case CloseCause::kAge:
      return "age";
    case CloseCause::kDrain:
      return "drain";
    case CloseCause::kRevoked:
      return "revoked";
    case CloseCause::kHttp1:
      return "http1";
  }
  return "";
}

DoorMetrics::DoorMetrics(prometheus::Registry* registry)
    : streams_(Family(registry, "sru_door_streams_total",
                      "HTTP/2 streams that clients of the native gRPC transport have opened.")
                   .Add({})),
      read_bytes_(Family(registry, "sru_door_read_bytes_total",
                         "Bytes that the native gRPC transport has read, without TLS.")
                      .Add({})),
      written_bytes_(Family(registry, "sru_door_written_bytes_total",
                            "Bytes that the native gRPC transport has written, without TLS.")
                         .Add({})),
      go_aways_(Family(registry, "sru_door_goaways_total",
                       "Connections that were told to go elsewhere (GOAWAY).")
                    .Add({})),
      lag_(prometheus::BuildHistogram()
               .Name("sru_door_loop_lag_seconds")
               .Help("How long answers wait until their event loop takes them.")
               .Register(*registry)
               .Add({}, prometheus::Histogram::BucketBoundaries{0.00001, 0.0001, 0.001, 0.01, 0.1,
                                                                1})) {
  auto& connections = prometheus::BuildGauge()
                          .Name("sru_door_connections")
                          .Help("Connections of the native gRPC transport that are open.")
                          .Register(*registry);
  auto& resets = Family(registry, "sru_door_resets_total",
                        "HTTP/2 streams that were reset, by who did it and why.");
  for (const bool on : {false, true}) {
    for (const bool http2 : {false, true}) {
      connections_[on][http2] = &connections.Add(
          {{"transport", on ? "tls" : "plain"}, {"protocol", http2 ? "http2" : "not_begun"}});
    }
    for (size_t i = 0; i < kNumResetReasons; ++i) {
      resets_[on][i] =
          &resets.Add({{"by", on ? "client" : "server"}, {"reason", kResetReasons[i]}});
    }
  }
  auto& closed = Family(registry, "sru_door_connections_closed_total",
                        "Connections of the native gRPC transport that have ended, by cause; "
                        "http1: they go on over HTTP/1.1.");
  for (size_t i = 0; i < kNumCloseCauses; ++i) {
    closed_[i] = &closed.Add({{"cause", CloseCauseName(static_cast<CloseCause>(i))}});
  }
  auto& floods = Family(registry, "sru_door_floods_total",
                        "Connections that were ended for a flood, by what came too often.");
  for (size_t i = 0; i < kNumFloods; ++i) {
    floods_[i] = &floods.Add({{"reason", FloodName(static_cast<Flood>(i))}});
  }
}

void DoorMetrics::OnReset(bool by_client, uint32_t code) {
  const size_t reason = code == NGHTTP2_CANCEL           ? 0
                        : code == NGHTTP2_REFUSED_STREAM ? 1
                        : code == NGHTTP2_NO_ERROR       ? 2
                                                         : 3;
  resets_[by_client][reason]->Increment();
}

}  // namespace sru::server::door
