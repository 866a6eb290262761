// Rows of a method table whose calls a function of the test answers, each on a thread of its own,
// so that it may wait.
//
//   calls::MethodTable methods({FakeUnary<v1::ClassifyRequest, v1::ClassifyResponse>(
//       "sru.v1.InferenceService", "Classify",
//       [](calls::Exchange& exchange, const v1::ClassifyRequest& request,
//          v1::ClassifyResponse* response) {
//         ...
//         return FakeEnd(absl::OkStatus());
//       })});
#ifndef SRU_TESTS_TESTING_FAKE_METHODS_H_
#define SRU_TESTS_TESTING_FAKE_METHODS_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/cord.h"
#include "base/mutex.h"
#include "server/calls/exchange.h"
#include "server/calls/message_cord.h"
#include "server/calls/method.h"

namespace sru::testing {

inline server::calls::CallEnd FakeEnd(absl::Status status) { return {std::move(status), {}, {}}; }

namespace fake_internal {

using server::calls::CallEnd;
using server::calls::CallHandler;
using server::calls::Exchange;
using server::calls::Method;
using server::calls::MethodKind;

// False once the caller is gone.
using Write = std::function<bool(absl::Cord message)>;
// Leaves a last message in `answer`, if the call is unary.
using Run = std::function<CallEnd(Exchange& exchange, const absl::Cord& request, const Write& write,
                                  std::optional<absl::Cord>* answer)>;

// Gone when its thread and the transport have finished with it.
class FakeCall final : public CallHandler, public std::enable_shared_from_this<FakeCall> {
 public:
  FakeCall(Run run, Exchange* exchange) : run_(std::move(run)), exchange_(*exchange) {}

  CallHandler* Start() {
    self_ = shared_from_this();
    return this;
  }
  void OnMessage(std::optional<absl::Cord> message) override {
    std::thread([self = shared_from_this(), request = message.value_or(absl::Cord())] {
      std::optional<absl::Cord> answer;
      CallEnd end = self->run_(
          self->exchange_, request,
          [&self](absl::Cord written) { return self->Send(std::move(written)); }, &answer);
      if (answer.has_value() && end.status.ok()) {
        self->exchange_.WriteAndFinish(*std::move(answer), std::move(end));
      } else {
        self->exchange_.Finish(std::move(end));
      }
    }).detach();
  }
  void OnWritten(bool ok) override {
    MutexLock lock(&mutex_);
    written_ = ok;
    changed_.SignalAll();
  }
  void OnDone() override { self_.reset(); }

 private:
  bool Send(absl::Cord message) {
    {
      MutexLock lock(&mutex_);
      written_.reset();
    }
    exchange_.Write(std::move(message));
    MutexLock lock(&mutex_);
    while (!written_.has_value()) changed_.Wait(&mutex_);
    return *written_;
  }

  const Run run_;
  Exchange& exchange_;
  std::shared_ptr<FakeCall> self_;
  Mutex mutex_;
  CondVar changed_;
  std::optional<bool> written_ ABSL_GUARDED_BY(mutex_);
};

template <typename Request, typename Response>
Method FakeRow(std::string service, std::string name, MethodKind kind, Run run) {
  Method row;
  row.service = std::move(service);
  row.name = std::move(name);
  row.kind = kind;
  row.request = &Request::default_instance();
  row.response = &Response::default_instance();
  row.start = [run = std::move(run)](Exchange* exchange) {
    return std::make_shared<FakeCall>(run, exchange)->Start();
  };
  return row;
}

}  // namespace fake_internal

// `run` is called as run(exchange, request, &response) and returns the call's end.
template <typename Request, typename Response, typename Run>
server::calls::Method FakeUnary(std::string service, std::string name, Run run) {
  return fake_internal::FakeRow<Request, Response>(
      std::move(service), std::move(name), server::calls::MethodKind::kUnary,
      [run = std::move(run)](auto& exchange, const auto& bytes, const auto& /*write*/,
                             auto* answer) {
        Request request;
        Response response;
        server::calls::ParseCord(bytes, &request);
        server::calls::CallEnd end = run(exchange, request, &response);
        *answer = server::calls::ToCord(response);
        return end;
      });
}

// `run` is called as run(exchange, request, write); write(response) is false once the caller is
// gone.
template <typename Request, typename Response, typename Run>
server::calls::Method FakeStream(std::string service, std::string name, Run run) {
  return fake_internal::FakeRow<Request, Response>(
      std::move(service), std::move(name), server::calls::MethodKind::kServerStream,
      [run = std::move(run)](auto& exchange, const auto& bytes, const auto& write,
                             auto* /*answer*/) {
        Request request;
        server::calls::ParseCord(bytes, &request);
        return run(exchange, request, [&write](const Response& response) {
          return write(server::calls::ToCord(response));
        });
      });
}

}  // namespace sru::testing

#endif  // SRU_TESTS_TESTING_FAKE_METHODS_H_
