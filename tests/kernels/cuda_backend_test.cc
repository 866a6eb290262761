// The host side of the CUDA backend on a device that is the host (cuda_host/): buckets, graph
// cache, choice of algorithms, memory budget, several devices and their failure. What it computes
// is tested by backend_cuda_host and golden_cuda_host.
#include "kernels/cuda/cuda_backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/bucket.h"
#include "kernels/cuda/fused_shape.h"
#include "kernels/cuda/graph_cache.h"
#include "tests/kernels/cuda_host/host_device.h"
#include "tests/testing/random_stack.h"

namespace sru::kernels::cuda {
namespace {

using ::sru::testing::HostDeviceControl;
using ::sru::testing::HostDeviceOptions;
using ::sru::testing::MakeHostDevice;
using ::sru::testing::OutputArrays;
using ::sru::testing::RandomBatch;
using ::sru::testing::RandomStack;
using ::sru::testing::StackOptions;
using ::testing::HasSubstr;

TEST(BucketTest, TokenBucketsWasteAtMostAnEighth) {
  for (int max_tokens : {1, 16, 17, 100, 128, 129, 1000, 16384, 20000}) {
    const std::vector<int> buckets = TokenBuckets(max_tokens);
    ASSERT_GE(buckets.size(), 2u);
    EXPECT_GE(buckets[buckets.size() - 2], max_tokens);
    if (buckets.size() > 2) {
      EXPECT_LT(buckets[buckets.size() - 3], max_tokens);
    }
    for (size_t i = 0; i < buckets.size(); ++i) {
      EXPECT_EQ(buckets[i] % 16, 0);
      const int step = buckets[i] - (i == 0 ? 0 : buckets[i - 1]);
      EXPECT_GT(step, 0);
      if (buckets[i] > 144) {
        EXPECT_LE(step * 8, buckets[i - 1]) << buckets[i];
      }
    }
  }
}

TEST(BucketTest, SequenceBucketsArePowersOfTwoUpToTheLimit) {
  EXPECT_EQ(SequenceBucket(1, 64), 1);
  EXPECT_EQ(SequenceBucket(3, 64), 4);
  EXPECT_EQ(SequenceBucket(64, 64), 64);
  EXPECT_EQ(SequenceBucket(33, 40), 40);
}

TEST(BucketTest, OrderTellsEveryFieldApart) {
  const Bucket a{16, 1, 1};
  for (const Bucket& b : {Bucket{32, 1, 1}, Bucket{16, 2, 1}, Bucket{16, 1, 2}}) {
    EXPECT_TRUE(a < b);
    EXPECT_FALSE(b < a);
  }
  EXPECT_FALSE(a < a);
}

class CountedGraph : public Graph {
 public:
  explicit CountedGraph(int* alive) : alive_(alive) { ++*alive_; }
  ~CountedGraph() override { --*alive_; }

 private:
  int* alive_;
};

TEST(GraphCacheTest, DropsTheLeastRecentlyUsed) {
  int alive = 0;
  GraphCache cache(2);
  const Bucket a{16, 1, 1};
  const Bucket b{32, 1, 1};
  const Bucket c{48, 1, 1};
  EXPECT_EQ(cache.Find(a), nullptr);
  Graph* const graph_a = cache.Insert(a, std::make_unique<CountedGraph>(&alive));
  cache.Insert(b, std::make_unique<CountedGraph>(&alive));
  EXPECT_EQ(cache.Find(a), graph_a);
  cache.Insert(c, std::make_unique<CountedGraph>(&alive));  // b was not used since
  EXPECT_EQ(alive, 2);
  EXPECT_EQ(cache.Find(b), nullptr);
  EXPECT_EQ(cache.Find(a), graph_a);
  EXPECT_NE(cache.Find(c), nullptr);
  cache.Clear();
  EXPECT_EQ(alive, 0);
  EXPECT_EQ(cache.Find(a), nullptr);
}

// A backend on host devices, with what a test needs of it. The devices outlive the workspaces.
struct Rig {
  explicit Rig(int num_devices = 1, BackendOptions options = {}, HostDeviceOptions device = {}) {
    std::vector<std::unique_ptr<Device>> devices;
    for (int i = 0; i < num_devices; ++i) {
      controls.push_back(std::make_unique<HostDeviceControl>());
      device.ordinal = i;
      devices.push_back(MakeHostDevice(device, controls.back().get()));
    }
    backend = MakeCudaBackend(options, std::move(devices));
  }

  Status Compile(const StackSpec& spec) { return backend->Compile(spec, compile, &executable); }
  Status MakeWorkspace(const WorkspaceLimits& limits) {
    return executable->CreateWorkspace(limits, &workspaces.emplace_back());
  }
  Status Run(const RaggedBatch& batch, const OutputArrays& outputs, size_t workspace = 0) {
    return executable->Run(batch, outputs.outputs.data(), *workspaces[workspace]);
  }
  // Compiles and makes one workspace per device.
  void Prepare(const StackSpec& spec, WorkspaceLimits limits = {256, 8}) {
    Status status = Compile(spec);
    ASSERT_TRUE(status.ok()) << status.message();
    for (int i = 0; i < executable->num_devices(); ++i) {
      limits.device = i;
      status = MakeWorkspace(limits);
      ASSERT_TRUE(status.ok()) << status.message();
    }
  }

  std::vector<std::unique_ptr<HostDeviceControl>> controls;
  std::unique_ptr<Backend> backend;
  CompileOptions compile;
  std::unique_ptr<Executable> executable;
  std::vector<std::unique_ptr<Workspace>> workspaces;
};

TEST(CudaBackendTest, RecordsOncePerBucketAndReplaysWithEachBatch) {
  const RandomStack stack(StackOptions(), 1);
  Rig rig;
  ASSERT_NO_FATAL_FAILURE(rig.Prepare(stack.spec()));
  // All in the bucket of 48 tokens and 4 sequences, with other lengths and tokens.
  const std::vector<std::vector<int>> batches = {{10, 20, 5}, {1, 2, 3, 40}, {30, 9, 1, 1}};
  for (size_t i = 0; i < batches.size(); ++i) {
    const RandomBatch batch(stack.spec(), batches[i], false, static_cast<unsigned>(i));
    const OutputArrays outputs(stack.spec(), batch.view(), Pooling::kMax);
    ASSERT_TRUE(rig.Run(batch.view(), outputs).ok());
    EXPECT_NE(outputs.pooled[0], OutputArrays::kUnwritten);
  }
  EXPECT_EQ(rig.controls[0]->graphs_recorded, 1);
  EXPECT_EQ(rig.controls[0]->graph_launches, 3);

  // Other outputs are another graph.
  const RandomBatch batch(stack.spec(), {10, 20, 5}, false, 1);
  OutputArrays outputs(stack.spec(), batch.view(), Pooling::kMax);
  for (SequenceOutput& out : outputs.outputs) out.token_vectors = nullptr;
  ASSERT_TRUE(rig.Run(batch.view(), outputs).ok());
  EXPECT_EQ(rig.controls[0]->graphs_recorded, 2);
}

TEST(CudaBackendTest, GraphsAreBoundedAndServingAllocatesNothing) {
  StackOptions options;
  options.hidden_size = 8;
  options.input_size = 8;
  const RandomStack stack(options, 1);
  Rig rig;
  ASSERT_NO_FATAL_FAILURE(rig.Prepare(stack.spec(), {256, 64}));
  const int64_t allocations = rig.controls[0]->allocations;
  for (int sequences = 1; sequences <= 64; sequences *= 2) {
    for (int tokens = 64; tokens <= 256; tokens += 16) {
      std::vector<int> lengths(sequences, 1);
      lengths[0] = tokens - sequences + 1;
      const RandomBatch batch(stack.spec(), lengths, false, 1);
      const OutputArrays outputs(stack.spec(), batch.view(), Pooling::kMax);
      ASSERT_TRUE(rig.Run(batch.view(), outputs).ok());
    }
  }
  EXPECT_GT(rig.controls[0]->graphs_recorded, 64);
  EXPECT_EQ(rig.controls[0]->graphs_alive, 64);
  EXPECT_EQ(rig.controls[0]->allocations, allocations);
  rig.workspaces.clear();
  EXPECT_EQ(rig.controls[0]->graphs_alive, 0);
}

TEST(CudaBackendTest, BothScanWidthsGiveTheSameBits) {
  const RandomStack stack(StackOptions(), 3);
  const RandomBatch batch(stack.spec(), {1, 40, 7, 8, 9, 16, 17}, true, 4);
  std::vector<float> results[2];
  for (int i = 0; i < 2; ++i) {
    HostDeviceOptions device;
    device.num_multiprocessors = i == 0 ? 1 : 1000;
    Rig rig(1, {}, device);
    ASSERT_NO_FATAL_FAILURE(rig.Prepare(stack.spec()));
    const OutputArrays outputs(stack.spec(), batch.view(), Pooling::kMax);
    ASSERT_TRUE(rig.Run(batch.view(), outputs).ok());
    results[i] = outputs.token_vectors;
  }
  EXPECT_EQ(results[0], results[1]);
}

// The token vectors of a batch, in bfloat16, with or without fused layers.
std::vector<float> RunBFloat16(const RandomStack& stack, const RandomBatch& batch, bool fuse_layers,
                               int num_multiprocessors, int64_t* fused_layers) {
  BackendOptions options;
  options.cuda_fuse_layers = fuse_layers;
  HostDeviceOptions device;
  device.num_multiprocessors = num_multiprocessors;
  Rig rig(1, options, device);
  rig.compile.dtype = DataType::kBFloat16;
  rig.Prepare(stack.spec());
  const OutputArrays outputs(stack.spec(), batch.view(), Pooling::kMax);
  const Status status = rig.Run(batch.view(), outputs);
  EXPECT_TRUE(status.ok()) << status.message();
  *fused_layers = rig.controls[0]->fused_layers;
  return outputs.token_vectors;
}

double SquaredError(const std::vector<float>& values, const std::vector<float>& expected) {
  double sum = 0.0;
  for (size_t i = 0; i < values.size(); ++i) {
    sum += (values[i] - expected[i]) * (values[i] - expected[i]);
  }
  return sum;
}

// Rows for each of the kernels, full and with padding, one and two directions, one slice and two.
TEST(FusedLayerTest, GivesTheSameBitsInEveryLaunchShape) {
  for (int input : {24, 64, 100, 128, 250, 256, 400, 512}) {
    for (int directions : {1, 2}) {
      SCOPED_TRACE(::testing::Message() << input << " values, directions: " << directions);
      StackOptions options;
      options.vocabulary_size = 0;
      options.input_size = input;
      options.hidden_size = 37;
      options.num_layers = 1;
      options.directions = directions;
      const RandomStack stack(options, 3);
      const RandomBatch batch(stack.spec(), {1, 40, 7, 15, 16, 17, 33}, true, 4);
      int64_t fused = 0;
      const std::vector<float> few = RunBFloat16(stack, batch, true, 1, &fused);
      EXPECT_EQ(fused, 1);
      const std::vector<float> many = RunBFloat16(stack, batch, true, 1000, &fused);
      EXPECT_EQ(few, many);

      const std::vector<float> apart = RunBFloat16(stack, batch, false, 1, &fused);
      EXPECT_EQ(fused, 0);
      std::unique_ptr<Backend> reference;
      ASSERT_TRUE(CreateBackend("reference", &reference).ok());
      std::unique_ptr<Executable> executable;
      ASSERT_TRUE(reference->Compile(stack.spec(), CompileOptions(), &executable).ok());
      std::unique_ptr<Workspace> workspace;
      ASSERT_TRUE(executable->CreateWorkspace({256, 8}, &workspace).ok());
      const OutputArrays expected(stack.spec(), batch.view(), Pooling::kMax);
      ASSERT_TRUE(executable->Run(batch.view(), expected.outputs.data(), *workspace).ok());
      // U is not rounded.
      EXPECT_LT(SquaredError(few, expected.token_vectors),
                SquaredError(apart, expected.token_vectors));
    }
  }
}

TEST(FusedLayerTest, LongerRowsAndFloat32AreNotFused) {
  StackOptions options;
  options.vocabulary_size = 0;
  options.input_size = kFusedMaxInput + 1;
  options.num_layers = 1;
  const RandomStack stack(options, 3);
  const RandomBatch batch(stack.spec(), {3, 20}, false, 4);
  int64_t fused = 0;
  EXPECT_EQ(RunBFloat16(stack, batch, true, 1, &fused),
            RunBFloat16(stack, batch, false, 1, &fused));
  EXPECT_EQ(fused, 0);

  BackendOptions fuse;
  fuse.cuda_fuse_layers = true;
  const RandomStack narrow(StackOptions(), 3);
  Rig rig(1, fuse);
  ASSERT_NO_FATAL_FAILURE(rig.Prepare(narrow.spec()));
  const RandomBatch tokens(narrow.spec(), {3, 20}, false, 4);
  const OutputArrays outputs(narrow.spec(), tokens.view(), Pooling::kMax);
  ASSERT_TRUE(rig.Run(tokens.view(), outputs).ok());
  EXPECT_EQ(rig.controls[0]->fused_layers, 0);
}

// Their U is in no memory, and their products need none of the library's algorithms.
TEST(FusedLayerTest, NeedsNeitherUNorTheLibrary) {
  StackOptions options;
  options.vocabulary_size = 0;
  const RandomStack stack(options, 3);
  size_t bytes[2];
  for (bool fuse : {false, true}) {
    BackendOptions backend;
    backend.cuda_fuse_layers = fuse;
    Rig rig(1, backend);
    rig.compile.dtype = DataType::kBFloat16;
    rig.controls[0]->unstable_rows = fuse ? 16 : 0;  // AProductWithoutAStableAlgorithmIsRefused
    ASSERT_NO_FATAL_FAILURE(rig.Prepare(stack.spec()));
    bytes[fuse] = rig.workspaces[0]->bytes();
  }
  EXPECT_LT(bytes[true], bytes[false]);
}

TEST(CudaBackendTest, AProductWithoutAStableAlgorithmIsRefused) {
  const RandomStack stack(StackOptions(), 1);
  Rig rig;
  // The rows that everything is compared with.
  rig.controls[0]->unstable_rows = 16;
  const Status status = rig.Compile(stack.spec());
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_THAT(status.message(), HasSubstr("do not depend on the batch"));
}

TEST(CudaBackendTest, ABucketWithoutAStableAlgorithmUsesALargerOne) {
  const RandomStack stack(StackOptions(), 1);
  const RandomBatch batch(stack.spec(), {20, 7}, false, 2);
  std::vector<float> results[2];
  for (int i = 0; i < 2; ++i) {
    Rig rig;
    // Also the largest that the limits ask for.
    rig.controls[0]->unstable_rows = i == 0 ? 0 : 32;
    ASSERT_NO_FATAL_FAILURE(rig.Prepare(stack.spec(), {27, 2}));
    const OutputArrays outputs(stack.spec(), batch.view(), Pooling::kMax);
    ASSERT_TRUE(rig.Run(batch.view(), outputs).ok());
    results[i] = outputs.token_vectors;
  }
  EXPECT_EQ(results[0], results[1]);
}

TEST(CudaBackendTest, MemoryIsReportedAndGivenBack) {
  const RandomStack stack(StackOptions(), 1);
  BackendOptions options;
  options.cuda_memory_limit_bytes = size_t{64} << 20;
  Rig rig(1, options);
  ASSERT_NO_FATAL_FAILURE(rig.Prepare(stack.spec()));
  std::vector<DeviceInfo> devices = rig.backend->devices();
  ASSERT_EQ(devices.size(), 1u);
  EXPECT_EQ(devices[0].name, "host");
  EXPECT_EQ(devices[0].memory_bytes, HostDeviceOptions().total_memory);
  EXPECT_EQ(devices[0].memory_limit, options.cuda_memory_limit_bytes);
  EXPECT_EQ(static_cast<int64_t>(devices[0].memory_in_use), rig.controls[0]->bytes_in_use.load());
  EXPECT_GT(devices[0].memory_in_use, rig.executable->weight_bytes());
  EXPECT_EQ(devices[0].weight_bytes, rig.executable->weight_bytes());
  EXPECT_GT(rig.workspaces[0]->bytes(), 0u);
  rig.workspaces.clear();
  EXPECT_EQ(rig.backend->devices()[0].memory_in_use, rig.executable->weight_bytes());
  // Beside the version that it replaces.
  std::unique_ptr<Executable> old = std::move(rig.executable);
  ASSERT_TRUE(rig.Compile(stack.spec()).ok());
  EXPECT_EQ(rig.backend->devices()[0].weight_bytes, 2 * old->weight_bytes());
  EXPECT_EQ(rig.backend->devices()[0].memory_in_use, 2 * old->weight_bytes());
  old.reset();
  rig.executable.reset();
  EXPECT_EQ(rig.backend->devices()[0].memory_in_use, 0u);
  EXPECT_EQ(rig.backend->devices()[0].weight_bytes, 0u);
}

TEST(CudaBackendTest, RefusesWhatDoesNotFitTheBudget) {
  const RandomStack stack(StackOptions(), 1);
  BackendOptions options;
  options.cuda_memory_limit_bytes = 1000;
  Rig tiny(1, options);
  const Status weights = tiny.Compile(stack.spec());
  EXPECT_EQ(weights.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(weights.message(), HasSubstr("device 0: the weights need"));

  options.cuda_memory_limit_bytes = size_t{8} << 20;
  Rig rig(1, options);
  Status status = rig.Compile(stack.spec());
  ASSERT_TRUE(status.ok()) << status.message();
  const size_t in_use = rig.backend->devices()[0].memory_in_use;
  status = rig.MakeWorkspace({100000, 8});
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("a workspace for 100000 tokens and 8 sequences needs"));
  EXPECT_THAT(status.message(), HasSubstr("of a budget of 8.4 MB"));
  EXPECT_EQ(rig.backend->devices()[0].memory_in_use, in_use);
  status = rig.MakeWorkspace({256, 8});
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST(CudaBackendTest, TheMemoryOfProductsIsOfTheBudget) {
  const RandomStack stack(StackOptions(), 1);
  size_t weights = 0;
  {
    Rig rig;
    ASSERT_NO_FATAL_FAILURE(rig.Prepare(stack.spec(), {16, 1}));
    weights = rig.executable->weight_bytes();
    EXPECT_GT(rig.workspaces[0]->bytes(), kProductWorkspaceBytes);
    EXPECT_GT(rig.backend->devices()[0].memory_in_use, weights + kProductWorkspaceBytes);
  }
  BackendOptions options;
  options.cuda_memory_limit_bytes = weights + 2 * kProductWorkspaceBytes;
  Rig rig(1, options);
  // The first has room; the second is told what the whole of it needs.
  ASSERT_NO_FATAL_FAILURE(rig.Prepare(stack.spec(), {16, 1}));
  const Status status = rig.MakeWorkspace({16, 1});
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("a workspace for 16 tokens and 1 sequences needs 4."));
}

TEST(CudaBackendTest, WithoutStatesThereIsNoRoomForThem) {
  const RandomStack stack(StackOptions(), 1);
  Rig rig;
  WorkspaceLimits limits{256, 8};
  limits.states = false;
  ASSERT_NO_FATAL_FAILURE(rig.Prepare(stack.spec(), limits));
  const size_t without = rig.workspaces[0]->bytes();
  const RandomBatch batch(stack.spec(), {5}, true, 1);
  OutputArrays outputs(stack.spec(), batch.view(), Pooling::kMax);
  EXPECT_EQ(rig.Run(batch.view(), outputs).code(), StatusCode::kInvalidArgument);
  RaggedBatch stateless = batch.view();
  stateless.initial_state = nullptr;
  EXPECT_EQ(rig.Run(stateless, outputs).code(), StatusCode::kInvalidArgument);
  outputs.outputs[0].final_state = nullptr;
  EXPECT_TRUE(rig.Run(stateless, outputs).ok());
  ASSERT_TRUE(rig.MakeWorkspace({256, 8}).ok());
  EXPECT_GT(rig.workspaces[1]->bytes(), without);
}

TEST(CudaBackendTest, SeveralDevicesGiveTheSameBits) {
  const RandomStack stack(StackOptions(), 1);
  Rig rig(2);
  ASSERT_NO_FATAL_FAILURE(rig.Prepare(stack.spec()));
  ASSERT_EQ(rig.executable->num_devices(), 2);
  const RandomBatch batch(stack.spec(), {12, 3}, false, 2);
  const OutputArrays a(stack.spec(), batch.view(), Pooling::kMax);
  const OutputArrays b(stack.spec(), batch.view(), Pooling::kMax);
  ASSERT_TRUE(rig.Run(batch.view(), a, 0).ok());
  ASSERT_TRUE(rig.Run(batch.view(), b, 1).ok());
  EXPECT_EQ(a.token_vectors, b.token_vectors);
  EXPECT_EQ(rig.controls[1]->graph_launches, 1);
  const Status beyond = rig.MakeWorkspace({16, 1, 2});
  EXPECT_EQ(beyond.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(beyond.message(), HasSubstr("workspace.device: expected 0 to 1, found 2"));
}

// Wherever in a batch it happens: the call says so, later calls do too, the other device goes on.
TEST(CudaBackendTest, ALostDeviceIsReportedAndTheOthersGoOn) {
  const RandomStack stack(StackOptions(), 1);
  const RandomBatch batch(stack.spec(), {12, 3}, false, 2);
  bool finished = false;
  for (int operations = 0; !finished; ++operations) {
    ASSERT_LT(operations, 100);
    Rig rig(2);
    ASSERT_NO_FATAL_FAILURE(rig.Prepare(stack.spec()));
    rig.controls[1]->operations_until_lost = operations;
    const OutputArrays lost(stack.spec(), batch.view(), Pooling::kMax);
    const Status status = rig.Run(batch.view(), lost, 1);
    finished = status.ok();
    if (!finished) {
      EXPECT_EQ(status.code(), StatusCode::kDeviceLost) << operations << ": " << status.message();
      EXPECT_EQ(lost.pooled[0], OutputArrays::kUnwritten);
      EXPECT_TRUE(rig.backend->devices()[1].lost);
      EXPECT_FALSE(rig.backend->devices()[0].lost);
      EXPECT_EQ(rig.Run(batch.view(), lost, 1).code(), StatusCode::kDeviceLost);
      EXPECT_EQ(rig.MakeWorkspace({16, 1, 1}).code(), StatusCode::kDeviceLost);
    }
    const OutputArrays good(stack.spec(), batch.view(), Pooling::kMax);
    EXPECT_TRUE(rig.Run(batch.view(), good, 0).ok());
  }
}

TEST(CudaBackendTest, ADeviceMayBeLostAtStart) {
  const RandomStack stack(StackOptions(), 1);
  Rig rig;
  rig.controls[0]->operations_until_lost = 3;
  EXPECT_EQ(rig.Compile(stack.spec()).code(), StatusCode::kDeviceLost);
  EXPECT_TRUE(rig.backend->devices()[0].lost);
  EXPECT_EQ(rig.Compile(stack.spec()).code(), StatusCode::kDeviceLost);
}

// A version that is loaded after the loss, or during it, serves on the devices that are left.
TEST(CudaBackendTest, WhatIsCompiledAfterALossRunsOnTheOthers) {
  const RandomStack stack(StackOptions(), 1);
  const RandomBatch batch(stack.spec(), {12, 3}, false, 2);
  Rig whole;
  ASSERT_NO_FATAL_FAILURE(whole.Prepare(stack.spec()));
  const OutputArrays expected(stack.spec(), batch.view(), Pooling::kMax);
  ASSERT_TRUE(whole.Run(batch.view(), expected).ok());
  // How far the device's own part of Compile() gets.
  for (int operations : {0, 1, 5, 20, 50}) {
    for (int lost = 0; lost < 2; ++lost) {
      SCOPED_TRACE(::testing::Message() << "device " << lost << " after " << operations);
      Rig rig(2);
      rig.controls[lost]->operations_until_lost = operations;
      for (int compiles = 0; compiles < 2; ++compiles) {
        const Status status = rig.Compile(stack.spec());
        ASSERT_TRUE(status.ok()) << status.message();
        EXPECT_TRUE(rig.backend->devices()[lost].lost);
        EXPECT_FALSE(rig.backend->devices()[1 - lost].lost);
        EXPECT_EQ(rig.executable->num_devices(), 2);
        EXPECT_EQ(rig.executable->weight_bytes(), whole.executable->weight_bytes());
        EXPECT_EQ(rig.MakeWorkspace({256, 8, lost}).code(), StatusCode::kDeviceLost);
        rig.workspaces.clear();
        ASSERT_TRUE(rig.MakeWorkspace({256, 8, 1 - lost}).ok());
        const OutputArrays outputs(stack.spec(), batch.view(), Pooling::kMax);
        ASSERT_TRUE(rig.Run(batch.view(), outputs).ok());
        EXPECT_EQ(outputs.token_vectors, expected.token_vectors);
        rig.workspaces.clear();
      }
      // Nothing of it is left on the device that failed.
      rig.executable.reset();
      EXPECT_EQ(rig.controls[lost]->bytes_in_use, 0);
      EXPECT_EQ(rig.backend->devices()[lost].memory_in_use, 0u);
      EXPECT_EQ(rig.backend->devices()[lost].weight_bytes, 0u);
    }
  }
  Rig none(2);
  for (const auto& control : none.controls) control->operations_until_lost = 0;
  EXPECT_EQ(none.Compile(stack.spec()).code(), StatusCode::kDeviceLost);
}

TEST(CreateBackendTest, CudaIsListedWhereItCanBeCreated) {
  const std::vector<std::string> names = AvailableBackends();
  const bool listed = std::find(names.begin(), names.end(), "cuda") != names.end();
  std::unique_ptr<Backend> backend;
  const Status status = CreateBackend("cuda", &backend);
  EXPECT_EQ(status.ok(), listed) << status.message();
  if (!listed) {
    EXPECT_EQ(status.code(), StatusCode::kUnavailable);
    EXPECT_THAT(status.message(), HasSubstr("backend cuda: "));
  }
}

}  // namespace
}  // namespace sru::kernels::cuda
