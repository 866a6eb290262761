#include "kernels/backend.h"

#include <algorithm>

#include "kernels/choose_backend.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/backend/cuda_backend.h"
#include "kernels/reference/reference_backend.h"

namespace sru::kernels {

namespace {

using Warnings = std::vector<std::string>;

struct BackendEntry {
  const char* name;
  bool has_devices;
  bool (*is_built)();
  bool (*is_available)();  // implies is_built
  Status (*create)(const BackendOptions& options, std::unique_ptr<Backend>* backend,
                   Warnings* warnings);
};

bool Always() { return true; }

Status CreateCpu(const BackendOptions& options, std::unique_ptr<Backend>* backend,
                 Warnings* /*warnings*/) {
  return cpu::CreateCpuBackend(options, backend);
}

Status CreateReference(const BackendOptions& /*options*/, std::unique_ptr<Backend>* backend,
                       Warnings* /*warnings*/) {
  *backend = CreateReferenceBackend();
  return OkStatus();
}

// The preferred one first.
constexpr BackendEntry kBackends[] = {
    {"cuda", true, cuda::IsBuilt, cuda::IsAvailable, cuda::CreateCudaBackend},
    {"cpu", false, cpu::IsBuilt, cpu::IsBuilt, CreateCpu},
    {"reference", false, Always, Always, CreateReference},
};

const BackendEntry* FindBackend(const std::string& name) {
  for (const BackendEntry& entry : kBackends) {
    if (name == entry.name) return &entry;
  }
  return nullptr;
}

// Of the entries for which `is` holds.
std::vector<std::string> NamesOf(bool (*BackendEntry::*is)()) {
  std::vector<std::string> names;
  for (const BackendEntry& entry : kBackends) {
    if ((entry.*is)()) names.emplace_back(entry.name);
  }
  return names;
}

Status CreateNamed(const std::string& name, const BackendOptions& options,
                   std::unique_ptr<Backend>* backend, Warnings* warnings) {
  if (const BackendEntry* const entry = FindBackend(name)) {
    return entry->create(options, backend, warnings);
  }
  const std::vector<std::string> names = BackendNames();
  std::string expected = names.front();
  for (size_t i = 1; i < names.size(); ++i) {
    expected += (i + 1 < names.size() ? ", " : " or ") + names[i];
  }
  return InvalidArgument("backend: expected ", expected, ", found '", name, "'");
}

}  // namespace

std::vector<std::string> BackendNames() {
  std::vector<std::string> names;
  for (const BackendEntry& entry : kBackends) names.emplace_back(entry.name);
  std::sort(names.begin(), names.end());
  return names;
}

bool BackendHasDevices(const std::string& name) {
  const BackendEntry* const entry = FindBackend(name);
  return entry != nullptr && entry->has_devices;
}

std::vector<std::string> AvailableBackends() { return NamesOf(&BackendEntry::is_available); }

std::vector<std::string> BuiltBackends() { return NamesOf(&BackendEntry::is_built); }

Status CreateBackend(const std::string& name, std::unique_ptr<Backend>* backend) {
  return CreateBackend(name, BackendOptions(), backend);
}

Status CreateBackend(const std::string& name, const BackendOptions& options,
                     std::unique_ptr<Backend>* backend) {
  Warnings ignored;
  return CreateNamed(name, options, backend, &ignored);
}

Status CreateFirst(const std::vector<BackendCandidate>& candidates,
                   std::unique_ptr<Backend>* backend, std::vector<std::string>* warnings) {
  std::vector<std::string> failures;
  for (const BackendCandidate& candidate : candidates) {
    Warnings own;
    const Status status = candidate.create(backend, &own);
    if (status.ok()) {
      for (const std::string& failure : failures) {
        warnings->push_back(failure + "; backend " + candidate.name + " is used instead");
      }
      warnings->insert(warnings->end(), own.begin(), own.end());
      return status;
    }
    if (!candidate.optional || &candidate == &candidates.back()) return status;
    failures.push_back(status.message());
  }
  return Internal("no backend to choose from");
}

Status ChooseBackend(const std::string& name, const BackendOptions& options,
                     std::unique_ptr<Backend>* backend, std::vector<std::string>* warnings) {
  if (name != "auto") return CreateNamed(name, options, backend, warnings);
  std::vector<BackendCandidate> candidates;
  for (const BackendEntry& entry : kBackends) {
    if (!entry.is_built()) continue;
    candidates.push_back({entry.name, entry.has_devices && options.cuda_devices.empty(),
                          [&](std::unique_ptr<Backend>* created, Warnings* own) {
                            return entry.create(options, created, own);
                          }});
  }
  return CreateFirst(candidates, backend, warnings);
}

Status ValidateBatch(const StackSpec& spec, const WorkspaceLimits& limits, const RaggedBatch& batch,
                     const SequenceOutput* outputs) {
  if (batch.num_sequences < 0 || batch.num_sequences > limits.max_sequences) {
    return InvalidArgument("batch: expected at most ", limits.max_sequences, " sequences, found ",
                           batch.num_sequences);
  }
  if (batch.num_sequences == 0) return OkStatus();
  if (batch.offsets[0] != 0) {
    return InvalidArgument("offsets[0]: expected 0, found ", batch.offsets[0]);
  }
  for (int b = 0; b < batch.num_sequences; ++b) {
    if (batch.offsets[b + 1] <= batch.offsets[b]) {
      return InvalidArgument("offsets: sequence ", b, " is empty");
    }
  }
  const int tokens = batch.num_tokens();
  if (tokens > limits.max_tokens) {
    return InvalidArgument("batch: expected at most ", limits.max_tokens, " tokens, found ",
                           tokens);
  }
  if ((batch.token_ids == nullptr) == (batch.features == nullptr)) {
    return InvalidArgument("batch: expected exactly one of token_ids and features");
  }
  if (batch.token_ids != nullptr) {
    if (spec.vocabulary_size == 0) {
      return InvalidArgument("token_ids: the model has no embedding, expected features");
    }
    for (int t = 0; t < tokens; ++t) {
      const int32_t id = batch.token_ids[t];
      if (id < 0 || id >= spec.vocabulary_size) {
        return InvalidArgument("token_ids[", t, "]: expected 0 to ", spec.vocabulary_size - 1,
                               ", found ", id);
      }
    }
  }
  if (batch.initial_states != nullptr && !limits.states) {
    return InvalidArgument("initial_states: the workspace was made without states");
  }
  for (int b = 0; b < batch.num_sequences; ++b) {
    const SequenceOutput& out = outputs[b];
    if (out.final_state != nullptr && !limits.states) {
      return InvalidArgument("outputs: a final state is asked of a workspace without states");
    }
    if (!IsNamed<PoolingName>(out.pooling)) {
      return InvalidArgument("outputs: no such pooling, ", static_cast<int>(out.pooling));
    }
    if (out.wants_labels() && spec.num_labels == 0) {
      return InvalidArgument("outputs: logits are asked of a model without a classifier");
    }
    if (out.wants_labels() && out.pooled != nullptr && out.pooling != spec.pooling) {
      return InvalidArgument("outputs: logits need the model's own pooling");
    }
    if (out.pooled != nullptr && out.pooling == Pooling::kNone) {
      return InvalidArgument("outputs: a pooled vector needs a pooling");
    }
  }
  return OkStatus();
}

}  // namespace sru::kernels
