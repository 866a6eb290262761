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
  return JoinChoices(flags);
}

}  // namespace

void AddFlags(BatchingOptions* options, FlagTable* flags) {
  flags->Add("backend", &options->backend,
             "auto, cpu, cuda or reference. auto takes the fastest that this build and machine "
             "have.");
  flags->AddChoice(
      "dtype", &options->compile.dtype, DataTypeChoices(),
      absl::StrCat(kernels::ListNames<kernels::DataTypeName>(),
                   ": how weights and activations are stored. int8: weights in 8 bits "
                   "with a scale per column, on backends cpu and reference. States and "
                   "sums are always float32."));
  flags->Add("cpu_isa", &options->hardware.cpu_isa,
             "Instruction set of backend cpu: auto (the best of this machine), avx2, avx512, "
             "avx512_bf16, amx; on arm64 neon.");
  flags->Add("cpu_threads", &options->hardware.cpu_threads, {0, 1024},
             "Most cores that one large batch of backend cpu may use when others are idle. 0 = "
             "all.");
  EngineOptions& engine = options->engine;
  flags->Add("instances", &engine.instances, {0, 1024},
             "Workers per model, each runs one batch at a time; they are dealt out to the GPUs in "
             "turn. 0 = two per GPU; on the CPU one per core that the process may use (its control "
             "group's limit counts), as far as a quarter of its memory has room for them.");
  flags->Add("pin_cores", &engine.pin_cores,
             "Keep each worker on one core, out of those that the process may use; with more "
             "workers than cores they share them evenly. For machines that run nothing else.");
  flags->AddMicroseconds(
      "compute_turn_us", &engine.compute_turn, {absl::ZeroDuration(), absl::Seconds(1)},
      "After so many microseconds of work at a time, a worker lets those that wait go first: "
      "threads "
      "that take, answer and refuse calls, callers and models that have had less. 0 = never.");
  flags->AddParsed("devices", &options->hardware.cuda_devices,
                   absl::StrJoin(options->hardware.cuda_devices, ","), ParseDevices,
                   "GPUs to serve on, as the driver numbers them, such as 0,1. Empty = every GPU "
                   "of the machine.");
  flags->Add("gpu_memory_limit_mb", &options->gpu_memory_limit_mb, {0, kIntMax},
             "How much of each GPU weights and workspaces may take, in units of 10^6 bytes. The "
             "server does not start when they need more. 0 = nine tenths of what is free at the "
             "start.");
  flags->Add(
      "state_memory_mb", &options->state_memory_mb, {1, kIntMax, /*or_zero=*/true},
      "How much memory the states of sequences may take where models run (on each GPU, or of "
      "the processor), over all models, in units of 10^6 bytes; over it calls get "
      "RESOURCE_EXHAUSTED. 0 = a tenth of what is free at the start, at least 16.");
  flags->Add("prefix_cache_mb", &options->prefix_cache_mb, {0, kIntMax},
             "How much of --state_memory_mb each model may keep, on each GPU or of the processor's "
             "memory, for states after the beginnings of prompts of Generate, in units of 10^6 "
             "bytes: a prompt that begins as an earlier one of the same caller goes on from there, "
             "with the same result. 0 = none.");
  flags->Add("prefix_cache_shared", &options->prefix_cache_shared,
             "Prompts go on from what any caller's earlier ones began with (--prefix_cache_mb). "
             "Callers can then find out, by how long their guesses take, how others' prompts "
             "begin.");
  flags->Add("allow_tf32", &options->hardware.cuda_tf32,
             "Lets float32 products on a GPU round their input to TF32: about three digits instead "
             "of seven, and faster.");
  flags->AddChoice<int>(
      "fuse_layers", &options->hardware.cuda_fuse_max_input,
      {{"auto", kernels::kFuseWhereFaster},
       {"all", kernels::kFuseAll},
       {"none", kernels::kFuseNone}},
      "Which bfloat16 layers run as one GPU kernel each, with fewer launches and products that are "
      "not rounded: auto (those whose input has at most 128 values, where an H100 is faster with "
      "it), "
      "all (at most 512 values) or none. scripts/gpu_report.sh compares all with none "
      "on your GPU.");
  flags->AddMicroseconds(
      "gpu_poll_us", &options->gpu_poll, {absl::Microseconds(-1), absl::Seconds(1)},
      "How long a worker that waits for its GPU keeps asking whether the batch is done, before it "
      "sleeps until the GPU wakes it. Saves the time to wake up, and takes the worker's core "
      "meanwhile. 0 = it sleeps at once; -1 = 50 where the process may use at least four cores, "
      "else 0.");
  flags->Add("gpu_dependent_launch", &options->hardware.cuda_dependent_launch,
             "Starts each GPU kernel before the one ahead of it has ended, and has it wait there, "
             "which saves the time between two: programmatic dependent launch, on GPUs of compute "
             "capability 9.0 or newer with CUDA 12.3 or newer; others ignore it. The results are "
             "the same. Off by default: an H100 gained nothing by it.");
  BatcherOptions& batcher = engine.batcher;
  flags->Add("max_batch_tokens", &batcher.max_batch_tokens, {1, 1 << 22},
             "Token budget of one batch. Larger batches raise throughput and the latency of each "
             "call.");
  flags->Add("max_batch_sequences", &batcher.max_batch_sequences, {1, 1 << 20},
             "Most sequences in one batch.");
  flags->AddMicroseconds(
      "max_queue_delay_us", &batcher.max_queue_delay, {absl::ZeroDuration(), absl::Seconds(10)},
      "How long a batch may wait for more sequences, in microseconds. 0 = a batch starts as soon "
      "as a worker is free.");
  flags->Add("max_queue_tokens", &batcher.max_queue_tokens, {1, kIntMax},
             "Most tokens that wait per model; over it calls get RESOURCE_EXHAUSTED at once.");
  flags->Add("max_queue_sequences", &batcher.max_queue_sequences, {1, kIntMax},
             "Most sequences that wait per model; over it calls get RESOURCE_EXHAUSTED at once.");
  flags->AddChoice<bool>(
      "admission", &batcher.admission_by_deadline, {{"deadline", true}, {"none", false}},
      "deadline or none. deadline refuses a call at once with RESOURCE_EXHAUSTED when it cannot "
      "finish before its deadline by the measured speed of the model.");
}

absl::Status ValidateBatchingOptions(const BatchingOptions& options) {
  SRU_RETURN_UNLESS_OK(CheckRanges(options));
  const std::string& backend = options.backend;
  std::vector<std::string> backends = kernels::BackendNames();
  backends.insert(backends.begin(), "auto");
  if (std::find(backends.begin(), backends.end(), backend) == backends.end()) {
    return InvalidArgument("--backend: expected ", JoinChoices(backends), ", found '", backend,
                           "'");
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
  if (options.hardware.cuda_fuse_max_input == kernels::kFuseAll &&
      options.compile.dtype != kernels::DataType::kBFloat16) {
    return InvalidArgument("--fuse_layers: all fuses bfloat16 layers, but --dtype is ",
                           kernels::DataTypeName(options.compile.dtype), "; use --dtype=bfloat16");
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
