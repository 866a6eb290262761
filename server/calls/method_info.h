// The static facts of the methods of the server's services: the half of the table of methods that needs no call (method.h has the other).
// Names, metrics' labels, routes over HTTP, the hints of refusals and the boxes of the status page follow from it.
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
  bool has_stages = false;  // whether its calls compute and report their times
  // The tasks of the models that answer it, and these models in words. A call that names no model may mean one with such a task: Classify and
  // Encode are one family, as beside a classifier an encoder has to be told apart.
  TaskSet tasks = {};
  const char* needs = "";
  const char* http_path = "";  // of its POST; empty: none
  bool has_box = false;        // whether people can try it on the status page
  const char* summary = "";    // of its route, in a sentence or two

  // Whether its calls stay open, and wait for many batches.
  constexpr bool is_stream() const { return kind != MethodKind::kUnary; }
};

// The compiler warns when one is missing.
constexpr MethodInfo Describe(MethodId method) {
  using models::Task;
  constexpr TaskSet kStackTasks = {Task::kClassifier, Task::kEncoder};
  switch (method) {
    case MethodId::kClassify:
      return {kInferenceService,
              "Classify",
              MethodKind::kUnary,
              true,
              kStackTasks,
              "a classifier",
              "/v1/classify",
              true,
              "Labels with probabilities for each sequence."};
    case MethodId::kEncode:
      return {kInferenceService,
              "Encode",
              MethodKind::kUnary,
              true,
              kStackTasks,
              "an encoder or a classifier",
              "/v1/encode",
              false,
              "A pooled vector, or one vector per token, for each sequence."};
    case MethodId::kScore:
      return {kInferenceService,
              "Score",
              MethodKind::kUnary,
              true,
              {Task::kLanguageModel},
              "a language_model",
              "/v1/score",
              false,
              "How probable each sequence is, token by token."};
    case MethodId::kGenerate:
      return {kInferenceService,
              "Generate",
              MethodKind::kServerStream,
              true,
              {Task::kLanguageModel},
              "a language_model",
              "/v1/generate",
              true,
              "Goes on from a prompt, as server-sent events of one GenerateResponse each. An event "
              "with an error ends a text that failed after its beginning."};
    case MethodId::kEncodeStream:
      return {kInferenceService,
              "EncodeStream",
              MethodKind::kBidirectional,
              true,
              kStackTasks,
              "a unidirectional encoder or classifier"};
    case MethodId::kAnswer:
      return {kInferenceService,
              "Answer",
              MethodKind::kUnary,
              true,
              {Task::kReader},
              "a reader",
              "/v1/answer",
              true,
              "The spans of passages that answer questions."};
    case MethodId::kTranslate:
      return {kInferenceService,
              "Translate",
              MethodKind::kUnary,
              true,
              {Task::kTranslator},
              "a translator",
              "/v1/translate",
              true,
              "The most probable translations of each sequence."};
    case MethodId::kListModels:
      return {kInferenceService, "ListModels"};
    case MethodId::kGetModel:
      return {kInferenceService, "GetModel"};
    case MethodId::kLoadModel:
      return {kAdminService, "LoadModel"};
    case MethodId::kUnloadModel:
      return {kAdminService, "UnloadModel"};
    case MethodId::kModelInfer:  // its models have names
      return {kOpenInferenceService, "ModelInfer", MethodKind::kUnary, true};
    case MethodId::kModelStreamInfer:
      return {kOpenInferenceService, "ModelStreamInfer", MethodKind::kBidirectional};
    case MethodId::kServerLive:
      return {kOpenInferenceService, "ServerLive"};
    case MethodId::kServerReady:
      return {kOpenInferenceService, "ServerReady"};
    case MethodId::kModelReady:
      return {kOpenInferenceService, "ModelReady"};
    case MethodId::kServerMetadata:
      return {kOpenInferenceService, "ServerMetadata"};
    case MethodId::kModelMetadata:
      return {kOpenInferenceService, "ModelMetadata"};
    case MethodId::kModelConfig:
      return {kOpenInferenceService, "ModelConfig"};
    case MethodId::kModelStatistics:
      return {kOpenInferenceService, "ModelStatistics"};
    case MethodId::kRepositoryIndex:
      return {kOpenInferenceService, "RepositoryIndex"};
    case MethodId::kRepositoryModelLoad:
      return {kOpenInferenceService, "RepositoryModelLoad"};
    case MethodId::kRepositoryModelUnload:
      return {kOpenInferenceService, "RepositoryModelUnload"};
  }
  return {};
}
constexpr const char* MethodName(MethodId method) { return Describe(method).name; }

inline constexpr size_t kNumMethods = [] {
  size_t count = 0;
  while (Describe(static_cast<MethodId>(count)).name != nullptr) ++count;
  return count;
}();

}  // namespace sru::server::calls

#endif  // SRU_SERVER_CALLS_METHOD_INFO_H_
