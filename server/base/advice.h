// Advice at the end of an error's message. The status carries it as a payload of its own, so that
// an API with other names of fields, or without the field, can replace it with its own words.
//
//   return Advise(InvalidArgument("9 tokens are too many"), AdviceOn::kLength, "set truncate");
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

enum class AdviceOn : char {
  kLength = 'l',  // of a sequence that is too long; every API has something to say
  kField = 'f',   // on a field of sru.v1, which no other API has
};

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
inline absl::Status Advise(const absl::Status& status, AdviceOn topic, absl::string_view advice) {
  absl::Status advised = Reworded(status, absl::StrCat(status.message(), "; ", advice));
  const char name = static_cast<char>(topic);
  advised.SetPayload(kAdvicePayloadUrl,
                     absl::Cord(absl::StrCat(absl::string_view(&name, 1), advice)));
  return advised;
}

// In the words of another API: with `advice` in place of what Advise() has added on a length, and
// without what it has added on a field. Unchanged if nothing was added.
inline absl::Status WithAdvice(const absl::Status& status, absl::string_view advice) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kAdvicePayloadUrl);
  if (!payload.has_value()) return status;
  const std::string old(*payload);
  const absl::string_view message =
      absl::StripSuffix(status.message(), absl::StrCat("; ", absl::string_view(old).substr(1)));
  absl::Status plain = Reworded(status, message);
  plain.ErasePayload(kAdvicePayloadUrl);
  if (old.front() == static_cast<char>(AdviceOn::kField)) return plain;
  return Advise(plain, AdviceOn::kLength, advice);
}

}  // namespace sru::server

#endif  // SRU_SERVER_BASE_ADVICE_H_
