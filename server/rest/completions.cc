#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "base/mutex.h"
#include "base/utf8.h"
#include "nlohmann/json.hpp"
#include "server/calls/message_cord.h"
#include "server/rest/api_routes.h"
#include "server/rest/completions_request.h"
#include "server/rest/event_stream.h"
#include "server/rest/json_message.h"
#include "server/rest/openapi.h"
#include "server/telemetry/request_id.h"
#include "sru/v1/inference.pb.h"

namespace sru::server::rest {
namespace {

constexpr char kGenerate[] = "/sru.v1.InferenceService/Generate";
constexpr char kReplacement[] = "\xEF\xBF\xBD";

// How many prompts of a request are under way at a time: enough to fill a batch, and few of the
// server's open streams.
constexpr size_t kMostAtOnce = 16;

// What OpenAI has for each token of a choice, as the members of four lists.
struct TokenLists {
  std::string tokens;
  std::string log_probs;
  std::string candidates;
  std::string offsets;
};

// One prompt of the request and its call.
struct Prompt {
  v1::Sequence sequence;                       // empty where it is not needed any more
  std::shared_ptr<calls::LocalStream> stream;  // null: not under way
  bool has_begun = false;                      // its first message has come
  size_t done_when_sent = 0;                   // how many prompts were done then
};

// One text, as far as it has come.
struct Choice {
  std::string text;
  TokenLists lists;
  int64_t num_tokens = 0;       // since the beginning of the text
  int64_t offset = 0;           // of the next token, in code points
  const char* finish = "null";  // as JSON
};

const char* FinishName(v1::FinishReason reason) {
  if (reason == v1::FINISH_REASON_LENGTH) return "\"length\"";
  return reason == v1::FINISH_REASON_STOP ? "\"stop\"" : "null";
}

// The calls of one request and what becomes of their answers.
class Completions : public std::enable_shared_from_this<Completions> {
 public:
  Completions(SharedCall call, CompletionsRequest request)
      : call_(std::move(call)),
        request_(std::move(request)),
        id_(absl::StrCat("cmpl-", telemetry::MakeRequestId())),
        created_(absl::ToUnixSeconds(absl::Now())),
        prompts_(request_.prompts.size()),
        choices_(prompts_.size() * samples()) {
    for (size_t i = 0; i < prompts_.size(); ++i) {
      prompts_[i].sequence = std::move(request_.prompts[i]);
    }
    if (request_.stream) events_ = std::make_shared<EventStream>(call_, ErrorForm::kOpenAi);
  }

  void Start() {
    FailIfThrown([this] {
      if (events_ != nullptr) events_->Start();
      for (size_t i = 0; i < kMostAtOnce; ++i) StartNext();
    });
  }

 private:
  size_t samples() const { return static_cast<size_t>(request_.generate.num_samples()); }
  // Texts whose last token is left out are sent when they are complete.
  bool sends_parts() const { return request_.stream && !request_.score_only; }

  // What one prompt throws fails the request here, since the others must end as well.
  template <typename Run>
  void FailIfThrown(const Run& run) {
    Guard(run, [this](const RestError& error) { Fail(error); });
  }

  void StartNext() {
    size_t prompt = 0;
    v1::GenerateRequest generate;
    {
      MutexLock lock(&mutex_);
      if (ended_) return;
      if (!refused_.empty()) {
        prompt = refused_.back();
        refused_.pop_back();
      } else if (next_prompt_ < prompts_.size()) {
        prompt = next_prompt_++;
      } else {
        return;
      }
      ++under_way_;
      prompts_[prompt].done_when_sent = done_prompts_;
      generate = request_.generate;
      *generate.mutable_prompt() = prompts_[prompt].sequence;
    }
    std::shared_ptr<calls::LocalStream> stream = call_->ServerStream(
        kGenerate, calls::ToCord(generate),
        [self = shared_from_this(), prompt](const absl::Cord& bytes) {
          self->FailIfThrown([&] { self->OnMessage(prompt, bytes); });
        },
        [self = shared_from_this(), prompt](const calls::LocalAnswer& answer) {
          self->FailIfThrown([&] { self->OnDone(prompt, answer); });
        });
    bool cancel = false;
    {
      MutexLock lock(&mutex_);
      prompts_[prompt].stream = stream;
      cancel = ended_;
    }
    cancel ? stream->Cancel() : stream->Next();
  }

  void Next(size_t prompt) {
    if (const std::shared_ptr<calls::LocalStream> stream = StreamOf(prompt)) stream->Next();
  }
  std::shared_ptr<calls::LocalStream> StreamOf(size_t prompt) {
    MutexLock lock(&mutex_);
    return prompts_[prompt].stream;
  }

  void OnMessage(size_t prompt, const absl::Cord& bytes) {
    v1::GenerateResponse response;
    const bool is_good = calls::ParseCord(bytes, &response);
    const auto sample = static_cast<size_t>(response.sample());  // a negative one is too large
    if (!is_good || sample >= samples()) {
      return Fail({absl::InternalError("a service answered with a message that cannot be read")});
    }
    std::string part;
    bool has_memory = true;
    {
      MutexLock lock(&mutex_);
      if (ended_) return;
      const size_t index = prompt * samples() + sample;
      Choice& choice = choices_[index];
      model_ = response.model();
      prompts_[prompt].has_begun = true;
      if (!request_.score_only) prompts_[prompt].sequence.Clear();
      Add(response, /*has_text=*/SentText(index) == nullptr, &choice);
      if (response.finish_reason() != v1::FINISH_REASON_UNSPECIFIED && response.sample() == 0) {
        prompt_tokens_ += response.prompt_tokens();
      }
      if (!request_.score_only) completion_tokens_ += response.generated_tokens();
      if (sends_parts()) {
        part = Chunk(index);
        choice.text.clear();
        choice.lists = {};
      } else {
        has_memory = call_->memory().Grow(static_cast<int64_t>(2 * bytes.size()));
      }
    }
    if (!has_memory) return Fail({call_->memory().NoMemory()});
    if (!sends_parts()) return Next(prompt);
    events_->Send(part, [self = shared_from_this(), prompt](bool more) {
      more ? self->Next(prompt) : self->CancelAll();
    });
  }

  // The text of the choice if it is what was sent, to the byte; else null.
  const std::string* SentText(size_t index) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const v1::Sequence& prompt = prompts_[index / samples()].sequence;
    return request_.score_only && prompt.has_text() ? &prompt.text() : nullptr;
  }

  // Of `response`, what the choice is to have.
  void Add(const v1::GenerateResponse& response, bool has_text, Choice* choice)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (has_text) absl::StrAppend(&choice->text, response.text());
    choice->finish = FinishName(response.finish_reason());
    int count = response.token_ids_size();
    if (request_.score_only && response.finish_reason() != v1::FINISH_REASON_UNSPECIFIED &&
        count > 0) {
      // The token that Generate was asked for only because it must be asked for one.
      --count;
      choice->finish = FinishName(v1::FINISH_REASON_LENGTH);
      absl::string_view kept = choice->text;
      if (!absl::ConsumeSuffix(&kept, response.token_texts(count))) {
        absl::ConsumeSuffix(&kept, kReplacement);
      }
      choice->text.resize(kept.size());
    }
    if (!request_.logprobs.has_value()) return;
    for (int i = 0; i < count; ++i) AddToken(response, i, choice);
  }

  void AddToken(const v1::GenerateResponse& response, int i, Choice* choice) const {
    TokenLists& lists = choice->lists;
    const std::string& text = response.token_texts(i);
    const char* const comma = lists.tokens.empty() ? "" : ",";
    AppendJsonText(comma, text, &lists.tokens);
    absl::StrAppend(&lists.offsets, comma, choice->offset);
    choice->offset += CountUtf8(text);
    lists.log_probs += comma;
    lists.candidates += comma;
    // Nothing predicts the first token of a prompt.
    if (request_.echo && choice->num_tokens++ == 0) {
      lists.log_probs += "null";
      lists.candidates += "null";
      return;
    }
    AppendJsonNumber(response.log_probs(i), &lists.log_probs);
    std::vector<absl::string_view> seen;
    lists.candidates += '{';
    const auto add = [&](const std::string& name, float log_prob) {
      if (std::find(seen.begin(), seen.end(), name) != seen.end()) return;
      AppendJsonText(seen.empty() ? "" : ",", name, &lists.candidates);
      seen.push_back(name);
      lists.candidates += ':';
      AppendJsonNumber(log_prob, &lists.candidates);
    };
    if (i < response.candidates_size()) {
      for (const v1::Candidate& candidate : response.candidates(i).candidates()) {
        add(candidate.text(), candidate.log_prob());
      }
    }
    add(text, response.log_probs(i));
    lists.candidates += '}';
  }

  void OnDone(size_t prompt, const calls::LocalAnswer& answer) {
    bool again = false;
    bool all = false;
    {
      MutexLock lock(&mutex_);
      prompts_[prompt].stream = nullptr;
      --under_way_;
      // A place may be free when another prompt of this request ends, or has since this one was
      // sent.
      again = !prompts_[prompt].has_begun && absl::IsResourceExhausted(answer.end.status) &&
              (under_way_ > 0 || done_prompts_ > prompts_[prompt].done_when_sent);
      if (again) {
        refused_.push_back(prompt);
        if (under_way_ > 0) return;
      } else {
        all = ++done_prompts_ == prompts_.size() && !ended_;
      }
    }
    if (!again && !answer.end.status.ok()) {
      const auto index = request_.has_list_of_prompts ? std::make_optional(prompt) : std::nullopt;
      return Fail(ErrorOfPrompt(ErrorOfCall(answer.end), index));
    }
    if (all) return End();
    StartNext();
  }

  void End() {
    std::vector<std::string> chunks;
    std::string body;
    {
      MutexLock lock(&mutex_);
      if (std::exchange(ended_, true)) return;
      if (!request_.stream) {
        body = Json(0, choices_.size(), Usage());
      } else if (!sends_parts()) {
        for (size_t i = 0; i < choices_.size(); ++i) chunks.push_back(Chunk(i));
      }
      if (request_.include_usage) chunks.push_back(Json(0, 0, Usage()));
    }
    if (!request_.stream) return call_->Reply(JsonResponse(std::move(body)));
    for (const std::string& chunk : chunks) events_->Send(chunk, nullptr);
    events_->End("[DONE]");
  }

  void Fail(const RestError& error) {
    {
      MutexLock lock(&mutex_);
      if (std::exchange(ended_, true)) return;
    }
    CancelAll();
    events_ != nullptr ? events_->Fail(error) : call_->Fail(error);
  }

  void CancelAll() {
    std::vector<std::shared_ptr<calls::LocalStream>> streams;
    {
      MutexLock lock(&mutex_);
      ended_ = true;
      for (const Prompt& prompt : prompts_) {
        if (prompt.stream != nullptr) streams.push_back(prompt.stream);
      }
    }
    for (const std::shared_ptr<calls::LocalStream>& stream : streams) stream->Cancel();
  }

  void AppendChoice(size_t index, std::string* json) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const Choice& choice = choices_[index];
    const std::string* const sent = SentText(index);
    AppendJsonText(absl::StrCat("{\"index\":", index, ",\"text\":"),
                   sent != nullptr ? *sent : choice.text, json);
    *json += ",\"logprobs\":";
    if (request_.logprobs.has_value()) {
      absl::StrAppend(json, "{\"tokens\":[", choice.lists.tokens, "],\"token_logprobs\":[",
                      choice.lists.log_probs, "],\"top_logprobs\":[", choice.lists.candidates,
                      "],\"text_offset\":[", choice.lists.offsets, "]}");
    } else {
      *json += "null";
    }
    absl::StrAppend(json, ",\"finish_reason\":", choice.finish, "}");
  }

  std::string Usage() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return absl::StrCat("{\"prompt_tokens\":", prompt_tokens_,
                        ",\"completion_tokens\":", completion_tokens_,
                        ",\"total_tokens\":", prompt_tokens_ + completion_tokens_, "}");
  }

  std::string Chunk(size_t index) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return Json(index, index + 1, request_.include_usage ? "null" : "");
  }
  // An answer, or a part of one, with the choices from `begin` to before `end`.
  std::string Json(size_t begin, size_t end, const std::string& usage) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    std::string text =
        absl::StrCat(R"({"id":")", id_, R"(","object":"text_completion","created":)", created_);
    AppendJsonText(",\"model\":", model_, &text);
    text += ",\"choices\":[";
    for (size_t i = begin; i < end; ++i) {
      if (i > begin) text += ',';
      AppendChoice(i, &text);
    }
    absl::StrAppend(&text, "]", usage.empty() ? "" : ",\"usage\":", usage, "}");
    return text;
  }

  const SharedCall call_;
  CompletionsRequest request_;  // constant, without its prompts
  const std::string id_;
  const int64_t created_;
  std::shared_ptr<EventStream> events_;  // constant; null: one answer

  Mutex mutex_;
  std::vector<Prompt> prompts_ ABSL_GUARDED_BY(mutex_);
  std::vector<Choice> choices_ ABSL_GUARDED_BY(mutex_);  // those of a prompt stand together
  std::vector<size_t> refused_ ABSL_GUARDED_BY(mutex_);  // prompts that are to be sent again
  size_t under_way_ ABSL_GUARDED_BY(mutex_) = 0;  // prompts that were sent and have not ended
  std::string model_ ABSL_GUARDED_BY(mutex_);
  size_t next_prompt_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t done_prompts_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t prompt_tokens_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t completion_tokens_ ABSL_GUARDED_BY(mutex_) = 0;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace

RouteGroup CompletionsRoutes() {
  Route route(AnswerMemory::kOwn, "POST", "/v1/completions", ErrorForm::kOpenAi);
  route.calls = calls::MethodId::kGenerate;
  route.handle = [](const SharedCall& call) {
    CompletionsRequest request;
    request.max_prompts = call->limits().max_sequences;
    const RestError error = ParseCompletionsRequest(call->body(), &call->memory(), &request);
    if (!error.status.ok()) return call->Fail(error);
    // The prompts stay, until they are sent.
    call->memory().ShrinkTo(2 * static_cast<int64_t>(call->body().size()));
    std::string().swap(call->body());
    const auto samples = static_cast<size_t>(request.generate.num_samples());
    const size_t state = request.prompts.size() * (sizeof(Prompt) + samples * sizeof(Choice));
    if (!call->memory().Grow(static_cast<int64_t>(state))) {
      return call->Fail(call->memory().NoMemory());
    }
    std::make_shared<Completions>(call, std::move(request))->Start();
  };
  route.openapi = [] { return OpenApiPart("completions"); };
  RouteGroup group;
  group.routes.push_back(std::move(route));
  group.schemas = [] { return OpenApiPart("completions_schemas"); };
  return group;
}

}  // namespace sru::server::rest
