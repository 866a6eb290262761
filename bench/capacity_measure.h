// Measures what the engine takes on this machine, without a server: the times of batches, and the pauses in
// which the machine's cores do something else.
#ifndef SRU_BENCH_CAPACITY_MEASURE_H_
#define SRU_BENCH_CAPACITY_MEASURE_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/capacity_speed.h"
#include "models/model.h"

namespace sru::bench {

struct CapacityModelOptions {
  std::string path;  // <repository>/<model> or <repository>/<model>/<version>
  std::string backend = "cpu";
  std::string cpu_isa = "auto";
  std::string dtype = "float32";
};

struct CapacityModel {
  std::string repository;
  std::shared_ptr<const models::Model> model;
};

// The model at the path, in its highest version if the path names none. kInvalidArgument unless it is a
// classifier or an encoder.
absl::StatusOr<CapacityModel> LoadCapacityModel(const CapacityModelOptions& options);

// Times batches of one sequence up to as many as `max_batch_tokens` and `max_batch_sequences` allow, with
// lengths of the distribution, half of them and twice of them, for about `seconds`; medians. Meanwhile
// `threads` - 1 other threads compute, as in a busy server.
absl::StatusOr<std::vector<BatchSample>> MeasureBatches(const models::Model& model,
                                                        const std::vector<int>& lengths,
                                                        int max_batch_tokens,
                                                        int max_batch_sequences, int threads,
                                                        double seconds);

// One thread for each core reads the clock for so long; who had to wait for more than a tenth of a
// millisecond had no core.
Pauses MeasurePauses(int threads, double seconds);

// The lengths of texts in tokens. kInvalidArgument if the model takes no text, or a text has no tokens.
absl::StatusOr<std::vector<int>> LengthsOfTexts(const models::Model& model,
                                                const std::vector<std::string>& texts);

// The processor, as the system names it.
std::string MachineName();

}  // namespace sru::bench

#endif  // SRU_BENCH_CAPACITY_MEASURE_H_
