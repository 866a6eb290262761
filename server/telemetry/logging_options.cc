#include "server/telemetry/logging_options.h"

namespace sru::server::telemetry {

void AddFlags(LoggingOptions* options, Flags* flags) {
  flags->AddChoice<LogFormat>(
      "log_format", &options->lines.format,
      {{"text", LogFormat::kText}, {"json", LogFormat::kJson}},
      "text or json: the format of log lines, one per event, on standard error.");
  flags->AddChoice<LogLevel>(
      "log_level", &options->lines.level,
      {{"info", LogLevel::kInfo}, {"warning", LogLevel::kWarning}, {"error", LogLevel::kError}},
      "info, warning or error: the lowest level that is logged.");
  flags->AddChoice<LogRequests>(
      "log_requests", &options->access.requests,
      {{"none", LogRequests::kNone}, {"errors", LogRequests::kErrors}, {"all", LogRequests::kAll}},
      "none, errors or all: which calls get a log line. Lines contain nothing of "
      "the texts that calls send.");
  flags->Add("log_content", &options->access.content,
             "Lines of --log_requests also contain the request, cut after 4096 "
             "characters, and the whole error.");
  flags->AddTime("log_slow_ms", &options->access.slow, absl::Milliseconds(1),
                 {absl::ZeroDuration(), absl::Hours(24)},
                 "Calls that take so many milliseconds or longer get a log line with their stages "
                 "and batch, and a row on the status page. 0 = none.");

  flags->Group(Flags::kRarelyChanged);
  flags->Add("log_requests_per_second", &options->access.max_lines_per_second, {0},
             "Most lines per second that --log_requests writes; further ones are counted "
             "in sru_log_lines_suppressed_total. 0 = no limit.");
}

}  // namespace sru::server::telemetry
