// Makes the requests of Classify, Encode, Score and Generate for the load generators, and reads
// those of every unary method from a file.
#ifndef SRU_BENCH_REQUESTS_H_
#define SRU_BENCH_REQUESTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/flags.h"
#include "sru/v1/inference.pb.h"

namespace sru::bench {

inline constexpr int kMaxDistinct = 100000;  // different calls
inline constexpr int kMaxPerCall = 100000;   // sequences

// Draws lengths of sequences, in tokens, from one of these specifications. SIGMA, the standard
// deviation of the logarithm, is more than 0 and at most 10; all other numbers are between 1 and
// 100000. A length has at least one token, and at most MAX. Errors name `flag`.
inline constexpr absl::string_view kLengthsHelp =
    "fixed:N, uniform:MIN:MAX, exponential:MEAN:MAX, geometric:MEAN:MAX or "
    "lognormal:MEDIAN:SIGMA:MAX";
absl::StatusOr<std::vector<int>> DrawLengths(absl::string_view specification, int count,
                                             uint64_t seed, absl::string_view flag = "lengths");

// The fields that requests of every method share.
struct CallOptions {
  std::string model;
  int64_t version = 0;
  v1::Priority priority = v1::PRIORITY_UNSPECIFIED;
  uint64_t seed = 1;

  // `seeded`: what --seed is for.
  void AddFlags(absl::string_view seeded, Flags* flags);
};

struct RequestOptions : CallOptions {
  std::string method = "classify";  // "encode" or "score"; with `requests` any unary method
  int sequences = 1;                // per call
  std::string input;                // a file with one text per line
  std::string lengths;              // see DrawLengths; sequences of random token ids, or features
  std::string requests;             // a file with one request per line, as JSON

  void AddFlags(Flags* flags);
};

// The path of the gRPC method. kInvalidArgument if `method` names none.
absl::StatusOr<std::string> MethodPath(const RequestOptions& options);

// Makes as many requests as the texts, the drawn lengths or the file fill. With `lengths`, `info`
// must describe the server's model. Errors name the flag or the file.
absl::StatusOr<std::vector<std::string>> MakeRequests(const RequestOptions& options,
                                                      const v1::ModelInfo& info);

// What `sru_bench generate` asks for: prompts of random tokens, and how long the texts get.
struct GenerateRequestOptions : CallOptions {
  std::string prompt = "fixed:100";  // lengths in tokens, see DrawLengths
  std::string output = "fixed:100";  // lengths of the texts, written as those of prompts
  int shared_prefix = 0;             // tokens that all prompts begin with
  int distinct = 64;                 // different texts, before they repeat
  float temperature = 0;
  int top_k = 0;
  float top_p = 0;

  void AddFlags(Flags* flags);
};

// `distinct` requests, each with a seed of its own. `info` describes the server's model. Errors
// name the flag.
absl::StatusOr<std::vector<v1::GenerateRequest>> MakeGenerateRequests(
    const GenerateRequestOptions& options, const v1::ModelInfo& info);

}  // namespace sru::bench

#endif  // SRU_BENCH_REQUESTS_H_
