// The libFuzzer program of the targets that read bytes. It runs the target that it is called by:
// fuzz_config is a link to it.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "tests/fuzz/fuzz_targets.h"

namespace {

const sru::fuzz::Target* g_target = nullptr;

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* /*argc*/, char*** argv) {
  std::string_view name = (*argv)[0];
  name.remove_prefix(name.rfind('/') + 1);  // 0 without a folder
  for (const sru::fuzz::Target& target : sru::fuzz::kReaderTargets) {
    if (name == std::string("fuzz_") + target.name) {
      g_target = &target;
      return 0;
    }
  }
  std::fprintf(stderr, "%s: call it by the name of a target, such as fuzz_config\n", (*argv)[0]);
  std::exit(1);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  g_target->run(std::string_view(reinterpret_cast<const char*>(data), size));
  return 0;
}

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned /*seed*/) {
  const size_t name = g_target->NameBytes({reinterpret_cast<const char*>(data), size});
  return name + LLVMFuzzerMutate(data + name, size - name, max_size - name);
}
