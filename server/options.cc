#include "server/options.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/build_info.h"
#include "base/status.h"
#include "grpcpp/grpcpp.h"
#include "kernels/choose_backend.h"

namespace sru::server {
namespace {

// The flags that --help shows. --help=all shows every flag.
constexpr absl::string_view kFirstFlags[] = {
    "model_repository", "model",   "demo",  "model_control",    "listen",   "http_listen",
    "metrics_listen",   "backend", "dtype", "max_batch_tokens", "tls_cert", "tls_key",
    "auth_tokens_file"};

void AddFrontDoorFlags(Options* options, Flags* flags) {
  flags->AddParsed("listen", &options->listen, options->listen.ToString(), ParseListenAddress,
                   "HOST:PORT for calls: gRPC and, with the native transport, HTTP. 0.0.0.0 "
                   "accepts IPv6 too. Port 0 lets the system choose; the server prints the "
                   "port.");
  flags->AddParsed("admin_listen", &options->admin_listen,
                   options->admin_listen.has_value() ? options->admin_listen->ToString() : "",
                   ParseOptionalListenAddress,
                   "HOST:PORT of AdminService (LoadModel, UnloadModel). Empty: off. A network "
                   "address needs --admin_tokens_file, --auth_tokens_file or --tls_client_ca.");
  flags->Add(
      "check_config", &options->check_config,
      "Check flags, certificates, tokens, keys and every model instead of serving: load each "
      "model once, open no port, say all that is wrong.");
}

void AddStopFlags(Options* options, Flags* flags) {
  const Flags::TimeRange up_to_a_day = {absl::ZeroDuration(), absl::Hours(24)};
  flags->AddTime("drain_timeout_s", &options->drain_timeout, absl::Seconds(1), up_to_a_day,
                 "Most seconds from SIGTERM until the server exits; calls still in flight "
                 "then get UNAVAILABLE.");
  flags->AddTime("drain_delay_s", &options->drain_delay, absl::Seconds(1), up_to_a_day,
                 "Seconds after SIGTERM during which new calls are still accepted while "
                 "/readyz says 503, so that load balancers can turn away first. Part of "
                 "--drain_timeout_s.");
  flags->Group(Flags::kRarelyChanged);
  flags->Add("address_file", &options->address_file,
             "File in which the server writes the address of --listen, with the actual port, once "
             "it takes calls. The server removes it when it drains.");
  flags->Add("while_locked", &options->while_locked,
             "File on which users of the server hold locks (flock). The server drains as soon as "
             "nobody holds one, and keeps the lock itself until it has ended.");
}

// The box of the status page takes tokens, and its port speaks no TLS.
absl::Status CheckStatusPageTry(const Options& o) {
  if (o.http.status_page_try != http::TryAccess::kAll || !o.security.tls_client_ca.empty()) {
    return absl::OkStatus();  // off, or from this machine only
  }
  transport::SecurityOptions without_tls = o.security;
  without_tls.tls_cert.clear();
  if (transport::CheckListenHost(without_tls, "metrics_listen", o.http.metrics_listen.host).ok()) {
    return absl::OkStatus();
  }
  return InvalidArgument(
      "--status_page_try: with --auth_tokens_file, all would have tokens cross the network in the "
      "clear, as the port of the page (--metrics_listen) has no TLS; expected local or off, or "
      "--metrics_listen on 127.0.0.1, or --auth_without_tls where something in front of the server "
      "encrypts, found all with --metrics_listen=",
      o.http.metrics_listen.ToString());
}

// The rest are rules about flags of several rooms.

absl::Status CheckSequenceTokens(const Options& o) {
  const int max_batch_tokens = o.batching.engine.batcher.max_batch_tokens;
  if (o.rpc.limits.max_sequence_tokens <= max_batch_tokens) return absl::OkStatus();
  return InvalidArgument("--max_sequence_tokens: expected at most --max_batch_tokens, which is ",
                         max_batch_tokens, ", found ", o.rpc.limits.max_sequence_tokens,
                         "; a longer sequence would never fit into a batch");
}

absl::Status CheckDrain(const Options& o) {
  if (o.drain_delay <= o.drain_timeout) return absl::OkStatus();
  return InvalidArgument("--drain_delay_s: expected at most --drain_timeout_s, which is ",
                         absl::FormatDuration(o.drain_timeout), ", found ",
                         absl::FormatDuration(o.drain_delay));
}

absl::Status CheckHttpListen(const Options& o) {
  if (!o.http.http_listen.has_value()) return absl::OkStatus();
  const absl::Status status =
      transport::CheckListenHost(o.security, "http_listen", o.http.http_listen->host);
  if (status.ok()) return status;
  return InvalidArgument(  // maybe nobody has thought of that port
      status.message(), "; or --http_listen= where nobody calls over HTTP; found --http_listen=",
      o.http.http_listen->ToString());
}

absl::Status CheckAdminListen(const Options& o) {
  std::optional<std::string> admin_host;
  if (o.admin_listen.has_value()) admin_host = o.admin_listen->host;
  return transport::CheckAdminListenHost(o.security, admin_host);
}

}  // namespace

void AddFlags(Options* options, Flags* flags) {
  const auto add = [flags](const char* heading, auto* part, auto add_flags) {
    flags->Group(heading);
    add_flags(part, flags);
  };
  const auto room = [](auto* part, Flags* to) { AddFlags(part, to); };
  constexpr char kServed[] = "What is served, and where";
  constexpr char kLimits[] = "Limits";
  constexpr char kLogs[] = "Logs and shutdown";
  add(kServed, &options->models, room);
  add(kServed, options, AddFrontDoorFlags);
  add(kServed, &options->http, room);
  add("Computing and batching", &options->batching, room);
  add(kLimits, &options->rpc, room);
  add(kLimits, &options->memory, room);
  add(kLimits, &options->connections, room);
  add(kLimits, &options->transport, room);
  add("Who may call", &options->security, room);
  add(kLogs, &options->logging, room);
  add(kLogs, options, AddStopFlags);
}

std::vector<absl::Status> OptionErrors(const Options& options) {
  std::vector<absl::Status> errors;
  for (absl::Status status :
       {lifecycle::ValidateModelOptions(options.models),
        batching::ValidateBatchingOptions(options.batching),
        transport::ValidateSecurityOptions(options.security), CheckSequenceTokens(options),
        CheckDrain(options),
        transport::CheckListenHost(options.security, "listen", options.listen.host),
        CheckHttpListen(options), CheckAdminListen(options), CheckStatusPageTry(options)}) {
    if (!status.ok()) errors.push_back(std::move(status));
  }
  return errors;
}

absl::Status ValidateOptions(const Options& options) {
  const std::vector<absl::Status> errors = OptionErrors(options);
  return errors.empty() ? absl::OkStatus() : errors.front();
}

std::vector<std::string> ExposureWarnings(const Options& options) {
  std::vector<std::string> warnings;
  if (options.transport.transport == door::GrpcTransport::kNative) return warnings;
  const auto check = [&](absl::string_view flag, const ListenAddress& address) {
    if (transport::IsLoopbackHost(address.host)) return;
    warnings.push_back(absl::StrCat(
        "--", flag, "=", address.ToString(), ": whoever reaches it can stop this server, with or ",
        "without a token: gRPC's library does not withstand the attacks of docs/security.md. Use ",
        "--grpc_transport=native, or 127.0.0.1 behind nginx or Envoy"));
  };
  check("listen", options.listen);
  if (options.admin_listen.has_value()) check("admin_listen", *options.admin_listen);
  return warnings;
}

std::string ReachNotice(const Options& options) {
  const bool http_is_near = !options.http.http_listen.has_value() ||
                            transport::IsLoopbackHost(options.http.http_listen->host);
  if (!transport::IsLoopbackHost(options.listen.host) || !http_is_near ||
      !transport::IsLoopbackHost(options.http.metrics_listen.host)) {
    return "";
  }
  return "only this machine reaches the ports; --listen=0.0.0.0:50051, --http_listen=0.0.0.0:8080 "
         "and --metrics_listen=0.0.0.0:9090 open them to others";
}

std::string HelpText(bool all) {
  Options defaults;
  Flags flags(Flags::Environment::kAll);
  AddFlags(&defaults, &flags);
  return absl::StrCat(
      "sru_server: serves Simple Recurrent Unit models over gRPC and HTTP.\n\n"
      "  sru_server --model_repository=models/pretrained\n"
      "  sru_server --demo\n\n"
      "Ask it with sru_client, or from any language with proto/sru/v1/inference.proto.\n"
      "SIGTERM drains: not ready first, then calls in flight are answered, then exit.\n"
      "SIGHUP checks the repository (if it polls) and the files of TLS and tokens at once.\n"
      "Each flag is also read from the environment, --listen from SRU_LISTEN; the flag wins.\n\n",
      all ? flags.Help() : flags.Help(kFirstFlags),
      all ? "\n  --help, --version\n"
          : "\n  --help=all shows every flag; --check_config checks them; --version\n");
}

std::string VersionText() {
  // Those of the build: to ask what the machine has would start a GPU's driver for nothing.
  return absl::StrCat("sru_server ", BuildVersion(), " (commit ", BuildCommit(),
                      "; backends: ", absl::StrJoin(kernels::BuiltBackends(), ", "), "; gRPC ",
                      grpc::Version(), ")");
}

}  // namespace sru::server
