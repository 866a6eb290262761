#include "bench/requests.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <memory>
#include <random>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "client/client.h"
#include "client/command_line.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "google/protobuf/reflection.h"
#include "google/protobuf/util/json_util.h"
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

// Finds a method of sru.v1.InferenceService by its name, in upper or lower case, and a method of
// another service by its path.
absl::StatusOr<const google::protobuf::MethodDescriptor*> FindMethod(const std::string& name) {
  // A linker may leave out a protocol that no code names.
  google::protobuf::LinkMessageReflection<inference::ModelInferRequest>();
  const google::protobuf::MethodDescriptor* found = nullptr;
  if (absl::StartsWith(name, "/")) {
    found = google::protobuf::DescriptorPool::generated_pool()->FindMethodByName(
        absl::StrReplaceAll(name.substr(1), {{"/", "."}}));
  } else {
    const auto* const service =
        v1::ClassifyRequest::descriptor()->file()->FindServiceByName("InferenceService");
    for (int i = 0; i < service->method_count(); ++i) {
      if (absl::EqualsIgnoreCase(service->method(i)->name(), name)) found = service->method(i);
    }
  }
  if (found == nullptr || found->client_streaming() || found->server_streaming()) {
    return InvalidArgument("--method: expected a unary method, such as classify, found '", name,
                           "'");
  }
  return found;
}

absl::StatusOr<std::vector<std::string>> ReadLines(absl::string_view flag,
                                                   const std::string& path) {
  std::ifstream file(path);
  if (!file) return InvalidArgument("--", flag, ": cannot read the file '", path, "'");
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(std::move(line));
  return lines;
}

// The requests of a file, a line each.
absl::StatusOr<std::vector<std::string>> ReadRequests(const RequestOptions& options) {
  SRU_ASSIGN_OR_RETURN(const auto* method, FindMethod(options.method));
  SRU_ASSIGN_OR_RETURN(auto lines, ReadLines("requests", options.requests));
  const std::unique_ptr<google::protobuf::Message> request(
      google::protobuf::MessageFactory::generated_factory()
          ->GetPrototype(method->input_type())
          ->New());
  std::vector<std::string> serialized;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (absl::StripAsciiWhitespace(lines[i]).empty()) continue;
    request->Clear();
    const auto status = google::protobuf::util::JsonStringToMessage(lines[i], request.get());
    if (!status.ok()) {
      return InvalidArgument("--requests: ", options.requests, ":", i + 1, ": expected a ",
                             method->input_type()->name(), " as JSON: ", status.ToString());
    }
    serialized.push_back(request->SerializeAsString());
  }
  if (serialized.empty()) {
    return InvalidArgument("--requests: the file '", options.requests, "' has no request");
  }
  return serialized;
}

absl::StatusOr<std::vector<v1::Sequence>> ReadTexts(const std::string& path) {
  SRU_ASSIGN_OR_RETURN(auto lines, ReadLines("input", path));
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

absl::StatusOr<std::vector<v1::Sequence>> DrawSequences(const RequestOptions& options,
                                                        const v1::ModelInfo& info) {
  SRU_ASSIGN_OR_RETURN(
      auto lengths,
      DrawLengths(options.lengths, kNumDrawn * std::min(options.sequences, 64), options.seed));
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

// The texts of the file; or sequences of drawn lengths for the model `info`; or the built-in texts.
absl::StatusOr<std::vector<v1::Sequence>> MakeSequences(const RequestOptions& options,
                                                        const v1::ModelInfo& info) {
  if (!options.input.empty() && !options.lengths.empty()) {
    return absl::InvalidArgumentError("--input and --lengths exclude each other");
  }
  if (!options.input.empty()) return ReadTexts(options.input);
  if (!options.lengths.empty()) return DrawSequences(options, info);
  std::vector<v1::Sequence> sequences;
  for (const absl::string_view text : kQuestions) sequences.push_back(client::TextSequence(text));
  return sequences;
}

// As many serialized requests as use every sequence, in turn.
template <typename Request>
std::vector<std::string> MakeSerialized(const RequestOptions& options,
                                        const std::vector<v1::Sequence>& sequences) {
  std::vector<std::string> serialized(1 + (sequences.size() - 1) / options.sequences);
  size_t next = 0;
  for (std::string& bytes : serialized) {
    Request request;
    request.set_model(options.model);
    request.set_version(options.version);
    request.set_priority(options.priority);
    for (int i = 0; i < options.sequences; ++i) {
      *request.add_sequences() = sequences[next++ % sequences.size()];
    }
    if constexpr (std::is_same_v<Request, v1::EncodeRequest>) {
      request.set_output_format(v1::OUTPUT_FORMAT_RAW_FLOAT32);
    }
    bytes = request.SerializeAsString();
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
    fill(std::uniform_int_distribution<int>(numbers[0], numbers[1]));
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

void CallOptions::AddFlags(absl::string_view seeded, Flags* flags) {
  flags->Add("model", &model, "name of the model; may be left out when the server has one");
  flags->Add("version", &version, "version of the model; 0 = the latest");
  flags->AddChoice("priority", &priority, client::NamedValues<v1::Priority>(),
                   "low, normal or high");
  flags->Add("seed", &seed, absl::StrCat("seed of the ", seeded));
}

void RequestOptions::AddFlags(Flags* flags) {
  flags->Add("method", &method, "classify, encode or score; with --requests any unary method");
  flags->Add("requests", &requests,
             "file with one request of the method per line, as JSON; they are sent as they are");
  flags->Add("sequences", &sequences, {1, kMaxPerCall}, "sequences in each call");
  flags->Add("input", &input,
             "file with one text per line; without it, questions that are built in");
  flags->Add("lengths", &lengths,
             absl::StrCat("random token ids (features, for a model without words) of these "
                          "lengths instead: ",
                          kLengthsHelp));
  CallOptions::AddFlags("lengths and of the arrivals", flags);
}

absl::StatusOr<std::string> MethodPath(const RequestOptions& options) {
  if (options.requests.empty() && options.method != "classify" && options.method != "encode" &&
      options.method != "score") {
    return InvalidArgument("--method: expected classify, encode or score, or --requests, found '",
                           options.method, "'");
  }
  SRU_ASSIGN_OR_RETURN(const auto* method, FindMethod(options.method));
  return absl::StrCat("/", method->service()->full_name(), "/", method->name());
}

absl::StatusOr<std::vector<std::string>> MakeRequests(const RequestOptions& options,
                                                      const v1::ModelInfo& info) {
  if (!options.requests.empty()) {
    if (options.input.empty() && options.lengths.empty()) return ReadRequests(options);
    return absl::InvalidArgumentError("--requests excludes --input and --lengths");
  }
  SRU_ASSIGN_OR_RETURN(auto sequences, MakeSequences(options, info));
  if (options.method == "score") return MakeSerialized<v1::ScoreRequest>(options, sequences);
  if (options.method == "encode") return MakeSerialized<v1::EncodeRequest>(options, sequences);
  return MakeSerialized<v1::ClassifyRequest>(options, sequences);
}

void GenerateRequestOptions::AddFlags(Flags* flags) {
  flags->Add("prompt", &prompt,
             absl::StrCat("lengths of the prompts, in random tokens: ", kLengthsHelp));
  flags->Add("output", &output, "lengths of the texts in tokens, written as those of prompts");
  flags->Add("shared_prefix", &shared_prefix, {0}, "tokens that all prompts begin with");
  flags->Add("distinct", &distinct, {1, kMaxDistinct},
             "how many different texts there are, before they repeat");
  flags->Add("temperature", &temperature, "0 = the most probable token each time");
  flags->Add("top_k", &top_k, "pick among the most probable tokens, this many; 0 = all");
  flags->Add("top_p", &top_p, "pick among the fewest with this probability together; 0 = all");
  CallOptions::AddFlags("prompts, the lengths, the texts and the arrivals", flags);
}

absl::StatusOr<std::vector<v1::GenerateRequest>> MakeGenerateRequests(
    const GenerateRequestOptions& options, const v1::ModelInfo& info) {
  SRU_ASSIGN_OR_RETURN(auto prompts,
                       DrawLengths(options.prompt, options.distinct, options.seed, "prompt"));
  SRU_ASSIGN_OR_RETURN(auto outputs,
                       DrawLengths(options.output, options.distinct, options.seed + 1, "output"));
  if (info.vocabulary_size() < 1) {
    return InvalidArgument("--model: '", info.name(),
                           "' takes no tokens; expected a language model");
  }
  std::mt19937_64 random(options.seed + 2);
  const auto draw_id = [&] { return static_cast<int32_t>(random() % info.vocabulary_size()); };
  std::vector<int32_t> prefix(static_cast<size_t>(options.shared_prefix));
  std::generate(prefix.begin(), prefix.end(), draw_id);

  std::vector<v1::GenerateRequest> requests;
  for (int i = 0; i < options.distinct; ++i) {
    v1::GenerateRequest& request = requests.emplace_back();
    request.set_model(info.name());
    request.set_version(options.version);
    request.set_priority(options.priority);
    auto* ids = request.mutable_prompt()->mutable_token_ids()->mutable_values();
    for (int k = 0; k < prompts[i]; ++k) {
      ids->Add(k < options.shared_prefix ? prefix[k] : draw_id());
    }
    request.set_max_new_tokens(outputs[i]);
    request.mutable_sampling()->set_temperature(options.temperature);
    request.mutable_sampling()->set_top_k(options.top_k);
    request.mutable_sampling()->set_top_p(options.top_p);
    request.mutable_sampling()->set_seed(options.seed + static_cast<uint64_t>(i));
  }
  return requests;
}

}  // namespace sru::bench
