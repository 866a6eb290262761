#include "tests/fuzz/fuzz_targets.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "base/utf8.h"
#include "google/protobuf/message.h"
#include "google/protobuf/stubs/logging.h"
#include "inference/open_inference.pb.h"
#include "kernels/enum_names.h"
#include "kernels/program.h"
#include "kernels/state_arena.h"
#include "models/config.h"
#include "models/decoding/beam_search.h"
#include "models/digest.h"
#include "models/reader_config.h"
#include "models/reader_input.h"
#include "models/safetensors.h"
#include "models/stack_builder.h"
#include "models/state_codec.h"
#include "models/text/sentencepiece_tokenizer.h"
#include "models/text/tokenizer.h"
#include "models/text/tokenizers.h"
#include "models/text/vocabulary.h"
#include "nlohmann/json.hpp"
#include "server/base/log.h"
#include "server/calls/bounds/request_outline.h"
#include "server/calls/message_cord.h"
#include "server/calls/messages/request_parser.h"
#include "server/calls/method.h"
#include "server/http/page_host.h"
#include "server/open_inference/tensors/infer_parameters.h"
#include "server/open_inference/tensors/infer_request.h"
#include "server/open_inference/tensors/sequence_input.h"
#include "server/rest/api_routes.h"
#include "server/rest/json_message.h"
#include "server/rest/json_reader.h"
#include "server/rest/memory_hold.h"
#include "server/rest/v2_infer.h"
#include "server/rest/v2_tensor.h"
#include "server/tasks/answer/answer_parser.h"
#include "server/tasks/generate/generate_parser.h"
#include "server/tasks/translate/translate_parser.h"
#include "server/telemetry/request_id.h"
#include "server/telemetry/trace_context.h"
#include "server/transport/auth_tokens.h"
#include "sru/v1/inference.pb.h"
#include "tests/fuzz/require.h"
#include "tests/fuzz/script.h"
#include "tests/testing/plain_rest_call.h"

namespace sru::fuzz {
namespace {

using server::calls::Method;

// Whether it is an error, which then has a message.
bool Failed(const absl::Status& status) {
  if (!status.ok()) RequireMessage(status);
  return !status.ok();
}

// The same of what a caller sends: an error is the caller's.
bool Refused(const absl::Status& status) {
  Require(status.ok() || status.code() == absl::StatusCode::kInvalidArgument,
          "what is refused is the caller's error");
  return Failed(status);
}

// The outline of a request names the same model.
template <typename Request>
void RequireSameModel(const server::calls::RequestOutline& outline, const Request& request) {
  if (request.model().size() > server::calls::kMaxOutlineModelName) return;
  v1::Priority priority = v1::PRIORITY_UNSPECIFIED;
  if constexpr (!std::is_same_v<Request, v1::TokenizeRequest> &&
                !std::is_same_v<Request, v1::DetokenizeRequest>) {
    priority = request.priority();
  }
  Require(outline.model == request.model() && outline.version == request.version() &&
              outline.priority == priority,
          "the outline says what the message says");
}

struct Splitter {
  models::PreprocessingConfig config;
  std::unique_ptr<models::Tokenizer> tokenizer;
};

std::unique_ptr<models::Vocabulary> ThreeSymbols(const char* contents) {
  auto vocabulary = models::Vocabulary::Parse(contents, 3, "fuzz");
  Require(vocabulary.ok(), "the vocabulary is good");
  return *std::move(vocabulary);
}

// One of each kind.
std::vector<Splitter> Splitters() {
  std::vector<Splitter> splitters;
  for (const models::TokenizerType type : models::kPreprocessings) {
    for (const bool lowercase : {false, true}) {
      const models::PreprocessingConfig config{type, lowercase};
      splitters.push_back(
          {config, models::MakeWordTokenizer(config, ThreeSymbols("a\nb\n'"), /*oov_id=*/1)});
    }
  }
  return splitters;
}

// The tokenizers without preprocessing, of three symbols each.
std::vector<std::unique_ptr<models::Tokenizer>> OtherTokenizers() {
  std::vector<std::unique_ptr<models::Tokenizer>> tokenizers;
  tokenizers.push_back(models::MakeByteTokenizer({' ', 'a', 0xc3}));
  for (const int oov_id : {models::Tokenizer::kNotFound, 0}) {
    tokenizers.push_back(models::MakeCharacterTokenizer(ThreeSymbols("a\nb\n\\n"), oov_id));
  }
  for (const char* words : {"a\n</s>\nb", "a\n</s>\n<unk>"}) {
    auto tokenizer = models::MakeLineWordTokenizer(ThreeSymbols(words), "vocab.txt");
    Require(tokenizer.ok(), "the words are good");
    tokenizers.push_back(*std::move(tokenizer));
  }
  for (const bool lowercase : {false, true}) {
    tokenizers.push_back(models::MakeUnicodeWordTokenizer(ThreeSymbols("a\nb\n'"),
                                                          /*oov_id=*/1, lowercase));
  }
  return tokenizers;
}

// Where tokens are, and what becomes of unknown ones. `ids` are those of the whole text.
void CheckPlaces(const models::Tokenizer& tokenizer, std::string_view text, size_t limit,
                 const std::vector<int32_t>& ids) {
  models::EncodeOptions options;
  options.spans = true;
  for (const auto use : {models::UnknownUse::kDefault, models::UnknownUse::kRefuse,
                         models::UnknownUse::kSkip, models::UnknownUse::kReplace}) {
    options.unknown = use;
    options.max_tokens = use == models::UnknownUse::kSkip ? limit : models::Tokenizer::kNoLimit;
    const auto encoded = tokenizer.Encode(text, options);
    if (Failed(encoded.status())) continue;
    if (use == models::UnknownUse::kDefault) Require(encoded->ids == ids, "places change nothing");
    Require(encoded->ids.size() == encoded->spans.size(), "each token has a place");
    models::TextSpan last;
    for (const models::TextSpan& span : encoded->spans) {
      Require(last.begin_byte <= span.begin_byte && last.end_byte <= span.end_byte &&
                  last.begin_char <= span.begin_char && last.end_char <= span.end_char,
              "places are in order");
      Require(span.begin_byte <= span.end_byte && span.end_byte <= text.size() &&
                  span.begin_char <= span.end_char,
              "a place is in the text");
      last = span;
    }
    const auto unknown =
        std::count(encoded->ids.begin(), encoded->ids.end(), tokenizer.unknown_id());
    const bool left_out = use == models::UnknownUse::kSkip || use == models::UnknownUse::kRefuse;
    Require(left_out ? unknown == 0 : encoded->unknown >= unknown, "unknown tokens are counted");
  }
}

// What holds for every tokenizer.
void CheckTokenizer(const models::Tokenizer& tokenizer, std::string_view text, size_t limit) {
  const auto ids = tokenizer.Encode(text);
  if (Refused(ids.status())) return;
  Require(ids->size() <= text.size() + 1, "a token has text");
  std::string decoded;
  models::Detokenizer::Position position;
  for (const int32_t id : *ids) {
    Require(id >= 0 && id < tokenizer.size(), "ids are in range");
    const std::string name = tokenizer.TokenName(id);
    Require(!name.empty() && FindInvalidUtf8(name) == name.size(), "a name is valid UTF-8");
    if (tokenizer.detokenizer() != nullptr) {
      tokenizer.detokenizer()->Append(id, &position, &decoded);
    }
  }
  if (tokenizer.detokenizer() != nullptr) {
    Require(tokenizer.detokenizer()->Decode(*ids) == decoded, "text comes piece by piece");
  }
  const auto limited = tokenizer.Encode(text, limit);
  Require(limited.ok(), "less can be read where all can");
  Require(limited->size() == std::min(limit, ids->size()) &&
              std::equal(limited->begin(), limited->end(), ids->begin()),
          "the limit cuts tokens off");
  CheckPlaces(tokenizer, text, limit, *ids);
}

// Where the tokens of a reader are.
void CheckSpans(std::string_view text, bool valid) {
  size_t last_byte = 0;
  size_t last_char = 0;
  const absl::Status status = models::SplitUnicodeWords(
      text, models::Tokenizer::kNoLimit, [&](const models::TextSpan& span) {
        Require(last_byte <= span.begin_byte && span.begin_byte < span.end_byte &&
                    span.end_byte <= text.size(),
                "tokens do not overlap");
        const auto characters = [](std::string_view bytes) {
          return static_cast<size_t>(std::count_if(bytes.begin(), bytes.end(), [](char c) {
            return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
          }));
        };
        const std::string_view token = span.Of(text);
        Require(FindInvalidUtf8(token) == token.size(), "a token is cut at character borders");
        const size_t between = characters(text.substr(last_byte, span.begin_byte - last_byte));
        Require(span.begin_char == last_char + between &&
                    span.end_char == span.begin_char + characters(token),
                "both kinds of offsets are of the same place");
        last_byte = span.end_byte;
        last_char = span.end_char;
      });
  Require(status.ok() == valid, "exactly invalid UTF-8 is refused");
}

void CheckReaderConfig(const models::ModelConfig& config) {
  const models::ReaderConfig& reader = config.reader;
  Require(config.has_embedding && config.encoder.bidirectional &&
              config.encoder.input_size == reader.passage_input_size(),
          "the layers over passages read what the reader's parts give");
  Require(!config.has_tokenizer || config.tokenizer.type == models::TokenizerType::kUnicodeWords,
          "the tokens of a reader have offsets");
  Require(reader.embedding_dim > 0 && reader.question_layers > 0 && reader.max_len > 0,
          "sizes are positive");
  Require((reader.pos_size > 0) == (reader.pos_dim > 0) &&
              (reader.ner_size > 0) == (reader.ner_dim > 0),
          "an embedding of tags has both sizes");
  Require(std::is_sorted(reader.features.begin(), reader.features.end(), std::less_equal<>()),
          "features are in their order");
}

// `bytes` as a question and a passage for a reader; the first byte is the question's length.
void CheckReaderInput(std::string_view bytes) {
  const size_t length = std::min<size_t>(static_cast<uint8_t>(bytes[0]), bytes.size() - 1);
  const std::string_view question = bytes.substr(1, length);
  const std::string_view passage = bytes.substr(1 + length);
  const auto tokenizer = models::MakeUnicodeWordTokenizer(ThreeSymbols("a\nb\n'"), /*oov_id=*/1,
                                                          /*lowercase=*/true);
  models::EncodeOptions options;
  options.spans = true;
  const auto asked = tokenizer->Encode(question, options);
  const auto given = tokenizer->Encode(passage, options);
  for (const auto* tokens : {&asked, &given}) {
    if (!tokens->ok()) RequireMessage(tokens->status());
  }
  if (!asked.ok() || !given.ok()) return;
  for (size_t i = 0; i < given->size(); ++i) {
    const models::TextSpan& last = given->spans[std::min(i + 15, given->size() - 1)];
    const std::string_view answer =
        passage.substr(given->spans[i].begin_byte, last.end_byte - given->spans[i].begin_byte);
    Require(!answer.empty() && FindInvalidUtf8(answer) == answer.size(),
            "an answer is cut at character borders");
    Require(given->ids[i] >= 0 && given->ids[i] < tokenizer->size(), "ids are in range");
  }
  models::ReaderConfig config;
  config.features = {models::ReaderFeature::kExact, models::ReaderFeature::kLower,
                     models::ReaderFeature::kTf};
  const models::QuestionFeatures features(config, question, *asked, {});
  std::vector<float> values(given->size() * config.features.size(), -1.0f);
  features.Fill(passage, *given, {}, values.data());
  double different = 0;  // tokens: each of n equal ones adds 1 / n
  for (size_t i = 0; i < given->size(); ++i) {
    const float exact = values[3 * i];
    const float lower = values[3 * i + 1];
    const float tf = values[3 * i + 2];
    Require((exact == 0 || exact == 1) && (lower == 0 || lower == 1), "features are flags");
    Require(exact <= lower, "what is equal is equal in lower case");
    Require(tf > 0 && tf <= 1, "a token is in its passage");
    different += 1 / (static_cast<double>(tf) * static_cast<double>(given->size()));
  }
  Require(std::abs(different - std::round(different)) < 1e-3, "each token is counted once");
}

// A file of tokens.
void CheckTokens(std::string_view bytes) {
  const auto set = server::transport::TokenSet::Parse({bytes.data(), bytes.size()}, "fuzz");
  if (Failed(set.status())) return;
  Require(set->size() > 0 && set->num_short() <= set->size(), "a set has tokens");
  Require(set->Find("") == nullptr, "the empty token is in no set");
}

}  // namespace

void FuzzSafetensors(std::string_view bytes) {
  auto file = models::SafetensorsFile::Parse(bytes, "fuzz");
  if (Failed(file.status())) return;
  size_t total = 0;
  volatile uint8_t sink = 0;
  for (const auto& [name, view] : (*file)->tensors()) {
    total += view.bytes;
    Require(reinterpret_cast<uintptr_t>(view.data) % view.dtype.bytes == 0, "a view is aligned");
    const auto* data = static_cast<const uint8_t*>(view.data);
    for (size_t i = 0; i < view.bytes; ++i) sink = static_cast<uint8_t>(sink ^ data[i]);
    const auto floats = (*file)->Floats(name, view.shape);
    if (floats.ok()) {
      Require(floats->size * sizeof(float) == view.bytes, "a float view is as long as its tensor");
    } else {
      RequireMessage(floats.status());
    }
  }
  Require(total <= bytes.size(), "the tensors are no longer than the file");

  models::ModelConfig config;
  config.encoder.input_size = 2;
  config.encoder.hidden_size = 2;
  config.encoder.num_layers = 1;
  models::TensorReader reader(**file);
  models::ReadEncoder(config, "", reader);
  if (!reader.status().ok()) RequireMessage(reader.status());
}

void FuzzConfig(std::string_view bytes) {
  const auto encoder = models::ParseModelConfig(
      R"({"format_version":1,"pooling":"none","encoder":)" + std::string(bytes) + "}", "fuzz");
  if (!encoder.ok()) RequireMessage(encoder.status());
  const auto config = models::ParseModelConfig(bytes, "fuzz");
  if (Failed(config.status())) return;
  const auto between = [](int value, int low, int high) { return low <= value && value <= high; };
  if (config->task != models::Task::kTranslator) {
    Require(between(config->encoder.input_size, 1, models::kMaxWidth), "input_size is in range");
    Require(between(config->encoder.hidden_size, 1, models::kMaxWidth), "hidden_size is in range");
    Require(between(config->encoder.num_layers, 1, models::kMaxLayers), "num_layers is in range");
    Require(between(config->encoder.projection_size, 0, models::kMaxWidth),
            "projection_size is in range");
  }
  if (config->task == models::Task::kReader) CheckReaderConfig(*config);
  if (config->has_embedding) {
    const int size = config->embedding.vocabulary_size;
    Require(between(size, 1, models::kMaxVocabulary), "vocabulary_size is in range");
    Require(between(config->embedding.oov_id, models::Tokenizer::kNotFound, size - 1),
            "oov_id is in range");
    const std::vector<uint8_t>& vocabulary = config->tokenizer.byte_vocabulary;
    Require(vocabulary.empty() || static_cast<int>(vocabulary.size()) == size, "a byte has an id");
  }
  const std::set<std::string> labels(config->labels.begin(), config->labels.end());
  Require(labels.size() == config->labels.size() && labels.count("") == 0,
          "labels are unique and not empty");
  Require(labels.empty() || config->pooling != kernels::Pooling::kNone, "labels have a pooling");
  Require(labels.empty() == (config->task != models::Task::kClassifier), "a classifier has labels");
  if (config->task == models::Task::kLanguageModel) {
    Require(config->has_embedding && config->pooling == kernels::Pooling::kNone &&
                !config->encoder.bidirectional,
            "a language model reads symbols in one direction");
  }
  if (config->task == models::Task::kTranslator) {
    const models::TranslatorConfig& translator = config->translator;
    Require(translator.heads > 0 && translator.d_model % translator.heads == 0, "heads divide");
    Require(!translator.bidirectional_encoder || translator.d_sru % 2 == 0, "directions are equal");
    Require(between(translator.encoder_layers, 1, models::kMaxLayers) &&
                between(translator.decoder_layers, 1, models::kMaxLayers),
            "layers are in range");
    Require(translator.source_vocabulary == translator.target_vocabulary ||
                (!translator.shared_embeddings && !config->has_tokenizer),
            "what is shared has one size");
    for (const int id :
         {translator.pad_id, translator.unk_id, translator.bos_id, translator.eos_id}) {
      Require(between(id, 0, translator.target_vocabulary - 1), "ids are in range");
    }
    Require(
        models::ValidateSearch(translator.search, translator.max_positions, "max_positions").ok(),
        "the default search can be asked for");
  }
  Require(!config->tied || (config->task == models::Task::kLanguageModel &&
                            config->encoder.input_size == config->encoder.output_size()),
          "a tied output layer has the embedding's shape");
}

void FuzzLines(std::string_view bytes) {
  if (bytes.empty()) return;
  CheckTokens(bytes.substr(1));
  const int size = static_cast<uint8_t>(bytes[0]);
  const auto vocabulary = models::Vocabulary::Parse(std::string(bytes.substr(1)), size, "fuzz");
  if (Failed(vocabulary.status())) return;
  Require((*vocabulary)->size() == size, "the count is the expected one");
  for (int id = 0; id < size; ++id) {
    const std::string_view word = (*vocabulary)->word(id);
    Require(!word.empty() && word.find('\n') == std::string_view::npos, "a word is a line");
    Require((*vocabulary)->Find(word) == id, "a word is found under its line number");
  }
}

void FuzzText(std::string_view bytes) {
  if (bytes.empty()) return;
  CheckReaderInput(bytes);
  const size_t limit = static_cast<uint8_t>(bytes[0]);
  const std::string_view text = bytes.substr(1);
  const bool valid = FindInvalidUtf8(text) == text.size();
  static const auto* const kOthers =
      new std::vector<std::unique_ptr<models::Tokenizer>>(OtherTokenizers());
  for (const auto& tokenizer : *kOthers) CheckTokenizer(*tokenizer, text, limit);
  CheckSpans(text, valid);
  static const auto* const kSplitters = new std::vector<Splitter>(Splitters());
  for (const Splitter& splitter : *kSplitters) {
    std::vector<std::string> words;
    const absl::Status status =
        models::SplitWords(splitter.config, text, models::Tokenizer::kNoLimit,
                           [&](std::string_view word, size_t begin, size_t end) {
                             Require(begin < end && end <= text.size(), "a word is in the text");
                             Require(!word.empty(), "a word is not empty");
                             Require(FindInvalidUtf8(word) == word.size(), "a word is valid UTF-8");
                             words.emplace_back(word);
                           });
    Require(status.ok() == valid, "exactly invalid UTF-8 is refused");
    if (Failed(status)) return;
    const auto ids = splitter.tokenizer->Encode(text, limit);
    Require(ids.ok(), "the tokenizer takes what the preprocessor takes");
    Require(ids->size() == std::min(limit, words.size()), "the limit holds");
    for (size_t i = 0; i < ids->size(); ++i) {
      Require((*ids)[i] == splitter.tokenizer->Lookup(words[i]), "an id is that of its word");
    }
    CheckTokenizer(*splitter.tokenizer, text, limit);
  }
}

void FuzzSentencePiece(std::string_view bytes) {
  if (bytes.size() < 2) return;
  const int size = static_cast<uint8_t>(bytes[0]) << 8 | static_cast<uint8_t>(bytes[1]);
  const auto tokenizer = models::SentencePieceTokenizer::Parse(bytes.substr(2), size, "fuzz");
  if (Refused(tokenizer.status())) return;
  Require((*tokenizer)->size() == size, "the count is the expected one");
  for (const std::string_view text : {std::string_view(" ab  \xc3\xa9"
                                                       "c\xe2\x96\x81 aaaabc\xef\xbd\x81 "),
                                      std::string_view("x")}) {
    CheckTokenizer(**tokenizer, text, 3);
  }
}

// Parses a message and compares what protobuf makes of it with its outline.
template <typename Request>
absl::Status ParseAndCheckOutline(std::string_view bytes, Request* request) {
  const absl::Cord cord(absl::string_view(bytes.data(), bytes.size()));
  absl::Status parsed = server::calls::ParseMessage(cord, request);
  server::calls::RequestOutline outline;
  const bool outlined = server::calls::ReadOutline<Request>(cord, &outline);
  if (parsed.ok()) Require(outlined, "a message has an outline");
  if (parsed.ok() && outline.extra_fields == 0) {
    int64_t words = 0;
    int64_t ids = 0;
    for (const v1::Sequence& sequence : request->sequences()) {
      words += sequence.tokens().values_size();
      ids += sequence.token_ids().values_size();
    }
    Require(outline.num_words == words, "the outline counts the words");
    Require(ids <= outline.max_ids() && words + ids >= outline.min_tokens(),
            "the outline bounds the ids");
  }
  if (!parsed.ok()) return parsed;
  RequireSameModel(outline, *request);
  Require(outline.num_sequences == request->sequences_size(), "the outline counts the sequences");
  if constexpr (std::is_same_v<Request, v1::ScoreRequest>) {
    Require(outline.num_states == request->states_size(), "the outline counts the states");
  }
  return parsed;
}

// A DetokenizeRequest and its outline.
void FuzzDetokenizeRequest(const absl::Cord& bytes) {
  v1::DetokenizeRequest request;
  if (Failed(server::calls::ParseMessage(bytes, &request))) return;
  server::calls::RequestOutline outline;
  Require(server::calls::ReadOutline<v1::DetokenizeRequest>(bytes, &outline),
          "a message has an outline");
  int64_t ids = 0;
  for (const v1::TokenIds& sequence : request.sequences()) ids += sequence.values_size();
  Require(outline.num_entries == request.sequences_size() && ids <= outline.max_ids() &&
              (outline.extra_fields > 0 || ids >= outline.min_tokens()),
          "the outline counts the sequences and bounds the ids");
  RequireSameModel(outline, request);
}

// A GenerateRequest and its outline, and whatever its fields say.
void FuzzGenerateRequest(const absl::Cord& bytes, const std::vector<Splitter>& splitters) {
  v1::GenerateRequest request;
  if (Failed(server::calls::ParseMessage(bytes, &request))) return;
  server::calls::RequestOutline outline;
  Require(server::calls::ReadOutline<v1::GenerateRequest>(bytes, &outline),
          "a message has an outline");
  Require(outline.num_entries >= request.stop_size() + request.sampling().logit_bias_size(),
          "the outline counts stops and biases");
  Require(request.stop_token_ids_size() + request.prompt().token_ids().values_size() <=
              outline.max_ids(),
          "the outline bounds the ids");
  RequireSameModel(outline, request);
  Require((outline.num_sequences > 0) == request.has_prompt(), "the outline tells of the prompt");
  server::calls::RequestLimits limits;
  limits.max_sequence_tokens = 8;
  limits.max_new_tokens = 16;
  for (const Splitter& splitter : splitters) {
    server::calls::ModelInput input{splitter.tokenizer.get(), /*vocabulary_size=*/3,
                                    /*input_size=*/2};
    input.takes_features = false;
    server::tasks::GenerateTask task;
    server::calls::WordCounts words;
    const absl::Status status =
        server::tasks::ParseGenerate(request, input, /*max_candidates=*/3, limits, &task, &words);
    if (Refused(status)) continue;
    Require(task.prompt.size() <= 8 && (!task.prompt.empty() || !request.state().empty()),
            "a prompt has tokens, and few enough");
    Require(words.unknown >= 0 && words.unknown <= words.words &&
                words.words <= static_cast<int64_t>(task.prompt.size()),
            "unknown tokens are some of the words, which are some of the prompt");
    Require(task.max_new_tokens >= 1 && task.max_new_tokens <= 16 &&
                task.min_new_tokens <= task.max_new_tokens && task.num_samples >= 1,
            "the numbers are within their limits");
  }
}

// The same for a TranslateRequest.
void FuzzTranslateRequest(std::string_view bytes, const std::vector<Splitter>& splitters) {
  v1::TranslateRequest request;
  if (Failed(ParseAndCheckOutline(bytes, &request))) return;
  const absl::Cord cord(absl::string_view(bytes.data(), bytes.size()));
  server::calls::RequestOutline outline;
  Require(server::calls::ReadOutline<v1::TranslateRequest>(cord, &outline) &&
              outline.num_entries == request.target_prefixes_size(),
          "the outline counts the prefixes");
  models::TranslatorConfig config;
  config.max_positions = 20;
  config.search.beam_size = 4;
  config.search.max_length = 12;
  server::calls::RequestLimits limits;
  limits.max_new_tokens = 16;
  const auto search = server::tasks::ParseSearch(request, config, limits);
  if (Refused(search.status())) return;
  const absl::Status valid = models::ValidateSearch(*search, 16, "--max_new_tokens");
  Require(valid.ok(), "what is parsed is valid");
  for (const Splitter& splitter : splitters) {
    const auto prefixes = server::tasks::ParsePrefixes(
        request, request.sequences_size(), splitter.tokenizer.get(), search->max_length);
    if (Failed(prefixes.status())) continue;
    for (const std::vector<int32_t>& prefix : *prefixes) {
      Require(prefix.size() < static_cast<size_t>(search->max_length), "a prefix leaves a token");
    }
  }
}

// What a reader gets of queries: tokens of the texts, as many as were counted before, in parts that
// fit into a batch.
void CheckQueries(const server::tasks::Queries& queries, const server::tasks::QueryLengths& lengths,
                  const std::vector<server::tasks::ParsedQuery>& parsed,
                  const models::ReaderConfig& config, const server::calls::RequestLimits& limits) {
  Require(parsed.size() == static_cast<size_t>(queries.size()), "a query stays one");
  size_t text = 0;
  for (int q = 0; q < queries.size(); ++q) {
    Require(parsed[q].question.size() == static_cast<size_t>(lengths.lengths[text++]),
            "the tokens of a question are counted");
    for (int i = 0; i < queries[q].passages_size(); ++i) {
      const server::tasks::ParsedPassage& passage = parsed[q].passages[i];
      const auto length = static_cast<size_t>(lengths.lengths[text++]);
      Require(passage.ids.size() == length && passage.places.size() == length &&
                  passage.features.size() == length * config.num_features(),
              "the tokens of a passage are counted, and each has features");
      uint32_t end = 0;
      for (const server::tasks::TokenPlace& place : passage.places) {
        Require(place.begin_byte >= end && place.end_byte > place.begin_byte &&
                    place.end_byte <= queries[q].passages(i).size(),
                "tokens are parts of their passage, in order");
        end = place.end_byte;
      }
      Require(server::tasks::LongestSpanBytes(passage.places, 2) <=
                  static_cast<int64_t>(queries[q].passages(i).size()),
              "a span is a part of its passage");
    }
  }
  int64_t total = 0;
  int last_parts = 0;
  for (const server::tasks::QueryPart& part :
       server::tasks::CutQueries(queries, parsed, limits.max_batch_tokens)) {
    Require(part.num_tokens <= limits.max_batch_tokens && !part.passages.empty(),
            "a part fits into a batch");
    total += part.num_tokens;
    if (part.is_last) ++last_parts;
  }
  Require(total == lengths.total && last_parts == queries.size(), "the parts are all of a query");
}

// An AnswerRequest and its outline, and whatever its texts and tags say.
void FuzzAnswerRequest(const absl::Cord& bytes) {
  v1::AnswerRequest request;
  if (Failed(server::calls::ParseMessage(bytes, &request))) return;
  server::calls::RequestOutline outline;
  Require(server::calls::ReadOutline<v1::AnswerRequest>(bytes, &outline),
          "a message has an outline");
  int64_t passages = 0;
  int64_t tags = 0;
  int64_t words = 0;
  int64_t ids = 0;
  for (const v1::Query& query : request.queries()) {
    passages += query.passages_size();
    tags += query.passage_tags_size();
    words += query.question_lemmas_size();
    for (const v1::PassageTags& passage : query.passage_tags()) {
      words += passage.lemmas_size();
      ids += passage.pos_ids_size() + passage.ner_ids_size();
    }
  }
  Require(outline.num_queries == request.queries_size() && outline.num_sequences == passages &&
              outline.num_entries == tags && outline.num_words == words && ids <= outline.max_ids(),
          "the outline counts what a query is made of");
  RequireSameModel(outline, request);
  const auto options = server::tasks::ParseAnswerOptions(request, 15);
  if (!options.ok()) RequireMessage(options.status());
  server::calls::RequestLimits limits;
  limits.max_sequences = 4;
  limits.max_sequence_tokens = 8;
  limits.max_request_tokens = 32;
  limits.max_batch_tokens = 12;
  const auto lengths = server::tasks::MeasureQueries(request.queries(), limits);
  if (Refused(lengths.status())) return;
  static const auto* const kTokenizer =
      models::MakeUnicodeWordTokenizer(ThreeSymbols("a\nb\n'"), /*oov_id=*/1, /*lowercase=*/true)
          .release();
  models::ReaderConfig plain;
  plain.features = {models::ReaderFeature::kExact, models::ReaderFeature::kTf};
  models::ReaderConfig tagged;
  tagged.features = {models::ReaderFeature::kLower, models::ReaderFeature::kLemma};
  tagged.pos_size = 3;
  tagged.ner_size = 2;
  for (const models::ReaderConfig& config : {plain, tagged}) {
    const auto queries = server::tasks::ParseQueries(request.queries(), config, *kTokenizer);
    if (queries.ok()) {
      CheckQueries(request.queries(), *lengths, *queries, config, limits);
      continue;
    }
    Require(queries.status().code() == absl::StatusCode::kInvalidArgument,
            "bad tags are the caller's error");
    RequireMessage(queries.status());
  }
}

// The same for a message of EncodeStream.
void FuzzStreamRequest(const absl::Cord& bytes) {
  v1::EncodeStreamRequest request;
  if (Failed(server::calls::ParseMessage(bytes, &request))) return;
  server::calls::RequestOutline outline;
  Require(server::calls::ReadOutline<v1::EncodeStreamRequest>(bytes, &outline),
          "a message has an outline");
  Require((outline.num_sequences > 0) == request.has_chunk() &&
              request.chunk().tokens().values_size() <= outline.num_words &&
              request.chunk().token_ids().values_size() <= outline.max_ids(),
          "the outline bounds what the chunk is made of");
}

void FuzzRequest(std::string_view bytes) {
  // The server does this too: otherwise protobuf would log each bad string.
  google::protobuf::SetLogHandler(nullptr);
  static const auto* const kSplitters = new std::vector<Splitter>(Splitters());
  const absl::Cord buffer(absl::string_view(bytes.data(), bytes.size()));
  FuzzGenerateRequest(buffer, *kSplitters);
  FuzzStreamRequest(buffer);
  FuzzTranslateRequest(bytes, *kSplitters);
  FuzzAnswerRequest(buffer);
  FuzzDetokenizeRequest(buffer);
  v1::ScoreRequest score;
  Failed(ParseAndCheckOutline(bytes, &score));
  v1::TokenizeRequest tokenize;
  Failed(ParseAndCheckOutline(bytes, &tokenize));
  v1::ClassifyRequest request;
  if (Refused(ParseAndCheckOutline(bytes, &request))) return;
  server::calls::RequestLimits limits;
  limits.max_sequences = 4;
  limits.max_sequence_tokens = 8;
  limits.max_request_tokens = 16;
  for (const Splitter& splitter : *kSplitters) {
    server::calls::ModelInput input{splitter.tokenizer.get(), /*vocabulary_size=*/3,
                                    /*input_size=*/2};
    input.may_be_empty = request.skip_empty();
    input.unknown = static_cast<models::UnknownUse>(request.unknown() & 3);
    std::vector<std::vector<models::TextSpan>> spans;
    input.spans = &spans;
    std::vector<server::calls::TokenTask> tasks;
    const auto sequences = server::calls::ParseSequences(request.sequences(), request.truncate(),
                                                         input, limits, &tasks);
    if (Refused(sequences.status())) continue;
    Require(tasks.size() == static_cast<size_t>(request.sequences_size()),
            "each sequence becomes a task");
    for (const server::calls::TokenCounts& counts : sequences->counts) {
      Require(counts.unknown >= 0 &&
                  (input.unknown == models::UnknownUse::kSkip || counts.unknown <= counts.computed),
              "unknown tokens are some of all");
    }
    for (int i = 0; i < request.sequences_size(); ++i) {
      const bool is_text = request.sequences(i).has_text();
      Require(spans[i].size() == (is_text ? tasks[i].token_ids.size() : 0),
              "each token of a text has a place");
    }
    for (const server::calls::TokenTask& task : tasks) {
      Require(task.num_tokens >= (request.skip_empty() ? 0 : 1) &&
                  task.num_tokens <= limits.max_sequence_tokens,
              "the limit on tokens holds");
      Require(task.token_ids.size() * 2 + task.features.size() ==
                  static_cast<size_t>(task.num_tokens) * 2,
              "a task has either ids or features, as many as its tokens");
      for (const int32_t id : task.token_ids) Require(id >= 0 && id < 3, "ids are in range");
    }
  }
}

void FuzzInfer(std::string_view bytes) {
  google::protobuf::SetLogHandler(nullptr);
  server::open_inference::InferRequest request;
  absl::Status status = server::open_inference::ReadInferRequest(
      absl::string_view(bytes.data(), bytes.size()), &request);
  inference::ModelInferRequest parsed;
  const bool parses = parsed.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
  if (status.ok()) {
    // protobuf also refuses names of tensors that are not UTF-8.
    Require(!parses || (request.model_name == parsed.model_name() && request.id == parsed.id()),
            "names are those of the message");
    const bool has_as_many =
        request.inputs.size() == static_cast<size_t>(parsed.inputs_size()) &&
        request.raw_inputs.size() == static_cast<size_t>(parsed.raw_input_contents_size());
    Require(!parses || has_as_many, "there are as many inputs as in the message");
    status.Update(server::open_inference::ReadCommonParameters(request).status());
    status.Update(server::open_inference::CheckContents(request));
  }
  server::calls::RequestLimits limits;
  limits.max_sequences = 4;
  static const auto* const kTokenizer = OtherTokenizers().front().release();
  const server::calls::ModelInput takes{kTokenizer, /*vocabulary_size=*/3, /*input_size=*/2};
  server::open_inference::SequenceInput input;
  server::calls::RequestOutline outline;
  google::protobuf::RepeatedPtrField<v1::Sequence> sequences;
  if (status.ok())
    status = server::open_inference::FindSequenceInput(request, "model", takes, &input);
  if (status.ok())
    status = server::open_inference::OutlineSequences(request, input, limits, &outline);
  if (status.ok())
    status = server::open_inference::ReadSequences(request, input, takes, &sequences);
  if (!status.ok()) {
    Require(absl::IsInvalidArgument(status) || absl::IsUnimplemented(status),
            "bad requests are the caller's error");
    RequireMessage(status);
    return;
  }
  Require(sequences.size() == outline.num_sequences && sequences.size() <= limits.max_sequences,
          "there are as many sequences as were counted");
  int64_t ids = 0;
  for (const v1::Sequence& sequence : sequences) {
    for (const int32_t id : sequence.token_ids().values())
      Require(id >= 0 && id < 3, "ids are in range");
    ids += sequence.token_ids().values_size();
    Require(sequence.features().data().size() % (2 * sizeof(float)) == 0, "frames are whole");
    Require(FindInvalidUtf8(sequence.text()) == sequence.text().size(), "texts are UTF-8");
  }
  Require(ids <= static_cast<int64_t>(bytes.size()), "ids were sent");
}

void FuzzState(std::string_view bytes) {
  if (bytes.empty()) return;
  static const auto* const kFields =
      new std::vector<kernels::FieldSpec>{{"c", 2, false}, {"k", 1, true}};
  static const auto* const kCodec =
      new models::StateCodec({"fuzz", 1, std::string(32, 'w')}, *kFields, 100);
  std::string sealed(bytes.substr(1));
  if ((bytes[0] & 1) != 0) {
    constexpr size_t kDigestOffset = 56;
    constexpr size_t kDigestBytes = 16;
    kernels::StateArena::State fresh;
    fresh.rows = {0, 0};
    const std::string header = kCodec->Encode(fresh, {}).substr(0, kDigestOffset);
    sealed = header + models::DigestOf(header + sealed).substr(0, kDigestBytes) + sealed;
  }
  kernels::ArenaOptions options;
  options.budget_bytes = size_t{1} << 20;
  kernels::StateArena arena(*kFields, {0, 0}, options, kernels::HostArenaMemory());
  kernels::StateArena::Slot slot = kernels::StateArena::kNoSlot;
  Require(arena.Allocate(&slot).ok(), "a fresh slot takes no memory");

  models::SequenceState state;
  const absl::Status decoded = kCodec->Decode(sealed, &state);
  const kernels::Status put = arena.Put(slot, state.state);
  if (Refused(decoded)) return;
  Require(kCodec->Encode(state.state, state.memo) == sealed, "a state has one form");
  const auto ascend = [](const auto& a, const auto& b) { return !(a < b); };
  const std::vector<int32_t>& prompt_ids = state.memo.prompt_ids;
  Require(std::adjacent_find(prompt_ids.begin(), prompt_ids.end(), ascend) == prompt_ids.end() &&
              (prompt_ids.empty() || (prompt_ids.front() >= 0 && prompt_ids.back() < 100)),
          "ids of a memo ascend and are in range");
  for (const auto& [id, count] : state.memo.counts) {
    Require(id >= 0 && id < 100 && count > 0, "counts of a memo are in range");
  }
  if (put.code() == kernels::StatusCode::kResourceExhausted) return;
  Require(put.ok(), "an arena takes what the codec takes");
  kernels::StateArena::State taken;
  Require(arena.Take(slot, &taken).ok() && kCodec->Encode(taken, state.memo) == sealed,
          "what is put in comes out");
}

void FuzzSearch(std::string_view bytes) {
  constexpr size_t kOptionBytes = 8;
  constexpr size_t kCandidateBytes = 5;
  constexpr int32_t kBos = 2;
  constexpr int32_t kEos = 3;
  if (bytes.size() < kOptionBytes + kCandidateBytes) return;
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(bytes[i]); };
  models::SearchOptions options;
  options.beam_size = 1 + byte(0) % kMaxBeam;
  options.num_hypotheses = 1 + byte(1) % options.beam_size;
  const auto penalties = kernels::AllNamed<models::LengthPenaltyName>();
  options.length_penalty = penalties[byte(2) % penalties.size()];
  options.alpha = byte(3) / 255.0 * models::kMaxLengthPenaltyAlpha;
  options.max_length = 1 + byte(4) % 32;
  options.narrows = byte(4) / 32 % 2 != 0;
  options.word_penalty = byte(4) / 64 - 1;
  Require(models::ValidateSearch(options, 32, "fuzz").ok(), "the options are valid");
  const std::vector<int32_t> prefix(byte(5) % options.max_length, byte(6));
  const int count = 1 + byte(7) % options.beam_size;
  models::BeamSearch search(options, kBos, kEos, prefix);

  // The bytes again and again: a search that ends must do so by itself.
  size_t at = kOptionBytes;
  const auto next = [&] {
    if (at + kCandidateBytes > bytes.size()) at = kOptionBytes;
    kernels::Candidate candidate;
    candidate.id = byte(at);
    std::memcpy(&candidate.log_prob, bytes.data() + at + 1, sizeof(candidate.log_prob));
    at += kCandidateBytes;
    return candidate;
  };
  int steps = 0;
  while (!search.done()) {
    const int live = search.live();
    Require(live >= 1 && live <= options.beam_size, "something is live, and no more than the beam");
    std::vector<kernels::Candidate> candidates(static_cast<size_t>(live) * count);
    for (kernels::Candidate& candidate : candidates) candidate = next();
    search.Step(candidates.data(), count, count);
    for (int place = 0; place < search.live(); ++place) {
      const int parent = search.parents()[place];
      Require(parent >= 0 && parent < live, "a parent was live");
      Require(search.last_token(place) != kEos, "what has ended does not go on");
    }
    ++steps;
    Require(steps + static_cast<int>(prefix.size()) <= options.max_length,
            "a search ends at the longest length");
  }
  Require(search.live() == 0, "nothing is live when the search is over");
  const std::vector<models::FoundHypothesis> found = search.Take(/*with_rows=*/true);
  Require(!found.empty() && static_cast<int>(found.size()) <= options.num_hypotheses,
          "there are as many hypotheses as wanted, or fewer");
  for (size_t i = 0; i < found.size(); ++i) {
    Require(!std::isnan(found[i].log_prob) && !std::isnan(found[i].score), "sums are numbers");
    Require(i == 0 || found[i - 1].score >= found[i].score, "the best is first");
    Require(found[i].rows.size() == found[i].tokens.size(), "each token has its row");
    Require(static_cast<int>(found[i].tokens.size()) + (found[i].finished ? 1 : 0) <=
                options.max_length,
            "hypotheses are as long as allowed");
    Require(std::equal(prefix.begin(), prefix.end(), found[i].tokens.begin()),
            "a hypothesis begins with the prefix");
    for (size_t t = 0; t < found[i].rows.size(); ++t) {
      const models::ChoiceRow& row = found[i].rows[t];
      const bool in_prefix = t < prefix.size();
      Require(row.step == (in_prefix ? models::ChoiceRow::kPrefixStep
                                     : static_cast<int>(t - prefix.size())),
              "a token is of its step");
      Require(row.row >= 0 &&
                  row.row < (in_prefix ? static_cast<int>(prefix.size()) : options.beam_size),
              "a row is a place");
    }
  }
}

void FuzzHeaders(std::string_view bytes) {
  const absl::string_view header(bytes.data(), bytes.size());
  const auto is_hex = [](absl::string_view text) {
    return text.find_first_not_of("0123456789abcdef") == absl::string_view::npos;
  };
  if (const auto trace = server::telemetry::ParseTraceparent(header)) {
    Require(trace->trace_id.size() == 32 && is_hex(trace->trace_id), "a trace id is 32 digits");
    Require(trace->parent_id.size() == 16 && is_hex(trace->parent_id), "a parent id is 16 digits");
    // Written out again as version 00 it reads the same.
    const std::string again =
        absl::StrCat("00-", trace->trace_id, "-", trace->parent_id, trace->sampled ? "-01" : "-00");
    const auto reread = server::telemetry::ParseTraceparent(again);
    Require(reread.has_value() && reread->trace_id == trace->trace_id &&
                reread->parent_id == trace->parent_id && reread->sampled == trace->sampled,
            "a trace context reads back");
  }
  const auto is_visible = [](absl::string_view text) {
    return std::all_of(text.begin(), text.end(), [](char c) { return c > 0x20 && c < 0x7f; });
  };
  if (const auto host = server::http::ParsePageHost(header)) {
    Require(!host->host.empty() && is_visible(host->host) &&
                host->host.find_first_of("@/?#[]%, ") == std::string::npos,
            "a host is a name or an address");
    const bool brackets = host->kind == server::http::PageHost::Kind::kIpV6;
    const auto reread =
        server::http::ParsePageHost(brackets ? absl::StrCat("[", host->host, "]") : host->host);
    Require(reread.has_value() && reread->host == host->host && reread->kind == host->kind,
            "a host reads back");
  }
  if (server::telemetry::IsValidRequestId(header)) {
    Require(is_visible(header) && header.size() <= server::telemetry::kMaxRequestIdLength,
            "a request id is short and visible");
  }
  const absl::string_view token = server::transport::BearerToken(header);
  Require(is_visible(token) && token.size() <= server::transport::kMaxTokenLength,
          "a token is visible");
  for (const server::LogFormat format : {server::LogFormat::kText, server::LogFormat::kJson}) {
    const std::string line = server::FormatLogLine(server::LogLevel::kInfo, header,
                                                   absl::UnixEpoch(), {{"value", header}}, format);
    Require(std::none_of(line.begin(), line.end(),
                         [](char c) { return static_cast<unsigned char>(c) < 0x20; }),
            "an event is one line without control characters");
  }
}

namespace {

// What the reader takes is JSON by another parser, and the reverse, up to the nesting.
void RequireSameJson(absl::string_view text) {
  if (FindInvalidUtf8({text.data(), text.size()}) != text.size()) return;
  if (text.find('\0') != absl::string_view::npos) return;  // the other parser takes it for the end
  server::rest::JsonReader reader(text);
  const bool accepted = reader.Skip() && reader.ExpectEnd();
  if (!accepted) RequireMessage(reader.status());
  const bool too_deep = static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
                          return c == '[' || c == '{';
                        })) > server::rest::JsonReader::kMaxDepth;
  bool is_json = true;
  try {
    is_json = !nlohmann::json::parse(text.begin(), text.end()).is_discarded();
  } catch (const nlohmann::json::out_of_range&) {
    return;  // a number that no double holds
  } catch (const nlohmann::json::parse_error&) {
    is_json = false;
  }
  // Which JSON must not begin with (RFC 8259, 8.1); nlohmann::json ignores it.
  if (text.substr(0, 3) == "\xEF\xBB\xBF") is_json = false;
  Require(accepted == is_json || (too_deep && !accepted),
          "JSON is what another parser takes for it");
}

// Values that have a form in JSON come back from it as they were, except for the bits of a NaN.
void RequireSameValues(const inference::ModelInferRequest::InferInputTensor& input,
                       const std::string& raw) {
  const auto* const type = server::rest::FindTensorType(input.datatype());
  const std::vector<int64_t> shape(input.shape().begin(), input.shape().end());
  const auto count = server::rest::CountElements(shape, 1 << 20, "input");
  if (type == nullptr || !count.ok()) return;
  if (!server::rest::CheckTensorData(raw, *type, *count, "input").ok()) return;
  std::string json = "[";
  server::rest::AppendTensorPart(raw, *type, std::string::npos, &json);
  json += "]";
  Require(json.size() <= server::rest::JsonBytesBound(raw.size(), *type, *count),
          "the bound holds");
  if (json.find("\"NaN\"") != std::string::npos || input.datatype() == "BOOL") return;
  std::string again;
  Require(server::rest::ReadTensorData(json, *type, shape, "input", &again).ok(),
          "JSON is read again");
  Require(again == raw, "values survive their form in JSON");
}

class FuzzedBudget : public server::calls::ByteBudget {
 public:
  using ByteBudget::ByteBudget;

 private:
  bool Reserve(int64_t bytes) override {
    Require(bytes >= 0, "what is reserved is a size");
    return ByteBudget::Reserve(bytes);
  }
};

}  // namespace

void FuzzV2(std::string_view bytes) {
  if (bytes.size() < 2) return;
  const size_t length =
      static_cast<unsigned char>(bytes[0]) << 8 | static_cast<unsigned char>(bytes[1]);
  const std::string body(bytes.substr(2));
  RequireSameJson(body);
  constexpr int64_t kMemory = 16 << 10;
  FuzzedBudget budget(kMemory);
  {
    server::rest::MemoryHold memory(&budget);
    Require(memory.Grow(static_cast<int64_t>(body.size())), "the body fits");
    auto request = server::rest::ParseHttpInferRequest(
        body, length == 0 ? "" : absl::StrCat(length), "m", "1", &memory);
    if (!request.ok()) {
      Require(
          absl::IsInvalidArgument(request.status()) || absl::IsResourceExhausted(request.status()),
          "bad requests are the caller's error");
      RequireMessage(request.status());
    } else {
      inference::ModelInferRequest message;
      Require(server::calls::ParseCord(request->message, &message), "the message is one");
      Require(message.raw_input_contents_size() == message.inputs_size(), "inputs have values");
      for (int i = 0; i < message.inputs_size(); ++i) {
        RequireSameValues(message.inputs(i), message.raw_input_contents(i));
      }
    }
  }
  Require(budget.used() == 0, "what was reserved is given back");
}

namespace {

void RequireRefusal(const absl::Status& status) {
  if (absl::IsResourceExhausted(status)) return;
  Require(status.code() == absl::StatusCode::kInvalidArgument, "a bad body is the caller's error");
  RequireMessage(status);
}

// What is read can be written, and what is written is read as the same.
void RequireSameMessage(const google::protobuf::Message& message) {
  for (const server::rest::JsonFields fields :
       {server::rest::JsonFields::kAll, server::rest::JsonFields::kSet}) {
    std::string json;
    server::rest::MemoryHold unlimited(nullptr);
    Require(server::rest::WriteJsonMessage(message, fields, &unlimited, &json).ok(),
            "a message can be written");
    const std::unique_ptr<google::protobuf::Message> again(message.New());
    Require(server::rest::ParseJsonMessage(json, &unlimited, again.get()).ok(),
            "what is written can be read");
    Require(again->SerializeAsString().size() == message.SerializeAsString().size(),
            "nothing is lost");
  }
}

// The gateway's routes that take a body, over all methods.
struct Api {
  Api() {
    for (const server::rest::RouteGroup& group : server::rest::ApiRoutes(methods)) {
      for (const server::rest::Route& route : group.routes) {
        if (route.max_body() == 0) continue;
        lines.insert(absl::StrCat(route.method, " ", route.path));
        table.Add(route);
      }
    }
  }
  static const Api& Get() {
    static const auto* const api = new Api;
    return *api;
  }
  server::rest::RouteTable::Match Find(std::string_view line) const {
    const size_t space = std::min(line.find(' '), line.size());
    const std::string_view path = line.substr(std::min(space + 1, line.size()));
    return table.Find({line.data(), space}, {path.data(), path.size()});
  }
  static std::vector<Method> Methods() {
    std::vector<Method> rows;
    for (const server::calls::MethodInfo& info : server::calls::method_table::kRows) {
      Method& row = rows.emplace_back(Method::Of(info.id));
      const auto* const method =
          google::protobuf::DescriptorPool::generated_pool()->FindMethodByName(
              absl::StrCat(row.service, ".", row.name));
      auto* const factory = google::protobuf::MessageFactory::generated_factory();
      row.request = factory->GetPrototype(method->input_type());
      row.response = factory->GetPrototype(method->output_type());
    }
    return rows;
  }

  const server::calls::MethodTable methods{Methods()};
  server::rest::RouteTable table;
  std::set<std::string> lines;  // "POST /v1/classify"
};

// Ends when it is asked for a message.
class EmptyStream final : public server::calls::LocalStream {
 public:
  explicit EmptyStream(server::calls::LocalCalls::OnDone done) : done_(std::move(done)) {}
  void Next() override { End(absl::OkStatus()); }
  void Cancel() override { End(absl::CancelledError()); }

 private:
  void End(const absl::Status& status) {
    if (const auto done = std::exchange(done_, nullptr)) done({{status, {}, {}}, {}});
  }
  server::calls::LocalCalls::OnDone done_;
};

class IgnoredParts final : public server::http::PageStream {
  void AsyncWrite(std::string /*part*/, std::function<void(bool)> written) override {
    written(true);
  }
};

// A request whose calls are answered by empty messages, and GetModel by a model of the task.
class FuzzedCall final : public testing::PlainRestCall {
 public:
  FuzzedCall(server::http::PageRequest request, std::string_view body, const char* task,
             server::calls::ByteBudget* budget)
      : PlainRestCall(std::move(request), std::string(body)), task_(task), memory_(budget) {
    limits_.max_sequences = 64;
    Require(memory_.Grow(static_cast<int64_t>(body.size())), "the body fits");
  }
  bool answered = false;
  bool asked_for_model = false;

  server::rest::MemoryHold& memory() override { return memory_; }
  const server::calls::RequestLimits& limits() const override { return limits_; }
  std::shared_ptr<server::calls::LocalCall> Unary(const std::string& method, absl::Cord request,
                                                  server::calls::LocalCalls::OnDone done) override {
    server::calls::LocalAnswer answer;
    if (CheckRequest(method, request).id == server::calls::MethodId::kGetModel) {
      asked_for_model = true;
      v1::GetModelResponse response;
      response.mutable_model()->set_task(task_);
      answer.message = server::calls::ToCord(response);
    }
    done(std::move(answer));
    return nullptr;
  }
  std::shared_ptr<server::calls::LocalStream> ServerStream(
      const std::string& method, absl::Cord request,
      server::calls::LocalCalls::OnMessage /*on_message*/,
      server::calls::LocalCalls::OnDone done) override {
    CheckRequest(method, request);
    return std::make_shared<EmptyStream>(std::move(done));
  }
  void Reply(server::http::PageResponse response) override {
    SetAnswered();
    Require(response.content_type != server::rest::kJsonContentType ||
                nlohmann::json::accept(response.body),
            "an answer without results is JSON");
  }
  void Fail(const server::rest::RestError& error) override {
    SetAnswered();
    if (!absl::IsUnimplemented(error.status)) RequireRefusal(error.status);
  }
  std::unique_ptr<server::http::PageStream> ReplyInParts(
      server::http::PageResponse /*head*/) override {
    SetAnswered();
    return std::make_unique<IgnoredParts>();
  }

 private:
  void SetAnswered() { Require(!std::exchange(answered, true), "a request is answered once"); }
  const Method& CheckRequest(const std::string& path, const absl::Cord& bytes) const {
    const Method* const method = Api::Get().methods.Find(path);
    Require(method != nullptr, "a route calls a method");
    const std::unique_ptr<google::protobuf::Message> message(method->request->New());
    Require(server::calls::ParseCord(bytes, message.get()), "a route makes a method's message");
    if (method->service == server::calls::kInferenceService) RequireSameMessage(*message);
    return *method;
  }

  const char* const task_;
  server::rest::MemoryHold memory_;
  server::calls::RequestLimits limits_;
};

void FuzzRoute(std::string_view line, std::string_view body) {
  const server::rest::RouteTable::Match match = Api::Get().Find(line);
  if (match.route == nullptr) return;
  server::http::PageRequest request;
  request.headers["content-type"] = match.route->content_types.front();
  for (const char* const task : {"encoder", "classifier", "tagger", "translator", "reader"}) {
    FuzzedBudget memory(int64_t{1} << 20);
    auto call = std::make_shared<FuzzedCall>(request, body, task, &memory);
    match.route->handle(call);
    Require(call->answered, "a request is answered");
    const bool depends_on_task = call->asked_for_model;
    call.reset();
    Require(memory.used() == 0, "memory is given back");
    if (!depends_on_task) break;
  }
}

}  // namespace

void FuzzRest(std::string_view bytes) {
  const auto [line, body] = SplitName(bytes);
  if (line != "*") return FuzzRoute(line, body);
  for (const std::string& each : Api::Get().lines) FuzzRoute(each, body);
}

std::set<std::string> RoutesWithout(const std::vector<std::string>& inputs) {
  std::set<std::string> missing = Api::Get().lines;
  for (const std::string& input : inputs) {
    const server::rest::Route* const route = Api::Get().Find(SplitName(input).first).route;
    if (route != nullptr) missing.erase(absl::StrCat(route->method, " ", route->path));
  }
  return missing;
}

}  // namespace sru::fuzz
