#include <chrono>
#include <future>
#include <memory>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "boost/asio/connect.hpp"
#include "boost/asio/io_context.hpp"
#include "boost/asio/ip/tcp.hpp"
#include "boost/asio/ssl.hpp"
#include "boost/asio/use_future.hpp"
#include "boost/beast/core/flat_buffer.hpp"
#include "boost/beast/http/message.hpp"
#include "boost/beast/http/parser.hpp"
#include "boost/beast/http/read.hpp"
#include "boost/beast/http/string_body.hpp"
#include "boost/beast/http/write.hpp"
#include "google/rpc/retry.pb.h"
#include "grpcpp/client_context.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/channel_arguments.h"
#include "opentelemetry/trace.pb.h"
#include "server/base/clock.h"
#include "server/base/retry.h"
#include "server/tracing/tracer.h"

namespace sru::server::tracing {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::system_error;

constexpr char kExport[] = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
constexpr uint64_t kMostAnswerBytes = 64 << 10;
// How often it is asked whether the time is over.
constexpr auto kLookAround = std::chrono::milliseconds(20);

// An answer that is not one counts as empty: the spans have been taken all the same.
int64_t RejectedSpans(const std::string& answer) {
  opentelemetry::proto::ExportTraceServiceResponse response;
  static_cast<void>(response.ParseFromString(answer));
  return response.partial_success().rejected_spans();
}

// One request, on a connection of its own. What it waits for throws a system_error.
class HttpPost {
 public:
  HttpPost(const TracingOptions& options, const Deadline& deadline)
      : options_(options), deadline_(deadline) {}

  absl::StatusOr<int64_t> Send(const std::string& body) {
    http::request<http::string_body> request(http::verb::post, options_.endpoint.path, 11, body);
    for (const auto& [name, value] : options_.headers) request.set(name, value);
    request.set(http::field::host, options_.endpoint.authority);
    request.set(http::field::content_type, "application/x-protobuf");
    request.set(http::field::connection, "close");
    request.prepare_payload();
    tcp::resolver resolver(io_);
    const auto places = Await(
        resolver.async_resolve(options_.endpoint.host, options_.endpoint.port, asio::use_future));
    asio::ssl::context context(asio::ssl::context::tls_client);
    asio::ssl::stream<tcp::socket> stream(io_, context);
    Await(asio::async_connect(stream.next_layer(), places, asio::use_future));
    if (!options_.endpoint.tls) return Exchange(stream.next_layer(), request);
    context.set_default_verify_paths();
    stream.set_verify_mode(asio::ssl::verify_peer);
    stream.set_verify_callback(asio::ssl::host_name_verification(options_.endpoint.host));
    SSL_set_tlsext_host_name(stream.native_handle(), options_.endpoint.host.c_str());
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
  absl::StatusOr<int64_t> Exchange(Stream& stream,
                                   const http::request<http::string_body>& request) {
    Await(http::async_write(stream, request, asio::use_future));
    boost::beast::flat_buffer buffer;
    http::response_parser<http::string_body> parser;
    parser.body_limit(kMostAnswerBytes);
    Await(http::async_read(stream, buffer, parser, asio::use_future));
    const unsigned code = parser.get().result_int();
    if (code / 100 == 2) return RejectedSpans(parser.get().body());
    const std::string text = absl::StrCat("HTTP status ", code);
    if (code != 429 && (code < 502 || code > 504)) return absl::FailedPreconditionError(text);
    int64_t seconds = 0;  // a date is not understood
    const bool is_said =
        absl::SimpleAtoi(std::string(parser.get()[http::field::retry_after]), &seconds);
    const absl::Status busy = absl::UnavailableError(text);
    return is_said ? RetryAfter(busy, absl::Seconds(seconds)) : busy;
  }

  const TracingOptions& options_;
  const Deadline& deadline_;
  asio::io_context io_;
};

absl::Status Explain(const grpc::Status& status) {
  constexpr grpc::StatusCode kPassing[] = {
      grpc::StatusCode::CANCELLED,   grpc::StatusCode::DEADLINE_EXCEEDED,
      grpc::StatusCode::ABORTED,     grpc::StatusCode::OUT_OF_RANGE,
      grpc::StatusCode::UNAVAILABLE, grpc::StatusCode::DATA_LOSS};
  const auto code = static_cast<absl::StatusCode>(status.error_code());
  const std::string text =
      absl::StrCat(absl::StatusCodeToString(code), ": ", status.error_message());
  google::rpc::Status details;
  google::rpc::RetryInfo retry;
  static_cast<void>(details.ParseFromString(status.error_details()));
  for (const auto& detail : details.details()) {
    if (!detail.UnpackTo(&retry)) continue;
    return RetryAfter(absl::UnavailableError(text),
                      absl::Seconds(retry.retry_delay().seconds()) +
                          absl::Nanoseconds(retry.retry_delay().nanos()));
  }
  return absl::c_linear_search(kPassing, status.error_code()) ? absl::UnavailableError(text)
                                                              : absl::FailedPreconditionError(text);
}

absl::StatusOr<int64_t> SendByGrpc(grpc::GenericStub& stub, const TracingOptions& options,
                                   const std::string& request, const Deadline& deadline) {
  grpc::ClientContext context;
  for (const auto& [name, value] : options.headers) context.AddMetadata(name, value);
  const grpc::Slice bytes(request);
  const grpc::ByteBuffer sent(&bytes, 1);
  grpc::ByteBuffer received;
  std::promise<grpc::Status> ended;
  stub.UnaryCall(&context, kExport, grpc::StubOptions(), &sent, &received,
                 [&ended](grpc::Status status) { ended.set_value(std::move(status)); });
  std::future<grpc::Status> end = ended.get_future();
  bool late = false;
  while (end.wait_for(kLookAround) != std::future_status::ready) {
    late = SteadyNow() >= deadline();
    if (late) context.TryCancel();
  }
  const grpc::Status status = end.get();
  if (!status.ok()) return late ? absl::UnavailableError("no answer in time") : Explain(status);
  grpc::Slice answer;
  static_cast<void>(received.DumpToSingleSlice(&answer));
  return RejectedSpans(std::string(answer.begin(), answer.end()));
}

}  // namespace

Sender MakeSender(const TracingOptions& options) {
  if (!options.grpc) {
    return [&options](const std::string& request,
                      const Deadline& deadline) -> absl::StatusOr<int64_t> {
      try {
        return HttpPost(options, deadline).Send(request);
      } catch (const system_error& error) {
        return absl::UnavailableError(error.what());
      }
    };
  }
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 5000);  // by default up to two minutes
  const auto stub = std::make_shared<grpc::GenericStub>(grpc::CreateCustomChannel(
      absl::StrCat("dns:///", options.endpoint.authority),
      options.endpoint.tls ? grpc::SslCredentials({}) : grpc::InsecureChannelCredentials(),
      arguments));
  return [stub, &options](const std::string& request, const Deadline& deadline) {
    return SendByGrpc(*stub, options, request, deadline);
  };
}

}  // namespace sru::server::tracing
