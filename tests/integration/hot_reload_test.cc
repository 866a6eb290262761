// 200 reloads of a served model under load, in a server process of its own: no call fails, and
// resident memory does not grow. At first a model comes and goes whose batches need more memory.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/server_fixture.h"
#include "tests/testing/poll.h"
#include "tests/testing/subprocess.h"
#include "tests/testing/test_files.h"

namespace sru::testing {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
// A sanitizer keeps freed memory, so only the calls are checked.
constexpr bool kCheckMemory = false;
constexpr int kReloads = 25;
#else
constexpr bool kCheckMemory = true;
constexpr int kReloads = 200;
#endif
constexpr int kReloadsWithLarger = 20;
// Until the allocator and gRPC have what they need.
constexpr int kWarmReloads = kCheckMemory ? 110 : kReloadsWithLarger;
constexpr int kCallers = 3;
constexpr char kLarger[] = "war_and_peace";
// Most memory that the reloads after that may add: 10 kB each, far less than a model or its series
// take.
constexpr double kMaxGrowthBytes = 10e3 * (kReloads - kWarmReloads);

class HotReloadTest : public ::testing::Test {
 protected:
  HotReloadTest() {
    std::filesystem::copy(std::string(kBundledRepository) + "/trec/1", repository_.path(".store"));
    std::filesystem::create_directories(repository_.path(kLarger));
    std::filesystem::copy(absl::StrCat(kBundledRepository, "/", kLarger, "/1"),
                          repository_.path(absl::StrCat(kLarger, "/1")));
    Point(1);
    process_ = std::make_unique<Subprocess>(std::vector<std::string>{
        SRU_SERVER_BINARY, "--model_repository=" + repository_.path(), "--listen=127.0.0.1:0",
        "--metrics_listen=127.0.0.1:0", "--http_listen=", "--admin_listen=127.0.0.1:0",
        "--model_control=explicit", "--load_models=trec"});
    EXPECT_TRUE(process_->AwaitLine()) << process_->err();
    // listening on A, metrics on B, admin on C
    for (const std::string& part : std::vector<std::string>(
             absl::StrSplit(process_->out(), absl::ByAnyChar(", \n"), absl::SkipEmpty()))) {
      if (absl::StrContains(part, ':')) addresses_.push_back(part);
    }
  }

  // Makes `version` the only version in the repository; it is the bundled model.
  void Point(int version) {
    const std::filesystem::path model = repository_.path("trec");
    std::filesystem::create_directories(model);
    std::filesystem::create_directory_symlink("../.store", model / absl::StrCat(version));
    std::filesystem::remove(model / absl::StrCat(version - 1));
  }

  double Metric(const std::string& series) const {
    const int port = std::atoi(addresses_[1].substr(addresses_[1].rfind(':') + 1).c_str());
    return MetricAt(port, series);
  }

  // Reloads the model, which need not be there at first, as versions `first` + 1 to `last` + 1,
  // while callers call it.
  void ReloadUnderLoad(v1::AdminService::Stub* admin, int first, int last) {
    std::atomic<bool> stop{false};
    std::vector<std::thread> callers;
    const absl::Cleanup join = [&] {  // also when an assertion leaves
      stop = true;
      for (std::thread& caller : callers) caller.join();
    };
    for (int reload = first; reload <= last; ++reload) {
      Point(reload + 1);
      const grpc::Status status = LoadModel(*admin, "trec");
      ASSERT_TRUE(status.ok()) << status.error_message();
      while (callers.size() < kCallers) callers.emplace_back([&] { CallUntil(stop); });
      if (reload < kReloadsWithLarger && reload % 10 == 1) {
        ASSERT_TRUE(LoadModel(*admin, kLarger).ok());
      } else if (reload < kReloadsWithLarger && reload % 10 == 6) {
        ASSERT_TRUE(UnloadModel(*admin, kLarger).ok());
      }
      // Some calls with each version.
      const int64_t before = answered_;
      ASSERT_TRUE(PollUntil([&] { return answered_ >= before + 2 * kCallers || failed_ > 0; }));
    }
  }

  void CallUntil(const std::atomic<bool>& stop) {
    const auto stub = v1::InferenceService::NewStub(MakeChannel(addresses_[0]));
    v1::ClassifyRequest request;
    request.add_sequences()->set_text("How many moons does Jupiter have ?");
    while (!stop) {
      grpc::ClientContext context;
      v1::ClassifyResponse response;
      const grpc::Status status = stub->Classify(&context, request, &response);
      if (status.ok() && response.classifications(0).labels(0).name() == "NUM") {
        ++answered_;
      } else if (++failed_ < 5) {
        ADD_FAILURE() << status.error_code() << " " << status.error_message();
      }
    }
  }

  // Unloads the model, whose version is `reloads` + 1, and sets the process's resident bytes. With
  // a model they would depend on how many batches have last run at once, and of what size: each
  // has a block of memory, which is kept (kernels/cpu/base/run_memory.h).
  void UnloadAndMeasure(v1::AdminService::Stub* admin, int reloads, double* bytes) {
    ASSERT_TRUE(UnloadModel(*admin, "trec").ok());
    ASSERT_TRUE(PollUntil([&] {
      return Metric(absl::StrCat("sru_model_state{model=\"trec\",version=\"", reloads + 1,
                                 "\",state=\"unloading\"}")) == -1;
    }));
    *bytes = Metric("process_resident_memory_bytes");
  }

  models::TempDirectory repository_;
  std::unique_ptr<Subprocess> process_;
  std::vector<std::string> addresses_;
  std::atomic<int64_t> answered_{0};
  std::atomic<int64_t> failed_{0};
};

TEST_F(HotReloadTest, NoCallFailsAndMemoryStaysFlat) {
  ASSERT_EQ(addresses_.size(), 3u) << process_->out() << process_->err();
  const auto admin = v1::AdminService::NewStub(MakeChannel(addresses_[2]));
  double warm = 0, last = 0;
  ASSERT_NO_FATAL_FAILURE(ReloadUnderLoad(admin.get(), 1, kWarmReloads));
  ASSERT_NO_FATAL_FAILURE(UnloadAndMeasure(admin.get(), kWarmReloads, &warm));
  ASSERT_NO_FATAL_FAILURE(ReloadUnderLoad(admin.get(), kWarmReloads + 1, kReloads));
  EXPECT_EQ(Metric("sru_model_loads_total{model=\"trec\"}"), kReloads - kWarmReloads);
  EXPECT_EQ(Metric("sru_models_loaded"), 1);
  ASSERT_NO_FATAL_FAILURE(UnloadAndMeasure(admin.get(), kReloads, &last));
  EXPECT_EQ(failed_, 0);
  RecordProperty("answered", std::to_string(answered_));
  std::printf("%lld calls; resident after %d reloads %.1f MB, after %d %.1f MB\n",
              static_cast<long long>(answered_), kWarmReloads, warm / 1e6, kReloads, last / 1e6);
  if (kCheckMemory) {
    EXPECT_LT(last, warm + kMaxGrowthBytes);
  }
  process_->Signal(SIGTERM);
  EXPECT_EQ(process_->Wait(), 0) << process_->err();
}

}  // namespace
}  // namespace sru::testing
