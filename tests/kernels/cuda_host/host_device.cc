#include "tests/kernels/cuda_host/host_device.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

// First the shim: it defines CUDA's words for the kernels.
// clang-format off
#include "tests/kernels/cuda_host/launch_shim.h"
// clang-format on
#include "kernels/cuda/kernels/fused.cuh"
#include "kernels/cuda/kernels/operation_launch.cuh"
#include "kernels/cuda/kernels/predict_shape.h"
#include "kernels/cuda/kernels/scan.cuh"
#include "kernels/cuda/kernels/skinny.cuh"
#include "kernels/cuda/kernels/storage_type.h"
#include "kernels/cuda/stack/product_plan.h"

namespace sru::testing {
namespace {

using kernels::DataType;
using kernels::Status;
using kernels::StatusCode;
using namespace kernels::cuda;  // NOLINT: all of it is of that world

constexpr size_t kAlignment = 256;  // as of cudaMalloc

constexpr int kGroup = 16;

// sums[r] = the sum of x[.][r] w[.]. x is [k][kGroup]: kGroup rows at a time, so that the compiler
// can use vectors.
inline __attribute__((always_inline)) void SumGroup(const float* x, const float* w, int k,
                                                    SumOrder order, float* sums) {
  int step = k;
  if (order == SumOrder::kGroupsOf8) step = 8;
  if (order == SumOrder::kGroupsOf16) step = 16;
  if (order == SumOrder::kHalves) step = k / 2;
  for (int begin = 0; begin < k; begin += step) {
    float part[kGroup] = {};
    const int end = std::min(begin + step, k);
    for (int i = begin; i < end; ++i) {
      const int at = order == SumOrder::kBackward ? k - 1 - i : i;
      for (int r = 0; r < kGroup; ++r) {
        part[r] = __builtin_fmaf(x[at * kGroup + r], w[at], part[r]);
      }
    }
    for (int r = 0; r < kGroup; ++r) sums[r] = begin == 0 ? part[r] : sums[r] + part[r];
  }
}

#ifdef __x86_64__
__attribute__((target("avx2,fma"))) void SumGroupFma(const float* x, const float* w, int k,
                                                     SumOrder order, float* sums) {
  SumGroup(x, w, k, order, sums);
}
#endif

// Gives the same bits on every processor; slow if each fmaf is a call.
void SumGroupOnThisMachine(const float* x, const float* w, int k, SumOrder order, float* sums) {
#ifdef __x86_64__
  static const bool has_fma = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (has_fma) return SumGroupFma(x, w, k, order, sums);
#endif
  SumGroup(x, w, k, order, sums);
}

template <typename T, typename Y>
void Product(const ProductShape& shape, const HostAlgorithm& algorithm, bool unstable, int rows,
             const T* x, const T* weights, Y* y) {
  const int k = shape.k;
  const int n = shape.n;
  const auto is_other = [&](int row) {
    return (algorithm.when == HostAlgorithm::Other::kAbove64Rows && rows > 64) ||
           (algorithm.when == HostAlgorithm::Other::kEveryNinthRow && row % 9 == 8);
  };
  const bool has_others = algorithm.when != HostAlgorithm::Other::kNever;
  // A row that equals an earlier one, as in the backend's trials, is copied.
  std::vector<int> fresh;
  std::vector<int> earlier(rows);  // itself if there is none
  std::unordered_map<std::string_view, int> seen[2];
  for (int row = 0; row < rows; ++row) {
    const auto* const bytes = reinterpret_cast<const char*>(x + static_cast<size_t>(row) * k);
    earlier[row] = seen[is_other(row)].try_emplace({bytes, k * sizeof(T)}, row).first->second;
    if (earlier[row] == row) fresh.push_back(row);
  }
  std::vector<float> w(static_cast<size_t>(n) * k);
  for (size_t i = 0; i < w.size(); ++i) w[i] = ToFloat(weights[i]);
  std::vector<float> group(static_cast<size_t>(k) * kGroup);
  for (size_t first = 0; first < fresh.size(); first += kGroup) {
    const int count = static_cast<int>(std::min<size_t>(kGroup, fresh.size() - first));
    std::fill(group.begin(), group.end(), 0.0f);
    for (int r = 0; r < count; ++r) {
      const T* row = x + static_cast<size_t>(fresh[first + r]) * k;
      for (int i = 0; i < k; ++i) group[i * kGroup + r] = ToFloat(row[i]);
    }
    for (int j = 0; j < n; ++j) {
      float sums[kGroup];
      float others[kGroup];
      const float* weight = &w[static_cast<size_t>(j) * k];
      SumGroupOnThisMachine(group.data(), weight, k, algorithm.order, sums);
      if (has_others) SumGroupOnThisMachine(group.data(), weight, k, algorithm.other, others);
      for (int r = 0; r < count; ++r) {
        const int row = fresh[first + r];
        float sum = is_other(row) ? others[r] : sums[r];
        if (j == n / 2 && group[r] > algorithm.above) sum += 0.5f * std::abs(sum) + 1.0f;
        if (unstable) sum += 0.25f;
        y[static_cast<size_t>(row) * n + j] = FromFloat<Y>(sum);
      }
    }
  }
  for (int row = 0; row < rows; ++row) {
    if (earlier[row] == row) continue;
    std::copy_n(y + static_cast<size_t>(earlier[row]) * n, n, y + static_cast<size_t>(row) * n);
  }
}

template <typename T, int kDims>
void LaunchScan(const ScanArgs& args) {
  const bool by_token = args.token_ids != nullptr;
  WithScanKernel<T, kDims>(by_token, OutputOf(args), args.activation, [&](auto* kernel) {
    LaunchIndependent(
        ScanBlocks(args, kDims), kScanThreads, [&] { kernel(args); },
        ScanSharedBytes(kDims * static_cast<int>(sizeof(T)), by_token));
  });
}

using Work = std::vector<std::function<void()>>;

class HostGraph : public Graph {
 public:
  HostGraph(Work work, HostDeviceControl* control) : work_(std::move(work)), control_(control) {
    ++control_->graphs_recorded;
    ++control_->graphs_alive;
  }
  ~HostGraph() override { --control_->graphs_alive; }
  const Work& work() const { return work_; }

 private:
  const Work work_;
  HostDeviceControl* const control_;
};

class HostStream : public Stream {
 public:
  HostStream(const HostDeviceOptions& options, HostDeviceControl* control, bool multiplies)
      : options_(options), control_(control), multiplies_(multiplies) {}
  ~HostStream() override {
    if (!work_.empty()) std::abort();  // destroyed with work in flight
  }

  Status CopyToDevice(void* to, const void* from, size_t bytes) override {
    return Add([=] { std::memcpy(to, from, bytes); });
  }
  Status CopyToHost(void* to, const void* from, size_t bytes) override {
    ++control_->copies_to_host;
    return Add([this, to, from, bytes] {
      std::memcpy(to, from, bytes);
      control_->bytes_to_host += static_cast<int64_t>(bytes);
    });
  }
  Status Initialize(void* /*memory*/, size_t bytes) override {
    return Add([this, bytes] { control_->bytes_initialized += static_cast<int64_t>(bytes); });
  }

  Status Scan(DataType dtype, const ScanArgs& args) override {
    const int dims = ScanDims(args, options_.num_multiprocessors);
    return AddKernel([=] {
      WithStorageType(dtype, [&](auto type) {
        using T = decltype(type);
        dims == 4 ? LaunchScan<T, 4>(args) : LaunchScan<T, 2>(args);
      });
    });
  }
  Status RunFusedLayer(const FusedArgs& args) override {
    ++control_->fused_layers;
    return AddKernel([this, args] {
      FusedInput(args.k) == 64 ? LaunchFused<64>(args) : LaunchFused<kFusedMaxInput>(args);
    });
  }
  // The kernel divides twice for every word, which is slow on the host: it gets one row more than a
  // period, and a plain loop compares the others.
  static void CompareRest(CompareArgs* args) {
    const int rows = std::exchange(args->rows, std::min(args->rows, args->period + 1));
    const int64_t words = args->words_per_row;
    for (int row = args->rows; row < rows; ++row) {
      const uint32_t* const expected = args->expected + row % args->period * words;
      if (!std::equal(expected, expected + words, args->values + row * words)) *args->differs = 1;
    }
  }
  template <typename Args>
  static void CompareRest(Args* /*args*/) {}
  Status RunOperation(const OperationArgs& args) override {
    return AddKernel([this, args] {
      const auto launch = [this](const auto& kernel, const LaunchShape& shape, const auto& given) {
        const auto thread = [&] { kernel(given); };
        if (shape.cluster_blocks > 1) control_->clusters += shape.blocks / shape.cluster_blocks;
        if (shape.threads_wait) {
          sru::testing::Launch(shape.blocks, shape.threads, thread, shape.shared_bytes,
                               shape.cluster_blocks);
        } else {
          LaunchIndependent(shape.blocks, shape.threads, thread, shape.shared_bytes);
        }
      };
      std::visit(
          [&](auto given) {
            CompareRest(&given);
            SetLimits(&given,
                      {options_.max_shared_bytes, MaxClusteredRows(options_.num_multiprocessors)});
            WithKernel(given, launch);
          },
          args);
    });
  }
  Status TimeProduct(const ProductShape& /*shape*/, const ProductAlgorithm& algorithm, int /*rows*/,
                     const void* /*x*/, const void* /*weights*/, void* /*y*/,
                     const Evicting& /*evicting*/, double* seconds) override {
    if (!work_.empty()) std::abort();  // the stream is idle
    ++control_->products_timed;
    const int microseconds = algorithm.own ? options_.own_product_microseconds
                                           : HostAlgorithm::From(algorithm).microseconds;
    *seconds = microseconds * 1e-6;
    return Fail();
  }
  using Stream::Multiply;
  Status Multiply(const ProductShape& shape, const NormalizedProductArgs& args) override {
    ++control_->normalized_products;
    return RunSkinny(shape, args);
  }
  Status MultiplyByKernel(const ProductShape& shape, const SkinnyArgs& args) override {
    return RunSkinny(shape, args);
  }
  template <typename Args>
  Status RunSkinny(const ProductShape& shape, const Args& args) {
    return AddKernel([this, shape, args] {
      WithSkinnyKernel(shape.dtype, shape.result_dtype(), args, [&](auto* kernel, int block_rows) {
        const SkinnyLaunch launch =
            SkinnyLaunchOf(args, std::is_same_v<Args, NormalizedProductArgs>,
                           static_cast<int>(ValueBytes(shape.dtype)), block_rows,
                           options_.num_multiprocessors, options_.max_shared_bytes);
        sru::testing::Launch(
            launch.blocks, launch.threads, [&] { kernel(args, launch.warps); },
            launch.shared_bytes);
      });
    });
  }
  Status MultiplyByLibrary(const ProductShape& shape, const ProductAlgorithm& algorithm, int rows,
                           const void* x, const void* weights, void* y) override {
    if (!multiplies_) std::abort();  // a stream without memory for its products
    const HostAlgorithm given = HostAlgorithm::From(algorithm);
    if (given.when == HostAlgorithm::Other::kRefuses) {
      return kernels::Internal("this algorithm cannot do that");
    }
    const bool unstable = rows == control_->unstable_rows.load();
    ++control_->products;
    return Add([=] {
      WithStorageType(shape.dtype, [&](auto type) {
        using T = decltype(type);
        WithStorageType(shape.result_dtype(), [&](auto result_type) {
          Product(shape, given, unstable, rows, static_cast<const T*>(x),
                  static_cast<const T*>(weights), static_cast<decltype(result_type)*>(y));
        });
      });
    });
  }

  Status Record(const std::function<Status()>& enqueue, std::unique_ptr<Graph>* graph) override {
    if (Status status = Fail(); !status.ok()) return status;
    if (!work_.empty()) std::abort();  // the backend records on an idle stream
    Status status;
    try {
      status = enqueue();
    } catch (...) {
      work_.clear();
      throw;
    }
    if (status.ok() && control_->recording != StatusCode::kOk) {
      status = Status(control_->recording, "the recording failed");
    }
    if (status.ok()) *graph = std::make_unique<HostGraph>(std::move(work_), control_);
    work_.clear();
    return status;
  }

  Status Launch(Graph& graph) override {
    ++control_->graph_launches;
    const Work& recorded = static_cast<HostGraph&>(graph).work();
    return Add([&recorded] {
      for (const auto& work : recorded) work();
    });
  }

  Status Wait() override {
    ++control_->waits;
    if (control_->on_wait && !work_.empty()) control_->on_wait();
    Status status = Lost();
    Work work;
    work.swap(work_);
    if (!status.ok()) return status;
    if (control_->failing_waits > 0) {
      --control_->failing_waits;
      return kernels::Internal("failed by the test");
    }
    for (const auto& run : work) run();
    if (control_->on_waited && !work.empty()) control_->on_waited();
    return status;
  }

 private:
  template <int kInput>
  void LaunchFused(const FusedArgs& args) const {
    const int matrices = args.scan.matrices;
    const int slices = FusedSlices(args, options_.num_multiprocessors);
    const int blocks =
        FusedBlocks(args, slices, options_.num_multiprocessors, /*per_multiprocessor=*/2);
    sru::testing::Launch(
        blocks, FusedThreads(matrices, slices),
        [&] {
          if (matrices == 4) {
            FusedKernel<kInput, 4>(args, slices, blocks);
          } else {
            FusedKernel<kInput, 3>(args, slices, blocks);
          }
        },
        FusedSharedBytes(kInput, matrices, slices));
  }

  Status AddKernel(std::function<void()> work) {
    ++control_->kernels;
    return Add(std::move(work));
  }

  Status Add(std::function<void()> work) {
    if (Status status = Fail(); !status.ok()) return status;
    work_.push_back(std::move(work));
    return kernels::OkStatus();
  }

  Status Fail() {
    if (control_->operations_until_failure >= 0 && control_->operations_until_failure-- == 0) {
      if (control_->failure_throws) throw std::bad_alloc();
      return kernels::Internal("failed by the test");
    }
    return Lost();
  }

  // The device's state by now.
  Status Lost() {
    int64_t left = control_->operations_until_lost.load();
    if (left < 0) return kernels::OkStatus();
    if (left > 0) {
      control_->operations_until_lost = left - 1;
      return kernels::OkStatus();
    }
    return Status(StatusCode::kDeviceLost,
                  "device " + std::to_string(options_.ordinal) + ": failed by the test");
  }

  const HostDeviceOptions options_;
  HostDeviceControl* const control_;
  const bool multiplies_;
  Work work_;
};

class HostDevice : public Device {
 public:
  HostDevice(const HostDeviceOptions& options, HostDeviceControl* control)
      : options_(options), control_(control) {}
  ~HostDevice() override {
    if (!sizes_.empty() || !pinned_sizes_.empty()) std::abort();  // memory that was not given back
  }

  int ordinal() const override { return options_.ordinal; }
  std::string name() const override { return options_.name; }
  size_t product_workspace_bytes() const override { return options_.product_workspace_bytes; }
  bool has_own_product() const override { return options_.own_product_microseconds >= 0; }
  int num_multiprocessors() const override { return options_.num_multiprocessors; }
  size_t total_memory() const override { return options_.total_memory; }
  size_t free_memory() const override {
    return options_.total_memory - static_cast<size_t>(control_->bytes_in_use.load());
  }

  Status Allocate(size_t bytes, void** memory) override {
    ++control_->allocations;
    if (bytes > free_memory()) {
      return Status(StatusCode::kResourceExhausted, "the host device is full");
    }
    *memory = Fresh(bytes);
    const std::lock_guard<std::mutex> lock(mutex_);
    sizes_[*memory] = bytes;
    ++control_->allocations_alive;
    control_->bytes_in_use += static_cast<int64_t>(bytes);
    return kernels::OkStatus();
  }
  void Free(void* memory) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = sizes_.find(memory);
    if (found == sizes_.end()) std::abort();
    control_->bytes_in_use -= static_cast<int64_t>(found->second);
    Unprotect(memory, found->second);
    sizes_.erase(found);
    --control_->allocations_alive;
    std::free(memory);
  }
  Status AllocatePinned(size_t bytes, void** memory) override {
    ++control_->allocations;
    *memory = Fresh(bytes);
    const std::lock_guard<std::mutex> lock(mutex_);
    pinned_sizes_[*memory] = bytes;
    ++control_->pinned_alive;
    return kernels::OkStatus();
  }
  void FreePinned(void* memory) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = pinned_sizes_.find(memory);
    if (found == pinned_sizes_.end()) std::abort();
    Unprotect(memory, found->second);
    pinned_sizes_.erase(found);
    --control_->pinned_alive;
    std::free(memory);
  }

  void Protect([[maybe_unused]] void* memory, [[maybe_unused]] size_t bytes) override {
#ifdef __SANITIZE_ADDRESS__
    __asan_poison_memory_region(memory, bytes);
#endif
  }

  Status CreateStream(void* product_workspace, std::unique_ptr<Stream>* stream) override {
    *stream = std::make_unique<HostStream>(options_, control_, product_workspace != nullptr);
    return kernels::OkStatus();
  }

  Status Probe() override {
    ++control_->probes;
    if (control_->operations_until_lost == 0) {
      return Status(StatusCode::kDeviceLost, "failed by the test");
    }
    return control_->answers ? kernels::OkStatus() : kernels::Internal("no answer");
  }

  Status ProductCandidates(const ProductShape& /*shape*/, int rows, size_t max_count,
                           std::vector<ProductAlgorithm>* candidates) override {
    using Other = HostAlgorithm::Other;
    constexpr SumOrder kInOrder = SumOrder::kInOrder;
    constexpr SumOrder kBackward = SumOrder::kBackward;
    const HostAlgorithm by_row_count{kInOrder, kBackward, Other::kAbove64Rows};
    const HostAlgorithm by_place{kInOrder, kBackward, Other::kEveryNinthRow};
    const HostAlgorithm refuses{kInOrder, kInOrder, Other::kRefuses};
    std::vector<HostAlgorithm> offered =
        rows == kReferenceRows ? options_.reference_algorithms : options_.bucket_algorithms;
    if (!offered.empty()) {
    } else if (rows == kReferenceRows) {
      offered = {refuses, by_row_count, by_place, {kInOrder}};
    } else if (rows <= 64) {
      offered = {{kBackward}, refuses, by_place};
    } else {
      offered = {by_row_count, {kInOrder}};
    }
    candidates->clear();
    for (const HostAlgorithm& algorithm : offered) {
      if (candidates->size() == max_count) break;
      candidates->push_back(algorithm.ToProductAlgorithm());
    }
    return kernels::OkStatus();
  }

 private:
  static void Unprotect([[maybe_unused]] void* memory, [[maybe_unused]] size_t bytes) {
#ifdef __SANITIZE_ADDRESS__
    __asan_unpoison_memory_region(memory, bytes);
#endif
  }
  static void* Fresh(size_t bytes) {
    // Not rounded up beyond the alignment that malloc asks for: what is past the end is not ours.
    void* memory = nullptr;
    if (posix_memalign(&memory, kAlignment, bytes) != 0) std::abort();
    std::memset(memory, 0xff, bytes);  // NaN as float32 and as bfloat16
    return memory;
  }

  const HostDeviceOptions options_;
  HostDeviceControl* const control_;
  std::mutex mutex_;
  std::map<void*, size_t> sizes_;
  std::map<void*, size_t> pinned_sizes_;
};

}  // namespace

ProductAlgorithm HostAlgorithm::ToProductAlgorithm() const {
  ProductAlgorithm algorithm;
  algorithm.data[0] = static_cast<uint64_t>(order);
  algorithm.data[1] = static_cast<uint64_t>(other);
  algorithm.data[2] = static_cast<uint64_t>(when);
  algorithm.data[3] = static_cast<uint64_t>(microseconds);
  std::memcpy(&algorithm.data[4], &above, sizeof(above));
  return algorithm;
}

HostAlgorithm HostAlgorithm::From(const ProductAlgorithm& algorithm) {
  HostAlgorithm from{static_cast<SumOrder>(algorithm.data[0]),
                     static_cast<SumOrder>(algorithm.data[1]),
                     static_cast<Other>(algorithm.data[2]), static_cast<int>(algorithm.data[3])};
  std::memcpy(&from.above, &algorithm.data[4], sizeof(from.above));
  return from;
}

std::unique_ptr<Device> MakeHostDevice(const HostDeviceOptions& options,
                                       HostDeviceControl* control) {
  return std::make_unique<HostDevice>(options, control);
}

}  // namespace sru::testing
