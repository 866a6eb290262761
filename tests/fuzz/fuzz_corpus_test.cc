// Runs every fuzz target over its seeds, over inputs that once made it fail, and over a fixed
// number of mutations of the seeds, so that the targets are useful in a plain build too.
// SRU_FUZZ_SEED and SRU_FUZZ_ROUNDS override the fixed seed and number.
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fuzz/fuzz_targets.h"
#include "tests/fuzz/mutator.h"

namespace sru::fuzz {
namespace {

unsigned long EnvironmentOr(const char* name, unsigned long fallback) {
  const char* value = std::getenv(name);
  return value == nullptr ? fallback : std::strtoul(value, nullptr, 10);
}

// Copies the input to a block of exactly its size, so that ASan sees a read past its end.
void RunOne(const Target& target, const std::string& bytes) {
  const std::unique_ptr<char[]> exact(new char[bytes.size()]);
  std::copy(bytes.begin(), bytes.end(), exact.get());
  target.run(std::string_view(exact.get(), bytes.size()));
}

void RunAll(const Target& target, unsigned long rounds) {
  SCOPED_TRACE(target.name);
  const std::vector<std::string> seeds =
      ReadInputs(std::string("tests/fuzz/corpus/") + target.name);
  ASSERT_FALSE(seeds.empty());
  for (const std::string& bytes : seeds) RunOne(target, bytes);
  for (const std::string& bytes : ReadInputs(std::string("tests/fuzz/crashes/") + target.name)) {
    RunOne(target, bytes);
  }
  Mutator mutator(target, seeds, EnvironmentOr("SRU_FUZZ_SEED", 1));
  for (unsigned long i = EnvironmentOr("SRU_FUZZ_ROUNDS", rounds); i > 0; --i) {
    RunOne(target, mutator.Next());
  }
}

TEST(FuzzCorpusTest, ReadersKeepTheirPromises) {
  for (const Target& target : kReaderTargets) RunAll(target, 5000);
}

TEST(FuzzCorpusTest, ModelsAndServersKeepTheirPromises) {
  for (const Target& target : kWholeTargets) RunAll(target, 500);
}

TEST(FuzzCorpusTest, EveryRouteHasASeed) {
  std::vector<std::string> seeds = ReadInputs("tests/fuzz/corpus/rest");
  for (std::string& seed : ReadInputs("tests/fuzz/corpus/gateway")) seeds.push_back(seed);
  EXPECT_THAT(RoutesWithout(seeds), ::testing::IsEmpty());
}

}  // namespace
}  // namespace sru::fuzz
