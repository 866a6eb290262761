// FunctionCall: a call over HTTP whose parts are a test's functions.
#ifndef SRU_TESTS_TESTING_FUNCTION_CALL_H_
#define SRU_TESTS_TESTING_FUNCTION_CALL_H_

#include <functional>
#include <memory>
#include <utility>

#include "server/http/http_call.h"

namespace sru::testing {

class FunctionCall final : public server::http::HttpCall {
 public:
  // Each but `handle` may be null.
  struct Functions {
    std::function<Verdict(const server::http::PageRequest& request)> check;
    std::function<bool()> is_accepted;
    std::function<void(const std::shared_ptr<server::http::HttpCall>& call)> handle;
    std::function<void()> on_gone;
  };

  // `functions` outlives the call.
  FunctionCall(server::calls::HttpExchange* exchange, server::http::PageRequest request,
               const Functions& functions)
      : HttpCall(exchange, std::move(request)), functions_(functions) {}

  bool IsAccepted() const override {
    return functions_.is_accepted == nullptr || functions_.is_accepted();
  }

 private:
  Verdict CheckHead() override {
    return functions_.check == nullptr ? Verdict() : functions_.check(request());
  }
  void OnRequest(const std::shared_ptr<HttpCall>& self) override { functions_.handle(self); }
  void OnGone() override {
    if (functions_.on_gone != nullptr) functions_.on_gone();
  }

  const Functions& functions_;
};

}  // namespace sru::testing

#endif  // SRU_TESTS_TESTING_FUNCTION_CALL_H_
