// Calls of every kind from many threads, while the server reloads, loses a device, changes its
// certificate and its tokens and at last drains: every answer has the bits of the first one, and no
// call fails that should not.
#include <openssl/bio.h>
#include <openssl/ssl.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/mutex.h"
#include "gmock/gmock.h"
#include "google/protobuf/stubs/logging.h"
#include "gtest/gtest.h"
#include "inference/open_inference.grpc.pb.h"
#include "server/base/log.h"
#include "tests/integration/server_fixture.h"
#include "tests/testing/certificates.h"
#include "tests/testing/failing_backend.h"
#include "tests/testing/poll.h"
#include "tests/testing/protos.h"
#include "tests/testing/small_reader.h"
#include "tests/testing/test_files.h"
#include "tests/testing/translator_files.h"

namespace sru::testing {
namespace {

using ::grpc::StatusCode;

constexpr int kRounds = 10;  // that every caller goes through with an answer
constexpr char kToken[] = "a-token-that-stays";

// How a call ended, and if it went well what it answered: the same bytes each time.
struct Outcome {
  StatusCode code = StatusCode::OK;
  std::string message;
  std::string answer;
};

// Whether gRPC itself cancelled a call, which arrived only after the server had let gRPC shut down
// and which the server therefore does not know: of those that it knows, it says who cancelled them.
// The server refuses calls for a moment before that, so that only those of a thread sanitizer come
// so late.
bool ArrivedTooLate([[maybe_unused]] const Outcome& outcome) {
#if defined(__SANITIZE_THREAD__)
  return outcome.code == StatusCode::CANCELLED && outcome.message == "CANCELLED";
#else
  return false;
#endif
}

Outcome Failed(const grpc::Status& status) {
  return {status.error_code(), status.error_message(), ""};
}

template <typename Response>
Outcome Answered(const grpc::Status& status, Response response) {
  if (!status.ok()) return Failed(status);
  response.clear_times();
  response.clear_version();  // versions come and go, with the same weights
  return {StatusCode::OK, "", response.SerializeAsString()};
}

v1::Sequence Text(const std::string& text) {
  v1::Sequence sequence;
  sequence.set_text(text);
  return sequence;
}

// A request and its answer through TLS, whose certificate is not checked; "" when there is none.
std::string ExchangeOverTls(int port, const std::string& request) {
  const std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)> context(SSL_CTX_new(TLS_client_method()),
                                                             SSL_CTX_free);
  const std::unique_ptr<BIO, void (*)(BIO*)> bio(BIO_new_ssl_connect(context.get()), BIO_free_all);
  BIO_set_conn_hostname(bio.get(), absl::StrCat("127.0.0.1:", port).c_str());
  if (BIO_write(bio.get(), request.data(), static_cast<int>(request.size())) <= 0) return "";
  std::string answer;
  char buffer[4096];
  for (int count = 0; (count = BIO_read(bio.get(), buffer, sizeof(buffer))) > 0;) {
    answer.append(buffer, static_cast<size_t>(count));
  }
  return answer;
}

class EverythingAtOnceTest : public ::testing::Test {
 protected:
  using Stub = v1::InferenceService::Stub;

  EverythingAtOnceTest() {
    std::signal(SIGPIPE, SIG_IGN);  // as main(): OpenSSL raises it once a drain has closed the port
    google::protobuf::SetLogHandler(nullptr);
    models::WriteSmallModel(repository_, "classifier/1");
    models::WriteSmallModel(repository_, "extra/1");
    models::WriteEncoder(repository_, "encoder/1", models::SmallLanguageModelConfig(),
                         models::SmallLanguageModelTensors());
    models::WriteSmallLanguageModel(repository_, "lm/1");
    models::WriteSmallReader(repository_, "reader/1");
    models::WriteSmallTranslator(repository_, "translator/1");
  }
  ~EverythingAtOnceTest() override { StopCallers(); }

  void Start(const server::Options& options) {
    server_ = server::Server::Start(options, std::make_unique<FailingBackend>(devices_)).value();
    uses_tls_ = options.security.has_tls();
    metrics_port_ = server_->metrics_address().port;
    http_port_ = server_->http_address()->port;
  }

  std::shared_ptr<grpc::Channel> NewChannel() const {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    std::shared_ptr<grpc::ChannelCredentials> credentials = grpc::InsecureChannelCredentials();
    if (uses_tls_) {
      grpc::SslCredentialsOptions options;
      options.pem_root_certs = authority_.pem();
      credentials = grpc::SslCredentials(options);
    }
    return grpc::CreateCustomChannel(server_->address().ToString(), credentials, arguments);
  }
  struct Context : grpc::ClientContext {
    Context() {
      AddMetadata("authorization", absl::StrCat("Bearer ", kToken));
      set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    }
  };

  std::string Http(const std::string& request) const {
    if (uses_tls_) return ExchangeOverTls(http_port_, request);
    const HttpResponse response = HttpExchange(http_port_, request);
    return absl::StrCat(response.headers, "\r\n\r\n", response.body);
  }
  Outcome Post(const std::string& path, const std::string& body) const {
    const std::string answer = Http(absl::StrCat(
        "POST ", path, " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n",
        "Authorization: Bearer ", kToken,
        "\r\nContent-Type: application/json\r\nContent-Length: ", body.size(), "\r\n\r\n", body));
    if (absl::StartsWith(answer, "HTTP/1.1 200")) return {};
    // A drain also closes the port.
    const bool gone = answer.size() <= 4 || absl::StartsWith(answer, "HTTP/1.1 503");
    return {gone ? StatusCode::UNAVAILABLE : StatusCode::UNKNOWN, answer, ""};
  }

  // Calls again and again until the server drains. `allowed`: how calls may end beside OK.
  void Call(const std::string& name, const std::set<StatusCode>& allowed,
            std::function<Outcome()> call) {
    callers_.emplace_back([this, name, allowed, call = std::move(call)] {
      std::string first;
      for (;;) {
        const bool draining = draining_;
        const Outcome outcome = call();
        if (outcome.code == StatusCode::OK && !outcome.answer.empty()) {
          if (first.empty()) first = outcome.answer;
          EXPECT_EQ(outcome.answer, first) << name;
        } else if (draining_ &&
                   (outcome.code == StatusCode::UNAVAILABLE || ArrivedTooLate(outcome))) {
          break;
        } else if (outcome.code != StatusCode::OK) {
          EXPECT_EQ(allowed.count(outcome.code), 1u)
              << name << ": " << outcome.code << " " << outcome.message;
        }
        if (draining) break;  // such as one whose calls never get that far
        MutexLock lock(&mutex_);
        ++rounds_[name];
      }
    });
  }
  void StopCallers() {
    draining_ = true;
    for (std::thread& caller : callers_) caller.join();
    callers_.clear();
  }
  // Until every caller has had so many more answers.
  void AwaitRounds(int rounds = kRounds) {
    std::map<std::string, int> before;
    {
      MutexLock lock(&mutex_);
      before = rounds_;
    }
    EXPECT_TRUE(PollUntil(
        [&] {
          MutexLock lock(&mutex_);
          if (rounds_.size() < callers_.size()) return false;
          for (const auto& [name, done] : rounds_) {
            if (done < before[name] + rounds) return false;
          }
          return true;
        },
        absl::Seconds(120)))
        << "answers by then, of which each caller wants " << rounds << " more: " << Rounds();
  }
  std::string Rounds() {
    MutexLock lock(&mutex_);
    return absl::StrJoin(rounds_, ", ", absl::PairFormatter(": "));
  }

  void StartCallers() {
    const std::shared_ptr<grpc::Channel> channel = NewChannel();
    stub_ = v1::InferenceService::NewStub(channel);
    open_stub_ = inference::GRPCInferenceService::NewStub(channel);
    StartUnaryCallers();
    StartStreams();
    StartEndedCallers();
    StartHttpCallers();
  }

  // The outcome of a call that has one answer.
  template <typename Request, typename Response>
  static Outcome Ask(Stub* stub,
                     grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                     const Request& request) {
    Context context;
    Response response;
    const grpc::Status status = (stub->*method)(&context, request, &response);
    return Answered(status, response);
  }

  void StartUnaryCallers() {
    Call("classify", {}, [this] {
      return Ask(stub_.get(), &Stub::Classify,
                 Message<v1::ClassifyRequest>("model: 'classifier' sequences: [{ text: 'a b c' }, "
                                              "{ text: 'c' }, { text: 'b b' }]"));
    });
    Call("encode, each on a connection of its own", {}, [this] {
      return Ask(v1::InferenceService::NewStub(NewChannel()).get(), &Stub::Encode,
                 Message<v1::EncodeRequest>("model: 'encoder' sequences { text: 'a b c a' } "
                                            "output_format: OUTPUT_FORMAT_RAW_FLOAT32"));
    });
    Call("score", {}, [this] {
      Context context;
      const auto request = Message<v1::ScoreRequest>(
          "model: 'lm' sequences { text: 'a b c a' } return_states: true");
      v1::ScoreResponse response;
      const grpc::Status status = stub_->Score(&context, request, &response);
      for (v1::Score& score : *response.mutable_scores()) score.clear_state();  // has the version
      return Answered(status, response);
    });
    Call("answer", {}, [this] {
      return Ask(stub_.get(), &Stub::Answer,
                 Message<v1::AnswerRequest>("model: 'reader' queries { question: 'a b?' "
                                            "passages: ['c d a b .', 'e f'] }"));
    });
    // A device that fails takes the sequences with it that have begun there.
    Call("translate", {StatusCode::UNAVAILABLE}, [this] {
      return Ask(stub_.get(), &Stub::Translate,
                 Message<v1::TranslateRequest>(
                     "model: 'translator' sequences { text: 'a b' } max_new_tokens: 4"));
    });
    Call("lists of models", {}, [this] {
      Context context;
      v1::ListModelsResponse response;
      const grpc::Status status = stub_->ListModels(&context, v1::ListModelsRequest(), &response);
      return status.ok() ? Outcome() : Failed(status);
    });
    Call("a model that comes and goes", {StatusCode::NOT_FOUND}, [this] {
      return Ask(stub_.get(), &Stub::Classify,
                 Message<v1::ClassifyRequest>("model: 'extra' sequences { text: 'a b c' }"));
    });
    Call("infer", {}, [this] {
      Context context;
      inference::ModelInferResponse response;
      const grpc::Status status = open_stub_->ModelInfer(&context, InferRequest(), &response);
      if (!status.ok()) return Failed(status);
      response.clear_model_version();
      return Outcome{StatusCode::OK, "", response.SerializeAsString()};
    });
  }

  static inference::ModelInferRequest InferRequest() {
    return Message<inference::ModelInferRequest>(
        "model_name: 'classifier' inputs { name: 'text' datatype: 'BYTES' shape: 1 "
        "contents { bytes_contents: 'a b c' } }");
  }
  static v1::GenerateRequest GenerateRequest(int tokens) {
    return Message<v1::GenerateRequest>(absl::StrCat(
        "model: 'lm' prompt { text: 'a b' } num_samples: 2 sampling { temperature: 1 seed: 7 } ",
        "max_new_tokens: ", tokens, " min_new_tokens: ", tokens));
  }

  void StartStreams() {
    Call("generate", {StatusCode::UNAVAILABLE}, [this] {
      Context context;
      const auto reader = stub_->Generate(&context, GenerateRequest(20));
      std::vector<std::string> ids(2);
      v1::GenerateResponse response;
      while (reader->Read(&response)) {
        for (const int32_t id : response.token_ids())
          absl::StrAppend(&ids[response.sample()], id, " ");
      }
      const grpc::Status status = reader->Finish();
      if (!status.ok()) return Failed(status);
      return Outcome{StatusCode::OK, "", ids[0] + "| " + ids[1]};
    });
    Call("a stream of chunks", {}, [this] {
      Context context;
      const auto stream = stub_->EncodeStream(&context);
      v1::EncodeStreamRequest request;
      request.mutable_start()->set_model("encoder");
      std::string answer;
      for (const char* chunk : {"a b", "c", "a a b"}) {
        *request.mutable_chunk() = Text(chunk);
        v1::EncodeStreamResponse response;
        if (!stream->Write(request) || !stream->Read(&response)) break;
        response.clear_times();
        answer += response.SerializeAsString();
        request.clear_start();
      }
      stream->WritesDone();
      v1::EncodeStreamResponse rest;
      bool drained = false;  // its state comes, without an answer
      while (stream->Read(&rest)) drained = true;
      const grpc::Status status = stream->Finish();
      if (!status.ok()) return Failed(status);
      if (drained) return Outcome();
      return Outcome{StatusCode::OK, "", answer};
    });
    Call("a stream of requests", {}, [this] {
      Context context;
      const auto stream = open_stub_->ModelStreamInfer(&context);
      for (int i = 0; i < 5; ++i) stream->Write(InferRequest());
      stream->WritesDone();
      std::string answers;
      inference::ModelStreamInferResponse response;
      while (stream->Read(&response)) {
        response.mutable_infer_response()->clear_model_version();
        answers += response.SerializeAsString();
      }
      const grpc::Status status = stream->Finish();
      if (!status.ok()) return Failed(status);
      return Outcome{StatusCode::OK, "", answers};
    });
  }

  // Waits until the connection has come to an answer. Callers that wait for none would fill it
  // faster than the server reads, and the answers of the others on it would come too late.
  void AwaitAnswer() const {
    Context context;
    v1::ListModelsResponse response;
    (void)stub_->ListModels(&context, v1::ListModelsRequest(), &response);
  }

  // Calls that do not wait for their answers.
  void StartEndedCallers() {
    const std::set<StatusCode> ended = {StatusCode::CANCELLED, StatusCode::DEADLINE_EXCEEDED,
                                        StatusCode::RESOURCE_EXHAUSTED, StatusCode::UNAVAILABLE};
    Call("texts that are cancelled", ended, [this] {
      Context context;
      const auto reader = stub_->Generate(&context, GenerateRequest(1000));
      v1::GenerateResponse response;
      reader->Read(&response);
      context.TryCancel();
      return Failed(reader->Finish());
    });
    Call("calls out of time", ended, [this] {
      Context context;
      context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(2));
      v1::ClassifyRequest request;
      request.set_model("classifier");
      for (int i = 0; i < 50; ++i) *request.add_sequences() = Text("a b c a b c");
      v1::ClassifyResponse response;
      const Outcome outcome = Failed(stub_->Classify(&context, request, &response));
      AwaitAnswer();
      return outcome;
    });
    Call("streams that are cancelled", ended, [this] {
      Context context;
      const auto stream = open_stub_->ModelStreamInfer(&context);
      for (int i = 0; i < 5; ++i) stream->Write(InferRequest());
      context.TryCancel();
      const Outcome outcome = Failed(stream->Finish());
      AwaitAnswer();
      return outcome;
    });
  }

  void StartHttpCallers() {
    Call("classify over HTTP", {}, [this] {
      return Post("/v1/classify", R"({"model":"classifier","sequences":[{"text":"a b c"}]})");
    });
    Call("a text in parts over HTTP", {StatusCode::UNKNOWN, StatusCode::UNAVAILABLE}, [this] {
      return Post("/v1/completions",
                  R"({"model":"lm","prompt":["a b","c"],"max_tokens":8,"stream":true})");
    });
    Call("infer over HTTP", {}, [this] {
      return Post("/v2/models/classifier/infer",
                  R"({"inputs":[{"name":"text","datatype":"BYTES","shape":[1],"data":["a b"]}]})");
    });
    Call("the pages", {}, [this] {
      for (const char* path : {"/metrics", "/status.json", "/readyz", "/healthz"}) {
        HttpGet(metrics_port_, path);
      }
      return Outcome();
    });
  }

  // Another version of the classifier, in one step.
  void Publish(int version, bool broken = false) {
    const std::string name = absl::StrCat("staged/", version);
    models::WriteSmallModel(staged_, name);
    if (broken) staged_.Write(name + "/model.safetensors", "broken");
    std::filesystem::rename(staged_.path(name),
                            repository_.path(absl::StrCat("classifier/", version)));
  }
  double Metric(const std::string& series) const { return MetricAt(metrics_port_, series); }

  const Certificate authority_{{"authority", 0, true}};
  models::TempDirectory repository_;
  models::TempDirectory staged_;  // in the same file system
  const std::shared_ptr<FailingDevices> devices_ = std::make_shared<FailingDevices>(2);
  std::unique_ptr<server::Server> server_;
  bool uses_tls_ = false;
  int metrics_port_ = 0;
  int http_port_ = 0;
  std::unique_ptr<v1::InferenceService::Stub> stub_;
  std::unique_ptr<inference::GRPCInferenceService::Stub> open_stub_;

  std::atomic<bool> draining_{false};
  std::vector<std::thread> callers_;
  Mutex mutex_;
  std::map<std::string, int> rounds_ ABSL_GUARDED_BY(mutex_);  // by caller
};

TEST_F(EverythingAtOnceTest, ModelsComeAndGoAndADeviceFails) {
  server::Options options = TestOptions(repository_.path());
  options.models.control = server::lifecycle::ModelControl::kExplicit;
  options.models.load_models = {"classifier", "encoder", "lm", "reader", "translator"};
  options.admin_listen = server::ListenAddress{"127.0.0.1", 0};
  Start(options);
  StartCallers();
  const auto admin = v1::AdminService::NewStub(MakeChannel(server_->admin_address()->ToString()));
  AwaitRounds();
  for (int version = 2; version <= 4; ++version) {
    Publish(version);
    EXPECT_TRUE(LoadModel(*admin, "classifier").ok());
    EXPECT_TRUE(LoadModel(*admin, "extra").ok());
    EXPECT_TRUE(UnloadModel(*admin, "extra").ok());
  }
  devices_->failed[0] = true;
  AwaitRounds();
  EXPECT_TRUE(PollUntil([this] { return Metric("sru_device_lost_total{device=\"0\"}") == 1; }));
  draining_ = true;
  EXPECT_TRUE(server_->Drain());
}

TEST_F(EverythingAtOnceTest, FilesOfModelsCertificatesAndTokensChange) {
  models::TempDirectory files;
  const auto write_files = [&](int round) {
    CertificateOptions certificate;
    certificate.name = absl::StrCat("server ", round);
    const Certificate leaf(certificate, &authority_);
    files.Write("cert.pem", leaf.pem());
    files.Write("key.pem", leaf.key_pem());
    files.Write("tokens", absl::StrCat("stays ", kToken, "\nother another-token-", round, "\n"));
  };
  write_files(0);
  server::Options options = TestOptions(repository_.path());
  options.models.control = server::lifecycle::ModelControl::kPoll;
  options.models.poll_interval = absl::Milliseconds(20);
  options.security.tls_cert = files.path("cert.pem");
  options.security.tls_key = files.path("key.pem");
  options.security.auth_tokens_file = files.path("tokens");
  options.security.poll_interval = absl::Milliseconds(20);
  Start(options);
  StartCallers();
  AwaitRounds();
  for (int round = 1; round <= 3; ++round) {
    Publish(1 + round, /*broken=*/round == 2);
    write_files(round);
    server_->Reload();
    AwaitRounds(3);
  }
  draining_ = true;
  EXPECT_TRUE(server_->Drain());
}

}  // namespace
}  // namespace sru::testing
