#include "server/calls/local_calls.h"

#include <atomic>
#include <list>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "base/mutex.h"
#include "server/base/clock.h"

namespace sru::server::calls {
namespace {

absl::Status ClosedStatus() { return absl::UnavailableError("the server is shutting down"); }

}  // namespace

// The calls that have not ended.
class LocalCalls::Running {
 public:
  using Calls = std::list<std::shared_ptr<LocalExchange>>;

  // False when it is closed; otherwise `*place` is for Leave().
  bool Enter(const std::shared_ptr<LocalExchange>& call, Calls::iterator* place) {
    Calls entered = {call};  // made and freed without the lock
    MutexLock lock(&mutex_);
    if (closed_) return false;
    *place = entered.begin();
    calls_.splice(calls_.end(), entered);
    return true;
  }
  void Leave(Calls::iterator place) {
    Calls left;
    MutexLock lock(&mutex_);
    left.splice(left.end(), calls_, place);
    if (closed_) changed_.SignalAll();
  }
  bool closed() const {
    MutexLock lock(&mutex_);
    return closed_;
  }
  // Returns the calls that are left after `grace`.
  Calls Close(absl::Duration grace) {
    {
      MutexLock lock(&mutex_);
      closed_ = true;
    }
    WaitUntil(&mutex_, &changed_, grace,
              [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return calls_.empty(); });
    MutexLock lock(&mutex_);
    return calls_;
  }
  void WaitUntilNone() {
    MutexLock lock(&mutex_);
    while (!calls_.empty()) changed_.Wait(&mutex_);
  }

 private:
  mutable Mutex mutex_;
  CondVar changed_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  Calls calls_ ABSL_GUARDED_BY(mutex_);
};

// One thread at a time is in Pump() and runs what comes next, so that neither the call nor its
// caller is entered twice, and no function calls the other in a circle.
class LocalCalls::LocalExchange final : public Exchange,
                                        public LocalStream,
                                        public std::enable_shared_from_this<LocalExchange> {
 public:
  // Without `on_message`, the call is unary.
  LocalExchange(std::shared_ptr<Running> running, const Method& method, absl::Cord request,
                LocalCallInfo info, OnMessage on_message, OnDone done)
      : running_(std::move(running)),
        method_(method.path()),
        info_(std::move(info)),
        is_unary_(on_message == nullptr),
        on_message_(std::move(on_message)),
        done_(std::move(done)),
        request_(std::move(request)),
        is_wanted_(is_unary_) {}

  Running::Calls::iterator* place() { return &place_; }
  void Start(const Method& method) {
    CallHandler* const handler = method.start(this);
    {
      MutexLock lock(&mutex_);
      handler_ = handler;
    }
    Pump();
  }
  // For a call that is not started.
  void Refuse() {
    on_message_ = nullptr;  // a function often keeps its caller, who keeps this
    std::exchange(done_, nullptr)({{ClosedStatus(), {}, {}}, {}});
  }

  // CallOrigin and Exchange:
  absl::string_view FindHeader(absl::string_view name) const override {
    for (const auto& [header, value] : info_.headers) {
      if (header == name) return value;
    }
    return {};
  }
  std::string peer() const override { return info_.peer; }
  const std::shared_ptr<callers::Caller>& caller() const override { return info_.caller; }
  std::pair<absl::string_view, absl::string_view> http_route() const override {
    return info_.http_route;
  }
  bool goes_on() const override { return info_.goes_on; }
  absl::string_view method() const override { return method_; }
  absl::Duration time_left() const override { return info_.deadline - SteadyNow(); }
  bool is_cancelled() const override { return cancelled_.load(); }
  int answer_expansion() const override { return info_.answer_expansion; }
  void Read() override {}  // the methods that are called have one request
  void Write(absl::Cord message) override {
    const Self self = shared_from_this();
    {
      MutexLock lock(&mutex_);
      message_ = std::move(message);
    }
    Pump();
  }
  void Finish(CallEnd end) override {
    const Self self = shared_from_this();
    {
      MutexLock lock(&mutex_);
      end_ = std::move(end);
    }
    Pump();
  }
  void WriteAndFinish(absl::Cord message, CallEnd end) override {
    const Self self = shared_from_this();
    {
      MutexLock lock(&mutex_);
      message_ = std::move(message);
      end_ = std::move(end);
    }
    Pump();
  }

  // LocalStream:
  void Next() override {
    const Self self = shared_from_this();
    {
      MutexLock lock(&mutex_);
      is_wanted_ = true;
    }
    Pump();
  }
  void Cancel() override {
    if (cancelled_.exchange(true)) return;
    const Self self = shared_from_this();
    {
      MutexLock lock(&mutex_);
      tells_cancel_ = true;
    }
    Pump();
  }

 private:
  // Held by each function that pumps: another thread may pump the end of the call meanwhile.
  using Self = std::shared_ptr<LocalExchange>;

  enum class Step { kNone, kCancel, kMessage, kAnswer, kDrop, kEnd };

  Step NextStep() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (handler_ == nullptr) return Step::kNone;
    if (request_.has_value() && !end_.has_value()) return Step::kMessage;
    if (std::exchange(tells_cancel_, false) && !end_.has_value()) return Step::kCancel;
    const bool cancelled = cancelled_.load();
    if (message_.has_value() && (is_wanted_ || cancelled)) {
      return cancelled && !is_unary_ ? Step::kDrop : Step::kAnswer;
    }
    const bool ends = end_.has_value() && !message_.has_value() && (is_wanted_ || cancelled);
    return ends ? Step::kEnd : Step::kNone;
  }

  void Pump() {
    while (true) {
      Step step = Step::kNone;
      std::optional<absl::Cord> message;
      bool is_last = false;
      {
        MutexLock lock(&mutex_);
        if (pumping_) return;
        step = NextStep();
        if (step == Step::kNone) return;
        pumping_ = true;
        if (step == Step::kMessage) message.swap(request_);
        if (step == Step::kAnswer || step == Step::kDrop) {
          message.swap(message_);
          is_last = end_.has_value();
          if (!is_unary_) is_wanted_ = false;
        }
      }
      if (step == Step::kEnd) return End();
      Run(step, std::move(message), is_last);
      MutexLock lock(&mutex_);
      pumping_ = false;
    }
  }

  void Run(Step step, std::optional<absl::Cord> message, bool is_last) {
    switch (step) {
      case Step::kCancel:
        return handler_->OnCancel();
      case Step::kMessage:
        return handler_->OnMessage(std::move(message));
      case Step::kAnswer:
        if (is_unary_) {
          answer_ = *std::move(message);
        } else {
          on_message_(*std::move(message));
        }
        break;
      case Step::kDrop:
        dropped_ = true;
        break;
      case Step::kNone:
      case Step::kEnd:
        break;
    }
    if (!is_last) handler_->OnWritten(step == Step::kAnswer);
  }

  // Nobody pumps any more.
  void End() {
    const Self self = shared_from_this();
    handler_->OnDone();
    LocalAnswer answer;
    {
      MutexLock lock(&mutex_);
      answer.end = *std::move(end_);
    }
    if (dropped_ && answer.end.status.ok()) {
      answer.end.status = absl::CancelledError("the caller cancelled the call");
    }
    // It was not the caller who cancelled it.
    if (absl::IsCancelled(answer.end.status)) {
      if (running_->closed()) {
        answer.end.status = ClosedStatus();
      } else if (info_.deadline <= SteadyNow()) {
        answer.end.status = absl::DeadlineExceededError("the deadline passed");
      }
    }
    answer.message = std::move(answer_);
    on_message_ = nullptr;
    // Moved away, so that what it holds is gone before Close() may return.
    std::exchange(done_, nullptr)(std::move(answer));
    running_->Leave(place_);
  }

  const std::shared_ptr<Running> running_;
  Running::Calls::iterator place_;  // there, constant once the call has begun
  const std::string method_;
  const LocalCallInfo info_;
  const bool is_unary_;
  std::atomic<bool> cancelled_{false};

  // Used by the thread that pumps.
  OnMessage on_message_;
  OnDone done_;
  absl::Cord answer_;
  bool dropped_ = false;  // a message that the caller does not get

  Mutex mutex_;
  CallHandler* handler_ = nullptr;  // set once, under mutex_
  bool pumping_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<absl::Cord> request_ ABSL_GUARDED_BY(mutex_);  // until the call has it
  std::optional<absl::Cord> message_ ABSL_GUARDED_BY(mutex_);  // that the caller has yet to take
  bool is_wanted_ ABSL_GUARDED_BY(mutex_);                     // the caller waits
  bool tells_cancel_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<CallEnd> end_ ABSL_GUARDED_BY(mutex_);
};

LocalCalls::LocalCalls() : running_(std::make_shared<Running>()) {}

LocalCalls::~LocalCalls() = default;

std::shared_ptr<LocalStream> LocalCalls::Start(const Method& method, absl::Cord request,
                                               LocalCallInfo info, OnMessage on_message,
                                               OnDone done) {
  auto call = std::make_shared<LocalExchange>(running_, method, std::move(request), std::move(info),
                                              std::move(on_message), std::move(done));
  if (!running_->Enter(call, call->place())) {
    call->Refuse();
    return call;
  }
  try {
    call->Start(method);
  } catch (...) {  // there is no memory for a call
    running_->Leave(*call->place());
    throw;
  }
  return call;
}

std::shared_ptr<LocalCall> LocalCalls::Unary(const Method& method, absl::Cord request,
                                             LocalCallInfo info, OnDone done) {
  return Start(method, std::move(request), std::move(info), nullptr, std::move(done));
}

std::shared_ptr<LocalStream> LocalCalls::ServerStream(const Method& method, absl::Cord request,
                                                      LocalCallInfo info, OnMessage on_message,
                                                      OnDone done) {
  return Start(method, std::move(request), std::move(info), std::move(on_message), std::move(done));
}

void LocalCalls::Close(absl::Duration grace) {
  for (const std::shared_ptr<LocalExchange>& call : running_->Close(grace)) call->Cancel();
  running_->WaitUntilNone();
}

}  // namespace sru::server::calls
