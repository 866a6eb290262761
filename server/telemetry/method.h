// The methods of the server's services, as metrics and the access log name them.
#ifndef SRU_SERVER_TELEMETRY_METHOD_H_
#define SRU_SERVER_TELEMETRY_METHOD_H_

#include <cstddef>

namespace sru::server::telemetry {

enum class Method {
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
  // Of the Open Inference Protocol. A message of a ModelStreamInfer counts as a ModelInfer, too.
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

struct MethodInfo {
  const char* name = nullptr;  // the value of the label `method`
  bool has_stages = false;     // whether its calls compute and report their times
  bool is_stream = false;      // whether its calls stay open, and wait for many batches
};

// The table of methods. The compiler warns when one is missing.
constexpr MethodInfo Describe(Method method) {
  switch (method) {
    case Method::kClassify:
      return {"Classify", true};
    case Method::kEncode:
      return {"Encode", true};
    case Method::kScore:
      return {"Score", true};
    case Method::kGenerate:
      return {"Generate", true, true};
    case Method::kEncodeStream:
      return {"EncodeStream", true, true};
    case Method::kAnswer:
      return {"Answer", true};
    case Method::kTranslate:
      return {"Translate", true};
    case Method::kListModels:
      return {"ListModels", false};
    case Method::kGetModel:
      return {"GetModel", false};
    case Method::kLoadModel:
      return {"LoadModel", false};
    case Method::kUnloadModel:
      return {"UnloadModel", false};
    case Method::kModelInfer:
      return {"ModelInfer", true};
    case Method::kModelStreamInfer:
      return {"ModelStreamInfer", false, true};
    case Method::kServerLive:
      return {"ServerLive", false};
    case Method::kServerReady:
      return {"ServerReady", false};
    case Method::kModelReady:
      return {"ModelReady", false};
    case Method::kServerMetadata:
      return {"ServerMetadata", false};
    case Method::kModelMetadata:
      return {"ModelMetadata", false};
    case Method::kModelConfig:
      return {"ModelConfig", false};
    case Method::kModelStatistics:
      return {"ModelStatistics", false};
    case Method::kRepositoryIndex:
      return {"RepositoryIndex", false};
    case Method::kRepositoryModelLoad:
      return {"RepositoryModelLoad", false};
    case Method::kRepositoryModelUnload:
      return {"RepositoryModelUnload", false};
  }
  return {};
}
constexpr const char* MethodName(Method method) { return Describe(method).name; }

inline constexpr size_t kNumMethods = [] {
  size_t count = 0;
  while (Describe(static_cast<Method>(count)).name != nullptr) ++count;
  return count;
}();

}  // namespace sru::server::telemetry

#endif  // SRU_SERVER_TELEMETRY_METHOD_H_
