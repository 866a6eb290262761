#include "server/http/allowed_origins.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sru::server::http {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

using Origins = std::vector<std::string>;

PageRequest From(const std::string& origin) {
  PageRequest request;
  request.method = "POST";
  if (!origin.empty()) request.headers["origin"] = origin;
  return request;
}

std::vector<std::pair<std::string, std::string>> HeadersFor(const std::string& origin,
                                                            const Origins& origins) {
  PageResponse response;
  AddCorsHeaders(From(origin), origins, &response);
  return response.headers;
}

TEST(AllowedOriginsTest, AListOfOriginsIsTakenAsItIs) {
  const auto parse = [](absl::string_view text) { return *ParseAllowedOrigins("flag", text); };
  EXPECT_THAT(parse(""), IsEmpty());
  EXPECT_THAT(parse("*"), ElementsAre("*"));
  EXPECT_THAT(parse("https://app.example.com,http://localhost:3000,http://[::1]:8000"),
              ElementsAre("https://app.example.com", "http://localhost:3000", "http://[::1]:8000"));
}

TEST(AllowedOriginsTest, ExtensionsOfBrowsersHaveOrigins) {
  const std::string chrome = "chrome-extension://aapbdbdomjkkjkaonfhkkikfgjllcleb";
  const std::string firefox = "moz-extension://7f1d4f3a-8d2e-4b52-9a51-0a6f0d3c2b1e";
  Origins origins = *ParseAllowedOrigins("flag", chrome + "," + firefox);
  EXPECT_THAT(origins, ElementsAre(chrome, firefox));
  EXPECT_TRUE(IsFromAllowedOrigin(From(chrome), origins));
  EXPECT_TRUE(IsFromAllowedOrigin(From(firefox), origins));
  EXPECT_FALSE(IsFromAllowedOrigin(From("moz-extension://another"), origins));
  // An extension has another origin in each Firefox. The answer names the one that asked.
  origins = *ParseAllowedOrigins("flag", "moz-extension://*");
  EXPECT_THAT(HeadersFor(firefox, origins),
              ElementsAre(Pair("Vary", "Origin"), Pair("Access-Control-Allow-Origin", firefox),
                          Pair("Access-Control-Expose-Headers", HasSubstr("X-Request-Id"))));
  for (const std::string& foreign :
       {chrome, firefox + ".evil", firefox + "/", std::string("moz-extension://"),
        std::string("https://a.example")}) {
    EXPECT_FALSE(IsFromAllowedOrigin(From(foreign), origins)) << foreign;
  }
  for (const char* wrong :
       {"chrome-extension://*", "chrome-extension://", "moz-extension://A", "moz-extension://a/",
        "moz-extension://a:80", "moz-extension://**", "safari-web-extension://a"}) {
    EXPECT_FALSE(ParseAllowedOrigins("flag", wrong).ok()) << wrong;
  }
}

TEST(AllowedOriginsTest, WhatNoBrowserSendsIsRefused) {
  for (const char* wrong :
       {"app.example.com", "https://", "https://app.example.com/", "https://app.example.com/path",
        "https://App.example.com", "https://app.example.com:443", "http://app.example.com:80",
        "https://app.example.com:", "https://app.example.com:99999", "https://*.example.com",
        "null", "**", "ftp://app.example.com", "https://a.example, https://b.example",
        "https://a.example,", "https://user@a.example", "https://a.example\r\nx: y"}) {
    const absl::Status status = ParseAllowedOrigins("allow_origins", wrong).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << wrong;
    EXPECT_THAT(std::string(status.message()), HasSubstr("--allow_origins: expected")) << wrong;
  }
}

TEST(AllowedOriginsTest, OnlyPagesOfTheListGetHeaders) {
  const Origins origins = {"https://a.example", "https://b.example:8443"};
  EXPECT_THAT(HeadersFor("https://b.example:8443", origins),
              ElementsAre(Pair("Vary", "Origin"),
                          Pair("Access-Control-Allow-Origin", "https://b.example:8443"),
                          Pair("Access-Control-Expose-Headers", HasSubstr("Grpc-Status, "))));
  // Another scheme, port, host, what a sandboxed page sends, several, and none.
  for (const char* foreign :
       {"http://a.example", "https://a.example:8443", "https://b.example", "https://a.example.evil",
        "null", "*", "https://a.example, https://b.example:8443", ""}) {
    EXPECT_FALSE(IsFromAllowedOrigin(From(foreign), origins)) << foreign;
    EXPECT_THAT(HeadersFor(foreign, origins), ElementsAre(Pair("Vary", "Origin"))) << foreign;
  }
}

TEST(AllowedOriginsTest, AnyOriginIsAnsweredAlike) {
  for (const char* origin : {"https://a.example", "null"}) {
    EXPECT_THAT(HeadersFor(origin, {"*"}),
                ElementsAre(Pair("Access-Control-Allow-Origin", "*"),
                            Pair("Access-Control-Expose-Headers", HasSubstr("X-Request-Id"))));
  }
  EXPECT_THAT(HeadersFor("", {"*"}), IsEmpty());
}

TEST(AllowedOriginsTest, WithoutOriginsThereAreNoHeaders) {
  EXPECT_FALSE(IsFromAllowedOrigin(From("https://a.example"), {}));
  EXPECT_THAT(HeadersFor("https://a.example", {}), IsEmpty());
}

TEST(AllowedOriginsTest, APreflightIsToldWhatMayBeSent) {
  PageRequest request = From("https://a.example");
  request.method = "OPTIONS";
  EXPECT_FALSE(IsPreflight(request));
  request.headers["access-control-request-method"] = "POST";
  EXPECT_TRUE(IsPreflight(request));
  request.method = "POST";
  EXPECT_FALSE(IsPreflight(request));
  const PageResponse consent = PreflightResponse();
  EXPECT_EQ(consent.status, 204);
  EXPECT_THAT(consent.headers, ElementsAre(Pair("Access-Control-Allow-Methods", "GET, POST"),
                                           Pair("Access-Control-Allow-Headers",
                                                HasSubstr("Connect-Protocol-Version, ")),
                                           Pair("Access-Control-Max-Age", "7200")));
}

}  // namespace
}  // namespace sru::server::http
