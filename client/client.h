// Client: calls an SRU inference server.
//
//   sru::client::ConnectOptions options;
//   options.address = "localhost:50051";
//   auto client = sru::client::Client::Create(options);
//   sru::v1::ClassifyRequest request;
//   *request.add_sequences() = sru::client::TextSequence("Who wrote Hamlet ?");
//   auto response = (*client)->Classify(request);
//   if (response.ok()) std::cout << response->classifications(0).labels(0).name();
//
// Requests and responses are the messages of sru/v1/inference.proto; their comments say what each
// field means. Calls block until the answer, the deadline or the last attempt.
//
// Errors are those of the server, code and message as they came (inference.proto lists them), and
//   kInvalidArgument   a text is not UTF-8; nothing was sent
//   kUnavailable       no connection or no TLS handshake, after the attempts of ConnectOptions
//   kUnauthenticated   the server wants a token (token_file), or another one
//   kDeadlineExceeded  the deadline passed, here or on the server
//   kResourceExhausted the server is overloaded, or the answer is larger than max_message_bytes;
//                      RetryDelay() says how long the server wants to be left alone
//
// Thread-safe: one Client may be shared by all threads of a program, and should be, because each
// has its own connection. No gRPC type appears here, so that users compile without its headers.
#ifndef SRU_CLIENT_CLIENT_H_
#define SRU_CLIENT_CLIENT_H_

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "sru/v1/admin.pb.h"
#include "sru/v1/inference.pb.h"

namespace sru::client {

// gRPC waits whole milliseconds. With 1.83 a call that is to be tried again after a wait that
// rounds to none never ends, not even by its deadline.
inline constexpr absl::Duration kMinBackoff = absl::Milliseconds(2);

struct ConnectOptions {
  // HOST:PORT, unix:PATH or any other gRPC target. Calls go in turn to all addresses that the
  // target has and whose servers are healthy: dns:///NAME:PORT with several addresses behind the
  // name, or ipv4:10.0.0.1:50051,10.0.0.2:50051 (service_config.h).
  std::string address = "localhost:50051";

  // For calls that state none in CallOptions; absl::InfiniteDuration() = no deadline. It covers all
  // attempts of a call, and the server drops work that it cannot finish before it.
  absl::Duration deadline = absl::Seconds(10);

  // Attempts of a call that meets UNAVAILABLE (no connection, or a server that drains) or that a
  // server gives up as it closes, 1 to 5; 1 = no retry. Every method only reads, so that a repeated
  // call does no harm.
  int max_attempts = 4;
  // The wait before a second attempt; it doubles each time, up to max_backoff, and is jittered by a
  // fifth. At least kMinBackoff.
  absl::Duration initial_backoff = absl::Milliseconds(100);
  absl::Duration max_backoff = absl::Seconds(2);

  // Largest answer that is accepted, in bytes. Token vectors of long texts are large.
  int max_message_bytes = 64 << 20;

  // TLS: `tls` or any of its files turns it on. The server must show a certificate of one of the
  // authorities in tls_ca, a PEM file (empty = those that the system trusts), for the host in
  // `address`, or for tls_server_name if that is given. tls_cert and tls_key, PEM files, are what
  // this client shows where the server asks for it (mutual TLS).
  bool tls = false;
  std::string tls_ca;
  std::string tls_cert;
  std::string tls_key;
  std::string tls_server_name;

  // Whether calls go only to servers whose health service (grpc.health.v1) says that they serve.
  // Off for questions about a server that loads or drains, or that has no model: where it is on,
  // such a server cannot be connected to.
  bool only_serving = true;

  // File with the token to send with each call, read again every 10 s. Without TLS only to an
  // address of this machine, unless token_without_tls says that something else encrypts.
  std::string token_file;
  bool token_without_tls = false;

  // Further gRPC channel arguments by name, such as {"grpc.keepalive_time_ms", 30000}.
  std::vector<std::pair<std::string, std::variant<int, std::string>>> channel_args;
};

struct CallOptions {
  // Time for this call, all attempts included; unset = ConnectOptions::deadline.
  std::optional<absl::Duration> deadline;
};

// As grpc.health.v1 defines them.
enum class ServingStatus { kUnknown, kServing, kNotServing, kServiceUnknown };
// "SERVING" and so on.
const char* ServingStatusName(ServingStatus status);

class Client {
 public:
  // Connects lazily: an address where nobody listens is reported by Connect() or the first call.
  // kInvalidArgument names the option that is out of range.
  static absl::StatusOr<std::unique_ptr<Client>> Create(const ConnectOptions& options);
  virtual ~Client() = default;

  // Waits for the connection, so that the first call does not pay for it. kUnavailable as soon as a
  // connection was refused, with the reason as far as it can be found out, above all what is wrong
  // about TLS; for that a second connection is made. kDeadlineExceeded after `timeout`.
  virtual absl::Status Connect(absl::Duration timeout) = 0;

  virtual absl::StatusOr<v1::ClassifyResponse> Classify(const v1::ClassifyRequest& request,
                                                        const CallOptions& options = {}) = 0;
  virtual absl::StatusOr<v1::EncodeResponse> Encode(const v1::EncodeRequest& request,
                                                    const CallOptions& options = {}) = 0;
  virtual absl::StatusOr<v1::ListModelsResponse> ListModels(const CallOptions& options = {}) = 0;
  // `name` may be empty when one model is loaded; version 0 = the latest.
  virtual absl::StatusOr<v1::ModelInfo> GetModel(absl::string_view name, int64_t version = 0,
                                                 const CallOptions& options = {}) = 0;
  // AdminService, for a client of the server's --admin_listen. Loading takes as long as the model
  // needs: give it the time. Unloading twice is kNotFound the second time, so let an UNAVAILABLE be
  // final (max_attempts = 1) if that matters.
  virtual absl::StatusOr<v1::LoadModelResponse> LoadModel(absl::string_view name,
                                                          const CallOptions& options = {}) = 0;
  virtual absl::Status UnloadModel(absl::string_view name, const CallOptions& options = {}) = 0;
  // grpc.health.v1: "" is the server as a whole. kNotFound when the server knows no such service.
  virtual absl::StatusOr<ServingStatus> Health(absl::string_view service = "",
                                               const CallOptions& options = {}) = 0;
};

// How long the server asked to wait before the call is sent again (google.rpc.RetryInfo); nullopt
// when `status` carries no such detail.
std::optional<absl::Duration> RetryDelay(const absl::Status& status);

// One input sequence.
v1::Sequence TextSequence(absl::string_view text);
v1::Sequence TokensSequence(absl::Span<const std::string> tokens);
v1::Sequence TokenIdsSequence(absl::Span<const int32_t> ids);

// The values of an encoding, row by row, whatever format they came in. `format` is that of the
// request. kInvalidArgument when the data do not fit the shape.
absl::StatusOr<std::vector<float>> EncodingValues(const v1::Encoding& encoding,
                                                  v1::OutputFormat format);

}  // namespace sru::client

#endif  // SRU_CLIENT_CLIENT_H_
