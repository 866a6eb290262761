// Server reflection: tells clients without generated code which services a port has and what their
// messages are. Answered here rather than by gRPC's own service, which parses every message of up
// to --max_message_bytes, fifty times as much memory as bytes, and holds a thread for each stream.
#ifndef SRU_SERVER_RPC_REFLECTION_H_
#define SRU_SERVER_RPC_REFLECTION_H_

#include <cstddef>
#include <string>
#include <vector>

#include "server/calls/method.h"

namespace sru::server::rpc {

// Each may hold an answer that its client does not take, at most all descriptors, some 100 kB.
inline constexpr size_t kMaxReflectionStreams = 32;

// The rows of reflection on a port that has `services`, by their full names. A message of more than
// 4 KiB or of many fields ends the call with INVALID_ARGUMENT, and a stream more than
// kMaxReflectionStreams, or than a quarter of them for one caller, with RESOURCE_EXHAUSTED.
std::vector<calls::Method> ReflectionMethods(std::vector<std::string> services);

}  // namespace sru::server::rpc

#endif  // SRU_SERVER_RPC_REFLECTION_H_
