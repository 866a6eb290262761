// The server's options: what the command line and the environment may say, checked once at start.
//
// Each flag is also read from the environment as SRU_ + its upper-case name; the command line wins.
#ifndef SRU_SERVER_OPTIONS_H_
#define SRU_SERVER_OPTIONS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "kernels/backend.h"
#include "models/repository.h"
#include "server/base/listen_address.h"
#include "server/base/scheduling.h"
#include "server/compat/grpc_version.h"
#include "server/http/try_access.h"
#include "server/lifecycle/model_control.h"
#include "server/rpc/memory_options.h"
#include "server/telemetry/logging_options.h"
#include "server/transport/security_options.h"

namespace sru::server {

struct Options {
  std::string model_repository;
  // A gRPC that strangers can stop is within reach of this machine only, unless somebody says so.
  ListenAddress listen = {kGrpcWithstandsFloods ? "0.0.0.0" : "127.0.0.1", 50051};
  ListenAddress metrics_listen = {"0.0.0.0", 9090};
  std::optional<ListenAddress> admin_listen;  // nothing: no admin service

  ModelControl model_control = ModelControl::kStatic;
  absl::Duration poll_interval = absl::Seconds(5);
  absl::Duration empty_repository_grace = absl::Seconds(300);
  models::VersionPolicy version_policy;
  std::vector<std::string> load_models;  // at the start, when model_control is explicit
  TryAccess status_page_try = TryAccess::kLocal;
  std::vector<std::string> status_page_hosts;  // names by which pages are shown; page_host.h

  std::string backend = "auto";  // "auto": the first of kernels::AvailableBackends()
  kernels::DataType dtype = kernels::DataType::kFloat32;
  std::string cpu_isa = "auto";     // kernels::BackendOptions::cpu_isa
  int cpu_threads = 0;              // kernels::BackendOptions::cpu_threads
  int instances = 0;                // workers per model; 0 = what suits the backend
  std::vector<int> devices;         // GPUs by the driver's number; empty = all
  int64_t gpu_memory_limit_mb = 0;  // of each GPU, 10^6 bytes; 0 = nine tenths of what is free
  bool allow_tf32 = false;
  bool fuse_layers = false;
  bool pin_cores = false;
  Scheduling scheduling = Scheduling::kBatch;  // of the process; main.cc applies it
  absl::Duration compute_turn = absl::Microseconds(200);
  absl::Duration read_pause = absl::Milliseconds(2);

  int max_batch_tokens = 4096;
  int max_batch_sequences = 256;
  absl::Duration max_queue_delay = absl::ZeroDuration();
  int64_t max_queue_tokens = 65536;
  int64_t max_queue_sequences = 8192;
  bool admission_by_deadline = true;

  absl::Duration drain_timeout = absl::Seconds(30);
  absl::Duration drain_delay = absl::ZeroDuration();

  int max_sequence_tokens = 2048;
  int max_sequences_per_request = 256;
  int max_message_bytes = 4 << 20;
  int max_concurrent_streams = 512;  // per connection

  SecurityOptions security;
  ConnectionLimits connections;
  MemoryOptions memory;
  LoggingOptions logging;
};

// The names of all flags of the server.
std::vector<absl::string_view> FlagNames();

// kInvalidArgument names the flag, what was expected and what was found.
absl::Status ValidateOptions(const Options& options);

// For the log at the start: each listener that strangers reach though `grpc_version` cannot stand
// them, with what to do about it. Empty where gRPC withstands them (`withstands_floods`), and with
// client certificates, without which nobody gets that far.
std::vector<std::string> ExposureWarnings(const Options& options, absl::string_view grpc_version,
                                          bool withstands_floods);

// Sets each flag of this server that the environment names; `get_env` gives null for a variable
// that is not set. Call before the command line is parsed. kInvalidArgument names the variable.
absl::Status ApplyEnvironment(const std::function<const char*(const char*)>& get_env);

// The flags' current values, validated.
absl::StatusOr<Options> OptionsFromFlags();

// What --help prints: every flag with its meaning, default and environment variable.
std::string HelpText();

// What --version prints.
std::string VersionText();

}  // namespace sru::server

#endif  // SRU_SERVER_OPTIONS_H_
