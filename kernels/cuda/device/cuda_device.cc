// Device, Stream and Graph on the CUDA runtime.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/device/cublaslt.h"
#include "kernels/cuda/device/device.h"
#include "kernels/cuda/device/open_devices.h"
#include "kernels/cuda/device/poll_time.h"
#include "kernels/cuda/device/product.h"
#include "kernels/cuda/device/self_check.h"
#include "kernels/cuda/kernels/fused_shape.h"
#include "kernels/cuda/kernels/launch.h"
#include "kernels/cuda/kernels/predict_shape.h"
#include "kernels/cuda/kernels/scan_shape.h"
#include "kernels/mutex.h"

namespace sru::kernels::cuda {
namespace {

constexpr size_t kProbedBytes = 256;
// What NVIDIA recommends for cuBLAS from compute capability 9 on.
constexpr size_t kLargeProductWorkspaceBytes = size_t{32} << 20;

// Errors after which every later call of the process on that device fails too. The list cannot be
// complete: of the others Gpu::Observe() finds out.
bool IsSticky(cudaError_t error) {
  switch (error) {
    case cudaErrorIllegalAddress:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorIllegalInstruction:
    case cudaErrorHardwareStackError:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
#if CUDART_VERSION >= 12080
    case cudaErrorContained:
#endif
    case cudaErrorExternalDevice:
#if CUDART_VERSION >= 13000
    case cudaErrorTensorMemoryLeak:
#endif
    case cudaErrorContextIsDestroyed:
    case cudaErrorDevicesUnavailable:
    case cudaErrorDeviceUninitialized:
    case cudaErrorSystemNotReady:
    case cudaErrorMpsConnectionFailed:
    case cudaErrorMpsRpcFailure:
    case cudaErrorMpsServerNotReady:
    case cudaErrorMpsClientTerminated:
    case cudaErrorCudartUnloading:
    case cudaErrorUnknown:
      return true;
    default:
      return false;
  }
}

// The runtime keeps an error for the thread until it is asked for, whichever device it was of. All
// that matters comes back from the calls themselves, so nothing of it is left for others to find.
void ForgetLastError() { (void)cudaGetLastError(); }

Status ToStatus(cudaError_t error, const char* call, int ordinal) {
  if (error == cudaSuccess) return OkStatus();
  const std::string message = "device " + std::to_string(ordinal) + ": " + call + ": " +
                              cudaGetErrorString(error) + " (" + cudaGetErrorName(error) + ")";
  ForgetLastError();
  if (error == cudaErrorMemoryAllocation) {
    return Status(StatusCode::kResourceExhausted, message);
  }
  return IsSticky(error) ? Status(StatusCode::kDeviceLost, message) : Internal(message);
}

class CudaGraph : public Graph {
 public:
  explicit CudaGraph(int ordinal) : ordinal_(ordinal) {}
  ~CudaGraph() override {
    if (executable == nullptr) return;
    (void)cudaSetDevice(ordinal_);
    (void)cudaGraphExecDestroy(executable);
    ForgetLastError();
  }

  cudaGraphExec_t executable = nullptr;
  PollTime poll_time;

 private:
  const int ordinal_;
};

// A capture that has begun on a stream. It ends with the object at the latest: a stream that an
// exception left recording would refuse all later work.
class Capture {
 public:
  explicit Capture(cudaStream_t stream) : stream_(stream) {}
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;
  ~Capture() {
    if (!ended_) (void)End();
    if (graph_ != nullptr) (void)cudaGraphDestroy(graph_);
    ForgetLastError();
  }

  cudaError_t End() {
    ended_ = true;
    return cudaStreamEndCapture(stream_, &graph_);
  }
  cudaGraph_t graph() const { return graph_; }

 private:
  cudaStream_t stream_;
  bool ended_ = false;
  cudaGraph_t graph_ = nullptr;
};

// An event that says when it came. On the current device.
struct TimingEvent {
  TimingEvent() = default;
  TimingEvent(const TimingEvent&) = delete;
  TimingEvent& operator=(const TimingEvent&) = delete;
  ~TimingEvent() {
    if (event != nullptr) (void)cudaEventDestroy(event);
    ForgetLastError();
  }

  cudaEvent_t event = nullptr;
};

class CudaStream : public Stream {
  using Clock = std::chrono::steady_clock;

 public:
  CudaStream(int ordinal, int num_multiprocessors, const OperationLimits& limits)
      : ordinal_(ordinal), num_multiprocessors_(num_multiprocessors), limits_(limits) {}

  Status Create(const CublasLt& library, void* product_workspace, size_t product_workspace_bytes) {
    SRU_RETURN_IF_ERROR(Check(cudaSetDevice(ordinal_), "cudaSetDevice"));
    SRU_RETURN_IF_ERROR(Check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking),
                              "cudaStreamCreateWithFlags"));
    // A thread that waits for it, and no longer polls, sleeps until the device's interrupt.
    SRU_RETURN_IF_ERROR(
        Check(cudaEventCreateWithFlags(&done_, cudaEventDisableTiming | cudaEventBlockingSync),
              "cudaEventCreateWithFlags"));
    return ProductRunner::Create(library, product_workspace, product_workspace_bytes, &products_);
  }

  ~CudaStream() override {
    // On a device that has failed these fail too, and nothing is left to do about it.
    (void)cudaSetDevice(ordinal_);
    products_.reset();
    if (done_ != nullptr) (void)cudaEventDestroy(done_);
    if (stream_ != nullptr) (void)cudaStreamDestroy(stream_);
    ForgetLastError();
  }

  ProductRunner& products() { return *products_; }

  Status Initialize(void* memory, size_t bytes) override {
    return Run("cudaMemsetAsync", [&] { return cudaMemsetAsync(memory, 0, bytes, stream_); });
  }

  Status CopyToDevice(void* to, const void* from, size_t bytes) override {
    return Copy(to, from, bytes, cudaMemcpyHostToDevice);
  }
  Status CopyToHost(void* to, const void* from, size_t bytes) override {
    return Copy(to, from, bytes, cudaMemcpyDeviceToHost);
  }

  Status Scan(DataType dtype, const ScanArgs& args) override {
    return Run("scan", [&] {
      return LaunchScan(dtype, ScanDims(args, num_multiprocessors_), args, kernels());
    });
  }
  Status RunFusedLayer(const FusedArgs& args) override {
    return Run("fused layer", [&] {
      const int slices = FusedSlices(args, num_multiprocessors_);
      const int blocks = FusedBlocks(args, slices, num_multiprocessors_,
                                     FusedBlocksPerMultiprocessor(args, slices));
      return LaunchFused(args, slices, blocks, kernels());
    });
  }
  Status RunOperation(const OperationArgs& args) override {
    return Run(OperationName(args), [&] { return LaunchOperation(args, limits_, kernels()); });
  }

  using Stream::Multiply;
  Status Multiply(const ProductShape& shape, const NormalizedProductArgs& args) override {
    return RunSkinny(shape, args);
  }

  Status TimeProduct(const ProductShape& shape, const ProductAlgorithm& algorithm, int rows,
                     const void* x, const void* weights, void* y, const Evicting& evicting,
                     double* seconds) override {
    constexpr int kRuns = 5;
    TimingEvent begins[kRuns];
    TimingEvent ends[kRuns];
    SRU_RETURN_IF_ERROR(Check(cudaSetDevice(ordinal_), "cudaSetDevice"));
    for (TimingEvent* events : {begins, ends}) {
      for (int run = 0; run < kRuns; ++run) {
        SRU_RETURN_IF_ERROR(Check(cudaEventCreateWithFlags(&events[run].event, cudaEventDefault),
                                  "cudaEventCreateWithFlags"));
      }
    }
    SRU_RETURN_IF_ERROR(RunWork(*this, [&]() -> Status {
      for (int run = 0; run < kRuns; ++run) {
        // Takes the device longer than the launch below takes here, so no product waits for that.
        if (evicting.bytes > 0) SRU_RETURN_IF_ERROR(Initialize(evicting.memory, evicting.bytes));
        SRU_RETURN_IF_ERROR(Check(cudaEventRecord(begins[run].event, stream_), "cudaEventRecord"));
        SRU_RETURN_IF_ERROR(Multiply(shape, algorithm, rows, x, weights, y));
        SRU_RETURN_IF_ERROR(Check(cudaEventRecord(ends[run].event, stream_), "cudaEventRecord"));
      }
      return OkStatus();
    }));
    float least = std::numeric_limits<float>::max();
    for (int run = 0; run < kRuns; ++run) {
      float milliseconds = 0;
      SRU_RETURN_IF_ERROR(
          Check(cudaEventElapsedTime(&milliseconds, begins[run].event, ends[run].event),
                "cudaEventElapsedTime"));
      least = std::min(least, milliseconds);
    }
    *seconds = least / 1e3;
    return OkStatus();
  }

  Status Record(const std::function<Status()>& enqueue, std::unique_ptr<Graph>* graph) override {
    auto recorded = std::make_unique<CudaGraph>(ordinal_);
    SRU_RETURN_IF_ERROR(Check(cudaSetDevice(ordinal_), "cudaSetDevice"));
    // Thread-local: other instances allocate and launch meanwhile.
    SRU_RETURN_IF_ERROR(Check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal),
                              "cudaStreamBeginCapture"));
    Capture capture(stream_);
    SRU_RETURN_IF_ERROR(enqueue());
    SRU_RETURN_IF_ERROR(Check(capture.End(), "cudaStreamEndCapture"));
    SRU_RETURN_IF_ERROR(Check(cudaGraphInstantiate(&recorded->executable, capture.graph(), 0),
                              "cudaGraphInstantiate"));
    *graph = std::move(recorded);
    return OkStatus();
  }

  Status Launch(Graph& graph) override {
    auto& launched = static_cast<CudaGraph&>(graph);
    if (launched_ == nullptr) begin_ = Clock::now();
    launched_ = &launched;
    return Run("cudaGraphLaunch", [&] { return cudaGraphLaunch(launched.executable, stream_); });
  }

  void* native_handle() override { return stream_; }

  Status Wait() override {
    // A run may launch several graphs. The wait is for all of them, and the last one notes its
    // time.
    CudaGraph* const graph = std::exchange(launched_, nullptr);
    if (graph == nullptr) begin_ = Clock::now();
    cudaError_t error = cudaSetDevice(ordinal_);
    if (error == cudaSuccess) error = cudaEventRecord(done_, stream_);
    if (error == cudaSuccess &&
        !PollUntil(begin_ + (graph != nullptr ? graph->poll_time.After(poll()) : poll()))) {
      error = cudaEventSynchronize(done_);
    }
    if (error == cudaSuccess) {
      if (graph != nullptr) graph->poll_time.Add(Clock::now() - begin_);
      return OkStatus();
    }
    // The event may have failed and not the work, which is over only if the stream says so.
    const bool over = cudaStreamSynchronize(stream_) == cudaSuccess;
    Status status = Check(error, "waiting for the device");
    return over ? status : Status(StatusCode::kDeviceLost, status.message());
  }

 private:
  Status MultiplyByKernel(const ProductShape& shape, const SkinnyArgs& args) override {
    return RunSkinny(shape, args);
  }
  template <typename Args>
  Status RunSkinny(const ProductShape& shape, const Args& args) {
    return Run("product", [&] {
      return LaunchSkinny(shape.dtype, shape.result_dtype(), args, num_multiprocessors_,
                          limits_.max_shared_bytes, kernels());
    });
  }

  Status MultiplyByLibrary(const ProductShape& shape, const ProductAlgorithm& algorithm, int rows,
                           const void* x, const void* weights, void* y) override {
    SRU_RETURN_IF_ERROR(Check(cudaSetDevice(ordinal_), "cudaSetDevice"));
    // The library does not say whether the device has failed; RunWork() finds out.
    return products_->Run(shape, algorithm, rows, x, weights, y, stream_);
  }

  Status Check(cudaError_t error, const char* call) const {
    return ToStatus(error, call, ordinal_);
  }

  // Where our kernels are launched.
  LaunchStream kernels() const { return {stream_}; }

  // Whether the event has come while it was asked for. An error is left for the wait to report.
  bool PollUntil(Clock::time_point end) {
    if (poll().count() == 0) return false;
    do {
      const cudaError_t error = cudaEventQuery(done_);
      if (error == cudaSuccess) return true;
      ForgetLastError();  // not being ready is one
      if (error != cudaErrorNotReady) return false;
    } while (Clock::now() < end);
    return false;
  }

  template <typename Call>
  Status Run(const char* name, Call call) {
    const cudaError_t error = cudaSetDevice(ordinal_);
    return Check(error == cudaSuccess ? call() : error, name);
  }

  Status Copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    return Run("cudaMemcpyAsync", [&] { return cudaMemcpyAsync(to, from, bytes, kind, stream_); });
  }

  const int ordinal_;
  const int num_multiprocessors_;
  const OperationLimits limits_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t done_ = nullptr;
  CudaGraph* launched_ = nullptr;  // last, since the last wait
  Clock::time_point begin_;        // of the first of these launches
  std::unique_ptr<ProductRunner> products_;
};

class CudaDevice : public Device {
 public:
  CudaDevice(int ordinal, const CublasLt& library) : ordinal_(ordinal), library_(library) {}
  ~CudaDevice() override {
    own_stream_.reset();
    if (probed_ != nullptr) Free(probed_);
  }

  Status Open() {
    // A thread that waits for this device gives up its processor.
    SRU_RETURN_IF_ERROR(
        Check(cudaInitDevice(ordinal_, cudaDeviceScheduleBlockingSync, cudaInitDeviceFlagsAreValid),
              "cudaInitDevice"));
    SRU_RETURN_IF_ERROR(
        Check(cudaGetDeviceProperties(&properties_, ordinal_), "cudaGetDeviceProperties"));
    if (properties_.major < kMinComputeCapability) {
      return Status(StatusCode::kUnavailable, "device ", ordinal_, " (", properties_.name,
                    "): expected compute capability ", kMinComputeCapability, ".0 or newer, found ",
                    properties_.major, ".", properties_.minor);
    }
    SRU_RETURN_IF_ERROR(Check(cudaSetDevice(ordinal_), "cudaSetDevice"));
    int architecture = std::numeric_limits<int>::max();
    SRU_RETURN_IF_ERROR(Check(LoadScanKernels(&architecture), "loading the scan kernels"));
    SRU_RETURN_IF_ERROR(Check(LoadFusedKernels(&architecture), "loading the fused kernels"));
    limits_.max_shared_bytes = properties_.sharedMemPerBlockOptin;
    SRU_RETURN_IF_ERROR(Check(LoadSkinnyKernels(&architecture, limits_.max_shared_bytes),
                              "loading the products' kernels"));
    if (HasClusters(architecture)) {
      limits_.max_clustered_rows = MaxClusteredRows(num_multiprocessors());
    }
    SRU_RETURN_IF_ERROR(
        Check(LoadOperationKernels(&architecture, &limits_), "loading the operations' kernels"));
    const MutexLock lock(&mutex_);
    SRU_RETURN_IF_ERROR(Check(cudaMalloc(&probed_, kProbedBytes), "cudaMalloc"));
    auto stream = NewStream();
    SRU_RETURN_IF_ERROR(stream->Create(library_, nullptr, product_workspace_bytes()));
    own_stream_ = std::move(stream);
    return CheckAnswers(*this, *own_stream_);
  }

  int ordinal() const override { return ordinal_; }
  std::string name() const override { return properties_.name; }
  int num_multiprocessors() const override { return properties_.multiProcessorCount; }
  size_t total_memory() const override { return properties_.totalGlobalMem; }
  size_t free_memory() const override {
    size_t free = 0;
    size_t total = 0;
    if (cudaSetDevice(ordinal_) != cudaSuccess || cudaMemGetInfo(&free, &total) != cudaSuccess) {
      ForgetLastError();
      return 0;
    }
    return free;
  }

  Status Allocate(size_t bytes, void** memory) override {
    SRU_RETURN_IF_ERROR(Check(cudaSetDevice(ordinal_), "cudaSetDevice"));
    return Check(cudaMalloc(memory, bytes), "cudaMalloc");
  }
  void Free(void* memory) override {
    (void)cudaSetDevice(ordinal_);
    (void)cudaFree(memory);
    ForgetLastError();
  }
  Status AllocatePinned(size_t bytes, void** memory) override {
    SRU_RETURN_IF_ERROR(Check(cudaSetDevice(ordinal_), "cudaSetDevice"));
    return Check(cudaHostAlloc(memory, bytes, cudaHostAllocPortable), "cudaHostAlloc");
  }
  void FreePinned(void* memory) override {
    (void)cudaSetDevice(ordinal_);
    (void)cudaFreeHost(memory);
    ForgetLastError();
  }

  size_t product_workspace_bytes() const override {
    return properties_.major >= 9 ? kLargeProductWorkspaceBytes : kProductWorkspaceBytes;
  }

  size_t cache_bytes() const override { return properties_.l2CacheSize; }

  Status CreateStream(void* product_workspace, std::unique_ptr<Stream>* stream) override {
    auto created = NewStream();
    Status status = created->Create(library_, product_workspace, product_workspace_bytes());
    if (status.ok()) *stream = std::move(created);
    return status;
  }

  Status Probe() override {
    const MutexLock lock(&mutex_);
    CudaStream& stream = *own_stream_;
    void* const probed = probed_;
    return RunWork(stream, [&] { return stream.Initialize(probed, kProbedBytes); });
  }

  Status ProductCandidates(const ProductShape& shape, int rows, size_t max_count,
                           std::vector<ProductAlgorithm>* candidates) override {
    const MutexLock lock(&mutex_);
    SRU_RETURN_IF_ERROR(Check(cudaSetDevice(ordinal_), "cudaSetDevice"));
    return own_stream_->products().Candidates(shape, rows, max_count, candidates);
  }

 private:
  Status Check(cudaError_t error, const char* call) const {
    return ToStatus(error, call, ordinal_);
  }
  std::unique_ptr<CudaStream> NewStream() const {
    return std::make_unique<CudaStream>(ordinal_, num_multiprocessors(), limits_);
  }

  const int ordinal_;
  const CublasLt& library_;
  // Constant once open.
  cudaDeviceProp properties_ = {};
  OperationLimits limits_;

  Mutex mutex_;
  // The stream for its library handle, and both for probes.
  std::unique_ptr<CudaStream> own_stream_ SRU_GUARDED_BY(mutex_);
  void* probed_ SRU_GUARDED_BY(mutex_) = nullptr;
};

// The runtime's answers. A failed call leaves no error behind for a later launch to find.
class CudaDriver : public Driver {
 public:
  int driver_version() override {
    int version = 0;
    return Answered(cudaDriverGetVersion(&version)) ? version : 0;
  }
  int runtime_version() override { return CUDART_VERSION; }

  Status Count(int* count) override {
    const cudaError_t error = cudaGetDeviceCount(count);
    return Answered(error) ? OkStatus()
                           : Status(StatusCode::kUnavailable, cudaGetErrorString(error));
  }

  int ComputeCapability(int ordinal) override {
    int major = 0;
    const bool answered =
        Answered(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, ordinal));
    return answered ? major : 0;
  }

  Status LoadLibraries() override {
    const CublasLt* library = nullptr;
    return LoadCublasLt(&library);
  }

  Status Open(int ordinal, std::unique_ptr<Device>* device) override {
    const CublasLt* library = nullptr;
    SRU_RETURN_IF_ERROR(LoadCublasLt(&library));
    auto opened = std::make_unique<CudaDevice>(ordinal, *library);
    Status status = opened->Open();
    if (status.ok()) *device = std::move(opened);
    return status;
  }

 private:
  static bool Answered(cudaError_t error) {
    if (error != cudaSuccess) ForgetLastError();
    return error == cudaSuccess;
  }
};

}  // namespace

Driver* SystemDriver() {
  static auto* const driver = new CudaDriver();
  return driver;
}

}  // namespace sru::kernels::cuda
