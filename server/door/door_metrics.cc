#include "server/door/door_metrics.h"

#include <nghttp2/nghttp2.h>

#include <chrono>
#include <string>
#include <utility>

namespace sru::server::door {
namespace {

using transport::AddCounter;
using transport::ByteStream;

class CountedStream final : public ByteStream {
 public:
  CountedStream(std::unique_ptr<ByteStream> bytes, DoorMetrics* metrics, prometheus::Gauge* open,
                std::function<void()> on_flood)
      : bytes_(std::move(bytes)), metrics_(*metrics), open_(*open), on_flood_(std::move(on_flood)) {
    open_.Increment();
  }
  ~CountedStream() override { open_.Decrement(); }

  std::string CertificateName() const override { return bytes_->CertificateName(); }
  bool IsTrustedBy(ssl_ctx_st* context) const override { return bytes_->IsTrustedBy(context); }
  Result Read(absl::Span<char> buffer) override {
    const Result result = bytes_->Read(buffer);
    metrics_.OnRead(result.bytes);
    const int empty = bytes_->TakeEmptyRecords();
    if (empty == 0 || floods_.Note(Flood::kEmptyRecords, transport::ClockNow(), empty)) {
      return result;
    }
    if (on_flood_ != nullptr) std::exchange(on_flood_, nullptr)();
    return {Outcome::kEnd};
  }
  bool MayHoldMore() const override { return bytes_->MayHoldMore(); }
  Result Write(absl::string_view bytes) override {
    const Result result = bytes_->Write(bytes);
    metrics_.OnWritten(result.bytes);
    return result;
  }
  void EndSending() override { bytes_->EndSending(); }

 private:
  const std::unique_ptr<ByteStream> bytes_;
  DoorMetrics& metrics_;
  prometheus::Gauge& open_;
  std::function<void()> on_flood_;
  FloodGuard floods_;
};

}  // namespace

DoorMetrics::DoorMetrics(prometheus::Registry* registry)
    : closed_(registry, "sru_door_connections_closed_total",
              "Connections that ended: peer, handshake, protocol (not HTTP/2), too_slow, "
              "not_taken (--send_timeout_s), flood, made_way (for another one), age, "
              "drain, revoked (certificate), http1 (continued as HTTP/1.1).",
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

std::unique_ptr<ByteStream> DoorMetrics::CountHttp1(std::unique_ptr<ByteStream> bytes, bool tls,
                                                    std::function<void()> on_flood) {
  return std::make_unique<CountedStream>(std::move(bytes), this,
                                         &Connections(tls, Protocol::kHttp1), std::move(on_flood));
}

void DoorMetrics::OnReset(bool by_client, uint32_t code) {
  const size_t reason = code == NGHTTP2_CANCEL           ? 0
                        : code == NGHTTP2_REFUSED_STREAM ? 1
                        : code == NGHTTP2_NO_ERROR       ? 2
                                                         : 3;
  resets_[by_client][reason]->Increment();
}

}  // namespace sru::server::door
