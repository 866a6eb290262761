// sru_client answer: answers to questions, found in texts.
#include <unistd.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "base/limits.h"
#include "base/status.h"
#include "base/utf8.h"
#include "client/client.h"
#include "client/commands/batches.h"
#include "client/commands/commands.h"
#include "client/commands/text_input.h"
#include "client/read_file.h"

namespace sru::client {
namespace {

constexpr char kAnswerHelp[] =
    R"(sru_client answer finds the answer to a question in texts, and prints it with what is around it.

usage: sru_client answer --question=QUESTION [--flag=value ...] [FILE ...]

Without FILE, reads standard input; - is standard input, too. Each file is a passage, of any length
that the server takes (max_sequence_tokens of sru_client models --json). All passages compete: the
answers with the best scores are printed, the best first, each marked in its text. SCORE can be
compared between all passages; PROBABILITY says how sure the model is of the place within its
passage. With --json, "passage" is the number of the file, from 1, and offsets are those in the file.

A passage that the server refuses fails alone: standard error names it, and the exit code is 1.

examples:
  sru_client answer --question="Who wrote Hamlet?" drama.txt
  sru_client answer --question="When did it end?" --top_n=3 --no_overlap < article.txt
  sru_client answer --question="Where is it?" --one_per_passage --top_n=5 *.txt
  sru_client answer --question="Who?" --json drama.txt | jq -r '.answers[0].text'
)";

// Passages go together in one call, up to this many and up to this many bytes.
constexpr size_t kCallPassages = 32;
constexpr size_t kCallBytes = 1 << 20;
constexpr int kCallsAtATime = 4;
// A row shows so many bytes of a passage on each side of its answer.
constexpr size_t kContext = 60;

struct AnswerFlags {
  CommonFlags common;
  TargetFlags target;
  std::string question;
  int top_n = 1;
  bool one_per_passage = false;
  bool no_overlap = false;
  int max_answer_tokens = 0;
};

// Checks the flags and makes what all requests have. kInvalidArgument names the flag.
absl::Status MakeRequest(const AnswerFlags& flags, v1::AnswerRequest* request) {
  if (flags.question.empty()) {
    return absl::InvalidArgumentError("--question: expected a question, found none");
  }
  flags.target.SetOn(request);
  request->set_top_n(flags.top_n);
  request->set_max_answer_tokens(flags.max_answer_tokens);
  request->set_one_per_passage(flags.one_per_passage);
  request->set_no_overlap(flags.no_overlap);
  return absl::OkStatus();
}

// The answer in brackets with what is around it in its passage, in one line.
std::string Marked(const std::string& passage, const v1::SpanAnswer& span) {
  const auto begin = static_cast<size_t>(span.start_byte());
  const auto end = static_cast<size_t>(span.end_byte());
  size_t from = begin - std::min(begin, kContext);
  while (from < begin && ContinuesUtf8(passage[from])) ++from;
  size_t to = std::min(end + kContext, passage.size());
  while (to < passage.size() && ContinuesUtf8(passage[to])) ++to;
  const auto line = [&](size_t part_begin, size_t part_end) {
    std::string text = passage.substr(part_begin, part_end - part_begin);
    const auto is_space = [](char c) { return absl::ascii_isspace(static_cast<uint8_t>(c)); };
    std::replace_if(text.begin(), text.end(), is_space, ' ');
    const auto both_spaces = [](char a, char b) { return a == ' ' && b == ' '; };
    text.erase(std::unique(text.begin(), text.end(), both_spaces), text.end());
    return Printable(text);
  };
  const std::string marked =
      absl::StrCat(from > 0 ? "..." : "", line(from, begin), "[", line(begin, end), "]",
                   line(end, to), to < passage.size() ? "..." : "");
  return std::string(absl::StripAsciiWhitespace(marked));
}

struct Passage {
  int number = 0;    // of the file, from 1
  std::string file;  // "" for standard input
  std::string text;

  int64_t Line(size_t offset) const {
    return 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(offset), '\n');
  }
  // "FILE:12" or "line 12".
  std::string Where(size_t offset) const {
    return absl::StrCat(file.empty() ? "line " : absl::StrCat(file, ":"), Line(offset));
  }
};

// An answer, and its row.
struct Found {
  double log_score = 0;
  std::vector<std::string> cells;
  Json json;
};

// Asks the question of all passages, and keeps the best answers.
class Question : public BatchRunner<Passage, v1::AnswerResponse> {
 public:
  Question(const Command& command, const AnswerFlags& flags, v1::AnswerRequest request,
           Client* client, std::vector<std::string> files, Printer* printer)
      : BatchRunner(command, flags.common),
        flags_(flags),
        request_(std::move(request)),
        client_(client),
        files_(std::move(files)),
        printer_(printer) {
    if (files_.empty()) files_.emplace_back("-");
  }

  // Returns the exit code.
  int Run() {
    const absl::Time start = absl::Now();
    BatchRunner::Run(kCallsAtATime);
    if (model_.empty()) return exit_code_;
    Json list = Json::array();
    for (Found& found : best_) {
      list.push_back(std::move(found.json));
      if (!printer_->json()) printer_->Row(std::move(found.cells));
    }
    if (printer_->json()) {
      printer_->Object({{"question", flags_.question},
                        {"model", model_},
                        {"version", version_},
                        {"answers", std::move(list)},
                        {"token_count", printer_->tokens()},
                        {"unknown_tokens", printer_->unknown()},
                        {"latency_us", absl::ToDoubleMicroseconds(absl::Now() - start)}});
    }
    printer_->Flush();
    return exit_code_;
  }

 private:
  absl::StatusOr<Items> Next() override {
    Items passages;
    size_t bytes = 0;
    while (next_ < files_.size() && passages.size() < kCallPassages && bytes < kCallBytes) {
      const std::string& name = files_[next_];
      Passage passage;
      if (name != "-") passage.file = name;
      absl::StatusOr<std::string> text =
          name == "-" ? ReadAll(STDIN_FILENO, "standard input") : ReadFile("FILE", name);
      if (!text.ok() && passages.empty()) return text.status();
      if (!text.ok()) break;  // the next call reports it, after the answers to these
      passage.number = static_cast<int>(++next_);
      passage.text = *std::move(text);
      bytes += passage.text.size();
      passages.push_back(std::move(passage));
    }
    return passages;
  }

  // kInternal unless the query has its answers, which are parts of its passages.
  absl::StatusOr<v1::AnswerResponse> Call(const Items& passages) override {
    v1::AnswerRequest request = request_;
    v1::Query* query = request.add_queries();
    query->set_question(flags_.question);
    for (const Passage& passage : passages) query->add_passages(passage.text);
    SRU_ASSIGN_OR_RETURN(v1::AnswerResponse response, client_->Answer(request));
    if (response.results_size() != 1) {
      return absl::InternalError(
          absl::StrCat("the server answered one question ", response.results_size(), " times"));
    }
    for (const v1::SpanAnswer& span : response.results(0).answers()) {
      if (span.passage() < 0 || span.passage() >= query->passages_size() || span.start_byte() < 0 ||
          span.start_byte() > span.end_byte() ||
          static_cast<size_t>(span.end_byte()) > query->passages(span.passage()).size()) {
        return absl::InternalError(absl::StrCat(
            "the server answered with bytes ", span.start_byte(), " to ", span.end_byte(),
            " of passage ", span.passage(), " of ", query->passages_size()));
      }
    }
    return response;
  }

  bool Fail(const Answer& answer) override {
    const absl::Status& status = answer.response.status();
    // The question may be to blame as well.
    return BatchRunner::Fail(answer) && (status.code() != absl::StatusCode::kInvalidArgument ||
                                         absl::StartsWith(status.message(), "queries[0].passage"));
  }

  std::string Where(const Passage& passage) const override { return passage.Where(0); }

  // Keeps the best, which are printed once all answers are known.
  void Print(const Answer& answered) override {
    const v1::QueryAnswers& result = answered.response->results(0);
    model_ = answered.response->model();
    version_ = answered.response->version();
    printer_->Count(result);
    for (const v1::SpanAnswer& span : result.answers()) {
      // Of equals the earlier passage, which came earlier.
      const auto place = std::upper_bound(
          best_.begin(), best_.end(), span.log_score(),
          [](double score, const Found& other) { return score > other.log_score; });
      if (place == best_.end() && static_cast<int>(best_.size()) >= flags_.top_n) continue;
      const Passage& passage = answered.items[span.passage()];
      const auto begin = static_cast<size_t>(span.start_byte());
      Json json = MessageJson(span);
      if (!passage.file.empty()) json["file"] = passage.file;
      json["passage"] = passage.number;
      json["line"] = passage.Line(begin);
      best_.insert(place, {span.log_score(),
                           {Fixed(span.log_score(), 3), Fixed(span.probability(), 4),
                            passage.Where(begin), Marked(passage.text, span)},
                           std::move(json)});
      if (static_cast<int>(best_.size()) > flags_.top_n) best_.pop_back();
    }
  }

  const AnswerFlags& flags_;
  const v1::AnswerRequest request_;  // each call adds its query to a copy
  Client* const client_;
  std::vector<std::string> files_;
  size_t next_ = 0;  // of them
  Printer* const printer_;
  std::vector<Found> best_;
  std::string model_;
  int64_t version_ = 0;
};

int Answer(const Command& command, const std::vector<std::string>& args) {
  AnswerFlags options;
  // A long passage takes longer than a text to classify.
  options.common.connect.deadline = absl::Minutes(1);
  Flags flags;
  flags.Add("question", &options.question, "QUESTION: what to look for");
  flags.Add("top_n", &options.top_n, {1, kMaxTopN}, "answers, the best first, up to 100");
  flags.Add("one_per_passage", &options.one_per_passage, "at most the best answer of each passage");
  flags.Add("no_overlap", &options.no_overlap,
            "leave out an answer that overlaps a better one of the same passage");
  flags.Add("max_answer_tokens", &options.max_answer_tokens, {0, kMaxAnswerTokens},
            "longest answer, up to 1000; 0 = the model's own");
  options.target.AddTo(&flags);
  v1::AnswerRequest request;
  const Start start = Begin(command, args, &flags, &options.common,
                            [&](const auto& /*files*/) { return MakeRequest(options, &request); });
  if (start.client == nullptr) return start.exit_code;

  Printer printer(command, options.common.json,
                  {{"SCORE", true}, {"PROBABILITY", true}, {"WHERE"}, {"ANSWER"}});
  Question question(command, options, request, start.client.get(), start.arguments, &printer);
  return question.Run();
}

}  // namespace

constexpr Command kAnswer = {"answer", "answers to a question, found in texts", kAnswerHelp,
                             Answer};

}  // namespace sru::client
