#include "server/rest/grpc_call.h"

#include "absl/time/clock.h"
#include "grpcpp/client_context.h"
#include "grpcpp/support/client_callback.h"

namespace sru::server::rest {
namespace {

constexpr char kRequestIdHeader[] = "x-request-id";

void Prepare(const CallInfo& info, grpc::ClientContext* context) {
  if (info.timeout != absl::InfiniteDuration()) {
    context->set_deadline(absl::ToChronoTime(absl::Now() + info.timeout));
  }
  for (const auto& [name, value] : info.metadata) context->AddMetadata(name, value);
}

// With an error it comes last, otherwise first.
std::string RequestIdOf(const grpc::ClientContext& context) {
  for (const auto* metadata :
       {&context.GetServerInitialMetadata(), &context.GetServerTrailingMetadata()}) {
    const auto found = metadata->find(kRequestIdHeader);
    if (found != metadata->end()) return {found->second.data(), found->second.size()};
  }
  return "";
}

// The context of a call. It keeps the channel alive and must be gone before Close() returns: gRPC's threads, which run the ends of
// calls, must not be the ones that destroy a channel, because they would wait for themselves.
class CallContext {
 public:
  // Null once it is dropped.
  std::shared_ptr<grpc::ClientContext> get() const {
    MutexLock lock(&mutex_);
    return context_;
  }
  void Drop() {
    std::shared_ptr<grpc::ClientContext> context;
    MutexLock lock(&mutex_);
    context.swap(context_);
  }

 private:
  mutable Mutex mutex_;
  std::shared_ptr<grpc::ClientContext> context_ ABSL_GUARDED_BY(mutex_) =
      std::make_shared<grpc::ClientContext>();
};

grpc::Status ClosedStatus() {
  return {grpc::StatusCode::UNAVAILABLE, "the server is shutting down"};
}

}  // namespace

class GrpcCalls::UnaryCall final : public GrpcCall, public std::enable_shared_from_this<UnaryCall> {
 public:
  UnaryCall(GrpcCalls* calls, const grpc::ByteBuffer& request, const CallInfo& info, OnDone done)
      : calls_(*calls), request_(request), done_(std::move(done)) {
    Prepare(info, context_.get().get());
  }

  void Cancel() override {
    if (const auto context = context_.get()) context->TryCancel();
  }

  // For a call that is not started.
  void Forget() { done_ = nullptr; }

  void Start(const std::string& method) {
    calls_.stub_.UnaryCall(context_.get().get(), method, grpc::StubOptions(), &request_,
                           &answer_.message,
                           [self = shared_from_this()](grpc::Status status) mutable {
                             const std::shared_ptr<UnaryCall> call = std::move(self);
                             call->Finish(std::move(status));
                           });
  }

 private:
  void Finish(grpc::Status status) {
    answer_.status = calls_.StatusOf(std::move(status));
    answer_.request_id = RequestIdOf(*context_.get());
    request_.Clear();
    // Moved away, so that what it holds is gone before Close() may return.
    std::exchange(done_, nullptr)(std::move(answer_));
    context_.Drop();
    calls_.Leave(shared_from_this());
  }

  GrpcCalls& calls_;
  CallContext context_;
  grpc::ByteBuffer request_;
  GrpcAnswer answer_;
  OnDone done_;
};

// gRPC's generic stub has no callback form for calls with one request and several answers; on the wire, a call in both
// directions that sends one message is the same.
class GrpcCalls::StreamCall final
    : public GrpcStream,
      public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
      public std::enable_shared_from_this<StreamCall> {
 public:
  StreamCall(GrpcCalls* calls, const grpc::ByteBuffer& request, const CallInfo& info,
             OnMessage on_message, GrpcCalls::OnDone done)
      : calls_(*calls),
        request_(request),
        on_message_(std::move(on_message)),
        done_(std::move(done)) {
    Prepare(info, context_.get().get());
  }

  void Start(const std::string& method) {
    self_ = shared_from_this();
    calls_.stub_.PrepareBidiStreamingCall(context_.get().get(), method, grpc::StubOptions(), this);
    StartWriteLast(&request_, grpc::WriteOptions());
    AddHold();  // until a read has failed: reads are started from outside
    StartCall();
    bool cancelled = false;
    {
      MutexLock lock(&mutex_);
      reading_ = false;
      cancelled = cancelled_;
    }
    if (cancelled) Read();
  }

  // For a call that is not started: what holds the call may be held by its functions.
  void Forget() {
    on_message_ = nullptr;
    done_ = nullptr;
  }

  void Next() override { Read(); }

  void Cancel() override {
    if (const auto context = context_.get()) context->TryCancel();
    {
      MutexLock lock(&mutex_);
      cancelled_ = true;
    }
    // Without a read, nobody would learn that the call has ended.
    Read();
  }

  void OnReadDone(bool ok) override {
    bool deliver = false;
    grpc::ByteBuffer message;
    {
      MutexLock lock(&mutex_);
      reading_ = false;
      ended_ = !ok;
      deliver = ok && !cancelled_;
      // As long as no other thread may start the next read, which writes to it.
      message.Swap(&message_);
    }
    if (!ok) {
      RemoveHold();
    } else if (deliver) {
      on_message_(message);
      // The handler may have cancelled the call, or somebody else meanwhile: then a read is under way.
    } else {
      Read();
    }
  }

  void OnDone(const grpc::Status& status) override {
    GrpcAnswer answer;
    answer.status = calls_.StatusOf(status);
    answer.request_id = RequestIdOf(*context_.get());
    on_message_ = nullptr;
    std::exchange(done_, nullptr)(std::move(answer));
    context_.Drop();
    calls_.Leave(shared_from_this());
    self_.reset();  // may destroy this
  }

 private:
  void Read() {
    {
      MutexLock lock(&mutex_);
      if (reading_ || ended_) return;
      reading_ = true;
    }
    StartRead(&message_);
  }

  // Set before the call starts, then of its reactions; the context is thread-safe by itself.
  GrpcCalls& calls_;
  std::shared_ptr<StreamCall> self_;
  CallContext context_;
  grpc::ByteBuffer request_;
  grpc::ByteBuffer message_;  // of the read that is under way
  OnMessage on_message_;
  GrpcCalls::OnDone done_;
  Mutex mutex_;
  bool reading_ ABSL_GUARDED_BY(mutex_) = true;  // or not yet started
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
};

GrpcCalls::GrpcCalls(std::shared_ptr<grpc::Channel> channel) : stub_(std::move(channel)) {}

GrpcCalls::~GrpcCalls() { Close(); }

bool GrpcCalls::Enter(const std::shared_ptr<GrpcCall>& call) {
  MutexLock lock(&mutex_);
  if (closed_) return false;
  running_.insert(call);
  return true;
}

grpc::Status GrpcCalls::StatusOf(grpc::Status status) {
  if (status.error_code() != grpc::StatusCode::CANCELLED) return status;
  MutexLock lock(&mutex_);
  return closed_ ? ClosedStatus() : status;
}

void GrpcCalls::Leave(const std::shared_ptr<GrpcCall>& call) {
  MutexLock lock(&mutex_);
  running_.erase(call);
  if (closed_) changed_.SignalAll();
}

std::shared_ptr<GrpcCall> GrpcCalls::Unary(const std::string& method,
                                           const grpc::ByteBuffer& request, const CallInfo& info,
                                           OnDone done) {
  auto call = std::make_shared<UnaryCall>(this, request, info, done);
  if (!Enter(call)) {
    call->Forget();
    done({ClosedStatus(), {}, ""});
    return call;
  }
  call->Start(method);
  return call;
}

std::shared_ptr<GrpcStream> GrpcCalls::ServerStream(const std::string& method,
                                                    const grpc::ByteBuffer& request,
                                                    const CallInfo& info, OnMessage on_message,
                                                    OnDone done) {
  auto call = std::make_shared<StreamCall>(this, request, info, std::move(on_message), done);
  if (!Enter(call)) {
    call->Forget();
    done({ClosedStatus(), {}, ""});
    return call;
  }
  call->Start(method);
  return call;
}

void GrpcCalls::Close() {
  std::set<std::shared_ptr<GrpcCall>> running;
  {
    MutexLock lock(&mutex_);
    closed_ = true;
    running = running_;
  }
  for (const std::shared_ptr<GrpcCall>& call : running) call->Cancel();
  running.clear();
  MutexLock lock(&mutex_);
  while (!running_.empty()) changed_.Wait(&mutex_);
}

}  // namespace sru::server::rest
