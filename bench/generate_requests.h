// The texts that `sru_bench generate` asks for: prompts of random tokens, and how long the texts
// get.
#ifndef SRU_BENCH_GENERATE_REQUESTS_H_
#define SRU_BENCH_GENERATE_REQUESTS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/flags.h"
#include "bench/requests.h"
#include "sru/v1/inference.pb.h"

namespace sru::bench {

struct GenerateRequestOptions : CallOptions {
  std::string prompt = "fixed:100";  // lengths in tokens, see DrawLengths
  std::string output = "fixed:100";  // likewise
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

#endif  // SRU_BENCH_GENERATE_REQUESTS_H_
