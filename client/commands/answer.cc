// sru_client answer: answers to questions, found in texts.
#include <algorithm>
#include <iostream>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "base/limits.h"
#include "base/status.h"
#include "base/utf8.h"
#include "client/client.h"
#include "client/commands/batches.h"
#include "client/commands/commands.h"
#include "client/commands/passage_input.h"
#include "client/commands/text_input.h"
#include "google/protobuf/util/json_util.h"

namespace sru::client {
namespace {

constexpr char kAnswerHelp[] =
    R"(sru_client answer finds the answer to a question in texts, and prints it with what is around it.

usage: sru_client answer --question=QUESTION [--flag=value ...] [FILE ...]
       sru_client answer --queries [--flag=value ...] [FILE ...]

Without FILE, reads standard input; - is standard input, too. Each file is a passage, of any length
that the server takes (max_sequence_tokens of sru_client models --json). With --paragraphs a blank
line ends a passage, so that a file may be a book. All passages compete: the answers with the best
scores are printed, the best first, each marked in its text. SCORE can be compared between all
passages of a question; PROBABILITY says how sure the model is of the place within its passage.

--queries reads a JSON object per line, {"question": "...", "passages": ["...", ...]}, and answers
each. There, a model that asks for tags gets them: "passage_tags": [{"pos_ids": [...],
"ner_ids": [...], "lemmas": [...]}, ...], one entry per passage, and "question_lemmas": [...].
With --json, an "id" is repeated in the answer, "passage" is the position in "passages", from 0, and
offsets are those in the passage. For a file, "passage" counts from 1, and offsets are those in the
file.

A passage that the server refuses fails alone: standard error names it, and the exit code is 1.

examples:
  sru_client answer --question="Who wrote Hamlet?" drama.txt
  sru_client answer --question="When did it end?" --top_n=3 --no_overlap < article.txt
  sru_client answer --question="Where is it?" --paragraphs --one_per_passage --top_n=5 *.txt
  sru_client answer --question="Who?" --json drama.txt | jq -r '.answers[0].text'
  sru_client answer --queries --json < questions.jsonl > answers.jsonl
)";

// Passages go together in one call up to this many bytes.
constexpr size_t kCallBytes = 1 << 20;
// A row shows so many characters of a question, and so many bytes of a passage on each side of its
// answer.
constexpr size_t kQuestionWidth = 40;
constexpr size_t kContext = 60;

struct AnswerFlags {
  CommonFlags common;
  TargetFlags target;
  std::string question;
  bool queries = false;
  bool paragraphs = false;
  int top_n = 1;
  bool one_per_passage = false;
  bool no_overlap = false;
  int max_answer_tokens = 0;
  int batch = 32;
  int in_flight = 4;
};

// Checks the flags and makes what all requests have. kInvalidArgument names the flag.
absl::Status MakeRequest(AnswerFlags* flags, v1::AnswerRequest* request) {
  if (flags->queries && !flags->question.empty()) {
    return absl::InvalidArgumentError("--queries and --question exclude each other");
  }
  if (flags->queries && flags->paragraphs) {
    return absl::InvalidArgumentError("--queries and --paragraphs exclude each other");
  }
  if (!flags->queries && flags->question.empty()) {
    return absl::InvalidArgumentError(
        "--question: expected a question; --queries reads questions with their passages");
  }
  flags->target.SetOn(request);
  request->set_top_n(flags->top_n);
  request->set_max_answer_tokens(flags->max_answer_tokens);
  request->set_one_per_passage(flags->one_per_passage);
  request->set_no_overlap(flags->no_overlap);
  return absl::OkStatus();
}

// kInternal unless each query has its answers, which are parts of its passages.
absl::StatusOr<v1::AnswerResponse> CallServer(Client* client, const v1::AnswerRequest& request) {
  SRU_ASSIGN_OR_RETURN(v1::AnswerResponse response, client->Answer(request));
  if (response.results_size() != request.queries_size()) {
    return absl::InternalError(absl::StrCat("the server answered ", response.results_size(), " of ",
                                            request.queries_size(), " questions"));
  }
  for (int i = 0; i < request.queries_size(); ++i) {
    const auto& passages = request.queries(i).passages();
    for (const v1::SpanAnswer& span : response.results(i).answers()) {
      if (span.passage() < 0 || span.passage() >= passages.size() || span.start_byte() < 0 ||
          span.start_byte() > span.end_byte() ||
          static_cast<size_t>(span.end_byte()) > passages.Get(span.passage()).size()) {
        return absl::InternalError(
            absl::StrCat("the server answered with bytes ", span.start_byte(), " to ",
                         span.end_byte(), " of passage ", span.passage(), " of ", passages.size()));
      }
    }
  }
  return response;
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

// An answer as it is printed.
struct Found {
  double log_score = 0;
  std::vector<std::string> cells;  // without the question's
  Json json;
};

Found MakeFound(const v1::SpanAnswer& span, const std::string& passage, std::string where) {
  return {span.log_score(),
          {Fixed(span.log_score(), 3), Fixed(span.probability(), 4), std::move(where),
           Marked(passage, span)},
          MessageJson(span)};
}

// `json` is what the object says before the answers.
void PrintAnswers(const AnswerFlags& flags, const std::string& question,
                  const std::vector<Found>& answers, int64_t tokens, int64_t unknown,
                  double latency_us, Json json, Printer* printer) {
  Json list = Json::array();
  for (const Found& found : answers) {
    list.push_back(found.json);
    std::vector<std::string> cells = found.cells;
    if (flags.queries) cells.insert(cells.end() - 1, Printable(OneLine(question, kQuestionWidth)));
    if (!printer->json()) printer->Row(std::move(cells));
  }
  json["answers"] = std::move(list);
  json["token_count"] = tokens;
  json["unknown_tokens"] = unknown;
  json["latency_us"] = latency_us;
  if (printer->json()) printer->Object(json);
  printer->Flush();
}

// What both kinds of input have.
template <typename Item, typename Input>
class QuestionRunner : public BatchRunner<Item, v1::AnswerResponse> {
 public:
  QuestionRunner(const Command& command, const AnswerFlags& flags, v1::AnswerRequest request,
                 Client* client, Input* input, Printer* printer)
      : BatchRunner<Item, v1::AnswerResponse>(command, flags.common),
        flags_(flags),
        request_(std::move(request)),
        client_(client),
        input_(input),
        printer_(printer) {}

 protected:
  void StopInput() override { input_->Stop(); }

  const AnswerFlags& flags_;
  const v1::AnswerRequest request_;  // but for its queries
  Client* const client_;
  Input* const input_;
  Printer* const printer_;
};

// One question, whose passages are those of files.
class OneQuestion : public QuestionRunner<PassageInput::Passage, PassageInput> {
 public:
  using Passage = PassageInput::Passage;
  using QuestionRunner::QuestionRunner;

  // Returns the exit code.
  int Run() {
    const absl::Time start = absl::Now();
    BatchRunner::Run(flags_.in_flight, /*names_code=*/false);
    for (const std::string& file : input_->empty_files()) {
      Report(absl::StrCat(file, ": has no text"));
    }
    if (model_.empty()) return exit_code_;
    PrintAnswers(flags_, flags_.question, best_, printer_->tokens(), printer_->unknown(),
                 absl::ToDoubleMicroseconds(absl::Now() - start),
                 {{"question", flags_.question}, {"model", model_}, {"version", version_}},
                 printer_);
    return exit_code_;
  }

 private:
  absl::StatusOr<Items> Next() override { return input_->Next(flags_.batch, kCallBytes); }

  absl::StatusOr<v1::AnswerResponse> Call(const Items& passages) override {
    v1::AnswerRequest request = request_;
    v1::Query* query = request.add_queries();
    query->set_question(flags_.question);
    for (const Passage& passage : passages) query->add_passages(passage.text);
    return CallServer(client_, request);
  }

  bool Fail(const Answer& answer) override {
    const absl::Status& status = answer.response.status();
    // Another passage can succeed only if this one was to blame.
    const bool is_passage =
        MayBlameAnItem(status) && (status.code() != absl::StatusCode::kInvalidArgument ||
                                   absl::StartsWith(status.message(), "queries[0].passage"));
    std::string message = flags_.common.Explain(status);
    if (is_passage && !flags_.paragraphs &&
        absl::StrContains(status.message(), "max_sequence_tokens")) {
      absl::StrAppend(&message, "\n  --paragraphs cuts a file into passages, at blank lines");
    }
    Report(absl::StrCat(Where(answer.items.front()), ": ", message));
    return is_passage;
  }

  std::string Where(const Passage& passage) const override { return input_->Where(passage, 0); }

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
      Found found = MakeFound(span, passage.text, input_->Where(passage, begin));
      Json& json = found.json;
      if (!input_->file(passage.source).empty()) json["file"] = input_->file(passage.source);
      json["passage"] = passage.number;
      json["line"] = PassageInput::Line(passage, begin);
      // Offsets are those in the file.
      json["start_byte"] = passage.byte + span.start_byte();
      json["end_byte"] = passage.byte + span.end_byte();
      json["start_char"] = passage.character + span.start_char();
      json["end_char"] = passage.character + span.end_char();
      best_.insert(place, std::move(found));
      if (static_cast<int>(best_.size()) > flags_.top_n) best_.pop_back();
    }
  }

  std::vector<Found> best_;
  std::string model_;
  int64_t version_ = 0;
};

// A line of --queries.
struct QueryLine {
  LineInput::Item line;
  absl::StatusOr<v1::Query> query = absl::UnknownError("not read");
  Json extra = Json::object();
};

bool HasNull(const Json& value) {
  return value.is_null() ||
         (value.is_structured() && std::any_of(value.begin(), value.end(), HasNull));
}

// The query in a line. Keys that it does not know, such as an "id", are the user's own.
absl::StatusOr<v1::Query> ReadQuery(const Json& json) {
  if (!json.is_object()) {
    return absl::InvalidArgumentError(
        R"(expected a JSON object such as {"question": "...", "passages": ["..."]})");
  }
  if (!json.contains("question") || !json["question"].is_string()) {
    return absl::InvalidArgumentError("question: expected a text");
  }
  const Json passages = json.value("passages", Json());
  const bool all_texts = std::all_of(passages.begin(), passages.end(),
                                     [](const Json& text) { return text.is_string(); });
  if (!passages.is_array() || !all_texts) {
    return absl::InvalidArgumentError("passages: expected a list of texts");
  }
  Json known;
  for (const char* const key : {"question", "passages", "question_lemmas", "passage_tags"}) {
    if (!json.contains(key)) continue;
    // protobuf leaves out a null in a list, and what stands after it moves up.
    if (HasNull(json[key])) return InvalidArgument(key, ": expected no null");
    known[key] = json[key];
  }
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;
  v1::Query query;
  const auto status = google::protobuf::util::JsonStringToMessage(known.dump(), &query, options);
  if (status.ok()) return query;
  return absl::InvalidArgumentError(
      absl::string_view(status.message().data(), status.message().size()));
}

// Many questions, each with its own passages.
class ManyQuestions : public QuestionRunner<QueryLine, LineInput> {
 public:
  using QuestionRunner::QuestionRunner;

 private:
  absl::StatusOr<Items> Next() override {
    SRU_ASSIGN_OR_RETURN(std::vector<LineInput::Item> lines, input_->Next(flags_.batch));
    Items items;
    for (LineInput::Item& line : lines) {
      const Json json = Json::parse(line.text, nullptr, /*allow_exceptions=*/false);
      QueryLine& item = items.emplace_back();
      item.line = std::move(line);
      item.query = ReadQuery(json);
      if (item.query.ok() && json.contains("id")) item.extra["id"] = json["id"];
    }
    return items;
  }

  absl::StatusOr<v1::AnswerResponse> Call(const Items& lines) override {
    v1::AnswerRequest request = request_;
    for (const QueryLine& line : lines) {
      if (!line.query.ok()) return line.query.status();
      *request.add_queries() = *line.query;
    }
    return CallServer(client_, request);
  }

  std::string Where(const QueryLine& item) const override { return input_->Where(item.line); }

  void Print(const Answer& answer) override {
    const v1::AnswerResponse& response = *answer.response;
    for (int i = 0; i < static_cast<int>(answer.items.size()); ++i) {
      const QueryLine& item = answer.items[i];
      const v1::QueryAnswers& result = response.results(i);
      std::vector<Found> answers;
      for (const v1::SpanAnswer& span : result.answers()) {
        std::string where = Where(item);
        if (item.query->passages_size() > 1) {
          absl::StrAppend(&where, ", passage ", span.passage() + 1);
        }
        answers.push_back(MakeFound(span, item.query->passages(span.passage()), std::move(where)));
      }
      Json json = {{"line", item.line.line}};
      if (const std::string& file = input_->source_name(item.line.source); !file.empty()) {
        json["file"] = file;
      }
      json.update(item.extra);
      json.update({{"question", item.query->question()},
                   {"model", response.model()},
                   {"version", response.version()}});
      printer_->Count(result);
      PrintAnswers(flags_, item.query->question(), answers, result.token_count(),
                   result.unknown_tokens(), absl::ToDoubleMicroseconds(answer.latency),
                   std::move(json), printer_);
    }
  }
};

int Answer(const Command& command, const std::vector<std::string>& args) {
  AnswerFlags options;
  // A book takes longer than a text to classify.
  options.common.connect.deadline = absl::Minutes(1);
  Flags flags;
  flags.Add("question", &options.question, "QUESTION: what to look for");
  flags.Add("top_n", &options.top_n, {1, kMaxTopN},
            "answers to a question, the best first, up to 100");
  flags.Add("one_per_passage", &options.one_per_passage, "at most the best answer of each passage");
  flags.Add("no_overlap", &options.no_overlap,
            "leave out an answer that overlaps a better one of the same passage");
  flags.Add("max_answer_tokens", &options.max_answer_tokens, {0, kMaxAnswerTokens},
            "longest answer, up to 1000; 0 = the model's own");
  flags.Add("paragraphs", &options.paragraphs, "a blank line ends a passage; else a file is one");
  flags.Add("queries", &options.queries,
            "the input has questions with their passages, a JSON object per line");
  options.target.AddTo(&flags);
  flags.Add("batch", &options.batch, {1}, "passages, or lines of --queries, per call");
  flags.Add("in_flight", &options.in_flight, {1}, "calls at a time");
  v1::AnswerRequest request;
  const Start start = Begin(command, args, &flags, &options.common,
                            [&](const auto& /*files*/) { return MakeRequest(&options, &request); });
  if (start.client == nullptr) return start.exit_code;

  std::vector<TextTable::Column> columns = {
      {"SCORE", true}, {"PROBABILITY", true}, {"WHERE"}, {"ANSWER"}};
  if (options.queries) columns.insert(columns.end() - 1, {"QUESTION"});
  Printer printer(command, options.common.json, std::move(columns));
  int exit_code = kExitOk;
  if (options.queries) {
    LineInput input(start.arguments, /*files=*/true, LineInput::Lines::kSkipBlank);
    ManyQuestions questions(command, options, request, start.client.get(), &input, &printer);
    exit_code = questions.Run(options.in_flight, /*names_code=*/false);
  } else {
    PassageInput input(start.arguments, options.paragraphs);
    OneQuestion question(command, options, request, start.client.get(), &input, &printer);
    exit_code = question.Run();
  }
  printer.WarnOfUnknownWords();
  return exit_code;
}

}  // namespace

constexpr Command kAnswer = {"answer", "answers to questions, found in texts", kAnswerHelp, Answer};

}  // namespace sru::client
