#include "server/rest/packed_body.h"

#include <cstdint>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/status.h"
#include "server/base/inflater.h"
#include "server/base/interruption.h"

namespace sru::server::rest {
namespace {

// In lower case; "" for a body that is sent as it is.
std::string EncodingOf(const http::PageRequest& request) {
  std::string encoding = absl::AsciiStrToLower(request.header("content-encoding"));
  if (encoding == "identity") encoding.clear();
  return encoding;
}

bool IsGzip(absl::string_view encoding) { return encoding == "gzip" || encoding == "x-gzip"; }

template <typename... Args>
RestError WrongBody(const Args&... what) {
  RestError error(InvalidArgument("Content-Encoding: ", what...));
  error.param = "Content-Encoding";
  return error;
}

}  // namespace

absl::Status CheckBodyEncoding(const http::PageRequest& request) {
  const std::string encoding = EncodingOf(request);
  if (encoding.empty() || IsGzip(encoding) || encoding == "deflate") return absl::OkStatus();
  return InvalidArgument("Content-Encoding: expected gzip, deflate or none, found '",
                         encoding.substr(0, 32), "'");
}

bool IsPacked(const http::PageRequest& request) { return !EncodingOf(request).empty(); }

RestError UnpackBody(const http::PageRequest& request, size_t most, MemoryHold* memory,
                     std::string* body) {
  const bool is_gzip = IsGzip(EncodingOf(request));
  const absl::string_view name = is_gzip ? "gzip" : "deflate";
  absl::Cord unpacked;
  if (!memory->Grow(Inflater::kStateBytes)) return {memory->NoMemory()};
  {
    Inflater inflater(is_gzip);
    absl::string_view left = *body;
    while (!left.empty() || inflater.has_more()) {
      if (Interruption::Asked()) return {absl::CancelledError("the caller has left")};
      if (inflater.ended()) {
        return WrongBody("expected one ", name, " stream, found ", left.size(),
                         " bytes after its end");
      }
      const size_t before = unpacked.size();
      const absl::Status status = inflater.Add(&left, &unpacked);
      if (absl::IsResourceExhausted(status)) return {memory->NoMemory()};
      if (!status.ok())
        return WrongBody("expected a body in ", name, ", found other or damaged bytes");
      if (unpacked.size() > most) {
        return {absl::ResourceExhaustedError(absl::StrCat(
                    "Content-Encoding: the body unpacks to more than ", most,
                    " bytes, which is the most that the server takes (--max_message_bytes)")),
                413};
      }
      if (!memory->Grow(static_cast<int64_t>(unpacked.size() - before))) {
        return {memory->NoMemory()};
      }
    }
    if (!inflater.ended()) return WrongBody("the body in ", name, " ends too early");
  }
  body->clear();
  body->shrink_to_fit();
  // Both forms of what was unpacked exist for a moment.
  const auto bytes = static_cast<int64_t>(unpacked.size());
  if (!memory->Grow(bytes)) return {memory->NoMemory()};
  *body = std::string(std::exchange(unpacked, absl::Cord()));
  memory->ShrinkTo(bytes);
  return {};
}

}  // namespace sru::server::rest
