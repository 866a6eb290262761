// The backend that a test program tests. It comes from the environment, so that each backend has a
// CTest entry of its own (sru_backend_tests):
//   SRU_BACKEND  a name that CreateBackend() takes, or "cuda_host": the CUDA backend with its
//                kernels run on the host (tests/kernels/cuda_host/). Default: cpu
//   SRU_DTYPE    float32 (default) or bfloat16
//   SRU_CPU_ISA  BackendOptions::cpu_isa. Default: auto
//   SRU_CUDA_FUSE_LAYERS  whether bfloat16 layers are fused that can be, 0 (default) or 1
//   SRU_CUDA_HOST_MODE    in which order cuda_host does what a GPU leaves open (launch_shim.h)
// Programs that link sru_tested_backend get a main() that exits with 77, and says why, if the
// machine lacks what these variables name.
#ifndef SRU_TESTS_TESTING_TESTED_BACKEND_H_
#define SRU_TESTS_TESTING_TESTED_BACKEND_H_

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cuda/backend/cuda_backend.h"
#include "tests/kernels/cuda_host/host_device.h"

namespace sru::testing {

struct TestedBackend {
  std::string name = "cpu";
  std::string cpu_isa = "auto";
  kernels::DataType dtype = kernels::DataType::kFloat32;
  bool fuse_layers = false;

  static TestedBackend FromEnvironment() {
    const auto value = [](const char* variable, const char* fallback) {
      const char* text = std::getenv(variable);
      return std::string(text != nullptr ? text : fallback);
    };
    TestedBackend tested;
    tested.name = value("SRU_BACKEND", "cpu");
    tested.cpu_isa = value("SRU_CPU_ISA", "auto");
    if (!kernels::ParseDataType(value("SRU_DTYPE", "float32"), &tested.dtype)) {
      std::fprintf(stderr, "SRU_DTYPE: expected %s\n",
                   kernels::ListNames<kernels::DataTypeName>().c_str());
      std::exit(1);
    }
    tested.fuse_layers = value("SRU_CUDA_FUSE_LAYERS", "0") == "1";
    return tested;
  }

  kernels::Status Create(std::unique_ptr<kernels::Backend>* backend) const {
    kernels::BackendOptions options;
    options.cpu_isa = cpu_isa;
    options.cuda_fuse_layers = fuse_layers;
    if (name != "cuda_host") return kernels::CreateBackend(name, options, backend);
    static HostDeviceControl control;
    std::vector<std::unique_ptr<kernels::cuda::Device>> devices;
    devices.push_back(MakeHostDevice(HostDeviceOptions(), &control));
    *backend = kernels::cuda::MakeCudaBackend(options, std::move(devices));
    return kernels::OkStatus();
  }

  bool is_cuda() const { return name == "cuda" || name == "cuda_host"; }
};

}  // namespace sru::testing

#endif  // SRU_TESTS_TESTING_TESTED_BACKEND_H_
