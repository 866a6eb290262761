#include "bench/answer_requests.h"

#include <algorithm>
#include <iterator>
#include <random>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/status.h"

namespace sru::bench {
namespace {

constexpr absl::string_view kPassage =
    "The harbour of the old town was built in 1684, when the river had become too shallow for "
    "ships. Its first master, Jonas Brandt, had learnt his trade in Lisbon and drew the plans "
    "himself. Stone came from the quarries near Ashby, and more than four hundred men worked on "
    "the two long walls for eleven years. In the winter of 1709 a storm broke the northern wall, "
    "which was rebuilt of granite by Brandt's daughter Clara. Until the railway came, in 1852, "
    "wool and salt left the town by sea; since then it has lived on fishing, and on visitors who "
    "come for the lighthouse and the market on Saturdays.";

constexpr absl::string_view kHarbourQuestions[] = {
    "When was the harbour built?",
    "Who drew the plans of the harbour?",
    "Where did the stone come from?",
    "How many men worked on the walls?",
    "What broke the northern wall?",
    "What was the northern wall rebuilt of?",
    "When did the railway come?",
    "What left the town by sea?",
    "Why do visitors come to the town?",
    "Where had Jonas Brandt learnt his trade?",
    "How long did the work on the walls take?",
    "Who rebuilt the northern wall?",
};

// Each is one token.
constexpr absl::string_view kWords[] = {
    "the",   "of",     "and",    "in",     "to",      "a",      "was",    "is",     "for",
    "as",    "on",     "with",   "by",     "he",      "that",   "at",     "from",   "his",
    "it",    "an",     "were",   "are",    "which",   "this",   "also",   "be",     "had",
    "or",    "has",    "first",  "their",  "its",     "one",    "after",  "new",    "who",
    "they",  "two",    "her",    "she",    "been",    "other",  "when",   "time",   "during",
    "there", "into",   "school", "more",   "years",   "city",   "some",   "world",  "would",
    "where", "later",  "up",     "such",   "all",     "used",   "state",  "only",   "between",
    "army",  "king",   "river",  "music",  "church",  "system", "water",  "north",  "1901",
    "1984",  "second", "known",  "family", "century", "law",    "theory", "energy", "London"};

std::string RandomText(int tokens, absl::string_view end, std::mt19937_64* random) {
  constexpr int kSentence = 20;
  std::string text;
  for (int i = 1; i < tokens; ++i) {
    absl::StrAppend(&text, text.empty() ? "" : " ",
                    i % kSentence == 0 ? "," : kWords[(*random)() % std::size(kWords)]);
  }
  // A text of one token is a word, since a question needs one.
  absl::StrAppend(&text, text.empty() ? "" : " ", tokens == 1 ? kWords[0] : end);
  return text;
}

absl::StatusOr<std::vector<v1::Query>> ReadQueries(const std::string& path) {
  const auto error = [](auto... parts) { return InvalidArgument("--input: ", parts...); };
  SRU_ASSIGN_OR_RETURN(auto lines, ReadLines(path));
  std::vector<v1::Query> queries;
  for (size_t number = 0; number < lines.size(); ++number) {
    const absl::string_view line = absl::StripSuffix(lines[number], "\r");
    if (line.empty()) continue;
    const std::vector<std::string> fields = absl::StrSplit(line, '\t');
    if (fields.size() < 2) {
      return error(path, ":", number + 1,
                   ": expected a question and its passages, separated by tabs, found no tab");
    }
    v1::Query& query = queries.emplace_back();
    query.set_question(fields[0]);
    for (size_t i = 1; i < fields.size(); ++i) query.add_passages(fields[i]);
  }
  if (queries.empty()) return error("the file '", path, "' has no question");
  return queries;
}

absl::StatusOr<std::vector<v1::Query>> DrawQueries(const AnswerRequestOptions& options) {
  const int count = options.distinct * std::min(options.queries, 64);
  SRU_ASSIGN_OR_RETURN(auto questions,
                       DrawLengths(options.question, count, options.seed, "question"));
  SRU_ASSIGN_OR_RETURN(auto numbers,
                       DrawLengths(options.passages, count, options.seed + 1, "passages"));
  int total = 0;
  for (const int number : numbers) total += number;
  SRU_ASSIGN_OR_RETURN(auto lengths,
                       DrawLengths(options.passage, total, options.seed + 2, "passage"));
  std::mt19937_64 random(options.seed + 3);
  std::vector<v1::Query> queries;
  size_t next = 0;
  for (int i = 0; i < count; ++i) {
    v1::Query& query = queries.emplace_back();
    query.set_question(RandomText(questions[i], "?", &random));
    for (int k = 0; k < numbers[i]; ++k) {
      query.add_passages(RandomText(lengths[next++], ".", &random));
    }
  }
  return queries;
}

}  // namespace

void AnswerRequestOptions::AddFlags(client::FlagSet* flags) {
  flags->Add("queries", &queries, "questions in each call, with their passages");
  flags->Add("input", &input,
             "file with one question per line and, after a tab each, its passages; without it and "
             "--passage, questions that are built in");
  flags->Add("passage", &passage,
             absl::StrCat("lengths of passages of random words, in tokens: ", kLengthsHelp));
  flags->Add("question", &question, "with --passage: lengths of the questions, likewise");
  flags->Add("passages", &passages, "with --passage: passages of each question, likewise");
  flags->Add("distinct", &distinct, "with --passage: different calls, before they repeat");
  flags->Add("top_n", &top_n, "spans in each answer; 0 = 1");
  CallOptions::AddFlags("texts, the lengths and the arrivals", flags);
}

absl::StatusOr<std::vector<v1::AnswerRequest>> MakeAnswerRequests(
    const AnswerRequestOptions& options, const v1::ModelInfo& info) {
  absl::Status status = CheckRange("queries", options.queries, 1, kMaxPerCall);
  status.Update(CheckRange("distinct", options.distinct, 1, kMaxDistinct));
  if (!status.ok()) return status;
  if (!options.input.empty() && !options.passage.empty()) {
    return absl::InvalidArgumentError("--input and --passage exclude each other");
  }
  const auto& features = info.reader().features();
  if (info.reader().pos_size() > 0 || info.reader().ner_size() > 0 ||
      std::find(features.begin(), features.end(), "lemma") != features.end()) {
    return InvalidArgument("--model: '", info.name(),
                           "' needs tags of each token; expected a reader that takes plain text");
  }
  std::vector<v1::Query> queries;
  if (!options.input.empty() || !options.passage.empty()) {
    SRU_ASSIGN_OR_RETURN(queries,
                         options.input.empty() ? DrawQueries(options) : ReadQueries(options.input));
  } else {
    for (const absl::string_view question : kHarbourQuestions) {
      v1::Query& query = queries.emplace_back();
      query.set_question(std::string(question));
      query.add_passages(std::string(kPassage));
    }
  }

  SRU_ASSIGN_OR_RETURN(
      auto requests, MakeCalls<v1::AnswerRequest>(options, info.name(), queries, options.queries));
  for (v1::AnswerRequest& request : requests) request.set_top_n(options.top_n);
  return requests;
}

}  // namespace sru::bench
