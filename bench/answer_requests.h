// The questions that `sru_bench answer` asks: from a file, of drawn lengths, or built in.
#ifndef SRU_BENCH_ANSWER_REQUESTS_H_
#define SRU_BENCH_ANSWER_REQUESTS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/requests.h"
#include "client/flag_set.h"
#include "sru/v1/inference.pb.h"

namespace sru::bench {

struct AnswerRequestOptions : CallOptions {
  int queries = 1;  // per call
  // A file with one query per line: a question and its passages, separated by tabs.
  std::string input;
  // Lengths of the passages, in tokens, see DrawLengths; they are made of random words then.
  std::string passage;
  std::string question = "uniform:5:18";  // likewise, of the questions; with `passage` only
  std::string passages = "fixed:1";       // passages of a question, likewise
  int distinct = 256;                     // calls before they repeat; with `passage` only
  int top_n = 0;

  void AddFlags(client::FlagSet* flags);
};

// As many calls as the file fills, or `distinct` ones. `info` describes the server's model. Errors name
// the flag, or the file and the line.
absl::StatusOr<std::vector<v1::AnswerRequest>> MakeAnswerRequests(
    const AnswerRequestOptions& options, const v1::ModelInfo& info);

}  // namespace sru::bench

#endif  // SRU_BENCH_ANSWER_REQUESTS_H_
