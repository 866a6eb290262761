// What calls are answered that are sent one after the other, so that the answers to the same calls
// under load can be compared with these.
#ifndef SRU_BENCH_ANSWERS_ALONE_H_
#define SRU_BENCH_ANSWERS_ALONE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "bench/load_generator.h"

namespace sru::bench {

// A serialized answer without its stage times, which differ from call to call: field 4 of every
// answer of sru.v1.InferenceService. Bytes that are no message come back as they are.
std::string WithoutTimes(absl::string_view answer);

// Sends each of `requests` once, each when the one before it has been answered, and returns the
// answers without times, in the order of the requests. Of `load` the address, the method, the
// deadline and `stop` matter. Errors are those of RunLoad(), kCancelled after a stop, and that of the
// first call that failed.
absl::StatusOr<std::vector<std::string>> AnswersAlone(const LoadOptions& load,
                                                      const std::vector<std::string>& requests);

}  // namespace sru::bench

#endif  // SRU_BENCH_ANSWERS_ALONE_H_
