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
// Errors are the server's, with their codes and messages unchanged (inference.proto lists them),
// and
//   kInvalidArgument   a text is not UTF-8; nothing was sent
//   kUnavailable       no connection or no TLS handshake, after the attempts of ConnectOptions
//   kUnauthenticated   the server requires a token (token_file), or a different one
//   kDeadlineExceeded  the deadline passed, here or on the server
//   kResourceExhausted the server is overloaded, or the answer is larger than max_message_bytes;
//                      RetryDelay() says how long the server asks to be left alone
//
// Thread-safe: all threads of a program may share one Client, and should, because each Client has
// its own connection. No gRPC type appears here, so that users compile without its headers.
#ifndef SRU_CLIENT_CLIENT_H_
#define SRU_CLIENT_CLIENT_H_

#include <functional>
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
#include "client/cancellation.h"
#include "sru/v1/admin.pb.h"
#include "sru/v1/inference.pb.h"

namespace sru::client {

// gRPC waits for whole milliseconds. With gRPC 1.83 a call whose wait before the next attempt
// rounds to zero never ends, not even at its deadline.
inline constexpr absl::Duration kMinBackoff = absl::Milliseconds(2);

struct ConnectOptions {
  // HOST:PORT, unix:PATH or any other gRPC target. Calls go in turn to all addresses of the target
  // whose servers are healthy: dns:///NAME:PORT with several addresses behind the name, or
  // ipv4:10.0.0.1:50051,10.0.0.2:50051 (service_config.h).
  std::string address = "localhost:50051";

  // For calls that set none in CallOptions; absl::InfiniteDuration() = no deadline. It covers all
  // attempts of a call, and the server drops work that it cannot finish in time.
  absl::Duration deadline = absl::Seconds(10);

  // Attempts of a call that gets UNAVAILABLE (no connection, or a server that drains) or that a
  // server gives up as it closes, 1 to 5; 1 = no retry. LoadModel and UnloadModel are never
  // retried; the other methods only read, so repeating them does no harm.
  int max_attempts = 4;
  // The wait before the second attempt, at least kMinBackoff. It doubles each time, up to
  // max_backoff, and is jittered by a fifth.
  absl::Duration initial_backoff = absl::Milliseconds(100);
  absl::Duration max_backoff = absl::Seconds(2);

  // The largest answer that is accepted, in bytes. Token vectors of long texts are large.
  int max_message_bytes = 64 << 20;

  // TLS: `tls` or any of its files turns it on. The server must present a certificate of one of the
  // authorities in tls_ca, a PEM file (empty = those that the system trusts), for the host in
  // `address`, or for tls_server_name if that is given. The client presents tls_cert and tls_key,
  // PEM files, if the server asks for a certificate (mutual TLS).
  bool tls = false;
  std::string tls_ca;
  std::string tls_cert;
  std::string tls_key;
  std::string tls_server_name;

  // Whether calls go only to servers whose health service (grpc.health.v1) says that they serve.
  // Turn it off to ask about a server that is loading or draining, or that has no model: otherwise
  // the client does not connect to such a server.
  bool only_serving = true;

  // File with the token to send with each call, read again every 10 s. Without TLS the token is
  // sent only to an address of this machine, unless token_without_tls says that something else
  // encrypts.
  std::string token_file;
  bool token_without_tls = false;

  // Further gRPC channel arguments by name, such as {"grpc.keepalive_time_ms", 30000}.
  std::vector<std::pair<std::string, std::variant<int, std::string>>> channel_args;
};

struct CallOptions {
  // Time for this call, including all attempts; unset = ConnectOptions::deadline.
  std::optional<absl::Duration> deadline;
  // Ends Generate and EncodeStream from another thread; may be null.
  Cancellation* cancellation = nullptr;
};

// The statuses that grpc.health.v1 defines.
enum class ServingStatus { kUnknown, kServing, kNotServing, kServiceUnknown };
// "SERVING" and so on.
const char* ServingStatusName(ServingStatus status);

class Client {
 public:
  // Connects lazily: Connect() or the first call reports an address where nothing listens.
  // kInvalidArgument names the option that is out of range.
  static absl::StatusOr<std::unique_ptr<Client>> Create(const ConnectOptions& options);
  virtual ~Client() = default;

  // Waits for the connection, so that the first call does not pay for it. kUnavailable as soon as a
  // connection is refused, with the reason as far as it can be found out, above all what is wrong
  // with TLS; for that, a second connection is made. kDeadlineExceeded after `timeout`.
  virtual absl::Status Connect(absl::Duration timeout) = 0;

  virtual absl::StatusOr<v1::ClassifyResponse> Classify(const v1::ClassifyRequest& request,
                                                        const CallOptions& options = {}) = 0;
  virtual absl::StatusOr<v1::EncodeResponse> Encode(const v1::EncodeRequest& request,
                                                    const CallOptions& options = {}) = 0;
  virtual absl::StatusOr<v1::ScoreResponse> Score(const v1::ScoreRequest& request,
                                                  const CallOptions& options = {}) = 0;

  // Hands over the messages of the answer as they come, on the thread that calls; `on_response`
  // returns false to end the call, which then returns kCancelled. If the server has to stop before
  // the text has ended, the text goes on at another one, and the messages are as if nothing had
  // happened: resume_generate.h says how, and when that ends.
  virtual absl::Status Generate(const v1::GenerateRequest& request,
                                const std::function<bool(const v1::GenerateResponse&)>& on_response,
                                const CallOptions& options = {}) = 0;

  // Tags of passages are those of ModelInfo.reader; a reader without them needs none.
  virtual absl::StatusOr<v1::AnswerResponse> Answer(const v1::AnswerRequest& request,
                                                    const CallOptions& options = {}) = 0;
  // A long text takes long: the deadline is that of all sequences of the call together.
  virtual absl::StatusOr<v1::TranslateResponse> Translate(const v1::TranslateRequest& request,
                                                          const CallOptions& options = {}) = 0;

  // Sends what `next` fills in, until it returns false, and hands over the answer of each request
  // before it asks for the next one. Every request has a chunk or asks for the state.
  // `on_response` returns false to end the call, which then returns kCancelled.
  virtual absl::Status EncodeStream(
      const std::function<bool(v1::EncodeStreamRequest*)>& next,
      const std::function<bool(const v1::EncodeStreamResponse&)>& on_response,
      const CallOptions& options = {}) = 0;

  virtual absl::StatusOr<v1::ListModelsResponse> ListModels(const CallOptions& options = {}) = 0;
  // `name` may be empty if exactly one model is loaded; version 0 = the latest.
  virtual absl::StatusOr<v1::ModelInfo> GetModel(absl::string_view name, int64_t version = 0,
                                                 const CallOptions& options = {}) = 0;
  // AdminService, for a client whose address is the server's --admin_listen. Loading takes as long
  // as the model needs: set the deadline accordingly. Unloading twice is kNotFound the second time.
  virtual absl::StatusOr<v1::LoadModelResponse> LoadModel(absl::string_view name,
                                                          const CallOptions& options = {}) = 0;
  virtual absl::Status UnloadModel(absl::string_view name, const CallOptions& options = {}) = 0;
  // grpc.health.v1: "" is the server as a whole. kNotFound when the server knows no such service.
  virtual absl::StatusOr<ServingStatus> Health(absl::string_view service = "",
                                               const CallOptions& options = {}) = 0;
};

// How long the server asks the client to wait before it sends the call again
// (google.rpc.RetryInfo); nullopt if `status` carries no such detail.
std::optional<absl::Duration> RetryDelay(const absl::Status& status);

// One input sequence.
v1::Sequence TextSequence(absl::string_view text);
v1::Sequence TokensSequence(absl::Span<const std::string> tokens);
v1::Sequence TokenIdsSequence(absl::Span<const int32_t> ids);

// The values of an encoding, row by row, whatever format they came in. `format` is that of the
// request. kInvalidArgument if the data does not fit the shape.
absl::StatusOr<std::vector<float>> EncodingValues(const v1::Encoding& encoding,
                                                  v1::OutputFormat format);

}  // namespace sru::client

#endif  // SRU_CLIENT_CLIENT_H_
