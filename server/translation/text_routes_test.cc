#include "server/translation/text_routes.h"

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/testing/plain_rest_call.h"

namespace sru::server::translation {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

class CountingCall final : public sru::testing::PlainRestCall {
 public:
  using PlainRestCall::PlainRestCall;
  void RunAside(std::function<void()> work) override {
    ++aside;
    work();
  }
  int aside = 0;
};

class TextRoutesTest : public ::testing::Test {
 protected:
  TextRoutesTest() {
    for (const rest::RouteGroup& group : TextRoutes(&registry_, {}, &in_flight_)) {
      for (const rest::Route& route : group.routes) table_.Add(route);
    }
  }

  // Without a model this is the answer that DeepL's API gives.
  std::shared_ptr<CountingCall> Translate(const json& body) {
    const rest::RouteTable::Match match = table_.Find("POST", "/v2/translate");
    http::PageRequest request;
    request.headers["content-type"] = rest::kJsonContentType;
    const auto call = std::make_shared<CountingCall>(std::move(request), body.dump());
    call->errors = match.errors;
    match.route->handle(call);
    EXPECT_EQ(call->response.status, 400);
    EXPECT_EQ(in_flight_.count(), 0);
    return call;
  }

  const lifecycle::ModelRegistry registry_;
  calls::InFlight in_flight_;
  rest::RouteTable table_;
};

// A million texts, or long ones, would hold up a loop.
TEST_F(TextRoutesTest, ManyTextsAreTranslatedAside) {
  const auto aside = [&](const std::vector<std::string>& texts) {
    return Translate({{"text", texts}, {"target_lang", "de"}})->aside;
  };
  EXPECT_EQ(aside({"a"}), 0);
  EXPECT_EQ(aside(std::vector<std::string>(8, "a")), 0);
  EXPECT_EQ(aside({std::string(513, 'a')}), 1);
  EXPECT_EQ(aside(std::vector<std::string>(9, "a")), 1);
}

TEST_F(TextRoutesTest, TagsOfTextsAreFew) {
  const auto message = [&](const std::string& name, const std::string& tags) {
    const auto call = Translate({{"text", "a"}, {"target_lang", "de"}, {name, tags}});
    return json::parse(call->response.body).at("message").get<std::string>();
  };
  std::string tags = std::string(64, 'a');
  for (int i = 1; i < 1000; ++i) absl::StrAppend(&tags, ",b", i);
  for (const char* const name : {"splitting_tags", "non_splitting_tags", "ignore_tags"}) {
    const std::string error = absl::StrCat(
        "Value for '", name, "' not supported: expected at most 1000 tags of at most 64 bytes.");
    EXPECT_THAT(message(name, tags), HasSubstr("no model translates into 'de'"));
    EXPECT_EQ(message(name, tags + ",c"), error);
    EXPECT_EQ(message(name, std::string(65, 'a')), error);
  }
}

}  // namespace
}  // namespace sru::server::translation
