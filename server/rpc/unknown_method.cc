#include "server/rpc/unknown_method.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "server/rpc/grpc_status.h"

namespace sru::server {
namespace {

constexpr size_t kMaxMethodLength = 200;

class UnknownMethodCall final : public grpc::ServerGenericBidiReactor {
 public:
  void OnDone() override { delete this; }
};

}  // namespace

grpc::ServerGenericBidiReactor* UnknownMethodService::CreateReactor(
    grpc::GenericCallbackServerContext* call) {
  metrics_.OnUnknownMethod();
  const std::string method = call->method().substr(0, kMaxMethodLength);
  const absl::Status status = absl::UnimplementedError(
      absl::StrCat("there is no method ", method,
                   " on this port; see its services with server reflection (`grpcurl list`)"));
  CallRecord record;
  record.method = method;
  record.status = &status;
  access_log_.End(call, AccessLog::Begin(*call), record);
  auto* reactor = new UnknownMethodCall;
  reactor->Finish(ToGrpcStatus(status));
  return reactor;
}

}  // namespace sru::server
