// The bodies of /try and the paths below it (try_endpoint.h): JSON into the messages of the calls, and
// their answers into JSON.
#ifndef SRU_SERVER_HTTP_TRY_MESSAGES_H_
#define SRU_SERVER_HTTP_TRY_MESSAGES_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "sru/v1/inference.pb.h"

namespace sru::server {

inline constexpr char kTryPath[] = "/try";
inline constexpr char kTryGeneratePath[] = "/try/generate";
inline constexpr char kTryAnswerPath[] = "/try/answer";
inline constexpr char kTryTranslatePath[] = "/try/translate";

struct TryRequest {
  v1::ClassifyRequest classify;
  absl::Duration timeout = absl::Seconds(5);
};

// The body of POST /try. kInvalidArgument names the key.
absl::StatusOr<TryRequest> ParseTryRequest(absl::string_view body);

struct TryGenerateRequest {
  v1::GenerateRequest generate;
  absl::Duration timeout = absl::Seconds(30);
};

// The body of POST /try/generate. kInvalidArgument names the key.
absl::StatusOr<TryGenerateRequest> ParseTryGenerateRequest(absl::string_view body);

struct TryAnswerRequest {
  v1::AnswerRequest answer;
  absl::Duration timeout = absl::Seconds(5);
};

// The body of POST /try/answer. kInvalidArgument names the key.
absl::StatusOr<TryAnswerRequest> ParseTryAnswerRequest(absl::string_view body);

struct TryTranslateRequest {
  v1::TranslateRequest translate;
  absl::Duration timeout = absl::Seconds(30);
};

// The body of POST /try/translate. kInvalidArgument names the key.
absl::StatusOr<TryTranslateRequest> ParseTryTranslateRequest(absl::string_view body);

// What a body of POST `path` looks like, for messages.
const char* TryBodyAt(absl::string_view path);

// The answers, one JSON object each.
std::string ClassifyBody(const v1::ClassifyResponse& response);
std::string AnswerBody(const v1::AnswerResponse& response);
std::string TranslateBody(const v1::TranslateResponse& response);
// Of one message of a text; "" if it has nothing to show.
std::string GenerateBody(const v1::GenerateResponse& response);

}  // namespace sru::server

#endif  // SRU_SERVER_HTTP_TRY_MESSAGES_H_
