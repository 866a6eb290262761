// Counts the bytes of the messages that have arrived whole, without headers, for a metric.
// Thread-safe.
#ifndef SRU_SERVER_CALLS_MESSAGES_RECEIVED_MESSAGES_H_
#define SRU_SERVER_CALLS_MESSAGES_RECEIVED_MESSAGES_H_

#include <atomic>
#include <cstdint>

namespace sru::server::calls {

class ReceivedMessages {
 public:
  void Add(int64_t bytes) { total_bytes_.fetch_add(bytes, std::memory_order_relaxed); }
  int64_t total_bytes() const { return total_bytes_.load(std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> total_bytes_{0};
};

}  // namespace sru::server::calls

#endif  // SRU_SERVER_CALLS_MESSAGES_RECEIVED_MESSAGES_H_
