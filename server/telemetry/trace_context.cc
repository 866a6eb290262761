#include "server/telemetry/trace_context.h"

#include <algorithm>
#include <cstddef>

namespace sru::server::telemetry {
namespace {

constexpr size_t kLength = 55;  // of version 00

bool IsHex(absl::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

bool IsZero(absl::string_view text) {
  return text.find_first_not_of('0') == absl::string_view::npos;
}

}  // namespace

std::optional<TraceContext> ParseTraceparent(absl::string_view header) {
  if (header.size() < kLength) return std::nullopt;
  const absl::string_view version = header.substr(0, 2);
  const absl::string_view flags = header.substr(53, 2);
  TraceContext context;
  context.trace_id = header.substr(3, 32);
  context.parent_id = header.substr(36, 16);
  if (!IsHex(version) || version == "ff" || header[2] != '-' || !IsHex(context.trace_id) ||
      IsZero(context.trace_id) || header[35] != '-' || !IsHex(context.parent_id) ||
      IsZero(context.parent_id) || header[52] != '-' || !IsHex(flags)) {
    return std::nullopt;
  }
  // A later version may append fields, each after a dash.
  if (header.size() > kLength && (version == "00" || header[kLength] != '-')) return std::nullopt;
  // The lowest bit of a hexadecimal digit.
  const char low = flags[1];
  context.sampled = (low <= '9' ? (low - '0') & 1 : (low - 'a') & 1) != 0;
  return context;
}

}  // namespace sru::server::telemetry
