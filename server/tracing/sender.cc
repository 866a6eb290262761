#include "server/tracing/sender.h"

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "boost/asio.hpp"
#include "boost/asio/ssl.hpp"
#include "boost/beast/core.hpp"
#include "boost/beast/http.hpp"
#include "google/rpc/retry.pb.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"
#include "server/base/clock.h"
#include "server/base/retry.h"

namespace sru::server::tracing {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::system_error;
using opentelemetry::proto::ExportTraceServiceRequest;
using opentelemetry::proto::ExportTraceServiceResponse;

constexpr char kExport[] = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
constexpr uint64_t kMostAnswerBytes = 64 << 10;
// How often it is asked whether the time is over.
constexpr auto kLookAround = std::chrono::milliseconds(20);

std::string PlaceOf(const TracingOptions& options) {
  const bool is_v6 = options.host.find(':') != std::string::npos;
  return absl::StrCat(is_v6 ? "[" : "", options.host, is_v6 ? "]:" : ":", options.port);
}

Sent Taken(const ExportTraceServiceResponse& response) {
  return {absl::OkStatus(), response.partial_success().rejected_spans()};
}

// One request, on a connection of its own. What it waits for throws a system_error.
class HttpPost {
 public:
  HttpPost(const TracingOptions& options, const Deadline& deadline)
      : options_(options), deadline_(deadline) {}

  Sent Send(std::string body) {
    http::request<http::string_body> request(http::verb::post, options_.path, 11, std::move(body));
    for (const auto& [name, value] : options_.headers) request.set(name, value);
    request.set(http::field::host, PlaceOf(options_));
    request.set(http::field::content_type, "application/x-protobuf");
    request.set(http::field::connection, "close");
    request.prepare_payload();
    tcp::resolver resolver(io_);
    const auto places =
        Await(resolver.async_resolve(options_.host, options_.port, asio::use_future));
    if (!options_.tls) {
      tcp::socket socket(io_);
      Await(asio::async_connect(socket, places, asio::use_future));
      return Exchange(socket, request);
    }
    asio::ssl::context context(asio::ssl::context::tls_client);
    context.set_default_verify_paths();
    asio::ssl::stream<tcp::socket> stream(io_, context);
    stream.set_verify_mode(asio::ssl::verify_peer);
    stream.set_verify_callback(asio::ssl::host_name_verification(options_.host));
    SSL_set_tlsext_host_name(stream.native_handle(), options_.host.c_str());
    Await(asio::async_connect(stream.next_layer(), places, asio::use_future));
    Await(stream.async_handshake(asio::ssl::stream_base::client, asio::use_future));
    return Exchange(stream, request);
  }

 private:
  // What has not ended by the deadline never does: io_ runs no more.
  template <typename Result>
  Result Await(std::future<Result> result) {
    io_.restart();
    while (result.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
      if (SteadyNow() >= deadline_()) throw system_error(asio::error::timed_out);
      io_.run_one_for(kLookAround);
    }
    return result.get();
  }

  template <typename Stream>
  Sent Exchange(Stream& stream, const http::request<http::string_body>& request) {
    Await(http::async_write(stream, request, asio::use_future));
    boost::beast::flat_buffer buffer;
    http::response_parser<http::string_body> parser;
    parser.body_limit(kMostAnswerBytes);
    Await(http::async_read(stream, buffer, parser, asio::use_future));
    const unsigned code = parser.get().result_int();
    if (code / 100 == 2) {
      ExportTraceServiceResponse response;
      static_cast<void>(response.ParseFromString(parser.get().body()));  // empty, if it is not one
      return Taken(response);
    }
    const std::string text = absl::StrCat("HTTP status ", code);
    if (code != 429 && (code < 502 || code > 504)) return {absl::FailedPreconditionError(text)};
    int64_t seconds = 0;  // a date is not understood
    const auto wait = parser.get()[http::field::retry_after];
    const bool is_said = absl::SimpleAtoi(absl::string_view(wait.data(), wait.size()), &seconds);
    const absl::Status busy = absl::UnavailableError(text);
    return {is_said ? RetryAfter(busy, absl::Seconds(seconds)) : busy};
  }

  const TracingOptions& options_;
  const Deadline& deadline_;
  asio::io_context io_;
};

grpc::ChannelArguments ChannelArguments() {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 5000);  // by default up to two minutes
  return arguments;
}

absl::Status Explain(const grpc::Status& status) {
  const auto code = static_cast<absl::StatusCode>(status.error_code());
  const absl::Status may_pass = absl::UnavailableError(
      absl::StrCat(absl::StatusCodeToString(code), ": ", status.error_message()));
  google::rpc::Status details;
  google::rpc::RetryInfo retry;
  bool has_delay = false;
  if (details.ParseFromString(status.error_details())) {
    for (const auto& detail : details.details()) has_delay |= detail.UnpackTo(&retry);
  }
  if (has_delay) {
    return RetryAfter(may_pass, absl::Seconds(retry.retry_delay().seconds()) +
                                    absl::Nanoseconds(retry.retry_delay().nanos()));
  }
  switch (code) {
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDataLoss:
      return may_pass;
    default:
      return absl::FailedPreconditionError(may_pass.message());
  }
}

class GrpcExport {
 public:
  explicit GrpcExport(const TracingOptions& options)
      : options_(options),
        stub_(grpc::CreateCustomChannel(
            absl::StrCat("dns:///", PlaceOf(options)),
            options.tls ? grpc::SslCredentials({}) : grpc::InsecureChannelCredentials(),
            ChannelArguments())) {}

  Sent Send(const ExportTraceServiceRequest& request, const Deadline& deadline) {
    grpc::ClientContext context;
    for (const auto& [name, value] : options_.headers) context.AddMetadata(name, value);
    const grpc::Slice bytes(request.SerializeAsString());
    const grpc::ByteBuffer sent(&bytes, 1);
    grpc::ByteBuffer received;
    grpc::Status status;
    Mutex mutex;
    CondVar changed;
    bool ended = false;
    stub_.UnaryCall(&context, kExport, grpc::StubOptions(), &sent, &received,
                    [&](grpc::Status result) {
                      const MutexLock lock(&mutex);
                      status = std::move(result);
                      ended = true;
                      changed.SignalAll();
                    });
    const MutexLock lock(&mutex);
    bool late = false;
    while (!ended) {
      changed.WaitFor(&mutex, absl::FromChrono(kLookAround));
      if (ended || late || SteadyNow() < deadline()) continue;
      late = true;
      context.TryCancel();
    }
    if (status.ok()) {
      ExportTraceServiceResponse response;
      grpc::Slice answer;
      // Empty, if it is not one: the spans have been taken all the same.
      if (received.DumpToSingleSlice(&answer).ok()) {
        static_cast<void>(response.ParseFromArray(answer.begin(), static_cast<int>(answer.size())));
      }
      return Taken(response);
    }
    return {late ? absl::UnavailableError("no answer in time") : Explain(status)};
  }

 private:
  const TracingOptions& options_;
  grpc::GenericStub stub_;
};

}  // namespace

Sender MakeSender(const TracingOptions& options) {
  if (options.grpc) {
    return [exporter = std::make_shared<GrpcExport>(options)](
               const ExportTraceServiceRequest& request, const Deadline& deadline) {
      return exporter->Send(request, deadline);
    };
  }
  return [&options](const ExportTraceServiceRequest& request, const Deadline& deadline) -> Sent {
    try {
      return HttpPost(options, deadline).Send(request.SerializeAsString());
    } catch (const system_error& error) {
      return {absl::UnavailableError(error.what())};
    }
  };
}

}  // namespace sru::server::tracing
