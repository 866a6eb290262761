#include "server/rpc/unknown_method.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/rpc/end_call.h"

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
  const std::string method = call->method().substr(0, kMaxMethodLength);
  const absl::Status status = absl::UnimplementedError(
      absl::StrCat("there is no method ", method,
                   " on this port; see its services with server reflection (`grpcurl list`)"));
  EndedCall ended;
  ended.call = call;
  ended.request_id = AccessLog::Begin(*call);
  ended.record.method = method;
  ended.record.status = &status;
  auto* reactor = new UnknownMethodCall;
  reactor->Finish(EndCall(&metrics_, &access_log_, std::move(ended)));
  return reactor;
}

}  // namespace sru::server
