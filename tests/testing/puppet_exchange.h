// PuppetExchange: a transport that does only what a test tells it to: bring this message, take that
// one, cancel. It has no threads and no wire.
//
//   PuppetExchange exchange;
//   exchange.Start(row);
//   exchange.Bring(request);
//   ... = exchange.Take();      // the message that the call has written, which has then left
//   ... = exchange.end();       // once it has ended
#ifndef SRU_TESTS_TESTING_PUPPET_EXCHANGE_H_
#define SRU_TESTS_TESTING_PUPPET_EXCHANGE_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/time/time.h"
#include "google/protobuf/message_lite.h"
#include "server/calls/exchange.h"
#include "server/calls/message_cord.h"
#include "server/calls/method.h"

namespace sru::testing {

// Not thread-safe. Cancels a call that has not ended when it is destroyed.
class PuppetExchange final : public server::calls::Exchange {
 public:
  PuppetExchange() = default;
  PuppetExchange(const PuppetExchange&) = delete;
  PuppetExchange& operator=(const PuppetExchange&) = delete;
  ~PuppetExchange() {
    if (handler_ == nullptr) return;
    if (!end_.has_value()) Cancel();
    handler_->OnDone();
  }

  // The call finds these.
  server::calls::Metadata headers;
  absl::Duration timeout = absl::InfiniteDuration();
  int expansion = 0;
  std::function<void()> on_read = [] {};
  std::shared_ptr<server::callers::Caller> from;

  // The test's side.
  void Start(const server::calls::Method& row) {
    method_ = row.path();
    handler_ = row.start(this);
  }
  void Bring(const google::protobuf::MessageLite& message) {
    handler_->OnMessage(server::calls::ToCord(message));
  }
  // The caller sends no more.
  void BringEnd() { handler_->OnMessage(std::nullopt); }
  // Empty if there is none.
  std::optional<absl::Cord> Take() {
    std::optional<absl::Cord> message = std::exchange(message_, std::nullopt);
    if (message.has_value() && std::exchange(is_writing_, false)) handler_->OnWritten(true);
    return message;
  }
  void Cancel() {
    cancelled_ = true;
    handler_->OnCancel();
    if (std::exchange(is_writing_, false)) handler_->OnWritten(false);
  }
  int reads() const { return reads_; }
  const std::optional<server::calls::CallEnd>& end() const { return end_; }

  // The call's side.
  absl::string_view FindHeader(absl::string_view name) const override {
    for (const auto& [header, value] : headers) {
      if (header == name) return value;
    }
    return {};
  }
  std::string peer() const override { return "ipv4:10.0.0.1:4711"; }
  const std::shared_ptr<server::callers::Caller>& caller() const override { return from; }
  absl::string_view method() const override { return method_; }
  absl::Duration time_left() const override { return timeout; }
  bool is_cancelled() const override { return cancelled_; }
  int answer_expansion() const override { return expansion; }
  void Read() override {
    ++reads_;
    on_read();
  }
  void Write(absl::Cord message) override {
    message_ = std::move(message);
    is_writing_ = true;
  }
  void Finish(server::calls::CallEnd end) override { end_ = std::move(end); }
  void WriteAndFinish(absl::Cord message, server::calls::CallEnd end) override {
    message_ = std::move(message);
    end_ = std::move(end);
  }

 private:
  std::string method_;
  server::calls::CallHandler* handler_ = nullptr;
  bool cancelled_ = false;
  int reads_ = 0;
  std::optional<absl::Cord> message_;
  bool is_writing_ = false;  // message_ is not the last one
  std::optional<server::calls::CallEnd> end_;
};

}  // namespace sru::testing

#endif  // SRU_TESTS_TESTING_PUPPET_EXCHANGE_H_
