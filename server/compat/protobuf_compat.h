// What this project uses of protobuf and what its versions name differently. Tested with 3.21
// (Debian 12 and 13) and 36. Thread-safe.
#ifndef SRU_SERVER_COMPAT_PROTOBUF_COMPAT_H_
#define SRU_SERVER_COMPAT_PROTOBUF_COMPAT_H_

#include "google/protobuf/arena.h"
#include "google/protobuf/stubs/common.h"

#if GOOGLE_PROTOBUF_VERSION >= 4022000  // it logs through Abseil
#include "absl/base/log_severity.h"
#include "absl/log/globals.h"
#include "absl/log/initialize.h"
#else
#include "google/protobuf/stubs/logging.h"
#endif

namespace sru::server {

// A message that lives as long as the arena.
template <typename Message>
Message* CreateOnArena(google::protobuf::Arena* arena) {
#if GOOGLE_PROTOBUF_VERSION >= 5026000
  return google::protobuf::Arena::Create<Message>(arena);
#else
  return google::protobuf::Arena::CreateMessage<Message>(arena);
#endif
}

// Keeps protobuf's lines off standard error, for the whole process: the service tells the caller
// what is wrong with its bytes, and a stranger must not fill our log. Where protobuf logs through
// Abseil, that goes for all that does so, gRPC too; log sinks get their lines still, and what ends
// the process is still written.
inline void SilenceProtobufLog() {
#if GOOGLE_PROTOBUF_VERSION >= 4022000
  static const bool initialized = [] {
    absl::InitializeLog();  // before it everything is written; may be called once
    return true;
  }();
  static_cast<void>(initialized);
  absl::SetStderrThreshold(absl::LogSeverityAtLeast::kFatal);
#else
  google::protobuf::SetLogHandler(nullptr);
#endif
}

}  // namespace sru::server

#endif  // SRU_SERVER_COMPAT_PROTOBUF_COMPAT_H_
