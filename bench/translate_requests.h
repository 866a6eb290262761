// The sentences that `sru_bench translate` has translated: from a file, of drawn lengths, or built in.
#ifndef SRU_BENCH_TRANSLATE_REQUESTS_H_
#define SRU_BENCH_TRANSLATE_REQUESTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/flag_set.h"
#include "sru/v1/inference.pb.h"

namespace sru::bench {

struct TranslateRequestOptions {
  std::string model;
  int64_t version = 0;
  std::string priority;  // "", "low", "normal" or "high"
  int sequences = 1;     // per call
  std::string input;     // a file with one text per line
  // Lengths in tokens, see DrawLengths; the sequences are random token ids then.
  std::string lengths;
  int distinct = 256;  // calls before they repeat; with `lengths` only
  // Most tokens of the translations of a call, likewise drawn; empty = the model's own.
  std::string output;
  int beam_size = 0;
  int num_hypotheses = 0;
  bool alignment = false;
  uint64_t seed = 1;

  void AddFlags(client::FlagSet* flags);
};

// As many calls as the file fills, or `distinct` ones. `info` describes the server's model. Errors name
// the flag or the file.
absl::StatusOr<std::vector<v1::TranslateRequest>> MakeTranslateRequests(
    const TranslateRequestOptions& options, const v1::ModelInfo& info);

}  // namespace sru::bench

#endif  // SRU_BENCH_TRANSLATE_REQUESTS_H_
