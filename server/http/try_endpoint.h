// POST /try and the paths below it on the metrics port, for the boxes on the status page: classifies
// a text, lets a language model go on from one, answers a question, translates a text.
//
// The text goes through the server's own methods on an in-process channel, so that the same
// limits, deadline, authorization, scheduling and metrics apply as to every other caller.
//
//   POST /try
//   Content-Type: application/json
//   X-Sru-Try: 1
//
//   {"text": "Where is Lake Titicaca ?", "model": "trec", "version": 1, "timeout_ms": 5000}
//
// Only "text" is required. The answers are
//   200 {"model", "version", "labels": [{"name", "probability", "logit"}, ...], "token_count",
//        "truncated", "times": {"tokenize_us", "queue_us", "compute_us", "total_us"}}
//   4xx, 5xx {"error": {"code": "INVALID_ARGUMENT", "message": "..."}}, the code being that of gRPC
//
//   POST /try/generate, with the same headers
//
//   {"prompt": "It was a dark and", "model": "war_and_peace", "version": 1, "max_new_tokens": 200,
//    "temperature": 0.8, "top_p": 0.95, "seed": 7, "timeout_ms": 30000}
//
// Only "prompt" is required. The text comes as it is made, as server-sent events (text/event-stream)
// of one JSON object each:
//   {"text": "..."}   some more of it, any number of times
//   {"finish_reason": "length" or "stop", "model", "version", "prompt_tokens", "generated_tokens",
//    "times": {...}}   the last one; or {"error": {...}} as above, if the call failed
// The call is cancelled when the client closes the connection.
//
//   POST /try/answer, with the same headers
//
//   {"question": "Who wrote Hamlet?", "passage": "...", "model": "squad", "version": 1, "top_n": 3,
//    "timeout_ms": 5000}
//
// "question" and "passage" are required. Answers do not overlap. The answers are
//   200 {"model", "version", "answers": [{"text", "start_char", "end_char", "log_score",
//        "probability"}, ...], "token_count", "times": {...}}, with offsets in code points
//
//   POST /try/translate, with the same headers
//
//   {"text": "A dog runs.", "model": "captions", "version": 1, "beam_size": 5, "num_hypotheses": 3,
//    "timeout_ms": 30000}
//
// Only "text" is required. The answers are
//   200 {"model", "version", "hypotheses": [{"text", "tokens", "score", "log_prob", "unfinished",
//        "alignment": [[...], ...]}, ...], "source_tokens", "token_count", "truncated",
//        "times": {...}}, with alignments in thousandths, empty if they are very large
//
// Access: the port is meant for monitoring, and is often open to more machines than the gRPC port.
//   kLocal  only from this machine: the connection comes from a loopback address, no proxy has
//           forwarded it, and the page was opened as localhost or by a loopback address. A proxy
//           on this machine that does not say that it forwards opens it to everybody.
//   kAll    from everywhere
//   kOff    nobody
// Other web sites never have access: the page must have been opened under a name that cannot be
// theirs (page_host.h), the request needs a header and a content type that a browser sends to a
// foreign origin only after asking, which this port refuses, and Origin and Sec-Fetch-Site must not
// say that it comes from elsewhere. An Authorization header counts as in a call.
//
// Thread-safe.
#ifndef SRU_SERVER_HTTP_TRY_ENDPOINT_H_
#define SRU_SERVER_HTTP_TRY_ENDPOINT_H_

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "grpcpp/client_context.h"
#include "grpcpp/support/status.h"
#include "server/base/mutex.h"
#include "server/http/page_message.h"
#include "server/http/try_access.h"
#include "server/http/try_messages.h"
#include "sru/v1/inference.pb.h"

namespace sru::server {

class TryEndpoint {
 public:
  // One blocking Classify call.
  using ClassifyFunction = std::function<grpc::Status(
      grpc::ClientContext*, const v1::ClassifyRequest&, v1::ClassifyResponse*)>;

  // One blocking Generate call, which hands over the messages as they come until that returns false.
  using GenerateFunction = std::function<grpc::Status(
      grpc::ClientContext*, const v1::GenerateRequest&,
      const std::function<bool(const v1::GenerateResponse&)>& on_response)>;

  // One blocking call of Answer, of Translate.
  using AnswerFunction = std::function<grpc::Status(grpc::ClientContext*, const v1::AnswerRequest&,
                                                    v1::AnswerResponse*)>;
  using TranslateFunction = std::function<grpc::Status(
      grpc::ClientContext*, const v1::TranslateRequest&, v1::TranslateResponse*)>;

  // Further requests get 429: each occupies one of the few threads that make the pages.
  static constexpr int kMaxConcurrent = 2;

  // `page_hosts` are names under which the page may be opened besides those of page_host.h.
  explicit TryEndpoint(TryAccess access, std::vector<std::string> page_hosts = {})
      : access_(access), page_hosts_(std::move(page_hosts)) {}

  // Until it is set, requests get 503.
  void SetClassify(ClassifyFunction classify);
  void SetGenerate(GenerateFunction generate);
  void SetAnswer(AnswerFunction answer);
  void SetTranslate(TranslateFunction translate);

  // Sets the function that checks the header Authorization, if there is one, before the body is
  // read. Without a function everybody passes. Call this before the first request.
  using Authenticator = std::function<absl::Status(const PageRequest& request)>;
  void SetAuthenticator(Authenticator authenticator);

  // From now on requests get 503, and running calls are cancelled. When this returns, the functions
  // are no longer in use. A channel in this process must not be called once its server is shut down.
  void Close();

  // OK, or kPermissionDenied with advice on what to do. Checks the sender, not the method.
  absl::Status CheckAccess(const PageRequest& request) const;

  // Answers /try and the paths below it; /try/generate with PageResponse::write_body, which must not
  // outlive this.
  PageResponse Handle(const PageRequest& request);

 private:
  // What a request holds while it is answered: one of kMaxConcurrent places.
  using Place = std::shared_ptr<void>;
  struct Refusal {
    int http_status = 0;  // 0: that of the code
    absl::Duration retry_after = absl::ZeroDuration();
  };

  // Runs `call` with one of the functions below; UNAVAILABLE if it is not set.
  template <typename Function, typename Call>
  grpc::Status RunCall(grpc::ClientContext* context, Function TryEndpoint::*function,
                       const Call& call);
  // Checks the sender and reads the body.
  absl::StatusOr<std::string> Accept(const PageRequest& request, Place* place, Refusal* refusal);
  // Makes the call of one of the functions that have one answer; `to_body` writes that as JSON.
  template <typename Request, typename Response>
  absl::StatusOr<PageResponse> Ask(
      const PageRequest& request, const Request& call, absl::Duration timeout,
      std::function<grpc::Status(grpc::ClientContext*, const Request&, Response*)> TryEndpoint::*
          function,
      std::string (*to_body)(const Response&), Refusal* refusal);
  // Reads the body and makes the call that belongs to the path.
  absl::StatusOr<PageResponse> Answer(const PageRequest& request, const std::string& body,
                                      Place place, Refusal* refusal);
  absl::StatusOr<PageResponse> Generate(const PageRequest& request, const std::string& body,
                                        Place place);
  void WriteText(const TryGenerateRequest& request, const std::string& authorization,
                 PageStream* stream);

  const TryAccess access_;
  const std::vector<std::string> page_hosts_;
  Mutex mutex_;
  Authenticator authenticator_ ABSL_GUARDED_BY(mutex_);
  ClassifyFunction classify_ ABSL_GUARDED_BY(mutex_);
  GenerateFunction generate_ ABSL_GUARDED_BY(mutex_);
  AnswerFunction answer_ ABSL_GUARDED_BY(mutex_);
  TranslateFunction translate_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  int running_ ABSL_GUARDED_BY(mutex_) = 0;  // requests whose headers have arrived
  std::set<grpc::ClientContext*> calls_ ABSL_GUARDED_BY(mutex_);  // that run
  CondVar call_ended_;
};

}  // namespace sru::server

#endif  // SRU_SERVER_HTTP_TRY_ENDPOINT_H_
