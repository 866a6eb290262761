// A golden case (tests/golden/*.safetensors) read with nothing but the standard library, for
// programs on a machine that has a toolkit and no other package. It trusts its input, since the
// files are ours; models/safetensors.h reads files of strangers.
#ifndef SRU_TESTS_GPU_GOLDEN_CASE_H_
#define SRU_TESTS_GPU_GOLDEN_CASE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kernels/stack_spec.h"

namespace sru::testing {

struct GoldenCase {
  // A float32 tensor [rows][batch][width]: time or layer first.
  struct Padded {
    const float* data = nullptr;
    int64_t rows = 0, batch = 0, width = 0;
    const float* row(int64_t row, int64_t b) const { return data + (row * batch + b) * width; }
  };

  std::string name;          // of the file, without its ending
  kernels::StackSpec spec;   // views into `bytes`
  std::vector<int> lengths;  // [batch]
  Padded x, c0, h, c;        // c0.data is null when the case has no initial state
  std::vector<char> bytes;   // of the file
};

// All cases of a directory, sorted by name. Ends the process with a message if one cannot be read
// or there is none.
std::vector<std::unique_ptr<GoldenCase>> ReadGoldenCases(const std::string& directory);

}  // namespace sru::testing

#endif  // SRU_TESTS_GPU_GOLDEN_CASE_H_
