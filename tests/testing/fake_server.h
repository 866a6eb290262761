// FakeServer: a server of sru.v1.InferenceService for the client's tests, in this process, on a
// port that the system picks. Its answers follow from the request, so that a test can see what was
// sent.
#ifndef SRU_TESTS_TESTING_FAKE_SERVER_H_
#define SRU_TESTS_TESTING_FAKE_SERVER_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "google/rpc/retry.pb.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/health_check_service_interface.h"
#include "sru/v1/admin.grpc.pb.h"
#include "sru/v1/inference.grpc.pb.h"
#include "tests/testing/protos.h"

namespace sru::client {

class FakeServer : private v1::InferenceService::Service {
 public:
  // `max_streams`: calls that a connection may have open at a time; 0 = no bound.
  explicit FakeServer(int max_streams = 0, std::shared_ptr<grpc::ServerCredentials> credentials =
                                               grpc::InsecureServerCredentials()) {
    grpc::EnableDefaultHealthCheckService(true);
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", std::move(credentials), &port);
    if (max_streams > 0) {
      builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, max_streams);
    }
    builder.RegisterService(this);
    builder.RegisterService(&admin_);
    server_ = builder.BuildAndStart();
    port_ = port;
    address_ = absl::StrCat("127.0.0.1:", port);
  }
  ~FakeServer() override { server_->Shutdown(std::chrono::system_clock::now()); }

  const std::string& address() const { return address_; }
  int port() const { return port_; }

  void SetServing(const std::string& service, bool serving) {
    server_->GetHealthCheckService()->SetServingStatus(service, serving);
  }

  // Makes the next calls of Classify, Encode, Score, Answer, Translate, Generate and EncodeStream
  // fail with these statuses, one each.
  void FailNext(std::vector<grpc::Status> statuses) {
    MutexLock lock(&mu_);
    failures_ = std::move(statuses);
  }
  // RESOURCE_EXHAUSTED, as the server sends it.
  static grpc::Status Overloaded(int64_t retry_seconds, int32_t retry_nanos) {
    google::rpc::RetryInfo info;
    info.mutable_retry_delay()->set_seconds(retry_seconds);
    info.mutable_retry_delay()->set_nanos(retry_nanos);
    google::rpc::Status details;
    details.set_code(grpc::StatusCode::RESOURCE_EXHAUSTED);
    details.set_message("the queue is full");
    static_cast<void>(details.add_details()->PackFrom(info));
    return grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "the queue is full",
                        details.SerializeAsString());
  }

  int num_calls() const {
    MutexLock lock(&mu_);
    return num_calls_;
  }
  // Of the last call of Classify; "": there was none.
  std::string header(const std::string& name) const {
    MutexLock lock(&mu_);
    const auto found = headers_.find(name);
    return found == headers_.end() ? "" : found->second;
  }
  // All that have come, in the order of their arrival.
  template <typename Request>
  std::vector<Request> requests() const {
    MutexLock lock(&mu_);
    return std::get<std::vector<Request>>(requests_);
  }
  // Makes the next calls of Generate stop, each after so many tokens per sample, with the state and
  // UNAVAILABLE.
  void DrainGenerateAfter(std::vector<int> tokens) {
    MutexLock lock(&mu_);
    drain_after_ = std::move(tokens);
  }
  // From this call of Generate on, counted from 0, every token is another one.
  void CorruptGenerateFrom(int call) {
    MutexLock lock(&mu_);
    corrupt_from_ = call;
  }

  // A further model that ListModels() and GetModel() tell of.
  void AddModel(const v1::ModelInfo& model) {
    MutexLock lock(&mu_);
    models_.push_back(model);
  }

 private:
  // An admin service that knows one model, "fake".
  class FakeAdmin : public v1::AdminService::Service {
    grpc::Status LoadModel(grpc::ServerContext* /*context*/, const v1::LoadModelRequest* request,
                           v1::LoadModelResponse* response) override {
      if (request->model() != "fake") {
        return grpc::Status(grpc::StatusCode::NOT_FOUND,
                            absl::StrCat("model: there is no '", request->model(), "'"));
      }
      v1::ModelStatus* status = response->add_statuses();
      status->set_model("fake");
      status->set_version(8);
      status->set_state(v1::ModelStatus::READY);
      return grpc::Status::OK;
    }
    grpc::Status UnloadModel(grpc::ServerContext* /*context*/,
                             const v1::UnloadModelRequest* request,
                             v1::UnloadModelResponse* /*response*/) override {
      if (request->model() == "fake") return grpc::Status::OK;
      return grpc::Status(grpc::StatusCode::NOT_FOUND,
                          absl::StrCat("model: '", request->model(), "' is not loaded"));
    }
  };

  template <typename Request>
  std::vector<Request>& Recorded() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return std::get<std::vector<Request>>(requests_);
  }

  // What begins a call that has one request.
  template <typename Request>
  grpc::Status Begin(const Request& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    Recorded<Request>().push_back(request);
    return TakeFailure();
  }

  // What every response has, and the times of one that was computed.
  template <typename Response>
  static grpc::Status End(Response* response) {
    response->set_model("fake");
    response->set_version(7);
    if constexpr (!std::is_same_v<Response, v1::TokenizeResponse> &&
                  !std::is_same_v<Response, v1::DetokenizeResponse>) {
      response->mutable_times()->set_total_us(1500);
    }
    return grpc::Status::OK;
  }

  static grpc::Status Invalid(const std::string& message) {
    return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, message);
  }

  // A call of sequences, of which `add` answers each; for this reason it refuses the text "bad".
  template <typename Request, typename Response, typename Add>
  grpc::Status AnswerEach(const Request& request, Response* response, const char* reason,
                          const Add& add) {
    MutexLock lock(&mu_);
    if (grpc::Status status = Begin(request); !status.ok()) return status;
    for (int i = 0; i < request.sequences_size(); ++i) {
      if (reason != nullptr && request.sequences(i).text() == "bad") {
        return Invalid(absl::StrCat("sequences[", i, "].text: ", reason));
      }
      add(i, request.sequences(i));
    }
    return End(response);
  }

  grpc::Status TakeFailure() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    ++num_calls_;
    if (failures_.empty()) return grpc::Status::OK;
    grpc::Status status = failures_.front();
    failures_.erase(failures_.begin());
    return status;
  }

  static constexpr char kUnknownByte[] = "has a byte that is unknown";

  static bool IsBlank(const v1::Sequence& sequence) {
    return absl::StripAsciiWhitespace(sequence.text()).empty() &&
           sequence.tokens().values().empty();
  }

  static int UnknownWords(const v1::Sequence& sequence) {
    const auto is_unknown = [](absl::string_view word) { return absl::StartsWith(word, "zz"); };
    const std::vector<absl::string_view> words = absl::StrSplit(sequence.text(), ' ');
    return static_cast<int>(std::count_if(words.begin(), words.end(), is_unknown) +
                            std::count_if(sequence.tokens().values().begin(),
                                          sequence.tokens().values().end(), is_unknown));
  }

  // Answers with two labels; a long text is more probably "LONG". Refuses the text "bad". Words
  // that begin with "zz" are unknown. With skip_empty a blank text has an empty answer.
  grpc::Status Classify(grpc::ServerContext* context, const v1::ClassifyRequest* request,
                        v1::ClassifyResponse* response) override {
    {
      MutexLock lock(&mu_);
      headers_.clear();
      for (const auto& [name, value] : context->client_metadata()) {
        headers_[{name.data(), name.size()}] = {value.data(), value.size()};
      }
    }
    return AnswerEach(*request, response, "gives no tokens", [&](int, const auto& sequence) {
      while (sequence.text() == "hang" && !context->IsCancelled()) {
        absl::SleepFor(absl::Milliseconds(1));
      }
      const float p = sequence.text().size() > 10 ? 0.75f : 0.25f;
      v1::Classification* result = response->add_classifications();
      if (request->skip_empty() && IsBlank(sequence)) return;
      result->set_unknown_tokens(UnknownWords(sequence));
      AddLabel(result, p > 0.5f ? "LONG" : "SHORT", p > 0.5f ? 1 : 0, 0.75f);
      if (request->top_k() != 1) {
        AddLabel(result, p > 0.5f ? "SHORT" : "LONG", p > 0.5f ? 0 : 1, 0.25f);
      }
      result->set_token_count(sequence.has_tokens() ? sequence.tokens().values_size() : 3);
      result->set_truncated(request->truncate());
    });
  }

  // Answers with the vector (1, -2) in the requested format.
  grpc::Status Encode(grpc::ServerContext* /*context*/, const v1::EncodeRequest* request,
                      v1::EncodeResponse* response) override {
    return AnswerEach(*request, response, nullptr, [&](int, const auto& sequence) {
      v1::Encoding* result = response->add_encodings();
      if (request->skip_empty() && IsBlank(sequence)) return result->add_shape(0);
      result->set_unknown_tokens(UnknownWords(sequence));
      result->add_shape(2);
      switch (request->output_format()) {
        case v1::OUTPUT_FORMAT_RAW_FLOAT32:
          result->set_data(std::string("\x00\x00\x80\x3f\x00\x00\x00\xc0", 8));
          break;
        case v1::OUTPUT_FORMAT_RAW_FLOAT16:
          result->set_data(std::string("\x00\x3c\x00\xc0", 4));
          break;
        case v1::OUTPUT_FORMAT_RAW_BFLOAT16:
          result->set_data(std::string("\x80\x3f\x00\xc0", 4));
          break;
        default:
          result->add_values(1);
          result->add_values(-2);
      }
      result->set_token_count(2);
    });
  }

  // A model of bytes (of words, if they are split) for which a token's probability is a half to the
  // power of 1 + its first byte modulo 4, and whose state is the text that it has read. Refuses
  // "bad".
  grpc::Status Score(grpc::ServerContext* /*context*/, const v1::ScoreRequest* request,
                     v1::ScoreResponse* response) override {
    return AnswerEach(*request, response, kUnknownByte, [&](int i, const auto& sequence) {
      std::vector<std::string> tokens(sequence.tokens().values().begin(),
                                      sequence.tokens().values().end());
      for (const char byte : sequence.text()) tokens.emplace_back(1, byte);
      for (const int32_t id : sequence.token_ids().values()) {
        tokens.emplace_back(1, static_cast<char>(id));
      }
      const std::string before = i < request->states_size() ? request->states(i) : "";
      v1::Score* score = response->add_scores();
      score->set_token_count(static_cast<int>(tokens.size()));
      if (request->token_texts()) score->mutable_token_texts()->Add(tokens.begin(), tokens.end());
      for (size_t k = before.empty() ? 1 : 0; k < tokens.size(); ++k) {
        const double log_prob = -std::log(2.0) * (1 + static_cast<uint8_t>(tokens[k][0]) % 4);
        score->set_scored_count(score->scored_count() + 1);
        score->set_log_prob(score->log_prob() + log_prob);
        if (request->token_log_probs()) score->add_token_log_probs(static_cast<float>(log_prob));
        if (request->top_candidates() == 0) continue;
        v1::Candidates* candidates = score->add_candidates();
        for (int c = 0; c < request->top_candidates(); ++c) {
          v1::Candidate* candidate = candidates->add_candidates();
          candidate->set_token_id(c);
          candidate->set_text(std::string(1, static_cast<char>('a' + c)));
          candidate->set_log_prob(static_cast<float>(-std::log(2.0) * (1 + c)));
        }
      }
      if (request->return_states()) {
        score->set_state(before);
        for (const std::string& token : tokens) *score->mutable_state() += token;
      }
    });
  }

  // Words between spaces: the id of each is the number of its letters, and back.
  grpc::Status Tokenize(grpc::ServerContext* /*context*/, const v1::TokenizeRequest* request,
                        v1::TokenizeResponse* response) override {
    return AnswerEach(*request, response, kUnknownByte, [&](int, const auto& sequence) {
      v1::Tokenization* const tokenization = response->add_tokenizations();
      for (const absl::string_view word : absl::StrSplit(sequence.text(), ' ', absl::SkipEmpty())) {
        v1::Token* const token = tokenization->add_tokens();
        token->set_id(static_cast<int32_t>(word.size()));
        token->set_text(std::string(word));
        token->set_start_byte(static_cast<int32_t>(word.data() - sequence.text().data()));
        token->set_end_byte(token->start_byte() + token->id());
        if (absl::StartsWith(word, "zz")) {
          tokenization->set_unknown_tokens(tokenization->unknown_tokens() + 1);
        }
      }
    });
  }
  grpc::Status Detokenize(grpc::ServerContext* /*context*/, const v1::DetokenizeRequest* request,
                          v1::DetokenizeResponse* response) override {
    for (const v1::TokenIds& ids : request->sequences()) {
      std::string* const text = response->add_texts();
      for (const int32_t id : ids.values()) {
        absl::StrAppend(text, text->empty() ? "" : " ", std::string(id, 'x'));
      }
    }
    return grpc::Status::OK;
  }

  // A tagger of words between spaces: each is "word", or "number" if it begins with a digit.
  // Refuses "bad".
  grpc::Status Tag(grpc::ServerContext* /*context*/, const v1::TagRequest* request,
                   v1::TagResponse* response) override {
    return AnswerEach(*request, response, kUnknownByte, [&](int, const auto& sequence) {
      std::vector<std::string> words(sequence.tokens().values().begin(),
                                     sequence.tokens().values().end());
      if (words.empty()) words = absl::StrSplit(sequence.text(), ' ', absl::SkipEmpty());
      v1::Tagging* const tagging = response->add_taggings();
      tagging->set_token_count(static_cast<int>(words.size()));
      for (const std::string& word : words) {
        v1::TokenTags* const token = tagging->add_tokens();
        token->set_token(word);
        const bool is_number = absl::ascii_isdigit(word[0]);
        for (int k = 0; k < std::max(1, request->top_k()); ++k) {
          v1::TagLabel* const label = token->add_labels();
          label->set_name(is_number == (k == 0) ? "number" : "word");
          label->set_index(is_number == (k == 0) ? 1 : 0);
          label->set_probability(k == 0 ? 0.75f : 0.25f);
        }
      }
    });
  }

  // A reader to which every word of a passage, between spaces and newlines, is an answer: the more
  // bytes, the better. Refuses a passage "bad", and one without words.
  grpc::Status Answer(grpc::ServerContext* /*context*/, const v1::AnswerRequest* request,
                      v1::AnswerResponse* response) override {
    MutexLock lock(&mu_);
    if (grpc::Status status = Begin(*request); !status.ok()) return status;
    for (int i = 0; i < request->queries_size(); ++i) {
      const v1::Query& query = request->queries(i);
      std::vector<v1::SpanAnswer> spans;
      for (int p = 0; p < query.passages_size(); ++p) {
        const std::vector<v1::SpanAnswer> words = Words(query.passages(p), p);
        if (words.empty() || query.passages(p) == "bad") {
          return Invalid(absl::StrCat("queries[", i, "].passages[", p, "]: gives no tokens"));
        }
        const auto best = std::max_element(words.begin(), words.end(), IsWorse);
        if (request->one_per_passage()) {
          spans.push_back(*best);
        } else {
          spans.insert(spans.end(), words.begin(), words.end());
        }
      }
      std::stable_sort(spans.begin(), spans.end(),
                       [](const auto& a, const auto& b) { return IsWorse(b, a); });
      const size_t wanted = std::max(1, request->top_n());
      if (spans.size() > wanted) spans.resize(wanted);
      v1::QueryAnswers* result = response->add_results();
      result->mutable_answers()->Add(spans.begin(), spans.end());
      result->set_token_count(static_cast<int>(spans.size()));
    }
    return End(response);
  }

  // Translates each word into itself in capitals, after the prefix. Hypothesis i repeats the last
  // word i times more. Each token looks at the word in its place with 0.75 and at the first one
  // with the rest. A translation of more than max_new_tokens tokens, if that is given, is cut off.
  // Refuses "bad".
  grpc::Status Translate(grpc::ServerContext* /*context*/, const v1::TranslateRequest* request,
                         v1::TranslateResponse* response) override {
    return AnswerEach(*request, response, "is too long", [&](int i, const auto& sequence) {
      std::vector<std::string> source(sequence.tokens().values().begin(),
                                      sequence.tokens().values().end());
      for (const v1::SpanAnswer& word : Words(sequence.text(), 0)) source.push_back(word.text());
      v1::Translation* translation = response->add_translations();
      translation->set_token_count(static_cast<int>(source.size()));
      translation->set_truncated(request->truncate());
      if (request->return_alignment() || request->return_hard_alignment()) {
        for (const std::string& word : source) {
          translation->add_source_tokens(absl::StrCat("\u2581", word));
        }
      }
      for (int h = 0; h < std::max(1, request->num_hypotheses()); ++h) {
        *translation->add_hypotheses() = MakeHypothesis(*request, i, h, source);
      }
    });
  }

  static v1::Hypothesis MakeHypothesis(const v1::TranslateRequest& request, int sequence, int rank,
                                       const std::vector<std::string>& source) {
    v1::Hypothesis hypothesis;
    if (source.empty()) return hypothesis;
    std::vector<std::string> words;
    if (request.target_prefixes_size() > 0 && !request.target_prefixes(sequence).empty()) {
      words.push_back(request.target_prefixes(sequence));
    }
    for (const std::string& word : source) words.push_back(absl::AsciiStrToUpper(word));
    for (int k = 0; k < rank; ++k) words.push_back(words.back());
    const size_t most = request.max_new_tokens();
    if (most > 0 && words.size() > most) {
      words.resize(most);
      hypothesis.set_unfinished(true);
    }
    for (size_t t = 0; t < words.size(); ++t) {
      hypothesis.add_tokens(absl::StrCat("\u2581", words[t]));
      hypothesis.add_token_ids(static_cast<int>(words[t].size()));
      absl::StrAppend(hypothesis.mutable_text(), t == 0 ? "" : " ", words[t]);
      const size_t place = std::min(t, source.size() - 1);
      if (request.return_hard_alignment()) hypothesis.add_hard_alignment(static_cast<int>(place));
      if (request.return_token_log_probs()) hypothesis.add_token_log_probs(-0.5f);
      for (size_t s = 0; s < source.size() && request.return_alignment(); ++s) {
        const bool own = s == place;
        hypothesis.add_alignment((own ? 0.75f : 0.0f) + (s == 0 ? 0.25f : 0.0f));
      }
    }
    hypothesis.set_log_prob(-0.5 * static_cast<double>(words.size()));
    hypothesis.set_score(-0.5 - 0.125 * rank);
    return hypothesis;
  }

  // The words of a text with their places, as a reader answers with them.
  static std::vector<v1::SpanAnswer> Words(const std::string& text, int passage) {
    std::vector<v1::SpanAnswer> words;
    int characters = 0;
    bool in_word = false;
    for (size_t at = 0; at < text.size(); ++at) {
      const bool is_space = text[at] == ' ' || text[at] == '\n';
      in_word = in_word && !is_space;
      if (!is_space && !in_word) {
        in_word = true;
        v1::SpanAnswer& word = words.emplace_back();
        word.set_passage(passage);
        word.set_start_byte(static_cast<int>(at));
        word.set_start_char(characters);
      }
      if ((static_cast<unsigned char>(text[at]) & 0xc0) != 0x80) ++characters;
      if (!in_word) continue;
      v1::SpanAnswer& word = words.back();
      word.mutable_text()->push_back(text[at]);
      word.set_end_byte(static_cast<int>(at) + 1);
      word.set_end_char(characters);
      word.set_log_score(static_cast<double>(word.text().size()));
      word.set_probability(0.25f);
    }
    return words;
  }
  static bool IsWorse(const v1::SpanAnswer& a, const v1::SpanAnswer& b) {
    return a.log_score() < b.log_score();
  }

  // A model of bytes whose next token is the letter that is as far from 'a' as the text so far is
  // long, plus seed and sample if it samples. Its state is the text so far. A single letter in
  // `stop` ends the text. Refuses "bad"; the text after "hang" hangs after two tokens; that after
  // "escape" has characters that a terminal would obey.
  grpc::Status Generate(grpc::ServerContext* context, const v1::GenerateRequest* request,
                        grpc::ServerWriter<v1::GenerateResponse>* writer) override {
    int drain_after = 1 << 30;
    uint64_t corruption = 0;
    {
      MutexLock lock(&mu_);
      corruption =
          static_cast<int>(Recorded<v1::GenerateRequest>().size()) >= corrupt_from_ ? 1 : 0;
      if (grpc::Status status = Begin(*request); !status.ok()) return status;
      if (!drain_after_.empty()) {
        drain_after = drain_after_.front();
        drain_after_.erase(drain_after_.begin());
      }
    }
    std::string prompt = request->prompt().text();
    for (const std::string& word : request->prompt().tokens().values()) prompt += word;
    for (const int32_t id : request->prompt().token_ids().values()) prompt += static_cast<char>(id);
    if (prompt == "bad") {
      return Invalid("prompt.text: has a byte that is unknown");
    }
    const int wanted = request->max_new_tokens() == 0 ? 8 : request->max_new_tokens();
    const int samples = std::max(1, request->num_samples());
    std::vector<std::string> texts(samples, request->state() + prompt);
    std::vector<bool> done(samples);
    for (int t = 0; t < wanted; ++t) {
      if (t == 2 && prompt == "hang") {
        while (!context->IsCancelled()) absl::SleepFor(absl::Milliseconds(1));
        return grpc::Status(grpc::StatusCode::CANCELLED, "the caller is gone");
      }
      for (int s = 0; s < samples; ++s) {
        if (done[s]) continue;
        v1::GenerateResponse response;
        response.set_model("fake");
        response.set_version(7);
        response.set_sample(s);
        const auto add_token = [&](char token) {
          response.add_token_ids(token);
          if (request->token_log_probs()) response.add_log_probs(-0.5f);
          if (request->top_candidates() == 0) return;
          v1::Candidate* candidate = response.add_candidates()->add_candidates();
          candidate->set_token_id(token);
          candidate->set_text(std::string(1, token));
          candidate->set_log_prob(-0.5f);
        };
        if (t == 0 && request->echo()) {
          for (const char byte : prompt) add_token(byte);
          response.set_text(prompt);
        }
        const uint64_t shift = request->sampling().temperature() > 0
                                   ? request->sampling().seed() + static_cast<uint64_t>(s)
                                   : 0;
        const std::string token(
            1, static_cast<char>('a' + (texts[s].size() + shift + corruption) % 26));
        texts[s] += token;
        add_token(token[0]);
        const bool stops = std::find(request->stop().begin(), request->stop().end(), token) !=
                           request->stop().end();
        if (prompt == "escape") {
          response.mutable_text()->append("\x1b[1m\r\n\t\xc3\xa4");
        } else if (!stops) {
          response.mutable_text()->append(token);
        }
        done[s] = stops || t + 1 == wanted;
        if (done[s]) {
          response.set_finish_reason(stops ? v1::FINISH_REASON_STOP : v1::FINISH_REASON_LENGTH);
        }
        if (done[s] || t + 1 == drain_after) {
          if (!done[s] || request->return_state()) response.set_state(texts[s]);
          response.set_prompt_tokens(static_cast<int>(prompt.size()));
          response.set_generated_tokens(t + 1);
          response.mutable_times()->set_total_us(1500);
        }
        if (!writer->Write(response)) {
          return grpc::Status(grpc::StatusCode::CANCELLED, "the caller is gone");
        }
      }
      if (t + 1 == drain_after && std::count(done.begin(), done.end(), false) > 0) {
        return grpc::Status(grpc::StatusCode::UNAVAILABLE, "the server is shutting down");
      }
    }
    return grpc::Status::OK;
  }

  // Answers each word, or each frame of two features, with the vector (1, -2) in float32. The state
  // is the text so far.
  grpc::Status EncodeStream(grpc::ServerContext* /*context*/,
                            grpc::ServerReaderWriter<v1::EncodeStreamResponse,
                                                     v1::EncodeStreamRequest>* stream) override {
    std::string text;
    v1::EncodeStreamRequest request;
    for (bool first = true; stream->Read(&request); first = false) {
      {
        MutexLock lock(&mu_);
        Recorded<v1::EncodeStreamRequest>().push_back(request);
        if (first) {
          if (grpc::Status status = TakeFailure(); !status.ok()) return status;
        }
      }
      if (request.has_start() != first) {
        return Invalid("start: in the first message only");
      }
      if (first) text = request.start().state();
      v1::EncodeStreamResponse response;
      if (request.chunk().text() == "idle") return grpc::Status::OK;
      const auto drain = [&] {
        response.Clear();
        response.set_state(text);
        stream->Write(response);
        return grpc::Status(grpc::StatusCode::UNAVAILABLE, "the server is draining");
      };
      if (request.chunk().text() == "drain") return drain();
      if (request.has_chunk()) {
        if (request.chunk().text() == "bad") {
          return Invalid("chunk.text: gives no tokens");
        }
        text += request.chunk().text();
        int tokens = static_cast<int>(request.chunk().features().data().size() / 8);
        bool in_word = false;
        for (const char c : request.chunk().text()) {
          if (c != ' ' && !in_word) ++tokens;
          in_word = c != ' ';
        }
        v1::Encoding* encoding = response.mutable_encoding();
        encoding->add_shape(tokens);
        encoding->add_shape(2);
        for (int i = 0; i < tokens; ++i) {
          encoding->mutable_data()->append("\x00\x00\x80\x3f\x00\x00\x00\xc0", 8);
        }
        encoding->set_token_count(tokens);
      }
      if (request.return_state()) response.set_state(text);
      stream->Write(response);
      if (request.chunk().text() == "last") return drain();
    }
    return grpc::Status::OK;
  }

  grpc::Status ListModels(grpc::ServerContext* /*context*/,
                          const v1::ListModelsRequest* /*request*/,
                          v1::ListModelsResponse* response) override {
    *response->add_models() = MakeModel();
    {
      MutexLock lock(&mu_);
      for (const v1::ModelInfo& model : models_) *response->add_models() = model;
    }
    v1::ModelStatus* status = response->add_statuses();
    status->set_model("fake");
    status->set_version(9);
    status->set_state(v1::ModelStatus::FAILED);
    status->set_message("config.json: it is broken");
    return grpc::Status::OK;
  }

  grpc::Status GetModel(grpc::ServerContext* /*context*/, const v1::GetModelRequest* request,
                        v1::GetModelResponse* response) override {
    MutexLock lock(&mu_);
    for (const v1::ModelInfo& model : models_) {
      if (model.name() != request->model()) continue;
      *response->mutable_model() = model;
      return grpc::Status::OK;
    }
    if (!request->model().empty() && request->model() != "fake") {
      return grpc::Status(grpc::StatusCode::NOT_FOUND,
                          absl::StrCat("model: there is no '", request->model(), "'"));
    }
    *response->mutable_model() = MakeModel();
    response->mutable_model()->set_preprocessing("bytes");
    return grpc::Status::OK;
  }

  static void AddLabel(v1::Classification* result, const std::string& name, int index, float p) {
    v1::Label* label = result->add_labels();
    label->set_name(name);
    label->set_index(index);
    label->set_probability(p);
    label->set_logit(p * 2);
  }

  static v1::ModelInfo MakeModel() {
    return sru::testing::Message<v1::ModelInfo>(R"(
        name: 'fake' version: 7 input_size: 2 hidden_size: 4 num_layers: 2 bidirectional: true
        pooling: POOLING_MAX labels: ['SHORT', 'LONG'] task: 'classifier' vocabulary_size: 100
        backend: 'reference' dtype: 'float32' instances: 1)");
  }

  FakeAdmin admin_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
  int port_ = 0;
  mutable Mutex mu_;
  std::vector<grpc::Status> failures_ ABSL_GUARDED_BY(mu_);
  int num_calls_ ABSL_GUARDED_BY(mu_) = 0;
  std::tuple<std::vector<v1::ClassifyRequest>, std::vector<v1::EncodeRequest>,
             std::vector<v1::ScoreRequest>, std::vector<v1::AnswerRequest>,
             std::vector<v1::TranslateRequest>, std::vector<v1::TagRequest>,
             std::vector<v1::TokenizeRequest>, std::vector<v1::GenerateRequest>,
             std::vector<v1::EncodeStreamRequest>>
      requests_ ABSL_GUARDED_BY(mu_);
  std::vector<v1::ModelInfo> models_ ABSL_GUARDED_BY(mu_);
  std::vector<int> drain_after_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, std::string> headers_ ABSL_GUARDED_BY(mu_);
  int corrupt_from_ ABSL_GUARDED_BY(mu_) = 1 << 30;
};

// An address at which nothing listens: the port of a server that is gone.
inline std::string DeadAddress() { return FakeServer().address(); }

}  // namespace sru::client

#endif  // SRU_TESTS_TESTING_FAKE_SERVER_H_
