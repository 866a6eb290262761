// ReasonCounters: a family of Prometheus' counters, with one for each value of an enum. All exist
// from the start, so that an alert sees the first increase. Thread-safe.
#ifndef SRU_SERVER_TRANSPORT_REASON_COUNTERS_H_
#define SRU_SERVER_TRANSPORT_REASON_COUNTERS_H_

#include <array>
#include <cstddef>

#include "prometheus/counter.h"
#include "prometheus/registry.h"

namespace sru::server::transport {

// A counter without labels.
inline prometheus::Counter& AddCounter(prometheus::Registry* registry, const char* name,
                                       const char* help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(*registry).Add({});
}

// Must not outlive the registry. `names` are those of the enum's values, from 0 on.
template <typename Reason, size_t kCount>
class ReasonCounters {
 public:
  ReasonCounters(prometheus::Registry* registry, const char* name, const char* help,
                 const char* label, const char* const (&names)[kCount]) {
    auto& family = prometheus::BuildCounter().Name(name).Help(help).Register(*registry);
    for (size_t i = 0; i < kCount; ++i) counters_[i] = &family.Add({{label, names[i]}});
  }

  void Count(Reason reason) { counters_[static_cast<size_t>(reason)]->Increment(); }

 private:
  std::array<prometheus::Counter*, kCount> counters_{};
};

}  // namespace sru::server::transport

#endif  // SRU_SERVER_TRANSPORT_REASON_COUNTERS_H_
