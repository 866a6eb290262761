#include "models/reader_input.h"

#include <unordered_map>
#include <utility>

#include "base/status.h"
#include "models/text/code_point.h"

namespace sru::models {
namespace {

// The tokens of a text in lower case: as one string, and the end of each in it.
struct LoweredTokens {
  std::string text;
  std::vector<size_t> ends;

  LoweredTokens(std::string_view original, const EncodedText& tokens) {
    text.reserve(original.size());
    ends.reserve(tokens.size());
    for (const TextSpan& span : tokens.spans) {
      AppendLowerCase(span.Of(original), &text);
      ends.push_back(text.size());
    }
  }

  // Of token `index` in `lowered`, which is `text` or what it was moved to.
  std::string_view Token(size_t index, const std::string& lowered) const {
    const size_t begin = index == 0 ? 0 : ends[index - 1];
    return {lowered.data() + begin, ends[index] - begin};
  }
};

absl::Status WrongNumber(const char* list, size_t expected, const char* of, size_t found) {
  return InvalidArgument(list, ": expected ", expected, ", one per token of the ", of, ", found ",
                         found);
}

absl::Status NotUsed(const char* list, const char* without, size_t found) {
  return InvalidArgument(list, ": expected none, since the model has no ", without, ", found ",
                         found);
}

// `size` is the number of ids that the model knows, 0 = none.
absl::Status CheckIds(const char* list, const char* embedding, absl::Span<const int32_t> ids,
                      int size, size_t num_tokens) {
  if (size == 0 && !ids.empty()) return NotUsed(list, embedding, ids.size());
  if (size == 0) return absl::OkStatus();
  if (ids.size() != num_tokens) return WrongNumber(list, num_tokens, "passage", ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= size) {
      return InvalidArgument(list, "[", i, "]: expected an id from 0 to ", size - 1, ", found ",
                             ids[i]);
    }
  }
  return absl::OkStatus();
}

absl::Status CheckLemmas(const char* list, const char* of, const ReaderConfig& config, size_t found,
                         size_t num_tokens) {
  if (!config.has(ReaderFeature::kLemma)) {
    return found == 0 ? absl::OkStatus() : NotUsed(list, "feature \"lemma\"", found);
  }
  return found == num_tokens ? absl::OkStatus() : WrongNumber(list, num_tokens, of, found);
}

}  // namespace

absl::Status CheckTags(const ReaderConfig& config, const TokenTags& tags, size_t num_tokens) {
  SRU_RETURN_UNLESS_OK(CheckIds("pos_ids", "embedding of parts of speech", tags.pos_ids,
                                config.pos_size, num_tokens));
  SRU_RETURN_UNLESS_OK(CheckIds("ner_ids", "embedding of named entities", tags.ner_ids,
                                config.ner_size, num_tokens));
  return CheckLemmas("lemmas", "passage", config, tags.lemmas.size(), num_tokens);
}

absl::Status CheckQuestionLemmas(const ReaderConfig& config,
                                 const std::vector<std::string_view>& lemmas, size_t num_tokens) {
  return CheckLemmas("question_lemmas", "question", config, lemmas.size(), num_tokens);
}

QuestionFeatures::QuestionFeatures(const ReaderConfig& config, std::string_view question,
                                   const EncodedText& tokens,
                                   const std::vector<std::string_view>& lemmas)
    : config_(&config) {
  if (config.has(ReaderFeature::kExact)) {
    for (const TextSpan& span : tokens.spans) exact_.insert(span.Of(question));
  }
  if (config.has(ReaderFeature::kLower)) {
    LoweredTokens lowered(question, tokens);
    lowered_ = std::make_unique<const std::string>(std::move(lowered.text));
    for (size_t i = 0; i < tokens.size(); ++i) lower_.insert(lowered.Token(i, *lowered_));
  }
  if (config.has(ReaderFeature::kLemma)) {
    lemmas_.insert(lemmas.begin(), lemmas.end());
  }
}

void QuestionFeatures::Fill(std::string_view passage, const EncodedText& tokens,
                            const std::vector<std::string_view>& lemmas, float* features) const {
  const size_t width = config_->features.size();
  const size_t size = tokens.size();
  if (width == 0 || size == 0) return;
  const auto fill = [&](size_t column, auto value) {
    for (size_t i = 0; i < size; ++i) features[i * width + column] = value(i);
  };
  const auto is_in = [](const WordSet& words, std::string_view word) {
    return static_cast<float>(words.count(word));
  };

  const bool needs_lower = config_->has(ReaderFeature::kLower) || config_->has(ReaderFeature::kTf);
  const LoweredTokens lowered(passage, needs_lower ? tokens : EncodedText());
  const auto lower = [&](size_t i) { return lowered.Token(i, lowered.text); };
  for (size_t column = 0; column < width; ++column) {
    switch (config_->features[column]) {
      case ReaderFeature::kExact:
        fill(column, [&](size_t i) { return is_in(exact_, tokens.spans[i].Of(passage)); });
        break;
      case ReaderFeature::kLower:
        fill(column, [&](size_t i) { return is_in(lower_, lower(i)); });
        break;
      case ReaderFeature::kLemma:
        fill(column, [&](size_t i) { return is_in(lemmas_, lemmas[i]); });
        break;
      case ReaderFeature::kTf: {
        std::unordered_map<std::string_view, int, WordHash> counts;
        for (size_t i = 0; i < size; ++i) ++counts[lower(i)];
        const auto total = static_cast<double>(size);
        fill(column, [&](size_t i) { return static_cast<float>(counts.at(lower(i)) / total); });
        break;
      }
    }
  }
}

}  // namespace sru::models
