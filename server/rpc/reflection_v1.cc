#include "server/rpc/reflection_v1.h"

#include <atomic>

#include "grpcpp/client_context.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/client_callback.h"

namespace sru::server {
namespace {

constexpr absl::string_view kMethod = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
constexpr char kEarlierMethod[] = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";

// One request after the other, each with its answer: at any time either a request is read, or it is
// being answered, or its answer is written. What fails ends the call.
class ReflectionCall final : public grpc::ServerGenericBidiReactor {
 public:
  ReflectionCall(grpc::GenericCallbackServerContext* call,
                 const std::shared_ptr<grpc::Channel>& channel)
      : context_(grpc::ClientContext::FromCallbackServerContext(*call)), stub_(channel) {
    stub_.PrepareBidiStreamingCall(context_.get(), kEarlierMethod, grpc::StubOptions(), &earlier_);
    earlier_.AddHold();  // until EndEarlier(): requests come from outside
    earlier_.StartCall();
    StartRead(&request_);
  }

 private:
  // The call that answers this one.
  class EarlierCall final : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
   public:
    explicit EarlierCall(ReflectionCall* call) : call_(*call) {}
    void OnWriteDone(bool /*ok*/) override { call_.OnExchange(); }  // then the answer fails, too
    void OnReadDone(bool ok) override {
      call_.has_answer_ = ok;
      call_.OnExchange();
    }
    void OnDone(const grpc::Status& status) override { call_.Finish(status); }

   private:
    ReflectionCall& call_;
  };

  void OnReadDone(bool ok) override {
    if (!ok) {  // the client has no more requests, or is gone
      EndEarlier();
      return;
    }
    exchange_ = 2;
    earlier_.StartWrite(&request_);
    earlier_.StartRead(&answer_);
  }

  // The request has left, or the answer has come. The second of these goes on.
  void OnExchange() {
    if (exchange_.fetch_sub(1) > 1) return;
    if (has_answer_) {
      StartWrite(&answer_);
    } else {
      earlier_.RemoveHold();  // it has ended, and OnDone() says how
    }
  }

  void OnWriteDone(bool ok) override {
    if (ok) {
      StartRead(&request_);
    } else {
      EndEarlier();
    }
  }

  void EndEarlier() {
    earlier_.StartWritesDone();
    earlier_.RemoveHold();
  }

  void OnCancel() override { context_->TryCancel(); }
  void OnDone() override { delete this; }

  const std::unique_ptr<grpc::ClientContext> context_;
  grpc::GenericStub stub_;
  EarlierCall earlier_{this};
  grpc::ByteBuffer request_;
  grpc::ByteBuffer answer_;
  std::atomic<int> exchange_{0};  // what is to come of the request's write and the answer's read
  bool has_answer_ = false;       // before the last of these
};

}  // namespace

bool IsReflectionV1(absl::string_view method) { return method == kMethod; }

grpc::ServerGenericBidiReactor* ForwardReflection(grpc::GenericCallbackServerContext* call,
                                                  const std::shared_ptr<grpc::Channel>& channel) {
  return new ReflectionCall(call, channel);
}

}  // namespace sru::server
