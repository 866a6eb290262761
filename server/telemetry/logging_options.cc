#include "server/telemetry/logging_options.h"

#include <string>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"

ABSL_FLAG(std::string, log_format, "text",
          "text or json: how log lines are written, one per event, on standard error.");
ABSL_FLAG(std::string, log_level, "info", "info, warning or error: the least that is logged.");
ABSL_FLAG(std::string, log_requests, "errors",
          "none, errors or all: which calls get a log line. Lines hold nothing of what a call "
          "sends to be classified or encoded.");
ABSL_FLAG(int32_t, log_requests_per_second, 100,
          "Most lines per second that --log_requests writes; the rest is counted in "
          "sru_log_lines_suppressed_total. 0 = no limit.");
ABSL_FLAG(bool, log_content, false,
          "The lines of --log_requests hold the request, cut after 4096 characters, and the whole "
          "error.");

namespace sru::server {
namespace {

constexpr const char* kFlagNames[] = {"log_format", "log_level", "log_requests",
                                      "log_requests_per_second", "log_content"};

}  // namespace

absl::Span<const char* const> LoggingFlagNames() { return kFlagNames; }

absl::StatusOr<LoggingOptions> LoggingOptionsFromFlags() {
  LoggingOptions options;
  const auto error = [](const auto&... parts) {
    return absl::InvalidArgumentError(absl::StrCat(parts...));
  };
  const std::string format = absl::GetFlag(FLAGS_log_format);
  if (format == "text" || format == "json") {
    options.lines.format = format == "json" ? LogFormat::kJson : LogFormat::kText;
  } else {
    return error("--log_format: expected text or json, found '", format, "'");
  }
  const std::string level = absl::GetFlag(FLAGS_log_level);
  if (level == "info") {
    options.lines.level = LogLevel::kInfo;
  } else if (level == "warning") {
    options.lines.level = LogLevel::kWarning;
  } else if (level == "error") {
    options.lines.level = LogLevel::kError;
  } else {
    return error("--log_level: expected info, warning or error, found '", level, "'");
  }
  const std::string requests = absl::GetFlag(FLAGS_log_requests);
  if (requests == "none") {
    options.access.requests = LogRequests::kNone;
  } else if (requests == "errors") {
    options.access.requests = LogRequests::kErrors;
  } else if (requests == "all") {
    options.access.requests = LogRequests::kAll;
  } else {
    return error("--log_requests: expected none, errors or all, found '", requests, "'");
  }
  options.access.max_lines_per_second = absl::GetFlag(FLAGS_log_requests_per_second);
  if (options.access.max_lines_per_second < 0) {
    return error("--log_requests_per_second: expected 0 or more, found ",
                 options.access.max_lines_per_second);
  }
  options.access.content = absl::GetFlag(FLAGS_log_content);
  return options;
}

}  // namespace sru::server
