#include "server/open_inference/tensors/model_tensors.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/stack_spec.h"
#include "server/open_inference/tensors/infer_request.h"

namespace sru::server::open_inference {
namespace {

constexpr int64_t kAny = -1;

constexpr OutputTensor kClassifyOutputs[] = {OutputTensor::kProbabilities, OutputTensor::kLogits,
                                             OutputTensor::kLabel};
constexpr OutputTensor kEncodeOutputs[] = {OutputTensor::kEncoding, OutputTensor::kLengths};
constexpr OutputTensor kScoreOutputs[] = {OutputTensor::kLogProb};
constexpr OutputTensor kAnswerOutputs[] = {OutputTensor::kAnswer, OutputTensor::kScore,
                                           OutputTensor::kProbability, OutputTensor::kStart,
                                           OutputTensor::kEnd};
constexpr OutputTensor kTranslateOutputs[] = {OutputTensor::kTranslation};

// The calls that a model answers; the first one is meant if no output is requested.
absl::Span<const InferKind> KindsOf(models::Task task) {
  static constexpr InferKind kClassifier[] = {InferKind::kClassify, InferKind::kEncode};
  static constexpr InferKind kEncoder[] = {InferKind::kEncode};
  static constexpr InferKind kLanguageModel[] = {InferKind::kScore};
  static constexpr InferKind kReader[] = {InferKind::kAnswer};
  static constexpr InferKind kTranslator[] = {InferKind::kTranslate};
  switch (task) {
    case models::Task::kClassifier:
      return kClassifier;
    case models::Task::kEncoder:
      return kEncoder;
    case models::Task::kLanguageModel:
      return kLanguageModel;
    case models::Task::kReader:
      return kReader;
    case models::Task::kTranslator:
      return kTranslator;
  }
  return {};
}

std::string OutputNames(const models::Model& model) {
  std::vector<absl::string_view> names;
  for (const InferKind kind : KindsOf(model.task())) {
    for (const OutputTensor output : OutputsOf(kind)) names.emplace_back(Describe(output).name);
  }
  return absl::StrJoin(names, ", ");
}

bool Find(const models::Model& model, absl::string_view name, InferKind* kind,
          OutputTensor* output) {
  for (const InferKind candidate : KindsOf(model.task())) {
    for (const OutputTensor known : OutputsOf(candidate)) {
      if (name != Describe(known).name) continue;
      *kind = candidate;
      *output = known;
      return true;
    }
  }
  return false;
}

std::vector<int64_t> ShapeOf(const models::Model& model, OutputTensor output) {
  switch (output) {
    case OutputTensor::kProbabilities:
    case OutputTensor::kLogits:
      return {kAny, static_cast<int64_t>(model.labels().size())};
    case OutputTensor::kEncoding:
      if (model.spec().pooling == kernels::Pooling::kNone) {
        return {kAny, kAny, model.spec().output_size()};
      }
      return {kAny, model.spec().output_size()};
    default:
      return {kAny};
  }
}

}  // namespace

const char* DatatypeName(Datatype datatype) {
  switch (datatype) {
    case Datatype::kBytes:
      return "BYTES";
    case Datatype::kInt32:
      return "INT32";
    case Datatype::kInt64:
      return "INT64";
    case Datatype::kFp32:
      return "FP32";
    case Datatype::kFp64:
      return "FP64";
  }
  return "";
}

inference::DataType DatatypeToProto(Datatype datatype) {
  switch (datatype) {
    case Datatype::kBytes:
      return inference::TYPE_STRING;
    case Datatype::kInt32:
      return inference::TYPE_INT32;
    case Datatype::kInt64:
      return inference::TYPE_INT64;
    case Datatype::kFp32:
      return inference::TYPE_FP32;
    case Datatype::kFp64:
      return inference::TYPE_FP64;
  }
  return inference::TYPE_INVALID;
}

int64_t ElementBytes(Datatype datatype) {
  switch (datatype) {
    case Datatype::kBytes:
      return 0;
    case Datatype::kInt32:
    case Datatype::kFp32:
      return 4;
    case Datatype::kInt64:
    case Datatype::kFp64:
      return 8;
  }
  return 0;
}

absl::Span<const OutputTensor> OutputsOf(InferKind kind) {
  switch (kind) {
    case InferKind::kClassify:
      return kClassifyOutputs;
    case InferKind::kEncode:
      return kEncodeOutputs;
    case InferKind::kScore:
      return kScoreOutputs;
    case InferKind::kAnswer:
      return kAnswerOutputs;
    case InferKind::kTranslate:
      return kTranslateOutputs;
  }
  return {};
}

absl::Status ChooseOutputs(const models::Model& model,
                           absl::Span<const absl::string_view> requested, InferKind* kind,
                           Outputs* outputs) {
  outputs->clear();
  *kind = KindsOf(model.task()).front();
  if (requested.empty()) {
    for (const OutputTensor output : OutputsOf(*kind)) {
      if (Describe(output).is_default) outputs->push_back(output);
    }
    return absl::OkStatus();
  }
  for (size_t i = 0; i < requested.size(); ++i) {
    InferKind found_kind = InferKind::kClassify;
    OutputTensor found = OutputTensor::kLabel;
    if (!Find(model, requested[i], &found_kind, &found)) {
      return absl::InvalidArgumentError(
          absl::StrCat("outputs[", i, "].name: ", Quoted(requested[i]), " is not an output of '",
                       model.name(), "', expected one of ", OutputNames(model)));
    }
    if (i > 0 && found_kind != *kind) {
      return absl::InvalidArgumentError(
          absl::StrCat("outputs[", i, "].name: ", Describe(found).name, " does not go with ",
                       Describe(outputs->front()).name,
                       ", since they come from different calls; send two requests"));
    }
    if (std::find(outputs->begin(), outputs->end(), found) != outputs->end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("outputs[", i, "].name: ", Describe(found).name, " is requested twice"));
    }
    *kind = found_kind;
    outputs->push_back(found);
  }
  return absl::OkStatus();
}

std::vector<TensorInfo> InputInfos(const models::Model& model) {
  if (model.task() == models::Task::kReader) {
    return {{"question", Datatype::kBytes, {kAny}}, {"passage", Datatype::kBytes, {kAny}}};
  }
  const SequenceModel sequences = SequenceModelOf(model);
  std::vector<TensorInfo> infos;
  if (sequences.takes_text) infos.push_back({"text", Datatype::kBytes, {kAny}});
  if (sequences.vocabulary_size > 0) {
    infos.push_back({"token_ids", Datatype::kInt64, {kAny, kAny}});
  }
  if (sequences.takes_features) {
    infos.push_back({"features", Datatype::kFp32, {kAny, kAny, sequences.input_size}});
  }
  if (infos.back().name != "text") infos.push_back({"lengths", Datatype::kInt64, {kAny}});
  for (size_t i = 1; i < infos.size(); ++i) infos[i].is_optional = true;
  return infos;
}

std::vector<TensorInfo> OutputInfos(const models::Model& model) {
  std::vector<TensorInfo> infos;
  for (const InferKind kind : KindsOf(model.task())) {
    for (const OutputTensor output : OutputsOf(kind)) {
      const OutputInfo info = Describe(output);
      infos.push_back({info.name, info.datatype, ShapeOf(model, output)});
    }
  }
  return infos;
}

SequenceModel SequenceModelOf(const models::Model& model) {
  SequenceModel sequences;
  sequences.name = model.name();
  sequences.takes_text = model.tokenizer() != nullptr;
  sequences.vocabulary_size = model.config().embedding.vocabulary_size;
  sequences.takes_features =
      model.task() == models::Task::kClassifier || model.task() == models::Task::kEncoder;
  sequences.input_size = model.spec().input_size;
  return sequences;
}

}  // namespace sru::server::open_inference
