// The backend under test, chosen by the environment so that each has CTest entries of its own:
//   SRU_BACKEND  a name that CreateBackend() takes, or "cuda_host": the CUDA backend with its
//   kernels
//                run on the host (tests/kernels/cuda_host/). Default: cpu
//   SRU_DTYPE    float32 (default) or bfloat16
#ifndef SRU_TESTS_TESTING_TESTED_BACKEND_H_
#define SRU_TESTS_TESTING_TESTED_BACKEND_H_

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cuda/cuda_backend.h"
#include "tests/kernels/cuda_host/host_device.h"

namespace sru::testing {

inline std::string TestedBackendName() {
  const char* name = std::getenv("SRU_BACKEND");
  return name != nullptr ? name : "cpu";
}

inline kernels::DataType TestedDataType() {
  const char* name = std::getenv("SRU_DTYPE");
  return name != nullptr && std::string(name) == "bfloat16" ? kernels::DataType::kBFloat16
                                                            : kernels::DataType::kFloat32;
}

// As kernels::CreateBackend(), which does not know of "cuda_host".
inline kernels::Status CreateTestedBackend(const std::string& name,
                                           std::unique_ptr<kernels::Backend>* backend) {
  if (name != "cuda_host") return kernels::CreateBackend(name, backend);
  static HostDeviceControl control;
  std::vector<std::unique_ptr<kernels::cuda::Device>> devices;
  devices.push_back(MakeHostDevice(HostDeviceOptions(), &control));
  *backend = kernels::cuda::MakeCudaBackend(kernels::BackendOptions(), std::move(devices));
  return kernels::OkStatus();
}

// Programs that link sru_tested_backend get a main() that ends with this when the backend is not on
// this machine, and says why: what SKIP_RETURN_CODE of their CTest entries looks for.
inline constexpr int kSkipped = 77;

}  // namespace sru::testing

#endif  // SRU_TESTS_TESTING_TESTED_BACKEND_H_
