// What the budget takes a parsed call for is no less than what parsing it allocates.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "google/protobuf/arena.h"
#include "gtest/gtest.h"
#include "models/kernel_status.h"
#include "models/model.h"
#include "models/text/tokenizers.h"
#include "models/text/vocabulary.h"
#include "server/calls/bounds/request_outline.h"
#include "server/calls/message_cord.h"
#include "server/calls/messages/request_parser.h"
#include "server/open_inference/tensors/infer_form.h"
#include "server/tasks/answer/answer_parser.h"
#include "server/tasks/tasks.h"
#include "tests/testing/test_files.h"

namespace {

thread_local int64_t allocated_bytes = 0;  // by this thread; what is freed is not subtracted

void* Allocate(std::size_t size, std::size_t alignment) {
  allocated_bytes += static_cast<int64_t>(size);
  void* const memory = std::aligned_alloc(
      alignment, (std::max<std::size_t>(size, 1) + alignment - 1) / alignment * alignment);
  if (memory == nullptr) std::abort();
  return memory;
}

}  // namespace

// All forms that the library has: a form that is left out is the sanitizer's own where there is
// one, and what that returns must not go to the forms of delete below.
void* operator new(std::size_t size) { return Allocate(size, alignof(std::max_align_t)); }
void* operator new[](std::size_t size) { return Allocate(size, alignof(std::max_align_t)); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  return Allocate(size, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t size, std::align_val_t alignment) {
  return Allocate(size, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return Allocate(size, alignof(std::max_align_t));
}
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept {
  return Allocate(size, alignof(std::max_align_t));
}
void* operator new(std::size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return Allocate(size, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return Allocate(size, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace sru::server::tasks {
namespace {

absl::Cord Bytes(const google::protobuf::Message& message) { return calls::ToCord(message); }

template <typename Request>
void ExpectEstimateCovers(const Request& request, const std::string& name) {
  const absl::Cord bytes = Bytes(request);
  calls::RequestOutline outline;
  ASSERT_TRUE(calls::ReadOutline<Request>(bytes, &outline)) << name;
  const int64_t before = allocated_bytes;
  google::protobuf::Arena arena;
  auto* parsed = google::protobuf::Arena::CreateMessage<Request>(&arena);
  const absl::Status status = calls::ParseMessage(bytes, parsed);
  const int64_t allocated = allocated_bytes - before;
  ASSERT_TRUE(status.ok()) << name << ": " << status;
  const int64_t taken = allocated + static_cast<int64_t>(bytes.size());
  EXPECT_GE(calls::EstimateCallBytes(outline), taken) << name;
  // Nor is it many times as much, or the budget would be useless.
  EXPECT_LE(calls::EstimateCallBytes(outline), 8 * taken + 100000) << name;
}

TEST(CallEstimateTest, CoversWhatParsingTakes) {
  std::vector<std::pair<std::string, v1::ClassifyRequest>> requests(7);
  requests[0].first = "empty words";
  for (int i = 0; i < 60000; ++i) {
    if (i == 0) requests[0].second.add_sequences();
    requests[0].second.mutable_sequences(0)->mutable_tokens()->add_values("");
  }
  requests[1].first = "words of 16 bytes, which are the smallest with memory of their own";
  for (int i = 0; i < 60000; ++i) {
    if (i == 0) requests[1].second.add_sequences();
    requests[1].second.mutable_sequences(0)->mutable_tokens()->add_values(std::string(16, 'x'));
  }
  requests[2].first = "ids";
  for (int i = 0; i < 600000; ++i) {
    if (i == 0) requests[2].second.add_sequences();
    requests[2].second.mutable_sequences(0)->mutable_token_ids()->add_values(0);
  }
  requests[3].first = "empty sequences";
  for (int i = 0; i < 256; ++i) requests[3].second.add_sequences();
  requests[4].first = "sequences of one word";
  for (int i = 0; i < 256; ++i)
    requests[4].second.add_sequences()->mutable_tokens()->add_values("");
  requests[5].first = "features";
  requests[5].second.add_sequences()->mutable_features()->set_data(std::string(1 << 20, '\0'));
  requests[6].first = "a text";
  requests[6].second.add_sequences()->set_text(std::string(1 << 20, 'a'));
  for (const auto& [name, request] : requests) ExpectEstimateCovers(request, name);
}

TEST(CallEstimateTest, CoversWhatParsingTranslationsTakes) {
  v1::TranslateRequest request;
  request.set_model("translator");
  request.add_sequences()->set_text("a b c a b c");
  request.add_target_prefixes("c");
  ExpectEstimateCovers(request, "small");
  for (int i = 0; i < 5000; ++i) request.add_target_prefixes("");
  ExpectEstimateCovers(request, "prefixes");
  for (int i = 0; i < 5000; ++i) {
    request.add_target_prefixes("a prefix of more than fifteen bytes");
  }
  ExpectEstimateCovers(request, "long prefixes");
}

TEST(CallEstimateTest, CoversWhatParsingQueriesTakes) {
  const auto with_query = [](const std::function<void(v1::Query*)>& fill, int count = 1) {
    v1::AnswerRequest request;
    for (int i = 0; i < count; ++i) fill(request.add_queries());
    return request;
  };
  ExpectEstimateCovers(with_query([](v1::Query* /*query*/) {}, 256), "empty queries");
  ExpectEstimateCovers(with_query([](v1::Query* query) { query->add_passages(""); }, 256),
                       "queries of a passage");
  ExpectEstimateCovers(with_query([](v1::Query* query) {
                         for (int i = 0; i < 256; ++i) query->add_passages("");
                       }),
                       "empty passages");
  ExpectEstimateCovers(with_query([](v1::Query* query) {
                         for (int i = 0; i < 60000; ++i) query->add_passage_tags();
                       }),
                       "empty tags");
  ExpectEstimateCovers(with_query([](v1::Query* query) {
                         for (int i = 0; i < 20000; ++i) {
                           query->add_passage_tags()->add_pos_ids(1);
                           query->mutable_passage_tags(i)->add_ner_ids(1);
                           query->mutable_passage_tags(i)->add_lemmas("");
                         }
                       }),
                       "tags of one token");
  ExpectEstimateCovers(with_query([](v1::Query* query) {
                         v1::PassageTags* const tags = query->add_passage_tags();
                         for (int i = 0; i < 300000; ++i) {
                           tags->add_pos_ids(1);
                           tags->add_ner_ids(1);
                         }
                       }),
                       "ids");
  ExpectEstimateCovers(with_query([](v1::Query* query) {
                         for (int i = 0; i < 60000; ++i) query->add_question_lemmas("");
                       }),
                       "empty lemmas");
  ExpectEstimateCovers(
      with_query([](v1::Query* query) { query->add_passages(std::string(1 << 20, 'a')); }),
      "a text");
}

// What the tokens of queries take while they are read, and afterwards.
TEST(CallEstimateTest, CoversTheTokensOfQueries) {
  models::ReaderConfig config;
  config.features = {models::ReaderFeature::kExact, models::ReaderFeature::kLower,
                     models::ReaderFeature::kLemma, models::ReaderFeature::kTf};
  auto vocabulary = models::Vocabulary::Parse("<PAD>\n<UNK>\na\n", 3, "test");
  ASSERT_TRUE(vocabulary.ok()) << vocabulary.status();
  const auto tokenizer =
      models::MakeUnicodeWordTokenizer(*std::move(vocabulary), 1, /*lowercase=*/true);
  calls::RequestLimits limits;
  limits.max_sequence_tokens = limits.max_batch_tokens = 1 << 20;
  limits.max_request_tokens = 1 << 20;
  for (const bool different : {false, true}) {
    for (const int length : {1, 10, 1000, 50000}) {
      v1::AnswerRequest request;
      v1::Query* const query = request.add_queries();
      v1::PassageTags* const tags = query->add_passage_tags();
      std::string text;
      for (int i = 0; i < length; ++i) {
        // One byte per token, or words that are all different.
        absl::StrAppend(&text, different ? absl::StrCat(i, " ") : ".");
        query->add_question_lemmas("l");
        tags->add_lemmas("l");
      }
      query->set_question(text);
      query->add_passages(text);
      const auto lengths = MeasureQueries(request.queries(), limits);
      ASSERT_TRUE(lengths.ok()) << lengths.status();
      const QueryBytes estimate = EstimateQueryBytes(*lengths, config);
      const int64_t before = allocated_bytes;
      const auto parsed = ParseQueries(request.queries(), config, *tokenizer);
      const std::vector<QueryPart> parts =
          CutQueries(request.queries(), *parsed, limits.max_batch_tokens);
      const int64_t allocated = allocated_bytes - before;
      ASSERT_TRUE(parsed.ok()) << parsed.status();
      EXPECT_GE(estimate.peak, allocated) << length;
      EXPECT_LE(estimate.peak, 8 * allocated + 10000) << length;
      const ParsedPassage& passage = (*parsed)[0].passages[0];
      const auto kept = static_cast<int64_t>(
          sizeof(ParsedPassage) + sizeof(QueryPart) + sizeof(AnswerTask::Passage) +
          ((*parsed)[0].question.capacity() + passage.ids.capacity()) * sizeof(int32_t) +
          passage.features.capacity() * sizeof(float) +
          passage.places.capacity() * sizeof(TokenPlace));
      EXPECT_GE(estimate.kept, kept) << length;
    }
  }
}

TEST(CallEstimateTest, CoversWhatParsingModelInferTakes) {
  models::TempDirectory directory;
  models::WriteSmallModel(directory, "m/1");
  std::unique_ptr<kernels::Backend> backend;
  ASSERT_TRUE(kernels::CreateBackend("reference", {}, &backend).ok());
  auto model = models::Model::Load(directory.path("m/1"), "m", 1, *backend, {});
  ASSERT_TRUE(model.ok()) << model.status();
  const auto served = std::make_shared<lifecycle::ServedModel>();
  served->model = *model;
  calls::ByteBudget budget(64 << 20);
  const auto expect_covers = [&](const inference::ModelInferRequest& request) {
    SCOPED_TRACE(request.inputs(0).name());
    auto call = std::make_unique<open_inference::InferCall>(&budget);
    const absl::Cord bytes = Bytes(request);
    ASSERT_TRUE(call->bytes.Read(bytes));
    ASSERT_TRUE(open_inference::ReadInferRequest(call->bytes.view(), &call->request).ok());
    call->served = served;
    const Task classify = Classify();
    call->tensors = &classify.tensors;
    const calls::MessageFormPtr form = open_inference::MakeInferForm(std::move(call));
    calls::RequestOutline outline;
    ASSERT_TRUE(form->ReadOutline(&outline).ok());
    v1::ClassifyRequest::GetReflection();  // protobuf makes its tables once, for whoever asks first
    const int64_t before = allocated_bytes;
    google::protobuf::Arena arena;
    auto* const parsed = google::protobuf::Arena::CreateMessage<v1::ClassifyRequest>(&arena);
    const absl::Status status = form->Parse(parsed);
    const int64_t allocated = allocated_bytes - before;
    ASSERT_TRUE(status.ok()) << status;
    const int64_t taken = allocated + static_cast<int64_t>(bytes.size());
    EXPECT_GE(calls::EstimateCallBytes(outline), taken);
    EXPECT_LE(calls::EstimateCallBytes(outline), 8 * taken + 100000);
  };
  inference::ModelInferRequest ids;
  auto* const input = ids.add_inputs();
  input->set_name("token_ids");
  input->set_datatype("INT64");
  for (const int64_t size : {2, 1000}) input->add_shape(size);
  for (int i = 0; i < 2000; ++i) input->mutable_contents()->add_int64_contents(i % 5);
  expect_covers(ids);
  auto* const lengths = ids.add_inputs();
  lengths->set_name("lengths");
  lengths->set_datatype("INT32");
  lengths->add_shape(2);
  for (const int length : {1, 1000}) lengths->mutable_contents()->add_int_contents(length);
  expect_covers(ids);
  inference::ModelInferRequest texts;
  auto* const text = texts.add_inputs();
  text->set_name("text");
  text->set_datatype("BYTES");
  text->add_shape(256);
  for (int i = 0; i < 256; ++i) text->mutable_contents()->add_bytes_contents("");
  expect_covers(texts);
  inference::ModelInferRequest frames;
  auto* const features = frames.add_inputs();
  features->set_name("features");
  features->set_datatype("FP32");
  for (const int64_t size : {4, 500, 4}) features->add_shape(size);
  for (int i = 0; i < 4 * 500 * 4; ++i) features->mutable_contents()->add_fp32_contents(1);
  expect_covers(frames);
}

}  // namespace
}  // namespace sru::server::tasks
