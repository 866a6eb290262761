#include "server/tasks/answer/answer_parser.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/status.h"
#include "models/reader_input.h"
#include "models/text/tokenizers.h"
#include "server/calls/bounds/request_limits.h"

namespace sru::server::tasks {
namespace {

// What is kept per token beside its features, and what is taken for a moment while its text is
// read: its place, which is kept in a smaller form, in lists that grow, and sets of words.
constexpr int64_t kKeptTokenBytes = sizeof(int32_t) + sizeof(TokenPlace);
constexpr int64_t kPeakTokenBytes = 384;
// Of a text: the lists of its tokens and, at worst, a part of its own. Two lists of these grow.
constexpr int64_t kTextBytes =
    sizeof(ParsedPassage) + 2 * (sizeof(AnswerTask::Passage) + sizeof(QueryPart)) + 64;

absl::Status CheckNumber(absl::string_view field, int32_t found, int limit,
                         absl::string_view zero) {
  if (found >= 0 && found <= limit) return absl::OkStatus();
  return InvalidArgument(field, ": ", found, " is out of range, expected 1 to ", limit,
                         ", or 0 for ", zero);
}

// The path of a text, which is made only for an error: queries[1].question or
// queries[1].passages[3].
struct TextPath {
  int query = 0;
  int passage = kQuestion;

  static constexpr int kQuestion = -1;

  std::string Get() const {
    if (passage == kQuestion) return absl::StrCat("queries[", query, "].question");
    return absl::StrCat("queries[", query, "].passages[", passage, "]");
  }
};

// The number of tokens of a text.
absl::StatusOr<int> MeasureText(std::string_view text, const TextPath& path,
                                const calls::RequestLimits& limits) {
  if (text.empty()) return InvalidArgument(path.Get(), ": empty, expected at least one token");
  int found = 0;
  // One token more than the limit shows that there are more, without reading all of a long text.
  const absl::Status split =
      models::SplitUnicodeWords(text, static_cast<size_t>(limits.max_sequence_tokens) + 1,
                                [&found](const models::TextSpan& /*token*/) { ++found; });
  if (!split.ok()) return InvalidArgument(path.Get(), ": ", split.message());
  if (found == 0)
    return InvalidArgument(path.Get(), ": only white space, expected at least one token");
  if (found <= limits.max_sequence_tokens) return found;
  return InvalidArgument(path.Get(), ": at least ", found,
                         " tokens are too many, expected at most ", limits.max_sequence_tokens,
                         " (--max_sequence_tokens); shorten or divide it");
}

bool NeedsTags(const models::ReaderConfig& config) {
  return config.pos_size > 0 || config.ner_size > 0 || config.has(models::ReaderFeature::kLemma);
}

std::vector<std::string_view> Views(
    const google::protobuf::RepeatedPtrField<std::string>& strings) {
  return {strings.begin(), strings.end()};
}

absl::Status CheckNumberOfTags(const v1::Query& query, int index,
                               const models::ReaderConfig& config) {
  const int found = query.passage_tags_size();
  if (!NeedsTags(config)) {
    if (found == 0) return absl::OkStatus();
    return InvalidArgument("queries[", index, "].passage_tags: expected none, found ", found,
                           "; the model takes no tags");
  }
  if (found == query.passages_size()) return absl::OkStatus();
  return InvalidArgument("queries[", index, "].passage_tags: expected ", query.passages_size(),
                         ", one per passage, found ", found);
}

// Parses the queries one by one.
class QueryParser {
 public:
  QueryParser(const models::ReaderConfig& config, const models::Tokenizer& tokenizer,
              models::UnknownUse unknown)
      : config_(config), tokenizer_(tokenizer), unknown_(unknown) {}

  absl::StatusOr<ParsedQuery> Parse(const v1::Query& query, int index) const {
    SRU_RETURN_UNLESS_OK(CheckNumberOfTags(query, index, config_));
    SRU_ASSIGN_OR_RETURN(const models::EncodedText question,
                         Tokenize(query.question(), TextPath{index}));
    const std::vector<std::string_view> lemmas = Views(query.question_lemmas());
    absl::Status status = models::CheckQuestionLemmas(config_, lemmas, question.size());
    if (!status.ok()) return InvalidArgument("queries[", index, "].", status.message());
    const models::QuestionFeatures features(config_, query.question(), question, lemmas);
    ParsedQuery parsed;
    parsed.passages.reserve(query.passages_size());
    for (int i = 0; i < query.passages_size(); ++i) {
      SRU_ASSIGN_OR_RETURN(ParsedPassage passage,
                           ParsePassage(query, index, i, features, &parsed.unknown));
      parsed.num_tokens += static_cast<int>(passage.ids.size());
      parsed.passages.push_back(std::move(passage));
    }
    parsed.question.assign(question.ids.begin(), question.ids.end());
    parsed.num_tokens += static_cast<int>(question.size());
    parsed.unknown += question.unknown;
    return parsed;
  }

 private:
  absl::StatusOr<models::EncodedText> Tokenize(std::string_view text, const TextPath& path) const {
    absl::StatusOr<models::EncodedText> tokens =
        tokenizer_.Encode(text, {models::Tokenizer::kNoLimit, unknown_, /*spans=*/true});
    if (!tokens.ok()) return InvalidArgument(path.Get(), ": ", tokens.status().message());
    if (tokens->ids.empty()) {
      return InvalidArgument(path.Get(),
                             ": only words that the vocabulary does not have, expected at least "
                             "one token");
    }
    return tokens;
  }

  // Adds to the query's `unknown`.
  absl::StatusOr<ParsedPassage> ParsePassage(const v1::Query& query, int index, int passage,
                                             const models::QuestionFeatures& features,
                                             int* unknown) const {
    const std::string& text = query.passages(passage);
    SRU_ASSIGN_OR_RETURN(models::EncodedText tokens, Tokenize(text, TextPath{index, passage}));
    *unknown += tokens.unknown;
    models::TokenTags tags;
    if (query.passage_tags_size() > 0) {
      const v1::PassageTags& given = query.passage_tags(passage);
      tags.pos_ids = given.pos_ids();
      tags.ner_ids = given.ner_ids();
      tags.lemmas = Views(given.lemmas());
    }
    if (absl::Status status = models::CheckTags(config_, tags, tokens.size()); !status.ok()) {
      return InvalidArgument("queries[", index, "].passage_tags[", passage, "].", status.message());
    }
    ParsedPassage parsed;
    parsed.features.resize(tokens.size() * config_.num_features());
    if (!parsed.features.empty()) {
      features.Fill(text, tokens, tags.lemmas, parsed.features.data());
    }
    // Copies, since these lists have grown.
    parsed.ids.assign(tokens.ids.begin(), tokens.ids.end());
    parsed.places.assign(tokens.spans.begin(), tokens.spans.end());
    return parsed;
  }

  const models::ReaderConfig& config_;
  const models::Tokenizer& tokenizer_;
  const models::UnknownUse unknown_;
};

}  // namespace

absl::StatusOr<AnswerOptions> ParseAnswerOptions(const v1::AnswerRequest& request,
                                                 int max_answer_tokens) {
  absl::Status status = CheckNumber("top_n", request.top_n(), kMaxTopN, "1");
  if (!status.ok()) return status;
  status = CheckNumber("max_answer_tokens", request.max_answer_tokens(), kMaxAnswerTokens,
                       absl::StrCat("the model's own, which is ", max_answer_tokens));
  if (!status.ok()) return status;
  AnswerOptions options;
  options.top_n = std::max(request.top_n(), 1);
  options.one_per_passage = request.one_per_passage();
  options.spans.max_length =
      request.max_answer_tokens() == 0 ? max_answer_tokens : request.max_answer_tokens();
  options.spans.top_n = options.one_per_passage ? 1 : options.top_n;
  options.spans.no_overlap = request.no_overlap();
  return options;
}

absl::StatusOr<QueryLengths> MeasureQueries(const Queries& queries,
                                            const calls::RequestLimits& limits) {
  if (queries.empty()) return InvalidArgument("queries: empty, expected at least one");
  if (queries.size() > limits.max_sequences)
    return calls::TooManyQueries(queries.size(), "", limits);
  int64_t num_passages = 0;
  for (const v1::Query& query : queries) num_passages += query.passages_size();
  if (num_passages > limits.max_sequences) {
    return calls::TooManyQueries(num_passages, " passages", limits);
  }
  QueryLengths lengths;
  lengths.lengths.reserve(num_passages + queries.size());
  const auto add = [&lengths](int length) {
    lengths.lengths.push_back(length);
    lengths.longest = std::max(lengths.longest, length);
  };
  for (int q = 0; q < queries.size(); ++q) {
    const v1::Query& query = queries[q];
    SRU_ASSIGN_OR_RETURN(const int question, MeasureText(query.question(), {q}, limits));
    if (query.passages().empty()) {
      return InvalidArgument("queries[", q, "].passages: empty, expected at least one");
    }
    add(question);
    // The tokens of a part, as CutQueries() will cut it: each has the question.
    int64_t part = limits.max_batch_tokens;
    for (int i = 0; i < query.passages_size(); ++i) {
      const TextPath path{q, i};
      SRU_ASSIGN_OR_RETURN(const int passage, MeasureText(query.passages(i), path, limits));
      if (int64_t{question} + passage > limits.max_batch_tokens) {
        return InvalidArgument(path.Get(), ": ", passage, " tokens and the ", question,
                               " of the question are too many, expected at most ",
                               limits.max_batch_tokens, " together (--max_batch_tokens)");
      }
      if (part + passage > limits.max_batch_tokens) {
        part = question;
        lengths.total += question;
      }
      part += passage;
      lengths.total += passage;
      if (lengths.total > limits.max_request_tokens) return calls::TooManyTokens(limits, "queries");
      add(passage);
    }
  }
  return lengths;
}

QueryBytes EstimateQueryBytes(const QueryLengths& lengths, const models::ReaderConfig& config) {
  const int64_t per_token =
      kKeptTokenBytes + static_cast<int64_t>(sizeof(float)) * config.num_features();
  QueryBytes bytes;
  bytes.kept =
      lengths.total * per_token + static_cast<int64_t>(lengths.lengths.size()) * kTextBytes;
  // A question and one of its passages at a time.
  bytes.peak = bytes.kept + 2 * lengths.longest * kPeakTokenBytes;
  return bytes;
}

absl::StatusOr<std::vector<ParsedQuery>> ParseQueries(const Queries& queries,
                                                      const models::ReaderConfig& config,
                                                      const models::Tokenizer& tokenizer,
                                                      models::UnknownUse unknown) {
  if (unknown == models::UnknownUse::kSkip && NeedsTags(config)) {
    return InvalidArgument(
        "unknown: UNKNOWN_SKIP leaves out words that passage_tags has entries for, expected "
        "UNKNOWN_REFUSE or UNKNOWN_REPLACE for a model that takes tags");
  }
  const QueryParser parser(config, tokenizer, unknown);
  std::vector<ParsedQuery> parsed;
  parsed.reserve(queries.size());
  for (int i = 0; i < queries.size(); ++i) {
    SRU_ASSIGN_OR_RETURN(ParsedQuery query, parser.Parse(queries[i], i));
    parsed.push_back(std::move(query));
  }
  return parsed;
}

std::vector<QueryPart> CutQueries(const Queries& queries, const std::vector<ParsedQuery>& parsed,
                                  int max_batch_tokens) {
  std::vector<QueryPart> parts;
  for (size_t q = 0; q < parsed.size(); ++q) {
    const v1::Query& query = queries[static_cast<int>(q)];
    const std::vector<int32_t>& question = parsed[q].question;
    for (size_t i = 0; i < parsed[q].passages.size(); ++i) {
      const ParsedPassage& from = parsed[q].passages[i];
      const auto length = static_cast<int>(from.ids.size());
      if (i == 0 || int64_t{parts.back().num_tokens} + length > max_batch_tokens) {
        QueryPart& part = parts.emplace_back();
        part.query = static_cast<int>(q);
        part.first_passage = static_cast<int>(i);
        part.question = question.data();
        part.question_length = part.num_tokens = static_cast<int>(question.size());
      }
      QueryPart& part = parts.back();
      AnswerTask::Passage& passage = part.passages.emplace_back();
      passage.ids = from.ids.data();
      passage.length = length;
      if (!from.features.empty()) passage.features = from.features.data();
      if (query.passage_tags_size() > 0) {
        const v1::PassageTags& tags = query.passage_tags(static_cast<int>(i));
        if (!tags.pos_ids().empty()) passage.pos = tags.pos_ids().data();
        if (!tags.ner_ids().empty()) passage.ner = tags.ner_ids().data();
      }
      part.num_tokens += length;
    }
    parts.back().is_last = true;
  }
  return parts;
}

int64_t LongestSpanBytes(const std::vector<TokenPlace>& places, int max_tokens) {
  int64_t longest = 0;
  for (size_t i = 0; i < places.size(); ++i) {
    const size_t last = std::min(i + max_tokens, places.size()) - 1;
    longest = std::max<int64_t>(longest, places[last].end_byte - places[i].begin_byte);
  }
  return longest;
}

}  // namespace sru::server::tasks
