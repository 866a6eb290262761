// Compares a backend with the golden cases and the reference backend, and with itself in other
// batches, without a test library: for gpu_check, and for the test that says which kernels it
// launches.
#ifndef SRU_TESTS_GPU_CHECKS_H_
#define SRU_TESTS_GPU_CHECKS_H_

#include <set>
#include <string>

#include "kernels/data_type.h"

namespace sru::testing {

enum class CheckGroup { kGoldens, kBits, kLarge, kReference, kPrograms, kOthers };

// Sequences in a large batch: more than the blocks of a fused layer on 132 multiprocessors take at
// a time.
inline constexpr int kLargeBatch = 700;

struct CheckOptions {
  std::string backend = "cuda";
  kernels::DataType dtype = kernels::DataType::kFloat32;
  std::string reference = "reference";   // the backend to compare with
  std::string goldens = "tests/golden";  // the folder
  bool fuse_layers = false;              // BackendOptions::cuda_fuse_layers
  bool small = false;                    // leaves out what takes long under a sanitizer
  std::set<CheckGroup> only;             // empty = all
};

// Prints a line per check. Returns 0 if all pass, 1 if one fails, 77, after a message, if the
// machine lacks the backend.
int RunChecks(const CheckOptions& options);

}  // namespace sru::testing

#endif  // SRU_TESTS_GPU_CHECKS_H_
