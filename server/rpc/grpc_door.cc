#include "server/rpc/grpc_door.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "grpc/support/time.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/slice.h"
#include "server/batching/queue/answer_group.h"

namespace sru::server::rpc {
namespace {

// Messages up to this size are copied, which is cheaper than to share them.
constexpr size_t kCopiedBytes = 256;

// Messages from this size on are noted one by one, smaller ones at one call in 16, sixteenfold: to find a connection takes as long as a tenth
// of a small call.
constexpr size_t kLargeBytes = 4096;
constexpr unsigned kSampling = 16;
// Frames, a call's own headers, TLS records.
constexpr int64_t kFrameBytes = 512;
// Metadata that a client repeats is sent as a few bytes, so it must not earn a call much credit.
constexpr int64_t kMostMetadataBytes = 2048;

absl::Cord ToCord(const grpc::ByteBuffer& bytes) {
  std::vector<grpc::Slice> slices(1);
  if (!bytes.TrySingleSlice(&slices[0]).ok() && !bytes.Dump(&slices).ok()) return {};
  absl::Cord cord;
  for (grpc::Slice& slice : slices) {
    const absl::string_view view(reinterpret_cast<const char*>(slice.begin()), slice.size());
    if (view.size() <= kCopiedBytes) {
      cord.Append(view);
    } else {
      cord.Append(absl::MakeCordFromExternal(view, [slice = std::move(slice)] {}));
    }
  }
  return cord;
}

grpc::ByteBuffer ToByteBuffer(const absl::Cord& message) {
  std::vector<grpc::Slice> slices;
  for (const absl::string_view chunk : message.Chunks()) {
    if (chunk.size() <= kCopiedBytes) {
      slices.emplace_back(chunk.data(), chunk.size());
      continue;
    }
    // The slice shares the message.
    slices.emplace_back(
        const_cast<char*>(chunk.data()), chunk.size(),
        [](void* shared) { delete static_cast<absl::Cord*>(shared); }, new absl::Cord(message));
  }
  if (slices.empty()) slices.emplace_back();
  return {slices.data(), slices.size()};
}

}  // namespace

// Lifetime: gRPC calls OnDone() when no reaction runs any more. UnsentAnswers may need the exchange a moment longer, so it counts who refers
// to it.
class GrpcDoor::GrpcExchange final : public calls::Exchange, public grpc::ServerGenericBidiReactor {
 private:
  using Reactor = grpc::ServerGenericBidiReactor;

 public:
  // A row's calls with one request begin when that has come, those of streams at once.
  GrpcExchange(const Options& options, const calls::Method* row,
               grpc::GenericCallbackServerContext* call)
      : options_(options), row_(row), call_(*call) {
    if (row != nullptr && row->kind != calls::MethodKind::kBidirectional) {
      StartRead(&incoming_);
    } else {
      handler_ = row == nullptr ? options.unknown(this) : row->start(this);
      handler_state_ = kHasHandler;
    }
  }

  // CallOrigin and Exchange:
  absl::string_view FindHeader(absl::string_view name) const override {
    const auto& metadata = call_.client_metadata();
    const auto found = metadata.find(grpc::string_ref(name.data(), name.size()));
    if (found == metadata.end()) return {};
    return {found->second.data(), found->second.size()};
  }
  std::string peer() const override { return call_.peer(); }
  absl::string_view method() const override { return call_.method(); }
  // The time that is left is the same by every clock. (call.deadline() would be a date, and wrong once the system's clock is set.)
  absl::Duration time_left() const override {
    const gpr_timespec deadline = call_.raw_deadline();
    if (gpr_time_cmp(deadline, gpr_inf_future(deadline.clock_type)) == 0) {
      return absl::InfiniteDuration();
    }
    const gpr_timespec left = gpr_time_sub(deadline, gpr_now(deadline.clock_type));
    return absl::Seconds(left.tv_sec) + absl::Nanoseconds(left.tv_nsec);
  }
  bool is_cancelled() const override { return call_.IsCancelled(); }

  void AddHeader(std::string name, std::string value) override {
    call_.AddInitialMetadata(name, value);
  }
  void Read() override { StartRead(&incoming_); }
  void Write(absl::Cord message) override {
    outgoing_ = ToByteBuffer(message);
    HoldSocket();
    Ref();
    options_.unsent->Add(&unsent_message_);
    StartWrite(&outgoing_);
  }
  void Finish(calls::CallEnd end) override {
    grpc::Status status = Ending(end);
    Reactor::Finish(std::move(status));
  }
  void WriteAndFinish(absl::Cord message, calls::CallEnd end) override {
    outgoing_ = ToByteBuffer(message);
    grpc::Status status = Ending(end);
    StartWriteAndFinish(&outgoing_, grpc::WriteOptions(), std::move(status));
  }

 private:
  enum HandlerState { kHasHandler = 1, kCancelled = 2 };

  class Unsent final : public UnsentAnswer {
   public:
    explicit Unsent(GrpcExchange* exchange) : exchange_(*exchange) {}
    void Abandon() override { exchange_.Abandon(); }
    void Release() override { exchange_.Unref(); }

   private:
    GrpcExchange& exchange_;
  };

  void Ref() { references_.fetch_add(1, std::memory_order_relaxed); }
  void Unref() {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    if (handler_ != nullptr) handler_->OnDone();
    delete this;
  }

  // The socket of the call's connection; -1 if it is not known.
  int Socket() const {
    return options_.listener == nullptr ? -1 : options_.listener->FindConnection(call_.peer());
  }
  void HoldSocket() const {
    batching::AnswerGroup* const group = batching::AnswerGroup::Current();
    if (group != nullptr) group->Hold(Socket());
  }

  grpc::Status Ending(const calls::CallEnd& end) {
    for (const auto& [name, value] : end.headers) call_.AddInitialMetadata(name, value);
    for (const auto& [name, value] : end.trailers) call_.AddTrailingMetadata(name, value);
    HoldSocket();
    if (absl::IsResourceExhausted(end.status) && options_.read_pause != nullptr) {
      options_.read_pause->Start(Socket());
    }
    Ref();
    options_.unsent->Add(&unsent_end_);
    if (end.status.ok()) return grpc::Status::OK;
    return {static_cast<grpc::StatusCode>(end.status.code()),  // the numbers are the same
            std::string(end.status.message()), end.details};
  }

  // Tells the guard of connections that a message has arrived whole.
  void NoteDelivered() const {
    if (options_.listener == nullptr) return;
    const size_t bytes = incoming_.Length();
    int64_t weight = 1;
    if (bytes < kLargeBytes) {
      static thread_local unsigned calls = 0;
      if (++calls % kSampling != 0) return;
      weight = kSampling;
    }
    size_t headers = 0;
    for (const auto& [name, value] : call_.client_metadata()) headers += name.size() + value.size();
    options_.listener->NoteDelivered(
        call_.peer(), weight * (static_cast<int64_t>(bytes) + kFrameBytes +
                                std::min(static_cast<int64_t>(headers), kMostMetadataBytes)));
  }

  // The reactions: noexcept, since gRPC would swallow an exception, and the caller would wait for ever.
  void OnReadDone(bool ok) noexcept override {
    std::optional<absl::Cord> message;
    if (ok) {
      NoteDelivered();
      message = ToCord(incoming_);
      incoming_.Clear();
    }
    if (handler_ != nullptr) return handler_->OnMessage(std::move(message));
    handler_ = row_->start(this);
    handler_->OnMessage(std::move(message));
    if ((handler_state_.fetch_or(kHasHandler) & kCancelled) != 0) handler_->OnCancel();
  }
  void OnWriteDone(bool ok) noexcept override {
    outgoing_.Clear();
    if (options_.unsent->Remove(&unsent_message_)) Unref();
    handler_->OnWritten(ok && !abandoned_.load());
  }
  void OnCancel() noexcept override {
    if ((handler_state_.fetch_or(kCancelled) & kHasHandler) != 0) handler_->OnCancel();
  }
  void OnDone() override {
    if (options_.unsent->Remove(&unsent_end_)) Unref();
    Unref();
  }
  // OnCancel() and OnDone() never block, so gRPC may run them where it is instead of handing each
  // to a thread of its executor. gRPC's own default reactor does the same.
  bool InternalInlineable() override { return true; }

  void Abandon() {
    abandoned_ = true;
    options_.access_log->OnAnswerNotTaken(row_ == nullptr ? call_.method() : row_->name,
                                          call_.peer(), options_.send_timeout);
    if (options_.listener == nullptr || !options_.listener->Close(call_.peer())) call_.TryCancel();
  }

  const Options& options_;
  const calls::Method* const row_;  // null: there is none
  grpc::GenericCallbackServerContext& call_;
  calls::CallHandler* handler_ = nullptr;  // null until the first message
  std::atomic<int> handler_state_{0};
  grpc::ByteBuffer incoming_;
  grpc::ByteBuffer outgoing_;
  std::atomic<int> references_{1};  // gRPC's, and one for each that UnsentAnswers knows of
  std::atomic<bool> abandoned_{false};
  Unsent unsent_message_{this};
  Unsent unsent_end_{this};
};

grpc::ServerGenericBidiReactor* GrpcDoor::CreateReactor(grpc::GenericCallbackServerContext* call) {
  return new GrpcExchange(options_, options_.methods->Find(call->method()), call);
}

}  // namespace sru::server::rpc
