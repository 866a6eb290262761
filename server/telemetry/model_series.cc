#include "server/telemetry/model_series.h"

#include <algorithm>

namespace sru::server::telemetry {

Buckets DurationBuckets() {
  return {50e-6, 100e-6, 200e-6, 500e-6, 1e-3, 2e-3, 5e-3, 10e-3, 20e-3,
          50e-3, 100e-3, 200e-3, 500e-3, 1,    2,    5,    10};
}

Buckets SizeBuckets() {
  return {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536};
}

Buckets RatioBuckets() {
  return {0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1};
}

Buckets LoadDurationBuckets() {
  return {0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500};
}

RequestCounters::RequestCounters(const SeriesOwner& owner)
    : owner_(owner),
      family_(prometheus::BuildCounter()
                  .Name("sru_requests_total")
                  .Help("Calls that were answered, by gRPC code.")
                  .Register(owner.registry())) {}

RequestCounters::~RequestCounters() {
  for (std::atomic<prometheus::Counter*>& slot : counters_) {
    if (prometheus::Counter* const counter = slot.load()) family_.Remove(counter);
  }
}

void RequestCounters::Count(calls::MethodId method, absl::StatusCode code) {
  const size_t code_index =
      std::min(static_cast<size_t>(std::max(static_cast<int>(code), 0)), kNumCodes - 1);
  std::atomic<prometheus::Counter*>& slot =
      counters_[static_cast<size_t>(method) * kNumCodes + code_index];
  prometheus::Counter* counter = slot.load(std::memory_order_acquire);
  if (counter == nullptr) {
    // Add() gives the same counter for the same labels, so threads that race here get the same one.
    counter = &family_.Add(owner_.Labels(
        {{"method", calls::MethodName(method)},
         {"code", absl::StatusCodeToString(static_cast<absl::StatusCode>(code_index))}}));
    slot.store(counter, std::memory_order_release);
  }
  counter->Increment();
}

}  // namespace sru::server::telemetry
