// The host side of the CUDA backend on a device that is the host (cuda_host/): buckets, graph
// cache, choice of algorithms, memory budget, several devices and their failure. The tests
// backend_cuda_host and golden_cuda_host check what it computes.
#include "kernels/cuda/backend/cuda_backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <iterator>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/device/array_plan.h"
#include "kernels/cuda/device/bucket.h"
#include "kernels/cuda/device/gpu.h"
#include "kernels/cuda/device/graph_cache.h"
#include "kernels/cuda/kernels/fused_shape.h"
#include "kernels/cuda/stack/cuda_workspace.h"
#include "kernels/cuda/stack/stack_on_device.h"
#include "kernels/testing/random_stack.h"
#include "tests/kernels/cuda_host/host_device.h"
#include "tests/kernels/status_matchers.h"

namespace sru::kernels::cuda {
namespace {

using ::sru::testing::DifferentKinds;
using ::sru::testing::HostAlgorithm;
using ::sru::testing::HostDeviceControl;
using ::sru::testing::HostDeviceOptions;
using ::sru::testing::MakeHostDevice;
using ::sru::testing::OutputArrays;
using ::sru::testing::RandomBatch;
using ::sru::testing::RandomStack;
using ::sru::testing::StackOptions;
using ::sru::testing::SumOrder;
using ::testing::HasSubstr;

constexpr HostAlgorithm kRefuses = {SumOrder::kInOrder, SumOrder::kInOrder,
                                    HostAlgorithm::Other::kRefuses};

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

TEST(BucketTest, SequenceBucketsArePowersOfFourUpToTheLimit) {
  EXPECT_EQ(SequenceBucket(1, 64), 1);
  EXPECT_EQ(SequenceBucket(2, 64), 4);
  EXPECT_EQ(SequenceBucket(5, 64), 16);
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
  GraphUse use;
  GraphCache cache(2, &use);
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
  // With a stack that is ready to run.
  explicit Rig(const StackSpec& spec, int num_devices = 1, BackendOptions options = {},
               HostDeviceOptions device = {})
      : Rig(num_devices, options, device) {
    Prepare(spec);
  }
  Rig(const StackSpec& spec, WorkspaceLimits limits, BackendOptions options = {})
      : Rig(1, options) {
    Prepare(spec, limits);
  }

  Status Compile(const StackSpec& spec) { return backend->Compile(spec, compile, &executable); }
  Status MakeWorkspace(const WorkspaceLimits& limits) {
    return executable->CreateWorkspace(limits, &workspaces.emplace_back());
  }
  // Compiles and makes one workspace per device.
  void Prepare(const StackSpec& spec, WorkspaceLimits limits = {256, 8}) {
    Require(Compile(spec));
    for (int i = 0; i < executable->num_devices(); ++i) {
      limits.device = i;
      Require(MakeWorkspace(limits));
    }
  }

  Status TryRun(const RaggedBatch& batch, const OutputArrays& outputs, size_t workspace = 0) {
    return executable->Run(batch, outputs.outputs.data(), *workspaces[workspace]);
  }
  // All outputs of a batch that must succeed.
  OutputArrays Run(const StackSpec& spec, const RaggedBatch& batch, size_t workspace = 0) {
    OutputArrays outputs(spec, batch, spec.pooling);
    Require(TryRun(batch, outputs, workspace));
    return outputs;
  }

  std::vector<std::unique_ptr<HostDeviceControl>> controls;
  std::unique_ptr<Backend> backend;
  CompileOptions compile;
  std::unique_ptr<Executable> executable;
  std::vector<std::unique_ptr<Workspace>> workspaces;
};

// With a stack and a batch of it.
class CudaBackendTest : public ::testing::Test {
 protected:
  const RandomStack stack_{StackOptions(), 1};
  const StackSpec& spec_ = stack_.spec();
  const RandomBatch random_{spec_, {12, 3}, true, 2};
  const RaggedBatch batch_ = random_.view();
};

TEST_F(CudaBackendTest, RecordsOncePerBucketAndReplaysWithEachBatch) {
  Rig rig(spec_);
  // All are in the bucket of 48 tokens and 4 sequences, with other lengths and tokens.
  const std::vector<std::vector<int>> batches = {{10, 20, 5}, {1, 2, 3, 40}, {30, 9, 1, 1}};
  for (size_t i = 0; i < batches.size(); ++i) {
    const RandomBatch batch(spec_, batches[i], false, static_cast<unsigned>(i));
    EXPECT_NE(rig.Run(spec_, batch.view()).pooled[0], OutputArrays::kUnwritten);
  }
  // The first batch of a bucket runs without a graph.
  EXPECT_EQ(rig.controls[0]->graphs_recorded, 1);
  EXPECT_EQ(rig.controls[0]->graph_launches, 2);
  DeviceInfo info = rig.backend->devices()[0];
  EXPECT_EQ(info.graph_hits, 1);
  EXPECT_EQ(info.graph_misses, 2);

  // Other outputs need another graph.
  const RandomBatch batch(spec_, {10, 20, 5}, false, 1);
  OutputArrays outputs(spec_, batch.view(), Pooling::kMax);
  for (SequenceOutput& out : outputs.outputs) out.token_vectors = nullptr;
  ASSERT_TRUE(rig.TryRun(batch.view(), outputs).ok());
  EXPECT_EQ(rig.controls[0]->graphs_recorded, 1);
  ASSERT_TRUE(rig.TryRun(batch.view(), outputs).ok());
  EXPECT_EQ(rig.controls[0]->graphs_recorded, 2);
  info = rig.backend->devices()[0];
  EXPECT_EQ(info.graph_hits, 1);
  EXPECT_EQ(info.graph_misses, 4);
}

TEST_F(CudaBackendTest, GraphUseIsOfAllWorkspacesOfADevice) {
  Rig rig(spec_, 2);
  ASSERT_TRUE(rig.MakeWorkspace({256, 8}).ok());  // a second one on device 0
  const OutputArrays outputs(spec_, batch_, Pooling::kMax);
  for (const size_t workspace : {0, 0, 0, 2, 1}) {
    ASSERT_TRUE(rig.TryRun(batch_, outputs, workspace).ok());
  }
  const std::vector<DeviceInfo> devices = rig.backend->devices();
  EXPECT_EQ(devices[0].graph_hits, 1);
  EXPECT_EQ(devices[0].graph_misses, 3);
  EXPECT_EQ(devices[1].graph_hits, 0);
  EXPECT_EQ(devices[1].graph_misses, 1);
}

TEST_F(CudaBackendTest, WithAndWithoutAGraphTheBitsAreTheSame) {
  Rig rig(spec_);
  std::vector<OutputArrays> found;
  for (int64_t launches = 0; launches < 3; ++launches) {
    EXPECT_EQ(rig.controls[0]->graph_launches, std::max<int64_t>(launches - 1, 0));
    found.push_back(rig.Run(spec_, batch_));
    EXPECT_EQ(DifferentKinds(found.back(), found[0]), "");
  }
}

TEST_F(CudaBackendTest, ABatchWhoseRecordingFailsRunsWithoutAGraph) {
  for (StatusCode code : {StatusCode::kInternal, StatusCode::kResourceExhausted}) {
    Rig rig(spec_);
    const OutputArrays expected = rig.Run(spec_, batch_);
    rig.controls[0]->recording = code;
    for (int i = 0; i < 4; ++i) {
      EXPECT_EQ(rig.Run(spec_, batch_).token_vectors, expected.token_vectors);
    }
    EXPECT_EQ(rig.controls[0]->graphs_recorded, 0);
    EXPECT_EQ(rig.controls[0]->probes, 0);
    // It is tried again.
    rig.controls[0]->recording = StatusCode::kOk;
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(rig.Run(spec_, batch_).token_vectors, expected.token_vectors);
    }
    EXPECT_EQ(rig.controls[0]->graphs_recorded, 1);
  }
  Rig rig(spec_);
  const OutputArrays outputs = rig.Run(spec_, batch_);
  rig.controls[0]->recording = StatusCode::kDeviceLost;
  EXPECT_EQ(rig.TryRun(batch_, outputs).code(), StatusCode::kDeviceLost);
  EXPECT_TRUE(rig.backend->devices()[0].lost);
}

TEST_F(CudaBackendTest, AfterAFailureInAnyOperationTheNextBatchIsRight) {
  const RandomBatch batch(spec_, {10, 20, 5}, false, 1);
  const RandomBatch other(spec_, {9, 20, 6}, false, 2);
  for (const bool throws : {false, true}) {
    Rig rig(spec_);
    const OutputArrays expected = rig.Run(spec_, batch.view());
    HostDeviceControl& control = *rig.controls[0];
    control.failure_throws = throws;
    // The first rounds record, the others replay.
    bool failed = true;
    for (int operations = 0; failed; ++operations) {
      SCOPED_TRACE(operations);
      ASSERT_LT(operations, 100);
      control.operations_until_failure = operations;
      const OutputArrays unchecked(spec_, other.view(), Pooling::kMax);
      const int64_t waits = control.waits;
      const Status status = rig.TryRun(other.view(), unchecked);
      EXPECT_EQ(control.waits, waits + 1) << "the next batch writes to the staging memory";
      failed = control.operations_until_failure < 0;
      control.operations_until_failure = -1;
      if (throws && failed) {
        EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
      }
      EXPECT_EQ(rig.Run(spec_, batch.view()).token_vectors, expected.token_vectors);
    }
    EXPECT_FALSE(rig.backend->devices()[0].lost);
  }
}

TEST_F(CudaBackendTest, GraphsAreBoundedAndServingAllocatesNothing) {
  StackOptions options;
  options.hidden_size = 8;
  options.input_size = 8;
  const RandomStack stack(options, 1);
  Rig rig(stack.spec(), WorkspaceLimits{256, 64});
  const int64_t allocations = rig.controls[0]->allocations;
  for (int sequences = 1; sequences <= 64; sequences *= 4) {
    for (int tokens = 64; tokens <= 256; tokens += 16) {
      std::vector<int> lengths(sequences, 1);
      lengths[0] = tokens - sequences + 1;
      const RandomBatch batch(stack.spec(), lengths, false, 1);
      for (int wanted = 0; wanted < 8; ++wanted) {
        OutputArrays outputs(stack.spec(), batch.view(), Pooling::kMax);
        for (SequenceOutput& out : outputs.outputs) {
          if ((wanted & 1) == 0) out.token_vectors = nullptr;
          if ((wanted & 2) == 0) out.final_state = nullptr;
          if ((wanted & 4) == 0) out.logits = out.probabilities = nullptr;
        }
        for (int run = 0; run < 2; ++run) ASSERT_TRUE(rig.TryRun(batch.view(), outputs).ok());
      }
    }
  }
  EXPECT_GT(rig.controls[0]->graphs_recorded, 256);
  EXPECT_EQ(rig.controls[0]->graphs_alive, 256);
  EXPECT_EQ(rig.controls[0]->allocations, allocations);
  rig.workspaces.clear();
  EXPECT_EQ(rig.controls[0]->graphs_alive, 0);
}

// With two directions: a scan whose blocks are more than half full with four dimensions a thread,
// which it then has if there are few multiprocessors.
constexpr int kFillsBlocks = 72;

TEST_F(CudaBackendTest, BothScanWidthsGiveTheSameBits) {
  StackOptions options;
  options.hidden_size = kFillsBlocks;
  const RandomStack stack(options, 3);
  const RandomBatch batch(stack.spec(), {1, 40, 7, 8, 9, 16, 17}, true, 4);
  ScanArgs scan{};
  scan.num_sequences = 7;
  scan.directions = 2;
  scan.padded = kFillsBlocks;
  std::vector<float> results[2];
  for (int i = 0; i < 2; ++i) {
    HostDeviceOptions device;
    device.num_multiprocessors = i == 0 ? 1 : 1000;
    ASSERT_EQ(ScanDims(scan, device.num_multiprocessors), i == 0 ? 4 : 2);
    Rig rig(stack.spec(), 1, {}, device);
    results[i] = rig.Run(stack.spec(), batch.view()).token_vectors;
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
  OutputArrays outputs = rig.Run(stack.spec(), batch.view());
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
  for (int input : {24, 64, 100, 128}) {
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

  const RandomStack narrow(StackOptions(), 3);
  Rig rig(narrow.spec());
  const RandomBatch tokens(narrow.spec(), {3, 20}, false, 4);
  rig.Run(narrow.spec(), tokens.view());
  EXPECT_EQ(rig.controls[0]->fused_layers, 0);
}

// Their U is not in memory, and their products need none of the library's algorithms.
TEST(FusedLayerTest, NeedsNeitherUNorTheLibrary) {
  StackOptions options;
  options.vocabulary_size = 0;
  const RandomStack stack(options, 3);
  size_t bytes[2];
  for (bool fuse : {false, true}) {
    BackendOptions backend;
    backend.cuda_fuse_layers = fuse;
    HostDeviceOptions device;
    if (fuse) device.reference_algorithms = device.bucket_algorithms = {kRefuses};
    Rig rig(1, backend, device);
    rig.compile.dtype = DataType::kBFloat16;
    rig.Prepare(stack.spec());
    bytes[fuse] = rig.workspaces[0]->bytes();
  }
  EXPECT_LT(bytes[true], bytes[false]);
}

TEST_F(CudaBackendTest, AProductWithoutAStableAlgorithmIsRefused) {
  HostDeviceOptions device;
  device.reference_algorithms = device.bucket_algorithms = {kRefuses};
  Rig rig(1, {}, device);
  EXPECT_THAT(rig.Compile(spec_),
              IsError(StatusCode::kUnsupported, HasSubstr("do not depend on the batch")));
}

TEST_F(CudaBackendTest, WithoutAReferenceResultsDoNotDependOnTheBatchEither) {
  const RandomBatch batch(spec_, {70, 7}, false, 2);
  const RandomBatch alone(spec_, {70}, false, 2);
  HostDeviceOptions device;
  device.own_product_microseconds = 1;
  Rig rig(1, {}, device);
  // The rows that everything is compared with.
  rig.controls[0]->unstable_rows = 16;
  rig.Prepare(spec_, {77, 2});
  const OutputArrays all = rig.Run(spec_, batch.view());
  const OutputArrays one = rig.Run(spec_, alone.view());
  EXPECT_TRUE(
      std::equal(one.token_vectors.begin(), one.token_vectors.end(), all.token_vectors.begin()));
}

TEST_F(CudaBackendTest, ABucketWithoutAStableAlgorithmUsesALargerOne) {
  const RandomBatch batch(spec_, {20, 7}, false, 2);
  std::vector<float> results[2];
  for (int i = 0; i < 2; ++i) {
    Rig rig;
    // Includes the largest that the limits ask for.
    rig.controls[0]->unstable_rows = i == 0 ? 0 : 32;
    rig.Prepare(spec_, {27, 2});
    results[i] = rig.Run(spec_, batch.view()).token_vectors;
  }
  EXPECT_EQ(results[0], results[1]);
}

// Else initcheck would report the spare rows of a bucket, which products read.
TEST_F(CudaBackendTest, EveryByteOfAWorkspaceIsWrittenBeforeItIsUsed) {
  for (const size_t product_workspace : {kProductWorkspaceBytes, 8 * kProductWorkspaceBytes}) {
    HostDeviceOptions device;
    device.product_workspace_bytes = product_workspace;
    Rig rig(spec_, 1, {}, device);
    const DeviceInfo info = rig.backend->devices()[0];
    // The products are tried for the first workspace only.
    const int64_t initialized = rig.controls[0]->bytes_initialized;
    std::unique_ptr<Workspace> second;
    ASSERT_TRUE(rig.executable->CreateWorkspace(rig.workspaces[0]->limits(), &second).ok());
    // What products use besides is written by them before they read it.
    EXPECT_EQ(
        static_cast<size_t>(rig.controls[0]->bytes_initialized - initialized) + product_workspace,
        rig.backend->devices()[0].memory_in_use - info.memory_in_use);
  }
}

// Freeing may hold up all that runs on the device.
TEST_F(CudaBackendTest, AStackAndAWorkspaceTakeFewAllocations) {
  BackendOptions options;
  options.cuda_token_table_bytes = 0;
  Rig rig(1, options);
  HostDeviceControl& control = *rig.controls[0];
  ASSERT_TRUE(rig.Compile(spec_).ok());
  EXPECT_EQ(control.allocations_alive, 1);
  EXPECT_EQ(control.pinned_alive, 0);
  for (int workspaces = 1; workspaces <= 2; ++workspaces) {
    ASSERT_TRUE(rig.MakeWorkspace({256, 8}).ok());
    // What products use besides is one of its own, since trials need it before.
    EXPECT_EQ(control.allocations_alive, 1 + 2 * workspaces);
    EXPECT_EQ(control.pinned_alive, workspaces);
  }
  rig.workspaces.clear();
  rig.executable.reset();
  EXPECT_EQ(control.allocations_alive, 0);
  EXPECT_EQ(control.pinned_alive, 0);
}

TEST(ArrayPlanTest, ArraysAreAlignedAndApart) {
  ArrayPlan plan;
  const size_t sizes[] = {1, 0, 256, 255, 1000};
  ArrayView arrays[std::size(sizes)];
  for (size_t i = 0; i < std::size(sizes); ++i) plan.Add(&arrays[i], sizes[i]);
  std::vector<char> memory(plan.bytes());
  plan.Place(memory.data());
  std::vector<int> users(plan.bytes());
  for (size_t i = 0; i < std::size(sizes); ++i) {
    const ArrayView& array = arrays[i];
    EXPECT_EQ(array.bytes(), sizes[i]);
    EXPECT_EQ(array.data() == nullptr, sizes[i] == 0);
    if (sizes[i] == 0) continue;
    const size_t offset = array.as<char>() - memory.data();
    EXPECT_EQ(offset % ArrayPlan::kAlignment, 0u);
    ASSERT_LE(offset + sizes[i], memory.size());
    for (size_t at = offset; at < offset + sizes[i]; ++at) ++users[at];
  }
  int gaps = 0;
  plan.ForEachGap(memory.data(), [&](void* begin, size_t bytes) {
    EXPECT_GT(bytes, 0u);
    ++gaps;
    for (size_t i = 0; i < bytes; ++i) ++users[static_cast<char*>(begin) - memory.data() + i];
  });
  EXPECT_EQ(gaps, 4);
  for (const int count : users) EXPECT_EQ(count, 1);
}

// Kernels write small results to the host's memory, and large ones are copied there.
TEST_F(CudaBackendTest, SmallResultsAreNotCopied) {
  const size_t least_row_bytes = 2 * spec_.num_labels * sizeof(float);  // the labels'
  const int many = static_cast<int>(kMappedResultBytes / least_row_bytes) + 1;
  Rig rig(spec_, WorkspaceLimits{2 * many, many});
  const RandomBatch random(spec_, std::vector<int>(many, 2), false, 5);
  RaggedBatch all = random.view();
  RaggedBatch one = all;
  one.num_sequences = 1;
  struct Case {
    const char* name;
    bool labels, pooled, state;
    int copies;  // of the small batch
  };
  for (const Case& wanted : {Case{"labels", true, false, false, 0},
                             {"pooled", false, true, false, 0},
                             {"state", false, false, true, 0},
                             {"pooled and state", false, true, true, 0},
                             // Which the classifier reads.
                             {"labels and pooled", true, true, false, 1}}) {
    SCOPED_TRACE(wanted.name);
    std::vector<OutputArrays> found;
    for (RaggedBatch* batch : {&one, &all}) {
      OutputArrays& outputs = found.emplace_back(spec_, *batch, spec_.pooling);
      for (SequenceOutput& out : outputs.outputs) {
        out.token_vectors = nullptr;
        if (!wanted.labels) out.logits = out.probabilities = nullptr;
        if (!wanted.pooled) out.pooled = nullptr;
        if (!wanted.state) out.final_state = nullptr;
      }
      const int64_t copies = rig.controls[0]->copies_to_host;
      ASSERT_TRUE(rig.TryRun(*batch, outputs).ok());
      const int64_t made = rig.controls[0]->copies_to_host - copies;
      if (batch == &one) {
        EXPECT_EQ(made, wanted.copies);
      } else {
        EXPECT_GT(made, wanted.copies);
      }
    }
    const auto expect_prefix = [&](const std::vector<float> OutputArrays::*values) {
      const std::vector<float>& small = found[0].*values;
      ASSERT_LE(small.size(), (found[1].*values).size());
      EXPECT_TRUE(std::equal(small.begin(), small.end(), (found[1].*values).begin()));
    };
    if (wanted.labels) expect_prefix(&OutputArrays::logits);
    if (wanted.labels) expect_prefix(&OutputArrays::probabilities);
    if (wanted.pooled) expect_prefix(&OutputArrays::pooled);
    if (wanted.state) expect_prefix(&OutputArrays::final_state);
  }
}

// Each waits for the others.
TEST_F(CudaBackendTest, DevicesArePreparedAtTheSameTime) {
  struct State {
    std::shared_ptr<Gpu> gpu;
    int ordinal = -1;
  };
  constexpr int kDevices = 3;
  std::vector<std::unique_ptr<HostDeviceControl>> controls;
  std::vector<std::shared_ptr<Gpu>> gpus;
  for (int i = 0; i < kDevices; ++i) {
    HostDeviceOptions options;
    options.ordinal = i;
    controls.push_back(std::make_unique<HostDeviceControl>());
    gpus.push_back(
        std::make_shared<Gpu>(MakeHostDevice(options, controls.back().get()), BackendOptions()));
  }
  std::mutex mutex;
  std::condition_variable changed;
  int started = 0;
  std::vector<State> states;
  const auto prepare = [&](const std::shared_ptr<Gpu>& gpu, State* state) {
    std::unique_lock<std::mutex> lock(mutex);
    ++started;
    changed.notify_all();
    const bool all =
        changed.wait_for(lock, std::chrono::minutes(1), [&] { return started == kDevices; });
    state->ordinal = gpu->device().ordinal();
    return all ? OkStatus() : Internal("one after the other");
  };
  EXPECT_THAT(PrepareDevices(gpus, prepare, &states), IsOk());
  ASSERT_EQ(states.size(), static_cast<size_t>(kDevices));
  for (int i = 0; i < kDevices; ++i) {
    EXPECT_EQ(states[i].gpu, gpus[i]);
    EXPECT_EQ(states[i].ordinal, i);
  }

  const auto throws = [&](const std::shared_ptr<Gpu>& gpu, State* /*state*/) {
    if (gpu->device().ordinal() == 1) throw std::bad_alloc();
    return OkStatus();
  };
  EXPECT_THROW((void)PrepareDevices(gpus, throws, &states), std::bad_alloc);
  const auto fails = [&](const std::shared_ptr<Gpu>& gpu, State* /*state*/) {
    const int ordinal = gpu->device().ordinal();
    return ordinal == 0 ? OkStatus() : InvalidArgument(std::to_string(ordinal));
  };
  EXPECT_EQ(PrepareDevices(gpus, fails, &states).message(), "1");  // the first one's
}

TEST_F(CudaBackendTest, MemoryOfStatesIsKeptUntilItIsNeeded) {
  HostDeviceControl control;
  BackendOptions options;
  options.cuda_memory_limit_bytes = 4096;
  auto gpu = std::make_unique<Gpu>(MakeHostDevice(HostDeviceOptions(), &control), options);
  void* memory = nullptr;
  ASSERT_TRUE(gpu->AllocateAgain(1024, &memory).ok());
  void* const first = memory;
  EXPECT_EQ(gpu->BudgetLeft(), 3072u);
  gpu->Keep(memory, 1024);
  EXPECT_EQ(gpu->BudgetLeft(), 4096u);
  EXPECT_EQ(gpu->info().memory_in_use, 0u);
  ASSERT_TRUE(gpu->AllocateAgain(1024, &memory).ok());
  EXPECT_EQ(memory, first);
  EXPECT_EQ(control.allocations, 1);
  gpu->Keep(memory, 1024);
  void* whole = nullptr;
  ASSERT_TRUE(gpu->Allocate(4096, &whole).ok());
  EXPECT_EQ(control.allocations_alive, 1);
  EXPECT_EQ(gpu->AllocateAgain(1024, &memory).code(), StatusCode::kResourceExhausted);
  gpu->Free(whole, 4096);
  ASSERT_TRUE(gpu->AllocateAgain(1024, &memory).ok());
  gpu->Keep(memory, 1024);
  gpu.reset();
  EXPECT_EQ(control.allocations_alive, 0);
}

TEST_F(CudaBackendTest, MemoryIsReportedAndGivenBack) {
  BackendOptions options;
  options.cuda_memory_limit_bytes = size_t{64} << 20;
  Rig rig(spec_, 1, options);
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
  // It is loaded beside the version that it replaces.
  std::unique_ptr<Executable> old = std::move(rig.executable);
  ASSERT_TRUE(rig.Compile(spec_).ok());
  EXPECT_EQ(rig.backend->devices()[0].weight_bytes, 2 * old->weight_bytes());
  EXPECT_EQ(rig.backend->devices()[0].memory_in_use, 2 * old->weight_bytes());
  old.reset();
  rig.executable.reset();
  EXPECT_EQ(rig.backend->devices()[0].memory_in_use, 0u);
  EXPECT_EQ(rig.backend->devices()[0].weight_bytes, 0u);
}

TEST_F(CudaBackendTest, RefusesWhatDoesNotFitTheBudget) {
  BackendOptions options;
  options.cuda_memory_limit_bytes = 1000;
  Rig tiny(1, options);
  EXPECT_THAT(tiny.Compile(spec_), IsExhausted(HasSubstr("device 0: the weights need")));

  options.cuda_memory_limit_bytes = size_t{8} << 20;
  options.cuda_token_table_bytes = 0;
  Rig rig(1, options);
  Status status = rig.Compile(spec_);
  ASSERT_TRUE(status.ok()) << status.message();
  const size_t in_use = rig.backend->devices()[0].memory_in_use;
  status = rig.MakeWorkspace({100000, 8});
  EXPECT_THAT(status,
              IsExhausted(HasSubstr("a workspace for 100000 tokens and 8 sequences needs")));
  EXPECT_THAT(status.message(), HasSubstr("of a budget of 8.4 MB"));
  EXPECT_EQ(rig.backend->devices()[0].memory_in_use, in_use);
  EXPECT_THAT(rig.MakeWorkspace({256, 8}), IsOk());
}

TEST_F(CudaBackendTest, TheMemoryOfProductsIsOfTheBudget) {
  BackendOptions options;
  options.cuda_token_table_bytes = 0;
  size_t weights = 0;
  {
    Rig rig(spec_, WorkspaceLimits{16, 1}, options);
    weights = rig.executable->weight_bytes();
    EXPECT_GT(rig.workspaces[0]->bytes(), kProductWorkspaceBytes);
    EXPECT_GT(rig.backend->devices()[0].memory_in_use, weights + kProductWorkspaceBytes);
  }
  options.cuda_memory_limit_bytes = weights + 2 * kProductWorkspaceBytes;
  Rig rig(1, options);
  // The first has room; the error of the second says how much it needs in all.
  rig.Prepare(spec_, {16, 1});
  EXPECT_THAT(rig.MakeWorkspace({16, 1}),
              IsExhausted(HasSubstr("a workspace for 16 tokens and 1 sequences needs 4.")));
}

TEST_F(CudaBackendTest, WithoutStatesThereIsNoRoomForThem) {
  Rig rig;
  WorkspaceLimits limits{256, 8};
  limits.states = false;
  rig.Prepare(spec_, limits);
  const size_t without = rig.workspaces[0]->bytes();
  const RandomBatch batch(spec_, {5}, true, 1);
  OutputArrays outputs(spec_, batch.view(), Pooling::kMax);
  EXPECT_EQ(rig.TryRun(batch.view(), outputs).code(), StatusCode::kInvalidArgument);
  RaggedBatch stateless = batch.view();
  stateless.initial_states = nullptr;
  EXPECT_EQ(rig.TryRun(stateless, outputs).code(), StatusCode::kInvalidArgument);
  outputs.outputs[0].final_state = nullptr;
  EXPECT_TRUE(rig.TryRun(stateless, outputs).ok());
  ASSERT_TRUE(rig.MakeWorkspace({256, 8}).ok());
  EXPECT_GT(rig.workspaces[1]->bytes(), without);
}

TEST_F(CudaBackendTest, SeveralDevicesGiveTheSameBits) {
  Rig rig(spec_, 2);
  ASSERT_EQ(rig.executable->num_devices(), 2);
  const OutputArrays expected = rig.Run(spec_, batch_, 0);
  for (int launches = 0; launches < 2; ++launches) {
    EXPECT_EQ(DifferentKinds(rig.Run(spec_, batch_, 1), expected), "");
    EXPECT_EQ(rig.controls[1]->graph_launches, launches);
  }
  EXPECT_THAT(rig.MakeWorkspace({16, 1, 2}),
              IsInvalid(HasSubstr("workspace.device: expected 0 to 1, found 2")));
}

// Wherever in a batch the failure happens, the call reports it, later calls do too, and the other
// device continues.
// `earlier` batches of the bucket have run: the next one runs without a graph, records one or has
// it.
class LostDeviceTest : public CudaBackendTest, public ::testing::WithParamInterface<int> {};

TEST_P(LostDeviceTest, IsReportedAndTheOthersGoOn) {
  bool finished = false;
  for (int operations = 0; !finished; ++operations) {
    ASSERT_LT(operations, 100);
    Rig rig(spec_, 2);
    for (int earlier = 0; earlier < GetParam(); ++earlier) {
      rig.Run(spec_, batch_, 1);
    }
    rig.controls[1]->operations_until_lost = operations;
    const OutputArrays lost(spec_, batch_, Pooling::kMax);
    const Status status = rig.TryRun(batch_, lost, 1);
    finished = status.ok();
    if (!finished) {
      EXPECT_EQ(status.code(), StatusCode::kDeviceLost) << operations << ": " << status.message();
      EXPECT_EQ(lost.pooled[0], OutputArrays::kUnwritten);
      EXPECT_TRUE(rig.backend->devices()[1].lost);
      EXPECT_FALSE(rig.backend->devices()[0].lost);
      EXPECT_EQ(rig.TryRun(batch_, lost, 1).code(), StatusCode::kDeviceLost);
      EXPECT_EQ(rig.MakeWorkspace({16, 1, 1}).code(), StatusCode::kDeviceLost);
    }
    rig.Run(spec_, batch_, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(EarlierBatches, LostDeviceTest, ::testing::Values(0, 1, 2));

// Which errors are for good is not always known: a device that goes on working is kept, until it
// fails every time.
TEST_F(CudaBackendTest, ThreeInternalErrorsInARowAreALoss) {
  const OutputArrays outputs(spec_, batch_, Pooling::kMax);
  Rig rig(spec_, 2);
  HostDeviceControl& failing = *rig.controls[0];
  for (int round = 0; round < 3; ++round) {
    failing.failing_waits = Gpu::kMaxInternalErrors - 1;
    for (int i = 1; i < Gpu::kMaxInternalErrors; ++i) {
      EXPECT_EQ(rig.TryRun(batch_, outputs, 0).code(), StatusCode::kInternal);
    }
    // A run that succeeds begins the count again.
    EXPECT_TRUE(rig.TryRun(batch_, outputs, 0).ok());
  }
  EXPECT_EQ(failing.probes, 3 * (Gpu::kMaxInternalErrors - 1));
  EXPECT_FALSE(rig.backend->devices()[0].lost);

  failing.failing_waits = Gpu::kMaxInternalErrors;
  for (int i = 1; i < Gpu::kMaxInternalErrors; ++i) {
    EXPECT_EQ(rig.TryRun(batch_, outputs, 0).code(), StatusCode::kInternal);
    // The runs of the other device do not count.
    EXPECT_TRUE(rig.TryRun(batch_, outputs, 1).ok());
  }
  const Status lost = rig.TryRun(batch_, outputs, 0);
  EXPECT_EQ(lost.code(), StatusCode::kDeviceLost);
  EXPECT_THAT(lost.message(), HasSubstr("device 0: 3 batches in a row have failed; the last error: "
                                        "failed by the test"));
  EXPECT_TRUE(rig.backend->devices()[0].lost);
  EXPECT_FALSE(rig.backend->devices()[1].lost);
  EXPECT_EQ(rig.TryRun(batch_, outputs, 0).code(), StatusCode::kDeviceLost);
}

TEST_F(CudaBackendTest, ADeviceThatDoesNotAnswerIsLostAtOnce) {
  const OutputArrays outputs(spec_, batch_, Pooling::kMax);
  Rig rig(spec_, 2);
  rig.controls[0]->answers = false;
  EXPECT_TRUE(rig.TryRun(batch_, outputs, 0).ok());  // nobody has asked
  rig.controls[0]->failing_waits = 1;
  const Status lost = rig.TryRun(batch_, outputs, 0);
  EXPECT_EQ(lost.code(), StatusCode::kDeviceLost);
  EXPECT_THAT(lost.message(), HasSubstr("device 0: it does not answer: no answer; the last error: "
                                        "failed by the test"));
  EXPECT_TRUE(rig.backend->devices()[0].lost);
  EXPECT_TRUE(rig.TryRun(batch_, outputs, 1).ok());
}

// An error while loading, that no list knows, leaves one device out instead of failing the load.
TEST_F(CudaBackendTest, ADeviceThatDoesNotAnswerIsLeftOutOfALoad) {
  for (bool answers : {false, true}) {
    Rig rig(2);
    rig.controls[0]->failing_waits = 1;
    rig.controls[0]->answers = answers;
    const Status status = rig.Compile(spec_);
    EXPECT_EQ(status.code(), answers ? StatusCode::kInternal : StatusCode::kOk) << status.message();
    EXPECT_EQ(rig.backend->devices()[0].lost, !answers);
    EXPECT_FALSE(rig.backend->devices()[1].lost);
  }
}

TEST_F(CudaBackendTest, ADeviceMayBeLostAtStart) {
  Rig rig;
  rig.controls[0]->operations_until_lost = 3;
  EXPECT_EQ(rig.Compile(spec_).code(), StatusCode::kDeviceLost);
  EXPECT_TRUE(rig.backend->devices()[0].lost);
  EXPECT_EQ(rig.Compile(spec_).code(), StatusCode::kDeviceLost);
}

// A version that is loaded after the loss, or during it, serves on the devices that are left.
TEST_F(CudaBackendTest, WhatIsCompiledAfterALossRunsOnTheOthers) {
  Rig whole(spec_);
  const OutputArrays expected = whole.Run(spec_, batch_);
  // The number of operations of the device's own part of Compile() that succeed.
  for (int operations : {0, 1, 5, 20, 50}) {
    for (int lost = 0; lost < 2; ++lost) {
      SCOPED_TRACE(::testing::Message() << "device " << lost << " after " << operations);
      Rig rig(2);
      rig.controls[lost]->operations_until_lost = operations;
      for (int compiles = 0; compiles < 2; ++compiles) {
        ASSERT_THAT(rig.Compile(spec_), IsOk());
        EXPECT_TRUE(rig.backend->devices()[lost].lost);
        EXPECT_FALSE(rig.backend->devices()[1 - lost].lost);
        EXPECT_EQ(rig.executable->num_devices(), 2);
        EXPECT_EQ(rig.executable->weight_bytes(), whole.executable->weight_bytes());
        EXPECT_EQ(rig.MakeWorkspace({256, 8, lost}).code(), StatusCode::kDeviceLost);
        rig.workspaces.clear();
        ASSERT_TRUE(rig.MakeWorkspace({256, 8, 1 - lost}).ok());
        EXPECT_EQ(rig.Run(spec_, batch_).token_vectors, expected.token_vectors);
        rig.workspaces.clear();
      }
      // Nothing of the version is left on the device that failed.
      rig.executable.reset();
      EXPECT_EQ(rig.controls[lost]->bytes_in_use, 0);
      EXPECT_EQ(rig.backend->devices()[lost].memory_in_use, 0u);
      EXPECT_EQ(rig.backend->devices()[lost].weight_bytes, 0u);
    }
  }
  Rig none(2);
  for (const auto& control : none.controls) control->operations_until_lost = 0;
  EXPECT_EQ(none.Compile(spec_).code(), StatusCode::kDeviceLost);
}

// The first layer's product by token id (token_table.h)
// --------------------------------------------

BackendOptions WithoutTokenTable() {
  BackendOptions options;
  options.cuda_token_table_bytes = 0;
  return options;
}

// Of U's table for the default StackOptions in float32: 512 rows of two directions, three gates and
// 16 dimensions.
constexpr size_t kDefaultTableBytes = size_t{512} * 2 * 3 * 16 * sizeof(float);

struct TokenTableCase {
  const char* name;
  StackOptions options;
};

std::vector<TokenTableCase> TokenTableCases() {
  std::vector<TokenTableCase> cases;
  const auto add = [&](const char* name, const std::function<void(StackOptions&)>& change) {
    StackOptions options;
    change(options);
    cases.push_back({name, options});
  };
  add("ThreeMatrices",
      [](StackOptions& o) { o.input_size = 2 * kFillsBlocks, o.hidden_size = kFillsBlocks; });
  add("FourMatrices", [](StackOptions& o) { o.input_size = 24, o.hidden_size = kFillsBlocks; });
  add("NoSkip", [](StackOptions& o) { o.has_skip_term = false, o.hidden_size = kFillsBlocks; });
  add("OneDirection", [](StackOptions& o) { o.directions = 1, o.input_size = 16; });
  add("OddSizes", [](StackOptions& o) { o.hidden_size = 19, o.input_size = 38; });
  add("OneWide", [](StackOptions& o) { o.hidden_size = 1, o.input_size = 1; });
  add("OneLayer", [](StackOptions& o) { o.num_layers = 1; });
  add("Projection", [](StackOptions& o) { o.projection_size = 7; });
  add("InputToHidden", [](StackOptions& o) { o.input_to_hidden = true, o.input_size = 10; });
  add("InputToHiddenNoSkip", [](StackOptions& o) {
    o.input_to_hidden = true, o.input_size = 10, o.has_skip_term = false;
  });
  add("NormBefore", [](StackOptions& o) { o.layer_norm = LayerNorm::kBefore; });
  add("NormAfter", [](StackOptions& o) { o.layer_norm = LayerNorm::kAfter, o.num_layers = 1; });
  add("AllOfThem", [](StackOptions& o) {
    o.input_to_hidden = true, o.input_size = 10, o.projection_size = 5;
    o.layer_norm = LayerNorm::kBefore, o.activation = Activation::kTanh;
  });
  add("OneToken", [](StackOptions& o) { o.vocabulary_size = 1; });
  add("WholeChunk", [](StackOptions& o) { o.vocabulary_size = 512; });
  add("TwoChunks", [](StackOptions& o) { o.vocabulary_size = 513; });
  add("ThreeChunks", [](StackOptions& o) {
    o.vocabulary_size = 1300, o.input_to_hidden = true, o.projection_size = 5;
  });
  return cases;
}

class TokenTableTest : public ::testing::TestWithParam<TokenTableCase> {};

TEST_P(TokenTableTest, ChangesNoBit) {
  const RandomStack stack(GetParam().options, 1);
  const StackSpec& spec = stack.spec();
  // Lengths around those of the rings of rows and of ids, then every token of the vocabulary.
  const std::vector<int> lengths = {1, 2, 7, 8, 9, 15, 16, 17, 23, 24, 25, 31, 32, 33, 70, 1};
  const RandomBatch random(spec, lengths, true, 2);
  std::vector<int32_t> all_ids(spec.vocabulary_size);
  for (int32_t i = 0; i < spec.vocabulary_size; ++i) all_ids[i] = spec.vocabulary_size - 1 - i;
  const std::vector<int32_t> all_offsets = {0, spec.vocabulary_size};
  RaggedBatch all;
  all.num_sequences = 1;
  all.offsets = all_offsets.data();
  all.token_ids = all_ids.data();
  // The same input as the caller's features.
  std::vector<float> features;
  for (int t = 0; t < random.view().num_tokens(); ++t) {
    const float* row =
        spec.embedding.data + static_cast<size_t>(random.view().token_ids[t]) * spec.input_size;
    features.insert(features.end(), row, row + spec.input_size);
  }
  RaggedBatch as_features = random.view();
  as_features.token_ids = nullptr;
  as_features.features = features.data();

  for (DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
    for (int num_multiprocessors : {1, 1000}) {  // both widths of the scan
      SCOPED_TRACE(::testing::Message()
                   << DataTypeName(dtype) << ", multiprocessors: " << num_multiprocessors);
      HostDeviceOptions device;
      device.num_multiprocessors = num_multiprocessors;
      Rig with(1, {}, device);
      Rig without(1, WithoutTokenTable(), device);
      with.compile.dtype = without.compile.dtype = dtype;
      const WorkspaceLimits limits{std::max(random.view().num_tokens(), spec.vocabulary_size), 16};
      with.Prepare(spec, limits);
      without.Prepare(spec, limits);
      ASSERT_GT(with.executable->weight_bytes(), without.executable->weight_bytes());
      // Runs by token id again after features, which use another graph.
      std::vector<OutputArrays> found;
      for (const RaggedBatch& batch : {random.view(), as_features, all, random.view()}) {
        found.push_back(with.Run(spec, batch));
        EXPECT_NE(found.back().token_vectors[0], OutputArrays::kUnwritten);
        EXPECT_EQ(DifferentKinds(found.back(), without.Run(spec, batch)), "");
      }
      EXPECT_EQ(DifferentKinds(found[0], found[1]), "");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, TokenTableTest, ::testing::ValuesIn(TokenTableCases()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_F(CudaBackendTest, BatchesOfTokenIdsBeginWithTheFirstScan) {
  StackOptions options;
  options.input_to_hidden = true;
  options.projection_size = 5;
  options.layer_norm = LayerNorm::kBefore;
  options.num_layers = 1;
  const RandomStack stack(options, 1);
  const RandomBatch batch(stack.spec(), {12, 3}, false, 2);
  int64_t operations[2];
  for (int i = 0; i < 2; ++i) {
    Rig rig(stack.spec(), 1, i == 0 ? BackendOptions() : WithoutTokenTable());
    constexpr int64_t kMany = 1000;
    rig.controls[0]->operations_until_lost = kMany;
    rig.Run(stack.spec(), batch.view());
    operations[i] = kMany - rig.controls[0]->operations_until_lost;
  }
  // Embedding, input_to_hidden, layer norm, projection, product.
  EXPECT_EQ(operations[1] - operations[0], 5);
}

TEST_F(CudaBackendTest, TheTokenTableIsOfTheWeights) {
  StackOptions stack_options;
  size_t bytes = kDefaultTableBytes;
  for (bool input_to_hidden : {false, true}) {
    stack_options.input_to_hidden = input_to_hidden;
    if (input_to_hidden) bytes += size_t{512} * 2 * 16 * sizeof(float);  // what the highway reads
    const RandomStack stack(stack_options, 1);
    Rig without(1, WithoutTokenTable());
    ASSERT_TRUE(without.Compile(stack.spec()).ok());
    Rig rig;
    ASSERT_TRUE(rig.Compile(stack.spec()).ok());
    EXPECT_EQ(rig.executable->weight_bytes(), without.executable->weight_bytes() + bytes);
    EXPECT_EQ(rig.backend->devices()[0].weight_bytes, rig.executable->weight_bytes());
    EXPECT_EQ(rig.backend->devices()[0].memory_in_use, rig.executable->weight_bytes());
    rig.executable.reset();
    EXPECT_EQ(rig.backend->devices()[0].weight_bytes, 0u);
    EXPECT_EQ(rig.backend->devices()[0].memory_in_use, 0u);

    BackendOptions options;
    options.cuda_token_table_bytes = bytes;
    Rig at_limit(1, options);
    ASSERT_TRUE(at_limit.Compile(stack.spec()).ok());
    EXPECT_EQ(at_limit.executable->weight_bytes(), without.executable->weight_bytes() + bytes);
    --options.cuda_token_table_bytes;
    Rig below(1, options);
    ASSERT_TRUE(below.Compile(stack.spec()).ok());
    EXPECT_EQ(below.executable->weight_bytes(), without.executable->weight_bytes());
  }
}

TEST_F(CudaBackendTest, AStackWithoutAnEmbeddingHasNoTokenTable) {
  StackOptions options;
  options.vocabulary_size = 0;
  const RandomStack stack(options, 1);
  Rig rig;
  Rig without(1, WithoutTokenTable());
  rig.Prepare(stack.spec());
  ASSERT_TRUE(without.Compile(stack.spec()).ok());
  EXPECT_EQ(rig.executable->weight_bytes(), without.executable->weight_bytes());
  const RandomBatch batch(stack.spec(), {12, 3}, false, 2);
  rig.Run(stack.spec(), batch.view());
}

// A fused layer would not round U: the results would show whether there was memory for the table.
TEST_F(CudaBackendTest, TheFirstLayerOfTokensIsNotFused) {
  size_t bytes[2];
  std::vector<float> vectors[2];
  for (int i = 0; i < 2; ++i) {
    BackendOptions options = i == 0 ? BackendOptions() : WithoutTokenTable();
    Rig rig(1, options);
    rig.compile.dtype = DataType::kBFloat16;
    rig.Prepare(spec_);
    bytes[i] = rig.executable->weight_bytes();
    const OutputArrays outputs = rig.Run(spec_, batch_);
    EXPECT_EQ(rig.controls[0]->fused_layers, 1);  // of two
    vectors[i] = outputs.token_vectors;
  }
  EXPECT_GT(bytes[0], bytes[1]);
  EXPECT_EQ(vectors[0], vectors[1]);
}

// With any budget, the same models fit with a table as without one, and the same are refused.
TEST_F(CudaBackendTest, TheTokenTableTakesNoRoomFromTheRest) {
  StackOptions stack_options;
  stack_options.vocabulary_size = 600;
  const RandomStack stack(stack_options, 1);
  const RandomBatch batch(stack.spec(), {12, 3}, false, 2);
  Rig reference(stack.spec(), WorkspaceLimits{16, 2}, WithoutTokenTable());
  const OutputArrays expected = reference.Run(stack.spec(), batch.view());
  const size_t weights = reference.executable->weight_bytes();

  bool refused = false;
  bool given_up = false;
  bool kept = false;
  const size_t first = weights + kProductWorkspaceBytes;
  const size_t last = weights + 3 * kProductWorkspaceBytes;
  for (size_t limit = first; limit < last; limit += kProductWorkspaceBytes / 32) {
    SCOPED_TRACE(limit);
    StatusCode codes[2][3];
    for (int i = 0; i < 2; ++i) {
      BackendOptions options = i == 0 ? BackendOptions() : WithoutTokenTable();
      options.cuda_memory_limit_bytes = limit;
      Rig rig(1, options);
      codes[i][0] = rig.Compile(stack.spec()).code();
      codes[i][1] = codes[i][2] = StatusCode::kOk;
      if (codes[i][0] != StatusCode::kOk) {
        refused = true;
        continue;
      }
      const bool has_table = rig.executable->weight_bytes() > weights;
      for (int workspace = 0; workspace < 2; ++workspace) {
        codes[i][1 + workspace] = rig.MakeWorkspace({16, 2}).code();
      }
      if (i == 0 && has_table) {
        (rig.executable->weight_bytes() > weights ? kept : given_up) = true;
      }
      EXPECT_EQ(rig.backend->devices()[0].weight_bytes, rig.executable->weight_bytes());
      if (codes[i][1] != StatusCode::kOk) continue;
      const OutputArrays found = rig.Run(stack.spec(), batch.view());
      EXPECT_EQ(DifferentKinds(found, expected), "");
    }
    for (int step = 0; step < 3; ++step) EXPECT_EQ(codes[0][step], codes[1][step]) << step;
  }
  EXPECT_TRUE(refused);
  EXPECT_TRUE(given_up);
  EXPECT_TRUE(kept);
}

TEST_F(CudaBackendTest, ATokenTableInUseStays) {
  size_t one_workspace = 0;
  {
    Rig rig(spec_, WorkspaceLimits{16, 2});
    one_workspace = rig.backend->devices()[0].memory_in_use;
  }
  BackendOptions options;
  options.cuda_memory_limit_bytes = one_workspace + kProductWorkspaceBytes;
  Rig rig(spec_, WorkspaceLimits{16, 2}, options);
  const size_t weights = rig.executable->weight_bytes();
  const OutputArrays first = rig.Run(spec_, batch_);
  EXPECT_EQ(rig.MakeWorkspace({16, 2}).code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(rig.executable->weight_bytes(), weights);
  const OutputArrays second = rig.Run(spec_, batch_);
  EXPECT_EQ(DifferentKinds(second, first), "");
}

TEST_F(CudaBackendTest, ADeviceMayBeLostWhileItsTokenTableIsMade) {
  StackOptions stack_options;
  stack_options.vocabulary_size = 600;
  const RandomStack stack(stack_options, 1);
  // The number of operations that loading takes.
  int64_t operations[2];
  for (int i = 0; i < 2; ++i) {
    Rig rig(1, i == 0 ? WithoutTokenTable() : BackendOptions());
    constexpr int64_t kMany = 100000;
    rig.controls[0]->operations_until_lost = kMany;
    ASSERT_TRUE(rig.Compile(stack.spec()).ok());
    operations[i] = kMany - rig.controls[0]->operations_until_lost;
  }
  // The table and a chunk's rows are initialized, each waited for. Then two copies, two chunks of
  // embedding and product, one wait.
  ASSERT_EQ(operations[1] - operations[0], 11);
  for (int64_t until_lost = operations[0]; until_lost < operations[1]; ++until_lost) {
    Rig rig;
    rig.controls[0]->operations_until_lost = until_lost;
    EXPECT_EQ(rig.Compile(stack.spec()).code(), StatusCode::kDeviceLost) << until_lost;
    EXPECT_TRUE(rig.backend->devices()[0].lost);
    EXPECT_EQ(rig.controls[0]->bytes_in_use, 0);
    EXPECT_EQ(rig.backend->devices()[0].weight_bytes, 0u);
  }
}

TEST(CreateBackendTest, CudaIsListedWhereItCanBeCreated) {
  const std::vector<std::string> names = AvailableBackends();
  const bool listed = std::find(names.begin(), names.end(), "cuda") != names.end();
  std::unique_ptr<Backend> backend;
  const Status status = CreateBackend("cuda", &backend);
  EXPECT_EQ(status.ok(), listed) << status.message();
  if (!listed) {
    EXPECT_THAT(status, IsError(StatusCode::kUnavailable, HasSubstr("backend cuda: ")));
  }
}

}  // namespace
}  // namespace sru::kernels::cuda
