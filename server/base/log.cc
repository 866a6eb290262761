#include "server/base/log.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "nlohmann/json.hpp"
#include "server/base/log_writer.h"

namespace sru::server {
namespace {

// How long the end of the process waits for its last lines.
constexpr absl::Duration kFlushAtExit = absl::Seconds(1);
constexpr int kPollMs = 1000;

std::atomic<LogFormat> log_format{LogFormat::kText};
std::atomic<LogLevel> log_level{LogLevel::kInfo};

// By LogLevel.
constexpr const char* kTextLevels[] = {"INFO ", "WARN ", "ERROR"};
constexpr const char* kJsonLevels[] = {"info", "warning", "error"};

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

// Writes all of `text` to standard error. What it shares with other programs is left as it is, so a
// descriptor that one of them made non-blocking is waited for here.
size_t WriteToStandardError(absl::string_view text) {
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t count = write(STDERR_FILENO, text.data() + done, text.size() - done);
    if (count > 0) {
      done += static_cast<size_t>(count);
    } else if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      pollfd wait = {STDERR_FILENO, POLLOUT, 0};
      poll(&wait, 1, kPollMs);
    } else if (count == 0 || errno != EINTR) {
      break;  // the reader is gone or the disk is full; the next line may pass
    }
  }
  return done;
}

std::string LossLine(int64_t dropped) {
  return absl::StrCat(
      FormatLogLine(LogLevel::kWarning, "log lines were dropped: standard error did not take them",
                    absl::Now(), {{"dropped_lines", dropped}}, GetLogOptions().format),
      "\n");
}

// Made by the first line, and never destroyed: any thread may log until the process ends.
LogWriter& StandardError() {
  static LogWriter* const writer = [] {
    std::atexit([] { FlushLog(kFlushAtExit); });
    return new LogWriter({}, &WriteToStandardError, &LossLine);
  }();
  return *writer;
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
    absl::StrAppend(&line, "{\"time\":\"", time, "\",\"level\":\"",
                    kJsonLevels[static_cast<size_t>(level)], "\",\"message\":");
    AppendJsonString(message, &line);
    for (const LogField& field : fields) {
      absl::StrAppend(&line, ",\"", field.name, "\":");
      AppendValue(field, format, &line);
    }
    line.push_back('}');
    return line;
  }
  absl::StrAppend(&line, time, " ", kTextLevels[static_cast<size_t>(level)], " ", message);
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
  StandardError().Write(
      absl::StrCat(FormatLogLine(level, message, absl::Now(), fields, options.format), "\n"));
}

bool FlushLog(absl::Duration timeout) { return StandardError().Flush(timeout); }

int64_t LogLinesDropped() { return StandardError().dropped(); }

}  // namespace sru::server
