// The sentences that `sru_bench translate` has translated: from a file, of drawn lengths, or built in.
#ifndef SRU_BENCH_TRANSLATE_REQUESTS_H_
#define SRU_BENCH_TRANSLATE_REQUESTS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/requests.h"
#include "client/flag_set.h"
#include "sru/v1/inference.pb.h"

namespace sru::bench {

struct TranslateRequestOptions : SequenceOptions {
  int distinct = 256;  // calls before they repeat; with `lengths` only
  // Most tokens of the translations of a call, likewise drawn; empty = the model's own.
  std::string output;
  int beam_size = 0;
  int num_hypotheses = 0;
  bool alignment = false;

  void AddFlags(client::FlagSet* flags);
};

// As many calls as the file fills, or `distinct` ones. `info` describes the server's model. Errors name
// the flag or the file.
absl::StatusOr<std::vector<v1::TranslateRequest>> MakeTranslateRequests(
    const TranslateRequestOptions& options, const v1::ModelInfo& info);

}  // namespace sru::bench

#endif  // SRU_BENCH_TRANSLATE_REQUESTS_H_
