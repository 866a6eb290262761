#include "server/base/log.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "nlohmann/json.hpp"

namespace sru::server {
namespace {

std::atomic<LogFormat> log_format{LogFormat::kText};
std::atomic<LogLevel> log_level{LogLevel::kInfo};

const char* TextLevel(LogLevel level) {
  switch (level) {
    case LogLevel::kInfo:
      return "INFO ";
    case LogLevel::kWarning:
      return "WARN ";
    case LogLevel::kError:
      return "ERROR";
  }
  return "?    ";
}

const char* JsonLevel(LogLevel level) {
  switch (level) {
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kError:
      return "error";
  }
  return "unknown";
}

bool IsControl(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

bool IsPlain(char c) { return c >= 0x20 && c < 0x7f && c != '"' && c != '\\'; }

void AppendJsonString(absl::string_view text, std::string* line) {
  if (std::all_of(text.begin(), text.end(), IsPlain)) {
    absl::StrAppend(line, "\"", text, "\"");
    return;
  }
  line->append(nlohmann::json(std::string(text))
                   .dump(-1, ' ', /*ensure_ascii=*/true, nlohmann::json::error_handler_t::replace));
}

void AppendTextValue(absl::string_view text, std::string* line) {
  const auto needs_no_quotes = [](char c) { return IsPlain(c) && c != ' ' && c != '='; };
  if (!text.empty() && std::all_of(text.begin(), text.end(), needs_no_quotes)) {
    absl::StrAppend(line, text);
  } else {
    AppendJsonString(text, line);
  }
}

void AppendValue(const LogField& field, LogFormat format, std::string* line) {
  if (const auto* text = std::get_if<absl::string_view>(&field.value)) {
    (format == LogFormat::kJson ? AppendJsonString : AppendTextValue)(*text, line);
  } else if (const auto* whole = std::get_if<int64_t>(&field.value)) {
    absl::StrAppend(line, *whole);
  } else {
    absl::StrAppendFormat(line, "%.9g", std::get<double>(field.value));
  }
}

}  // namespace

void SetLogOptions(const LogOptions& options) {
  log_format.store(options.format, std::memory_order_relaxed);
  log_level.store(options.level, std::memory_order_relaxed);
}

LogOptions GetLogOptions() {
  LogOptions options;
  options.format = log_format.load(std::memory_order_relaxed);
  options.level = log_level.load(std::memory_order_relaxed);
  return options;
}

std::string FormatLogLine(LogLevel level, absl::string_view message, absl::Time now,
                          absl::Span<const LogField> fields, LogFormat format) {
  const std::string time = absl::FormatTime("%Y-%m-%dT%H:%M:%E6SZ", now, absl::UTCTimeZone());
  std::string line;
  if (format == LogFormat::kJson) {
    absl::StrAppend(&line, "{\"time\":\"", time, "\",\"level\":\"", JsonLevel(level),
                    "\",\"message\":");
    AppendJsonString(message, &line);
    for (const LogField& field : fields) {
      absl::StrAppend(&line, ",\"", field.name, "\":");
      AppendValue(field, format, &line);
    }
    line.push_back('}');
    return line;
  }
  absl::StrAppend(&line, time, " ", TextLevel(level), " ", message);
  std::replace_if(line.begin(), line.end(), IsControl, ' ');
  for (const LogField& field : fields) {
    absl::StrAppend(&line, " ", field.name, "=");
    AppendValue(field, format, &line);
  }
  return line;
}

void Log(LogLevel level, absl::string_view message, absl::Span<const LogField> fields) {
  const LogOptions options = GetLogOptions();
  if (level < options.level) return;
  const std::string line =
      absl::StrCat(FormatLogLine(level, message, absl::Now(), fields, options.format), "\n");
  // One write per line: stdio locks the stream, so lines of several threads do not mix.
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace sru::server
