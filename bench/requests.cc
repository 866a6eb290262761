#include "bench/requests.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <initializer_list>
#include <random>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "client/client.h"
#include "google/protobuf/repeated_ptr_field.h"
#include "inference/open_inference.pb.h"

namespace sru::bench {
namespace {

constexpr int kMaxLength = 100000;
constexpr double kMaxSigma = 10;
constexpr int kNumDrawn = 512;  // number of calls with drawn lengths before they repeat

// Questions as people ask them, of 5 to 14 tokens each.
constexpr absl::string_view kQuestions[] = {
    "How many moons does Jupiter have ?",
    "Who painted the ceiling of the Sistine Chapel ?",
    "What is the capital of Mongolia ?",
    "What does DNA stand for ?",
    "Why does bread rise in the oven ?",
    "Which planet is closest to the sun ?",
    "When was the first bicycle built ?",
    "What is a haiku ?",
    "Where do emperor penguins live ?",
    "Who invented the telescope ?",
    "How far is it from Lisbon to Vienna ?",
    "What colour is a ripe papaya ?",
    "How do bees find their way back to the hive ?",
    "What is the longest river in South America ?",
    "What does the abbreviation NATO mean ?",
    "Which company made the first pocket calculator ?",
};

constexpr char kOpenInference[] = "open_inference";

// A little-endian value of a tensor.
template <typename Value>
void AppendRaw(Value value, std::string* raw) {
  raw->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

// Sequences of one form, which is that of the first, as tensors; rows are padded to the longest.
void AddTensors(const google::protobuf::RepeatedPtrField<v1::Sequence>& sequences,
                inference::ModelInferRequest* request) {
  const auto add = [request](const char* name, const char* datatype,
                             std::initializer_list<int64_t> shape) {
    auto* const input = request->add_inputs();
    input->set_name(name);
    input->set_datatype(datatype);
    for (const int64_t size : shape) input->add_shape(size);
    return request->add_raw_input_contents();
  };
  const auto batch = static_cast<int64_t>(sequences.size());
  if (sequences[0].has_text()) {
    std::string* const raw = add("text", "BYTES", {batch});
    for (const v1::Sequence& sequence : sequences) {
      AppendRaw(static_cast<uint32_t>(sequence.text().size()), raw);
      raw->append(sequence.text());
    }
    return;
  }
  const bool has_ids = sequences[0].has_token_ids();
  const int64_t width = has_ids ? 1 : sequences[0].features().feature_size();
  const auto length_of = [&](const v1::Sequence& sequence) {
    return has_ids
               ? int64_t{sequence.token_ids().values_size()}
               : static_cast<int64_t>(sequence.features().data().size() / sizeof(float)) / width;
  };
  int64_t longest = 0;
  for (const v1::Sequence& sequence : sequences) {
    longest = std::max(longest, length_of(sequence));
  }
  std::string* const raw = has_ids ? add("token_ids", "INT32", {batch, longest})
                                   : add("features", "FP32", {batch, longest, width});
  for (const v1::Sequence& sequence : sequences) {
    const size_t row = raw->size() + longest * width * sizeof(float);
    for (const int32_t id : sequence.token_ids().values()) AppendRaw(id, raw);
    raw->append(sequence.features().data());
    raw->resize(row);
  }
  std::string* const lengths = add("lengths", "INT32", {batch});
  for (const v1::Sequence& sequence : sequences) {
    AppendRaw(static_cast<int32_t>(length_of(sequence)), lengths);
  }
}

inference::ModelInferRequest OpenInferenceRequest(const RequestOptions& options,
                                                  const v1::ClassifyRequest& native) {
  inference::ModelInferRequest request;
  request.set_model_name(native.model());
  if (options.version != 0) request.set_model_version(absl::StrCat(options.version));
  if (!options.priority.empty()) {
    (*request.mutable_parameters())["priority"].set_string_param(options.priority);
  }
  AddTensors(native.sequences(), &request);
  if (options.method == "encode") request.add_outputs()->set_name("encoding");
  return request;
}

absl::StatusOr<std::vector<v1::Sequence>> ReadTexts(const std::string& path) {
  SRU_ASSIGN_OR_RETURN(auto lines, ReadLines(path));
  std::vector<v1::Sequence> sequences;
  for (const std::string& line : lines) {
    const absl::string_view text = absl::StripAsciiWhitespace(line);
    if (!text.empty()) sequences.push_back(client::TextSequence(text));
  }
  if (sequences.empty()) {
    return InvalidArgument("--input: the file '", path, "' has no text");
  }
  return sequences;
}

absl::StatusOr<std::vector<v1::Sequence>> DrawSequences(const SequenceOptions& options,
                                                        int distinct, const v1::ModelInfo& info) {
  SRU_ASSIGN_OR_RETURN(
      auto lengths,
      DrawLengths(options.lengths, distinct * std::min(options.sequences, 64), options.seed));
  std::mt19937_64 random(options.seed + 1);
  std::vector<v1::Sequence> sequences;
  for (const int length : lengths) {
    v1::Sequence& sequence = sequences.emplace_back();
    if (info.vocabulary_size() > 0) {
      auto* ids = sequence.mutable_token_ids()->mutable_values();
      for (int i = 0; i < length; ++i) {
        ids->Add(static_cast<int32_t>(random() % info.vocabulary_size()));
      }
    } else {
      std::uniform_real_distribution<float> draw(-1, 1);
      std::vector<float> frames(static_cast<size_t>(length) * info.input_size());
      for (float& value : frames) value = draw(random);
      sequence.mutable_features()->set_feature_size(info.input_size());
      sequence.mutable_features()->mutable_data()->assign(
          reinterpret_cast<const char*>(frames.data()), frames.size() * sizeof(float));
    }
  }
  return sequences;
}

// Serialized requests, each as `convert` makes it of one with its model and sequences.
template <typename Request, typename Convert>
absl::StatusOr<std::vector<std::string>> MakeSerialized(const RequestOptions& options,
                                                        const std::string& model,
                                                        const std::vector<v1::Sequence>& sequences,
                                                        const Convert& convert) {
  SRU_ASSIGN_OR_RETURN(auto requests,
                       MakeCalls<Request>(options, model, sequences, options.sequences));
  std::vector<std::string> serialized;
  for (const Request& request : requests) {
    serialized.push_back(convert(request).SerializeAsString());
  }
  return serialized;
}

}  // namespace

absl::StatusOr<std::vector<int>> DrawLengths(absl::string_view specification, int count,
                                             uint64_t seed, absl::string_view flag) {
  std::vector<absl::string_view> parts = absl::StrSplit(specification, ':');
  const std::string name(parts[0]);
  double sigma = 0;
  if (name == "lognormal" && parts.size() == 4) {
    if (!absl::SimpleAtod(parts[2], &sigma) || !(sigma > 0 && sigma <= kMaxSigma)) {
      return InvalidArgument("--", flag,
                             ": expected a SIGMA of more than 0 "
                             "and at most ",
                             kMaxSigma, ", found '", parts[2], "'");
    }
    parts.erase(parts.begin() + 2);
  }
  std::vector<int> numbers;
  for (size_t i = 1; i < parts.size(); ++i) {
    int number = 0;
    if (!absl::SimpleAtoi(parts[i], &number) || number < 1 || number > kMaxLength) {
      return InvalidArgument("--", flag, ": expected numbers from 1 to ", kMaxLength, ", found '",
                             parts[i], "'");
    }
    numbers.push_back(number);
  }
  std::mt19937_64 random(seed);
  std::vector<int> lengths(count);
  const bool has_bounds = numbers.size() == 2 && numbers[0] <= numbers[1];
  // At least 1, at most the last number.
  const auto fill = [&](auto draw) {
    for (int& length : lengths) {
      length = static_cast<int>(std::clamp(std::ceil(1.0 * draw(random)), 1.0, 1.0 * numbers[1]));
    }
  };
  if (name == "fixed" && numbers.size() == 1) {
    std::fill(lengths.begin(), lengths.end(), numbers[0]);
  } else if (name == "uniform" && has_bounds) {
    std::uniform_int_distribution<int> draw(numbers[0], numbers[1]);
    for (int& length : lengths) length = draw(random);
  } else if (name == "exponential" && has_bounds) {
    fill(std::exponential_distribution<double>(1.0 / numbers[0]));
  } else if (name == "geometric" && has_bounds) {
    // The number of trials up to the first success; the distribution counts the failures. Its
    // probability is less than 1.
    std::geometric_distribution<int> draw(1.0 / std::max(2, numbers[0]));
    const bool always_one = numbers[0] == 1;
    fill([&](std::mt19937_64& source) { return always_one ? 1 : draw(source) + 1; });
  } else if (name == "lognormal" && has_bounds && sigma > 0) {
    fill(std::lognormal_distribution<double>(std::log(numbers[0]), sigma));
  } else {
    return InvalidArgument("--", flag, ": expected ", kLengthsHelp, ", found '", specification,
                           "'");
  }
  return lengths;
}

absl::StatusOr<std::vector<std::string>> ReadLines(const std::string& path) {
  std::ifstream file(path);
  if (!file) {
    return InvalidArgument("--input: cannot read the file '", path, "'");
  }
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(std::move(line));
  return lines;
}

absl::StatusOr<std::vector<v1::Sequence>> MakeSequences(
    const SequenceOptions& options, int distinct, const v1::ModelInfo& info,
    absl::Span<const absl::string_view> built_in) {
  absl::Status status = CheckRange("sequences", options.sequences, 1, kMaxPerCall);
  if (!options.input.empty() && !options.lengths.empty()) {
    status.Update(absl::InvalidArgumentError("--input and --lengths exclude each other"));
  }
  if (!status.ok()) return status;
  if (!options.input.empty()) return ReadTexts(options.input);
  if (!options.lengths.empty()) return DrawSequences(options, distinct, info);
  std::vector<v1::Sequence> sequences;
  for (const absl::string_view text : built_in) sequences.push_back(client::TextSequence(text));
  return sequences;
}

void CallOptions::AddFlags(absl::string_view seeded, client::FlagSet* flags) {
  flags->Add("model", &model, "name of the model; may be left out when the server has one");
  flags->Add("version", &version, "version of the model; 0 = the latest");
  flags->Add("priority", &priority, "low, normal or high");
  flags->Add("seed", &seed, absl::StrCat("seed of the ", seeded));
}

void RequestOptions::AddFlags(client::FlagSet* flags) {
  flags->Add("method", &method, "classify, encode or score");
  flags->Add("protocol", &protocol,
             "native (sru.v1), or open_inference: the same as ModelInfer calls");
  flags->Add("sequences", &sequences, "sequences in each call");
  flags->Add("input", &input,
             "file with one text per line; without it, questions that are built in");
  flags->Add("lengths", &lengths,
             absl::StrCat("random token ids (features, for a model without words) of these "
                          "lengths instead: ",
                          kLengthsHelp));
  CallOptions::AddFlags("lengths and of the arrivals", flags);
}

bool NeedModel(const RequestOptions& options) {
  if (!options.lengths.empty()) return true;
  return options.protocol == kOpenInference && options.model.empty();
}

absl::StatusOr<std::string> MethodPath(const RequestOptions& options) {
  std::string path;
  if (options.method == "classify") path = "/sru.v1.InferenceService/Classify";
  if (options.method == "encode") path = "/sru.v1.InferenceService/Encode";
  if (options.method == "score") path = "/sru.v1.InferenceService/Score";
  if (path.empty()) {
    return InvalidArgument("--method: expected classify, encode or score, found '", options.method,
                           "'");
  }
  if (options.protocol == "native") return path;
  if (options.protocol == kOpenInference) {
    return std::string("/inference.GRPCInferenceService/ModelInfer");
  }
  return InvalidArgument("--protocol: expected native or open_inference, found '", options.protocol,
                         "'");
}

absl::StatusOr<std::vector<std::string>> MakeRequests(const RequestOptions& options,
                                                      const v1::ModelInfo& info) {
  SRU_ASSIGN_OR_RETURN(auto sequences, MakeSequences(options, kNumDrawn, info, kQuestions));
  const auto as_it_is = [](const auto& request) -> const auto& { return request; };
  if (options.protocol == kOpenInference) {
    return MakeSerialized<v1::ClassifyRequest>(
        options, options.model.empty() ? info.name() : options.model, sequences,
        [&](const v1::ClassifyRequest& native) { return OpenInferenceRequest(options, native); });
  }
  if (options.method == "score") {
    return MakeSerialized<v1::ScoreRequest>(options, options.model, sequences, as_it_is);
  }
  if (options.method == "encode") {
    return MakeSerialized<v1::EncodeRequest>(
        options, options.model, sequences, [](v1::EncodeRequest request) {
          request.set_output_format(v1::OUTPUT_FORMAT_RAW_FLOAT32);
          return request;
        });
  }
  return MakeSerialized<v1::ClassifyRequest>(options, options.model, sequences, as_it_is);
}

}  // namespace sru::bench
