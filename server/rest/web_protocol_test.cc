#include "server/rest/web_protocol.h"

#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "google/rpc/retry.pb.h"
#include "gtest/gtest.h"
#include "server/base/retry.h"

namespace sru::server::rest {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

http::PageRequest With(const std::string& name, const std::string& value) {
  http::PageRequest request;
  request.headers[name] = value;
  return request;
}

TEST(WebProtocolTest, TheContentTypeSaysTheForm) {
  const auto form = [](const std::string& type, const std::string& accept = "") {
    http::PageRequest request = With("content-type", type);
    if (!accept.empty()) request.headers["accept"] = accept;
    const CallForm found = WebFormOf(request);
    return std::tuple(found.answer, found.is_json, found.is_base64);
  };
  EXPECT_EQ(form("Application/JSON; charset=utf-8"), std::tuple(ErrorForm::kConnect, true, false));
  EXPECT_EQ(form("application/proto"), std::tuple(ErrorForm::kConnect, false, false));
  EXPECT_EQ(form("application/connect+json"),
            std::tuple(ErrorForm::kConnectJsonStream, true, false));
  EXPECT_EQ(form("application/connect+proto"),
            std::tuple(ErrorForm::kConnectProtoStream, false, false));
  EXPECT_EQ(form("application/grpc-web"), std::tuple(ErrorForm::kGrpcWeb, false, false));
  EXPECT_EQ(form("application/grpc-web+proto"), std::tuple(ErrorForm::kGrpcWeb, false, false));
  EXPECT_EQ(form("application/grpc-web-text"), std::tuple(ErrorForm::kGrpcWebText, false, true));
  // The client says what it can read.
  EXPECT_EQ(form("application/grpc-web-text+proto", "*/*"),
            std::tuple(ErrorForm::kGrpcWebText, false, true));
  EXPECT_EQ(form("application/grpc-web-text", "application/grpc-web+proto"),
            std::tuple(ErrorForm::kGrpcWeb, false, true));
  EXPECT_EQ(form("application/grpc-web", "application/grpc-web-text"),
            std::tuple(ErrorForm::kGrpcWebText, false, false));
}

TEST(WebProtocolTest, AMethodTakesTheTypesOfItsKind) {
  calls::Method method;
  EXPECT_THAT(WebContentTypes(method),
              ElementsAre("application/proto", "application/grpc-web", "application/grpc-web+proto",
                          "application/grpc-web-text", "application/grpc-web-text+proto"));
  method.request = &google::rpc::Status::default_instance();
  EXPECT_EQ(WebContentTypes(method)[0], "application/json");
  method.kind = calls::MethodKind::kServerStream;
  EXPECT_EQ(WebContentTypes(method)[0], "application/connect+json");
  EXPECT_EQ(WebContentTypes(method)[1], "application/connect+proto");
}

TEST(WebProtocolTest, TimeoutsAreReadStrictly) {
  const auto connect = [](const std::string& text) {
    return ReadWebHeaders(ErrorForm::kConnect, With("connect-timeout-ms", text));
  };
  EXPECT_EQ(*connect("1500"), absl::Milliseconds(1500));
  EXPECT_EQ(*connect("9999999999"), absl::Milliseconds(9999999999));
  EXPECT_EQ(*connect("0"), absl::ZeroDuration());
  for (const char* wrong : {"", "10000000000", "-1", "+1", " 1", "1.5", "1s", "0x10"}) {
    EXPECT_EQ(connect(wrong).status().code(), absl::StatusCode::kInvalidArgument) << wrong;
  }
  const auto grpc_web = [](const std::string& text) {
    return ReadWebHeaders(ErrorForm::kGrpcWebText, With("grpc-timeout", text));
  };
  EXPECT_EQ(*grpc_web("250m"), absl::Milliseconds(250));
  for (const char* wrong : {"", "5", "m", "123456789m", "5x"}) {
    EXPECT_EQ(grpc_web(wrong).status().code(), absl::StatusCode::kInvalidArgument) << wrong;
  }
  EXPECT_EQ(*ReadWebHeaders(ErrorForm::kConnect, {}), absl::InfiniteDuration());
  // The header of the other protocol does not count.
  EXPECT_EQ(*ReadWebHeaders(ErrorForm::kConnect, With("grpc-timeout", "5x")),
            absl::InfiniteDuration());
}

TEST(WebProtocolTest, HeadersOfAnotherVersionOrEncodingAreRefused) {
  const auto check = [](ErrorForm form, const std::string& name, const std::string& value) {
    return ReadWebHeaders(form, With(name, value)).status().code();
  };
  constexpr auto kOk = absl::StatusCode::kOk;
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  constexpr auto kUnimplemented = absl::StatusCode::kUnimplemented;
  EXPECT_EQ(check(ErrorForm::kConnect, "connect-protocol-version", "1"), kOk);
  EXPECT_EQ(check(ErrorForm::kConnect, "connect-protocol-version", "2"), kInvalid);
  EXPECT_EQ(check(ErrorForm::kConnect, "connect-protocol-version", ""), kInvalid);
  EXPECT_EQ(check(ErrorForm::kConnect, "connect-timeout-ms", "soon"), kInvalid);
  EXPECT_EQ(check(ErrorForm::kConnect, "content-encoding", "Identity"), kOk);
  EXPECT_EQ(check(ErrorForm::kConnect, "content-encoding", "gzip"), kOk);
  EXPECT_EQ(check(ErrorForm::kConnect, "content-encoding", "br"), kUnimplemented);
  EXPECT_EQ(check(ErrorForm::kConnect, "accept-encoding", "gzip"), kOk);
  EXPECT_EQ(check(ErrorForm::kConnectJsonStream, "connect-content-encoding", "br"), kUnimplemented);
  EXPECT_EQ(check(ErrorForm::kGrpcWeb, "grpc-encoding", "gzip"), kUnimplemented);
  EXPECT_EQ(check(ErrorForm::kGrpcWeb, "grpc-encoding", "identity"), kOk);
}

TEST(WebProtocolTest, Base64MayComeInPieces) {
  EXPECT_EQ(*DecodeBase64Pieces(""), "");
  EXPECT_EQ(*DecodeBase64Pieces("YWJj"), "abc");
  EXPECT_EQ(*DecodeBase64Pieces("YQ==YmM=ZGVm"), "abcdef");
  EXPECT_EQ(*DecodeBase64Pieces("YWJjYQ==+/8="), "abca\xFB\xFF");
  for (const char* wrong :
       {"Y", "YQ", "YQ=", "YWJjY", "Y===", "====", "YQ=a", "=YQ=", "YQ==YQ", "Y*Jj", "YQ==="}) {
    EXPECT_EQ(DecodeBase64Pieces(wrong).status().code(), absl::StatusCode::kInvalidArgument)
        << wrong;
  }
}

TEST(WebProtocolTest, ARequestHasOneWholeFrame) {
  using absl::string_view;
  EXPECT_EQ(*OnlyMessage(string_view("\0\0\0\0\3abc", 8)), "abc");
  EXPECT_EQ(*OnlyMessage(string_view("\0\0\0\0\0", 5)), "");
  const std::string large(0x10203, 'a');
  EXPECT_EQ(*OnlyMessage(absl::StrCat(string_view("\0\0\1\2\3", 5), large)), large);
  for (const auto& [wrong, part] :
       {std::pair{string_view(), "0 bytes"}, std::pair{string_view("\0\0\0\0", 4), "4 bytes"},
        std::pair{string_view("\0\0\0\0\4abc", 8), "4 bytes"},
        std::pair{string_view("\0\0\0\0\2abc", 8), "2 bytes"},
        std::pair{string_view("\0\0\0\0\1a\0\0\0\0\1b", 12), "one message"},
        std::pair{string_view("\0\xFF\xFF\xFF\xFF"
                              "abc",
                              8),
                  "4294967295"},
        std::pair{string_view("\1\0\0\0\3abc", 8), "packed"},
        std::pair{string_view("\2\0\0\0\3abc", 8), "flags 2"},
        std::pair{string_view("\x80\0\0\0\3abc", 8), "flags 128"}}) {
    const absl::Status status = OnlyMessage(wrong).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << part;
    EXPECT_THAT(std::string(status.message()), HasSubstr(part));
  }
}

TEST(WebProtocolTest, FramesOfAnswers) {
  using std::string_literals::operator""s;
  EXPECT_EQ(WebFrame(ErrorForm::kGrpcWeb, "abc", false), "\0\0\0\0\3abc"s);
  EXPECT_EQ(WebFrame(ErrorForm::kGrpcWeb, "abc", true), "\x80\0\0\0\3abc"s);
  EXPECT_EQ(WebFrame(ErrorForm::kConnectProtoStream, "abc", true), "\2\0\0\0\3abc"s);
  EXPECT_EQ(WebFrame(ErrorForm::kConnectJsonStream, std::string(0x10203, 'a'), false).substr(0, 5),
            "\0\0\1\2\3"s);
  // Each one can be decoded when it arrives.
  EXPECT_EQ(WebFrame(ErrorForm::kGrpcWebText, "abc", false), "AAAAAANhYmM=");
}

RestError QueueIsFull() {
  RestError error(RetryAfter(absl::ResourceExhaustedError("100% full\n"), absl::Seconds(2)));
  error.trailers = {{"x-request-id", "mine"}, {"x-more-bin", "\xFF"}};
  return error;
}

TEST(WebProtocolTest, TheEndOfAConnectCall) {
  const std::string error =
      R"({"code":"resource_exhausted","details":[{"type":"google.rpc.RetryInfo","value":"CgIIAg"}],)"
      R"("message":"100% full\n"})";
  EXPECT_EQ(WebEnd(ErrorForm::kConnect, QueueIsFull()), error);
  EXPECT_EQ(WebEnd(ErrorForm::kConnectProtoStream, QueueIsFull()),
            absl::StrCat(R"({"error":)", error,
                         R"(,"metadata":{"x-more-bin":["/w"],"x-request-id":["mine"]}})"));
  EXPECT_EQ(WebEnd(ErrorForm::kConnectJsonStream, absl::OkStatus()), "{}");
  EXPECT_THAT(WebEnd(ErrorForm::kConnect, absl::CancelledError("")), HasSubstr("\"canceled\""));
  // Bytes that are no text do not end the server.
  EXPECT_THAT(WebEnd(ErrorForm::kConnect, absl::InternalError("\xFF")), HasSubstr("\xEF\xBF\xBD"));

  const http::PageResponse response = ErrorResponse(ErrorForm::kConnect, QueueIsFull());
  EXPECT_EQ(response.status, 429);
  EXPECT_EQ(response.content_type, "application/json");
  EXPECT_EQ(response.body, error);
  EXPECT_THAT(response.headers,
              ElementsAre(Pair("Trailer-x-request-id", "mine"), Pair("Trailer-x-more-bin", "/w"),
                          Pair("Retry-After", "2")));
}

TEST(WebProtocolTest, TheEndOfAGrpcWebCall) {
  const std::string trailers = WebEnd(ErrorForm::kGrpcWeb, QueueIsFull());
  EXPECT_THAT(trailers, HasSubstr("grpc-status: 8\r\ngrpc-message: 100%25 full%0A\r\n"
                                  "grpc-status-details-bin: "));
  EXPECT_THAT(trailers, HasSubstr("\r\nx-request-id: mine\r\nx-more-bin: /w\r\n"));
  EXPECT_EQ(WebEnd(ErrorForm::kGrpcWebText, absl::OkStatus()), "grpc-status: 0\r\n");

  const http::PageResponse response =
      ErrorResponse(ErrorForm::kGrpcWebText, absl::NotFoundError(""));
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.content_type, "application/grpc-web-text+proto");
  EXPECT_EQ(*DecodeBase64Pieces(response.body),
            WebFrame(ErrorForm::kGrpcWeb, "grpc-status: 5\r\n", /*is_end=*/true));
}

}  // namespace
}  // namespace sru::server::rest
