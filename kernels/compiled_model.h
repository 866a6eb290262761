// What a backend's compiled stack (Executable) and its compiled program (ProgramExecutable) have in
// common.
#ifndef SRU_KERNELS_COMPILED_MODEL_H_
#define SRU_KERNELS_COMPILED_MODEL_H_

#include <cstddef>

namespace sru::kernels {

// Workers that keep a GPU busy: one computes while the other copies and answers.
inline constexpr int kWorkersPerDevice = 2;

class CompiledModel {
 public:
  virtual ~CompiledModel() = default;

  // Devices of the backend. A workspace is tied to one of them.
  virtual int num_devices() const { return 1; }

  // Workers that keep one device busy; 0 for a model that runs on the processor, where a worker
  // keeps a core busy.
  virtual int workers_per_device() const { return 0; }

  // Memory of the compiled weights, on one device.
  virtual size_t weight_bytes() const = 0;
};

}  // namespace sru::kernels

#endif  // SRU_KERNELS_COMPILED_MODEL_H_
