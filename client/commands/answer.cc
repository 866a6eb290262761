// sru_client answer: answers to questions, found in texts.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/limits.h"
#include "base/status.h"
#include "client/client.h"
#include "client/commands/answer_printer.h"
#include "client/commands/commands.h"
#include "client/commands/common_flags.h"
#include "client/commands/line_input.h"
#include "client/commands/ordered_batches.h"
#include "client/commands/passage_input.h"
#include "client/commands/text_input.h"
#include "client/flag_set.h"
#include "client/token_view.h"

namespace sru::client {
namespace {

constexpr char kAnswerHelp[] =
    R"(sru_client answer finds the answer to a question in texts, and prints the sentence that has it.

usage: sru_client answer --question=QUESTION [--flag=value ...] [FILE ...]
       sru_client answer --queries [--flag=value ...] [FILE ...]

Without FILE, reads standard input; - is standard input, too. Each file is a passage, of any length
that the server takes (max_sequence_tokens of sru_client models --json). With --paragraphs a blank
line ends a passage, so that a file may be a book. All passages compete: the answers with the best
scores are printed, the best first, each marked in its sentence. SCORE can be compared between all
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
absl::StatusOr<v1::AnswerRequest> MakeRequest(AnswerFlags* flags) {
  absl::Status status = flags->target.Check();
  status.Update(CheckRange("top_n", flags->top_n, 1, kMaxTopN));
  status.Update(CheckRange("max_answer_tokens", flags->max_answer_tokens, 0, kMaxAnswerTokens));
  status.Update(CheckAtLeast("batch", flags->batch, 1));
  status.Update(CheckAtLeast("in_flight", flags->in_flight, 1));
  if (!status.ok()) return status;
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
  v1::AnswerRequest request;
  flags->target.SetOn(&request);
  request.set_top_n(flags->top_n);
  request.set_max_answer_tokens(flags->max_answer_tokens);
  request.set_one_per_passage(flags->one_per_passage);
  request.set_no_overlap(flags->no_overlap);
  return request;
}

absl::StatusOr<v1::AnswerResponse> CallServer(Client* client, const v1::AnswerRequest& request) {
  absl::StatusOr<v1::AnswerResponse> response = client->Answer(request);
  if (response.ok() && response->results_size() != request.queries_size()) {
    return absl::InternalError(absl::StrCat("the server answered ", response->results_size(),
                                            " of ", request.queries_size(), " questions"));
  }
  for (int i = 0; response.ok() && i < request.queries_size(); ++i) {
    const v1::Query& query = request.queries(i);
    for (const v1::SpanAnswer& span : response->results(i).answers()) {
      if (span.passage() < 0 || span.passage() >= query.passages_size()) {
        return absl::InternalError(absl::StrCat("the server answered with passage ", span.passage(),
                                                " of ", query.passages_size()));
      }
      SRU_RETURN_UNLESS_OK(CheckSpan(span, query.passages(span.passage())));
    }
  }
  return response;
}

// One question, whose passages are those of files.
class OneQuestion : public BatchRunner<PassageInput::Passage, v1::AnswerResponse> {
 public:
  using Passage = PassageInput::Passage;

  OneQuestion(const Command& command, const AnswerFlags& flags, v1::AnswerRequest request,
              Client* client, PassageInput* input)
      : BatchRunner(command, flags.common),
        flags_(flags),
        request_(std::move(request)),
        client_(client),
        input_(input) {
    found_.question = flags.question;
  }

  // Returns the exit code.
  int Run(AnswerPrinter* printer) {
    const absl::Time start = absl::Now();
    BatchRunner::Run(flags_.in_flight, /*names_code=*/false);
    for (const std::string& file : input_->empty_files()) {
      Report(absl::StrCat(file, ": has no text"));
    }
    found_.latency_us = absl::ToDoubleMicroseconds(absl::Now() - start);
    if (!found_.model.empty()) printer->Print(found_);
    return exit_code_;
  }

 private:
  absl::StatusOr<Items> Next() override { return input_->Next(flags_.batch, kCallBytes); }
  void StopInput() override { input_->Stop(); }

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
    const v1::AnswerResponse& response = *answered.response;
    found_.model = response.model();
    found_.version = response.version();
    found_.token_count += response.results(0).token_count();
    found_.unknown_tokens += response.results(0).unknown_tokens();
    for (const v1::SpanAnswer& span : response.results(0).answers()) {
      std::vector<FoundAnswer>& best = found_.answers;
      // Of equals the earlier passage, which came earlier.
      const auto place = std::upper_bound(
          best.begin(), best.end(), span.log_score(),
          [](double score, const FoundAnswer& other) { return score > other.span.log_score(); });
      if (place == best.end() && static_cast<int>(best.size()) >= flags_.top_n) continue;
      const Passage& passage = answered.items[span.passage()];
      FoundAnswer answer;
      answer.span = span;
      answer.begin = static_cast<size_t>(span.start_byte());
      answer.end = static_cast<size_t>(span.end_byte());
      answer.where = input_->Where(passage, answer.begin);
      answer.passage = passage.text;
      answer.file = input_->file(passage.source);
      answer.line = PassageInput::Line(passage, answer.begin);
      answer.number = passage.number;
      answer.byte = passage.byte;
      answer.character = passage.character;
      best.insert(place, std::move(answer));
      if (static_cast<int>(best.size()) > flags_.top_n) best.pop_back();
    }
  }

  const AnswerFlags& flags_;
  const v1::AnswerRequest request_;  // but for its query
  Client* const client_;
  PassageInput* const input_;
  FoundAnswers found_;
};

// A line of --queries.
struct QueryLine {
  LineInput::Item line;
  absl::StatusOr<v1::Query> query = absl::UnknownError("not read");
  Json extra = Json::object();
};

absl::Status WrongKey(absl::string_view key, absl::string_view expected) {
  return InvalidArgument(key, ": expected ", expected);
}

absl::Status ReadTexts(const Json& json, absl::string_view key,
                       google::protobuf::RepeatedPtrField<std::string>* texts) {
  const auto found = json.find(std::string(key));
  if (found == json.end()) return absl::OkStatus();
  if (!found->is_array()) return WrongKey(key, "a list of texts");
  for (const Json& text : *found) {
    if (!text.is_string()) return WrongKey(key, "a list of texts");
    *texts->Add() = text.get<std::string>();
  }
  return absl::OkStatus();
}

absl::Status ReadIds(const Json& json, absl::string_view key,
                     google::protobuf::RepeatedField<int32_t>* ids) {
  const auto found = json.find(std::string(key));
  if (found == json.end()) return absl::OkStatus();
  if (!found->is_array()) return WrongKey(key, "a list of ids");
  for (const Json& id : *found) {
    const int64_t value = id.is_number_integer() ? id.get<int64_t>() : -1;
    if (value < 0 || value > std::numeric_limits<int32_t>::max()) {
      return WrongKey(key, "a list of ids");
    }
    ids->Add(static_cast<int32_t>(value));
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::Query> ReadQuery(const Json& json) {
  if (!json.is_object()) {
    return absl::InvalidArgumentError(
        R"(expected a JSON object such as {"question": "...", "passages": ["..."]})");
  }
  v1::Query query;
  const auto question = json.find("question");
  if (question == json.end() || !question->is_string()) return WrongKey("question", "a text");
  query.set_question(question->get<std::string>());
  if (json.find("passages") == json.end()) return WrongKey("passages", "a list of texts");
  absl::Status status = ReadTexts(json, "passages", query.mutable_passages());
  status.Update(ReadTexts(json, "question_lemmas", query.mutable_question_lemmas()));
  if (!status.ok()) return status;
  const auto tags = json.find("passage_tags");
  if (tags == json.end()) return query;
  if (!tags->is_array()) return WrongKey("passage_tags", "a list of objects");
  for (const Json& entry : *tags) {
    if (!entry.is_object()) return WrongKey("passage_tags", "a list of objects");
    v1::PassageTags* tag = query.add_passage_tags();
    status.Update(ReadIds(entry, "pos_ids", tag->mutable_pos_ids()));
    status.Update(ReadIds(entry, "ner_ids", tag->mutable_ner_ids()));
    status.Update(ReadTexts(entry, "lemmas", tag->mutable_lemmas()));
    if (!status.ok()) return status;
  }
  return query;
}

QueryLine ReadQueryLine(LineInput::Item line) {
  QueryLine item;
  const Json json = Json::parse(line.text, nullptr, /*allow_exceptions=*/false);
  item.line = std::move(line);
  item.query = ReadQuery(json);
  if (item.query.ok() && json.contains("id")) item.extra["id"] = json["id"];
  return item;
}

// Many questions, each with its own passages.
class ManyQuestions : public BatchRunner<QueryLine, v1::AnswerResponse> {
 public:
  ManyQuestions(const Command& command, const AnswerFlags& flags, v1::AnswerRequest request,
                Client* client, LineInput* input, AnswerPrinter* printer)
      : BatchRunner(command, flags.common),
        flags_(flags),
        request_(std::move(request)),
        client_(client),
        input_(input),
        printer_(printer) {}

 private:
  absl::StatusOr<Items> Next() override {
    SRU_ASSIGN_OR_RETURN(std::vector<LineInput::Item> lines, input_->Next(flags_.batch));
    Items items;
    for (LineInput::Item& line : lines) items.push_back(ReadQueryLine(std::move(line)));
    return items;
  }
  void StopInput() override { input_->Stop(); }

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
    for (int i = 0; i < static_cast<int>(answer.items.size()); ++i) {
      Print(answer.items[i], *answer.response, answer.response->results(i), answer.latency);
    }
  }

  void Print(const QueryLine& item, const v1::AnswerResponse& response,
             const v1::QueryAnswers& result, absl::Duration latency) {
    FoundAnswers found;
    found.question = item.query->question();
    found.model = response.model();
    found.version = response.version();
    found.token_count = result.token_count();
    found.unknown_tokens = result.unknown_tokens();
    found.latency_us = absl::ToDoubleMicroseconds(latency);
    for (const v1::SpanAnswer& span : result.answers()) {
      FoundAnswer answer;
      answer.span = span;
      answer.where = input_->Where(item.line);
      if (item.query->passages_size() > 1) {
        absl::StrAppend(&answer.where, ", passage ", span.passage() + 1);
      }
      answer.passage = item.query->passages(span.passage());
      answer.begin = static_cast<size_t>(span.start_byte());
      answer.end = static_cast<size_t>(span.end_byte());
      answer.number = span.passage();
      found.answers.push_back(std::move(answer));
    }
    Json extra = {{"line", item.line.line}};
    if (const std::string& file = input_->source_name(item.line.source); !file.empty()) {
      extra["file"] = file;
    }
    extra.update(item.extra);
    printer_->Print(found, extra);
  }

  const AnswerFlags& flags_;
  const v1::AnswerRequest request_;  // but for its queries
  Client* const client_;
  LineInput* const input_;
  AnswerPrinter* const printer_;
};

int Answer(const Command& command, const std::vector<std::string>& args) {
  AnswerFlags options;
  // A book takes longer than a text to classify.
  options.common.connect.deadline = absl::Minutes(1);
  FlagSet flags;
  flags.Add("question", &options.question, "QUESTION: what to look for");
  flags.Add("top_n", &options.top_n, "answers to a question, the best first, up to 100");
  flags.Add("one_per_passage", &options.one_per_passage, "at most the best answer of each passage");
  flags.Add("no_overlap", &options.no_overlap,
            "leave out an answer that overlaps a better one of the same passage");
  flags.Add("max_answer_tokens", &options.max_answer_tokens,
            "longest answer, up to 1000; 0 = the model's own");
  flags.Add("paragraphs", &options.paragraphs, "a blank line ends a passage; else a file is one");
  flags.Add("queries", &options.queries,
            "the input has questions with their passages, a JSON object per line");
  options.target.AddTo(&flags);
  flags.Add("batch", &options.batch, "passages, or lines of --queries, per call");
  flags.Add("in_flight", &options.in_flight, "calls at a time");
  options.common.AddTo(&flags);
  std::vector<std::string> files;
  if (auto code = ParseArgs(command, args, &flags, &files)) return *code;
  absl::StatusOr<v1::AnswerRequest> request = MakeRequest(&options);
  if (!request.ok()) return UsageError(command, request.status().message());
  int exit_code = kExitOk;
  const auto client = MakeClient(command, options.common, &exit_code);
  if (client == nullptr) return exit_code;

  AnswerPrinterOptions output;
  output.json = options.common.json;
  output.questions = options.queries;
  output.color =
      WantsColor(isatty(STDOUT_FILENO) != 0, std::getenv("NO_COLOR"), std::getenv("TERM"));
  AnswerPrinter printer(output);
  if (options.queries) {
    LineInput input(std::move(files), /*files=*/true, LineInput::Lines::kSkipBlank);
    exit_code = ManyQuestions(command, options, *std::move(request), client.get(), &input, &printer)
                    .Run(options.in_flight, /*names_code=*/false);
  } else {
    PassageInput input(std::move(files), options.paragraphs);
    exit_code =
        OneQuestion(command, options, *std::move(request), client.get(), &input).Run(&printer);
  }
  printer.unknown_words().Warn(command);
  return exit_code;
}

}  // namespace

constexpr Command kAnswer = {"answer", "answers to questions, found in texts", kAnswerHelp, Answer};

}  // namespace sru::client
