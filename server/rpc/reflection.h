// Server reflection: tells clients without generated code which services a port has and what their
// messages are. Answered here rather than by gRPC's own service, which parses every message of up to
// --max_message_bytes, fifty times as much memory as bytes, and holds a thread for each stream.
#ifndef SRU_SERVER_RPC_REFLECTION_H_
#define SRU_SERVER_RPC_REFLECTION_H_

#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "grpcpp/generic/async_generic_service.h"

namespace sru::server::rpc {

// One per gRPC server, which it must outlive. Thread-safe.
class Reflection {
 public:
  // `services` are listed, by their full names.
  explicit Reflection(std::vector<std::string> services) : services_(std::move(services)) {}
  Reflection(const Reflection&) = delete;
  Reflection& operator=(const Reflection&) = delete;

  // Whether the path is that of reflection, by its name of today or by its earlier one.
  static bool IsMethod(absl::string_view path);

  // Answers such a call. A message of more than 4 KiB or of many fields ends it with INVALID_ARGUMENT,
  // and a stream more than kMaxStreams with RESOURCE_EXHAUSTED.
  grpc::ServerGenericBidiReactor* Answer();

  // Each may hold an answer that its client does not take, at most all descriptors, some 100 kB.
  static constexpr int kMaxStreams = 32;

 private:
  class Call;

  const std::vector<std::string> services_;
  std::atomic<int> num_streams_{0};
};

}  // namespace sru::server::rpc

#endif  // SRU_SERVER_RPC_REFLECTION_H_
