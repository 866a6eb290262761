#include "server/translation/text_translator.h"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_join.h"
#include "base/status.h"
#include "base/utf8.h"
#include "models/model.h"
#include "server/base/interruption.h"
#include "server/calls/message_cord.h"
#include "server/rest/error_response.h"
#include "sru/v1/inference.pb.h"

namespace sru::server::translation {
namespace {

// Sentences of a call. Alignments take memory with the square of the length.
constexpr size_t kMostUnits = 64;
constexpr size_t kMostAligned = 16;
constexpr char kTranslate[] = "/sru.v1.InferenceService/Translate";
// An answer is kept as it came and as a message, until its texts are put together.
constexpr int64_t kCopies = 2;
// The languages and sentences of so many texts, of so many bytes in all, are found within a part of
// a millisecond. More would keep a loop from its connections, or a worker from its batches.
constexpr size_t kFewTexts = 8;
constexpr size_t kShortTexts = 512;

// A text on its way through the models of its path.
struct Job {
  std::vector<TranslatorModel> path;
  std::string text;  // as the models so far have it
  std::unique_ptr<const Document> document;
  std::vector<v1::Translation> translations;  // by unit
};

// The units of a call: the job of each, and its place there.
struct CallUnits {
  const TranslatorModel* model = nullptr;
  bool aligned = false;
  std::vector<std::pair<Job*, size_t>> units;
};

// The end of a message about a language that none of these is.
std::string Instead(const std::vector<std::string>& codes) {
  if (codes.empty()) return "; no model has languages: its config.json may name them";
  return absl::StrCat("; there are ", absl::StrJoin(codes, ", "));
}

bool IsShort(const std::vector<std::string>& texts) {
  size_t size = 0;
  for (const std::string& text : texts) size += text.size();
  return texts.size() <= kFewTexts && size <= kShortTexts;
}

// The memory of an answer with these texts: as values of JSON, and as JSON in a buffer that grows
// by doubling.
int64_t JsonBytes(const std::vector<TranslatedText>& texts) {
  size_t bytes = 0;
  for (const TranslatedText& text : texts) {
    const auto escapes = std::count_if(text.text.begin(), text.text.end(), [](unsigned char c) {
      return c < 0x20 || c == '"' || c == '\\';
    });
    bytes += 3 * text.text.size() + 2 * 5 * static_cast<size_t>(escapes);
  }
  return static_cast<int64_t>(bytes);
}

// One request. Its functions run one after the other, on the threads that bring the answers.
class Translation : public std::enable_shared_from_this<Translation> {
 public:
  Translation(SharedCall call, TextRequest request, const calls::RequestLimits& limits,
              TextTranslator::Done done, calls::InFlight* in_flight)
      : call_(std::move(call)),
        request_(std::move(request)),
        is_short_(IsShort(request_.texts)),
        limits_(limits),
        done_(std::move(done)),
        in_flight_(*in_flight) {
    in_flight_.Enter();
  }
  ~Translation() { in_flight_.Leave(); }
  Translation(const Translation&) = delete;
  Translation& operator=(const Translation&) = delete;

  // Runs `work` where it may take as long as these texts need.
  void RunAside(std::function<void()> work) {
    if (is_short_) return work();
    const SharedCall call = call_;  // the work may be the end
    call->RunAside(std::move(work));
  }

  void Start(const lifecycle::ModelRegistry& registry, std::atomic<int64_t>* num_characters) {
    int64_t characters = 0;
    for (const std::string& text : request_.texts) characters += CountUtf8(text);
    const LanguageCatalog catalog(registry,
                                  [this](absl::string_view model) { return call_->MayUse(model); });
    if (absl::Status status = Prepare(catalog); !status.ok()) return End(status);
    *num_characters += characters;
    Run();
  }

 private:
  absl::Status Prepare(const LanguageCatalog& catalog) {
    if (request_.texts.empty() || request_.texts.size() > kMostTexts) {
      return InvalidArgument(request_.texts_field, ": expected 1 to ", kMostTexts, " texts, found ",
                             request_.texts.size());
    }
    const LanguageKey target = KeyOf(request_.target);
    const std::string target_code = catalog.FindCode(target, /*is_source=*/false);
    if (target_code.empty()) {
      return InvalidArgument("target language: no model translates into '",
                             request_.target.substr(0, 64), "'", Instead(catalog.Targets()));
    }
    for (std::string& text : request_.texts) {
      SRU_ASSIGN_OR_RETURN(TranslatedText answer, SourceOf(catalog, target, text));
      Job& job = jobs_.emplace_back();
      SRU_ASSIGN_OR_RETURN(job.path, catalog.Path(KeyOf(answer.source), target));
      job.text = std::move(text);
      if (job.path.empty()) answer.text = std::move(job.text);
      answers_.push_back(std::move(answer));
      num_steps_ = std::max(num_steps_, job.path.size());
    }
    return absl::OkStatus();
  }

  // Makes call after call, until one of them is not answered at once. A function that calls itself
  // for each would need a stack for all.
  void Run() {
    while (true) {
      if (absl::Status status = EndStep(); !status.ok()) return End(status);
      if (calls_.empty()) return End(absl::OkStatus());
      phase_ = 0;
      call_->Unary(kTranslate, MakeRequest(calls_.back()),
                   [self = shared_from_this()](calls::LocalAnswer answer) {
                     self->RunAside([self, answer = std::move(answer)]() mutable {
                       self->Resume(std::move(answer));
                     });
                   });
      if (phase_.fetch_add(1) == 0) return;  // the answer's thread goes on
      if (!TakeAnswer()) return;
    }
  }

  void Resume(calls::LocalAnswer answer) {
    const auto bytes = static_cast<int64_t>(answer.message.size());
    if (answer.end.status.ok()) answer.end.status = Reserve(kCopies * bytes);
    answer_ = std::move(answer);
    if (phase_.fetch_add(1) == 1 && TakeAnswer()) Run();
  }

  absl::Status Reserve(int64_t bytes) const {
    return call_->memory().Grow(bytes) ? absl::OkStatus() : call_->memory().NoMemory();
  }

  // The language of a text: of those found in it the first that models translate from, or the
  // target; without one English, or the first that there is.
  absl::StatusOr<TranslatedText> SourceOf(const LanguageCatalog& catalog, const LanguageKey& target,
                                          const std::string& text) const {
    TranslatedText answer;
    const auto is_known = [&](const LanguageKey& key, const std::string& code) {
      answer.source = catalog.FindCode(key, /*is_source=*/true);
      if (answer.source.empty() && MatchOf(key, target) != 0) answer.source = code;
      return !answer.source.empty();
    };
    if (!request_.source.empty()) {
      if (is_known(KeyOf(request_.source), request_.target)) return answer;
      return InvalidArgument("source language: no model translates from '",
                             request_.source.substr(0, 64), "'", Instead(catalog.Sources()));
    }
    const std::string beginning = BeginningOf(text, request_.rules, kMostDetectedBytes);
    for (const DetectedLanguage& language : DetectLanguages(beginning)) {
      answer.confidence = language.confidence;
      if (is_known(KeyOf(language.code), language.code)) return answer;
    }
    answer.confidence = 0;
    if (!is_known(KeyOf("en"), "")) answer.source = catalog.Sources().front();
    return answer;
  }

  // If all calls of a step have been answered, puts its texts together and begins the next one. No
  // calls are left after the last.
  absl::Status EndStep() {
    while (calls_.empty()) {
      if (step_ > 0) SRU_RETURN_UNLESS_OK(AssembleAll());
      if (step_ == num_steps_) return absl::OkStatus();
      SRU_RETURN_UNLESS_OK(BeginStep());
      ++step_;
    }
    return absl::OkStatus();
  }

  absl::Status BeginStep() {
    // By model and whether alignments are needed.
    std::map<std::pair<std::string, bool>, CallUnits> open;
    for (Job& job : jobs_) {
      if (step_ >= job.path.size()) continue;
      const TranslatorModel& model = job.path[step_];
      SRU_ASSIGN_OR_RETURN(job.document,
                           Document::Parse(std::move(job.text), request_.rules, SplitterOf(model),
                                           [this](int64_t bytes) { return Reserve(bytes); }));
      job.translations.assign(job.document->units().size(), {});
      for (size_t i = 0; i < job.translations.size(); ++i) {
        const bool aligned = job.document->units()[i].needs_alignment();
        CallUnits& call = open[{model.served->name, aligned}];
        call.model = &model;
        call.aligned = aligned;
        call.units.emplace_back(&job, i);
        if (call.units.size() == MostUnits(model, aligned)) {
          calls_.push_back(std::move(call));
          call = CallUnits();
        }
      }
    }
    for (auto& [key, call] : open) {
      if (!call.units.empty()) calls_.push_back(std::move(call));
    }
    return absl::OkStatus();
  }

  size_t MostUnits(const TranslatorModel& model, bool aligned) const {
    const auto tokens = static_cast<int64_t>(MostTokens(model) + 1);  // with the end
    const int64_t most =
        std::min(int64_t{limits_.max_sequences}, limits_.max_request_tokens / tokens);
    return std::clamp(static_cast<size_t>(most), size_t{1}, aligned ? kMostAligned : kMostUnits);
  }

  size_t MostTokens(const TranslatorModel& model) const {
    const models::TranslatorConfig& config = model.served->model->config().translator;
    int most = std::min(config.max_positions, limits_.max_batch_tokens);
    if (config.source_end_id != models::kNoToken) --most;
    most = std::min(most, limits_.max_sequence_tokens);
    if (config.max_sentence_tokens > 0) most = std::min(most, config.max_sentence_tokens);
    return static_cast<size_t>(std::max(most, 1));
  }

  Document::Splitter SplitterOf(const TranslatorModel& model) const {
    const models::Tokenizer& tokenizer = *model.served->model->tokenizer();
    return [&tokenizer, &model, most = MostTokens(model)](
               std::string_view text,
               Splitting splitting) -> absl::StatusOr<std::vector<TextRange>> {
      std::vector<TextRange> parts;
      for (const TextRange& sentence : SplitSentences(text, model.source_key.language, splitting)) {
        if (Interruption::Asked()) return absl::CancelledError("the caller has left");
        SRU_RETURN_UNLESS_OK(CutSentence(text, sentence, tokenizer, most, &parts));
      }
      return parts;
    };
  }

  absl::Cord MakeRequest(const CallUnits& call) const {
    v1::TranslateRequest request;
    request.set_model(call.model->served->name);
    request.set_return_alignment(call.aligned);
    // A character can have more tokens than the model takes.
    request.set_truncate(true);
    for (const auto& [job, unit] : call.units) {
      request.add_sequences()->set_text(job->document->units()[unit].text);
    }
    return calls::ToCord(request);
  }

  // False if the request has failed.
  bool TakeAnswer() {
    const calls::LocalAnswer answer = std::move(answer_);
    const CallUnits call = std::move(calls_.back());
    calls_.pop_back();
    v1::TranslateResponse response;
    if (!answer.end.status.ok()) {
      End(answer.end);
      return false;
    }
    if (!calls::ParseCord(answer.message, &response) ||
        static_cast<size_t>(response.translations_size()) != call.units.size()) {
      End(absl::InternalError("Translate answered with a message that cannot be read"));
      return false;
    }
    for (size_t i = 0; i < call.units.size(); ++i) {
      const auto& [job, unit] = call.units[i];
      job->translations[unit] = std::move(*response.mutable_translations(static_cast<int>(i)));
    }
    return true;
  }

  absl::Status AssembleAll() {
    for (size_t i = 0; i < jobs_.size(); ++i) {
      Job& job = jobs_[i];
      if (job.document == nullptr) continue;
      const TranslatorModel& model = job.path[step_ - 1];
      const bool add_spaces = !HasSpaces(model.source_key) && HasSpaces(model.target_key);
      SRU_RETURN_UNLESS_OK(Reserve(job.document->AnswerBytes(job.translations)));
      SRU_ASSIGN_OR_RETURN(job.text, job.document->Assemble(job.translations, add_spaces));
      if (step_ == job.path.size()) answers_[i].text = std::move(job.text);
      job.document = nullptr;
      job.translations.clear();
    }
    return absl::OkStatus();
  }

  void End(absl::Status status) { End(calls::CallEnd{std::move(status), {}, {}}); }
  void End(calls::CallEnd end) {
    if (end.status.ok()) end.status = Reserve(JsonBytes(answers_));
    const SharedCall call = std::exchange(call_, nullptr);
    const TextTranslator::Done done = std::exchange(done_, nullptr);
    if (!end.status.ok()) return call->Fail(rest::ErrorOfCall(end));
    done(answers_);
  }

  SharedCall call_;
  TextRequest request_;
  const bool is_short_;
  const calls::RequestLimits limits_;
  TextTranslator::Done done_;
  calls::InFlight& in_flight_;
  std::vector<Job> jobs_;
  std::vector<TranslatedText> answers_;
  size_t num_steps_ = 0;
  size_t step_ = 0;  // steps that have begun
  std::vector<CallUnits>
      calls_;  // of the step, that are yet to be answered; the last one goes first
  calls::LocalAnswer answer_;
  std::atomic<int> phase_{0};  // 1 when the call was made or answered, 2 when both
};

}  // namespace

void TextTranslator::Translate(const SharedCall& call, TextRequest request, Done done) {
  const auto translation = std::make_shared<Translation>(call, std::move(request), limits_,
                                                         std::move(done), &in_flight_);
  translation->RunAside([this, translation] { translation->Start(registry_, &num_characters_); });
}

}  // namespace sru::server::translation
