// What the load generator sends: serialized Classify, Encode or Score requests, of sru.v1 or of the Open Inference Protocol.
#ifndef SRU_BENCH_REQUESTS_H_
#define SRU_BENCH_REQUESTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/flag_set.h"
#include "sru/v1/inference.pb.h"

namespace sru::bench {

// Draws lengths of sequences, in tokens, from a specification:
//   fixed:N  uniform:MIN:MAX  exponential:MEAN:MAX  geometric:MEAN:MAX  lognormal:MEDIAN:SIGMA:MAX
// SIGMA, the standard deviation of the logarithm, is more than 0 and at most 10; all other numbers are
// between 1 and 100000. A length has at least one token, and at most MAX. Errors name `flag`.
absl::StatusOr<std::vector<int>> DrawLengths(absl::string_view specification, int count,
                                             uint64_t seed, absl::string_view flag = "lengths");

// The lines of a file that are not empty. Errors name --input.
absl::StatusOr<std::vector<v1::Sequence>> ReadTexts(const std::string& path);

struct RequestOptions {
  std::string method = "classify";  // or "encode", "score"
  std::string protocol = "native";  // or "open_inference"
  std::string model;
  int64_t version = 0;
  std::string priority;  // "", "low", "normal" or "high"
  int top_k = 0;
  int sequences = 1;    // per call
  std::string input;    // a file with one text per line
  std::string lengths;  // see DrawLengths; sequences of random token ids, or features
  uint64_t seed = 1;

  void AddFlags(client::FlagSet* flags);
};

// Whether a model has to be found before requests can be made: they have its ids or features, or its name.
bool NeedModel(const RequestOptions& options);

// The path of the gRPC method. kInvalidArgument if `method` or `protocol` is none of them.
absl::StatusOr<std::string> MethodPath(const RequestOptions& options);

// Makes several hundred requests, or as many as the input file fills. If NeedModel(), `info` must
// describe the server's model. Errors name the flag or the file.
absl::StatusOr<std::vector<std::string>> MakeRequests(const RequestOptions& options,
                                                      const v1::ModelInfo& info);

}  // namespace sru::bench

#endif  // SRU_BENCH_REQUESTS_H_
