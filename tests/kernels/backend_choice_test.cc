// Which backend --backend=auto takes, which GPUs are opened and what is said of the others, with a
// driver that answers what the test tells it to.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/choose_backend.h"
#include "kernels/cuda/backend/cuda_backend.h"
#include "kernels/cuda/device/open_devices.h"
#include "tests/kernels/cuda_host/host_device.h"
#include "tests/kernels/status_matchers.h"

namespace sru::kernels {
namespace {

using ::sru::testing::HostDeviceControl;
using ::sru::testing::HostDeviceOptions;
using ::sru::testing::MakeHostDevice;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

constexpr char kTooOld[] = "CUDA driver version is insufficient for CUDA runtime version";

// As many GPUs as `capabilities` has, each the host.
class FakeDriver : public cuda::Driver {
 public:
  int driver_version() override { return installed; }
  int runtime_version() override { return built; }
  Status Count(int* count) override {
    if (!count_error.empty()) return Status(StatusCode::kUnavailable, count_error);
    *count = static_cast<int>(capabilities.size());
    return OkStatus();
  }
  int ComputeCapability(int ordinal) override { return capabilities.at(ordinal); }
  Status LoadLibraries() override { return libraries; }
  Status Open(int ordinal, std::unique_ptr<cuda::Device>* device) override {
    if (const auto failure = failures.find(ordinal); failure != failures.end()) {
      return Status(StatusCode::kInternal,
                    "device " + std::to_string(ordinal) + ": " + failure->second);
    }
    HostDeviceOptions options;
    options.ordinal = ordinal;
    const auto name = names.find(ordinal);
    options.name = name == names.end() ? "Paper GPU" : name->second;
    *device = MakeHostDevice(options, &control);
    return OkStatus();
  }

  int installed = 13010;
  int built = 13000;
  std::string count_error;
  std::vector<int> capabilities = {9, 9, 9};
  Status libraries = OkStatus();
  std::map<int, std::string> failures;
  std::map<int, std::string> names;
  HostDeviceControl control;
};

class OpenDevicesTest : public ::testing::Test {
 protected:
  Status Open(const std::vector<int>& ordinals = {}) {
    std::vector<std::unique_ptr<cuda::Device>> devices;
    warnings_.clear();
    Status status = cuda::OpenDevices(&driver_, ordinals, &devices, &warnings_);
    opened_.clear();
    for (const auto& device : devices) opened_.push_back(device->ordinal());
    return status;
  }

  FakeDriver driver_;
  std::vector<int> opened_;
  std::vector<std::string> warnings_;
};

TEST_F(OpenDevicesTest, OpensEveryGpuOrThoseThatAreNamed) {
  EXPECT_TRUE(Open().ok());
  EXPECT_THAT(opened_, ElementsAre(0, 1, 2));
  EXPECT_TRUE(Open({2, 0}).ok());
  EXPECT_THAT(opened_, ElementsAre(2, 0));
  EXPECT_THAT(warnings_, IsEmpty());
  EXPECT_EQ(cuda::CountDevices(&driver_), 3);
  driver_.capabilities = {7, 8};
  EXPECT_TRUE(Open().ok());
  EXPECT_THAT(opened_, ElementsAre(1));
  EXPECT_EQ(cuda::CountDevices(&driver_), 1);
}

TEST_F(OpenDevicesTest, LeavesOutAGpuThatCannotBeOpenedAndSaysWhy) {
  driver_.failures[1] = "cudaInitDevice: CUDA-capable device(s) is/are busy or unavailable";
  EXPECT_TRUE(Open().ok());
  EXPECT_THAT(opened_, ElementsAre(0, 2));
  EXPECT_THAT(warnings_,
              ElementsAre("backend cuda: a GPU is left out: device 1: cudaInitDevice: CUDA-capable "
                          "device(s) is/are busy or unavailable; driver: for CUDA 13.1, this "
                          "program: built with CUDA 13.0, needs driver 580.65.06 or newer"));
}

TEST_F(OpenDevicesTest, ANamedGpuThatCannotBeOpenedIsAnError) {
  driver_.failures[1] = "out of memory";
  const Status status = Open({0, 1});
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(status.message(), StartsWith("backend cuda: device 1: out of memory; driver: "));
  EXPECT_THAT(opened_, IsEmpty());
}

TEST_F(OpenDevicesTest, WithoutAnyGpuThatOpensTheErrorNamesThemAll) {
  driver_.failures = {{0, "busy"}, {1, "out of memory"}, {2, "no kernel image"}};
  const Status status = Open();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(status.message(),
              StartsWith("backend cuda: no GPU can be opened: device 0: busy; device 1: out of "
                         "memory; device 2: no kernel image; driver: for CUDA 13.1, "));
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(OpenDevicesTest, TellsAMissingDriverFromAnOldOneAndNamesTheLeast) {
  driver_.count_error = kTooOld;
  driver_.installed = 0;
  EXPECT_EQ(Open().message(),
            "backend cuda: no GPU can be used: no NVIDIA driver was found (libcuda.so.1); driver: "
            "none, this program: built with CUDA 13.0, needs driver 580.65.06 or newer");
  driver_.installed = 12040;
  EXPECT_EQ(Open().message(),
            "backend cuda: no GPU can be used: the NVIDIA driver is too old; driver: for CUDA "
            "12.4, this program: built with CUDA 13.0, needs driver 580.65.06 or newer");
  driver_.built = 12090;
  driver_.count_error = "no CUDA-capable device is detected";
  EXPECT_EQ(Open().message(),
            "backend cuda: no GPU can be used: the driver says: no CUDA-capable device is "
            "detected; driver: for CUDA 12.4, this program: built with CUDA 12.9, needs driver "
            "525.60.13 or newer");
  EXPECT_EQ(cuda::CountDevices(&driver_), 0);
}

TEST_F(OpenDevicesTest, OtherReasonsWhyThereIsNone) {
  driver_.libraries = Status(StatusCode::kUnavailable, "backend cuda: cannot load cuBLASLt");
  EXPECT_EQ(Open().message(), "backend cuda: cannot load cuBLASLt");
  EXPECT_EQ(cuda::CountDevices(&driver_), 0);
  driver_.capabilities = {7};
  EXPECT_THAT(Open().message(), HasSubstr("no GPU has compute capability 8.0"));
  driver_.capabilities = {};
  EXPECT_THAT(Open().message(), HasSubstr("the driver says: there is none"));
  if (cuda::IsBuilt()) return;
  std::unique_ptr<Backend> backend;
  EXPECT_EQ(CreateBackend("cuda", &backend).message(),
            "backend cuda: this build has no CUDA kernels");
}

TEST_F(OpenDevicesTest, BadOrdinalsAreErrorsOfTheCaller) {
  EXPECT_EQ(Open({3}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Open({3}).message(), "cuda_devices: expected 0 to 2, found 3");
  EXPECT_EQ(Open({1, 0, 1}).message(), "cuda_devices: 1 is named twice");
}

TEST_F(OpenDevicesTest, WarnsOfGpusOfDifferentModels) {
  driver_.names[1] = "Cardboard GPU";
  EXPECT_TRUE(Open().ok());
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("different models (Cardboard GPU, Paper GPU)")));
  EXPECT_TRUE(Open({0, 2}).ok());
  EXPECT_THAT(warnings_, IsEmpty());
}

// What --backend=auto does with the GPUs of `driver`.
class AutoTest : public OpenDevicesTest {
 protected:
  Status Choose() {
    const auto create_cuda = [this](std::unique_ptr<Backend>* backend,
                                    std::vector<std::string>* warnings) {
      std::vector<std::unique_ptr<cuda::Device>> devices;
      Status status = cuda::OpenDevices(&driver_, {}, &devices, warnings);
      if (status.ok()) *backend = cuda::MakeCudaBackend({}, std::move(devices));
      return status;
    };
    const auto create_next = [this](std::unique_ptr<Backend>* backend,
                                    std::vector<std::string>* /*warnings*/) {
      return next_error_.ok() ? CreateBackend("reference", backend) : next_error_;
    };
    warnings_.clear();
    backend_ = nullptr;
    return CreateFirst(
        {{"cuda", true, create_cuda}, {"next", false, create_next}, {"last", false, create_next}},
        &backend_, &warnings_);
  }

  Status next_error_ = OkStatus();
  std::unique_ptr<Backend> backend_;
};

TEST_F(AutoTest, TakesTheGpusThatOpen) {
  ASSERT_TRUE(Choose().ok());
  EXPECT_STREQ(backend_->name(), "cuda");
  EXPECT_EQ(backend_->devices().size(), 3u);
  EXPECT_THAT(warnings_, IsEmpty());
  driver_.failures[2] = "busy";
  ASSERT_TRUE(Choose().ok());
  EXPECT_EQ(backend_->devices().size(), 2u);
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("a GPU is left out: device 2: busy; driver: ")));
}

TEST_F(AutoTest, GoesOnToTheNextBackendAndSaysWhy) {
  driver_.failures = {{0, "busy"}, {1, "busy"}, {2, "busy"}};
  ASSERT_TRUE(Choose().ok());
  EXPECT_STREQ(backend_->name(), "reference");
  EXPECT_THAT(warnings_,
              ElementsAre(AllOf(StartsWith("backend cuda: no GPU can be opened: device 0: busy"),
                                EndsWith("needs driver 580.65.06 or newer; backend next is used "
                                         "instead"))));
  driver_.count_error = kTooOld;
  driver_.installed = 12040;
  ASSERT_TRUE(Choose().ok());
  EXPECT_STREQ(backend_->name(), "reference");
  EXPECT_THAT(warnings_, ElementsAre(AllOf(HasSubstr("the NVIDIA driver is too old; driver: for "
                                                     "CUDA 12.4, this program: built with"),
                                           HasSubstr("backend next is used instead"))));
}

TEST_F(AutoTest, WhatIsMissingOfTheProcessorIsAnError) {
  driver_.capabilities = {};
  next_error_ = Status(StatusCode::kUnavailable, "cpu_isa: this machine has no amx");
  EXPECT_THAT(Choose(), IsError(StatusCode::kUnavailable, "cpu_isa: this machine has no amx"));
}

TEST(ChooseBackendTest, AutoIsTheFirstThatIsAvailable) {
  std::unique_ptr<Backend> backend;
  std::vector<std::string> warnings;
  ASSERT_TRUE(ChooseBackend("auto", {}, &backend, &warnings).ok());
  EXPECT_EQ(backend->name(), AvailableBackends().front());
  // A backend that was passed over is one that this build has.
  EXPECT_EQ(warnings.size(), BuiltBackends().size() - AvailableBackends().size());
  EXPECT_TRUE(ChooseBackend("reference", {}, &backend, &warnings).ok());
  EXPECT_STREQ(backend->name(), "reference");
  EXPECT_EQ(ChooseBackend("tpu", {}, &backend, &warnings).code(), StatusCode::kInvalidArgument);
  // Only the choice takes it, so that a test or a benchmark names what it runs.
  EXPECT_EQ(CreateBackend("auto", &backend).code(), StatusCode::kInvalidArgument);
}

TEST(ChooseBackendTest, AnExplicitGpuBackendIsTheSameErrorAsTheWarning) {
  std::unique_ptr<Backend> backend;
  std::vector<std::string> warnings;
  const Status status = ChooseBackend("cuda", {}, &backend, &warnings);
  if (status.ok()) GTEST_SKIP() << "this machine has a GPU";
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  ASSERT_TRUE(ChooseBackend("auto", {}, &backend, &warnings).ok());
  if (BuiltBackends().front() == "cuda") {
    EXPECT_THAT(warnings, ElementsAre(StartsWith(status.message() + "; backend ")));
    EXPECT_THAT(status.message(), HasSubstr("needs driver "));
  } else {
    EXPECT_THAT(warnings, IsEmpty());
    EXPECT_THAT(BuiltBackends(), Not(::testing::Contains("cuda")));
  }
}

}  // namespace
}  // namespace sru::kernels
