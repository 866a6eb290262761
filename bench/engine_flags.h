// Flags that the subcommands layer and model share: which backend computes, and for how long it is
// measured.
#ifndef SRU_BENCH_ENGINE_FLAGS_H_
#define SRU_BENCH_ENGINE_FLAGS_H_

#include <string>

#include "absl/status/statusor.h"
#include "client/flag_set.h"
#include "kernels/backend.h"
#include "kernels/bench/measure.h"

namespace sru::bench {

struct EngineFlags {
  std::string backend = "cpu";
  std::string cpu_isa = "auto";
  int rounds = 51;
  double seconds = 1;
  int core = -1;
  bool json = false;

  void AddFlags(client::FlagSet* flags);

  // The backend's options, for one thread.
  kernels::BackendOptions Hardware() const;
  // kInvalidArgument names --rounds.
  absl::StatusOr<kernels::Rounds> Rounds() const;
};

}  // namespace sru::bench

#endif  // SRU_BENCH_ENGINE_FLAGS_H_
