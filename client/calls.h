// The classes and functions of client.h without the definitions of the messages, whose headers are
// large: for files that touch no message, or only hand it on.
#ifndef SRU_CLIENT_CALLS_H_
#define SRU_CLIENT_CALLS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client/cancellation.h"
#include "client/connect_options.h"
#include "client/messages_fwd.h"

namespace sru::client {

struct CallOptions {
  // Time for this call, including all attempts; unset = ConnectOptions::deadline.
  std::optional<absl::Duration> deadline;
  // Ends Generate and EncodeStream from another thread; may be null.
  Cancellation* cancellation = nullptr;
  // Appears in the server's log, and comes back; 1 to 128 visible ASCII characters. Empty: none.
  std::string request_id;
  // The header of W3C Trace Context, by which the server's spans become children of the caller's:
  // that of the caller's tracer, or one of StartTrace(). Empty: the call is not part of a trace.
  std::string traceparent;
};

// A traceparent that begins a sampled trace: for programs without a tracer.
std::string StartTrace();

// The statuses that grpc.health.v1 defines, with its numbers.
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
  // connection is refused, with gRPC's reason and the option to look at. kDeadlineExceeded after
  // `timeout`.
  virtual absl::Status Connect(absl::Duration timeout) = 0;

  // Classify() and each other of SRU_CLIENT_METHODS (messages_fwd.h). Tags of an Answer's passages
  // are those of ModelInfo.reader; a reader without them needs none. A long text takes long to
  // translate: the deadline is that of all sequences of the call together.
#define SRU_CLIENT_METHOD(name)                                                     \
  virtual absl::StatusOr<v1::name##Response> name(const v1::name##Request& request, \
                                                  const CallOptions& options = {}) = 0;
  SRU_CLIENT_METHODS(SRU_CLIENT_METHOD)
#undef SRU_CLIENT_METHOD

  // Hands over the messages of the answer as they come, on the thread that calls; `on_response`
  // returns false to end the call, which then returns kCancelled. If the server has to stop before
  // the text has ended, the text goes on at another one, and the messages are as if nothing had
  // happened: resume_generate.h says how, and when that ends.
  virtual absl::Status Generate(const v1::GenerateRequest& request,
                                const std::function<bool(const v1::GenerateResponse&)>& on_response,
                                const CallOptions& options = {}) = 0;

  // Sends what `next` fills in, until it returns false, and hands over the answer of each request
  // before it asks for the next one. Every request has a chunk or asks for the state. A server that
  // ends may send one more answer, with the state alone, before its error.
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

#endif  // SRU_CLIENT_CALLS_H_
