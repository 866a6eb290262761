// GPUs that fail under a whole server, over the wire: answers, health, readiness, metrics, drain.
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/support/byte_buffer.h"
#include "gtest/gtest.h"
#include "kernels/choose_backend.h"
#include "kernels/cuda/backend/cuda_backend.h"
#include "server/base/log.h"
#include "tests/integration/server_fixture.h"
#include "tests/kernels/cuda_host/host_device.h"
#include "tests/testing/failing_backend.h"
#include "tests/testing/poll.h"
#include "tests/testing/test_files.h"

namespace sru::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// The bundled classifier alone.
server::Options ClassifierOptions() {
  server::Options options = TestOptions(kBundledRepository);
  options.models.control = server::lifecycle::ModelControl::kExplicit;
  options.models.load_models = {"trec"};
  options.admin_listen = server::ListenAddress{"127.0.0.1", 0};
  return options;
}

// Asks the classifier; its answer, if there is one, must be right.
grpc::Status Ask(RunningServer& server, int64_t* version = nullptr) {
  v1::ClassifyRequest request;
  request.add_sequences()->set_text("Where is Lake Titicaca ?");
  v1::ClassifyResponse response;
  const grpc::Status status = server.Call(request, &response);
  if (status.ok()) {
    EXPECT_EQ(response.classifications(0).labels(0).name(), "LOC");
  }
  if (version != nullptr) *version = response.version();
  return status;
}

class DeviceLossTest : public ::testing::Test {
 protected:
  void Start(int devices, const server::Options& options = ClassifierOptions()) {
    devices_ = std::make_shared<FailingDevices>(devices);
    server_ = std::make_unique<RunningServer>(std::make_unique<FailingBackend>(devices_), options);
  }

  std::shared_ptr<FailingDevices> devices_;
  std::unique_ptr<RunningServer> server_;
};

TEST_F(DeviceLossTest, OneOfTwoDevicesIsEnough) {
  Start(2);
  const std::string instances = "sru_instances{model=\"trec\",version=\"1\"}";
  EXPECT_EQ(server_->Metric(instances), 4);  // two per GPU
  EXPECT_EQ(server_->Metric("sru_device_lost_total{device=\"0\"}"), 0);
  const auto memory = [this](const std::string& kind) {
    return server_->Metric("sru_gpu_memory_bytes{device=\"1\",kind=\"" + kind + "\"}");
  };
  EXPECT_EQ(memory("weights"), kFailingWeightBytes);
  EXPECT_EQ(memory("workspaces"), 2 * kFailingWorkspaceBytes);
  EXPECT_EQ(memory("limit"), 70000000);
  EXPECT_EQ(memory("total"), 80000000);

  devices_->failed[0] = true;
  // No call fails, whichever worker it reaches.
  EXPECT_TRUE(PollUntil([this, &instances] {
    const grpc::Status status = Ask(*server_);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return server_->Metric(instances) == 2;
  }));
  EXPECT_TRUE(server_->Becomes("sru_device_lost_total{device=\"0\"}", 1));
  EXPECT_EQ(server_->Metric("sru_device_lost_total{device=\"1\"}"), 0);
  EXPECT_EQ(server_->Health(""), "SERVING");
  EXPECT_EQ(server_->Health("trec"), "SERVING");
  EXPECT_EQ(server_->Get("/readyz").status, 200);
  EXPECT_EQ(server_->Get("/healthz").status, 200);
  EXPECT_TRUE(server_->server().Drain());
}

// A repository in which versions of the bundled model are published, and the calls that load them.
class ReloadAfterLoss {
 public:
  server::Options Options(server::Options options) const {
    options.models.repository = repository_.path();
    options.models.control = server::lifecycle::ModelControl::kExplicit;
    options.models.load_models = {"trec"};
    options.admin_listen = server::ListenAddress{"127.0.0.1", 0};
    return options;
  }
  void Publish(int version) const {
    std::filesystem::create_directories(repository_.path("trec"));
    std::filesystem::copy(std::string(kBundledRepository) + "/trec/1",
                          repository_.path("trec/" + std::to_string(version)));
  }
  static grpc::Status Load(RunningServer& server) { return LoadModel(*server.AdminStub(), "trec"); }
  // 0 if none answers.
  static int64_t Answering(RunningServer& server) {
    int64_t version = 0;
    return Ask(server, &version).ok() ? version : 0;
  }
  static int Instances(RunningServer& server) {
    v1::GetModelRequest request;
    return server.Must(request).model().instances();
  }

 private:
  models::TempDirectory repository_;
};

// A state does not live on a device between calls, so a stream goes on where it was.
TEST_F(DeviceLossTest, AStreamOfScoresGoesOnAfterADeviceIsLost) {
  models::TempDirectory repository;
  std::filesystem::create_directories(repository.path("lm"));
  std::filesystem::copy("tests/golden/language_model/fresh", repository.path("lm/1"));
  Start(2, TestOptions(repository.path()));
  const auto score = [this](const std::string& text, std::string* state) {
    v1::ScoreRequest request;
    request.add_sequences()->set_text(text);
    if (!state->empty()) request.add_states(*state);
    request.set_return_states(true);
    v1::ScoreResponse response;
    const grpc::Status status = server_->Call(request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    if (status.ok()) *state = response.scores(0).state();
  };
  std::string whole;
  score("0/.-0/.-0/.-", &whole);
  std::string state;
  score("0/.-", &state);
  devices_->failed[1] = true;
  // Whichever worker each of them reaches.
  for (int i = 0; i < 2; ++i) score("0/.-", &state);
  EXPECT_EQ(state, whole);
}

TEST_F(DeviceLossTest, AVersionLoadedAfterTheLossServesOnTheOther) {
  const ReloadAfterLoss reload;
  reload.Publish(1);
  Start(2, reload.Options(TestOptions("")));
  // Nothing has noticed the loss when the next version is loaded; loading does.
  devices_->failed[0] = true;
  reload.Publish(2);
  const grpc::Status loaded = ReloadAfterLoss::Load(*server_);
  EXPECT_TRUE(loaded.ok()) << loaded.error_message();
  EXPECT_EQ(ReloadAfterLoss::Answering(*server_), 2);
  EXPECT_EQ(ReloadAfterLoss::Instances(*server_), 2);
  EXPECT_EQ(server_->Metric("sru_instances{model=\"trec\",version=\"2\"}"), 2);
  EXPECT_TRUE(server_->Becomes("sru_device_lost_total{device=\"0\"}", 1));
  EXPECT_EQ(server_->Health("trec"), "SERVING");
  EXPECT_EQ(server_->Get("/readyz").status, 200);

  // Version 1 is unloaded, and with it everything that it had on both devices.
  const auto memory = [this](const std::string& device, const std::string& kind) {
    return server_->Metric("sru_gpu_memory_bytes{device=\"" + device + "\",kind=\"" + kind + "\"}");
  };
  EXPECT_TRUE(PollUntil([&] { return memory("0", "weights") == 0; }));
  EXPECT_EQ(memory("0", "workspaces"), 0);
  EXPECT_EQ(memory("1", "weights"), kFailingWeightBytes);
  EXPECT_EQ(memory("1", "workspaces"), 2 * kFailingWorkspaceBytes);

  // Without any device the loaded version stays, and the call says why.
  devices_->failed[1] = true;
  reload.Publish(3);
  const grpc::Status refused = ReloadAfterLoss::Load(*server_);
  EXPECT_FALSE(refused.ok());
  EXPECT_THAT(refused.error_message(), HasSubstr("all devices have failed"));
  EXPECT_TRUE(server_->server().Drain());
}

TEST_F(DeviceLossTest, WithoutADeviceTheServerSaysSoAndStillDrains) {
  Start(1);
  EXPECT_EQ(server_->Health("trec"), "SERVING");
  devices_->failed[0] = true;
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(Ask(*server_),
                Fails(grpc::StatusCode::UNAVAILABLE, HasSubstr("unspecified launch failure")));
  }
  EXPECT_TRUE(PollUntil([this] { return server_->Health("") == "NOT_SERVING"; }));
  EXPECT_EQ(server_->Health("trec"), "NOT_SERVING");
  EXPECT_EQ(server_->Health("sru.v1.InferenceService"), "NOT_SERVING");
  EXPECT_EQ(server_->Get("/readyz").status, 503);
  EXPECT_EQ(server_->Get("/readyz").body, "not ready: every device has failed\n");
  EXPECT_EQ(server_->Get("/healthz").status, 503);
  EXPECT_EQ(server_->Metric("sru_instances{model=\"trec\",version=\"1\"}"), 0);
  EXPECT_TRUE(server_->server().Drain());
}

// The CUDA backend itself, on two devices that run its kernels on the host.
class CudaLossTest : public ::testing::Test {
 protected:
  // Batches are small: the host is no GPU.
  static server::Options SmallOptions() {
    server::Options options = ClassifierOptions();
    options.batching.engine.batcher.max_batch_tokens = 32;
    options.rpc.limits.max_sequence_tokens = 32;
    return options;
  }
  std::unique_ptr<kernels::Backend> MakeBackend(const kernels::BackendOptions& options) {
    std::vector<std::unique_ptr<kernels::cuda::Device>> devices;
    for (int i = 0; i < 2; ++i) {
      HostDeviceOptions host;
      host.ordinal = i;
      devices.push_back(MakeHostDevice(host, &controls_[i]));
    }
    return kernels::cuda::MakeCudaBackend(options, std::move(devices));
  }
  HostDeviceControl controls_[2];
};

TEST_F(CudaLossTest, CallsMoveToTheDeviceThatIsLeft) {
  RunningServer server(MakeBackend({}), SmallOptions());
  const std::string instances = "sru_instances{model=\"trec\",version=\"1\"}";
  EXPECT_EQ(server.Metric(instances), 4);
  EXPECT_TRUE(Ask(server).ok());
  EXPECT_GT(server.Metric("sru_gpu_memory_bytes{device=\"1\",kind=\"weights\"}"), 0);
  EXPECT_GT(server.Metric("sru_gpu_memory_bytes{device=\"1\",kind=\"workspaces\"}"), 0);
  EXPECT_GT(server.Metric("sru_gpu_memory_bytes{device=\"1\",kind=\"free\"}"), 0);

  controls_[1].operations_until_lost = 0;
  EXPECT_TRUE(PollUntil([&] {
    const grpc::Status status = Ask(server);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return server.Metric(instances) == 2;
  }));
  EXPECT_TRUE(server.Becomes("sru_gpu_memory_bytes{device=\"1\",kind=\"free\"}", 0));
  controls_[0].operations_until_lost = 0;
  EXPECT_EQ(Ask(server).error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_TRUE(PollUntil([&] { return server.Get("/readyz").status == 503; }));
  EXPECT_EQ(Ask(server).error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_TRUE(server.server().Drain());
}

// A device whose batches all fail, with an error that is not known to be for good, ends them faster
// than a device that computes: without an end to that its workers would take most of the queue.
TEST_F(CudaLossTest, AFailingWorkerDoesNotDrainTheQueue) {
  RunningServer server(MakeBackend({}), SmallOptions());
  const std::string instances = "sru_instances{model=\"trec\",version=\"1\"}";
  controls_[1].failing_waits = 1000000;
  int failed = 0;
  EXPECT_TRUE(PollUntil([&] {
    const grpc::Status status = Ask(server);
    if (!status.ok()) {
      EXPECT_EQ(status.error_code(), grpc::StatusCode::INTERNAL) << status.error_message();
      ++failed;
    }
    return server.Metric(instances) == 2;
  }));
  // The third batch that fails there is run on the other device.
  EXPECT_EQ(failed, 2);
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(Ask(server).ok());
  EXPECT_TRUE(server.Becomes("sru_device_lost_total{device=\"1\"}", 1));
  EXPECT_EQ(server.Get("/readyz").status, 200);
  EXPECT_TRUE(server.server().Drain());
}

TEST_F(CudaLossTest, ReloadsGoOnWithTheDeviceThatIsLeft) {
  const ReloadAfterLoss reload;
  reload.Publish(1);
  RunningServer server(MakeBackend({}), reload.Options(SmallOptions()));
  EXPECT_EQ(ReloadAfterLoss::Instances(server), 4);
  for (int lost = 0; lost < 2; ++lost) {
    controls_[lost].operations_until_lost = 0;
    reload.Publish(2 + lost);
    const grpc::Status loaded = ReloadAfterLoss::Load(server);
    if (lost == 0) {
      EXPECT_TRUE(loaded.ok()) << loaded.error_message();
      EXPECT_EQ(ReloadAfterLoss::Answering(server), 2);
      EXPECT_EQ(ReloadAfterLoss::Instances(server), 2);
      EXPECT_TRUE(server.Becomes("sru_device_lost_total{device=\"0\"}", 1));
      EXPECT_EQ(server.Get("/readyz").status, 200);
    } else {
      EXPECT_FALSE(loaded.ok());
      EXPECT_THAT(loaded.error_message(), HasSubstr("failed by the test"));
    }
  }
  EXPECT_TRUE(server.server().Drain());
}

TEST_F(CudaLossTest, AServerThatDoesNotFitDoesNotStart) {
  kernels::BackendOptions options;
  options.cuda_memory_limit_bytes = 5500000;  // the weights have 4.9 MB
  const auto started = server::Server::Start(SmallOptions(), MakeBackend(options));
  EXPECT_EQ(started.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(started.status().message()),
              AllOf(HasSubstr("trec"), HasSubstr("budget of 5.5 MB"),
                    HasSubstr("use fewer instances, smaller batches or bfloat16")));
}

TEST(DeviceMemoryTest, AServerWhoseWorkspacesDoNotFitDoesNotStart) {
  auto devices = std::make_shared<FailingDevices>(2);
  devices->max_workspaces = 3;
  const auto started = server::Server::Start(TestOptions(kBundledRepository),
                                             std::make_unique<FailingBackend>(devices));
  EXPECT_EQ(started.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(std::string(started.status().message()),
            "models/pretrained/trec/1: device 0: a workspace does not fit");
}

TEST(DeviceMemoryTest, DevicesThatAreNotThereAreAnErrorOfTheirFlag) {
  server::Options options = TestOptions(kBundledRepository);
  options.batching.backend = "cuda";
  options.batching.hardware.cuda_devices = {4711};
  const auto started = server::Server::Start(options);
  EXPECT_FALSE(started.ok());
  EXPECT_THAT(std::string(started.status().message()), HasSubstr("--devices: "));
}

TEST(BackendChoiceTest, AServerThatGoesOnWithoutAGpuSaysWhyAndExplicitlyItDoesNotStart) {
  if (kernels::AvailableBackends().front() == "cuda") GTEST_SKIP() << "this machine has a GPU";
  server::Options options = TestOptions(kBundledRepository);
  options.batching.backend = "cuda";
  const auto refused = server::Server::Start(options);
  ASSERT_FALSE(refused.ok());
  std::string why(refused.status().message());
  ASSERT_THAT(why, StartsWith("--backend: backend cuda: "));
  why.erase(0, std::string("--backend: ").size());

  options.batching.backend = "auto";
  ::testing::internal::CaptureStderr();
  const auto started = server::Server::Start(options);
  server::FlushLog(absl::Seconds(10));
  const std::string log = ::testing::internal::GetCapturedStderr();
  ASSERT_TRUE(started.ok()) << started.status();
  if (kernels::BuiltBackends().front() == "cuda") {
    EXPECT_THAT(log, HasSubstr("--backend=auto: " + why + "; backend cpu is used instead"));
    EXPECT_THAT(log, HasSubstr("needs driver "));
  } else {
    EXPECT_THAT(log, Not(HasSubstr("--backend")));
  }
  EXPECT_TRUE((*started)->Drain());
}

}  // namespace
}  // namespace sru::testing
