#include "server/options.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "server/base/version.h"
#include "server/compat/grpc_version.h"
#include "server/http/page_host.h"

ABSL_FLAG(
    std::string, model_repository, "",
    "Directory with the models to serve: <model>/<version>/config.json and its neighbours, as "
    "models/FORMAT.md describes. Required.");
ABSL_FLAG(
    std::string, listen, sru::server::kGrpcWithstandsFloods ? "0.0.0.0:50051" : "127.0.0.1:50051",
    "HOST:PORT of the gRPC service; 0.0.0.0 takes IPv6 too, as gRPC does. Port 0 lets the system "
    "choose one; the server prints it. By default every interface, but 127.0.0.1 in a build with a "
    "gRPC before 1.60, which strangers can stop (--version says which one it is).");
ABSL_FLAG(
    std::string, metrics_listen, "0.0.0.0:9090",
    "HOST:PORT of the status page (/), /metrics, /healthz and /readyz. Port 0 lets the system "
    "choose one.");
ABSL_FLAG(std::string, status_page_try, "local",
          "off, local or all: who may try a model in the box of the status page. local: only who "
          "comes from this machine, also through kubectl port-forward or ssh -L.");
ABSL_FLAG(std::string, status_page_host, "",
          "Names by which people may open the status page, separated by commas, such as "
          "sru.example.org. IP addresses, localhost and names without a dot need not be listed. "
          "Other names are refused, since a web site could have its own point here. /metrics, "
          "/healthz and /readyz answer by every name.");
ABSL_FLAG(
    std::string, admin_listen, "",
    "HOST:PORT of AdminService (LoadModel, UnloadModel). Empty: there is none. Whoever reaches "
    "it can load and unload models: an address of the network, unlike 127.0.0.1:50052, needs "
    "--admin_tokens_file, --auth_tokens_file or --tls_client_ca.");
ABSL_FLAG(
    std::string, model_control, "static",
    "static, poll or explicit. static serves what the repository holds at the start; poll looks at "
    "it every --poll_interval_s and loads, reloads and unloads what was added, changed and "
    "removed; explicit loads what --load_models names and then what AdminService is told.");
ABSL_FLAG(double, poll_interval_s, 5.0,
          "With --model_control=poll, the time between two looks at the repository, in seconds. A "
          "change is acted upon when two looks in a row see the same.");
ABSL_FLAG(
    double, empty_repository_grace_s, 300.0,
    "With --model_control=poll, how many seconds a repository that has lost all its models at once "
    "must stay empty before they are unloaded: its volume may just not be mounted. 0 = none.");
ABSL_FLAG(std::string, version_policy, "latest:1",
          "Which versions of each model are served: latest:N, all, or named:A,B with version "
          "numbers.");
ABSL_FLAG(std::string, load_models, "",
          "With --model_control=explicit, names of the models to load at the start, separated by "
          "commas.");
ABSL_FLAG(std::string, backend, "auto",
          "auto, cpu, cuda or reference. auto takes the fastest that this build and machine have.");
ABSL_FLAG(std::string, dtype, "float32",
          "float32 or bfloat16: how weights and activations are stored. States and sums are always "
          "float32.");
ABSL_FLAG(std::string, cpu_isa, "auto",
          "Instruction set of backend cpu: auto (the best of this machine), avx2, avx512, "
          "avx512_bf16 or amx.");
ABSL_FLAG(int32_t, cpu_threads, 0,
          "Most cores that one large batch of backend cpu may use when others are idle. 0 = all.");
ABSL_FLAG(int32_t, instances, 0,
          "Workers per model, each runs one batch at a time; they are dealt out to the GPUs in "
          "turn. 0 = what suits the backend: one per core on the CPU, two per GPU.");
ABSL_FLAG(std::string, devices, "",
          "GPUs to serve on, as the driver numbers them, such as 0,1. Empty = every GPU of the "
          "machine.");
ABSL_FLAG(int64_t, gpu_memory_limit_mb, 0,
          "How much of each GPU weights and workspaces may take, in units of 10^6 bytes. The "
          "server does not start when they need more. 0 = nine tenths of what is free at the "
          "start.");
ABSL_FLAG(bool, allow_tf32, false,
          "Lets float32 products on a GPU round their input to TF32: about three digits instead of "
          "seven, and faster.");
ABSL_FLAG(bool, fuse_layers, false,
          "Runs bfloat16 layers on a GPU as one kernel each where their input has at most 512 "
          "values: fewer launches, and products that are not rounded. Meant for small batches; "
          "scripts/gpu_report.sh compares both on your GPU.");
ABSL_FLAG(bool, pin_cores, false,
          "Keep each worker on one core, out of those that the process may use; with more workers "
          "than cores they share them evenly. For machines that run nothing else.");
ABSL_FLAG(
    std::string, scheduling, "batch",
    "What the system's scheduler does when a thread of the server wakes. batch: it waits for "
    "its turn (SCHED_BATCH), which takes less time per call on a busy machine. normal: it may "
    "interrupt what runs, for machines where other programs compete for the cores. A policy "
    "that was set with chrt is left as it is.");
ABSL_FLAG(
    int32_t, compute_turn_us, 200,
    "After so many microseconds of work at a time, a worker lets the threads that wait for its "
    "core go first: those that take, answer and refuse calls, and other models. 0 = never.");
ABSL_FLAG(int32_t, max_batch_tokens, 4096,
          "Token budget of one batch. Larger batches raise throughput and the latency of each "
          "call.");
ABSL_FLAG(int32_t, max_batch_sequences, 256, "Most sequences in one batch.");
ABSL_FLAG(
    int64_t, max_queue_delay_us, 0,
    "How long a batch may wait for more sequences, in microseconds. 0 = a batch starts as soon "
    "as a worker is free.");
ABSL_FLAG(int64_t, max_queue_tokens, 65536,
          "Most tokens that wait per model; over it calls get RESOURCE_EXHAUSTED at once.");
ABSL_FLAG(int64_t, max_queue_sequences, 8192,
          "Most sequences that wait per model; over it calls get RESOURCE_EXHAUSTED at once.");
ABSL_FLAG(int32_t, read_pause_us, 2000,
          "When a call is refused because too much arrives, what its connection sends next may "
          "gather for so many microseconds: calls that are refused together leave more time to "
          "those that are accepted. 0 = it is read at once.");
ABSL_FLAG(
    std::string, admission, "deadline",
    "deadline or none. deadline refuses a call at once with RESOURCE_EXHAUSTED when it cannot "
    "finish before its deadline by the measured speed of the model.");
ABSL_FLAG(
    double, drain_timeout_s, 30.0,
    "After SIGTERM, the longest time in seconds until the server exits; what is in flight then "
    "is answered with UNAVAILABLE.");
ABSL_FLAG(
    double, drain_delay_s, 0.0,
    "After SIGTERM, how long new calls are still accepted while /readyz says 503, so that load "
    "balancers can turn away first. Part of --drain_timeout_s.");
ABSL_FLAG(int32_t, max_sequence_tokens, 2048,
          "Most tokens in one sequence. A longer one is refused, or cut when the call asks for it. "
          "At most --max_batch_tokens.");
ABSL_FLAG(int32_t, max_sequences_per_request, 256, "Most sequences in one call.");
ABSL_FLAG(int32_t, max_message_bytes, 4 << 20,
          "Largest request message in bytes; larger ones get RESOURCE_EXHAUSTED from gRPC.");
ABSL_FLAG(int32_t, max_concurrent_streams, 512,
          "Most calls that one connection may have open; a client keeps further ones back until "
          "earlier ones are answered. gRPC works slower per call the more are open.");

namespace sru::server {
namespace {

constexpr char kFlagNames[][32] = {"model_repository",
                                   "listen",
                                   "metrics_listen",
                                   "admin_listen",
                                   "model_control",
                                   "poll_interval_s",
                                   "empty_repository_grace_s",
                                   "version_policy",
                                   "load_models",
                                   "status_page_try",
                                   "status_page_host",
                                   "backend",
                                   "dtype",
                                   "cpu_isa",
                                   "cpu_threads",
                                   "instances",
                                   "pin_cores",
                                   "scheduling",
                                   "compute_turn_us",
                                   "read_pause_us",
                                   "devices",
                                   "gpu_memory_limit_mb",
                                   "allow_tf32",
                                   "fuse_layers",
                                   "max_batch_tokens",
                                   "max_batch_sequences",
                                   "max_queue_delay_us",
                                   "max_queue_tokens",
                                   "max_queue_sequences",
                                   "admission",
                                   "max_sequence_tokens",
                                   "max_sequences_per_request",
                                   "max_message_bytes",
                                   "max_concurrent_streams",
                                   "drain_timeout_s",
                                   "drain_delay_s"};

// Those above and those that other files of this folder declare.
std::vector<const char*> AllFlagNames() {
  std::vector<const char*> names(std::begin(kFlagNames), std::end(kFlagNames));
  for (const absl::Span<const char* const> more :
       {MemoryFlagNames(), SecurityFlagNames(), LoggingFlagNames()}) {
    names.insert(names.end(), more.begin(), more.end());
  }
  return names;
}

std::string EnvironmentName(absl::string_view flag) {
  return absl::StrCat("SRU_", absl::AsciiStrToUpper(flag));
}

absl::Status CheckRange(absl::string_view flag, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--", flag, ": expected ", low, " to ", high, ", found ", value));
}

absl::Status CheckDuration(absl::string_view flag, absl::Duration value, absl::Duration low,
                           absl::Duration high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--", flag, ": expected ", absl::FormatDuration(low), " to ",
                   absl::FormatDuration(high), ", found ", absl::FormatDuration(value)));
}

// The box of the status page takes tokens, and its port speaks no TLS.
absl::Status CheckStatusPageTry(const Options& o) {
  if (o.status_page_try != TryAccess::kAll || !o.security.tls_client_ca.empty()) {
    return absl::OkStatus();  // off, or from this machine only
  }
  SecurityOptions without_tls = o.security;
  without_tls.tls_cert.clear();
  if (CheckListenHost(without_tls, "metrics_listen", o.metrics_listen.host).ok()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "--status_page_try: with --auth_tokens_file, all would have tokens cross the network in the "
      "clear, as the port of the page (--metrics_listen) has no TLS; expected local or off, or "
      "--metrics_listen on 127.0.0.1, or --auth_without_tls where something in front of the server "
      "encrypts, found all with --metrics_listen=",
      o.metrics_listen.ToString()));
}

// "--backend=cuda", with "or" where there are several.
std::string BackendsWithDevices() {
  std::vector<std::string> flags;
  for (const std::string& name : kernels::BackendNames()) {
    if (kernels::BackendHasDevices(name)) flags.push_back(absl::StrCat("--backend=", name));
  }
  return absl::StrJoin(flags, " or ");
}

// Breaks `text` into lines of at most `width` characters, each after `indent`.
std::string Wrap(absl::string_view text, absl::string_view indent, size_t width) {
  std::string out;
  std::string line;
  for (absl::string_view word : absl::StrSplit(text, ' ')) {
    if (!line.empty() && line.size() + 1 + word.size() > width) {
      absl::StrAppend(&out, indent, line, "\n");
      line.clear();
    }
    absl::StrAppend(&line, line.empty() ? "" : " ", word);
  }
  absl::StrAppend(&out, indent, line, "\n");
  return out;
}

}  // namespace

std::vector<absl::string_view> FlagNames() {
  const std::vector<const char*> names = AllFlagNames();
  return {names.begin(), names.end()};
}

absl::Status ValidateOptions(const Options& o) {
  if (o.model_repository.empty()) {
    return absl::InvalidArgumentError(
        "--model_repository: expected the directory with the models, found nothing; give "
        "--model_repository=DIR or set SRU_MODEL_REPOSITORY");
  }
  const std::vector<std::string> backends = kernels::BackendNames();
  if (o.backend != "auto" &&
      std::find(backends.begin(), backends.end(), o.backend) == backends.end()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--backend: expected auto, ", absl::StrJoin(backends.begin(), backends.end() - 1, ", "),
        " or ", backends.back(), ", found '", o.backend, "'"));
  }
  if (!o.load_models.empty() && o.model_control != ModelControl::kExplicit) {
    return absl::InvalidArgumentError(
        "--load_models: has a meaning only with --model_control=explicit; otherwise every model of "
        "the repository is loaded");
  }
  for (const std::string& model : o.load_models) {
    if (!models::IsValidModelName(model)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--load_models: expected names of models separated by commas, found '", model, "'"));
    }
  }
  if (!o.devices.empty() && o.backend != "auto" && !kernels::BackendHasDevices(o.backend)) {
    return absl::InvalidArgumentError(absl::StrCat("--devices: names GPUs, but --backend is ",
                                                   o.backend, "; use ", BackendsWithDevices()));
  }
  if (o.fuse_layers && o.dtype != kernels::DataType::kBFloat16) {
    return absl::InvalidArgumentError(
        absl::StrCat("--fuse_layers: fuses bfloat16 layers, but --dtype is ",
                     kernels::DataTypeName(o.dtype), "; use --dtype=bfloat16"));
  }
  std::set<int> devices;
  for (int device : o.devices) {
    if (device < 0 || !devices.insert(device).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("--devices: expected different numbers from 0 on, such as 0,1, found '",
                       absl::StrJoin(o.devices, ","), "'"));
    }
  }
  constexpr int64_t kIntMax = 1 << 30;
  for (const absl::Status& status : {
           CheckRange("cpu_threads", o.cpu_threads, 0, 1024),
           CheckRange("instances", o.instances, 0, 1024),
           CheckRange("gpu_memory_limit_mb", o.gpu_memory_limit_mb, 0, kIntMax),
           CheckRange("max_batch_tokens", o.max_batch_tokens, 1, 1 << 22),
           CheckDuration("compute_turn_us", o.compute_turn, absl::ZeroDuration(), absl::Seconds(1)),
           CheckDuration("read_pause_us", o.read_pause, absl::ZeroDuration(), absl::Seconds(1)),
           CheckRange("max_batch_sequences", o.max_batch_sequences, 1, 1 << 20),
           CheckDuration("max_queue_delay_us", o.max_queue_delay, absl::ZeroDuration(),
                         absl::Seconds(10)),
           CheckRange("max_queue_tokens", o.max_queue_tokens, 1, kIntMax),
           CheckRange("max_queue_sequences", o.max_queue_sequences, 1, kIntMax),
           CheckDuration("poll_interval_s", o.poll_interval, absl::Milliseconds(10),
                         absl::Hours(24)),
           CheckDuration("empty_repository_grace_s", o.empty_repository_grace, absl::ZeroDuration(),
                         absl::Hours(24 * 365)),
           CheckDuration("drain_timeout_s", o.drain_timeout, absl::ZeroDuration(), absl::Hours(24)),
           CheckDuration("drain_delay_s", o.drain_delay, absl::ZeroDuration(), absl::Hours(24)),
           CheckRange("max_sequence_tokens", o.max_sequence_tokens, 1, 1 << 22),
           CheckRange("max_sequences_per_request", o.max_sequences_per_request, 1, 1 << 20),
           CheckRange("max_message_bytes", o.max_message_bytes, 1024, kIntMax),
           CheckRange("max_concurrent_streams", o.max_concurrent_streams, 1, kIntMax),
       }) {
    if (!status.ok()) return status;
  }
  if (o.max_sequence_tokens > o.max_batch_tokens) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--max_sequence_tokens: expected at most --max_batch_tokens, which is ", o.max_batch_tokens,
        ", found ", o.max_sequence_tokens, "; a longer sequence would never fit into a batch"));
  }
  if (o.max_queue_tokens < o.max_batch_tokens) {
    return absl::InvalidArgumentError(
        absl::StrCat("--max_queue_tokens: expected at least --max_batch_tokens, which is ",
                     o.max_batch_tokens, ", found ", o.max_queue_tokens));
  }
  if (o.drain_delay > o.drain_timeout) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--drain_delay_s: expected at most --drain_timeout_s, which is ",
        absl::FormatDuration(o.drain_timeout), ", found ", absl::FormatDuration(o.drain_delay)));
  }
  if (absl::Status status = ValidateSecurityOptions(o.security); !status.ok()) return status;
  if (absl::Status status = CheckListenHost(o.security, "listen", o.listen.host); !status.ok()) {
    return status;
  }
  std::optional<std::string> admin_host;
  if (o.admin_listen.has_value()) admin_host = o.admin_listen->host;
  if (absl::Status status = CheckAdminListenHost(o.security, admin_host); !status.ok()) {
    return status;
  }
  if (absl::Status status = CheckStatusPageTry(o); !status.ok()) return status;
  if (absl::Status status = ValidateMemoryOptions(o.memory); !status.ok()) return status;
  return ValidateConnectionLimits(o.connections);
}

std::vector<std::string> ExposureWarnings(const Options& options, absl::string_view grpc_version,
                                          bool withstands_floods) {
  std::vector<std::string> warnings;
  if (withstands_floods || !options.security.tls_client_ca.empty()) return warnings;
  const auto check = [&](absl::string_view flag, const ListenAddress& address) {
    if (IsLoopbackHost(address.host)) return;
    warnings.push_back(absl::StrCat(
        "--", flag, "=", address.ToString(), ": whoever reaches it can stop this server, with or ",
        "without a token: gRPC ", grpc_version, " has CVE-2023-33953, CVE-2023-44487 and ",
        "CVE-2023-32731, which were mended until 1.60. Use the container image, which has a "
        "current ",
        "gRPC, or client certificates (--tls_client_ca), or 127.0.0.1 behind nginx 1.26 or Envoy ",
        "1.27.1 or newer"));
  };
  check("listen", options.listen);
  if (options.admin_listen.has_value()) check("admin_listen", *options.admin_listen);
  return warnings;
}

absl::Status ApplyEnvironment(const std::function<const char*(const char*)>& get_env) {
  for (const char* name : AllFlagNames()) {
    const std::string variable = EnvironmentName(name);
    const char* value = get_env(variable.c_str());
    if (value == nullptr) continue;
    std::string error;
    if (!absl::FindCommandLineFlag(name)->ParseFrom(value, &error)) {
      return absl::InvalidArgumentError(
          absl::StrCat("environment variable ", variable, ": ", error));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Options> OptionsFromFlags() {
  Options options;
  options.model_repository = absl::GetFlag(FLAGS_model_repository);

  absl::StatusOr<ListenAddress> listen = ParseListenAddress("listen", absl::GetFlag(FLAGS_listen));
  if (!listen.ok()) return listen.status();
  options.listen = *listen;
  absl::StatusOr<ListenAddress> metrics_listen =
      ParseListenAddress("metrics_listen", absl::GetFlag(FLAGS_metrics_listen));
  if (!metrics_listen.ok()) return metrics_listen.status();
  options.metrics_listen = *metrics_listen;
  absl::StatusOr<TryAccess> status_page_try =
      ParseTryAccess("status_page_try", absl::GetFlag(FLAGS_status_page_try));
  if (!status_page_try.ok()) return status_page_try.status();
  options.status_page_try = *status_page_try;
  absl::StatusOr<std::vector<std::string>> status_page_hosts =
      ParsePageHostNames("status_page_host", absl::GetFlag(FLAGS_status_page_host));
  if (!status_page_hosts.ok()) return status_page_hosts.status();
  options.status_page_hosts = *std::move(status_page_hosts);

  if (const std::string admin = absl::GetFlag(FLAGS_admin_listen); !admin.empty()) {
    absl::StatusOr<ListenAddress> admin_listen = ParseListenAddress("admin_listen", admin);
    if (!admin_listen.ok()) return admin_listen.status();
    options.admin_listen = *admin_listen;
  }

  const std::string control = absl::GetFlag(FLAGS_model_control);
  if (control == "static") {
    options.model_control = ModelControl::kStatic;
  } else if (control == "poll") {
    options.model_control = ModelControl::kPoll;
  } else if (control == "explicit") {
    options.model_control = ModelControl::kExplicit;
  } else {
    return absl::InvalidArgumentError(
        absl::StrCat("--model_control: expected static, poll or explicit, found '", control, "'"));
  }
  options.poll_interval = absl::Seconds(absl::GetFlag(FLAGS_poll_interval_s));
  options.empty_repository_grace = absl::Seconds(absl::GetFlag(FLAGS_empty_repository_grace_s));
  absl::StatusOr<models::VersionPolicy> version_policy =
      models::ParseVersionPolicy(absl::GetFlag(FLAGS_version_policy));
  if (!version_policy.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--version_policy: ", version_policy.status().message()));
  }
  options.version_policy = *std::move(version_policy);
  if (const std::string names = absl::GetFlag(FLAGS_load_models); !names.empty()) {
    options.load_models = absl::StrSplit(names, ',');
  }

  options.backend = absl::GetFlag(FLAGS_backend);
  const std::string dtype = absl::GetFlag(FLAGS_dtype);
  if (!kernels::ParseDataType(dtype, &options.dtype)) {
    return absl::InvalidArgumentError(absl::StrCat("--dtype: expected ",
                                                   kernels::ListNames<kernels::DataTypeName>(),
                                                   ", found '", dtype, "'"));
  }
  options.cpu_isa = absl::GetFlag(FLAGS_cpu_isa);
  options.cpu_threads = absl::GetFlag(FLAGS_cpu_threads);
  options.instances = absl::GetFlag(FLAGS_instances);
  options.pin_cores = absl::GetFlag(FLAGS_pin_cores);
  const std::string scheduling = absl::GetFlag(FLAGS_scheduling);
  if (scheduling != "batch" && scheduling != "normal") {
    return absl::InvalidArgumentError(
        absl::StrCat("--scheduling: expected batch or normal, found '", scheduling, "'"));
  }
  options.scheduling = scheduling == "batch" ? Scheduling::kBatch : Scheduling::kNormal;
  options.compute_turn = absl::Microseconds(absl::GetFlag(FLAGS_compute_turn_us));
  options.read_pause = absl::Microseconds(absl::GetFlag(FLAGS_read_pause_us));
  const std::string devices = absl::GetFlag(FLAGS_devices);
  for (absl::string_view text : absl::StrSplit(devices, ',')) {
    int device = 0;
    if (devices.empty()) break;
    if (!absl::SimpleAtoi(text, &device)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--devices: expected numbers of GPUs with commas, such as 0,1, found '", devices, "'"));
    }
    options.devices.push_back(device);
  }
  options.gpu_memory_limit_mb = absl::GetFlag(FLAGS_gpu_memory_limit_mb);
  options.allow_tf32 = absl::GetFlag(FLAGS_allow_tf32);
  options.fuse_layers = absl::GetFlag(FLAGS_fuse_layers);
  options.max_batch_tokens = absl::GetFlag(FLAGS_max_batch_tokens);
  options.max_batch_sequences = absl::GetFlag(FLAGS_max_batch_sequences);
  options.max_queue_delay = absl::Microseconds(absl::GetFlag(FLAGS_max_queue_delay_us));
  options.max_queue_tokens = absl::GetFlag(FLAGS_max_queue_tokens);
  options.max_queue_sequences = absl::GetFlag(FLAGS_max_queue_sequences);
  const std::string admission = absl::GetFlag(FLAGS_admission);
  if (admission != "deadline" && admission != "none") {
    return absl::InvalidArgumentError(
        absl::StrCat("--admission: expected deadline or none, found '", admission, "'"));
  }
  options.admission_by_deadline = admission == "deadline";
  options.drain_timeout = absl::Seconds(absl::GetFlag(FLAGS_drain_timeout_s));
  options.drain_delay = absl::Seconds(absl::GetFlag(FLAGS_drain_delay_s));
  options.max_sequence_tokens = absl::GetFlag(FLAGS_max_sequence_tokens);
  options.max_sequences_per_request = absl::GetFlag(FLAGS_max_sequences_per_request);
  options.max_message_bytes = absl::GetFlag(FLAGS_max_message_bytes);
  options.max_concurrent_streams = absl::GetFlag(FLAGS_max_concurrent_streams);

  absl::StatusOr<SecurityOptions> security = SecurityOptionsFromFlags();
  if (!security.ok()) return security.status();
  options.security = *std::move(security);
  absl::StatusOr<ConnectionLimits> connections = ConnectionLimitsFromFlags();
  if (!connections.ok()) return connections.status();
  options.connections = *connections;
  absl::StatusOr<MemoryOptions> memory = MemoryOptionsFromFlags();
  if (!memory.ok()) return memory.status();
  options.memory = *memory;
  absl::StatusOr<LoggingOptions> logging = LoggingOptionsFromFlags();
  if (!logging.ok()) return logging.status();
  options.logging = *logging;

  if (absl::Status status = ValidateOptions(options); !status.ok()) return status;
  return options;
}

std::string HelpText() {
  std::string text =
      "sru_server: serves Simple Recurrent Unit models over gRPC.\n\n"
      "  sru_server --model_repository=models/pretrained\n\n"
      "Ask it with sru_client, or from any language with proto/sru/v1/inference.proto.\n"
      "SIGTERM drains: not ready first, then what is in flight is answered, then exit.\n"
      "SIGHUP looks at once at the repository (if it polls) and at the files of TLS and tokens.\n"
      "Each flag is also read from the environment variable in brackets; the flag wins.\n\n";
  for (const char* name : AllFlagNames()) {
    const absl::CommandLineFlag* flag = absl::FindCommandLineFlag(name);
    const std::string value = flag->DefaultValue();
    absl::StrAppend(&text, "  --", name, value.empty() ? "" : "=", value, "  [",
                    EnvironmentName(name), "]\n", Wrap(flag->Help(), "      ", 88));
  }
  absl::StrAppend(&text, "\n  --help, --version\n");
  return text;
}

std::string VersionText() {
  return absl::StrCat("sru_server ", kVersion,
                      " (backends: ", absl::StrJoin(kernels::AvailableBackends(), ", "), "; gRPC ",
                      GrpcVersion(), ")");
}

}  // namespace sru::server
