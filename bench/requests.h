// Makes the requests of Classify, Encode and Score, of sru.v1 or of the Open Inference Protocol, for the load generator. Answer, Translate
// and Generate use its common parts.
#ifndef SRU_BENCH_REQUESTS_H_
#define SRU_BENCH_REQUESTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/status.h"
#include "client/flag_set.h"
#include "client/names.h"
#include "sru/v1/inference.pb.h"

namespace sru::bench {

inline constexpr int kMaxDistinct = 100000;  // different calls
inline constexpr int kMaxPerCall = 100000;   // sequences, or queries

using client::CheckRange;

// Draws lengths of sequences, in tokens, from one of these specifications. SIGMA, the standard deviation of the
// logarithm, is more than 0 and at most 10; all other numbers are between 1 and 100000. A length has at least one
// token, and at most MAX. Errors name `flag`.
inline constexpr absl::string_view kLengthsHelp =
    "fixed:N, uniform:MIN:MAX, exponential:MEAN:MAX, geometric:MEAN:MAX or "
    "lognormal:MEDIAN:SIGMA:MAX";
absl::StatusOr<std::vector<int>> DrawLengths(absl::string_view specification, int count,
                                             uint64_t seed, absl::string_view flag = "lengths");

// The lines of a file. Errors name --input.
absl::StatusOr<std::vector<std::string>> ReadLines(const std::string& path);

// The fields that requests of every method share.
struct CallOptions {
  std::string model;
  int64_t version = 0;
  std::string priority;  // "", "low", "normal" or "high"
  uint64_t seed = 1;

  // `seeded`: what --seed is for.
  void AddFlags(absl::string_view seeded, client::FlagSet* flags);
};

// Where the sequences of requests come from.
struct SequenceOptions : CallOptions {
  int sequences = 1;    // per call
  std::string input;    // a file with one text per line
  std::string lengths;  // see DrawLengths; sequences of random token ids, or features
};

// The texts of the file; or sequences of drawn lengths for `distinct` calls to the model `info`; or the texts `built_in`.
absl::StatusOr<std::vector<v1::Sequence>> MakeSequences(
    const SequenceOptions& options, int distinct, const v1::ModelInfo& info,
    absl::Span<const absl::string_view> built_in);

inline auto* ItemsOf(v1::AnswerRequest* request) { return request->mutable_queries(); }
template <typename Request>
auto* ItemsOf(Request* request) {
  return request->mutable_sequences();
}

// As many requests as use every item, in turn, with `per_call` in each. `items` must not be empty.
template <typename Request, typename Item>
absl::StatusOr<std::vector<Request>> MakeCalls(const CallOptions& options, const std::string& model,
                                               const std::vector<Item>& items, int per_call) {
  v1::Priority priority = v1::PRIORITY_UNSPECIFIED;
  SRU_RETURN_UNLESS_OK(client::ParsePriority(options.priority, &priority));
  std::vector<Request> requests((items.size() + per_call - 1) / per_call);
  size_t next = 0;
  for (Request& request : requests) {
    request.set_model(model);
    request.set_version(options.version);
    request.set_priority(priority);
    for (int i = 0; i < per_call; ++i) *ItemsOf(&request)->Add() = items[next++ % items.size()];
  }
  return requests;
}

struct RequestOptions : SequenceOptions {
  std::string method = "classify";  // or "encode", "score"
  std::string protocol = "native";  // or "open_inference"

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
