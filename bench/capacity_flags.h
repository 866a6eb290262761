// The flags of sru_bench capacity.
#ifndef SRU_BENCH_CAPACITY_FLAGS_H_
#define SRU_BENCH_CAPACITY_FLAGS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "bench/capacity_autoscaler.h"
#include "bench/capacity_measure.h"
#include "bench/capacity_process.h"
#include "client/flag_set.h"

namespace sru::bench {

struct CapacityFlags {
  CapacityModelOptions model = {"models/pretrained/trec", "cpu", "auto", "float32"};
  std::string server = ServerBesideThisProgram();
  std::string speed;
  std::string save_speed;
  double measure_s = 3;
  int cores = 0;
  double call_us = -1;
  double sequence_us = -1;
  double turn_us = -1;
  double crowd_us = -1;
  double wake_us = -1;
  bool pauses = true;

  double rate = 0;
  int sequences = 1;
  std::string lengths;
  std::string length_file;
  std::string input;
  double low = 0;
  absl::Duration deadline = absl::Seconds(1);
  absl::Duration p99 = absl::Milliseconds(20);
  double refused = 0.001;
  int spare = 1;
  int servers = 0;
  bool client_on_machine = false;
  int64_t calls = 40000;
  uint64_t seed = 1;
  bool json = false;

  std::string instances;
  std::string max_batch_tokens;
  std::string max_queue_delay_us = "0";
  int max_batch_sequences = 256;
  int64_t max_queue_tokens = 65536;
  int64_t max_queue_sequences = 8192;
  std::string admission = "deadline";
  double compute_turn_us = 200;
  double read_pause_us = 2000;
  int max_concurrent_streams = 512;
  int connections = 2;

  std::string events;
  bool autoscale = false;
  absl::Duration duration = absl::Seconds(30);
  int clients = 100;
  absl::Duration network = absl::Microseconds(100);
  absl::Duration drain_delay = absl::Seconds(5);
  absl::Duration startup = absl::Seconds(20);
  absl::Duration discover = absl::ZeroDuration();
  AutoscalerOptions autoscaler;
  int sample = 1;
  int windows = 30;
  std::string svg;

  // Whether a fleet is simulated rather than one of its servers.
  bool has_fleet() const { return !events.empty() || autoscale; }

  void AddFlags(client::FlagSet* flags);
  // kInvalidArgument names the flag that is out of range, or that does not go with another.
  absl::Status Check() const;
};

}  // namespace sru::bench

#endif  // SRU_BENCH_CAPACITY_FLAGS_H_
