// The server's options: what the command line and the environment may say, checked once at start.
// Each room of the server has a struct for its part, with its flags and rules; this file
// has the front door's own part and the rules that concern several rooms.
//
// Each flag is also read from the environment as SRU_ + its upper-case name; the command line wins.
#ifndef SRU_SERVER_OPTIONS_H_
#define SRU_SERVER_OPTIONS_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/flags.h"
#include "server/base/listen_address.h"
#include "server/batching/batching_options.h"
#include "server/calls/bounds/memory_options.h"
#include "server/door/door_options.h"
#include "server/http/http_options.h"
#include "server/lifecycle/model_options.h"
#include "server/telemetry/logging_options.h"
#include "server/tracing/tracing_options.h"
#include "server/transport/security_options.h"

namespace sru::server {

struct Options {
  ListenAddress listen = {"127.0.0.1", 50051};
  std::optional<ListenAddress> admin_listen;  // nothing: no admin service
  absl::Duration drain_timeout = absl::Seconds(30);
  absl::Duration drain_delay = absl::ZeroDuration();
  std::string address_file;  // empty: none
  std::string while_locked;  // empty: until a signal
  bool check_config = false;
  std::vector<Flags::Setting> changed;  // of the flags, for people

  lifecycle::ModelOptions models;
  http::HttpOptions http;
  batching::BatchingOptions batching;
  calls::RpcOptions rpc;
  calls::MemoryOptions memory;
  transport::SecurityOptions security;
  transport::ConnectionLimits connections;
  door::TransportOptions transport;
  telemetry::LoggingOptions logging;
  tracing::TracingOptions tracing;  // no flags: the variables OTEL_* say it
};

// The flags of every room.
void AddFlags(Options* options, Flags* flags);

// Each is kInvalidArgument and names the flag, what was expected and what was found.
std::vector<absl::Status> OptionErrors(const Options& options);
// The first of them, or OK.
absl::Status ValidateOptions(const Options& options);

// For the log at the start: each port of gRPC's library that strangers reach though the library
// cannot stand them, with what to do about it. Empty for the native transport.
std::vector<std::string> ExposureWarnings(const Options& options);

// For the log at the start: that this machine alone reaches the ports, and what opens them; empty
// if another does.
std::string ReachNotice(const Options& options);

// The help text: of the few flags that matter first, or of every flag with --help=all.
std::string HelpText(bool all);

// What --version prints.
std::string VersionText();

}  // namespace sru::server

#endif  // SRU_SERVER_OPTIONS_H_
