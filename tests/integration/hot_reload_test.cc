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
// Until the allocator and gRPC have what they need, and as many batches have run at once as ever
// do: each has a block of memory, which is kept (kernels/cpu/base/run_memory.h).
constexpr int kWarmReloads = kCheckMemory ? 110 : kReloadsWithLarger;
constexpr int kCallers = 3;
constexpr char kLarger[] = "war_and_peace";
// Most memory that the reloads after that may add: 28 kB each, far less than a model or its series
// take.
constexpr double kMaxGrowthBytes = 28e3 * (kReloads - kWarmReloads);

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

  models::TempDirectory repository_;
  std::unique_ptr<Subprocess> process_;
  std::vector<std::string> addresses_;
};

TEST_F(HotReloadTest, NoCallFailsAndMemoryStaysFlat) {
  ASSERT_EQ(addresses_.size(), 3u) << process_->out() << process_->err();
  std::atomic<bool> stop{false};
  std::atomic<int64_t> answered{0};
  std::atomic<int64_t> failed{0};
  std::vector<std::thread> callers;
  struct Joiner {  // also when an assertion leaves the test
    ~Joiner() { Join(); }
    void Join() {
      stop = true;
      for (std::thread& caller : callers) {
        if (caller.joinable()) caller.join();
      }
    }
    std::atomic<bool>& stop;
    std::vector<std::thread>& callers;
  } joiner{stop, callers};
  for (int i = 0; i < kCallers; ++i) {
    callers.emplace_back([&] {
      const auto stub = v1::InferenceService::NewStub(MakeChannel(addresses_[0]));
      v1::ClassifyRequest request;
      request.add_sequences()->set_text("How many moons does Jupiter have ?");
      while (!stop) {
        grpc::ClientContext context;
        v1::ClassifyResponse response;
        const grpc::Status status = stub->Classify(&context, request, &response);
        if (status.ok() && response.classifications(0).labels(0).name() == "NUM") {
          ++answered;
        } else if (++failed < 5) {
          ADD_FAILURE() << status.error_code() << " " << status.error_message();
        }
      }
    });
  }

  const auto admin = v1::AdminService::NewStub(MakeChannel(addresses_[2]));
  double warm = 0;
  for (int reload = 1; reload <= kReloads; ++reload) {
    Point(reload + 1);
    const grpc::Status status = LoadModel(*admin, "trec");
    ASSERT_TRUE(status.ok()) << status.error_message();
    if (reload < kReloadsWithLarger && reload % 10 == 1) {
      ASSERT_TRUE(LoadModel(*admin, kLarger).ok());
    } else if (reload < kReloadsWithLarger && reload % 10 == 6) {
      ASSERT_TRUE(UnloadModel(*admin, kLarger).ok());
    }
    // Some calls with each version.
    const int64_t before = answered;
    ASSERT_TRUE(PollUntil([&] { return answered >= before + 2 * kCallers || failed > 0; }));
    if (reload == kWarmReloads || reload == kReloads) {
      ASSERT_TRUE(PollUntil([&] {
        return Metric(absl::StrCat("sru_model_state{model=\"trec\",version=\"", reload,
                                   "\",state=\"unloading\"}")) == -1;
      }));
    }
    if (reload == kWarmReloads) warm = Metric("process_resident_memory_bytes");
  }
  const double last = Metric("process_resident_memory_bytes");
  joiner.Join();
  EXPECT_EQ(failed, 0);
  EXPECT_EQ(Metric("sru_model_loads_total{model=\"trec\"}"), kReloads + 1);
  EXPECT_EQ(Metric("sru_models_loaded"), 1);
  RecordProperty("answered", std::to_string(answered));
  std::printf("%lld calls; resident after %d reloads %.1f MB, after %d %.1f MB\n",
              static_cast<long long>(answered), kWarmReloads, warm / 1e6, kReloads, last / 1e6);
  if (kCheckMemory) {
    EXPECT_LT(last, warm + kMaxGrowthBytes);
  }
  process_->Signal(SIGTERM);
  EXPECT_EQ(process_->Wait(), 0) << process_->err();
}

}  // namespace
}  // namespace sru::testing
