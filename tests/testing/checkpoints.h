// Finds the checkpoints that the published package trained. They are not part of the project; tests
// that use them are skipped if they are missing.
#ifndef SRU_TESTS_TESTING_CHECKPOINTS_H_
#define SRU_TESTS_TESTING_CHECKPOINTS_H_

#include <cstdlib>
#include <filesystem>

namespace sru::testing {

// The directory with trec/, sst2/ and subj/: checkpoints/ in $SRU_SHARED_DIR or, by default, in
// ../shared relative to the project's root, where tests run. It may not exist.
inline std::filesystem::path CheckpointsDirectory() {
  const char* shared = std::getenv("SRU_SHARED_DIR");
  return std::filesystem::path(shared != nullptr ? shared : "../shared") / "checkpoints";
}

}  // namespace sru::testing

#endif  // SRU_TESTS_TESTING_CHECKPOINTS_H_
