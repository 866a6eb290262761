// Tokenize and Detokenize: texts to the tokens of a model, and back. No worker takes part: what a
// call asks for is known once its request is read, and nothing counts as computed.
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "models/decoding/decoding_memo.h"
#include "models/decoding/generated_text.h"
#include "server/calls/bounds/request_limits.h"
#include "server/calls/kinds/task_call.h"
#include "server/tasks/tasks.h"

namespace sru::server::tasks {
namespace {

// A call whose sequences are answered from the vocabulary. Its tasks have ids, but no tokens to
// compute.
template <typename Request, typename Response>
class VocabularyCall : public calls::TaskCall<Request, Response, calls::TokenTask> {
 public:
  using calls::TaskCall<Request, Response, calls::TokenTask>::TaskCall;

 protected:
  absl::Status ParseParameters(const Request& /*request*/) override {
    const models::Model& model = this->model();
    if (model.tokenizer() != nullptr) return absl::OkStatus();
    const calls::MethodInfo info = calls::Describe(this->method_);
    return absl::FailedPreconditionError(absl::StrCat(
        "model: '", model.name(), "' has no vocabulary, ", info.name, " needs ", info.needs));
  }

  absl::Status CheckAdmission(int64_t /*num_tokens*/, int /*num_sequences*/,
                              batching::Priority /*priority*/) override {
    return absl::OkStatus();
  }
  void CancelWork() override {}

  const std::vector<int32_t>& ids(size_t index) const { return this->tasks()[index].token_ids; }
};

class TokenizeCall final : public VocabularyCall<v1::TokenizeRequest, v1::TokenizeResponse> {
 public:
  using VocabularyCall::VocabularyCall;

 private:
  absl::StatusOr<calls::ParsedSequences> ParseInput(const v1::TokenizeRequest& request,
                                                    std::vector<calls::TokenTask>* tasks) override {
    for (int i = 0; i < request.sequences_size(); ++i) {
      if (const auto form = request.sequences(i).input_case(); form > v1::Sequence::kTokens) {
        return InvalidArgument(
            "sequences[", i, "].", v1::Sequence::descriptor()->FindFieldByNumber(form)->name(),
            ": expected text or tokens, which are what becomes token ids; Detokenize takes ids");
      }
    }
    const bool translates = model().task() == models::Task::kTranslator;
    calls::ModelInput input =
        translates ? calls::SourceOf(model(), limits()) : calls::InputOf(model());
    calls::RequestLimits whole = limits();
    most_tokens_ = whole.max_sequence_tokens;
    if (input.max_tokens > 0) most_tokens_ = std::min(most_tokens_, input.max_tokens);
    // A text that is too long for the model has tokens, too.
    whole.max_sequence_tokens = std::numeric_limits<int>::max();
    input.max_tokens = static_cast<int>(
        std::min<int64_t>(whole.max_request_tokens, whole.max_sequence_tokens - 1));
    input.max_tokens_name = "--max_queue_tokens";
    input.too_long_advice = "divide it";
    input.may_be_empty = true;
    input.spans = &spans_;
    SRU_ASSIGN_OR_RETURN(input.unknown, calls::ParseUnknown(request.unknown(), model()));
    SRU_RETURN_UNLESS_OK(Reserve(calls::SpanBytes(request.sequences(), input.max_tokens)));
    SRU_ASSIGN_OR_RETURN(
        calls::ParsedSequences parsed,
        calls::ParseSequences(request.sequences(), /*truncate=*/false, input, whole, tasks));
    parsed.words = {};
    for (size_t i = 0; i < tasks->size(); ++i) {
      (*tasks)[i].num_tokens = 0;
      parsed.counts[i].computed = 0;
    }
    text_bytes_ = static_cast<int64_t>(request.ByteSizeLong());
    return parsed;
  }

  int64_t AnswerBytes(size_t index, int /*num_tokens*/) const override {
    // A token is a message with a string and five numbers, and their bytes on the wire. The strings
    // are together about as long as the texts.
    constexpr int64_t kTokenBytes = 192;
    return 128 + kTokenBytes * static_cast<int64_t>(ids(index).size()) +
           (index == 0 ? 2 * text_bytes_ : 0);
  }

  void WriteSequence(size_t index, const calls::TokenCounts& counts, float* /*values*/,
                     v1::TokenizeResponse* response) const override {
    response->set_max_sequence_tokens(most_tokens_);
    v1::Tokenization* const tokenization = response->add_tokenizations();
    tokenization->set_unknown_tokens(counts.unknown);
    for (size_t t = 0; t < ids(index).size(); ++t) {
      v1::Token* const token = tokenization->add_tokens();
      token->set_id(ids(index)[t]);
      token->set_text(model().tokenizer()->TokenName(ids(index)[t]));
      if (!spans_[index].empty()) calls::WriteSpan(spans_[index][t], token);
    }
  }

  void FreeInput() override { spans_ = {}; }

  std::vector<std::vector<models::TextSpan>> spans_;  // of texts
  int most_tokens_ = 0;                               // of a sequence of the model
  int64_t text_bytes_ = 0;
};

class DetokenizeCall final : public VocabularyCall<v1::DetokenizeRequest, v1::DetokenizeResponse> {
 public:
  using VocabularyCall::VocabularyCall;

 private:
  absl::StatusOr<calls::ParsedSequences> ParseInput(const v1::DetokenizeRequest& request,
                                                    std::vector<calls::TokenTask>* tasks) override {
    if (request.sequences().empty()) {
      return InvalidArgument("sequences: empty, expected at least one");
    }
    num_sequences_ = request.sequences_size();
    if (num_sequences_ > limits().max_sequences) {
      return calls::TooManySequences(num_sequences_, limits());
    }
    int64_t num_ids = 0;
    for (const v1::TokenIds& ids : request.sequences()) {
      const size_t index = tasks->size();
      num_ids += ids.values_size();
      if (num_ids > limits().max_request_tokens) return calls::TooManyTokens(limits());
      int64_t bytes = 0;
      for (int i = 0; i < ids.values_size(); ++i) {
        const int32_t id = ids.values(i);
        if (id < 0 || id >= model().tokenizer()->size()) {
          return InvalidArgument("sequences[", index, "].values[", i, "]: ", id,
                                 " is out of range, expected 0 to ",
                                 model().tokenizer()->size() - 1);
        }
        bytes += static_cast<int64_t>(model().tokenizer()->TokenName(id).size()) + 1;
      }
      text_bytes_.push_back(bytes);
      tasks->emplace_back().token_ids.assign(ids.values().begin(), ids.values().end());
    }
    calls::ParsedSequences parsed;
    parsed.counts.resize(tasks->size());
    return parsed;
  }

  int64_t AnswerBytes(size_t index, int /*num_tokens*/) const override {
    return 128 + 4 * text_bytes_[index];  // while it is made, as a message and on the wire
  }

  void WriteSequence(size_t index, const calls::TokenCounts& /*counts*/, float* /*values*/,
                     v1::DetokenizeResponse* response) const override {
    const models::Tokenizer& tokenizer = *model().tokenizer();
    std::string* const text = response->add_texts();
    if (tokenizer.detokenizer() == nullptr) {
      for (const int32_t id : ids(index)) {
        absl::StrAppend(text, text->empty() ? "" : " ", tokenizer.TokenName(id));
      }
      return;
    }
    models::GeneratedText whole(tokenizer.detokenizer(), nullptr, models::DecodingMemo());
    whole.AppendPrompt(ids(index), /*echo=*/true);
    *text = whole.Finish();
  }

  std::vector<int64_t> text_bytes_;  // at least, of the text of each sequence
};

}  // namespace

Task Tokenize() { return TaskOf<TokenizeCall>(calls::MethodId::kTokenize); }

Task Detokenize() { return TaskOf<DetokenizeCall>(calls::MethodId::kDetokenize); }

}  // namespace sru::server::tasks
