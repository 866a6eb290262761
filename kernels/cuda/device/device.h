// What the CUDA backend asks of a GPU: memory, streams, recorded graphs, its kernels and products.
// Everything else of the backend (packing, buckets, graph cache, the forward pass, results) is
// plain C++ above this interface, so that tests run all of it on the host with a device that
// executes the same kernels there and that fails on command (tests/kernels/cuda_host/).
//
// Errors: kResourceExhausted when memory does not suffice, kDeviceLost when the device has failed
// for good, kInternal for what is our own mistake or the library's.
#ifndef SRU_KERNELS_CUDA_DEVICE_DEVICE_H_
#define SRU_KERNELS_CUDA_DEVICE_DEVICE_H_

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cuda/kernels/kernel_args.h"
#include "kernels/cuda/kernels/operation_args.h"
#include "kernels/status.h"

namespace sru::kernels::cuda {

// y = x w for row-major x [rows][k] and y [rows][n], with w stored as [n][k]; sums are float32.
struct ProductShape {
  int k = 0;  // multiples of kSegmentAlignment
  int n = 0;
  DataType dtype = DataType::kFloat32;
  bool float32_result = false;  // y is float32 in any type; else it is of x's and w's

  DataType result_dtype() const { return float32_result ? DataType::kFloat32 : dtype; }
  bool operator==(const ProductShape& o) const {
    return k == o.k && n == o.n && dtype == o.dtype && float32_result == o.float32_result;
  }
};

// One way to compute a product: our own kernel (skinny.cuh), or one of the library's, whose `data`
// is the device's business.
struct ProductAlgorithm {
  bool own = false;
  uint64_t data[8] = {};

  bool operator==(const ProductAlgorithm& o) const {
    return own == o.own && std::equal(data, std::end(data), o.data);
  }
};

// Device memory that an algorithm may ask for, where a device does not say otherwise.
inline constexpr size_t kProductWorkspaceBytes = size_t{4} << 20;

// Work recorded once and launched many times. Destroyed before its device.
class Graph {
 public:
  virtual ~Graph() = default;
};

// A queue of work that runs in order. Not thread-safe. What is passed must live until the work is
// done. Destroyed before its device, and idle by then.
class Stream {
 public:
  virtual ~Stream() = default;

  // `from` is pinned host memory while serving; pageable memory also works.
  virtual Status CopyToDevice(void* to, const void* from, size_t bytes) = 0;
  virtual Status CopyToHost(void* to, const void* from, size_t bytes) = 0;

  virtual Status Scan(DataType dtype, const ScanArgs& args) = 0;
  // For bfloat16.
  virtual Status RunFusedLayer(const FusedArgs& args) = 0;
  // Any other kernel.
  virtual Status RunOperation(const OperationArgs& args) = 0;
  Status Multiply(const ProductShape& shape, const ProductAlgorithm& algorithm, int rows,
                  const void* x, const void* weights, void* y) {
    if (!algorithm.own) return MultiplyByLibrary(shape, algorithm, rows, x, weights, y);
    return MultiplyByKernel(shape, SkinnyArgs{rows, shape.k, shape.n, x, weights, y});
  }
  // By our own kernel, of a shape with float32 results if anything is appended.
  virtual Status Multiply(const ProductShape& shape, const NormalizedProductArgs& args) = 0;
  // Multiplies several times on an idle stream, and waits. `seconds` is what the device takes each
  // time. Before each it writes `evicting`, so that weights come from memory as in a step, between
  // two uses of which all others are read; empty = they may be in a cache.
  struct Evicting {
    void* memory = nullptr;
    size_t bytes = 0;
  };
  virtual Status TimeProduct(const ProductShape& shape, const ProductAlgorithm& algorithm, int rows,
                             const void* x, const void* weights, void* y, const Evicting& evicting,
                             double* seconds) = 0;

  // Writes fresh memory once. With what is the device's choice, and no result may depend on it:
  // this is for memory of which a bucket's spare rows are read, so that a tool which reports reads
  // of unwritten memory reports mistakes only.
  virtual Status Initialize(void* memory, size_t bytes) = 0;

  // Records what `enqueue` puts on this stream instead of running it. `enqueue` may throw; the
  // stream does not record afterwards.
  virtual Status Record(const std::function<Status()>& enqueue, std::unique_ptr<Graph>* graph) = 0;
  virtual Status Launch(Graph& graph) = 0;

  // The driver's own handle, a cudaStream_t, for timing by events; null where there is none.
  virtual void* native_handle() { return nullptr; }

  // Blocks until all of the work is done, also after an error: kDeviceLost if the device does not
  // say that it is. Reports what went wrong in it.
  virtual Status Wait() = 0;

  // How long Wait() asks whether the work is done before it sleeps, and how much longer than usual
  // with a graph (poll_time.h); 0 at first: never.
  void set_poll(std::chrono::microseconds poll) { poll_ = poll; }

 protected:
  std::chrono::microseconds poll() const { return poll_; }

 private:
  virtual Status MultiplyByLibrary(const ProductShape& shape, const ProductAlgorithm& algorithm,
                                   int rows, const void* x, const void* weights, void* y) = 0;
  virtual Status MultiplyByKernel(const ProductShape& shape, const SkinnyArgs& args) = 0;

  std::chrono::microseconds poll_{0};
};

// Runs `enqueue()`, which puts work on a stream, and waits for the stream, after an error or an
// exception too: what the work uses must not go before it has ended. A failed device fails every
// call that follows, so kDeviceLost from the wait counts more than an earlier error; a library does
// not say as much.
template <typename Enqueue>
Status RunWork(Stream& stream, const Enqueue& enqueue) {
  Status status;
  try {
    status = enqueue();
  } catch (...) {
    (void)stream.Wait();
    throw;
  }
  Status waited = stream.Wait();
  return status.ok() || waited.code() == StatusCode::kDeviceLost ? waited : status;
}

// One GPU. Thread-safe. Methods may be called from any thread; each makes the device current where
// the driver needs that.
class Device {
 public:
  virtual ~Device() = default;

  virtual int ordinal() const = 0;
  virtual std::string name() const = 0;  // such as "NVIDIA H200"
  virtual int num_multiprocessors() const = 0;
  virtual size_t total_memory() const = 0;
  virtual size_t free_memory() const = 0;

  virtual Status Allocate(size_t bytes, void** memory) = 0;
  virtual void Free(void* memory) = 0;
  // Host memory that the device reads and writes by the same address, in copies and in kernels.
  virtual Status AllocatePinned(size_t bytes, void** memory) = 0;
  virtual void FreePinned(void* memory) = 0;

  // Nobody may touch these bytes of an allocation until it is freed: for devices that notice it.
  virtual void Protect(void* /*memory*/, size_t /*bytes*/) {}

  // Device memory that an algorithm of a product may ask for.
  virtual size_t product_workspace_bytes() const { return kProductWorkspaceBytes; }

  // Bytes that push everything else out of the caches between memory and multiprocessors.
  virtual size_t cache_bytes() const { return 0; }
  // Whether ProductAlgorithm::own works; of a GPU always.
  virtual bool has_own_product() const { return true; }

  // `product_workspace` has product_workspace_bytes() and is borrowed; null for a stream that
  // multiplies nothing. gpu.h makes streams that have their own.
  virtual Status CreateStream(void* product_workspace, std::unique_ptr<Stream>* stream) = 0;

  // Has the device do something small and waits for it: whether it still works.
  virtual Status Probe() = 0;

  // Algorithms of the library that do not split a sum over k among blocks, the one that is expected
  // to be fastest for this many rows first. At most `max_count`.
  virtual Status ProductCandidates(const ProductShape& shape, int rows, size_t max_count,
                                   std::vector<ProductAlgorithm>* candidates) = 0;
};

}  // namespace sru::kernels::cuda

#endif  // SRU_KERNELS_CUDA_DEVICE_DEVICE_H_
