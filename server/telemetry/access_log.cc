#include "server/telemetry/access_log.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/telemetry/request_id.h"
#include "server/telemetry/trace_context.h"

namespace sru::server::telemetry {
namespace {

constexpr size_t kMaxErrorLength = 300;
constexpr size_t kMaxContentLength = 4096;
constexpr size_t kMaxContentMessageBytes = 1 << 20;

LogLevel LevelOf(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kOk:
    case absl::StatusCode::kCancelled:  // the caller has hung up, which is nothing to look into
      return LogLevel::kInfo;
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kUnknown:
    case absl::StatusCode::kDataLoss:
      return LogLevel::kError;
    default:
      return LogLevel::kWarning;
  }
}

// An error; without `content` the part that holds none of the request's content: messages of
// kInvalidArgument have the form "FIELD: what is wrong with its value".
absl::string_view ErrorOf(const absl::Status& status, bool content) {
  absl::string_view text = status.message();
  if (!content && absl::IsInvalidArgument(status)) text = text.substr(0, text.find(": "));
  return text.substr(0, kMaxErrorLength);
}

std::string ContentOf(const google::protobuf::Message& request) {
  const size_t bytes = request.ByteSizeLong();
  if (bytes > kMaxContentMessageBytes) return absl::StrCat("(", bytes, " bytes)");
  std::string text = request.ShortDebugString();
  if (text.size() > kMaxContentLength) {
    text.resize(kMaxContentLength);
    text += "...";
  }
  return text;
}

// The ids by which a call can be found.
void AppendIds(absl::string_view request_id, const std::optional<TraceContext>& trace,
               std::vector<LogField>* fields) {
  if (!request_id.empty()) fields->push_back({"request_id", request_id});
  if (trace.has_value()) {
    fields->push_back({"trace_id", trace->trace_id});
    fields->push_back({"parent_id", trace->parent_id});
    fields->push_back({"trace_sampled", int64_t{trace->sampled}});
  }
}

void AppendBatch(const CallTimes& times, std::vector<LogField>* fields) {
  const batching::RequestTimes& met = times.met;
  fields->push_back({"rest_us", absl::ToDoubleMicroseconds(times.rest())});
  fields->push_back({"batch_sequences", int64_t{met.batch.sequences}});
  fields->push_back({"batch_tokens", int64_t{met.batch.tokens}});
  if (met.steps == 0) return;
  fields->push_back({"steps", int64_t{met.steps}});
  fields->push_back({"first_step_us", absl::ToDoubleMicroseconds(met.first_step)});
}

}  // namespace

bool AccessLog::MayKeepError(absl::StatusCode code) {
  int64_t ignored = 0;
  return kept_errors_.Take(clock_.Now(), static_cast<size_t>(code), &ignored);
}

void AccessLog::Keep(absl::StatusCode code, absl::Span<const LogField> fields, RecentCalls* calls) {
  const absl::Time now = clock_.WallNow();
  calls->Add({now, code, FormatLogLine(LevelOf(code), "", now, fields, LogFormat::kJson)});
}

bool AccessLog::TakeOfStranger(LogLevel level, absl::string_view peer, int64_t* suppressed) {
  if (options_.requests == LogRequests::kNone || level < GetLogOptions().level) {
    return false;
  }
  int64_t of_strangers = 0;
  if (!strangers_.Take(clock_.Now(), AddressOf(peer), &of_strangers)) return false;
  const bool taken = Take(level, peer, suppressed);
  if (!taken) strangers_.GiveBack(of_strangers);
  *suppressed += of_strangers;
  return taken;
}

std::string AccessLog::Begin(const CallOrigin& call) {
  const absl::string_view given = call.FindHeader(kRequestIdHeader);
  if (given.empty()) return "";
  return IsValidRequestId(given) ? std::string(given) : MakeRequestId();
}

std::string AccessLog::End(const CallOrigin& call, std::string request_id,
                           const CallRecord& record) {
  const bool ok = record.status->ok();
  const bool slow = IsSlow(record);
  if (ok && !slow && options_.requests != LogRequests::kAll) return request_id;
  const LogLevel level = LevelOf(record.status->code());
  int64_t suppressed = 0;
  const std::string peer = call.peer();
  const bool taken = Take(level, peer, &suppressed, slow);
  // Without a line there is nothing to find by an id, and in an overload most calls have none.
  if (request_id.empty() && (taken || slow)) request_id = MakeRequestId();
  const bool is_kept_error = !ok && MayKeepError(record.status->code());
  if (!taken && !slow && !is_kept_error) return request_id;
  const std::optional<TraceContext> parent = ParseTraceparent(call.FindHeader(kTraceparentHeader));
  const std::string code = absl::StatusCodeToString(record.status->code());
  std::vector<LogField> fields = {{"method", record.method}, {"code", code}};
  if (!ok) fields.push_back({"error", ErrorOf(*record.status, false)});
  fields.push_back({"peer", peer});
  if (!record.caller.empty()) fields.push_back({"caller", record.caller});
  AppendIds(request_id, parent, &fields);
  if (!record.span_id.empty()) {
    if (!parent.has_value()) fields.push_back({"trace_id", record.trace_id});
    fields.push_back({"span_id", record.span_id});
  }
  if (!record.model.empty()) {
    fields.push_back({"model", record.model});
    if (record.version > 0) fields.push_back({"version", record.version});
  }
  if (record.sequences > 0) fields.push_back({"sequences", record.sequences});
  if (record.tokens > 0) fields.push_back({"tokens", record.tokens});
  if (record.times.has_value()) {
    for (const auto& [name, time] : {std::pair{"tokenize_us", record.times->tokenize},
                                     std::pair{"queue_us", record.times->queue},
                                     std::pair{"compute_us", record.times->compute},
                                     std::pair{"total_us", record.times->total}}) {
      fields.push_back({name, absl::ToDoubleMicroseconds(time)});
    }
  }
  if (slow) AppendBatch(*record.times, &fields);
  if (slow) Keep(record.status->code(), fields, &slow_calls_);
  if (is_kept_error) Keep(record.status->code(), fields, &errors_);
  if (!taken) return request_id;
  if (!ok) fields[2] = {"error", ErrorOf(*record.status, options_.content)};
  std::string content;
  if (options_.content && record.request != nullptr) {
    content = ContentOf(*record.request);
    fields.push_back({"request", content});
  }
  if (suppressed > 0) fields.push_back({"suppressed_lines", suppressed});
  Log(level, slow ? "slow request" : "request", fields);
  return request_id;
}

void AccessLog::OnRefusal(absl::string_view message, absl::StatusCode code,
                          std::vector<LogField> fields, const CallHeaders& headers,
                          absl::string_view peer, absl::string_view whole_error) {
  const LogLevel level = LevelOf(code);
  const bool is_kept = MayKeepError(code);
  int64_t suppressed = 0;
  const bool taken = TakeOfStranger(level, peer, &suppressed);
  if (!taken && !is_kept) return;
  if (!headers.user_agent.empty()) {
    fields.push_back({"user_agent", headers.user_agent.substr(0, kMaxErrorLength)});
  }
  AppendIds(IsValidRequestId(headers.request_id) ? headers.request_id : "",
            ParseTraceparent(headers.traceparent), &fields);
  if (is_kept) Keep(code, fields, &errors_);
  if (!taken) return;
  for (LogField& field : fields) {
    if (options_.content && field.name == "error") field.value = whole_error;
  }
  if (suppressed > 0) fields.push_back({"suppressed_lines", suppressed});
  Log(level, message, fields);
}

void AccessLog::OnAuthenticationFailure(absl::string_view method, absl::string_view reason,
                                        const CallHeaders& headers, absl::string_view peer,
                                        absl::string_view certificate) {
  std::vector<LogField> fields = {{"method", method.substr(0, kMaxErrorLength)},
                                  {"code", "UNAUTHENTICATED"},
                                  {"reason", reason}};
  if (!peer.empty()) fields.push_back({"peer", peer});
  if (!certificate.empty()) {
    fields.push_back({"certificate", certificate.substr(0, kMaxErrorLength)});
  }
  OnRefusal("authentication failed", absl::StatusCode::kUnauthenticated, std::move(fields), headers,
            peer, "");
}

void AccessLog::OnHttpRefusal(absl::string_view path, int http_status, const absl::Status& reason,
                              const CallHeaders& headers, absl::string_view peer,
                              absl::string_view caller) {
  absl::string_view error = ErrorOf(reason, false);
  if (absl::IsInvalidArgument(reason)) error = error.substr(0, error.find_first_of("'\""));
  const std::string code = absl::StatusCodeToString(reason.code());
  std::vector<LogField> fields = {{"method", path.substr(0, kMaxErrorLength)},
                                  {"http_status", http_status},
                                  {"code", code},
                                  {"error", error},
                                  {"peer", peer}};
  if (!caller.empty()) fields.push_back({"caller", caller});
  OnRefusal("HTTP request refused", reason.code(), std::move(fields), headers, peer,
            ErrorOf(reason, true));
}

void AccessLog::OnHandshakeFailure(absl::string_view reason, absl::string_view detail,
                                   absl::string_view peer) {
  // Without a detail the client has hung up, as a probe does that only connects.
  const LogLevel level = detail.empty() ? LogLevel::kInfo : LogLevel::kWarning;
  int64_t suppressed = 0;
  if (!TakeOfStranger(level, peer, &suppressed)) return;
  std::vector<LogField> fields = {{"reason", reason},
                                  {"detail", detail.substr(0, kMaxErrorLength)}};
  if (!peer.empty()) fields.push_back({"peer", peer});
  if (suppressed > 0) fields.push_back({"suppressed_lines", suppressed});
  Log(level, "TLS handshake failed", fields);
}

void AccessLog::OnAnswerNotTaken(absl::string_view method, absl::string_view peer,
                                 absl::Duration waited) {
  int64_t suppressed = 0;
  if (!Take(LogLevel::kWarning, peer, &suppressed)) return;
  std::vector<LogField> fields = {{"method", method.substr(0, kMaxErrorLength)},
                                  {"peer", peer},
                                  {"waited_s", absl::ToDoubleSeconds(waited)}};
  if (suppressed > 0) fields.push_back({"suppressed_lines", suppressed});
  Log(LogLevel::kWarning, "answer not taken, connection closed", fields);
}

}  // namespace sru::server::telemetry
