// What the message of an error advises at its end: a part of the status that an API whose fields
// have other names, or that lacks a field, words in its own way.
//
//   return Advise(InvalidArgument("9 tokens are too many"), "shorten the sequence or set
//   truncate");
//   ...
//   WithAdvice(status, "send a shorter text")
#ifndef SRU_SERVER_BASE_ADVICE_H_
#define SRU_SERVER_BASE_ADVICE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace sru::server {

inline constexpr char kAdvicePayloadUrl[] = "sru.server.Advice";

// The status with another message and the same payloads.
inline absl::Status Reworded(const absl::Status& status, absl::string_view message) {
  absl::Status reworded(status.code(), message);
  status.ForEachPayload([&reworded](absl::string_view url, const absl::Cord& payload) {
    reworded.SetPayload(url, payload);
  });
  return reworded;
}

// The status, whose message now ends with "; " and the advice.
inline absl::Status Advise(const absl::Status& status, absl::string_view advice) {
  absl::Status advised = Reworded(status, absl::StrCat(status.message(), "; ", advice));
  advised.SetPayload(kAdvicePayloadUrl, absl::Cord(advice));
  return advised;
}

// With `advice` in place of what Advise() has added; unchanged if nothing was.
inline absl::Status WithAdvice(const absl::Status& status, absl::string_view advice) {
  const absl::optional<absl::Cord> old = status.GetPayload(kAdvicePayloadUrl);
  absl::string_view message = status.message();
  if (!old.has_value() || !absl::ConsumeSuffix(&message, std::string(*old))) return status;
  return Advise(Reworded(status, absl::StripSuffix(message, "; ")), advice);
}

}  // namespace sru::server

#endif  // SRU_SERVER_BASE_ADVICE_H_
