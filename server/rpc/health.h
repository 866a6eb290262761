// Health: the state of each service and model, and grpc.health.v1.Health, which tells it.
// Thread-safe.
//
//   Health health;
//   table rows: health.Methods()
//   health.Set("trec", true);
//   ...
//   health.Shutdown();
//
// It answers as the health service of gRPC's library does, also where a request is wrong; the error
// of a name that is too long says so.
#ifndef SRU_SERVER_RPC_HEALTH_H_
#define SRU_SERVER_RPC_HEALTH_H_

#include <cstddef>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/mutex.h"
#include "server/calls/method.h"

namespace sru::server::rpc {

inline constexpr char kHealthService[] = "grpc.health.v1.Health";

// How many calls of Watch may be open at a time, and of one address.
inline constexpr size_t kMaxWatches = 1024;
inline constexpr size_t kMaxWatchesOfAddress = kMaxWatches / 4;

// Must outlive its calls.
class Health {
 public:
  // The server as a whole, "", is serving until Set() says otherwise.
  Health();
  ~Health();
  Health(const Health&) = delete;
  Health& operator=(const Health&) = delete;

  // The rows of Check and Watch.
  std::vector<calls::Method> Methods();

  void Set(const std::string& service, bool serving);
  // Nothing is serving any more, whatever Set() says later.
  void Shutdown();

 private:
  class CheckCall;
  class WatchCall;

  // The numbers of the protocol.
  enum class State : char { kServing = 1, kNotServing = 2, kServiceUnknown = 3 };

  State StateOf(const std::string& service) const;
  // Has the watches look again.
  void Tell();

  mutable Mutex mutex_;
  bool shut_down_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<std::string, bool> serving_ ABSL_GUARDED_BY(mutex_);
  std::set<std::shared_ptr<WatchCall>> watches_ ABSL_GUARDED_BY(mutex_);
  std::multiset<std::string> addresses_ ABSL_GUARDED_BY(mutex_);  // of the watches
};

}  // namespace sru::server::rpc

#endif  // SRU_SERVER_RPC_HEALTH_H_
