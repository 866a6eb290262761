#include "server/transport/expiry_notices.h"

#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"

namespace sru::server::transport {
namespace {

struct Stage {
  absl::Duration before;  // the end
  LogLevel level;
};

constexpr Stage kStages[] = {{absl::Hours(14 * 24), LogLevel::kWarning},
                             {absl::Hours(24), LogLevel::kWarning},
                             {absl::ZeroDuration(), LogLevel::kError}};

// "13 days", "5 hours", "40 seconds"; rounded down.
std::string RoughLength(absl::Duration length) {
  for (const auto& [unit, name] :
       {std::pair{absl::Hours(24), "day"}, std::pair{absl::Hours(1), "hour"},
        std::pair{absl::Minutes(1), "minute"}}) {
    if (const int64_t count = length / unit; count > 0) {
      return absl::StrCat(count, " ", name, count == 1 ? "" : "s");
    }
  }
  return absl::StrCat(length / absl::Seconds(1), " seconds");
}

}  // namespace

void ExpiryNotices::Watch(absl::string_view subject, absl::Time not_after) {
  subject_ = std::string(subject);
  not_after_ = not_after;
  said_ = 0;
}

std::optional<ExpiryNotices::Notice> ExpiryNotices::Look(absl::Time now) {
  int due = 0;
  for (const Stage& stage : kStages) due += now >= not_after_ - stage.before ? 1 : 0;
  if (due <= said_) return std::nullopt;
  said_ = due;
  Notice notice;
  notice.level = kStages[due - 1].level;
  const std::string end = absl::FormatTime(absl::RFC3339_sec, not_after_, absl::UTCTimeZone());
  notice.text =
      now < not_after_
          ? absl::StrCat("TLS: the certificate of ", subject_, " expires in ",
                         RoughLength(not_after_ - now), ", at ", end,
                         "; replace the files of --tls_cert and --tls_key")
          : absl::StrCat("TLS: the certificate of ", subject_, " has expired at ", end,
                         ", clients refuse to connect; replace the files of --tls_cert and "
                         "--tls_key");
  return notice;
}

}  // namespace sru::server::transport
