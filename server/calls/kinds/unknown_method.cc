#include "server/calls/kinds/unknown_method.h"

#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "server/calls/kinds/end_call.h"

namespace sru::server::calls {
namespace {

constexpr size_t kMaxMethodLength = 200;

// What a caller of the Open Inference Protocol, whose service is divided between two ports, should
// know.
absl::string_view HintOf(absl::string_view method) {
  if (!absl::ConsumePrefix(&method, "/inference.GRPCInferenceService/")) {
    return "see its services with server reflection (`grpcurl list`)";
  }
  if (absl::StartsWith(method, "Repository")) {
    return "the model repository is on the port of --admin_listen";
  }
  for (const absl::string_view of_triton :
       {"SystemSharedMemory", "CudaSharedMemory", "Trace", "Log"}) {
    if (absl::StartsWith(method, of_triton)) {
      return "this server has no shared memory, traces or log settings as Triton has";
    }
  }
  return "models are served on the port of --listen";
}

class EndedCallHandler final : public CallHandler {
 public:
  void OnMessage(std::optional<absl::Cord> /*message*/) override {}
  void OnDone() override { delete this; }
};

// A call that ends before it has begun.
EndedCall EndEarly(const Exchange& exchange, std::optional<MethodId> method,
                   const absl::Status& status) {
  EndedCall ended(exchange, telemetry::AccessLog::Begin(exchange), status);
  ended.method = method;
  ended.record.method = exchange.method().substr(0, kMaxMethodLength);
  return ended;
}

}  // namespace

CallHandler* StartUnknownMethod(Exchange* exchange, telemetry::Metrics* metrics,
                                telemetry::AccessLog* access_log) {
  const absl::string_view method = exchange->method().substr(0, kMaxMethodLength);
  // gRPC hands over calls that end before their path has come, with the path "/".
  const absl::Status status =
      method.size() <= 1 && exchange->is_cancelled()
          ? absl::CancelledError("the caller cancelled the call before it had begun")
          : absl::UnimplementedError(
                absl::StrCat("there is no method ", method, " on this port; ", HintOf(method)));
  exchange->Finish(EndCall(metrics, access_log, EndEarly(*exchange, std::nullopt, status)));
  return new EndedCallHandler;
}

CallHandler* StartRefusedCall(Exchange* exchange, MethodId method, const absl::Status& refusal,
                              telemetry::Metrics* metrics, telemetry::AccessLog* access_log) {
  exchange->Finish(EndCall(metrics, access_log, EndEarly(*exchange, method, refusal)));
  return new EndedCallHandler;
}

CallEnd EndFailedCall(const Exchange& exchange, const Method* row, const absl::Status& status,
                      telemetry::Metrics* metrics, telemetry::AccessLog* access_log) {
  EndedCall ended = EndEarly(exchange, row == nullptr ? std::nullopt : row->id, status);
  if (row != nullptr && !row->id.has_value()) {  // health and reflection, which are not counted
    access_log->End(exchange, std::move(ended.request_id), ended.record);
    return {status, {}, {}};
  }
  return EndCall(metrics, access_log, std::move(ended));
}

}  // namespace sru::server::calls
