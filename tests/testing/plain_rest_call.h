// PlainRestCall: a request for the handler of a route, without a port. It may do everything, makes
// no calls, and keeps its answer.
#ifndef SRU_TESTS_TESTING_PLAIN_REST_CALL_H_
#define SRU_TESTS_TESTING_PLAIN_REST_CALL_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/cord.h"
#include "gtest/gtest.h"
#include "server/rest/route.h"

namespace sru::testing {

class PlainRestCall : public server::rest::RestCall {
 public:
  explicit PlainRestCall(server::http::PageRequest request = {}, std::string body = "")
      : request_(std::move(request)), body_(std::move(body)) {}

  const server::http::PageRequest& request() const override { return request_; }
  const std::string& parameter(const std::string& /*name*/) const override { return none_; }
  std::string& body() override { return body_; }
  server::rest::MemoryHold& memory() override { return memory_; }
  const server::calls::RequestLimits& limits() const override { return limits_; }
  absl::Status Authenticate(absl::string_view /*token*/) override { return absl::OkStatus(); }
  void RunAside(std::function<void()> work) override { work(); }
  std::shared_ptr<server::calls::LocalCall> Unary(
      const std::string& method, absl::Cord /*request*/,
      server::calls::LocalCalls::OnDone /*done*/) override {
    ADD_FAILURE() << "calls " << method;
    return nullptr;
  }
  std::shared_ptr<server::calls::LocalStream> ServerStream(
      const std::string& method, absl::Cord /*request*/,
      server::calls::LocalCalls::OnMessage /*on_message*/,
      server::calls::LocalCalls::OnDone /*done*/) override {
    ADD_FAILURE() << "calls " << method;
    return nullptr;
  }
  void Reply(server::http::PageResponse given) override { response = std::move(given); }
  void Fail(const server::rest::RestError& error) override {
    Reply(server::rest::ErrorResponse(errors, error));
  }
  std::unique_ptr<server::http::PageStream> ReplyInParts(
      server::http::PageResponse /*head*/) override {
    ADD_FAILURE() << "answers in parts";
    return nullptr;
  }

  server::http::PageResponse response;
  server::rest::ErrorForm errors = server::rest::ErrorForm::kV1;

 private:
  const server::http::PageRequest request_;
  std::string body_;
  const std::string none_;
  server::rest::MemoryHold memory_{nullptr};
  const server::calls::RequestLimits limits_;
};

}  // namespace sru::testing

#endif  // SRU_TESTS_TESTING_PLAIN_REST_CALL_H_
