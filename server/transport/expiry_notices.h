// When to say in the log that a certificate ends: 14 days before, 1 day before, and when it has
// ended, each once; at once where the certificate is taken into use later than that. The same times
// as those of the alerts in deploy/prometheus. Time comes with the calls. Not thread-safe.
#ifndef SRU_SERVER_TRANSPORT_EXPIRY_NOTICES_H_
#define SRU_SERVER_TRANSPORT_EXPIRY_NOTICES_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/base/log.h"

namespace sru::server::transport {

class ExpiryNotices {
 public:
  struct Notice {
    LogLevel level = LogLevel::kInfo;
    std::string text;
  };

  // From now on about this certificate, and no more about the one before.
  void Watch(absl::string_view subject, absl::Time not_after);

  // What is to be said at `now`, most often nothing. A clock that is set back repeats nothing.
  std::optional<Notice> Look(absl::Time now);

 private:
  std::string subject_;
  absl::Time not_after_ = absl::InfiniteFuture();
  int said_ = 0;  // how many of the three
};

}  // namespace sru::server::transport

#endif  // SRU_SERVER_TRANSPORT_EXPIRY_NOTICES_H_
