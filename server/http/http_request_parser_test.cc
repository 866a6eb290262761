#include "server/http/http_request_parser.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sru::server::http {
namespace {

using ::testing::HasSubstr;
using Result = HttpRequestParser::Result;

constexpr size_t kMaxHeaderBytes = 1024;
constexpr size_t kMaxBodyBytes = 100;

// The outcome of one request that arrives in pieces of `step` bytes, as a server reads it.
struct Outcome {
  Result result = Result::kNeedMore;
  PageRequest request;
  absl::Cord body;
  std::string rest;  // what belongs to the next request
  int error_status = 0;
  std::string error;
};

Outcome Parse(const std::string& bytes, size_t step) {
  HttpRequestParser parser(kMaxHeaderBytes, kMaxBodyBytes);
  Outcome outcome;
  std::string in;
  bool has_header = false;
  for (size_t i = 0; i < bytes.size() && outcome.result == Result::kNeedMore; i += step) {
    in += bytes.substr(i, step);
    absl::string_view view = in;
    if (!has_header) {
      outcome.result = parser.ReadHeader(&view);
      has_header = outcome.result == Result::kDone;
    }
    if (has_header) outcome.result = parser.ReadBody(&view, &outcome.body);
    in = std::string(view);
    if (outcome.result == Result::kDone)
      outcome.rest = in + bytes.substr(std::min(bytes.size(), i + step));
  }
  outcome.request = std::move(parser.request());
  outcome.error_status = parser.error_status();
  outcome.error = parser.error();
  return outcome;
}

TEST(HttpRequestParserTest, ARequestInPiecesOfAnySize) {
  const std::string length =
      "POST /v1/classify?a=b HTTP/1.1\r\nHost: x\r\nX-A: 1\r\nx-a: 2\r\nContent-Length: 5\r\n\r\n"
      "hello";
  const std::string chunks =
      "POST /v1/classify?a=b HTTP/1.1\r\nHost: x\r\nX-A: 1\r\nx-a: 2\r\n"
      "Transfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2;name=value\r\nlo\r\n0\r\nX-A: 3\r\n\r\n";
  for (const std::string& text : {length, chunks, "\r\n" + length}) {
    for (size_t step = 1; step <= text.size() + 4; ++step) {
      const Outcome outcome = Parse(text + "GET ", step);
      ASSERT_EQ(outcome.result, Result::kDone) << step << outcome.error;
      EXPECT_EQ(outcome.request.method, "POST");
      EXPECT_EQ(outcome.request.path, "/v1/classify");
      EXPECT_EQ(outcome.request.query, "a=b");
      EXPECT_EQ(outcome.request.header("x-a"), "1, 2");
      EXPECT_EQ(outcome.body, "hello");
      EXPECT_EQ(outcome.rest, "GET ");
    }
  }
}

// What a proxy in front of the server may read as another request than the server does.
TEST(HttpRequestParserTest, AmbiguousRequestsAreRefused) {
  const std::vector<std::pair<std::string, int>> cases = {
      {"Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello", 400},
      {"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello", 400},
      {"Content-Length: 5, 5\r\n\r\nhello", 400},
      {"Content-Length: +5\r\n\r\nhello", 400},
      {"Content-Length: 0x5\r\n\r\nhello", 400},
      {"Content-Length: 18446744073709551621\r\n\r\nhello", 400},
      {"Content-Length:\r\n\r\n", 400},
      {"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
      {"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n", 400},
      {"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
      {"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501},
      {"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", 501},
      {"Transfer-Encoding: identity\r\nContent-Length: 5\r\n\r\nhello", 501},
      {"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n", 400},
      {"Content-Length : 5\r\n\r\nhello", 400},
      {"X: a\r\n Content-Length: 5\r\n\r\nhello", 400},
      {"X: a\r\n\tb\r\n\r\n", 400},
      {"X: a\nContent-Length: 5\r\n\r\nhello", 400},
      {"X: a\rContent-Length: 5\r\n\r\nhello", 400},
      {std::string("X: a\0b\r\n\r\n", 10), 400},
      {"no colon\r\n\r\n", 400},
      {": no name\r\n\r\n", 400},
      {"Host: two\r\n\r\n", 400},
      {"Expect: a miracle\r\n\r\n", 417},
  };
  for (const auto& [rest, status] : cases) {
    for (const size_t step : {size_t{1}, size_t{1000}}) {
      const Outcome outcome = Parse("POST / HTTP/1.1\r\nHost: x\r\n" + rest, step);
      EXPECT_EQ(outcome.result, Result::kError) << rest;
      EXPECT_EQ(outcome.error_status, status) << rest;
      EXPECT_NE(outcome.error, "") << rest;
    }
  }
  EXPECT_EQ(Parse("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 1000).error_status, 400);
  EXPECT_EQ(Parse("POST / HTTP/2.0\r\n\r\n", 1000).error_status, 400);
  EXPECT_EQ(Parse("\x16\x03\x01", 1000).error_status, 400);
}

TEST(HttpRequestParserTest, ARequestOfHttp11HasAHost) {
  const Outcome without = Parse("GET / HTTP/1.1\r\nX-Host: a\r\n\r\n", 1000);
  EXPECT_EQ(without.result, Result::kError);
  EXPECT_EQ(without.error_status, 400);
  EXPECT_EQ(without.error, "Host: expected one, found none");
  EXPECT_EQ(Parse("GET / HTTP/1.1\r\nHost:\r\n\r\n", 1000).result, Result::kDone);
  EXPECT_EQ(Parse("GET / HTTP/1.0\r\n\r\n", 1000).result, Result::kDone);
}

TEST(HttpRequestParserTest, AHostHasOnlyItsCharacters) {
  for (const std::string host : {"a.example:80", "[fe80::1%25eth0]:80", "a_b", "x!$&'()*+,;=~"}) {
    EXPECT_EQ(Parse("GET / HTTP/1.1\r\nHost: " + host + "\r\n\r\n", 1000).result, Result::kDone)
        << host;
  }
  for (const std::string host : {"a b/../", "a b", "a/b", "a?b", "a#b", "user@a", "a\\b", "<a>",
                                 "a\tb", "a\"b", "a|b", "\xc3\xa4"}) {
    const Outcome outcome = Parse("GET / HTTP/1.1\r\nHost: " + host + "\r\n\r\n", 1000);
    EXPECT_EQ(outcome.result, Result::kError) << host;
    EXPECT_EQ(outcome.error_status, 400) << host;
    EXPECT_THAT(outcome.error, HasSubstr("Host: expected a name")) << host;
  }
  EXPECT_EQ(Parse("GET http://a|b/ HTTP/1.1\r\nHost: a\r\n\r\n", 1000).error_status, 400);
}

// As clients send it to proxies (RFC 9112, section 3.2.2).
TEST(HttpRequestParserTest, ATargetMayNameItsHost) {
  struct Case {
    std::string target, path, query, host;
  };
  for (const Case& one : std::vector<Case>{
           {"http://a.example/v1/models", "/v1/models", "", "a.example"},
           {"HTTP://a.example:8080/v1/models?x=http://b/", "/v1/models", "x=http://b/",
            "a.example:8080"},
           {"https://[::1]:8080?x=/y", "/", "x=/y", "[::1]:8080"},
           {"http://a.example", "/", "", "a.example"},
           {"http://a.example//b", "//b", "", "a.example"},
           {"//a.example/b", "//a.example/b", "", "field"},
           {"/http://a.example/b", "/http://a.example/b", "", "field"},
       }) {
    for (const std::string before : {"", "X: http://c/\r\n"}) {
      const Outcome outcome = Parse(
          absl::StrCat("GET ", one.target, " HTTP/1.1\r\n", before, "Host: field\r\n\r\n"), 7);
      ASSERT_EQ(outcome.result, Result::kDone) << one.target << outcome.error;
      EXPECT_EQ(outcome.request.path, one.path) << one.target;
      EXPECT_EQ(outcome.request.query, one.query) << one.target;
      EXPECT_EQ(outcome.request.header("host"), one.host) << one.target;
    }
  }
  EXPECT_EQ(Parse("GET http://a/b HTTP/1.0\r\n\r\n", 1000).request.header("host"), "a");
  for (const std::string request :
       {"GET http:///b HTTP/1.1\r\nHost: a\r\n\r\n", "GET http://:80/b HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET http://user@a/b HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET http://a/b HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
        "GET http://a/b HTTP/1.1\r\n\r\n"}) {
    EXPECT_EQ(Parse(request, 1000).error_status, 400) << request;
  }
}

TEST(HttpRequestParserTest, ChunksThatAreNone) {
  for (const std::string chunks :
       {"x\r\n", "-1\r\na\r\n", "5\nhello\r\n", "5\r\nhelloXX0\r\n\r\n", "10000000000000000\r\n",
        "1 \r\na\r\n0\r\n\r\n", "0\r\nno colon\r\n\r\n"}) {
    const Outcome outcome =
        Parse("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks, 1000);
    EXPECT_EQ(outcome.result, Result::kError) << chunks;
  }
}

// What a proxy in front of the server may take for the end of a line, or pass over.
TEST(HttpRequestParserTest, LinesAroundChunksAreReadInOneWay) {
  const std::string head = "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
  const std::string nul(1, '\0');
  const std::vector<std::string> refused = {
      "5;a=\"\n\"\r\nhello\r\n0\r\n\r\n",
      "5;a=\"\\\n\"\r\nhello\r\n0\r\n\r\n",
      "5;a=\"" + nul + "\"\r\nhello\r\n0\r\n\r\n",
      "5;a=\"\r\"\r\nhello\r\n0\r\n\r\n",
      "5;a=\x0b\r\nhello\r\n0\r\n\r\n",
      "5;a=\"\x7f\"\r\nhello\r\n0\r\n\r\n",
      "5\r\nhello\r\n5;a=\"\n\"\r\nhello\r\n0\r\n\r\n",
      "5\r\nhello\r\n0;a=\"\n\"\r\n\r\n",
      "5\r\nhello\r\n0;a=\"" + nul + "\"\r\n\r\n",
      "5\r\nhello\r\n0\r\nA: b\r\n c\r\n\r\n",
      "5\r\nhello\r\n0\r\nA: b\r\n\tc\r\n\r\n",
      "5\r\nhello\r\n0\r\n A: b\r\n\r\n",
      "5\r\nhello\r\n0\r\nA: b\nC: d\r\n\r\n",
      "5\r\nhello\r\n0\r\nA: b\rC: d\r\n\r\n",
      "5\r\nhello\r\n0\r\nA: " + nul + "\r\n\r\n",
      std::string(12, '0') + "00005\r\nhello\r\n0\r\n\r\n",
      "5\r\nhello\r\n" + std::string(1000, '0') + "\r\n\r\n",
  };
  for (const std::string& chunks : refused) {
    for (const size_t step : {size_t{1}, size_t{7}, size_t{5000}}) {
      const Outcome outcome = Parse(head + chunks, step);
      EXPECT_EQ(outcome.result, Result::kError) << chunks;
      EXPECT_EQ(outcome.error_status, 400) << chunks;
    }
  }
  for (const std::string taken :
       {"0000000000000005\r\nhello\r\n0000000000000000\r\n\r\n",
        "5;a=\"b\tc;\xc3\xa4\"\r\nhello\r\n0;d\r\nA: b\tc\r\nD:\r\n\r\n"}) {
    for (const size_t step : {size_t{1}, size_t{7}, size_t{5000}}) {
      const Outcome outcome = Parse(head + taken + "GET ", step);
      EXPECT_EQ(outcome.result, Result::kDone) << taken << outcome.error;
      EXPECT_EQ(outcome.body, "hello");
      EXPECT_EQ(outcome.rest, "GET ");
    }
  }
}

TEST(HttpRequestParserTest, Bounds) {
  const std::string head = "POST / HTTP/1.1\r\nHost: x\r\n";
  EXPECT_EQ(Parse(head + "X: " + std::string(2000, 'x'), 100).error_status, 431);
  std::string many = head;
  for (int i = 0; i < 101; ++i) absl::StrAppend(&many, "A: b\r\n");
  EXPECT_THAT(Parse(many + "\r\n", 100).error, HasSubstr("more than 100 headers"));
  EXPECT_EQ(Parse(many + "\r\n", 100).error_status, 431);

  const std::string chunked = head + "Transfer-Encoding: chunked\r\n\r\n";
  const std::string fifty = "32\r\n" + std::string(50, 'x') + "\r\n";
  EXPECT_EQ(Parse(chunked + fifty + fifty + "0\r\n\r\n", 7).body.size(), kMaxBodyBytes);
  EXPECT_EQ(Parse(chunked + fifty + fifty + "1\r\nx\r\n0\r\n\r\n", 7).error_status, 413);
  // A chunk is refused when it is announced, like a Content-Length.
  EXPECT_EQ(Parse(chunked + "64\r\n", 7).result, Result::kNeedMore);
  for (const std::string announced : {"65\r\n", "ffffffffffffffff\r\n", "fffffffffffffffe\r\n"}) {
    EXPECT_EQ(Parse(chunked + announced, 7).error_status, 413) << announced;
    EXPECT_EQ(Parse(absl::StrCat(chunked, fifty, announced), 7).error_status, 413) << announced;
  }
  EXPECT_EQ(Parse(chunked + fifty + "33\r\n", 7).error_status, 413);
  EXPECT_EQ(Parse(chunked + "1;" + std::string(2000, 'x'), 100).error_status, 400);
  EXPECT_EQ(Parse(chunked + "0\r\nX: " + std::string(2000, 'x'), 100).error_status, 400);
}

}  // namespace
}  // namespace sru::server::http
