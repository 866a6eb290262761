#include "server/calls/grpc_text.h"

#include <cstdint>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "google/rpc/retry.pb.h"
#include "server/base/retry.h"

namespace sru::server::calls {
namespace {

constexpr size_t kMostTimeoutDigits = 8;

}  // namespace

absl::Duration ParseGrpcTimeout(absl::string_view text) {
  if (text.size() < 2 || text.size() > kMostTimeoutDigits + 1) return absl::InfiniteDuration();
  int64_t amount = 0;
  for (const char digit : text.substr(0, text.size() - 1)) {
    if (!absl::ascii_isdigit(digit)) return absl::InfiniteDuration();
    amount = amount * 10 + (digit - '0');
  }
  switch (text.back()) {
    case 'H':
      return absl::Hours(amount);
    case 'M':
      return absl::Minutes(amount);
    case 'S':
      return absl::Seconds(amount);
    case 'm':
      return absl::Milliseconds(amount);
    case 'u':
      return absl::Microseconds(amount);
    case 'n':
      return absl::Nanoseconds(amount);
    default:
      return absl::InfiniteDuration();
  }
}

std::string PercentEncode(absl::string_view text) {
  constexpr char kHex[] = "0123456789ABCDEF";
  std::string encoded;
  encoded.reserve(text.size());
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte <= 0x7E && byte != '%') {
      encoded.push_back(c);
    } else {
      encoded.push_back('%');
      encoded.push_back(kHex[byte >> 4]);
      encoded.push_back(kHex[byte & 15]);
    }
  }
  return encoded;
}

std::string UnpaddedBase64(absl::string_view bytes) {
  std::string text = absl::Base64Escape(bytes);
  while (!text.empty() && text.back() == '=') text.pop_back();
  return text;
}

std::string StatusDetails(const absl::Status& status) {
  const std::optional<absl::Duration> delay = RetryAfterOf(status);
  if (!delay.has_value()) return "";
  google::rpc::RetryInfo retry_info;
  const int64_t nanoseconds = absl::ToInt64Nanoseconds(*delay);
  retry_info.mutable_retry_delay()->set_seconds(nanoseconds / 1000000000);
  retry_info.mutable_retry_delay()->set_nanos(static_cast<int32_t>(nanoseconds % 1000000000));
  google::rpc::Status details;
  details.set_code(static_cast<int32_t>(status.code()));
  details.set_message(std::string(status.message()));
  // False only for a message without its required fields, and ours has none.
  static_cast<void>(details.add_details()->PackFrom(retry_info));
  return details.SerializeAsString();
}

}  // namespace sru::server::calls
