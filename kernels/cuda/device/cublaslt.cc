#include "kernels/cuda/device/cublaslt.h"

#include <dlfcn.h>

#include <string>

namespace sru::kernels::cuda {
namespace {

struct Loaded {
  Status status;
  CublasLt library = {};
};

void* Open(std::string* error) {
  const std::string name = "libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR);
  // As the loader finds it, then where the toolkit was that this program was built with.
  for (const std::string& path : {name, std::string(SRU_CUDA_LIBRARY_DIR "/") + name}) {
    if (void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL); handle != nullptr) {
      return handle;
    }
    if (error->empty()) *error = dlerror();
  }
  return nullptr;
}

Loaded Load() {
  Loaded loaded;
  std::string error;
  void* const handle = Open(&error);
  if (handle == nullptr) {
    loaded.status = Status(StatusCode::kUnavailable, "backend cuda: cannot load cuBLASLt: ", error,
                           "; install it, or name its folder in LD_LIBRARY_PATH");
    return loaded;
  }
  const auto bind = [&](const char* name, auto* function) {
    void* const symbol = dlsym(handle, name);
    if (symbol == nullptr && loaded.status.ok()) {
      loaded.status =
          Status(StatusCode::kUnavailable, "backend cuda: cuBLASLt has no function ", name);
    }
    *function = reinterpret_cast<std::remove_pointer_t<decltype(function)>>(symbol);
  };
#define SRU_CUBLASLT_BIND(name) bind("cublasLt" #name, &loaded.library.name);
  SRU_CUBLASLT_FUNCTIONS(SRU_CUBLASLT_BIND)
#undef SRU_CUBLASLT_BIND
  return loaded;
}

}  // namespace

Status LoadCublasLt(const CublasLt** library) {
  static const Loaded& loaded = *new Loaded(Load());
  if (loaded.status.ok()) *library = &loaded.library;
  return loaded.status;
}

}  // namespace sru::kernels::cuda
