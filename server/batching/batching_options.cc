#include "server/batching/batching_options.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "base/status.h"
#include "kernels/data_type.h"
#include "kernels/enum_names.h"

namespace sru::server::batching {
namespace {

constexpr int64_t kIntMax = 1 << 30;

absl::StatusOr<std::vector<int>> ParseDevices(absl::string_view flag, absl::string_view text) {
  std::vector<int> devices;
  if (text.empty()) return devices;
  for (const absl::string_view number : absl::StrSplit(text, ',')) {
    int device = 0;
    if (!absl::SimpleAtoi(number, &device)) {
      return InvalidArgument(
          "--", flag, ": expected numbers of GPUs with commas, such as 0,1, found '", text, "'");
    }
    devices.push_back(device);
  }
  return devices;
}

std::vector<std::pair<std::string, kernels::DataType>> DataTypeChoices() {
  std::vector<std::pair<std::string, kernels::DataType>> choices;
  for (const kernels::DataType type : kernels::kAllDataTypes) {
    choices.emplace_back(kernels::DataTypeName(type), type);
  }
  return choices;
}

// "--backend=cuda", with "or" where there are several.
std::string BackendsWithDevices() {
  std::vector<std::string> flags;
  for (const std::string& name : kernels::BackendNames()) {
    if (kernels::BackendHasDevices(name)) flags.push_back(absl::StrCat("--backend=", name));
  }
  return Flags::JoinChoices(flags);
}

}  // namespace

void AddFlags(BatchingOptions* options, Flags* flags) {
  flags->Add("backend", &options->backend,
             "auto, cpu, cuda or reference (slow, for comparison). auto takes the "
             "fastest that works on this machine; the log says why a GPU was left out.");
  flags->AddChoice(
      "dtype", &options->compile.dtype, DataTypeChoices(),
      absl::StrCat(kernels::ListNames<kernels::DataTypeName>(),
                   ": how weights and activations are stored. int8 (backends cpu and "
                   "reference): weights in 8 bits with a scale per column. States and sums are "
                   "always float32."));
  EngineOptions& engine = options->engine;
  flags->Add("instances", &engine.instances, {0, 1024},
             "Most batches of a model at once. 0 = as many as there are workers: two per GPU; on a "
             "CPU one per core that the process may use, as far as a quarter of its memory has "
             "room for their workspaces.");
  flags->Add("pin_cores", &options->pin_cores,
             "Keep each worker on one core. For machines that run nothing else.");
  flags->AddParsed("devices", &options->hardware.cuda_devices,
                   absl::StrJoin(options->hardware.cuda_devices, ","), ParseDevices,
                   "GPUs to serve on, as the driver numbers them, such as 0,1. Empty = all.");
  flags->Add("gpu_memory_limit_mb", &options->gpu_memory_limit_mb, {0, kIntMax},
             "Memory of each GPU for weights and workspaces, in units of 10^6 bytes. 0 = "
             "nine tenths of what is free at the start.");
  flags->Add("state_memory_mb", &options->state_memory_mb, {1, kIntMax, /*or_zero=*/true},
             "Memory for the states of sequences, per GPU or of the processor, in units "
             "of 10^6 bytes. Beyond it calls wait or get RESOURCE_EXHAUSTED. 0 = a tenth "
             "of what is free at the start, at least 16.");
  flags->Add("prefix_cache_mb", &options->prefix_cache_mb, {0, kIntMax},
             "Part of --state_memory_mb, per model, for states of earlier prompts, in "
             "units of 10^6 bytes. A prompt of Generate that begins like an earlier one "
             "of the same caller is computed from there on, with the same result. 0 = "
             "none.");
  BatcherOptions& batcher = engine.batcher;
  flags->Add("max_batch_tokens", &batcher.max_batch_tokens, {1, 1 << 22},
             "Token budget of one batch. Larger batches raise throughput and the latency "
             "of each call.");
  flags->Add("max_queue_tokens", &batcher.max_queue_tokens, {1, kIntMax},
             "Most tokens that may wait per model; further calls get RESOURCE_EXHAUSTED "
             "at once. Callers with little waiting share half as much again.");

  flags->Group(Flags::kRarelyChanged);
  flags->Add("cpu_isa", &options->hardware.cpu_isa,
             "Instruction set of backend cpu: auto (the best of this machine), avx2, "
             "avx512, avx512_bf16, amx; on arm64 neon.");
  flags->AddChoice<bool>(
      "fuse_layers", &options->hardware.cuda_fuse_layers, {{"auto", true}, {"none", false}},
      "Which bfloat16 layers run as one GPU kernel each, with fewer launches and "
      "unrounded products: auto (input of at most 128 values) or none.");
  flags->Add("max_batch_sequences", &batcher.max_batch_sequences, {1, 1 << 20},
             "Most sequences in one batch.");
  flags->AddTime("max_queue_delay_us", &batcher.max_queue_delay, absl::Microseconds(1),
                 {absl::ZeroDuration(), absl::Seconds(10)},
                 "Microseconds that a batch may wait for more sequences. 0 = it starts as "
                 "soon as a worker is free.");
  flags->Add("max_queue_sequences", &batcher.max_queue_sequences, {1, kIntMax},
             "Most sequences that may wait per model; further calls get "
             "RESOURCE_EXHAUSTED at once.");
}

absl::Status ValidateBatchingOptions(const BatchingOptions& options) {
  const std::string& backend = options.backend;
  std::vector<std::string> backends = kernels::BackendNames();
  backends.insert(backends.begin(), "auto");
  if (std::find(backends.begin(), backends.end(), backend) == backends.end()) {
    return InvalidArgument("--backend: expected ", Flags::JoinChoices(backends), ", found '",
                           backend, "'");
  }
  const std::vector<int>& devices = options.hardware.cuda_devices;
  if (!devices.empty() && backend != "auto" && !kernels::BackendHasDevices(backend)) {
    return InvalidArgument("--devices: names GPUs, but --backend is ", backend, "; use ",
                           BackendsWithDevices());
  }
  const bool distinct = std::set<int>(devices.begin(), devices.end()).size() == devices.size();
  if (!devices.empty() && (!distinct || *std::min_element(devices.begin(), devices.end()) < 0)) {
    return InvalidArgument("--devices: expected different numbers from 0 on, such as 0,1, found '",
                           absl::StrJoin(devices, ","), "'");
  }
  if (options.state_memory_mb > 0 && options.prefix_cache_mb > options.state_memory_mb) {
    return InvalidArgument("--prefix_cache_mb: expected at most --state_memory_mb, which is ",
                           options.state_memory_mb, ", found ", options.prefix_cache_mb);
  }
  const BatcherOptions& batcher = options.engine.batcher;
  if (batcher.max_queue_tokens < batcher.max_batch_tokens) {
    return InvalidArgument("--max_queue_tokens: expected at least --max_batch_tokens, which is ",
                           batcher.max_batch_tokens, ", found ", batcher.max_queue_tokens);
  }
  return absl::OkStatus();
}

}  // namespace sru::server::batching
