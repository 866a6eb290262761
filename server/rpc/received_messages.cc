#include "server/rpc/received_messages.h"

#include <algorithm>

namespace sru::server::rpc {
namespace {

// From this size on, each message is counted by itself.
constexpr int64_t kLargeBytes = 4096;
constexpr unsigned kSampling = 16;

// Frames, a call's own headers, TLS records.
constexpr int64_t kCallBytes = 512;
// Metadata that a client repeats is sent as a few bytes, so it must not earn a call much credit.
constexpr int64_t kMostMetadataBytes = 2048;

int64_t HeaderBytes(const grpc::CallbackServerContext& call) {
  size_t bytes = 0;
  for (const auto& [name, value] : call.client_metadata()) bytes += name.size() + value.size();
  return kCallBytes + std::min(static_cast<int64_t>(bytes), kMostMetadataBytes);
}

}  // namespace

void ReceivedMessages::Note(transport::Listener* listener, const grpc::CallbackServerContext& call,
                            int64_t bytes) {
  total_bytes_.fetch_add(bytes, std::memory_order_relaxed);
  if (listener == nullptr) return;
  int64_t weight = 1;
  if (bytes < kLargeBytes) {
    static thread_local unsigned calls = 0;
    if (++calls % kSampling != 0) return;
    weight = kSampling;
  }
  listener->NoteDelivered(call.peer(), weight * (bytes + HeaderBytes(call)));
}

}  // namespace sru::server::rpc
