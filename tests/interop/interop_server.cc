// sru_interop_server: gRPC's interoperation tests, served by either transport. It has nothing else
// of the product: a transport carries the calls of any method table.
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/flags.h"
#include "prometheus/registry.h"
#include "server/base/file_watcher.h"
#include "server/base/listen_address.h"
#include "server/base/log.h"
#include "server/calls/exchange.h"
#include "server/calls/http_exchange.h"
#include "server/calls/message_cord.h"
#include "server/calls/method.h"
#include "server/door/door_metrics.h"
#include "server/door/door_options.h"
#include "server/door/grpc_port.h"
#include "server/door/memory_count.h"
#include "server/door/native_door.h"
#include "server/rpc/grpc_door.h"
#include "server/transport/tls_certificates.h"
#include "tests/interop/interop.pb.h"

namespace sru::testing {
namespace {

using grpc::testing::EchoStatus;
using grpc::testing::ResponseParameters;
using server::calls::CallEnd;
using server::calls::CallHandler;
using server::calls::Exchange;
using server::calls::MethodKind;
using server::transport::TlsCertificates;
using server::transport::TlsPem;

constexpr int kMostPayloadBytes = 64 << 20;
constexpr int64_t kMemoryBytes = int64_t{1} << 30;
constexpr int kMostResponses = 10000;  // that one call may ask for
// Calls look this often whether their caller is gone while they wait.
constexpr absl::Duration kCancelInterval = absl::Milliseconds(10);
constexpr absl::Duration kDrainGrace = absl::Seconds(5);

constexpr char kEchoInitial[] = "x-grpc-test-echo-initial";
constexpr char kEchoTrailing[] = "x-grpc-test-echo-trailing-bin";

CallEnd EndOf(absl::Status status) { return {std::move(status), {}, {}}; }
absl::Status CannotParse() { return absl::InvalidArgumentError("the message cannot be parsed"); }
absl::Status Cancelled() { return absl::CancelledError("the caller is gone"); }

absl::Status StatusOf(const EchoStatus& status) {
  return {static_cast<absl::StatusCode>(status.code()), status.message()};
}

// Returns what a caller has sent to have it sent back.
void EchoHeader(Exchange* exchange) {
  const absl::string_view value = exchange->FindHeader(kEchoInitial);
  if (!value.empty()) exchange->AddHeader(kEchoInitial, std::string(value));
}
CallEnd EndWithEcho(const Exchange& exchange, absl::Status status) {
  CallEnd end = EndOf(std::move(status));
  const absl::string_view value = exchange.FindHeader(kEchoTrailing);
  if (!value.empty()) end.trailers.emplace_back(kEchoTrailing, value);
  return end;
}

absl::Status CheckSize(int size) {
  if (size >= 0 && size <= kMostPayloadBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("expected a size from 0 to ", kMostPayloadBytes, ", found ", size));
}

template <typename Request>
absl::Status CheckCompressed(const Exchange& exchange, const Request& request) {
  if (!request.has_expect_compressed()) return absl::OkStatus();
  const bool expected = request.expect_compressed().value();
  if (expected == exchange.message_was_compressed()) return absl::OkStatus();
  return absl::InvalidArgumentError(expected ? "expected a message that is compressed"
                                             : "expected a message that is not compressed");
}

class EmptyCall final : public CallHandler {
 public:
  explicit EmptyCall(Exchange* exchange) : exchange_(*exchange) {}

 private:
  void OnMessage(std::optional<absl::Cord> /*message*/) override {
    exchange_.WriteAndFinish(absl::Cord(), EndOf(absl::OkStatus()));
  }
  void OnDone() override { delete this; }

  Exchange& exchange_;
};

class UnaryCall final : public CallHandler {
 public:
  explicit UnaryCall(Exchange* exchange) : exchange_(*exchange) {}

 private:
  void OnMessage(std::optional<absl::Cord> message) override {
    grpc::testing::SimpleRequest request;
    absl::Status status = CannotParse();
    if (server::calls::ParseCord(message.value_or(absl::Cord()), &request)) {
      status = CheckCompressed(exchange_, request);
      status.Update(CheckSize(request.response_size()));
      status.Update(StatusOf(request.response_status()));
    }
    EchoHeader(&exchange_);
    if (!status.ok()) return exchange_.Finish(EndWithEcho(exchange_, std::move(status)));
    if (request.response_compressed().value()) {
      exchange_.AddHeader(server::calls::kEncodingRequest, "gzip");
    }
    grpc::testing::SimpleResponse response;
    response.mutable_payload()->set_body(
        std::string(static_cast<size_t>(request.response_size()), '\0'));
    exchange_.WriteAndFinish(server::calls::ToCord(response),
                             EndWithEcho(exchange_, absl::OkStatus()));
  }
  void OnDone() override { delete this; }

  Exchange& exchange_;
};

// Adds the sizes of all payloads.
class InputCall final : public CallHandler {
 public:
  explicit InputCall(Exchange* exchange) : exchange_(*exchange) { exchange_.Read(); }

 private:
  void OnMessage(std::optional<absl::Cord> message) override {
    if (!message.has_value()) {
      if (exchange_.is_cancelled()) return exchange_.Finish(EndOf(Cancelled()));
      grpc::testing::StreamingInputCallResponse response;
      response.set_aggregated_payload_size(static_cast<int32_t>(bytes_));
      return exchange_.WriteAndFinish(server::calls::ToCord(response), EndOf(absl::OkStatus()));
    }
    grpc::testing::StreamingInputCallRequest request;
    absl::Status status = server::calls::ParseCord(*message, &request)
                              ? CheckCompressed(exchange_, request)
                              : CannotParse();
    if (!status.ok()) return exchange_.Finish(EndOf(std::move(status)));
    bytes_ += static_cast<int64_t>(request.payload().body().size());
    exchange_.Read();
  }
  void OnDone() override { delete this; }

  Exchange& exchange_;
  int64_t bytes_ = 0;
};

// Sends what each request asks for: after the only request, after each, or after all.
class OutputCall final : public CallHandler {
 public:
  enum class When { kOneRequest, kEachRequest, kAllRequests };

  OutputCall(Exchange* exchange, When when) : exchange_(*exchange), when_(when) {
    EchoHeader(exchange);
    if (when != When::kOneRequest) exchange_.Read();
  }

 private:
  void OnMessage(std::optional<absl::Cord> message) override {
    if (!message.has_value()) {
      ended_ = true;
      return Next();
    }
    grpc::testing::StreamingOutputCallRequest request;
    absl::Status status = server::calls::ParseCord(*message, &request)
                              ? StatusOf(request.response_status())
                              : CannotParse();
    for (const ResponseParameters& parameters : request.response_parameters()) {
      status.Update(CheckSize(parameters.size()));
      if (parameters.interval_us() < 0)
        status.Update(absl::InvalidArgumentError("an interval is negative"));
      if (parameters.compressed().value() && !has_written_) {
        exchange_.AddHeader(server::calls::kEncodingRequest, "gzip");
      }
      waiting_.push_back(parameters);
    }
    if (waiting_.size() > static_cast<size_t>(kMostResponses)) {
      status.Update(absl::ResourceExhaustedError(
          absl::StrCat("expected at most ", kMostResponses, " response_parameters")));
    }
    if (!status.ok()) return exchange_.Finish(EndWithEcho(exchange_, std::move(status)));
    if (when_ == When::kAllRequests) return exchange_.Read();
    ended_ = when_ == When::kOneRequest;
    Next();
  }
  void OnWritten(bool ok) override {
    if (!ok) return exchange_.Finish(EndOf(Cancelled()));
    Next();
  }
  void OnDone() override { delete this; }

  void Next() {
    if (waiting_.empty()) {
      if (!ended_) return exchange_.Read();
      return exchange_.Finish(
          EndWithEcho(exchange_, exchange_.is_cancelled() ? Cancelled() : absl::OkStatus()));
    }
    const ResponseParameters parameters = std::move(waiting_.front());
    waiting_.pop_front();
    if (parameters.interval_us() == 0) return Send(parameters.size());
    // The call cannot end before it is told to, so it outlives the thread.
    std::thread([this, parameters] {
      const absl::Time end = absl::Now() + absl::Microseconds(parameters.interval_us());
      while (!exchange_.is_cancelled() && absl::Now() < end) {
        absl::SleepFor(std::min(kCancelInterval, end - absl::Now()));
      }
      Send(parameters.size());
    }).detach();
  }
  void Send(int size) {
    has_written_ = true;
    grpc::testing::StreamingOutputCallResponse response;
    response.mutable_payload()->set_body(std::string(static_cast<size_t>(size), '\0'));
    exchange_.Write(server::calls::ToCord(response));
  }

  Exchange& exchange_;
  const When when_;
  std::deque<ResponseParameters> waiting_;
  bool has_written_ = false;
  bool ended_ = false;  // no request comes any more
};

class UnknownCall final : public CallHandler {
 public:
  explicit UnknownCall(Exchange* exchange) {
    exchange->Finish(EndOf(absl::UnimplementedError("there is no such method")));
  }

 private:
  void OnMessage(std::optional<absl::Cord> /*message*/) override {}
  void OnDone() override { delete this; }
};

// Answers requests that are no calls.
class Page final : public server::calls::HttpHandler {
 public:
  explicit Page(server::calls::HttpExchange* exchange) : exchange_(*exchange) {
    if (IsEarly()) Answer();
  }

 private:
  bool IsEarly() const { return exchange_.method() == "/early"; }
  void OnBody(absl::StatusOr<absl::Cord> /*body*/) override {
    if (!IsEarly()) Answer();
  }
  void Answer() {
    exchange_.SetHead(404, {{"content-type", "text/plain"}});
    if (exchange_.verb() == "HEAD") return exchange_.Finish({});
    exchange_.WriteAndFinish(absl::Cord("there are only calls of gRPC here\n"), {});
  }
  void OnDone() override { delete this; }

  server::calls::HttpExchange& exchange_;
};

server::calls::MethodTable Methods() {
  std::vector<server::calls::Method> rows;
  const auto add = [&rows](const char* name, MethodKind kind,
                           std::function<CallHandler*(Exchange*)> start) {
    server::calls::Method row;
    row.service = "grpc.testing.TestService";
    row.name = name;
    row.kind = kind;
    row.start = std::move(start);
    rows.push_back(std::move(row));
  };
  const auto output = [](OutputCall::When when) {
    return [when](Exchange* exchange) { return new OutputCall(exchange, when); };
  };
  add("EmptyCall", MethodKind::kUnary, [](Exchange* exchange) { return new EmptyCall(exchange); });
  add("UnaryCall", MethodKind::kUnary, [](Exchange* exchange) { return new UnaryCall(exchange); });
  add("StreamingInputCall", MethodKind::kBidirectional,
      [](Exchange* exchange) { return new InputCall(exchange); });
  add("StreamingOutputCall", MethodKind::kServerStream, output(OutputCall::When::kOneRequest));
  add("FullDuplexCall", MethodKind::kBidirectional, output(OutputCall::When::kEachRequest));
  add("HalfDuplexCall", MethodKind::kBidirectional, output(OutputCall::When::kAllRequests));
  return server::calls::MethodTable(std::move(rows));
}

struct Options {
  server::ListenAddress listen{"127.0.0.1", 0};
  std::string certificate;
  std::string key;
  std::string client_ca;
  server::door::TransportOptions transport{server::door::GrpcTransport::kNative, /*io_threads=*/2};
};

void AddFlags(Options* options, Flags* flags) {
  flags->AddParsed("listen", &options->listen, options->listen.ToString(),
                   server::ParseListenAddress, "HOST:PORT or unix:PATH; port 0: a free one.");
  flags->Add("tls_certificate", &options->certificate,
             "File with the server's certificate in PEM; with --tls_key it turns TLS on.");
  flags->Add("tls_key", &options->key, "File with the key of the certificate.");
  flags->Add("tls_client_ca", &options->client_ca,
             "File with authorities: each client must show a certificate of one of them.");
  server::door::AddFlags(&options->transport, flags);
}

// Null without TLS.
absl::StatusOr<std::shared_ptr<const TlsCertificates>> ReadTls(const Options& options) {
  if (options.certificate.empty() != options.key.empty()) {
    return absl::InvalidArgumentError("--tls_certificate and --tls_key go together");
  }
  if (options.certificate.empty() && !options.client_ca.empty()) {
    return absl::InvalidArgumentError("--tls_client_ca needs --tls_certificate and --tls_key");
  }
  if (options.certificate.empty()) return nullptr;
  std::vector<std::string> paths = {options.certificate, options.key};
  if (!options.client_ca.empty()) paths.push_back(options.client_ca);
  absl::StatusOr<std::vector<std::string>> files = server::ReadFiles(paths);
  if (!files.ok()) return files.status();
  files->resize(3);
  auto checked =
      server::transport::CheckTlsCertificates({(*files)[0], (*files)[1], (*files)[2]}, absl::Now());
  if (!checked.ok()) return checked.status();
  return std::make_shared<const TlsCertificates>(*std::move(checked));
}

absl::Status Serve(const Options& options, const sigset_t& signals) {
  const auto tls = ReadTls(options);
  if (!tls.ok()) return tls.status();
  prometheus::Registry registry;
  server::door::DoorMetrics metrics(&registry);
  server::transport::LoopSet loops(options.transport.num_io_threads(), /*side_threads=*/2);
  server::door::MemoryCount memory(kMemoryBytes);
  const server::calls::MethodTable methods = Methods();

  server::door::DoorOptions door;
  door.methods = &methods;
  door.metrics = &metrics;
  door.unknown = [](Exchange* exchange) { return new UnknownCall(exchange); };
  door.start_http = [](server::calls::HttpExchange* exchange) { return new Page(exchange); };
  if (*tls != nullptr) door.tls_context = [context = (*tls)->context] { return context; };
  door.on_handshake_failure = [](const std::string& detail, const std::string& peer) {
    server::Log(server::LogLevel::kWarning, "TLS handshake failed",
                {{"detail", detail}, {"peer", peer}});
  };
  door.on_refused = [](absl::string_view /*reason*/, const std::string& peer) {
    server::Log(server::LogLevel::kWarning, "too many connections", {{"peer", peer}});
  };
  door.on_not_taken = [](absl::string_view /*method*/, const std::string& peer) {
    server::Log(server::LogLevel::kWarning, "an answer was not taken", {{"peer", peer}});
  };
  door.max_message_bytes = kMostPayloadBytes;
  door.allow_compression = true;

  std::unique_ptr<server::door::GrpcPort> port;
  if (options.transport.transport == server::door::GrpcTransport::kNative) {
    auto opened =
        server::door::NativeDoor::Open("listen", options.listen, std::move(door), &loops, &memory);
    if (!opened.ok()) return opened.status();
    (*opened)->Start();
    port = *std::move(opened);
  } else {
    server::rpc::GrpcDoor::TlsFiles files;
    if (*tls != nullptr) {
      files = [pem = std::shared_ptr<const TlsPem>(*tls, &(*tls)->pem)] { return pem; };
    }
    auto opened = server::rpc::GrpcDoor::Open("listen", options.listen, std::move(door),
                                              kMemoryBytes, std::move(files));
    if (!opened.ok()) return opened.status();
    port = *std::move(opened);
  }
  std::printf("listening on %s\n", port->address().ToString().c_str());
  std::fflush(stdout);
  int signal = 0;
  sigwait(&signals, &signal);
  port->Shutdown(kDrainGrace);
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  Options options;
  Flags flags(Flags::Environment::kAll);
  AddFlags(&options, &flags);
  absl::Status status = flags.ParseFlagsOnly({argv + 1, argv + argc});
  if (flags.help_requested()) {
    std::printf("Serves gRPC's interoperation tests (grpc.testing.TestService).\n\n%s",
                flags.Help().c_str());
    return 0;
  }
  // Before any other thread is started: they inherit that the signals are blocked.
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGTERM, SIGINT}) sigaddset(&signals, signal);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  if (status.ok()) status = Serve(options, signals);
  if (status.ok()) return 0;
  server::LogError(status.message());
  return 1;
}

}  // namespace
}  // namespace sru::testing

int main(int argc, char** argv) { return sru::testing::Main(argc, argv); }
