// Calls of every task, as large as the defaults allow, beside a stream whose tokens are written on the same loop: no call holds the loop.
#include <sys/resource.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "google/protobuf/util/json_util.h"
#include "gtest/gtest.h"
#include "tests/integration/server_fixture.h"
#include "tests/testing/small_reader.h"
#include "tests/testing/test_files.h"
#include "tests/testing/translator_files.h"

namespace sru::testing {
namespace {

// The defaults of --max_queue_tokens, --max_sequence_tokens and --max_message_bytes.
constexpr int kTokens = 2048;
constexpr int kSequences = 32;
constexpr size_t kMessageBytes = 4 << 20;
// A machine that does other things too delays a loop by itself; what a call does shows each time.
constexpr int kMostTries = 10;

// A text of so many words, which have so many bytes with their spaces.
std::string Words(int count, size_t bytes) {
  std::string text;
  for (int i = 0; i < count; ++i) text += std::string(bytes - 1, "abc"[i % 3]) + " ";
  return text;
}

// `sequences` texts that together fill a message, with room for what JSON and names add.
template <typename Request>
Request Texts(const char* model, int sequences, int tokens) {
  Request request;
  request.set_model(model);
  const size_t bytes = kMessageBytes / sequences / tokens - 1;
  for (int i = 0; i < sequences; ++i) {
    request.add_sequences()->set_text(Words(tokens, bytes));
  }
  return request;
}

struct Task {
  const char* name;
  const char* method;
  const char* path;
  std::function<std::unique_ptr<google::protobuf::Message>()> make;
};

template <typename Request>
std::unique_ptr<google::protobuf::Message> Own(Request request) {
  return std::make_unique<Request>(std::move(request));
}

const Task kTasks[] = {
    {"classify", "Classify", "/v1/classify",
     [] { return Own(Texts<v1::ClassifyRequest>("classifier", kSequences, kTokens)); }},
    {"encode", "Encode", "/v1/encode",
     [] {
       auto request = Texts<v1::EncodeRequest>("encoder", kSequences, kTokens);
       request.set_output_format(v1::OUTPUT_FORMAT_RAW_FLOAT32);
       return Own(std::move(request));
     }},
    {"score", "Score", "/v1/score",
     [] {
       auto request = Texts<v1::ScoreRequest>("lm", kSequences, kTokens);
       request.set_token_log_probs(true);
       request.set_top_candidates(4);
       return Own(std::move(request));
     }},
    {"generate", "Generate", "/v1/generate",
     [] {
       v1::GenerateRequest request;
       request.set_model("lm");
       request.mutable_prompt()->set_text(Words(kTokens - 1, kMessageBytes / kTokens - 1));
       request.set_max_new_tokens(1);
       return Own(std::move(request));
     }},
    {"answer", "Answer", "/v1/answer",
     [] {
       v1::AnswerRequest request;
       request.set_model("reader");
       for (int i = 0; i < kSequences; ++i) {
         v1::Query* const query = request.add_queries();
         query->set_question("a b?");
         query->add_passages(Words(kTokens - 100, kMessageBytes / kSequences / kTokens - 1));
       }
       return Own(std::move(request));
     }},
    {"translate", "Translate", "/v1/translate",
     [] {
       auto request = Texts<v1::TranslateRequest>("translator", kSequences, kTokens / 8);
       request.set_max_new_tokens(1);
       request.set_truncate(true);
       return Own(std::move(request));
     }},
    {"tag", "Tag", "/v1/tag",
     [] { return Own(Texts<v1::TagRequest>("tagger", kSequences, kTokens)); }},
};

class LoopLagTest : public ::testing::TestWithParam<Task> {
 protected:
  static void SetUpTestSuite() {
    repository_ = new models::TempDirectory;
    models::WriteSmallModel(*repository_, "classifier/1");
    models::WriteSmallTagger(*repository_, "tagger/1");
    models::WriteSmallLanguageModel(*repository_, "lm/1");
    models::WriteSmallReader(*repository_, "reader/1");
    models::WriteSmallTranslator(*repository_, "translator/1");
    nlohmann::json encoder = models::SmallLanguageModelConfig();
    encoder.erase("task");
    encoder["pooling"] = "none";
    encoder["encoder"]["hidden_size"] = 128;
    models::TestTensors tensors = models::SmallLanguageModelTensors();
    tensors.erase("out.weight");
    tensors.erase("out.bias");
    tensors["encoder.rnn_lst.0.weight"] = models::MakeTensor({4, 512});
    for (const char* name : {"encoder.rnn_lst.0.weight_c", "encoder.rnn_lst.0.bias"}) {
      tensors[name] = models::MakeTensor({256});
    }
    models::WriteModel(*repository_, "encoder/1", encoder, tensors);
    // Where it may, the server goes before other programs, whose work would delay the loop, too. Its threads inherit this.
    setpriority(PRIO_PROCESS, 0, -10);
    server::Options options = TestOptions(repository_->path());
    options.transport.io_threads = 1;
    server_ = new RunningServer(options);
    if (!server_->started()) return;
    texts_ = new std::thread(&WriteTexts);
  }
  static void TearDownTestSuite() {
    stopping_ = true;
    if (texts_ != nullptr) texts_->join();
    delete std::exchange(texts_, nullptr);
    delete std::exchange(server_, nullptr);
    delete std::exchange(repository_, nullptr);
  }

  // Each token is written by a worker and wakes the loop, which measures how late it is.
  static void WriteTexts() {
    const auto stub =
        v1::InferenceService::NewStub(MakeChannel(server_->server().address().ToString()));
    v1::GenerateRequest request;
    request.set_model("lm");
    request.mutable_prompt()->set_text("a b");
    request.set_max_new_tokens(4096);
    request.set_min_new_tokens(4096);
    while (!stopping_) {
      grpc::ClientContext context;
      const auto reader = stub->Generate(&context, request);
      v1::GenerateResponse response;
      while (reader->Read(&response) && !stopping_) {
      }
      context.TryCancel();
      reader->Finish();
    }
  }

  // The waits so far, by their bounds: up to 1 ms, up to 10 ms, all.
  static std::array<double, 3> Lags() {
    const std::string text = server_->Get("/metrics").body;  // all at one time
    std::array<double, 3> lags{};
    for (size_t i = 0; i < lags.size(); ++i) {
      const std::string series = absl::StrCat("\nsru_door_loop_lag_seconds_bucket{le=\"",
                                              std::array{"0.001", "0.01", "+Inf"}[i], "\"} ");
      const size_t at = text.find(series);
      if (at != std::string::npos) lags[i] = std::atof(text.c_str() + at + series.size());
    }
    return lags;
  }
  // Makes the call until no answer waits longer than 10 ms beside it, as often as the machine may be the reason.
  static void ExpectNoLag(const std::string& name, const std::function<void()>& call) {
    double beyond = 0;
    for (int i = 0; i < kMostTries; ++i) {
      const std::array<double, 3> before = Lags();
      call();
      const std::array<double, 3> after = Lags();
      const double all = after[2] - before[2];
      beyond = all - (after[1] - before[1]);
      std::cout << name << ": " << all << " waits, " << all - (after[0] - before[0])
                << " over 1 ms, " << beyond << " over 10 ms\n";
      EXPECT_GT(all, 0) << "nothing was measured";
      if (beyond == 0) return;
    }
    ADD_FAILURE() << name << ": " << beyond << " answers waited longer than 10 ms";
  }

  static inline models::TempDirectory* repository_ = nullptr;
  static inline RunningServer* server_ = nullptr;
  static inline std::thread* texts_ = nullptr;
  static inline std::atomic<bool> stopping_{false};
};

TEST_P(LoopLagTest, TheLargestCallHoldsNoLoop) {
  ASSERT_GE(server_->Metric("sru_door_loop_lag_seconds_count"), 0);
  const Task& task = GetParam();
  const std::unique_ptr<google::protobuf::Message> request = task.make();
  const std::string bytes = request->SerializeAsString();
  ExpectNoLag(absl::StrCat(task.name, " over gRPC"), [&] {
    // A call of gRPC with one request; the answers of a stream are read one by one.
    grpc::GenericStub stub(server_->channel());
    grpc::ClientContext context;
    grpc::CompletionQueue queue;
    const auto stream =
        stub.PrepareCall(&context, absl::StrCat("/sru.v1.InferenceService/", task.method), &queue);
    void* tag = nullptr;
    bool ok = false;
    const auto next = [&] { return queue.Next(&tag, &ok) && ok; };
    stream->StartCall(nullptr);
    next();
    stream->WriteLast(ToBytes(bytes), {}, nullptr);
    next();
    grpc::ByteBuffer answer;
    do {
      stream->Read(&answer, nullptr);
    } while (next());
    grpc::Status status;
    stream->Finish(&status, nullptr);
    next();
    EXPECT_TRUE(status.ok()) << status.error_message();
  });
  std::string json;
  ASSERT_TRUE(google::protobuf::util::MessageToJsonString(*request, &json).ok());
  ExpectNoLag(absl::StrCat(task.name, " as JSON"), [&] {
    const HttpResponse response =
        HttpExchange(server_->server().http_address()->port,
                     absl::StrCat("POST ", task.path,
                                  " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                                  "Content-Type: application/json\r\nContent-Length: ",
                                  json.size(), "\r\n\r\n", json));
    EXPECT_EQ(response.status, 200) << response.body.substr(0, 500);
  });
}

INSTANTIATE_TEST_SUITE_P(Tasks, LoopLagTest, ::testing::ValuesIn(kTasks),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace sru::testing
