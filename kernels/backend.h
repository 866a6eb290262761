// The one interface of every backend: compile a whole model once, then run ragged batches. A model
// is an SRU stack with what goes before and after it (StackSpec, for a classifier or an encoder),
// or a Program of several parts, compiled and run the same way (program_executable.h).
//
//   std::unique_ptr<Backend> backend;
//   Status status = CreateBackend("cpu", &backend);
//   std::unique_ptr<Executable> executable;
//   status = backend->Compile(spec, CompileOptions(), &executable);
//   std::unique_ptr<Workspace> workspace;                    // one per worker
//   status = executable->CreateWorkspace(limits, &workspace);
//   status = executable->Run(batch, outputs, *workspace);    // one virtual call per batch
//
// Data layout: ragged and token-packed, float32, row-major, no padding. A batch of B sequences with
// T tokens in all is `offsets[B + 1]` and T rows, the sequences one after the other.
//
// Promise: the results of a sequence have the same bits whatever else is in the batch (same
// backend, data type and machine; with several GPUs, if they are of the same model).
#ifndef SRU_KERNELS_BACKEND_H_
#define SRU_KERNELS_BACKEND_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/data_type.h"
#include "kernels/model_sizes.h"
#include "kernels/program.h"
#include "kernels/program_executable.h"
#include "kernels/stack_spec.h"
#include "kernels/status.h"
#include "kernels/weight_source.h"

namespace sru::kernels {

// The hardware that a backend uses. Each field is read by the backend that its name begins with.
struct BackendOptions {
  std::string cpu_isa = "auto";  // auto (the machine's best) or a name of cpu/isa/cpu_isa.h; a
                                 // process that has forced one cannot take another
  int cpu_threads = 0;           // most threads for one large batch; 0 = one per core
  int cpu_cores = 0;  // that all batches may keep busy; 0 = those that the process may run on
  std::vector<int> cuda_devices;  // ordinals; empty = every device that the kernels run on
  // Bytes that weights and workspaces may take of each device; 0 = nine tenths of what is free when
  // the backend is created.
  size_t cuda_memory_limit_bytes = 0;
  // Most bytes of each device that the first layer's products of a model's whole vocabulary may
  // take, as part of its weights; 0 = they are never kept. The results have the same bits either
  // way. The default holds 30,000 words of two directions with 512 dimensions each in bfloat16.
  size_t cuda_token_table_bytes = size_t{256} << 20;
  // Runs bfloat16 layers of rows of at most 128 values as one kernel each. A layer's shape alone
  // decides, and so results do not depend on the batch. Other results to the bit, and nearer to
  // float32's, since U is not rounded.
  bool cuda_fuse_layers = true;
  // How long a thread that waits for a device asks whether it is done, which takes its core, before
  // it sleeps until it is woken: this much longer than batches of that size usually take, if that
  // is at most 2 ms. 0 = it sleeps at once.
  std::chrono::microseconds cuda_poll{0};
  // Products of few rows may be our own kernel's where it is faster. The results are the same.
  bool cuda_own_products = true;
};

struct CompileOptions {
  // How weights, embeddings and activations are stored (data_type.h).
  DataType dtype = DataType::kFloat32;
  // Where the values of the specification's views are read from; null = they are in memory already.
  // Borrowed until Compile() returns.
  WeightSource* weights = nullptr;
};

// What one Run() may hold; a workspace is sized for it once.
struct WorkspaceLimits {
  int max_tokens = 0;     // over all sequences of a batch
  int max_sequences = 0;  // of a batch
  int device = 0;         // which of Executable::num_devices() it is on
  // Whether initial and final states may be passed. Without them a backend may keep no room for
  // them.
  bool states = true;
  // How long a batch computes on a CPU before it yields the core (turn.h); 0 = until it is done.
  // The results do not depend on it.
  std::chrono::microseconds turn{0};
};

// The input of one Run(). All pointers are borrowed for the call.
struct RaggedBatch {
  int num_sequences = 0;
  const int32_t* offsets = nullptr;    // [num_sequences + 1]; offsets[0] = 0, strictly increasing
  const int32_t* token_ids = nullptr;  // [T], each in [0, vocabulary_size); exactly one of
  const float* features = nullptr;     // [T][input_size]                    these two is set
  // [num_sequences], each [layers][output_size] or null for zeros; null = zeros for all
  const float* const* initial_states = nullptr;

  int num_tokens() const { return num_sequences == 0 ? 0 : offsets[num_sequences]; }
};

// Where the results of one sequence of L tokens go. A null pointer means "not asked for", and what
// no sequence asked for is never computed for it.
struct SequenceOutput {
  // Of `pooled`; with logits or probabilities it must be the model's.
  Pooling pooling = Pooling::kNone;
  float* token_vectors = nullptr;  // [L][output_size]
  float* pooled = nullptr;         // [output_size]
  float* final_state = nullptr;    // [layers][output_size]: c after the last step of each direction
  float* logits = nullptr;         // [num_labels]
  float* probabilities = nullptr;  // [num_labels]: softmax of the logits

  bool wants_labels() const { return logits != nullptr || probabilities != nullptr; }
};

// Scratch memory of one worker, tied to the executable that made it. Not thread-safe.
class Workspace {
 public:
  virtual ~Workspace() = default;

  virtual const WorkspaceLimits& limits() const = 0;
  // Memory that it holds or, on the CPU, that a batch takes of what all workspaces share.
  virtual size_t bytes() const = 0;
};

// A compiled stack. Immutable and thread-safe: many threads may run it, each with its own
// workspace.
class Executable : public CompiledModel {
 public:
  // kDeviceLost when limits.device has failed for good; the others may still serve.
  virtual Status CreateWorkspace(const WorkspaceLimits& limits,
                                 std::unique_ptr<Workspace>* workspace) const = 0;

  // Runs one batch and returns when `outputs` is written. `outputs` has batch.num_sequences
  // entries. kInvalidArgument when the batch exceeds the workspace's limits, a token id is outside
  // of the vocabulary, a sequence is empty or an output is asked for that the model does not have;
  // nothing has been written then. kDeviceLost when the workspace's device has failed for good: the
  // batch may be run again with a workspace on another device. Allocates no memory that depends on
  // the batch: oneDNN makes its argument lists per call, and the CUDA backend records a graph when
  // a size of batch comes for the first time.
  virtual Status Run(const RaggedBatch& batch, const SequenceOutput* outputs,
                     Workspace& workspace) const = 0;
};

// A device that a backend runs on, for metrics and GetModel.
struct DeviceInfo {
  std::string name;          // such as "NVIDIA H200"
  int ordinal = 0;           // the driver's number
  size_t memory_bytes = 0;   // of the device
  size_t memory_limit = 0;   // what the backend may take of it
  size_t memory_in_use = 0;  // by weights and workspaces of the backend
  size_t weight_bytes = 0;   // the weights' part of it, of every executable that there is
  size_t memory_free = 0;    // that nobody has taken, other processes counted in; 0 when lost
  bool lost = false;         // it has failed for good
  // Batches that were launched as a recorded graph, and those whose size had none yet.
  int64_t graph_hits = 0;
  int64_t graph_misses = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;

  // One of BackendNames().
  virtual const char* name() const = 0;
  // What it runs on, for logs and GetModel, such as the chosen instruction set.
  virtual std::string description() const = 0;
  // In the order of WorkspaceLimits::device. Empty for a backend that has no device but the
  // processor. Thread-safe.
  virtual std::vector<DeviceInfo> devices() const { return {}; }
  // The instruction set in a word, for a metric's label; empty where that means nothing.
  virtual std::string instruction_set() const { return ""; }
  // For estimates before a model is read: more than those of the type where the backend has no
  // instructions for it and keeps rounded float32 values.
  virtual PackedBytes packed_bytes(DataType /*dtype*/) const { return PackedBytes(); }

  // For the same estimates: about how many bytes of this process' memory another workspace adds
  // whose activations are of `activation_bytes`. None where it is in a device's memory.
  virtual int64_t workspace_bytes(const ModelSizes& /*sizes*/, const WorkspaceLimits& /*limits*/,
                                  size_t /*activation_bytes*/) const {
    return 0;
  }

  // Validates the specification and repacks its weights, whose views are not read after this call.
  // kUnsupported for what the backend does not have, such as a data type. Devices that have failed
  // are left out; kDeviceLost when none is left. Thread-safe.
  virtual Status Compile(const StackSpec& spec, const CompileOptions& options,
                         std::unique_ptr<Executable>* executable) = 0;

  // The same for a model that is made of parts.
  virtual Status Compile(const Program& program, const CompileOptions& options,
                         std::unique_ptr<ProgramExecutable>* executable) = 0;
};

// Every name that CreateBackend() knows, in alphabetical order. This build or machine may lack
// some.
std::vector<std::string> BackendNames();

// Whether the backend of this name, which may be one that this machine lacks, runs on devices of
// its own and not on the processor. False for an unknown name.
bool BackendHasDevices(const std::string& name);

// Names that CreateBackend() takes on this machine in this build, the preferred one first.
std::vector<std::string> AvailableBackends();

// kInvalidArgument for an unknown name or option, kUnavailable when this build or machine lacks the
// backend or what the options ask of it.
Status CreateBackend(const std::string& name, const BackendOptions& options,
                     std::unique_ptr<Backend>* backend);
// With the default options.
Status CreateBackend(const std::string& name, std::unique_ptr<Backend>* backend);

// Checks what every backend asks of the arguments of Run(). Used by the backends themselves.
Status ValidateBatch(const StackSpec& spec, const WorkspaceLimits& limits, const RaggedBatch& batch,
                     const SequenceOutput* outputs);

// Which part of the forward pass makes a sequence's outputs. Used by the backends, too.
// Whether the last scan makes token vectors and pooled vectors. With a layer norm after it they are
// made from the normalized rows.
inline bool ScanFinishesOutputs(const StackSpec& spec) {
  return spec.layers.back().layer_norm != LayerNorm::kAfter;
}

// The pooling that a sequence needs; kNone when it wants neither a pooled vector nor labels.
inline Pooling PoolingOf(const StackSpec& spec, const SequenceOutput& out) {
  if (out.wants_labels()) return spec.pooling;
  return out.pooled != nullptr ? out.pooling : Pooling::kNone;
}

}  // namespace sru::kernels

#endif  // SRU_KERNELS_BACKEND_H_
