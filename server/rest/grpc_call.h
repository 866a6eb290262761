// GrpcCalls: makes calls on the channel within the process, with messages as bytes and without a thread per call. The
// answer comes to a function, on one of gRPC's threads.
//
//   calls.Unary("/sru.v1.InferenceService/Classify", request, info, [](const GrpcAnswer& answer) { ... });
//
// Thread-safe.
#ifndef SRU_SERVER_REST_GRPC_CALL_H_
#define SRU_SERVER_REST_GRPC_CALL_H_

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "grpcpp/channel.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/status.h"

namespace sru::server::rest {

// What a call carries besides its message.
struct CallInfo {
  absl::Duration timeout = absl::InfiniteDuration();
  // Lower-case names, values of printable ASCII.
  std::vector<std::pair<std::string, std::string>> metadata;
};

struct GrpcAnswer {
  grpc::Status status;
  grpc::ByteBuffer message;  // of a unary call that succeeded
  std::string request_id;    // x-request-id as the service answered it; "" = none
};

// A call that runs. May be dropped at any time: the call goes on.
class GrpcCall {
 public:
  virtual ~GrpcCall() = default;
  // The call ends soon, usually with CANCELLED. No effect once it has ended.
  virtual void Cancel() = 0;
};

// A call with any number of answers, which come one by one as they are asked for. Nothing more is taken from the service
// than that: a service that waits for its client waits for ours.
class GrpcStream : public GrpcCall {
 public:
  // Asks for the next message: `on_message` or `on_done` follows. Call it once at the start and once after each message; it may be
  // called within `on_message`.
  virtual void Next() = 0;
};

class GrpcCalls {
 public:
  using OnDone = std::function<void(GrpcAnswer answer)>;
  using OnMessage = std::function<void(grpc::ByteBuffer message)>;

  explicit GrpcCalls(std::shared_ptr<grpc::Channel> channel);
  // Like Close().
  ~GrpcCalls();
  GrpcCalls(const GrpcCalls&) = delete;
  GrpcCalls& operator=(const GrpcCalls&) = delete;

  // `method` as in "/package.Service/Method". `done` is called once; at once, with UNAVAILABLE, after Close(). It must not throw.
  std::shared_ptr<GrpcCall> Unary(const std::string& method, const grpc::ByteBuffer& request,
                                  const CallInfo& info, OnDone done);

  // The functions are called one at a time. `done` is called once, last, and not before the returned stream's Next() or
  // Cancel() was called.
  std::shared_ptr<GrpcStream> ServerStream(const std::string& method,
                                           const grpc::ByteBuffer& request, const CallInfo& info,
                                           OnMessage on_message, OnDone done);

  // Cancels what runs, waits until it has ended, and refuses what comes later. A call's `done` has returned by then.
  void Close();

 private:
  class UnaryCall;
  class StreamCall;

  // False when it is closed. Otherwise the call is cancelled by Close() until Leave().
  bool Enter(const std::shared_ptr<GrpcCall>& call);
  void Leave(const std::shared_ptr<GrpcCall>& call);
  // What Close() cancelled is not the caller's doing.
  grpc::Status StatusOf(grpc::Status status);

  grpc::GenericStub stub_;  // thread-safe by itself
  Mutex mutex_;
  CondVar changed_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::set<std::shared_ptr<GrpcCall>> running_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sru::server::rest

#endif  // SRU_SERVER_REST_GRPC_CALL_H_
