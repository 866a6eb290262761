#include "kernels/cuda/backend/cuda_backend.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "kernels/backend.h"
#include "kernels/cuda/device/gpu.h"
#include "kernels/cuda/kernels/storage_type.h"
#include "kernels/cuda/program/program_workspace.h"
#include "kernels/cuda/stack/cuda_workspace.h"
#include "kernels/cuda/stack/packed_stack.h"
#include "kernels/cuda/stack/stack_on_device.h"
#include "kernels/status.h"

namespace sru::kernels::cuda {
namespace {

// One batch: its bucket, its input in the staging memory, its results out of it.
class BatchRun {
 public:
  BatchRun(const PackedStack& stack, const RaggedBatch& batch, const SequenceOutput* outputs,
           CudaWorkspace& workspace)
      : stack_(stack),
        batch_(batch),
        outputs_(outputs),
        ws_(workspace),
        bucket_(BucketOf()),
        layout_(stack, bucket_) {}

  const Bucket& bucket() const { return bucket_; }

  // Fills the staging memory. Returns the bytes of it that the batch uses.
  size_t WriteInput() {
    char* const input = ws_.host_input.as<char>();
    const int tokens = batch_.num_tokens();
    *reinterpret_cast<BatchHeader*>(input + layout_.header) = BatchHeader{tokens, {}};
    WriteSequences();
    if (bucket_.has(Bucket::kInitialState)) WriteInitialState();
    const void* from = batch_.token_ids;
    if (bucket_.has(Bucket::kFeatures)) from = batch_.features;
    const size_t token_bytes = tokens * layout_.token_bytes;
    std::memcpy(input + layout_.tokens, from, token_bytes);
    return layout_.tokens + token_bytes;
  }

  int num_token_rows() const { return num_token_rows_; }

  // Copies what was computed to where the caller wants it.
  void ReadResults() const {
    const RowLayout& row = stack_.output();
    const int layers = static_cast<int>(stack_.layers.size());
    const int labels = stack_.spec.num_labels;
    for (int i = 0; i < batch_.num_sequences; ++i) {
      const SequenceEntry& entry = sequences()[i];
      const SequenceOutput& out = outputs_[entry.index];
      if (out.pooled != nullptr) row.Unpack(ws_.pooled.row(entry.pool_row), out.pooled);
      if (out.final_state != nullptr) {
        const float* state = ws_.final_state.row(entry.state_row);
        for (int layer = 0; layer < layers; ++layer) {
          row.Unpack(state + static_cast<size_t>(layer) * row.stride(),
                     out.final_state + static_cast<size_t>(layer) * row.width());
        }
      }
      if (out.token_vectors != nullptr) {
        for (int t = 0; t < entry.length; ++t) {
          row.Unpack(ws_.token_vectors.row(entry.token_row + t),
                     out.token_vectors + static_cast<size_t>(t) * row.width());
        }
      }
      if (entry.label_row < 0) continue;
      const float* logits = ws_.labels.row(entry.label_row);
      if (out.logits != nullptr) std::copy_n(logits, labels, out.logits);
      if (out.probabilities != nullptr) std::copy_n(logits + labels, labels, out.probabilities);
    }
  }

 private:
  SequenceEntry* sequences() const {
    return reinterpret_cast<SequenceEntry*>(ws_.host_input.as<char>() + layout_.sequences);
  }

  Bucket BucketOf() const {
    Bucket bucket;
    bucket.tokens = ws_.token_buckets()[ws_.TokenBucketIndex(batch_.num_tokens())];
    bucket.sequences = SequenceBucket(batch_.num_sequences, ws_.limits().max_sequences);
    if (batch_.features != nullptr) bucket.flags |= Bucket::kFeatures;
    if (batch_.initial_states != nullptr) bucket.flags |= Bucket::kInitialState;
    for (int b = 0; b < batch_.num_sequences; ++b) {
      const SequenceOutput& out = outputs_[b];
      if (out.wants_labels()) bucket.flags |= Bucket::kLabels;
      if (out.pooled != nullptr) bucket.flags |= Bucket::kPooled;
      if (out.final_state != nullptr) bucket.flags |= Bucket::kFinalState;
      if (out.token_vectors != nullptr) bucket.flags |= Bucket::kTokenVectors;
    }
    return bucket;
  }

  void WriteSequences() {
    SequenceEntry* const entries = sequences();
    int pool_rows = 0;
    int label_rows = 0;
    int state_rows = 0;
    for (int b = 0; b < batch_.num_sequences; ++b) {
      const SequenceOutput& out = outputs_[b];
      SequenceEntry& entry = entries[b];
      entry.begin = batch_.offsets[b];
      entry.length = batch_.offsets[b + 1] - batch_.offsets[b];
      entry.index = b;
      entry.pooling = PoolingOf(stack_.spec, out);
      entry.pool_row = entry.pooling != Pooling::kNone ? pool_rows++ : -1;
      entry.label_row = out.wants_labels() ? label_rows++ : -1;
      entry.state_row = out.final_state != nullptr ? state_rows++ : -1;
      entry.token_row = -1;
      if (out.token_vectors != nullptr) {
        entry.token_row = num_token_rows_;
        num_token_rows_ += entry.length;
      }
    }
    OrderSequences(entries, batch_.num_sequences, bucket_.sequences);
  }

  void WriteInitialState() {
    const RowLayout& row = stack_.output();
    float* const states =
        reinterpret_cast<float*>(ws_.host_input.as<char>() + layout_.initial_state);
    const size_t rows = batch_.num_sequences * stack_.layers.size();
    std::fill_n(states, rows * row.stride(), 0.0f);
    for (size_t i = 0; i < rows; ++i) {
      const float* const initial = batch_.initial_states[i / stack_.layers.size()];
      if (initial == nullptr) continue;
      row.Pack(initial + i % stack_.layers.size() * row.width(), states + i * row.stride());
    }
  }

  const PackedStack& stack_;
  const RaggedBatch& batch_;
  const SequenceOutput* const outputs_;
  CudaWorkspace& ws_;
  const Bucket bucket_;
  const InputLayout layout_;
  int num_token_rows_ = 0;
};

class CudaExecutable : public DeviceExecutable<Executable, StackOnDevice> {
 public:
  CudaExecutable(std::unique_ptr<PackedStack> stack, std::vector<StackOnDevice> devices)
      : DeviceExecutable(std::move(devices)), stack_(std::move(stack)) {}

  Status CreateWorkspace(const WorkspaceLimits& limits,
                         std::unique_ptr<Workspace>* workspace) const override {
    if (limits.max_tokens < 1 || limits.max_sequences < 1) {
      return InvalidArgument("workspace: expected at least one token and one sequence");
    }
    SRU_RETURN_IF_ERROR(CheckDevice("workspace", limits.device));
    const StackOnDevice& device = devices_[limits.device];
    std::unique_ptr<CudaWorkspace> created;
    const auto create = [&] {
      return CatchBadAlloc("making a workspace", [&] {
        return device.gpu->Observe(
            CudaWorkspace::Create(*stack_, device.gpu, *device.plans, limits, &created));
      });
    };
    Status status = create();
    if (status.code() == StatusCode::kResourceExhausted && device.token_table->GiveUp()) {
      status = create();
    }
    if (status.ok()) *workspace = std::move(created);
    return status;
  }

  Status Run(const RaggedBatch& batch, const SequenceOutput* outputs,
             Workspace& workspace) const override {
    return CatchBadAlloc("running a batch", [&] {
      SRU_RETURN_IF_ERROR(ValidateBatch(stack_->spec, workspace.limits(), batch, outputs));
      if (batch.num_sequences == 0) return OkStatus();
      auto& ws = static_cast<CudaWorkspace&>(workspace);
      if (ws.gpu().lost()) return ws.gpu().LostError();
      BatchRun run(*stack_, batch, outputs, ws);
      // Also after an error: the staging memory must be free for the next batch.
      SRU_RETURN_IF_ERROR(
          ws.gpu().ObserveRun(RunWork(*ws.stream, [&] { return Enqueue(run, ws); })));
      run.ReadResults();
      return OkStatus();
    });
  }

 private:
  Status Enqueue(BatchRun& run, CudaWorkspace& ws) const {
    const size_t bytes = run.WriteInput();
    const auto enqueue = [&] {
      const StackOnDevice& device = devices_[ws.limits().device];
      return EnqueueForward(*stack_, *device.weights, device.token_table->Use(), run.bucket(), ws);
    };
    Graph* graph = nullptr;
    SRU_RETURN_IF_ERROR(ws.graphs.Prepare(run.bucket(), *ws.stream, enqueue, &graph));
    SRU_RETURN_IF_ERROR(ws.stream->CopyToDevice(ws.input.data(), ws.host_input.data(), bytes));
    SRU_RETURN_IF_ERROR(graph != nullptr ? ws.stream->Launch(*graph) : enqueue());
    if (run.num_token_rows() == 0) return OkStatus();
    const ResultRows& rows = ws.token_vectors;
    return ws.stream->CopyToHost(rows.host.data(), rows.device.data(),
                                 run.num_token_rows() * rows.row_values * sizeof(float));
  }

  const std::unique_ptr<PackedStack> stack_;
};

class CudaBackend : public Backend {
 public:
  CudaBackend(const BackendOptions& options, std::vector<std::shared_ptr<Gpu>> gpus)
      : fuse_layers_(options.cuda_fuse_layers), gpus_(std::move(gpus)) {}

  const char* name() const override { return "cuda"; }

  std::string description() const override {
    std::string description = "cuBLASLt products";
    if (!fuse_layers_) description += ", no fused layers";
    for (const std::shared_ptr<Gpu>& gpu : gpus_) {
      description +=
          ", device " + std::to_string(gpu->device().ordinal()) + ": " + gpu->device().name();
    }
    return description;
  }

  std::vector<DeviceInfo> devices() const override {
    std::vector<DeviceInfo> infos;
    for (const std::shared_ptr<Gpu>& gpu : gpus_) infos.push_back(gpu->info());
    return infos;
  }

  Status Compile(const StackSpec& spec, const CompileOptions& options,
                 std::unique_ptr<Executable>* executable) override {
    return CatchBadAlloc("packing weights", [&] {
      SRU_RETURN_IF_ERROR(Validate(spec));
      if (!HasStorageType(options.dtype)) return UnsupportedDataType(name(), options.dtype);
      auto stack = std::make_unique<PackedStack>(spec, PackOptionsOf(options), options.weights);
      std::vector<StackOnDevice> states;
      SRU_RETURN_IF_ERROR(PrepareDevices(
          gpus_,
          [&](const std::shared_ptr<Gpu>& gpu, StackOnDevice* state) {
            std::unique_ptr<Stream> stream;
            SRU_RETURN_IF_ERROR(gpu->device().CreateStream(nullptr, &stream));
            return StackOnDevice::Create(*stack, gpu, *stream, state);
          },
          &states));
      stack->ReleaseHostCopy();
      *executable = std::make_unique<CudaExecutable>(std::move(stack), std::move(states));
      return OkStatus();
    });
  }

  Status Compile(const Program& program, const CompileOptions& options,
                 std::unique_ptr<ProgramExecutable>* executable) override {
    if (!HasStorageType(options.dtype)) return UnsupportedDataType(name(), options.dtype);
    return CompileProgram(program, options, PackOptionsOf(options), gpus_, executable);
  }

 private:
  PackOptions PackOptionsOf(const CompileOptions& options) const {
    return {options.dtype, fuse_layers_};
  }

  const bool fuse_layers_;
  const std::vector<std::shared_ptr<Gpu>> gpus_;
};

}  // namespace

std::unique_ptr<Backend> MakeCudaBackend(const BackendOptions& options,
                                         std::vector<std::unique_ptr<Device>> devices) {
  std::vector<std::shared_ptr<Gpu>> gpus;
  for (std::unique_ptr<Device>& device : devices) {
    gpus.push_back(std::make_shared<Gpu>(std::move(device), options));
  }
  return std::make_unique<CudaBackend>(options, std::move(gpus));
}

}  // namespace sru::kernels::cuda
