// gpu_check: the checks of a backend (checks.h), by default of the CUDA one, as one plain program
// that builds on any machine with a toolkit and that compute-sanitizer can run.
//
//   gpu_check [--backend=cuda] [--dtype=float32|bfloat16] [--fuse_layers] [--only=GROUP,...]
//             [--goldens=tests/golden] [--small]
//
// Groups: goldens, bits, large, reference, programs, others. A lost device fails every check after
// it, so the report runs each group in a process of its own. Exits as RunChecks() says.
#include <cstdio>
#include <sstream>
#include <string>

#include "tests/gpu/checks.h"

namespace sru::testing {
namespace {

constexpr const char* kGroups[] = {"goldens", "bits", "large", "reference", "programs", "others"};

bool ParseFlag(const std::string& argument, const char* name, std::string* value) {
  const std::string prefix = std::string("--") + name + "=";
  if (argument.compare(0, prefix.size(), prefix) != 0) return false;
  *value = argument.substr(prefix.size());
  return true;
}

bool ParseGroups(const std::string& text, std::set<CheckGroup>* groups) {
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');) {
    size_t group = 0;
    for (const char* name : kGroups) {
      if (word == name) break;
      ++group;
    }
    if (group == std::size(kGroups)) {
      std::fprintf(stderr, "gpu_check: --only: unknown group %s\n", word.c_str());
      return false;
    }
    groups->insert(static_cast<CheckGroup>(group));
  }
  return true;
}

int Main(int argc, char** argv) {
  CheckOptions options;
  std::string dtype = "float32";
  std::string only;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--small") {
      options.small = true;
    } else if (argument == "--fuse_layers") {
      options.fuse_layers = true;
    } else if (!ParseFlag(argument, "backend", &options.backend) &&
               !ParseFlag(argument, "dtype", &dtype) && !ParseFlag(argument, "only", &only) &&
               !ParseFlag(argument, "goldens", &options.goldens)) {
      std::fprintf(stderr, "gpu_check: unexpected argument %s\n", argument.c_str());
      return 2;
    }
  }
  if (!kernels::ParseDataType(dtype, &options.dtype)) {
    std::fprintf(stderr, "gpu_check: --dtype: expected %s, found %s\n",
                 kernels::ListNames<kernels::DataTypeName>().c_str(), dtype.c_str());
    return 2;
  }
  return ParseGroups(only, &options.only) ? RunChecks(options) : 2;
}

}  // namespace
}  // namespace sru::testing

int main(int argc, char** argv) { return sru::testing::Main(argc, argv); }
