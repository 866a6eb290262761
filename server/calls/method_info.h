// The static facts of the methods of the server's services: the half of the table of methods that
// needs no call (method.h has the other). Names, metrics' labels, routes over HTTP, the hints of
// refusals and the boxes of the status page follow from it.
#ifndef SRU_SERVER_CALLS_METHOD_INFO_H_
#define SRU_SERVER_CALLS_METHOD_INFO_H_

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>

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
  kRepositoryModelUnload,
  kEnd  // no method
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
  MethodId id = MethodId::kEnd;
  const char* service = "";
  const char* name = "";  // the value of the label `method`
  MethodKind kind = MethodKind::kUnary;
  Work work = Work::kNone;
  // The tasks of the models that answer it, and these models in words. A call that names no model
  // means one of them.
  TaskSet tasks = {};
  const char* needs = "";
  const char* summary = "";    // of its route over HTTP, in a sentence or two; empty: it has none
  bool has_box = false;        // whether people can try it on the status page
  bool one_direction = false;  // whether its models must have one direction
  bool vocabulary = false;     // whether they must have a vocabulary

  // Whether its calls compute and report their times.
  constexpr bool computes() const { return work == Work::kBatches || work == Work::kSteps; }
  // Whether its calls stay open, and wait for many batches.
  constexpr bool is_stream() const { return kind != MethodKind::kUnary; }
};

namespace method_table {

using models::Task;
using Id = MethodId;
constexpr const char* kSru = kInferenceService;
constexpr const char* kOpen = kOpenInferenceService;
constexpr MethodKind kUnary = MethodKind::kUnary;
constexpr MethodKind kBidirectional = MethodKind::kBidirectional;
constexpr TaskSet kClassifiers = {Task::kClassifier};
constexpr TaskSet kStacks = {Task::kClassifier, Task::kEncoder};
constexpr TaskSet kLanguageModels = {Task::kLanguageModel};
constexpr TaskSet kReaders = {Task::kReader};
constexpr TaskSet kTranslators = {Task::kTranslator};
constexpr TaskSet kTaggers = {Task::kTagger};
constexpr TaskSet kAll = {Task::kClassifier, Task::kEncoder,    Task::kLanguageModel,
                          Task::kReader,     Task::kTranslator, Task::kTagger};

inline constexpr MethodInfo kRows[] = {
    {Id::kClassify, kSru, "Classify", kUnary, Work::kBatches, kClassifiers, "a classifier",
     "Labels with probabilities for each sequence.", /*has_box=*/true},
    {Id::kEncode, kSru, "Encode", kUnary, Work::kBatches, kStacks, "an encoder or a classifier",
     "A pooled vector, or one vector per token, for each sequence.", /*has_box=*/true},
    {Id::kScore, kSru, "Score", kUnary, Work::kBatches, kLanguageModels, "a language_model",
     "How probable each sequence is, token by token."},
    {Id::kGenerate, kSru, "Generate", MethodKind::kServerStream, Work::kSteps, kLanguageModels,
     "a language_model",
     "Goes on from a prompt, as server-sent events of one GenerateResponse each. An event with an "
     "error ends a text that failed after its beginning.",
     /*has_box=*/true},
    {Id::kEncodeStream, kSru, "EncodeStream", kBidirectional, Work::kBatches, kStacks,
     "a unidirectional encoder or classifier", "", false, /*one_direction=*/true},
    {Id::kAnswer, kSru, "Answer", kUnary, Work::kBatches, kReaders, "a reader",
     "The spans of passages that answer questions.", /*has_box=*/true},
    {Id::kTranslate, kSru, "Translate", kUnary, Work::kSteps, kTranslators, "a translator",
     "The most probable translations of each sequence.", /*has_box=*/true},
    {Id::kTag, kSru, "Tag", kUnary, Work::kBatches, kTaggers, "a tagger",
     "The most probable labels of each token of each sequence.", /*has_box=*/true},
    {Id::kTokenize, kSru, "Tokenize", kUnary, Work::kTexts, kAll, "a model with a vocabulary",
     "The tokens of each sequence, with their ids and where they stand.", false, false,
     /*vocabulary=*/true},
    {Id::kDetokenize, kSru, "Detokenize", kUnary, Work::kTexts, kAll, "a model with a vocabulary",
     "The text that each list of token ids stands for.", false, false, /*vocabulary=*/true},
    {Id::kListModels, kSru, "ListModels"},
    {Id::kGetModel, kSru, "GetModel"},
    {Id::kLoadModel, kAdminService, "LoadModel"},
    {Id::kUnloadModel, kAdminService, "UnloadModel"},
    {Id::kModelInfer, kOpen, "ModelInfer", kUnary, Work::kBatches},  // its models have names
    {Id::kModelStreamInfer, kOpen, "ModelStreamInfer", kBidirectional},
    {Id::kServerLive, kOpen, "ServerLive"},
    {Id::kServerReady, kOpen, "ServerReady"},
    {Id::kModelReady, kOpen, "ModelReady"},
    {Id::kServerMetadata, kOpen, "ServerMetadata"},
    {Id::kModelMetadata, kOpen, "ModelMetadata"},
    {Id::kModelConfig, kOpen, "ModelConfig"},
    {Id::kModelStatistics, kOpen, "ModelStatistics"},
    {Id::kRepositoryIndex, kOpen, "RepositoryIndex"},
    {Id::kRepositoryModelLoad, kOpen, "RepositoryModelLoad"},
    {Id::kRepositoryModelUnload, kOpen, "RepositoryModelUnload"}};

}  // namespace method_table

inline constexpr size_t kNumMethods = std::size(method_table::kRows);
static_assert(kNumMethods == static_cast<size_t>(MethodId::kEnd), "a row for each method");
static_assert(
    [] {
      for (size_t i = 0; i < kNumMethods; ++i) {
        if (method_table::kRows[i].id != static_cast<MethodId>(i)) return false;
      }
      return true;
    }(),
    "the rows are in the order of their ids");

constexpr const MethodInfo& Describe(MethodId method) {
  return method_table::kRows[static_cast<size_t>(method)];
}
constexpr const char* MethodName(MethodId method) { return Describe(method).name; }
// True for the methods that callers' limits apply to: not lookups.
constexpr bool IsLimited(MethodId method) {
  return Describe(method).work != Work::kNone || Describe(method).is_stream();
}

}  // namespace sru::server::calls

#endif  // SRU_SERVER_CALLS_METHOD_INFO_H_
