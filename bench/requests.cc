#include "bench/requests.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <initializer_list>
#include <random>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/client.h"
#include "client/names.h"
#include "inference/open_inference.pb.h"

namespace sru::bench {
namespace {

constexpr int kMaxLength = 100000;
constexpr double kMaxSigma = 10;
constexpr int kNumDrawn = 512;  // number of calls with drawn lengths before they repeat

// Questions as people ask them, of 5 to 14 tokens each.
constexpr const char* kQuestions[] = {
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
void AddTensors(const std::vector<v1::Sequence>& sequences, inference::ModelInferRequest* request) {
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
                                                  const std::string& model,
                                                  const std::vector<v1::Sequence>& sequences) {
  inference::ModelInferRequest request;
  request.set_model_name(model);
  if (options.version != 0) request.set_model_version(absl::StrCat(options.version));
  if (!options.priority.empty()) {
    (*request.mutable_parameters())["priority"].set_string_param(options.priority);
  }
  AddTensors(sequences, &request);
  if (options.method == "encode") request.add_outputs()->set_name("encoding");
  return request;
}

}  // namespace

absl::StatusOr<std::vector<int>> DrawLengths(absl::string_view specification, int count,
                                             uint64_t seed, absl::string_view flag) {
  std::vector<absl::string_view> parts = absl::StrSplit(specification, ':');
  const std::string name(parts[0]);
  double sigma = 0;
  if (name == "lognormal" && parts.size() == 4) {
    if (!absl::SimpleAtod(parts[2], &sigma) || !(sigma > 0 && sigma <= kMaxSigma)) {
      return absl::InvalidArgumentError(absl::StrCat("--", flag,
                                                     ": expected a SIGMA of more than 0 "
                                                     "and at most ",
                                                     kMaxSigma, ", found '", parts[2], "'"));
    }
    parts.erase(parts.begin() + 2);
  }
  std::vector<int> numbers;
  for (size_t i = 1; i < parts.size(); ++i) {
    int number = 0;
    if (!absl::SimpleAtoi(parts[i], &number) || number < 1 || number > kMaxLength) {
      return absl::InvalidArgumentError(absl::StrCat("--", flag, ": expected numbers from 1 to ",
                                                     kMaxLength, ", found '", parts[i], "'"));
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
    return absl::InvalidArgumentError(
        absl::StrCat("--", flag,
                     ": expected fixed:N, uniform:MIN:MAX, exponential:MEAN:MAX, "
                     "geometric:MEAN:MAX or lognormal:MEDIAN:SIGMA:MAX, found '",
                     specification, "'"));
  }
  return lengths;
}

absl::StatusOr<std::vector<v1::Sequence>> ReadTexts(const std::string& path) {
  std::ifstream file(path);
  if (!file) {
    return absl::InvalidArgumentError(absl::StrCat("--input: cannot read the file '", path, "'"));
  }
  std::vector<v1::Sequence> sequences;
  std::string line;
  while (std::getline(file, line)) {
    const absl::string_view text = absl::StripAsciiWhitespace(line);
    if (!text.empty()) sequences.push_back(client::TextSequence(text));
  }
  if (sequences.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("--input: the file '", path, "' has no text"));
  }
  return sequences;
}

void RequestOptions::AddFlags(client::FlagSet* flags) {
  flags->Add("method", &method, "classify, encode or score");
  flags->Add("protocol", &protocol,
             "native (sru.v1), or open_inference: the same as ModelInfer calls");
  flags->Add("model", &model, "name of the model; may be left out when the server has one");
  flags->Add("version", &version, "version of the model; 0 = the latest");
  flags->Add("priority", &priority, "low, normal or high");
  flags->Add("top_k", &top_k, "labels in each answer of classify; 0 = all");
  flags->Add("sequences", &sequences, "sequences in each call");
  flags->Add("input", &input,
             "file with one text per line; without it, questions that are built in");
  flags->Add("lengths", &lengths,
             "random token ids (features, for a model without words) of these lengths instead: "
             "fixed:N, uniform:MIN:MAX, exponential:MEAN:MAX, geometric:MEAN:MAX or "
             "lognormal:MEDIAN:SIGMA:MAX");
  flags->Add("seed", &seed, "seed of the lengths and of the arrivals");
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
    return absl::InvalidArgumentError(
        absl::StrCat("--method: expected classify, encode or score, found '", options.method, "'"));
  }
  if (options.protocol == "native") return path;
  if (options.protocol == kOpenInference) {
    return std::string("/inference.GRPCInferenceService/ModelInfer");
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "--protocol: expected native or open_inference, found '", options.protocol, "'"));
}

absl::StatusOr<std::vector<std::string>> MakeRequests(const RequestOptions& options,
                                                      const v1::ModelInfo& info) {
  if (options.sequences < 1 || options.sequences > 100000) {
    return absl::InvalidArgumentError(
        absl::StrCat("--sequences: expected 1 to 100000, found ", options.sequences));
  }
  v1::Priority priority = v1::PRIORITY_UNSPECIFIED;
  if (absl::Status status = client::ParsePriority(options.priority, &priority); !status.ok()) {
    return status;
  }

  if (options.protocol == kOpenInference && options.top_k != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--top_k: expected 0 with --protocol=open_inference, found ", options.top_k));
  }

  std::vector<v1::Sequence> sequences;
  if (!options.lengths.empty()) {
    if (!options.input.empty()) {
      return absl::InvalidArgumentError("--input and --lengths exclude each other");
    }
    auto lengths =
        DrawLengths(options.lengths, kNumDrawn * std::min(options.sequences, 64), options.seed);
    if (!lengths.ok()) return lengths.status();
    std::mt19937_64 random(options.seed + 1);
    for (const int length : *lengths) {
      v1::Sequence sequence;
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
      sequences.push_back(std::move(sequence));
    }
  } else if (!options.input.empty()) {
    auto texts = ReadTexts(options.input);
    if (!texts.ok()) return texts.status();
    sequences = *std::move(texts);
  } else {
    for (const char* question : kQuestions) sequences.push_back(client::TextSequence(question));
  }

  // Enough calls to use every sequence, and at least one.
  const size_t num_calls =
      std::max<size_t>(1, (sequences.size() + options.sequences - 1) / options.sequences);
  std::vector<std::string> requests;
  size_t next = 0;
  for (size_t call = 0; call < num_calls; ++call) {
    if (options.protocol == kOpenInference) {
      std::vector<v1::Sequence> batch;
      for (int i = 0; i < options.sequences; ++i) {
        batch.push_back(sequences[next++ % sequences.size()]);
      }
      const std::string& model = options.model.empty() ? info.name() : options.model;
      requests.push_back(OpenInferenceRequest(options, model, batch).SerializeAsString());
      continue;
    }
    v1::ClassifyRequest classify;
    v1::EncodeRequest encode;
    v1::ScoreRequest score;
    for (int i = 0; i < options.sequences; ++i) {
      const v1::Sequence& sequence = sequences[next++ % sequences.size()];
      *(options.method == "encode"  ? encode.add_sequences()
        : options.method == "score" ? score.add_sequences()
                                    : classify.add_sequences()) = sequence;
    }
    if (options.method == "score") {
      score.set_model(options.model);
      score.set_version(options.version);
      score.set_priority(priority);
      requests.push_back(score.SerializeAsString());
    } else if (options.method == "encode") {
      encode.set_model(options.model);
      encode.set_version(options.version);
      encode.set_output_format(v1::OUTPUT_FORMAT_RAW_FLOAT32);
      encode.set_priority(priority);
      requests.push_back(encode.SerializeAsString());
    } else {
      classify.set_model(options.model);
      classify.set_version(options.version);
      classify.set_top_k(options.top_k);
      classify.set_priority(priority);
      requests.push_back(classify.SerializeAsString());
    }
  }
  return requests;
}

}  // namespace sru::bench
