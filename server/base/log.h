// Log lines for people and log collectors: one line per event on standard error, as text
//   2026-01-31T12:00:00.123456Z WARN  request method=Classify code=NOT_FOUND
// or as JSON
//   {"time":"2026-01-31T12:00:00.123456Z","level":"warning","message":"request","code":"NOT_FOUND"}
// Nobody who logs waits for the line to be written: one thread writes what is queued, and a line
// that finds the queue full, because standard error is not read, is dropped and counted
// (log_writer.h). At exit() the last lines get a second to be written.
//
// Control characters become spaces (text) or escapes (JSON), and a field's value is quoted when it
// needs it, so that an event is always one line and no value can pass for another field.
// Thread-safe.
#ifndef SRU_SERVER_BASE_LOG_H_
#define SRU_SERVER_BASE_LOG_H_

#include <cstdint>
#include <string>
#include <variant>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

namespace sru::server {

// Each has its names in log.cc.
enum class LogLevel { kInfo, kWarning, kError };
enum class LogFormat { kText, kJson };

struct LogOptions {
  LogFormat format = LogFormat::kText;
  LogLevel level = LogLevel::kInfo;  // lines below it are dropped
};

// For the whole process; text and kInfo until it is called.
void SetLogOptions(const LogOptions& options);
LogOptions GetLogOptions();

// Something that a line says besides its message. `name` is ours: letters and '_'.
struct LogField {
  absl::string_view name;
  std::variant<absl::string_view, int64_t, double> value;
};

// The line without its final line break. Text that is not UTF-8 gets replacement characters in
// JSON.
std::string FormatLogLine(LogLevel level, absl::string_view message, absl::Time now,
                          absl::Span<const LogField> fields = {},
                          LogFormat format = LogFormat::kText);

void Log(LogLevel level, absl::string_view message, absl::Span<const LogField> fields = {});

// Waits for the lines so far to be written, for `timeout` at most; whether they are. For a process
// that ends without exit(), and for tests.
bool FlushLog(absl::Duration timeout);

// Lines that were dropped since the start.
int64_t LogLinesDropped();

inline void LogInfo(absl::string_view message) { Log(LogLevel::kInfo, message); }
inline void LogWarning(absl::string_view message) { Log(LogLevel::kWarning, message); }
inline void LogError(absl::string_view message) { Log(LogLevel::kError, message); }

}  // namespace sru::server

#endif  // SRU_SERVER_BASE_LOG_H_
