// kernels/cuda/device/cuda_device.cc and the launches of the .cu files on a simulated runtime
// (cuda_runtime/): what an error of one device means for it, and that it means nothing for another.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <iterator>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/cuda/device/device.h"
#include "kernels/cuda/device/open_devices.h"
#include "kernels/cuda/device/poll_time.h"
#include "kernels/cuda/kernels/operation_args.h"
#include "kernels/cuda/kernels/predict_shape.h"
#include "tests/kernels/cuda_runtime/simulated_runtime.h"
#include "tests/kernels/status_matchers.h"

namespace sru::kernels::cuda {
namespace {

using ::sru::testing::kSimulatedDevices;
using ::sru::testing::ProductsFail;
using ::sru::testing::SimulatedDevice;
using ::sru::testing::SimulatedDeviceAt;
using ::sru::testing::SimulatedDriverVersion;
using ::testing::HasSubstr;

// Whatever launches a kernel, each with sizes of which a grid is not empty.
struct NamedLaunch {
  const char* name;
  Status (*launch)(Stream&);
};
constexpr NamedLaunch kLaunches[] = {
    {"embedding",
     [](Stream& stream) {
       EmbedArgs args{};
       args.max_tokens = args.segments = 1;
       args.size = args.padded = 8;
       return stream.RunOperation(args);
     }},
    {"layer norm",
     [](Stream& stream) {
       NormalizeRowsArgs args{};
       args.max_rows = 16;
       args.dtype = DataType::kBFloat16;
       return stream.RunOperation(args);
     }},
    {"scan",
     [](Stream& stream) {
       ScanArgs args{};
       args.num_sequences = args.directions = 1;
       args.padded = 8;
       args.matrices = 3;
       return stream.Scan(DataType::kFloat32, args);
     }},
    {"fused layer",
     [](Stream& stream) {
       FusedArgs args{};
       args.scan.num_sequences = args.scan.directions = 1;
       args.scan.padded = 8;
       args.scan.matrices = 3;
       args.k = 64;
       return stream.RunFusedLayer(args);
     }},
    {"pooling",
     [](Stream& stream) {
       PoolArgs args{};
       args.dtype = DataType::kBFloat16;
       args.num_sequences = args.segments = 1;
       args.padded = 8;
       return stream.RunOperation(args);
     }},
    {"classifier",
     [](Stream& stream) {
       HeadArgs args{};
       args.num_sequences = args.labels = 1;
       return stream.RunOperation(args);
     }},
    {"comparison",
     [](Stream& stream) {
       CompareArgs args{};
       args.rows = args.words_per_row = args.period = 1;
       return stream.RunOperation(args);
     }},
    {"product",
     [](Stream& stream) {
       const ProductShape shape{8, 8, DataType::kBFloat16, false};
       return stream.Multiply(shape, ProductAlgorithm{true, {}}, 64, nullptr, nullptr, nullptr);
     }},
    {"operation",
     [](Stream& stream) {
       AddBiasArgs args{};
       args.max_rows = 1;
       args.stride = 8;
       return stream.RunOperation(args);
     }},
};

class CudaDeviceTest : public ::testing::Test {
 protected:
  CudaDeviceTest() {
    std::vector<std::string> warnings;
    EXPECT_THAT(OpenDevices(SystemDriver(), {}, &devices_, &warnings), IsOk());
    EXPECT_EQ(devices_.size(), static_cast<size_t>(kSimulatedDevices));
    for (const std::unique_ptr<Device>& device : devices_) {
      EXPECT_TRUE(device->CreateStream(nullptr, &streams_.emplace_back()).ok());
      SimulatedDeviceAt(device->ordinal()).waits = 0;  // for its check
    }
  }
  ~CudaDeviceTest() override {
    streams_.clear();
    devices_.clear();
    for (int i = 0; i < kSimulatedDevices; ++i) {
      SimulatedDevice& device = SimulatedDeviceAt(i);
      EXPECT_EQ(device.streams_alive, 0);
      EXPECT_EQ(device.graphs_alive, 0);
      EXPECT_EQ(device.recordings_alive, 0);
      EXPECT_EQ(device.allocations_alive, 0);
      device.failed = device.error = cudaSuccess;
      device.failing_call.clear();
      device.calls_until_failure = -1;
      device.launches = device.waits = device.queries_until_done = 0;
      device.compute_capability = 9;
      device.ptx_version = 90;
      device.computes = true;
      device.clustered_launches = 0;
      device.active_clusters = 33;
    }
    ProductsFail() = false;
    SimulatedDriverVersion() = CUDART_VERSION;
    (void)cudaGetLastError();
  }

  void ExpectThatLaunchesWork(Stream& stream) {
    for (const NamedLaunch& launch : kLaunches) {
      const Status status = launch.launch(stream);
      EXPECT_TRUE(status.ok()) << launch.name << ": " << status.message();
    }
    EXPECT_THAT(stream.Wait(), IsOk());
  }

  std::vector<std::unique_ptr<Device>> devices_;
  std::vector<std::unique_ptr<Stream>> streams_;
};

TEST_F(CudaDeviceTest, EveryLaunchReachesItsDevice) {
  ExpectThatLaunchesWork(*streams_[1]);
  EXPECT_EQ(SimulatedDeviceAt(1).launches, static_cast<int64_t>(std::size(kLaunches)));
  EXPECT_EQ(SimulatedDeviceAt(0).launches, 0);
}

TEST_F(CudaDeviceTest, ALostDeviceDoesNotTakeAnotherAlong) {
  SimulatedDeviceAt(0).failed = cudaErrorIllegalAddress;
  for (const NamedLaunch& launch : kLaunches) {
    SCOPED_TRACE(launch.name);
    const Status lost = launch.launch(*streams_[0]);
    EXPECT_EQ(lost.code(), StatusCode::kDeviceLost) << lost.message();
    const Status other = launch.launch(*streams_[1]);  // by the same thread
    EXPECT_TRUE(other.ok()) << other.message();
  }
}

TEST_F(CudaDeviceTest, ProductsMayUseMoreMemoryOnNewerGpus) {
  SimulatedDeviceAt(0).compute_capability = 8;
  std::vector<std::unique_ptr<Device>> devices;
  std::vector<std::string> warnings;
  ASSERT_TRUE(OpenDevices(SystemDriver(), {}, &devices, &warnings).ok());
  EXPECT_EQ(devices[0]->product_workspace_bytes(), size_t{4} << 20);
  EXPECT_EQ(devices[1]->product_workspace_bytes(), size_t{32} << 20);
}

TEST_F(CudaDeviceTest, InitializingWritesTheMemory) {
  void* memory = nullptr;
  ASSERT_TRUE(devices_[0]->Allocate(16, &memory).ok());
  std::memset(memory, 0xff, 16);
  ASSERT_TRUE(streams_[0]->Initialize(memory, 16).ok());
  EXPECT_TRUE(streams_[0]->Wait().ok());
  EXPECT_EQ(std::string(static_cast<char*>(memory), 16), std::string(16, '\0'));
  devices_[0]->Free(memory);
}

// As left behind by whatever else the thread has called.
TEST_F(CudaDeviceTest, ALaunchTakesNoOtherErrorForItsOwn) {
  for (const NamedLaunch& launch : kLaunches) {
    SCOPED_TRACE(launch.name);
    SimulatedDeviceAt(0).failed = cudaErrorIllegalAddress;
    EXPECT_NE(cudaSetDevice(0), cudaSuccess);
    EXPECT_THAT(launch.launch(*streams_[1]), IsOk());
  }
}

TEST_F(CudaDeviceTest, IgnoredErrorsOfALostDeviceLeaveNothingBehind) {
  void* memory = nullptr;
  void* pinned = nullptr;
  std::unique_ptr<Graph> graph;
  ASSERT_TRUE(devices_[0]->Allocate(16, &memory).ok());
  ASSERT_TRUE(devices_[0]->AllocatePinned(16, &pinned).ok());
  ASSERT_TRUE(streams_[0]->Record([] { return OkStatus(); }, &graph).ok());
  SimulatedDeviceAt(0).failed = cudaErrorECCUncorrectable;
  const auto expect_nothing = [](const char* after) {
    EXPECT_EQ(cudaGetLastError(), cudaSuccess) << after;
  };
  EXPECT_EQ(devices_[0]->free_memory(), 0u);
  expect_nothing("free_memory");
  graph.reset();
  expect_nothing("~Graph");
  devices_[0]->Free(memory);
  expect_nothing("Free");
  devices_[0]->FreePinned(pinned);
  expect_nothing("FreePinned");
  EXPECT_EQ(streams_[0]->Wait().code(), StatusCode::kDeviceLost);
  expect_nothing("Wait");
  streams_[0].reset();
  expect_nothing("~Stream");
  devices_[0].reset();
  expect_nothing("~Device");
  ExpectThatLaunchesWork(*streams_[1]);
}

TEST_F(CudaDeviceTest, AFailedOccupancyQueryIsNoErrorOfTheLaunch) {
  SimulatedDeviceAt(0).failing_call = "cudaOccupancyMaxActiveBlocksPerMultiprocessor";
  SimulatedDeviceAt(0).error = cudaErrorInvalidValue;
  ExpectThatLaunchesWork(*streams_[0]);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST_F(CudaDeviceTest, ErrorsForGoodAreKnown) {
  for (cudaError_t error :
       {cudaErrorIllegalAddress, cudaErrorLaunchFailure, cudaErrorECCUncorrectable,
        cudaErrorContained, cudaErrorTensorMemoryLeak, cudaErrorDevicesUnavailable,
        cudaErrorDeviceUninitialized, cudaErrorSystemNotReady, cudaErrorMpsConnectionFailed,
        cudaErrorMpsRpcFailure, cudaErrorMpsServerNotReady, cudaErrorMpsClientTerminated}) {
    SimulatedDeviceAt(0).failed = error;
    EXPECT_EQ(streams_[0]->Wait().code(), StatusCode::kDeviceLost) << error;
  }
  SimulatedDevice& device = SimulatedDeviceAt(0);
  device.failed = cudaSuccess;
  device.failing_call = "cudaEventSynchronize";
  device.error = cudaErrorLaunchOutOfResources;
  EXPECT_EQ(streams_[0]->Wait().code(), StatusCode::kInternal);
  device.error = cudaErrorMemoryAllocation;
  EXPECT_EQ(streams_[0]->Wait().code(), StatusCode::kResourceExhausted);
  // Nothing says that the work is over, so its memory may be in use.
  device.failed = cudaErrorMemoryAllocation;
  EXPECT_EQ(streams_[0]->Wait().code(), StatusCode::kDeviceLost);
}

TEST_F(CudaDeviceTest, AProbeSaysWhetherTheDeviceWorks) {
  EXPECT_TRUE(devices_[0]->Probe().ok());
  SimulatedDevice& device = SimulatedDeviceAt(0);
  device.error = cudaErrorLaunchOutOfResources;  // not known to be for good
  for (const char* call : {"cudaMemsetAsync", "cudaEventRecord", "cudaEventSynchronize"}) {
    device.failing_call = call;
    EXPECT_FALSE(devices_[0]->Probe().ok()) << call;
    EXPECT_TRUE(devices_[1]->Probe().ok()) << call;
  }
}

TEST_F(CudaDeviceTest, AWaitPollsIfItIsToldTo) {
  SimulatedDevice& device = SimulatedDeviceAt(0);
  device.queries_until_done = 3;
  EXPECT_TRUE(streams_[0]->Wait().ok());
  EXPECT_EQ(device.waits, 1);
  EXPECT_EQ(device.queries_until_done, 3);

  streams_[0]->set_poll(std::chrono::hours(1));
  EXPECT_TRUE(streams_[0]->Wait().ok());
  EXPECT_EQ(device.waits, 1);
  EXPECT_EQ(device.queries_until_done, 0);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);

  // It is not done in that time.
  streams_[0]->set_poll(std::chrono::microseconds(1));
  device.queries_until_done = int64_t{1} << 40;
  EXPECT_TRUE(streams_[0]->Wait().ok());
  EXPECT_EQ(device.waits, 2);
  EXPECT_LT(device.queries_until_done, int64_t{1} << 40);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST_F(CudaDeviceTest, AWaitForAGraphPollsForAsLongAsItsRunsTake) {
  const auto run = [&](Graph& graph) {
    SimulatedDeviceAt(0).queries_until_done = int64_t{1} << 40;
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_TRUE(RunWork(*streams_[0], [&] { return streams_[0]->Launch(graph); }).ok());
    return std::chrono::steady_clock::now() - begin;
  };
  const auto record = [&](std::unique_ptr<Graph>* graph) {
    ASSERT_TRUE(streams_[0]->Record([] { return OkStatus(); }, graph).ok());
  };
  constexpr std::chrono::microseconds kLong(500);
  constexpr std::chrono::milliseconds kTooLongToPoll(1);
  // The first one's run is long, since its wait polls; no longer, if this thread is not held up.
  std::unique_ptr<Graph> graphs[2];
  std::chrono::steady_clock::duration first = kTooLongToPoll;
  for (int i = 0; i < 1000 && first >= kTooLongToPoll; ++i) {
    record(&graphs[0]);
    streams_[0]->set_poll(kLong);
    first = run(*graphs[0]);
    EXPECT_GE(first, kLong);
  }
  const int waits = SimulatedDeviceAt(0).waits;
  streams_[0]->set_poll(std::chrono::microseconds(1));
  EXPECT_GE(run(*graphs[0]), kLong);
  EXPECT_EQ(SimulatedDeviceAt(0).waits, waits + 1);
  // Of the other one nothing is known: its wait is short at least once.
  record(&graphs[1]);
  auto shortest = run(*graphs[1]);
  for (int i = 0; i < 100 && shortest >= kLong; ++i) shortest = run(*graphs[1]);
  EXPECT_LT(shortest, kLong);
}

TEST(PollTimeTest, PollsForTheUsualTimeAndAMarginUpToALimit) {
  using std::chrono::microseconds;
  PollTime time;
  EXPECT_EQ(time.After(microseconds(50)), microseconds(50));
  time.Add(microseconds(400));
  EXPECT_EQ(time.After(microseconds(50)), microseconds(450));
  EXPECT_EQ(time.After(microseconds(0)), microseconds(0));
  time.Add(microseconds(1200));
  EXPECT_EQ(time.After(microseconds(50)), microseconds(550)) << "a mean";
  for (int i = 0; i < 50; ++i) time.Add(microseconds(3000));
  EXPECT_EQ(time.After(microseconds(50)), microseconds(50)) << "too long to poll for";
  for (int i = 0; i < 50; ++i) time.Add(microseconds(10));
  EXPECT_LT(time.After(microseconds(50)), microseconds(100));
}

TEST_F(CudaDeviceTest, AnErrorEndsThePolling) {
  streams_[0]->set_poll(std::chrono::hours(1));
  SimulatedDevice& device = SimulatedDeviceAt(0);
  device.failing_call = "cudaEventQuery";
  device.error = cudaErrorIllegalAddress;
  EXPECT_TRUE(streams_[0]->Wait().ok());  // what the wait says counts
  EXPECT_EQ(device.waits, 1);
  device.failed = cudaErrorIllegalAddress;
  EXPECT_EQ(streams_[0]->Wait().code(), StatusCode::kDeviceLost);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

// The library says that it has failed, and the wait says why.
TEST_F(CudaDeviceTest, AProductOnALostDeviceEndsAsALoss) {
  ProductsFail() = true;
  const auto multiply = [this] {
    return RunWork(*streams_[0], [this] {
      return streams_[0]->Multiply(ProductShape(), ProductAlgorithm(), 16, nullptr, nullptr,
                                   nullptr);
    });
  };
  EXPECT_EQ(multiply().code(), StatusCode::kInternal);
  SimulatedDeviceAt(0).failing_call = "cudaEventSynchronize";
  SimulatedDeviceAt(0).error = cudaErrorIllegalAddress;
  EXPECT_EQ(multiply().code(), StatusCode::kDeviceLost);
}

TEST_F(CudaDeviceTest, AProductIsTimed) {
  double seconds = 0;
  std::vector<uint8_t> evicting(100);
  const auto time = [&] {
    const ProductShape shape{8, 8, DataType::kFloat32, false};
    return streams_[0]->TimeProduct(shape, ProductAlgorithm{true, {}}, 16, nullptr, nullptr,
                                    nullptr, {evicting.data(), evicting.size()}, &seconds);
  };
  ASSERT_THAT(time(), IsOk());
  EXPECT_DOUBLE_EQ(seconds, 1e-3);  // of one launch
  SimulatedDevice& device = SimulatedDeviceAt(0);
  device.error = cudaErrorLaunchOutOfResources;
  for (const char* call : {"cudaEventCreateWithFlags", "cudaMemsetAsync", "cudaLaunchKernelExC",
                           "cudaEventRecord", "cudaEventElapsedTime"}) {
    device.failing_call = call;
    EXPECT_FALSE(time().ok()) << call;
    device.failing_call.clear();
    ExpectThatLaunchesWork(*streams_[0]);
  }
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST_F(CudaDeviceTest, ARecordingThatFailsEndsTheCapture) {
  std::unique_ptr<Graph> graph;
  for (const char* call : {"cudaStreamBeginCapture", "cudaStreamEndCapture", "cudaGraphInstantiate",
                           "cudaLaunchKernelExC"}) {
    SCOPED_TRACE(call);
    SimulatedDeviceAt(0).failing_call = call;
    SimulatedDeviceAt(0).error = cudaErrorStreamCaptureInvalidated;
    const Status status =
        streams_[0]->Record([this] { return kLaunches[0].launch(*streams_[0]); }, &graph);
    EXPECT_THAT(status, IsError(StatusCode::kInternal, HasSubstr("device 0: ")));
    EXPECT_EQ(graph, nullptr);
    SimulatedDeviceAt(0).failing_call.clear();
    ExpectThatLaunchesWork(*streams_[0]);
  }
}

TEST_F(CudaDeviceTest, ARecordingThatThrowsEndsTheCapture) {
  std::unique_ptr<Graph> graph;
  const auto enqueue = [this]() -> Status {
    EXPECT_TRUE(kLaunches[0].launch(*streams_[0]).ok());
    throw std::bad_alloc();
  };
  EXPECT_THROW((void)streams_[0]->Record(enqueue, &graph), std::bad_alloc);
  EXPECT_EQ(graph, nullptr);
  EXPECT_EQ(SimulatedDeviceAt(0).streams_capturing, 0);
  ExpectThatLaunchesWork(*streams_[0]);
  ASSERT_TRUE(
      streams_[0]->Record([this] { return kLaunches[0].launch(*streams_[0]); }, &graph).ok());
}

// A batch as the backend runs it, in which each call in turn fails or each step in turn throws.
TEST_F(CudaDeviceTest, WhateverFailsTheStreamIsIdleAfterwards) {
  SimulatedDevice& device = SimulatedDeviceAt(0);
  Stream& stream = *streams_[0];
  char from[16] = {};
  char to[16];
  int steps_until_throw = -1;
  const auto step = [&](Status status) {
    if (steps_until_throw-- == 0) throw std::bad_alloc();
    return status;
  };
  const auto run = [&] {
    std::unique_ptr<Graph> graph;
    const auto enqueue = [&] {
      for (const NamedLaunch& launch : kLaunches) {
        SRU_RETURN_IF_ERROR(step(launch.launch(stream)));
      }
      return OkStatus();
    };
    return RunWork(stream, [&] {
      SRU_RETURN_IF_ERROR(step(stream.Record(enqueue, &graph)));
      SRU_RETURN_IF_ERROR(step(stream.CopyToDevice(to, from, sizeof(to))));
      SRU_RETURN_IF_ERROR(step(stream.Launch(*graph)));
      SRU_RETURN_IF_ERROR(enqueue());
      return step(stream.CopyToHost(from, to, sizeof(to)));
    });
  };
  const auto expect_idle = [&] {
    EXPECT_EQ(device.streams_capturing, 0);
    EXPECT_EQ(device.streams_busy, 0);
    EXPECT_EQ(device.recordings_alive, 0);
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
    ExpectThatLaunchesWork(stream);
  };
  device.error = cudaErrorLaunchOutOfResources;
  int calls = 0;
  for (bool failed = true; failed; ++calls) {
    SCOPED_TRACE(calls);
    device.calls_until_failure = calls;
    const Status status = run();
    failed = device.calls_until_failure < 0;
    device.calls_until_failure = -1;
    EXPECT_TRUE(failed || status.ok()) << status.message();
    expect_idle();
  }
  EXPECT_GT(calls, 40);
  int steps = 0;
  for (bool threw = true; threw; ++steps) {
    SCOPED_TRACE(steps);
    steps_until_throw = steps;
    threw = false;
    try {
      EXPECT_TRUE(run().ok());
    } catch (const std::bad_alloc&) {
      threw = true;
    }
    expect_idle();
  }
  EXPECT_GT(steps, 20);
}

// A Predict of a few rows of a large vocabulary.
Status LaunchPredict(Stream& stream, int rows) {
  PredictArgs args{};
  args.max_rows = rows;
  args.vocabulary_size = kSmallVocabulary + 1;
  return stream.RunOperation(args);
}

TEST_F(CudaDeviceTest, FewRowsAreClusteredWhereTheDeviceAndItsCodeHaveClusters) {
  struct Case {
    int compute_capability;
    int ptx_version;
    int active_clusters;
    const char* failing_call;
    int64_t clustered;
  };
  for (const Case& a_case : {Case{9, 90, 33, "", 2}, Case{8, 90, 33, "", 0}, Case{9, 90, 0, "", 0},
                             Case{9, 90, 33, "cudaOccupancyMaxActiveClusters", 0},
                             Case{9, 89, 33, "", 0}, Case{12, 80, 33, "", 0}}) {
    SCOPED_TRACE(std::to_string(a_case.compute_capability) + a_case.failing_call);
    SCOPED_TRACE(a_case.ptx_version);
    SimulatedDevice& simulated = SimulatedDeviceAt(0);
    simulated.compute_capability = a_case.compute_capability;
    simulated.ptx_version = a_case.ptx_version;
    simulated.active_clusters = a_case.active_clusters;
    simulated.failing_call = a_case.failing_call;
    simulated.error = cudaErrorInvalidValue;
    simulated.launches = simulated.clustered_launches = 0;
    std::unique_ptr<Device> device;
    ASSERT_TRUE(SystemDriver()->Open(0, &device).ok());
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
    std::unique_ptr<Stream> stream;
    ASSERT_TRUE(device->CreateStream(nullptr, &stream).ok());
    const int rows = MaxClusteredRows(simulated.multiprocessors);
    EXPECT_TRUE(LaunchPredict(*stream, rows + 1).ok());
    EXPECT_EQ(simulated.clustered_launches, 0);
    EXPECT_TRUE(LaunchPredict(*stream, rows).ok());
    std::unique_ptr<Graph> graph;
    EXPECT_TRUE(stream->Record([&] { return LaunchPredict(*stream, 1); }, &graph).ok());
    EXPECT_EQ(simulated.launches, 3);
    EXPECT_EQ(simulated.clustered_launches, a_case.clustered);
  }
}

TEST_F(CudaDeviceTest, ADeviceThatAnswersWronglyIsRefusedByName) {
  SimulatedDeviceAt(1).computes = false;
  std::vector<std::unique_ptr<Device>> devices;
  std::vector<std::string> warnings;
  EXPECT_THAT(
      OpenDevices(SystemDriver(), {1}, &devices, &warnings),
      IsError(StatusCode::kUnavailable, HasSubstr("device 1 (simulated): it answers wrongly")));
  // The others serve without it.
  EXPECT_THAT(OpenDevices(SystemDriver(), {}, &devices, &warnings), IsOk());
  ASSERT_EQ(devices.size(), 1u);
  EXPECT_EQ(devices[0]->ordinal(), 0);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_THAT(warnings[0], HasSubstr("device 1 (simulated): it answers wrongly"));
}

// With clusters and without: what the check expects is right.
TEST_F(CudaDeviceTest, ADeviceThatAnswersRightlyIsOpened) {
  for (const int ptx_version : {80, 90}) {
    SimulatedDeviceAt(0).ptx_version = ptx_version;
    std::unique_ptr<Device> device;
    EXPECT_THAT(SystemDriver()->Open(0, &device), IsOk());
  }
}

TEST_F(CudaDeviceTest, AnyThreadMayUseADevice) {
  std::thread([this] { ExpectThatLaunchesWork(*streams_[1]); }).join();
  EXPECT_EQ(SimulatedDeviceAt(1).launches, static_cast<int64_t>(std::size(kLaunches)));
}

}  // namespace
}  // namespace sru::kernels::cuda
