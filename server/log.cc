#include "server/log.h"

#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace sru::server {
namespace {

const char* LevelName(LogLevel level) {
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

}  // namespace

std::string FormatLogLine(LogLevel level, absl::string_view message, absl::Time now) {
  std::string line =
      absl::StrCat(absl::FormatTime("%Y-%m-%dT%H:%M:%E6SZ", now, absl::UTCTimeZone()), " ",
                   LevelName(level), " ", message);
  for (char& c : line) {
    if (c == '\n' || c == '\r') c = ' ';
  }
  return line;
}

void Log(LogLevel level, absl::string_view message) {
  const std::string line = absl::StrCat(FormatLogLine(level, message, absl::Now()), "\n");
  // One write per line: stdio locks the stream, so lines of several threads do not mix.
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace sru::server
