#include "tests/kernels/cuda_runtime/simulated_runtime.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "kernels/cuda/device/cublaslt.h"
#include "kernels/cuda/device/product.h"
#include "tests/kernels/cuda_host/launch_shim.h"

// What the handles point to.
struct CUstream_st {
  int device;
  bool capturing;
  bool busy;
  bool runs_kernels;
};
struct CUevent_st {
  int device;
  CUstream_st* stream;  // of its last record
  bool tells_time;
  double milliseconds;  // when that was
};
struct CUgraph_st {
  int device;
};
struct CUgraphExec_st {
  int device;
};

namespace sru::testing {
namespace {

constexpr size_t kTotalMemory = size_t{8} << 30;
constexpr size_t kBlockSharedBytes = size_t{227} << 10;

thread_local int current_device = 0;
thread_local cudaError_t last_error = cudaSuccess;

cudaError_t Ended(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

// What a call on the current device comes to before it does anything.
cudaError_t Begin(const char* call) {
  SimulatedDevice& device = SimulatedDeviceAt(current_device);
  if (device.failed != cudaSuccess) return Ended(device.failed);
  if (device.calls_until_failure >= 0 && device.calls_until_failure-- == 0) {
    return Ended(device.error);
  }
  if (device.failing_call == call) return Ended(device.error);
  return cudaSuccess;
}

// A handle belongs to a device; the driver refuses it when another one is current.
template <typename Handle>
cudaError_t Begin(const char* call, const Handle* handle) {
  const cudaError_t error = Begin(call);
  if (error != cudaSuccess) return error;
  return handle->device == current_device ? cudaSuccess : Ended(cudaErrorInvalidValue);
}

void SetBusy(CUstream_st* stream, bool busy) {
  if (stream->capturing || stream->busy == busy) return;
  stream->busy = busy;
  SimulatedDeviceAt(stream->device).streams_busy += busy ? 1 : -1;
}

// A call that puts work on a stream.
cudaError_t BeginWork(const char* call, CUstream_st* stream) {
  const cudaError_t error = Begin(call, stream);
  if (error == cudaSuccess) SetBusy(stream, true);
  return error;
}

}  // namespace

SimulatedDevice& SimulatedDeviceAt(int ordinal) {
  static SimulatedDevice devices[kSimulatedDevices];
  return devices[ordinal];
}

KernelsSeen& SimulatedKernels() {
  static KernelsSeen kernels;
  return kernels;
}

std::atomic<int>& SimulatedDriverVersion() {
  static std::atomic<int> version{CUDART_VERSION};
  return version;
}

std::atomic<bool>& ProductsFail() {
  static std::atomic<bool> fail{false};
  return fail;
}

}  // namespace sru::testing

using namespace sru::testing;  // NOLINT: the functions that follow are C's

const char* cudaGetErrorName(cudaError_t error) {
  static thread_local char name[32];
  std::snprintf(name, sizeof(name), "error %d", error);
  return name;
}
const char* cudaGetErrorString(cudaError_t /*error*/) { return "simulated"; }
cudaError_t cudaGetLastError() {
  const cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = SimulatedDriverVersion();
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* count) {
  *count = kSimulatedDevices;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr /*attribute*/, int device) {
  if (device < 0 || device >= kSimulatedDevices) return Ended(cudaErrorInvalidDevice);
  *value = 9;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  *properties = {};
  std::strcpy(properties->name, "simulated");
  properties->totalGlobalMem = kTotalMemory;
  properties->major = SimulatedDeviceAt(device).compute_capability;
  properties->multiProcessorCount = SimulatedDeviceAt(device).multiprocessors;
  properties->sharedMemPerBlockOptin = kBlockSharedBytes;
  properties->l2CacheSize = 1 << 20;
  return cudaSuccess;
}
cudaError_t cudaInitDevice(int device, unsigned /*device_flags*/, unsigned /*flags*/) {
  const cudaError_t error = cudaSetDevice(device);
  if (error == cudaSuccess) SimulatedDeviceAt(device).is_new = true;
  return error;
}
cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= kSimulatedDevices) return Ended(cudaErrorInvalidDevice);
  current_device = device;
  return Begin("cudaSetDevice");
}

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  const cudaError_t error = Begin("cudaMalloc");
  if (error != cudaSuccess) return error;
  *memory = std::malloc(bytes);
  ++SimulatedDeviceAt(current_device).allocations_alive;
  return cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
  // The memory goes with the device; here it must not stay behind.
  std::free(memory);
  --SimulatedDeviceAt(current_device).allocations_alive;
  return Begin("cudaFree");
}
cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned /*flags*/) {
  const cudaError_t error = Begin("cudaHostAlloc");
  if (error == cudaSuccess) *memory = std::malloc(bytes);
  return error;
}
cudaError_t cudaFreeHost(void* memory) {
  std::free(memory);
  return Begin("cudaFreeHost");
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *free = *total = kTotalMemory;
  return Begin("cudaMemGetInfo");
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind /*kind*/,
                            cudaStream_t stream) {
  const cudaError_t error = BeginWork("cudaMemcpyAsync", stream);
  if (error == cudaSuccess && !stream->capturing) std::memcpy(to, from, bytes);
  return error;
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  const cudaError_t error = BeginWork("cudaMemsetAsync", stream);
  if (error == cudaSuccess && !stream->capturing) std::memset(to, value, bytes);
  return error;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned /*flags*/) {
  const cudaError_t error = Begin("cudaStreamCreateWithFlags");
  if (error != cudaSuccess) return error;
  SimulatedDevice& device = SimulatedDeviceAt(current_device);
  *stream = new CUstream_st{current_device, false, false, device.is_new.exchange(false)};
  ++device.streams_alive;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  SetBusy(stream, false);
  --SimulatedDeviceAt(stream->device).streams_alive;
  delete stream;
  return Begin("cudaStreamDestroy");
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode /*mode*/) {
  const cudaError_t error = Begin("cudaStreamBeginCapture", stream);
  if (error != cudaSuccess) return error;
  stream->capturing = true;
  ++SimulatedDeviceAt(stream->device).streams_capturing;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (stream->capturing) std::abort();
  const cudaError_t error = Begin("cudaStreamSynchronize");  // any device may be current
  if (error == cudaSuccess) SetBusy(stream, false);
  return error;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  if (!stream->capturing) std::abort();  // CUDA's error would say that our pairs do not match
  stream->capturing = false;
  --SimulatedDeviceAt(stream->device).streams_capturing;
  const cudaError_t error = Begin("cudaStreamEndCapture", stream);
  *graph = error == cudaSuccess ? new CUgraph_st{current_device} : nullptr;
  if (error == cudaSuccess) ++SimulatedDeviceAt(current_device).recordings_alive;
  return error;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  const cudaError_t error = Begin("cudaEventCreateWithFlags");
  const bool tells_time = (flags & cudaEventDisableTiming) == 0;
  if (error == cudaSuccess) *event = new CUevent_st{current_device, nullptr, tells_time, 0};
  return error;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return Begin("cudaEventDestroy");
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (stream->capturing) std::abort();
  const cudaError_t error = Begin("cudaEventRecord", stream);
  if (error != cudaSuccess) return error;
  if (event->device != stream->device) return Ended(cudaErrorInvalidValue);
  event->stream = stream;
  // A launch of a kernel takes a millisecond, a product of the library two, everything else
  // nothing.
  const SimulatedDevice& device = SimulatedDeviceAt(stream->device);
  event->milliseconds = static_cast<double>(device.launches + 2 * device.products);
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  const cudaError_t error = Begin("cudaEventElapsedTime", begin);
  if (error != cudaSuccess) return error;
  if (!begin->tells_time || !end->tells_time) return Ended(cudaErrorInvalidValue);
  if (end->stream->busy) return Ended(cudaErrorNotReady);
  *milliseconds = static_cast<float>(end->milliseconds - begin->milliseconds);
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  const cudaError_t error = Begin("cudaEventQuery", event);
  if (error != cudaSuccess) return error;
  std::atomic<int64_t>& left = SimulatedDeviceAt(event->device).queries_until_done;
  if (left > 0 && left-- > 0) return Ended(cudaErrorNotReady);
  SetBusy(event->stream, false);
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  ++SimulatedDeviceAt(event->device).waits;
  const cudaError_t error = Begin("cudaEventSynchronize", event);
  if (error == cudaSuccess) SetBusy(event->stream, false);
  return error;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long /*flags*/) {  // NOLINT: CUDA's type
  const cudaError_t error = Begin("cudaGraphInstantiate", graph);
  if (error != cudaSuccess) return error;
  *executable = new CUgraphExec_st{current_device};
  ++SimulatedDeviceAt(current_device).graphs_alive;
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  --SimulatedDeviceAt(graph->device).recordings_alive;
  delete graph;
  return Begin("cudaGraphDestroy");
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  --SimulatedDeviceAt(executable->device).graphs_alive;
  delete executable;
  return Begin("cudaGraphExecDestroy");
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  const cudaError_t error = BeginWork("cudaGraphLaunch", stream);
  if (error == cudaSuccess) ++SimulatedDeviceAt(stream->device).graph_launches;
  return error == cudaSuccess && executable->device != stream->device ? Ended(cudaErrorInvalidValue)
                                                                      : error;
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* function) {
  *attributes = {};
  const SimulatedDevice& device = SimulatedDeviceAt(current_device);
  attributes->ptxVersion = std::min(device.ptx_version, 10 * device.compute_capability);
  const std::lock_guard<std::mutex> lock(SimulatedKernels().mutex);
  SimulatedKernels().loaded.insert(function);
  return Begin("cudaFuncGetAttributes");
}
cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute, int value) {
  const cudaError_t error = Begin("cudaFuncSetAttribute");
  if (error != cudaSuccess || attribute != cudaFuncAttributeMaxDynamicSharedMemorySize)
    return error;
  if (value < 0 || static_cast<size_t>(value) > kBlockSharedBytes) {
    return Ended(cudaErrorInvalidValue);
  }
  const std::lock_guard<std::mutex> lock(SimulatedKernels().mutex);
  size_t& most = SimulatedKernels().max_shared_bytes[function];
  most = std::max(most, static_cast<size_t>(value));
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* /*function*/,
                                                          int /*threads*/,
                                                          size_t /*shared_bytes*/) {
  *blocks = 2;
  return Begin("cudaOccupancyMaxActiveBlocksPerMultiprocessor");
}
cudaError_t cudaOccupancyMaxActiveClusters(int* clusters, const void* /*function*/,
                                           const cudaLaunchConfig_t* /*config*/) {
  *clusters = SimulatedDeviceAt(current_device).active_clusters;
  return Begin("cudaOccupancyMaxActiveClusters");
}
cudaError_t SimulateLaunch(const cudaLaunchConfig_t* config, const void* function,
                           const std::function<void()>& kernel) {
  const cudaError_t error = BeginWork("cudaLaunchKernelExC", config->stream);
  if (error != cudaSuccess) return error;
  if (function == nullptr || config->gridDim.x == 0 || config->blockDim.x == 0) {
    return Ended(cudaErrorInvalidValue);
  }
  SimulatedDevice& device = SimulatedDeviceAt(current_device);
  unsigned cluster = 1;
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    const cudaLaunchAttribute& attribute = config->attrs[i];
    if (attribute.id != cudaLaunchAttributeClusterDimension) return Ended(cudaErrorInvalidValue);
    cluster = attribute.val.clusterDim.x;
  }
  // More blocks need a function that allows them.
  constexpr unsigned kPortableCluster = 8;
  if (cluster == 0 || cluster > kPortableCluster || config->gridDim.x % cluster != 0 ||
      (cluster > 1 && (device.compute_capability < 9 || device.active_clusters == 0))) {
    return Ended(cudaErrorInvalidValue);
  }
  const std::lock_guard<std::mutex> lock(SimulatedKernels().mutex);
  if (config->stream->runs_kernels) {
    // Older code has no clusters.
    if (device.computes && (cluster == 1 || device.ptx_version >= 90)) {
      Launch(config->gridDim.x, static_cast<int>(config->blockDim.x), kernel,
             config->dynamicSmemBytes, static_cast<int>(cluster));
    }
    return cudaSuccess;
  }
  if (cluster > 1) ++device.clustered_launches;
  ++device.launches;
  SimulatedKernels().launched.insert(function);
  SimulatedKernels().launched_threads.emplace(function, config->blockDim.x);
  const auto asked = SimulatedKernels().max_shared_bytes.find(function);
  const size_t most = asked == SimulatedKernels().max_shared_bytes.end() ? 0 : asked->second;
  return config->dynamicSmemBytes <= most ? cudaSuccess : Ended(cudaErrorInvalidValue);
}

namespace sru::kernels::cuda {

Status LoadCublasLt(const CublasLt** library) {
  static const CublasLt nothing = {};
  *library = &nothing;
  return OkStatus();
}

Status ProductRunner::Create(const CublasLt& library, void* workspace, size_t workspace_bytes,
                             std::unique_ptr<ProductRunner>* runner) {
  runner->reset(new ProductRunner(library, workspace, workspace_bytes));
  return OkStatus();
}
// The real one gives its handle back.
ProductRunner::~ProductRunner() { handle_ = nullptr; }
Status ProductRunner::Candidates(const ProductShape& /*shape*/, int /*rows*/, size_t /*max_count*/,
                                 std::vector<ProductAlgorithm>* candidates) {
  candidates->assign(1, ProductAlgorithm());
  return OkStatus();
}
// The library has a runtime of its own, so ours knows nothing of its errors.
Status ProductRunner::Run(const ProductShape& /*shape*/, const ProductAlgorithm& /*algorithm*/,
                          int /*rows*/, const void* /*x*/, const void* /*weights*/, void* /*y*/,
                          cudaStream_t /*stream*/) {
  if (ProductsFail()) return Internal("cublasLtMatmul: failed by the test");
  ++SimulatedDeviceAt(current_device).products;
  return OkStatus();
}

}  // namespace sru::kernels::cuda
