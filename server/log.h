// Log lines for people and log collectors: one line per event on standard error,
//   2026-01-31T12:00:00.123456Z INFO  loaded model trec version 1
// Line breaks inside a message become spaces, so that an event is always one line. Thread-safe.
#ifndef SRU_SERVER_LOG_H_
#define SRU_SERVER_LOG_H_

#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace sru::server {

enum class LogLevel { kInfo, kWarning, kError };

// The line without its final line break.
std::string FormatLogLine(LogLevel level, absl::string_view message, absl::Time now);

void Log(LogLevel level, absl::string_view message);

inline void LogInfo(absl::string_view message) { Log(LogLevel::kInfo, message); }
inline void LogWarning(absl::string_view message) { Log(LogLevel::kWarning, message); }
inline void LogError(absl::string_view message) { Log(LogLevel::kError, message); }

}  // namespace sru::server

#endif  // SRU_SERVER_LOG_H_
