// The static facts of the methods of the server's services: the half of the table of methods that
// needs no call (method.h has the other). Names, metrics' labels, routes over HTTP, the hints of
// refusals and the boxes of the status page follow from it.
#ifndef SRU_SERVER_CALLS_METHOD_INFO_H_
#define SRU_SERVER_CALLS_METHOD_INFO_H_

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "models/config.h"

namespace sru::server::calls {

inline constexpr char kInferenceService[] = "sru.v1.InferenceService";
inline constexpr char kAdminService[] = "sru.v1.AdminService";
inline constexpr char kOpenInferenceService[] = "inference.GRPCInferenceService";

enum class MethodId {
  kClassify,
  kEncode,
  kScore,
  kGenerate,
  kEncodeStream,
  kAnswer,
  kTranslate,
  kTag,
  kTokenize,
  kDetokenize,
  kListModels,
  kGetModel,
  kLoadModel,
  kUnloadModel,
  // The Open Inference Protocol. A message of a ModelStreamInfer counts as a ModelInfer, too.
  kModelInfer,
  kModelStreamInfer,
  kServerLive,
  kServerReady,
  kModelReady,
  kServerMetadata,
  kModelMetadata,
  kModelConfig,
  kModelStatistics,
  kRepositoryIndex,
  kRepositoryModelLoad,
  kRepositoryModelUnload
};

// What its calls compute, and so cost.
enum class Work : uint8_t {
  kNone,     // nothing: they look something up, or wait for a load
  kBatches,  // sequences, each in one batch
  kSteps,    // sequences that take as many steps as their results have tokens
  kTexts,    // nothing, but it takes time to read and write its texts and ids
};

enum class MethodKind { kUnary, kServerStream, kBidirectional };

class TaskSet {
 public:
  constexpr TaskSet() = default;
  constexpr TaskSet(std::initializer_list<models::Task> tasks) {
    for (const models::Task task : tasks) bits_ |= Bit(task);
  }
  constexpr bool has(models::Task task) const { return (bits_ & Bit(task)) != 0; }
  constexpr bool empty() const { return bits_ == 0; }

 private:
  static constexpr uint32_t Bit(models::Task task) {
    return uint32_t{1} << static_cast<uint32_t>(task);
  }

  uint32_t bits_ = 0;
};

struct MethodInfo {
  const char* service = "";
  const char* name = nullptr;  // the value of the label `method`
  MethodKind kind = MethodKind::kUnary;
  Work work = Work::kNone;
  // The tasks of the models that answer it, and these models in words. A call that names no model
  // means one of them.
  TaskSet tasks = {};
  const char* needs = "";
  bool one_direction = false;  // whether its models must have one direction
  bool vocabulary = false;     // whether they must have a vocabulary
  const char* summary = "";    // of its route over HTTP, in a sentence or two; empty: it has none
  bool has_box = false;        // whether people can try it on the status page

  // Whether its calls compute and report their times.
  constexpr bool computes() const { return work == Work::kBatches || work == Work::kSteps; }
  // Whether its calls stay open, and wait for many batches.
  constexpr bool is_stream() const { return kind != MethodKind::kUnary; }
  constexpr bool has_route() const { return *summary != 0; }

  constexpr MethodInfo Route(const char* route_summary) const {
    MethodInfo info = *this;
    info.summary = route_summary;
    return info;
  }
  constexpr MethodInfo Box() const {
    MethodInfo info = *this;
    info.has_box = true;
    return info;
  }
};

// The compiler warns when one is missing.
constexpr MethodInfo Describe(MethodId method) {
  using models::Task;
  constexpr const char* kSru = kInferenceService;
  constexpr const char* kOpen = kOpenInferenceService;
  constexpr MethodKind kUnary = MethodKind::kUnary;
  constexpr TaskSet kStackTasks = {Task::kClassifier, Task::kEncoder};
  constexpr TaskSet kLanguageModels = {Task::kLanguageModel};
  constexpr TaskSet kAll = {Task::kClassifier, Task::kEncoder,    Task::kLanguageModel,
                            Task::kReader,     Task::kTranslator, Task::kTagger};
  const auto of_texts = [&](const char* name) {
    return MethodInfo{kSru,
                      name,
                      kUnary,
                      Work::kTexts,
                      kAll,
                      "a model with a vocabulary",
                      /*one_direction=*/false,
                      /*vocabulary=*/true};
  };
  switch (method) {
    case MethodId::kClassify:
      return MethodInfo{kSru,           "Classify",          kUnary,
                        Work::kBatches, {Task::kClassifier}, "a classifier"}
          .Route("Labels with probabilities for each sequence.")
          .Box();
    case MethodId::kEncode:
      return MethodInfo{kSru,           "Encode",    kUnary,
                        Work::kBatches, kStackTasks, "an encoder or a classifier"}
          .Route("A pooled vector, or one vector per token, for each sequence.")
          .Box();
    case MethodId::kScore:
      return MethodInfo{kSru, "Score", kUnary, Work::kBatches, kLanguageModels, "a language_model"}
          .Route("How probable each sequence is, token by token.");
    case MethodId::kGenerate:
      return MethodInfo{kSru,         "Generate",      MethodKind::kServerStream,
                        Work::kSteps, kLanguageModels, "a language_model"}
          .Route(
              "Goes on from a prompt, as server-sent events of one GenerateResponse each. An event "
              "with an error ends a text that failed after its beginning.")
          .Box();
    case MethodId::kEncodeStream:
      return {kSru,
              "EncodeStream",
              MethodKind::kBidirectional,
              Work::kBatches,
              kStackTasks,
              "a unidirectional encoder or classifier",
              /*one_direction=*/true};
    case MethodId::kAnswer:
      return MethodInfo{kSru, "Answer", kUnary, Work::kBatches, {Task::kReader}, "a reader"}
          .Route("The spans of passages that answer questions.")
          .Box();
    case MethodId::kTranslate:
      return MethodInfo{kSru,         "Translate",         kUnary,
                        Work::kSteps, {Task::kTranslator}, "a translator"}
          .Route("The most probable translations of each sequence.")
          .Box();
    case MethodId::kTag:
      return MethodInfo{kSru, "Tag", kUnary, Work::kBatches, {Task::kTagger}, "a tagger"}
          .Route("The most probable labels of each token of each sequence.")
          .Box();
    case MethodId::kTokenize:
      return of_texts("Tokenize")
          .Route("The tokens of each sequence, with their ids and where they stand.");
    case MethodId::kDetokenize:
      return of_texts("Detokenize").Route("The text that each list of token ids stands for.");
    case MethodId::kListModels:
      return {kSru, "ListModels"};
    case MethodId::kGetModel:
      return {kSru, "GetModel"};
    case MethodId::kLoadModel:
      return {kAdminService, "LoadModel"};
    case MethodId::kUnloadModel:
      return {kAdminService, "UnloadModel"};
    case MethodId::kModelInfer:  // its models have names
      return {kOpen, "ModelInfer", kUnary, Work::kBatches};
    case MethodId::kModelStreamInfer:
      return {kOpen, "ModelStreamInfer", MethodKind::kBidirectional};
    case MethodId::kServerLive:
      return {kOpen, "ServerLive"};
    case MethodId::kServerReady:
      return {kOpen, "ServerReady"};
    case MethodId::kModelReady:
      return {kOpen, "ModelReady"};
    case MethodId::kServerMetadata:
      return {kOpen, "ServerMetadata"};
    case MethodId::kModelMetadata:
      return {kOpen, "ModelMetadata"};
    case MethodId::kModelConfig:
      return {kOpen, "ModelConfig"};
    case MethodId::kModelStatistics:
      return {kOpen, "ModelStatistics"};
    case MethodId::kRepositoryIndex:
      return {kOpen, "RepositoryIndex"};
    case MethodId::kRepositoryModelLoad:
      return {kOpen, "RepositoryModelLoad"};
    case MethodId::kRepositoryModelUnload:
      return {kOpen, "RepositoryModelUnload"};
  }
  return {};
}
constexpr const char* MethodName(MethodId method) { return Describe(method).name; }
// True for the methods that callers' limits apply to: not lookups.
constexpr bool IsLimited(MethodId method) {
  return Describe(method).work != Work::kNone || Describe(method).is_stream();
}

inline constexpr size_t kNumMethods = [] {
  size_t count = 0;
  while (Describe(static_cast<MethodId>(count)).name != nullptr) ++count;
  return count;
}();

}  // namespace sru::server::calls

#endif  // SRU_SERVER_CALLS_METHOD_INFO_H_
