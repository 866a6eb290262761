#include "server/door/response_head.h"

#include <array>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/utf8.h"
#include "server/base/retry.h"
#include "server/calls/grpc_text.h"

namespace sru::server::door {
namespace {

constexpr std::array<absl::string_view, 17> kStatusNumbers = {
    "0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15", "16"};

nghttp2_nv Field(absl::string_view name, absl::string_view value, uint8_t flags) {
  return {reinterpret_cast<uint8_t*>(const_cast<char*>(name.data())),
          reinterpret_cast<uint8_t*>(const_cast<char*>(value.data())), name.size(), value.size(),
          flags};
}

// The text and the details of a refusal that says when to come back, as they are sent.
struct EncodedRefusal {
  std::string message;
  std::string details;
};

// An overload refuses with few different texts and delays, so those of this thread are kept: to
// encode one takes longer than the rest of the refusal. Valid until the next one.
const EncodedRefusal& EncodeRefusal(const absl::Status& status, absl::Duration delay) {
  constexpr size_t kMostKept = 64;
  thread_local absl::flat_hash_map<std::string, EncodedRefusal> kept;
  std::string key =
      absl::StrCat(status.raw_code(), " ", absl::ToInt64Nanoseconds(delay), " ", status.message());
  const auto found = kept.find(key);
  if (found != kept.end()) return found->second;
  if (kept.size() >= kMostKept) kept.clear();
  const absl::string_view message = CutUtf8(status.message(), kMostMessageBytes);
  const std::string details = calls::StatusDetails(status);
  return kept[std::move(key)] = {calls::PercentEncode(message), details.size() <= kMostDetailBytes
                                                                    ? calls::UnpaddedBase64(details)
                                                                    : ""};
}

}  // namespace

void HeaderList::AddConstant(absl::string_view name, absl::string_view value) {
  fields_.push_back(
      Field(name, value, NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_COPY_VALUE));
}

void HeaderList::Add(absl::string_view name, absl::string_view value) {
  fields_.push_back(Field(name, value, NGHTTP2_NV_FLAG_NONE));
}

void HeaderList::AddMetadata(const calls::Metadata& metadata) {
  for (const auto& [name, value] : metadata) {
    Add(name, absl::EndsWith(name, "-bin") ? Keep(calls::UnpaddedBase64(value))
                                           : absl::string_view(value));
  }
}

void HeaderList::AddGrpcHead() {
  AddConstant(":status", "200");
  AddConstant("content-type", "application/grpc");
}

void HeaderList::AddHttpHead(int status, const calls::Metadata& headers) {
  Add(":status", Keep(absl::StrCat(status)));
  for (const auto& [name, value] : headers) Add(name, value);
}

void HeaderList::AddEnd(const calls::CallEnd& end) {
  const auto code = static_cast<size_t>(end.status.code());
  AddConstant("grpc-status", kStatusNumbers[code < kStatusNumbers.size() ? code : 2]);
  if (const std::optional<absl::Duration> delay = RetryAfterOf(end.status)) {
    const EncodedRefusal& refusal = EncodeRefusal(end.status, *delay);
    if (!refusal.message.empty()) Add("grpc-message", refusal.message);
    if (!refusal.details.empty()) Add("grpc-status-details-bin", refusal.details);
  } else if (const absl::string_view message = CutUtf8(end.status.message(), kMostMessageBytes);
             !message.empty()) {
    Add("grpc-message", Keep(calls::PercentEncode(message)));
  }
  AddMetadata(end.trailers);
}

}  // namespace sru::server::door
