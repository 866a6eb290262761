// Callers: all callers that the server knows of, by their ids, and how busy they are.
//
// Bounded: of callers whom nothing refers to, the ones that were seen last are kept, so a stranger
// with many addresses takes no memory; and of the busiest, kNamed have counts of their own, the
// rest one together. Each count only grows while it is there, as Prometheus expects: what a caller
// did while it was among the others stays with them.
//
// Thread-safe.
#ifndef SRU_SERVER_CALLERS_CALLERS_H_
#define SRU_SERVER_CALLERS_CALLERS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "base/mutex.h"
#include "server/base/clock.h"
#include "server/callers/caller.h"
#include "server/callers/caller_limits.h"

namespace sru::server::callers {

// The name of those who have no name, certificate or address.
inline constexpr char kAnonymous[] = "anonymous";

class Callers {
 public:
  static constexpr size_t kNamed = 20;
  static constexpr size_t kMostIdle = 4096;

  // `limits` are those of callers that were not given their own. The clock must outlive it and the
  // callers.
  Callers(CallerLimits limits, const Clock* clock) : limits_(std::move(limits)), clock_(*clock) {}

  // By the name of a token ("" if it has none, `id` tells it apart then) with the limits of its
  // line, which hold from now on.
  CallerPtr WithLimits(absl::string_view id, absl::string_view name, const CallerLimits& limits);
  CallerPtr ByCertificate(absl::string_view subject);
  // An address as AddressName() gives it, or kAnonymous.
  CallerPtr ByAddress(absl::string_view address);

  // Counts under one name.
  struct Level {
    std::string name;
    int64_t calls = 0;
    int64_t tokens = 0;
    int64_t refused = 0;
    int64_t in_flight = 0;
  };
  // The busiest by their names, then "unnamed", all tokens without a name, then "other". Chooses
  // them anew.
  std::vector<Level> Levels();

 private:
  struct Known {
    CallerPtr caller;
    bool apart = false;
    double score = 0;  // how busy it is, fading
  };

  CallerPtr Find(absl::string_view id, absl::string_view name, bool proven,
                 const CallerLimits* limits);
  void Forget() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SetApart(Known* known, bool apart) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const CallerLimits limits_;
  const Clock& clock_;
  const std::shared_ptr<CallerCounts> others_ = std::make_shared<CallerCounts>();
  const std::shared_ptr<CallerCounts> unnamed_ = std::make_shared<CallerCounts>();
  Mutex mutex_;
  absl::flat_hash_map<std::string, Known> known_ ABSL_GUARDED_BY(mutex_);
  size_t forget_at_ ABSL_GUARDED_BY(mutex_) = kMostIdle;
  size_t num_apart_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Time chosen_at_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
};

}  // namespace sru::server::callers

#endif  // SRU_SERVER_CALLERS_CALLERS_H_
