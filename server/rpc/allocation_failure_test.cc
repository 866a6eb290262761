// Calls whose allocations fail, one after the other: each must be answered or refused, and leave
// nothing behind. The service, the batcher, the engine and its worker are the real ones; gRPC is
// left out, as it is not ours to mend, and the forward pass is a puppet.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <limits>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "google/protobuf/arena.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/support/server_callback.h"
#include "gtest/gtest.h"
#include "models/kernel_status.h"
#include "models/model.h"
#include "models/text/unicode_word_tokenizer.h"
#include "models/text/vocabulary.h"
#include "server/base/mutex.h"
#include "server/batching/reader_batch_runner.h"
#include "server/batching/score_batch_runner.h"
#include "server/batching/translations.h"
#include "server/compat/protobuf_compat.h"
#include "server/open_inference/infer_form.h"
#include "server/open_inference/model_infer.h"
#include "server/rpc/answer_parser.h"
#include "server/rpc/inference_service.h"
#include "server/rpc/request_outline.h"
#include "server/rpc/request_parser.h"
#include "tests/testing/failing_allocations.h"
#include "tests/testing/fake_clock.h"
#include "tests/testing/puppet_engine.h"
#include "tests/testing/small_reader.h"
#include "tests/testing/test_files.h"
#include "tests/testing/translator_files.h"

#if defined(__SANITIZE_ADDRESS__)
// It loses a few bytes of its own when an allocation of its own fails: what it had taken just
// before.
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() {
  return "leak:google::protobuf::RepeatedPtrField<std::__cxx11::basic_string";
}
#endif

namespace sru::server {
namespace {

// What gRPC is to a handler's reactor.
class FakeCall final : public grpc::ServerCallbackUnary {
 public:
  void Bind(grpc::ServerUnaryReactor* reactor) {
    reactor_ = reactor;
    BindReactor(reactor);
  }
  // Ends the call as gRPC does when the answer has left.
  grpc::Status Wait() {
    MutexLock lock(&mutex_);
    while (!finished_) changed_.Wait(&mutex_);
    return status_;
  }
  void End() { reactor_->OnDone(); }

  void Finish(grpc::Status status) override {
    sru::testing::DisarmAllocations();
    MutexLock lock(&mutex_);
    EXPECT_FALSE(finished_) << "a call was answered twice";
    finished_ = true;
    status_ = std::move(status);
    changed_.SignalAll();
  }
  void SendInitialMetadata() override {}

 private:
  grpc::internal::ServerReactor* reactor() override { return reactor_; }
  void CallOnDone() override {}
  grpc_call* call() { return nullptr; }  // a current gRPC has this in the interface

  grpc::ServerUnaryReactor* reactor_ = nullptr;
  Mutex mutex_;
  CondVar changed_;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::Status status_ ABSL_GUARDED_BY(mutex_);
};

// How the next batch fails, if it does: from when its call is bound, so that the worker's thread
// itself gives the answer.
class BatchFailure {
 public:
  void Set(int64_t first, bool for_good) {  // 0: none fails
    MutexLock lock(&mutex_);
    first_ = first;
    for_good_ = for_good;
    bound_ = false;
  }
  void SetBound() {
    MutexLock lock(&mutex_);
    bound_ = true;
    changed_.SignalAll();
  }
  void ArmBatch() {
    MutexLock lock(&mutex_);
    if (first_ == 0) return;
    while (!bound_) changed_.Wait(&mutex_);
    sru::testing::ArmAllocations(first_, for_good_);
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  int64_t first_ ABSL_GUARDED_BY(mutex_) = 0;
  bool for_good_ ABSL_GUARDED_BY(mutex_) = false;
  bool bound_ ABSL_GUARDED_BY(mutex_) = false;
};

// Fills every output with ones, and takes memory on the way like a real one.
class Runner final : public BatchRunner {
 public:
  Runner(const models::Model& model, BatchFailure* failure) : model_(model), failure_(*failure) {}
  absl::Status WarmUp() override { return absl::OkStatus(); }
  absl::Status Run(const std::vector<const SequenceTask*>& sequences) override {
    failure_.ArmBatch();
    const std::vector<const SequenceTask*> copy(sequences.begin(), sequences.end());
    const int width = model_.spec().output_size();
    const auto labels = static_cast<int>(model_.labels().size());
    for (const SequenceTask* task : copy) {
      const auto fill = [](float* values, int count) {
        if (values != nullptr) std::fill_n(values, count, 1.0f);
      };
      fill(task->output.logits, labels);
      fill(task->output.probabilities, labels);
      fill(task->output.pooled, width);
      fill(task->output.token_vectors, width * task->num_tokens);
    }
    return absl::OkStatus();
  }

 private:
  const models::Model& model_;
  BatchFailure& failure_;
};

// A real runner whose batches fail that way.
class ArmedRunner final : public BatchRunner {
 public:
  ArmedRunner(std::unique_ptr<BatchRunner> runner, BatchFailure* failure)
      : runner_(std::move(runner)), failure_(*failure) {}
  absl::Status WarmUp() override { return runner_->WarmUp(); }
  absl::Status Run(const std::vector<const SequenceTask*>& sequences) override {
    failure_.ArmBatch();
    return runner_->Run(sequences);
  }

 private:
  const std::unique_ptr<BatchRunner> runner_;
  BatchFailure& failure_;
};

// Lets what follows the last step of a translation fail in that way, up to its answer.
class StepFailure final : public TranslateObserver {
 public:
  explicit StepFailure(BatchFailure* failure) : failure_(*failure) {}
  void OnTranslationStep(int /*sentences*/, absl::Duration /*compute*/,
                         const absl::Status& /*status*/) override {
    if (++steps_ != last_step_) return;
    steps_ = 0;
    failure_.ArmBatch();
  }
  // Of each call; what has run so far was one.
  void SetLastStep() { last_step_ = steps_.exchange(0); }

 private:
  BatchFailure& failure_;
  std::atomic<int> steps_{0};
  std::atomic<int> last_step_{0};
};

class AllocationFailureTest : public ::testing::Test {
 protected:
  void SetUp() override {
    models::WriteSmallModel(directory_, "m/1");
    const absl::Status made =
        models::ToAbslStatus(kernels::CreateBackend("reference", {}, &backend_));
    ASSERT_TRUE(made.ok()) << made;
    absl::StatusOr<std::shared_ptr<const models::Model>> model = Load("m");
    ASSERT_TRUE(model.ok()) << model.status();
    served_ = Serve(*model, std::make_unique<Runner>(**model, &batch_failure_));

    models::WriteSmallLanguageModel(directory_, "lm/1");
    absl::StatusOr<std::shared_ptr<const models::Model>> lm = Load("lm");
    ASSERT_TRUE(lm.ok()) << lm.status();
    kernels::ArenaOptions arena_options;
    arena_options.budget_bytes = 1 << 20;
    std::unique_ptr<kernels::StateArena> arena;
    ASSERT_TRUE((*lm)->program().CreateArena(arena_options, &arena).ok());
    arena_ = std::move(arena);
    kernels::WorkspaceLimits limits;
    limits.max_tokens = 4096;
    limits.max_sequences = 16;
    auto runner =
        ScoreBatchRunner::Create((*lm)->program(), *(*lm)->language_model(), limits, arena_);
    ASSERT_TRUE(runner.ok()) << runner.status();

    models::WriteSmallReader(directory_, "reader/1");
    absl::StatusOr<std::shared_ptr<const models::Model>> reader = Load("reader");
    ASSERT_TRUE(reader.ok()) << reader.status();
    auto reader_runner =
        ReaderBatchRunner::Create((*reader)->program(), *(*reader)->reader(), limits);
    ASSERT_TRUE(reader_runner.ok()) << reader_runner.status();

    models::WriteSmallTranslator(directory_, "translator/1");
    absl::StatusOr<std::shared_ptr<const models::Model>> translator = Load("translator");
    ASSERT_TRUE(translator.ok()) << translator.status();
    registry_.Replace(
        {ServeTranslator(*translator), served_,
         Serve(*lm, std::make_unique<ArmedRunner>(*std::move(runner), &batch_failure_)),
         Serve(*reader,
               std::make_unique<ArmedRunner>(*std::move(reader_runner), &batch_failure_))});

    context_.registry = &registry_;
    context_.metrics = &metrics_;
    context_.in_flight = &in_flight_;
    context_.unsent = &unsent_;
    context_.budget = &budget_;
    context_.access_log = &access_log_;
    context_.clock = &clock_;
    context_.received = &received_;
    context_.limits.max_batch_tokens = 1000;  // queries are cut
    service_ = std::make_unique<class Service>(context_);
  }

  absl::StatusOr<std::shared_ptr<const models::Model>> Load(const std::string& name) {
    return models::Model::Load(directory_.path(name + "/1"), name, 1, *backend_, {});
  }

  std::shared_ptr<ServedModel> Serve(std::shared_ptr<const models::Model> model,
                                     std::unique_ptr<BatchRunner> runner) {
    auto served = std::make_shared<ServedModel>();
    served->name = model->name();
    served->version = 1;
    served->model = model;
    served->metrics = metrics_.ForModel(model->name(), 1, 4096);
    std::vector<std::unique_ptr<BatchRunner>> runners;
    runners.push_back(std::move(runner));
    auto engine = Engine::CreateWithRunners(std::move(model), std::move(runners), EngineOptions(),
                                            &clock_, served->metrics.get());
    EXPECT_TRUE(engine.ok()) << engine.status();
    if (engine.ok()) served->engine = *std::move(engine);
    return served;
  }

  std::shared_ptr<ServedModel> ServeTranslator(std::shared_ptr<const models::Model> model) {
    auto served = std::make_shared<ServedModel>();
    served->name = model->name();
    served->version = 1;
    served->model = model;
    served->metrics = metrics_.ForModel(model->name(), 1, 4096);
    EngineOptions options;
    options.instances = 1;
    options.translate_observer = &step_failure_;
    auto engine = Engine::Create(std::move(model), options, &clock_, served->metrics.get());
    EXPECT_TRUE(engine.ok()) << engine.status();
    if (engine.ok()) served->engine = *std::move(engine);
    translations_ = served->engine->translations();
    return served;
  }

  static grpc::ByteBuffer Bytes(const google::protobuf::Message& message) {
    const grpc::Slice slice(message.SerializeAsString());
    return grpc::ByteBuffer(&slice, 1);
  }

  static v1::ClassifyRequest ClassifyRequest() {
    v1::ClassifyRequest request;
    request.set_model("m");
    for (int i = 0; i < 3; ++i) request.add_sequences()->set_text("a b c");
    // Long enough to be freed before its call.
    v1::Tokens* tokens = request.add_sequences()->mutable_tokens();
    for (int i = 0; i < 100; ++i) tokens->add_values("a word that has more than fifteen bytes");
    return request;
  }
  static v1::EncodeRequest EncodeRequest() {
    v1::EncodeRequest request;
    request.set_model("m");
    v1::TokenIds* ids = request.add_sequences()->mutable_token_ids();
    for (int i = 0; i < 2000; ++i) ids->add_values(i % 5);
    request.set_pooling(v1::POOLING_NONE);
    return request;
  }

  static v1::ScoreRequest ScoreRequest() {
    v1::ScoreRequest request;
    request.set_model("lm");
    for (int i = 0; i < 3; ++i) request.add_sequences()->set_text("a b c");
    request.set_return_states(true);
    request.set_token_log_probs(true);
    request.set_top_candidates(2);
    return request;
  }

  // Of two queries, the second in several parts and large enough for its call to free it early.
  static v1::AnswerRequest AnswerRequest() {
    v1::AnswerRequest request;
    request.set_model("reader");
    request.add_queries()->set_question("a b?");
    request.mutable_queries(0)->add_passages("c d a b .");
    std::string long_text;
    for (int i = 0; i < 60; ++i) long_text += "a word-of-more-than-fifteen-bytes ";
    v1::Query* const query = request.add_queries();
    query->set_question("who?");
    for (int i = 0; i < 3; ++i) query->add_passages(long_text);
    request.set_top_n(20);
    return request;
  }

  static v1::TranslateRequest TranslateRequest() {
    v1::TranslateRequest request;
    request.set_model("translator");
    request.add_sequences()->set_text("a b c a b c");
    request.add_target_prefixes("c");
    request.add_sequences()->set_text("");
    request.add_target_prefixes("");
    request.set_beam_size(4);
    request.set_num_hypotheses(3);
    request.set_return_alignment(true);
    return request;
  }

  // Of the Open Inference Protocol, for `model`: texts, or ids of which there are enough to be freed before their call.
  static inference::ModelInferRequest InferRequestOf(const std::string& model, bool has_ids) {
    inference::ModelInferRequest request;
    request.set_model_name(model);
    request.set_id("an id that is longer than what fits into a string");
    auto* const input = request.add_inputs();
    if (has_ids) {
      input->set_name("token_ids");
      input->set_datatype("INT64");
      input->add_shape(2);
      input->add_shape(1000);
      for (int i = 0; i < 2000; ++i) input->mutable_contents()->add_int64_contents(i % 5);
    } else {
      input->set_name("text");
      input->set_datatype("BYTES");
      input->add_shape(3);
      for (int i = 0; i < 3; ++i) input->mutable_contents()->add_bytes_contents("a b c");
    }
    return request;
  }
  auto ModelInfer() {
    return [this](auto... arguments) { return StartModelInfer(context_, arguments...); };
  }

  // Makes one call through `handle` while the allocation number `first` on this thread fails.
  // Returns whether an allocation failed.
  template <typename Request, typename Handle>
  bool Call(const Request& message, const Handle& handle, int64_t first, bool for_good,
            grpc::Status* status, grpc::ByteBuffer* response) {
    grpc::CallbackServerContext context;
    grpc::ByteBuffer request = Bytes(message);
    FakeCall call;
    sru::testing::ArmAllocations(first, for_good);
    grpc::ServerUnaryReactor* const reactor = handle(&context, &request, response);
    const bool failed = sru::testing::FailedAllocations() > 0;
    sru::testing::DisarmAllocations();
    call.Bind(reactor);
    batch_failure_.SetBound();
    *status = call.Wait();
    // The worker may still be on its way out of Finish().
    call.End();
    return failed;
  }

  // Lets every allocation of a call fail in turn, on the handler's thread.
  template <typename Request, typename Handle>
  void FailInHandler(const Request& message, const Handle& handle) {
    for (const bool for_good : {false, true}) {
      int64_t first = 1;
      int refused = 0;
      for (;; ++first) {
        grpc::Status status;
        grpc::ByteBuffer response;
        const bool failed = Call(message, handle, first, for_good, &status, &response);
        if (!failed) {
          EXPECT_TRUE(status.ok()) << status.error_message();
          break;
        }
        if (!status.ok()) {
          EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED)
              << first << ": " << status.error_message();
          ++refused;
        }
        ASSERT_LT(first, 100000) << "allocates without end";
      }
      EXPECT_GT(first, 5);
      EXPECT_GT(refused, 3);
      ExpectNothingLeft();
    }
  }

  // The same on the worker's thread, from the forward pass to the answer.
  template <typename Request, typename Handle>
  void FailInWorker(const Request& message, const Handle& handle) {
    for (const bool for_good : {false, true}) {
      int refused = 0;
      int answered = 0;
      for (int64_t first = 1; answered < 3 && first < 10000; ++first) {
        batch_failure_.Set(first, for_good);
        grpc::Status status;
        grpc::ByteBuffer response;
        Call(message, handle, std::numeric_limits<int64_t>::max(), false, &status, &response);
        if (status.ok()) {
          ++answered;
          continue;
        }
        EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED)
            << first << ": " << status.error_message();
        ++refused;
        answered = 0;
      }
      EXPECT_GT(refused, 3);
      EXPECT_EQ(answered, 3);
      batch_failure_.Set(0, false);
      ExpectNothingLeft();
    }
  }

  template <typename Request>
  static void ExpectEstimateCovers(const Request& request, const std::string& name) {
    const grpc::ByteBuffer bytes = Bytes(request);
    RequestOutline outline;
    ASSERT_TRUE(ReadOutline<Request>(bytes, &outline)) << name;
    sru::testing::ArmAllocations(std::numeric_limits<int64_t>::max(), false);
    google::protobuf::Arena arena;
    auto* parsed = CreateOnArena<Request>(&arena);
    const absl::Status status = ParseMessage(bytes, parsed);
    sru::testing::DisarmAllocations();
    ASSERT_TRUE(status.ok()) << name << ": " << status;
    const int64_t taken = sru::testing::AllocatedBytes() + static_cast<int64_t>(bytes.Length());
    EXPECT_GE(EstimateCallBytes(outline), taken) << name;
    // Nor is it many times as much, or the budget would be useless.
    EXPECT_LE(EstimateCallBytes(outline), 8 * taken + 100000) << name;
  }

  void ExpectNothingLeft() {
    EXPECT_EQ(in_flight_.count(), 0);
    EXPECT_EQ(unsent_.count(), 0);
    EXPECT_EQ(budget_.used(), 0);
    EXPECT_EQ(served_->engine->batcher().stats().queued_sequences, 0);
    EXPECT_EQ(arena_->stats().slots, 0);
    // The worker still lives.
    grpc::Status status;
    grpc::ByteBuffer response;
    Call(
        ClassifyRequest(), [this](auto... arguments) { return service_->Classify(arguments...); },
        std::numeric_limits<int64_t>::max(), false, &status, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    EXPECT_GT(response.Length(), 0u);
  }

  auto Classify() {
    return [this](auto... arguments) { return service_->Classify(arguments...); };
  }
  auto Score() {
    return [this](auto... arguments) { return service_->Score(arguments...); };
  }
  auto Answer() {
    return [this](auto... arguments) { return service_->Answer(arguments...); };
  }
  auto Translate() {
    return [this](auto... arguments) { return service_->Translate(arguments...); };
  }
  auto Encode() {
    return [this](auto... arguments) { return service_->Encode(arguments...); };
  }

  models::TempDirectory directory_;
  RealClock clock_;
  Metrics metrics_{&clock_};
  AccessLog access_log_{{LogRequests::kNone, 0, false}, &clock_};
  InFlight in_flight_;
  UnsentAnswers unsent_{absl::InfiniteDuration(), &clock_};
  ByteBudget budget_{64 << 20};
  ReceivedMessages received_;
  BatchFailure batch_failure_;
  StepFailure step_failure_{&batch_failure_};
  std::unique_ptr<kernels::Backend> backend_;
  ModelRegistry registry_;
  std::shared_ptr<ServedModel> served_;
  Translations* translations_ = nullptr;
  std::shared_ptr<kernels::StateArena> arena_;  // of the language model
  ServiceContext context_;
  std::unique_ptr<Service> service_;
};

TEST_F(AllocationFailureTest, InTheHandlerOfClassify) {
  FailInHandler(ClassifyRequest(), Classify());
}

TEST_F(AllocationFailureTest, InTheHandlerOfEncode) { FailInHandler(EncodeRequest(), Encode()); }

TEST_F(AllocationFailureTest, InTheWorkerForClassify) {
  FailInWorker(ClassifyRequest(), Classify());
}

TEST_F(AllocationFailureTest, InTheWorkerForEncode) { FailInWorker(EncodeRequest(), Encode()); }

TEST_F(AllocationFailureTest, InTheHandlerOfScore) { FailInHandler(ScoreRequest(), Score()); }

TEST_F(AllocationFailureTest, InTheWorkerForScore) { FailInWorker(ScoreRequest(), Score()); }

TEST_F(AllocationFailureTest, InTheHandlerOfAnswer) { FailInHandler(AnswerRequest(), Answer()); }

TEST_F(AllocationFailureTest, InTheWorkerForAnswer) { FailInWorker(AnswerRequest(), Answer()); }

// A call that goes on from states, which are as bytes in it.
TEST_F(AllocationFailureTest, WithStates) {
  v1::ScoreRequest request = ScoreRequest();
  grpc::Status status;
  grpc::ByteBuffer bytes;
  Call(request, Score(), std::numeric_limits<int64_t>::max(), false, &status, &bytes);
  ASSERT_TRUE(status.ok()) << status.error_message();
  v1::ScoreResponse response;
  ASSERT_TRUE(ParseMessage(bytes, &response).ok());
  for (const v1::Score& score : response.scores()) request.add_states(score.state());
  FailInHandler(request, Score());
  FailInWorker(request, Score());
}

TEST_F(AllocationFailureTest, InTheHandlerOfTranslate) {
  FailInHandler(TranslateRequest(), Translate());
  const TranslationStats stats = translations_->stats();
  EXPECT_EQ(stats.running + stats.waiting, 0);
}

TEST_F(AllocationFailureTest, InTheWorkerForTranslate) {
  grpc::Status status;
  grpc::ByteBuffer response;
  Call(TranslateRequest(), Translate(), std::numeric_limits<int64_t>::max(), false, &status,
       &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  step_failure_.SetLastStep();
  FailInWorker(TranslateRequest(), Translate());
  const TranslationStats stats = translations_->stats();
  EXPECT_EQ(stats.running + stats.waiting, 0);
}

TEST_F(AllocationFailureTest, InTheHandlerOfModelInfer) {
  FailInHandler(InferRequestOf("m", /*has_ids=*/false), ModelInfer());
  inference::ModelInferRequest encode = InferRequestOf("m", /*has_ids=*/true);
  encode.add_outputs()->set_name("encoding");
  (*encode.mutable_parameters())["pooling"].set_string_param("none");
  FailInHandler(encode, ModelInfer());
  FailInHandler(InferRequestOf("lm", /*has_ids=*/false), ModelInfer());
}

TEST_F(AllocationFailureTest, InTheWorkerForModelInfer) {
  FailInWorker(InferRequestOf("m", /*has_ids=*/false), ModelInfer());
  inference::ModelInferRequest encode = InferRequestOf("m", /*has_ids=*/true);
  encode.add_outputs()->set_name("encoding");
  (*encode.mutable_parameters())["pooling"].set_string_param("none");
  FailInWorker(encode, ModelInfer());
  FailInWorker(InferRequestOf("lm", /*has_ids=*/false), ModelInfer());
}

TEST_F(AllocationFailureTest, TheEstimateOfAModelInferCoversWhatItsRequestTakes) {
  const auto expect_covers = [this](const inference::ModelInferRequest& request) {
    SCOPED_TRACE(request.inputs(0).name());
    auto call = std::make_unique<InferCall>(&budget_);
    const grpc::ByteBuffer bytes = Bytes(request);
    ASSERT_TRUE(call->bytes.Read(bytes));
    ASSERT_TRUE(ReadInferRequest(call->bytes.view(), &call->request).ok());
    call->served = served_;
    call->limits = context_.limits;
    const ClassifyForm form = MakeClassifyForm(std::move(call));
    RequestOutline outline;
    ASSERT_TRUE(form->ReadOutline(&outline).ok());
    sru::testing::ArmAllocations(std::numeric_limits<int64_t>::max(), false);
    google::protobuf::Arena arena;
    auto* const parsed = CreateOnArena<v1::ClassifyRequest>(&arena);
    const absl::Status status = form->Parse(parsed);
    sru::testing::DisarmAllocations();
    ASSERT_TRUE(status.ok()) << status;
    const int64_t taken = sru::testing::AllocatedBytes() + static_cast<int64_t>(bytes.Length());
    EXPECT_GE(EstimateCallBytes(outline), taken);
    EXPECT_LE(EstimateCallBytes(outline), 8 * taken + 100000);
  };
  expect_covers(InferRequestOf("m", /*has_ids=*/false));
  inference::ModelInferRequest ids = InferRequestOf("m", /*has_ids=*/true);
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

TEST_F(AllocationFailureTest, InTheHandlerOfGetModel) {
  v1::GetModelRequest request;
  request.set_model("m");
  FailInHandler(request, [this](auto... arguments) { return service_->GetModel(arguments...); });
}

// A batch that cannot be made is made later; what leaves the queue meanwhile is answered.
TEST(BatcherAllocationFailureTest, NothingIsLostWhileThereIsNoMemory) {
  FakeClock clock;
  auto batcher = Batcher::Create(BatcherOptions(), &clock);
  ASSERT_TRUE(batcher.ok()) << batcher.status();
  std::vector<absl::StatusCode> answers;
  answers.reserve(10);
  const auto submit = [&](absl::Time deadline) {
    BatchRequest request = MakeRequest(1, {3, 4});
    request.deadline = deadline;
    request.done = [&answers](const absl::Status& status, const RequestTimes& /*times*/) {
      answers.push_back(status.code());
    };
    auto handle = (*batcher)->Submit(std::move(request));
    EXPECT_TRUE(handle.ok()) << handle.status();
    return *std::move(handle);
  };
  submit(absl::InfiniteFuture());
  submit(clock.Now() + absl::Seconds(1));
  const RequestHandle cancelled = submit(absl::InfiniteFuture());

  sru::testing::ArmAllocations(1, /*for_good=*/true);
  EXPECT_EQ((*batcher)->TryTakeBatch(), nullptr);
  (*batcher)->Cancel(cancelled);
  clock.Advance(absl::Seconds(2));
  EXPECT_EQ((*batcher)->TryTakeBatch(), nullptr);
  sru::testing::DisarmAllocations();
  EXPECT_EQ(answers, (std::vector<absl::StatusCode>{absl::StatusCode::kCancelled,
                                                    absl::StatusCode::kDeadlineExceeded}));

  std::unique_ptr<Batch> batch = (*batcher)->TryTakeBatch();
  ASSERT_NE(batch, nullptr);
  EXPECT_EQ(batch->sequences().size(), 2u);
  (*batcher)->Finish(std::move(batch), absl::OkStatus(), absl::Milliseconds(1));
  ASSERT_EQ(answers.size(), 3u);
  EXPECT_EQ(answers[2], absl::StatusCode::kOk);
}

// Submit() throws, and then nothing has happened.
TEST(BatcherAllocationFailureTest, ARequestThatCannotBeQueuedIsNotHalfThere) {
  FakeClock clock;
  auto batcher = Batcher::Create(BatcherOptions(), &clock);
  ASSERT_TRUE(batcher.ok()) << batcher.status();
  bool queued = false;
  for (int64_t first = 1; !queued; ++first) {
    BatchRequest request = MakeRequest(1, {3, 4});
    sru::testing::ArmAllocations(first, /*for_good=*/false);
    try {
      queued = (*batcher)->Submit(std::move(request)).ok();
      sru::testing::DisarmAllocations();
    } catch (const std::bad_alloc&) {
      sru::testing::DisarmAllocations();
      EXPECT_EQ((*batcher)->stats().queued_sequences, 0);
      EXPECT_EQ(request.sequences.size(), 2u);  // not consumed
    }
  }
  EXPECT_EQ((*batcher)->stats().queued_sequences, 2);
  (*batcher)->Abort(absl::UnavailableError("over"));
}

// What the budget takes a parsed call for is no less than what parsing it allocates.
TEST_F(AllocationFailureTest, EstimatesCoverWhatParsingTakes) {
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

TEST_F(AllocationFailureTest, EstimatesCoverWhatParsingTranslationsTakes) {
  v1::TranslateRequest request = TranslateRequest();
  ExpectEstimateCovers(request, "small");
  for (int i = 0; i < 5000; ++i) request.add_target_prefixes("");
  ExpectEstimateCovers(request, "prefixes");
  for (int i = 0; i < 5000; ++i) {
    request.add_target_prefixes("a prefix of more than fifteen bytes");
  }
  ExpectEstimateCovers(request, "long prefixes");
}

TEST_F(AllocationFailureTest, EstimatesCoverWhatParsingQueriesTakes) {
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

// The same of what the tokens of queries take: while they are read, and afterwards.
TEST_F(AllocationFailureTest, EstimatesCoverTheTokensOfQueries) {
  models::ReaderConfig config;
  config.features = {models::ReaderFeature::kExact, models::ReaderFeature::kLower,
                     models::ReaderFeature::kLemma, models::ReaderFeature::kTf};
  auto vocabulary = models::Vocabulary::Parse("<PAD>\n<UNK>\na\n", 3, "test");
  ASSERT_TRUE(vocabulary.ok()) << vocabulary.status();
  const models::UnicodeWordTokenizer tokenizer(*std::move(vocabulary), 1, /*lowercase=*/true);
  RequestLimits limits;
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
      sru::testing::ArmAllocations(std::numeric_limits<int64_t>::max(), false);
      const auto parsed = ParseQueries(request.queries(), config, tokenizer);
      const std::vector<QueryPart> parts =
          CutQueries(request.queries(), *parsed, limits.max_batch_tokens);
      sru::testing::DisarmAllocations();
      ASSERT_TRUE(parsed.ok()) << parsed.status();
      EXPECT_GE(estimate.peak, sru::testing::AllocatedBytes()) << length;
      EXPECT_LE(estimate.peak, 8 * sru::testing::AllocatedBytes() + 10000) << length;
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

}  // namespace
}  // namespace sru::server
