#include "server/rest/web_protocol.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "google/rpc/retry.pb.h"
#include "nlohmann/json.hpp"
#include "server/calls/grpc_text.h"
#include "server/rest/packed_body.h"
#include "server/rest/route.h"

namespace sru::server::rest {
namespace {

using nlohmann::json;

constexpr size_t kPrefixBytes = 5;
constexpr unsigned char kPackedFlag = 0x01;
constexpr unsigned char kConnectEndFlag = 0x02;
constexpr unsigned char kGrpcWebEndFlag = 0x80;
constexpr size_t kMostTimeoutDigits = 10;
constexpr char kGrpcWebType[] = "application/grpc-web";
constexpr char kGrpcWebTextType[] = "application/grpc-web-text";

// Binary metadata is sent in base64.
std::string MetadataText(const std::string& name, const std::string& value) {
  return absl::EndsWith(name, "-bin") ? calls::UnpaddedBase64(value) : value;
}

// Connect's codes are gRPC's in lower case, and one has another spelling.
std::string ConnectCode(absl::StatusCode code) {
  if (code == absl::StatusCode::kCancelled) return "canceled";
  return absl::AsciiStrToLower(absl::StatusCodeToString(code));
}

json ConnectError(const RestError& error) {
  json body = {{"code", ConnectCode(error.status.code())},
               {"message", std::string(error.status.message())}};
  google::rpc::Status status;
  if (status.ParseFromString(calls::StatusDetails(error.status))) {
    for (const google::protobuf::Any& detail : status.details()) {
      const std::string& url = detail.type_url();
      body["details"].push_back({{"type", url.substr(url.rfind('/') + 1)},
                                 {"value", calls::UnpaddedBase64(detail.value())}});
    }
  }
  return body;
}

std::string GrpcWebTrailers(const RestError& error) {
  std::string lines = absl::StrCat("grpc-status: ", static_cast<int>(error.status.code()), "\r\n");
  const auto add = [&lines](absl::string_view name, absl::string_view value) {
    if (!value.empty()) absl::StrAppend(&lines, name, ": ", value, "\r\n");
  };
  add("grpc-message", calls::PercentEncode(error.status.message()));
  add("grpc-status-details-bin", calls::UnpaddedBase64(calls::StatusDetails(error.status)));
  for (const auto& [name, value] : error.trailers) add(name, MetadataText(name, value));
  return lines;
}

// Reads the protocol's deadline; infinite without one.
absl::StatusOr<absl::Duration> WebTimeout(ErrorForm form, const http::PageRequest& request) {
  const char* const name = IsGrpcWeb(form) ? "grpc-timeout" : "connect-timeout-ms";
  const std::string* const text = request.headers.Find(name);
  if (text == nullptr) return absl::InfiniteDuration();
  absl::Duration timeout = absl::InfiniteDuration();
  if (IsGrpcWeb(form)) {
    timeout = calls::ParseGrpcTimeout(*text);
  } else {
    int64_t milliseconds = 0;
    const bool are_digits = std::all_of(text->begin(), text->end(), absl::ascii_isdigit);
    if (are_digits && text->size() <= kMostTimeoutDigits &&
        absl::SimpleAtoi(*text, &milliseconds)) {
      timeout = absl::Milliseconds(milliseconds);
    }
  }
  if (timeout != absl::InfiniteDuration()) return timeout;
  return InvalidArgument(name, ": expected ",
                         IsGrpcWeb(form) ? "1 to 8 digits and one of H, M, S, m, u, n"
                                         : "milliseconds in 1 to 10 digits",
                         ", found '", text->substr(0, 32), "'");
}

}  // namespace

std::vector<std::string> WebContentTypes(const calls::Method& method) {
  const std::string connect =
      method.kind == calls::MethodKind::kUnary ? "application/" : "application/connect+";
  std::vector<std::string> types = {connect + "proto"};
  if (method.request != nullptr) types.insert(types.begin(), connect + "json");
  for (const std::string type : {kGrpcWebType, kGrpcWebTextType}) {
    types.insert(types.end(), {type, type + "+proto"});
  }
  return types;
}

CallForm WebFormOf(const http::PageRequest& request) {
  const std::string type = MediaType(request.header("content-type"));
  CallForm form;
  form.is_json = absl::EndsWith(type, "json");
  form.is_base64 = absl::StartsWith(type, kGrpcWebTextType);
  if (absl::StartsWith(type, kGrpcWebType)) {
    const std::string accept = MediaType(request.header("accept"));
    const bool says = absl::StartsWith(accept, kGrpcWebType);
    const bool is_text = says ? absl::StartsWith(accept, kGrpcWebTextType) : form.is_base64;
    form.answer = is_text ? ErrorForm::kGrpcWebText : ErrorForm::kGrpcWeb;
  } else if (absl::StartsWith(type, "application/connect+")) {
    form.answer = form.is_json ? ErrorForm::kConnectJsonStream : ErrorForm::kConnectProtoStream;
  } else {
    form.answer = ErrorForm::kConnect;
  }
  return form;
}

absl::StatusOr<absl::Duration> ReadWebHeaders(ErrorForm form, const http::PageRequest& request) {
  if (absl::Status status = CheckBodyEncoding(request); !status.ok()) {
    return absl::UnimplementedError(status.message());
  }
  const char* const of_messages = IsGrpcWeb(form) ? "grpc-encoding" : "connect-content-encoding";
  const std::string encoding = absl::AsciiStrToLower(request.header(of_messages));
  if (!encoding.empty() && encoding != "identity") {
    return absl::UnimplementedError(
        absl::StrCat(of_messages, ": expected identity, found '", encoding.substr(0, 32), "'"));
  }
  const std::string* const version = request.headers.Find("connect-protocol-version");
  if (version != nullptr && *version != "1") {
    return InvalidArgument("Connect-Protocol-Version: expected 1, found '", version->substr(0, 32),
                           "'");
  }
  return WebTimeout(form, request);
}

absl::StatusOr<std::string> DecodeBase64Pieces(absl::string_view text) {
  std::string bytes;
  std::string piece;
  while (!text.empty()) {
    const size_t padding = text.find('=');
    const size_t size = padding == absl::string_view::npos ? text.size() : padding / 4 * 4 + 4;
    if (size % 4 != 0 || size > text.size() ||
        !absl::Base64Unescape(text.substr(0, size), &piece)) {
      return absl::InvalidArgumentError("the body is not in base64");
    }
    if (bytes.empty()) {
      bytes.swap(piece);
    } else {
      bytes += piece;
    }
    text.remove_prefix(size);
  }
  return bytes;
}

absl::StatusOr<absl::string_view> OnlyMessage(absl::string_view body) {
  if (body.size() < kPrefixBytes) {
    return InvalidArgument("the body has ", body.size(), " bytes, expected a message with ",
                           kPrefixBytes, " bytes in front of it");
  }
  const auto byte = [body](size_t i) { return static_cast<unsigned char>(body[i]); };
  if (byte(0) == kPackedFlag) {
    return absl::InvalidArgumentError("the message is packed, and no encoding is named");
  }
  if (byte(0) != 0) {
    return InvalidArgument("the frame has the flags ", int{byte(0)}, ", expected 0");
  }
  uint64_t size = 0;
  for (size_t i = 1; i < kPrefixBytes; ++i) size = size << 8 | byte(i);
  body.remove_prefix(kPrefixBytes);
  if (size != body.size()) {
    return InvalidArgument("the body has ", body.size(),
                           " bytes after the prefix, expected one message of ", size,
                           " bytes, as that says");
  }
  return body;
}

std::string WebFrame(ErrorForm form, absl::string_view message, bool is_end) {
  const unsigned char end_flag = IsGrpcWeb(form) ? kGrpcWebEndFlag : kConnectEndFlag;
  const auto size = static_cast<uint32_t>(message.size());
  std::array<char, kPrefixBytes> prefix = {static_cast<char>(is_end ? end_flag : 0)};
  for (size_t i = 1; i < kPrefixBytes; ++i) {
    prefix[i] = static_cast<char>(size >> (8 * (kPrefixBytes - 1 - i)));
  }
  std::string frame = absl::StrCat(absl::string_view(prefix.data(), prefix.size()), message);
  return form == ErrorForm::kGrpcWebText ? absl::Base64Escape(frame) : frame;
}

std::string WebEnd(ErrorForm form, const RestError& error) {
  if (IsGrpcWeb(form)) return GrpcWebTrailers(error);
  json end = json::object();
  if (form == ErrorForm::kConnect) {
    end = ConnectError(error);
  } else {
    if (!error.status.ok()) end["error"] = ConnectError(error);
    for (const auto& [name, value] : error.trailers) {
      end["metadata"][name].push_back(MetadataText(name, value));
    }
  }
  return JsonText(end);
}

const char* WebContentType(ErrorForm form) {
  static constexpr const char* kTypes[] = {"application/connect+json", "application/connect+proto",
                                           "application/grpc-web+proto",
                                           "application/grpc-web-text+proto"};
  return kTypes[static_cast<int>(form) - static_cast<int>(ErrorForm::kConnectJsonStream)];
}

void AddConnectTrailers(const calls::Metadata& trailers, http::PageResponse* response) {
  for (const auto& [name, value] : trailers) {
    response->headers.emplace_back(absl::StrCat("Trailer-", name), MetadataText(name, value));
  }
}

}  // namespace sru::server::rest
