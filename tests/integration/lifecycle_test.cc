// Models that come and go while a real server runs: polling, the admin service, and the health,
// readiness, metrics and ListModels meanwhile.
#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/background_calls.h"
#include "tests/integration/server_fixture.h"
#include "tests/testing/in_threads.h"
#include "tests/testing/poll.h"
#include "tests/testing/subprocess.h"
#include "tests/testing/test_files.h"

namespace sru::testing {
namespace {

using ::grpc::StatusCode;
using server::lifecycle::ModelControl;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class LifecycleTest : public ::testing::Test {
 protected:
  server::Options Options(ModelControl control) const {
    server::Options options = TestOptions(repository_.path());
    options.models.control = control;
    options.models.poll_interval = absl::Milliseconds(20);
    // Most of these tests take the only model away on purpose.
    options.models.empty_repository_grace = absl::ZeroDuration();
    if (control == ModelControl::kExplicit) {
      options.admin_listen = server::ListenAddress{"127.0.0.1", 0};
    }
    return options;
  }
  void Start(const server::Options& options) {
    server_ = std::make_unique<RunningServer>(options);
    if (!options.admin_listen.has_value()) return;
    admin_ = server_->AdminStub();
  }

  // Publishes as FORMAT.md says: writes under a hidden name, then renames.
  void Publish(const std::string& version) {
    models::WriteSmallModel(repository_, ".new");
    const std::filesystem::path path = repository_.path(version);
    std::filesystem::create_directories(path.parent_path());
    std::filesystem::rename(repository_.path(".new"), path);
  }
  void Delete(const std::string& name) { std::filesystem::remove_all(repository_.path(name)); }

  grpc::Status Classify(const std::string& model, int64_t version = 0,
                        v1::ClassifyResponse* response = nullptr) {
    v1::ClassifyRequest request;
    request.set_model(model);
    request.set_version(version);
    request.add_sequences()->set_text("a b c");
    return response != nullptr ? server_->Call(request, response) : server_->Call(request);
  }
  // The version that answers; 0 if none does.
  int64_t Answering(const std::string& model) {
    v1::ClassifyResponse response;
    return Classify(model, 0, &response).ok() ? response.version() : 0;
  }

  std::vector<v1::ModelStatus> Statuses() {
    const v1::ListModelsResponse response = server_->Must(v1::ListModelsRequest());
    return {response.statuses().begin(), response.statuses().end()};
  }
  std::vector<std::string> States() {
    std::vector<std::string> states;
    for (const v1::ModelStatus& status : Statuses()) {
      states.push_back(absl::StrCat(status.model(), ":", status.version(), " ",
                                    v1::ModelStatus::State_Name(status.state())));
    }
    return states;
  }
  bool HasState(const std::string& state) {
    const std::vector<std::string> states = States();
    return std::find(states.begin(), states.end(), state) != states.end();
  }

  grpc::Status Load(const std::string& model, v1::LoadModelResponse* response = nullptr) {
    return LoadModel(*admin_, model, response);
  }
  grpc::Status Unload(const std::string& model) { return UnloadModel(*admin_, model); }

  std::string Health(const std::string& service) { return server_->Health(service); }

  models::TempDirectory repository_;
  std::unique_ptr<RunningServer> server_;
  std::unique_ptr<v1::AdminService::Stub> admin_;
};

TEST_F(LifecycleTest, PollingFollowsTheRepository) {
  Publish("m/1");
  Start(Options(ModelControl::kPoll));
  EXPECT_EQ(Answering("m"), 1);
  Publish("m/2");
  ASSERT_TRUE(PollUntil([this] { return Answering("m") == 2; }));
  ASSERT_TRUE(PollUntil([this] { return States() == std::vector<std::string>{"m:2 READY"}; }));
  EXPECT_EQ(Classify("m", 1).error_code(), StatusCode::NOT_FOUND);
  EXPECT_EQ(server_->Metric("sru_model_loads_total{model=\"m\"}"), 2);

  // The new version is broken: the old one continues, and everybody is told why.
  models::WriteSmallModel(repository_, "m/.3");
  repository_.Write("m/.3/config.json", "{");
  std::filesystem::rename(repository_.path("m/.3"), repository_.path("m/3"));
  ASSERT_TRUE(PollUntil([this] { return HasState("m:3 FAILED"); }));
  EXPECT_EQ(Answering("m"), 2);
  EXPECT_THAT(Statuses()[1].message(), HasSubstr("m/3/config.json"));
  EXPECT_EQ(server_->Metric("sru_model_load_failures_total{model=\"m\"}"), 1);
  EXPECT_EQ(server_->Metric("sru_model_state{model=\"m\",version=\"3\",state=\"failed\"}"), 1);
  EXPECT_EQ(Health("m"), "SERVING");

  // Another model is added, then the first one is removed altogether.
  Publish("n/7");
  ASSERT_TRUE(PollUntil([this] { return Answering("n") == 7; }));
  Delete("m");
  ASSERT_TRUE(PollUntil([this] { return States() == std::vector<std::string>{"n:7 READY"}; }));
  EXPECT_EQ(Classify("m").error_code(), StatusCode::NOT_FOUND);
  EXPECT_EQ(Health("m"), "NOT_SERVING");
  EXPECT_EQ(Health(""), "SERVING");
  EXPECT_THAT(server_->Get("/metrics").body, Not(HasSubstr("model=\"m\"")));

  // Without any model the server is not ready; the next model makes it ready again.
  Delete("n");
  ASSERT_TRUE(PollUntil([this] { return server_->Get("/readyz").status == 503; }));
  EXPECT_EQ(server_->Metric("sru_ready"), 0);
  ASSERT_TRUE(PollUntil([this] { return Health("") == "NOT_SERVING"; }));
  Publish("m/4");
  ASSERT_TRUE(PollUntil([this] { return Answering("m") == 4; }));
  ASSERT_TRUE(PollUntil([this] { return server_->Get("/readyz").status == 200; }));
  ASSERT_TRUE(PollUntil([this] { return Health("") == "SERVING" && Health("m") == "SERVING"; }));
  EXPECT_TRUE(server_->server().Drain());
}

TEST_F(LifecycleTest, PollingStartsWithAnEmptyRepository) {
  Start(Options(ModelControl::kPoll));
  EXPECT_EQ(server_->Get("/readyz").status, 503);
  EXPECT_EQ(server_->Get("/readyz").body,
            "not ready: no model is loaded; see sru_client models --status\n");
  EXPECT_EQ(Health(""), "NOT_SERVING");
  Publish("m/1");
  EXPECT_TRUE(PollUntil([this] { return server_->Get("/readyz").status == 200; }));
}

TEST_F(LifecycleTest, AVolumeThatIsNotMountedForAMomentUnloadsNothing) {
  Publish("m/1");
  server::Options options = Options(ModelControl::kPoll);
  options.models.empty_repository_grace = absl::Hours(1);
  Start(options);
  EXPECT_EQ(server_->Metric("sru_model_repository_emptied"), 0);
  std::filesystem::rename(repository_.path("m"), repository_.path(".m"));
  ASSERT_TRUE(server_->Becomes("sru_model_repository_emptied", 1));
  EXPECT_EQ(Answering("m"), 1);
  EXPECT_EQ(server_->Get("/readyz").status, 200);
  std::filesystem::rename(repository_.path(".m"), repository_.path("m"));
  ASSERT_TRUE(server_->Becomes("sru_model_repository_emptied", 0));
  EXPECT_EQ(Answering("m"), 1);
  EXPECT_EQ(server_->Metric("sru_model_loads_total{model=\"m\"}"), 1);
}

// SIGHUP.
TEST_F(LifecycleTest, AReloadLooksAtTheRepositoryAtOnce) {
  Publish("m/1");
  server::Options options = Options(ModelControl::kPoll);
  options.models.poll_interval = absl::Hours(1);
  Start(options);
  Publish("m/2");
  Publish("n/1");
  server_->server().Reload();
  ASSERT_TRUE(PollUntil([this] { return Answering("m") == 2 && Answering("n") == 1; }));
  Delete("n");
  server_->server().Reload();
  ASSERT_TRUE(PollUntil([this] { return Answering("n") == 0; }));
  EXPECT_EQ(Answering("m"), 2);
}

// A retrained model of one architecture has the size of the one before, and artefacts have fixed
// times.
TEST_F(LifecycleTest, AVersionThatIsCopiedOverWithItsTimesAnswers) {
  const auto fix_times = [this](const std::string& version) {
    for (const char* name : {"config.json", "model.safetensors", "vocab.txt"}) {
      std::filesystem::last_write_time(repository_.path(version + "/" + name),
                                       std::filesystem::file_time_type());
    }
  };
  models::TestTensors tensors = models::SmallTensors();
  models::WriteModel(repository_, ".a", models::SmallConfig(), tensors);
  for (float& bias : tensors.at("out.bias").values) bias += bias > 0 ? -7 : 7;
  models::WriteModel(repository_, ".b", models::SmallConfig(), tensors);
  for (const auto control : {ModelControl::kPoll, ModelControl::kExplicit}) {
    Delete("m");
    std::filesystem::create_directory(repository_.path("m"));
    std::filesystem::copy(repository_.path(".a"), repository_.path("m/1"));
    fix_times("m/1");
    server::Options options = Options(control);
    if (control == ModelControl::kExplicit) options.models.load_models = {"m"};
    Start(options);
    const auto logit = [this] {
      v1::ClassifyResponse response;
      EXPECT_TRUE(Classify("m", 0, &response).ok());
      return response.classifications(0).labels(0).logit();
    };
    const float before = logit();
    std::filesystem::copy(repository_.path(".b"), repository_.path("m/1"),
                          std::filesystem::copy_options::overwrite_existing |
                              std::filesystem::copy_options::recursive);
    fix_times("m/1");
    if (control == ModelControl::kExplicit) {
      EXPECT_TRUE(Load("m").ok());
    }
    EXPECT_TRUE(PollUntil([&] { return logit() != before; }));
  }
}

// The reference backend uses the weights as they are in the file. It has copies: with a mapping of
// the file this test would die of SIGBUS.
TEST_F(LifecycleTest, FilesThatAreCutInPlaceHarmNothing) {
  Publish("m/1");
  server::Options options = Options(ModelControl::kPoll);
  options.batching.backend = "reference";
  Start(options);
  v1::ClassifyResponse before;
  ASSERT_TRUE(Classify("m", 0, &before).ok());
  std::filesystem::resize_file(repository_.path("m/1/model.safetensors"), 0);
  ASSERT_TRUE(PollUntil([this] { return !Statuses()[0].message().empty(); }));
  EXPECT_THAT(Statuses()[0].message(), HasSubstr("model.safetensors"));
  EXPECT_THAT(States(), ElementsAre("m:1 READY"));
  v1::ClassifyResponse after;
  ASSERT_TRUE(Classify("m", 0, &after).ok());
  EXPECT_EQ(after.classifications(0).SerializeAsString(),
            before.classifications(0).SerializeAsString());
  // Files that are rewritten in place are loaded again.
  models::WriteSmallModel(repository_, "m/1");
  EXPECT_TRUE(PollUntil([this] { return Statuses()[0].message().empty(); }));
}

TEST_F(LifecycleTest, AdminLoadsAndUnloads) {
  Publish("m/1");
  Publish("n/1");
  Start(Options(ModelControl::kExplicit));
  EXPECT_EQ(server_->Get("/readyz").status, 200);  // nobody has asked for a model
  EXPECT_EQ(Classify("m").error_code(), StatusCode::NOT_FOUND);

  v1::LoadModelResponse loaded;
  ASSERT_TRUE(Load("m", &loaded).ok());
  ASSERT_EQ(loaded.statuses_size(), 1);
  EXPECT_EQ(loaded.statuses(0).state(), v1::ModelStatus::READY);
  EXPECT_EQ(loaded.statuses(0).version(), 1);
  EXPECT_EQ(Answering("m"), 1);
  EXPECT_EQ(Health("m"), "SERVING");

  Publish("m/2");
  ASSERT_TRUE(Load("m").ok());
  EXPECT_EQ(Answering("m"), 2);

  Publish("m/3");
  repository_.Write("m/3/vocab.txt", "too\nshort\n");
  EXPECT_THAT(Load("m"),
              Fails(StatusCode::FAILED_PRECONDITION,
                    AllOf(HasSubstr("m/3/vocab.txt"), HasSubstr("version 2 is served"))));
  EXPECT_EQ(Answering("m"), 2);

  ASSERT_TRUE(Unload("m").ok());
  EXPECT_EQ(Classify("m").error_code(), StatusCode::NOT_FOUND);
  EXPECT_EQ(Health("m"), "NOT_SERVING");
  EXPECT_TRUE(PollUntil([this] { return States().empty(); }));
  EXPECT_THAT(server_->Get("/metrics").body, Not(HasSubstr("model=\"m\"")));
  EXPECT_EQ(Unload("m").error_code(), StatusCode::NOT_FOUND);
  EXPECT_EQ(Unload("n").error_code(), StatusCode::NOT_FOUND);
  EXPECT_EQ(Load("unknown").error_code(), StatusCode::NOT_FOUND);
  EXPECT_EQ(server_->Metric(
                "sru_requests_total{code=\"OK\",method=\"LoadModel\",model=\"\",version=\"\"}"),
            2);
}

TEST_F(LifecycleTest, NamesCannotLeaveTheRepository) {
  Publish("inside/m/1");
  Publish("outside/1");
  server::Options options = Options(ModelControl::kExplicit);
  options.models.repository = repository_.path("inside");
  Start(options);
  for (const std::string& name :
       {std::string(), std::string("."), std::string(".."), std::string("../outside"),
        std::string("m/../../outside"), repository_.path("outside"), std::string("m/1"),
        std::string("m\0", 2), std::string("m\n"), std::string(1000, 'm')}) {
    EXPECT_EQ(Load(name).error_code(), StatusCode::INVALID_ARGUMENT) << name;
    EXPECT_EQ(Unload(name).error_code(), StatusCode::INVALID_ARGUMENT) << name;
  }
  EXPECT_THAT(States(), IsEmpty());
  EXPECT_TRUE(Load("m").ok());
}

TEST_F(LifecycleTest, LoadingTheSameModelFromManyCallersLoadsItOnce) {
  Publish("m/1");
  Start(Options(ModelControl::kExplicit));
  InThreads(8, [this](int /*thread*/) {
    const grpc::Status status = Load("m");
    EXPECT_TRUE(status.ok()) << status.error_message();
  });
  EXPECT_EQ(server_->Metric("sru_model_loads_total{model=\"m\"}"), 1);
  EXPECT_EQ(server_->Metric("sru_model_load_duration_seconds_count"), 1);
}

TEST_F(LifecycleTest, WhatWasAcceptedBeforeAnUnloadIsAnswered) {
  Publish("m/1");
  server::Options options = Options(ModelControl::kExplicit);
  options.models.load_models = {"m"};
  options.batching.backend = "reference";  // slow enough to have a queue
  options.batching.engine.instances = 1;
  options.batching.engine.batcher.max_queue_tokens = 4000000;
  options.batching.engine.batcher.admission_by_deadline = false;
  Start(options);
  constexpr int kCalls = 32;
  v1::EncodeRequest request;
  for (int s = 0; s < 16; ++s) {
    v1::TokenIds* ids = request.add_sequences()->mutable_token_ids();
    for (int t = 0; t < 1024; ++t) ids->add_values(t % 5);
  }
  request.set_pooling(v1::POOLING_LAST);
  BackgroundCalls calls(server_->stub(), &AsyncStub::Encode, request, kCalls);
  const auto seen = [this] {
    return server_->Metric("sru_requests_in_flight") +
           std::max(0.0, server_->Metric("sru_requests_total{code=\"OK\",method=\"Encode\",model="
                                         "\"m\",version=\"1\"}"));
  };
  ASSERT_TRUE(PollUntil([&] { return seen() >= kCalls; }));
  ASSERT_TRUE(Unload("m").ok());
  EXPECT_EQ(Classify("m").error_code(), StatusCode::NOT_FOUND);
  for (const grpc::Status& status : calls.Wait()) {
    EXPECT_TRUE(status.ok()) << status.error_message();
  }
  EXPECT_TRUE(PollUntil([this] { return States().empty(); }));
}

TEST_F(LifecycleTest, AdminIsOffByDefaultAndApartFromInference) {
  Publish("m/1");
  server::Options options = Options(ModelControl::kExplicit);
  options.admin_listen.reset();
  Start(options);
  EXPECT_FALSE(server_->server().admin_address().has_value());
  EXPECT_EQ(server_->CallRaw("/sru.v1.AdminService/LoadModel", "").error_code(),
            StatusCode::UNIMPLEMENTED);

  Start(Options(ModelControl::kExplicit));
  EXPECT_EQ(server_->CallRaw("/sru.v1.AdminService/LoadModel", "").error_code(),
            StatusCode::UNIMPLEMENTED);
  const auto inference =
      v1::InferenceService::NewStub(MakeChannel(server_->server().admin_address()->ToString()));
  grpc::ClientContext context;
  v1::ListModelsResponse response;
  EXPECT_EQ(inference->ListModels(&context, v1::ListModelsRequest(), &response).error_code(),
            StatusCode::UNIMPLEMENTED);
  EXPECT_TRUE(server_->server().Drain());
}

TEST_F(LifecycleTest, AdminNeedsExplicitControl) {
  Publish("m/1");
  for (const ModelControl control : {ModelControl::kStatic, ModelControl::kPoll}) {
    server::Options options = Options(control);
    options.admin_listen = server::ListenAddress{"127.0.0.1", 0};
    Start(options);
    for (const grpc::Status& status : {Load("m"), Unload("m")}) {
      EXPECT_THAT(status,
                  Fails(StatusCode::FAILED_PRECONDITION, HasSubstr("--model_control=explicit")));
    }
    EXPECT_EQ(Answering("m"), 1);
  }
}

TEST_F(LifecycleTest, TheCommandLineLoadsAndUnloads) {
  Publish("m/1");
  Start(Options(ModelControl::kExplicit));
  const std::string address = "--address=" + server_->server().admin_address()->ToString();
  Subprocess load({SRU_CLIENT_BINARY, "admin", address, "load", "m"});
  EXPECT_EQ(load.Wait(), 0) << load.err();
  EXPECT_THAT(load.out(), HasSubstr("READY"));
  EXPECT_EQ(Answering("m"), 1);
  Subprocess status({SRU_CLIENT_BINARY, "models", "--status",
                     "--address=" + server_->server().address().ToString()});
  EXPECT_EQ(status.Wait(), 0) << status.err();
  EXPECT_THAT(status.out(), HasSubstr("READY"));
  Subprocess escape({SRU_CLIENT_BINARY, "admin", address, "load", "../m"});
  EXPECT_EQ(escape.Wait(), 1);
  EXPECT_THAT(escape.err(), HasSubstr("INVALID_ARGUMENT"));
  models::WriteSmallModel(repository_, "broken/1");
  repository_.Write("broken/1/config.json", "{");
  Subprocess broken({SRU_CLIENT_BINARY, "admin", address, "load", "broken"});
  EXPECT_EQ(broken.Wait(), 1);
  EXPECT_THAT(broken.err(), HasSubstr("broken/1/config.json"));
  EXPECT_THAT(broken.err(), HasSubstr("mend the model's files"));
  Subprocess unload({SRU_CLIENT_BINARY, "admin", address, "unload", "m"});
  EXPECT_EQ(unload.Wait(), 0) << unload.err();
  EXPECT_EQ(Answering("m"), 0);
}

}  // namespace
}  // namespace sru::testing
