#include "server/telemetry/logging_options.h"

namespace sru::server::telemetry {

void AddFlags(LoggingOptions* options, FlagTable* flags) {
  flags->AddChoice<LogFormat>(
      "log_format", &options->lines.format,
      {{"text", LogFormat::kText}, {"json", LogFormat::kJson}},
      "text or json: how log lines are written, one per event, on standard error.");
  flags->AddChoice<LogLevel>(
      "log_level", &options->lines.level,
      {{"info", LogLevel::kInfo}, {"warning", LogLevel::kWarning}, {"error", LogLevel::kError}},
      "info, warning or error: the least that is logged.");
  flags->AddChoice<LogRequests>(
      "log_requests", &options->access.requests,
      {{"none", LogRequests::kNone}, {"errors", LogRequests::kErrors}, {"all", LogRequests::kAll}},
      "none, errors or all: which calls get a log line. Lines hold nothing of what a call sends to "
      "be classified or encoded.");
  flags->Add("log_requests_per_second", &options->access.max_lines_per_second, {0},
             "Most lines per second that --log_requests writes; the rest is counted in "
             "sru_log_lines_suppressed_total. 0 = no limit.");
  flags->Add("log_content", &options->access.content,
             "The lines of --log_requests hold the request, cut after 4096 characters, and the "
             "whole error.");
}

}  // namespace sru::server::telemetry
