#include "kernels/reference/reference_backend.h"

#include <algorithm>
#include <vector>

#include "kernels/reference/equations.h"
#include "kernels/reference/reference_program.h"
#include "kernels/reference/storage.h"
#include "kernels/status.h"

namespace sru::kernels {
namespace {

using reference::Matrix;
using reference::Softmax;
using reference::Storage;

void Copy(const std::vector<double>& from, float* to) {
  std::transform(from.begin(), from.end(), to, [](double v) { return static_cast<float>(v); });
}

class ReferenceExecutable : public Executable {
 public:
  ReferenceExecutable(const StackSpec& spec, const CompileOptions& options, const Storage& storage)
      : spec_(spec), storage_(storage) {
    weights_.Take(options.weights, &spec_);
  }

  Status CreateWorkspace(const WorkspaceLimits& limits,
                         std::unique_ptr<Workspace>* workspace) const override {
    *workspace = std::make_unique<reference::EmptyWorkspace<Workspace, WorkspaceLimits>>(limits);
    return OkStatus();
  }

  Status Run(const RaggedBatch& batch, const SequenceOutput* outputs,
             Workspace& workspace) const override {
    return CatchBadAlloc("running a batch", [&] {
      SRU_RETURN_IF_ERROR(ValidateBatch(spec_, workspace.limits(), batch, outputs));
      for (int b = 0; b < batch.num_sequences; ++b) RunSequence(batch, b, outputs[b]);
      return OkStatus();
    });
  }

  size_t weight_bytes() const override { return weights_.bytes(); }

 private:
  void RunSequence(const RaggedBatch& batch, int b, const SequenceOutput& out) const {
    const int first = batch.offsets[b];
    const int length = batch.offsets[b + 1] - first;
    const int width = spec_.output_size();
    const size_t layers = spec_.layers.size();

    Matrix h(length, spec_.input_size);
    for (int t = 0; t < length; ++t) {
      const float* row =
          batch.token_ids != nullptr
              ? spec_.embedding.data + static_cast<size_t>(batch.token_ids[first + t]) * h.width
              : batch.features + static_cast<size_t>(first + t) * h.width;
      const bool embedded = batch.token_ids != nullptr;
      std::transform(row, row + h.width, h.row(t),
                     [&](float v) { return embedded ? storage_.Embedding(v) : double{v}; });
    }
    std::vector<std::vector<double>> states(layers, std::vector<double>(width));
    if (batch.initial_states != nullptr && batch.initial_states[b] != nullptr) {
      const float* c = batch.initial_states[b];
      for (std::vector<double>& state : states) {
        state.assign(c, c + width);
        c += width;
      }
    }
    h = reference::RunLayers(spec_, h, storage_, reference::StateStorage::kExact, &states);
    for (size_t i = 0; i < layers && out.final_state != nullptr; ++i) {
      Copy(states[i], out.final_state + i * width);
    }
    if (out.token_vectors != nullptr) Copy(h.values, out.token_vectors);
    const int hidden = spec_.layers.back().hidden_size;
    if (out.pooled != nullptr) Copy(Pool(h, out.pooling, hidden), out.pooled);
    if (out.logits == nullptr && out.probabilities == nullptr) return;

    Matrix pooled(1, width);
    pooled.values = Pool(h, spec_.pooling, hidden);
    std::vector<double> logits =
        TransposedProduct(pooled, spec_.classifier_weight, spec_.num_labels, Storage()).values;
    for (size_t i = 0; i < logits.size() && !spec_.classifier_bias.empty(); ++i) {
      logits[i] += spec_.classifier_bias.data[i];
    }
    if (out.logits != nullptr) Copy(logits, out.logits);
    if (out.probabilities != nullptr) Copy(Softmax(logits), out.probabilities);
  }

  StackSpec spec_;  // of weights_
  WeightCopies weights_;
  Storage storage_;
};

class ReferenceBackend : public Backend {
 public:
  const char* name() const override { return "reference"; }
  std::string description() const override { return "scalar, float64 accumulation"; }

  Status Compile(const StackSpec& spec, const CompileOptions& options,
                 std::unique_ptr<Executable>* executable) override {
    return CatchBadAlloc("copying weights", [&] {
      SRU_RETURN_IF_ERROR(Validate(spec));
      if (!Storage::Has(options.dtype)) return UnsupportedDataType(name(), options.dtype);
      *executable = std::make_unique<ReferenceExecutable>(spec, options, Storage(options.dtype));
      return OkStatus();
    });
  }

  Status Compile(const Program& program, const CompileOptions& options,
                 std::unique_ptr<ProgramExecutable>* executable) override {
    if (!Storage::Has(options.dtype)) return UnsupportedDataType(name(), options.dtype);
    return reference::CompileProgram(program, options, Storage(options.dtype), executable);
  }
};

}  // namespace

std::unique_ptr<Backend> CreateReferenceBackend() { return std::make_unique<ReferenceBackend>(); }

}  // namespace sru::kernels
