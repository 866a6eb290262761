// The server's options on the hardware, the workers and the queues.
#ifndef SRU_SERVER_BATCHING_BATCHING_OPTIONS_H_
#define SRU_SERVER_BATCHING_BATCHING_OPTIONS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "base/flags.h"
#include "kernels/backend.h"
#include "server/batching/engine.h"

namespace sru::server::batching {

struct BatchingOptions {
  std::string backend = "auto";  // "auto": see kernels::ChooseBackend()
  // Its cuda_memory_limit_bytes and cuda_poll are not read: gpu_memory_limit_mb has the one, and
  // the number of cores decides the other.
  kernels::BackendOptions hardware;
  int64_t gpu_memory_limit_mb = 0;  // of each GPU, 10^6 bytes; 0 = nine tenths of what is free
  // Of each device, for the states of sequences, 10^6 bytes; 0 = a tenth of what is free
  int64_t state_memory_mb = 0;
  // Of each device and model, for the states of prompts' beginnings, 10^6 bytes; 0 = none are kept
  int64_t prefix_cache_mb = 0;
  bool pin_cores = false;  // each worker stays on one core
  kernels::CompileOptions compile;
  EngineOptions
      engine;  // of each model; its state_budgets and prefix_cache_bytes follow from those above
};

void AddFlags(BatchingOptions* options, Flags* flags);

// kInvalidArgument names the flag.
absl::Status ValidateBatchingOptions(const BatchingOptions& options);

}  // namespace sru::server::batching

#endif  // SRU_SERVER_BATCHING_BATCHING_OPTIONS_H_
