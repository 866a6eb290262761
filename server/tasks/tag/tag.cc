#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "base/status.h"
#include "kernels/program.h"
#include "models/tagger.h"
#include "server/batching/engine.h"
#include "server/batching/warm_up.h"
#include "server/calls/kinds/quick_refusal.h"
#include "server/calls/kinds/task_call.h"
#include "server/open_inference/tensors/infer_form.h"
#include "server/open_inference/tensors/sequence_input.h"
#include "server/tasks/programs/packed_rows.h"
#include "server/tasks/programs/program_run.h"
#include "server/tasks/tasks.h"

namespace sru::server::tasks {
namespace {

// A sequence of which a tagger finds the labels of each token.
struct TagTask : calls::TokenTask {
  // [num_tokens][num_labels]: the most probable labels of each token, the best first; a candidate's
  // id is the label's index. The caller's, valid until the request's `done` is called.
  kernels::Candidate* labels = nullptr;
  int num_labels = 1;  // 1 to models::Tagger::max_labels
};

// Runs batches of TagTasks on a tagger, which must outlive the runner. It packs them into buffers
// that it allocated once, and owns the workspace of its worker.
class TagRunner final : public ProgramRunner<batching::BatchRunner> {
 public:
  TagRunner(ProgramRun run, const models::Model& model, const kernels::WorkspaceLimits& limits)
      : ProgramRunner(std::move(run), limits),
        tagger_(*model.As<models::Tagger>()),
        feature_size_(model.takes_features() ? model.spec().input_size : 0),
        tokens_(limits.max_tokens, limits.max_sequences),
        features_(limits.max_tokens * feature_size_),
        counts_(limits.max_tokens),
        labels_(
            new kernels::Candidate[static_cast<size_t>(limits.max_tokens) * tagger_.max_labels]) {}

  absl::Status Run(const SequenceTasks& sequences) override {
    SRU_RETURN_UNLESS_OK(Pack(sequences));
    run_.axis(tagger_.tokens) = tokens_.axis();
    if (takes_features()) {
      run_.input(tagger_.features).values = features_.data();
    } else {
      run_.input(tagger_.ids).ids = tokens_.ids.data();
    }
    run_.input(tagger_.counts).ids = counts_.data();
    run_.output(tagger_.labels).candidates = labels_.get();
    SRU_RETURN_UNLESS_OK(run_.Run());
    for (size_t i = 0; i < sequences.size(); ++i) {
      const TagTask& task = TagTaskOf(sequences[i]);
      for (int t = 0; t < task.num_tokens; ++t) {
        std::copy_n(
            labels_.get() + static_cast<size_t>(tokens_.offsets[i] + t) * tagger_.max_labels,
            task.num_labels, task.labels + static_cast<size_t>(t) * task.num_labels);
      }
    }
    return absl::OkStatus();
  }

 private:
  static const TagTask& TagTaskOf(const batching::SequenceTask* sequence) {
    return *static_cast<const TagTask*>(sequence);
  }

  absl::Status Pack(const SequenceTasks& sequences) {
    tokens_.Clear();
    for (const batching::SequenceTask* sequence : sequences) {
      const TagTask& task = TagTaskOf(sequence);
      const size_t ids = takes_features() ? 0 : task.num_tokens;
      const size_t values = task.num_tokens * feature_size_;
      if (task.token_ids.size() != ids || task.features.size() != values) {
        return InvalidArgument("expected ", ids, " token_ids and ", values,
                               " values of features, found ", task.token_ids.size(), " and ",
                               task.features.size());
      }
      SRU_RETURN_UNLESS_OK(tokens_.CheckRoom(task.num_tokens));
      const int row =
          tokens_.Add(takes_features() ? nullptr : task.token_ids.data(), task.num_tokens);
      std::copy(task.features.begin(), task.features.end(),
                features_.begin() + row * feature_size_);
      std::fill_n(counts_.begin() + row, task.num_tokens, task.num_labels);
    }
    return absl::OkStatus();
  }

  absl::Status RunWarmUpBatch(int num_tokens) override {
    const int num_sequences = batching::WarmUpSequences(num_tokens, limits_.max_sequences);
    std::vector<kernels::Candidate> labels(num_tokens);
    std::vector<TagTask> tasks(num_sequences);
    SequenceTasks sequences;
    for (int i = 0; i < num_sequences; ++i) {
      TagTask& task = tasks[i];
      task.num_tokens = batching::EqualPart(num_tokens, num_sequences, i);
      if (!takes_features()) task.token_ids.assign(task.num_tokens, 0);
      task.features.assign(task.num_tokens * feature_size_, 0.0f);
      task.labels = labels.data();
      sequences.push_back(&task);
    }
    return Run(sequences);
  }

  bool takes_features() const { return feature_size_ > 0; }

  const models::Tagger& tagger_;
  const size_t feature_size_;  // values of a token in features_; 0: the model takes ids
  PackedRows tokens_;
  std::vector<float> features_;  // [max_tokens][feature_size_]
  std::vector<int32_t> counts_;  // of labels, by token
  // [max_tokens][max_labels]; not initialized, so that what no token asks for costs nothing.
  const std::unique_ptr<kernels::Candidate[]> labels_;
};

absl::StatusOr<std::unique_ptr<batching::BatchRunner>> MakeTagRunner(
    const models::Model& model, const batching::RunnerPlace& place) {
  const models::Tagger& tagger = *model.As<models::Tagger>();
  kernels::ProgramLimits axes;
  axes.axes.resize(tagger.program.axes.size());
  axes.axes[tagger.tokens] = {place.limits.max_tokens, place.limits.max_sequences};
  SRU_ASSIGN_OR_RETURN(ProgramRun run, ProgramRun::Create(model.program(), tagger.program,
                                                          std::move(axes), place.limits));
  return std::make_unique<TagRunner>(std::move(run), model, place.limits);
}

class TagCall final : public calls::SequenceCall<v1::TagRequest, v1::TagResponse, TagTask> {
 public:
  using SequenceCall::SequenceCall;

 private:
  absl::Status ParseParameters(const v1::TagRequest& request) override {
    const int most = model().As<models::Tagger>()->max_labels;
    if (request.top_k() < 0 || request.top_k() > most) {
      return InvalidArgument("top_k: ", request.top_k(), " is out of range, expected 0 to ", most);
    }
    top_k_ = std::max(1, request.top_k());
    for (const std::string& label : model().labels()) {
      longest_label_ = std::max<int64_t>(longest_label_, label.size());
    }
    return absl::OkStatus();
  }

  std::vector<std::vector<models::TextSpan>>* Spans() override {
    return has_form() ? nullptr : &spans_;
  }

  // A candidate is two floats.
  size_t OutputSize(int num_tokens) const override {
    static_assert(sizeof(kernels::Candidate) == 2 * sizeof(float) &&
                  alignof(kernels::Candidate) == alignof(float));
    return static_cast<size_t>(num_tokens) * 2 * top_k_;
  }

  int64_t AnswerBytes(size_t /*index*/, int num_tokens) const override {
    // A token is a message with a string, four numbers and labels, a label one with a string; and
    // their bytes on the wire.
    return 256 + num_tokens * (240 + top_k_ * (96 + 2 * longest_label_));
  }

  // Rows of tensors are padded to the longest sequence.
  int64_t FormBytes(const std::vector<calls::TokenCounts>& sequences) const override {
    int64_t longest = 0;
    for (const calls::TokenCounts& counts : sequences) {
      longest = std::max<int64_t>(longest, counts.computed);
    }
    return longest * static_cast<int64_t>(sequences.size() * (sizeof(int32_t) + sizeof(float)));
  }

  void SetOutput(size_t /*index*/, float* values, TagTask* task) override {
    task->labels = reinterpret_cast<kernels::Candidate*>(values);
    task->num_labels = top_k_;
  }

  void WriteSequence(size_t index, const calls::TokenCounts& counts, float* /*values*/,
                     v1::TagResponse* response) const override {
    const TagTask& task = tasks()[index];
    v1::Tagging* const tagging = response->add_taggings();
    for (int t = 0; t < counts.computed; ++t) {
      v1::TokenTags* const token = tagging->add_tokens();
      if (model().tokenizer() != nullptr) {
        token->set_token(model().tokenizer()->TokenName(task.token_ids[t]));
      }
      if (index < spans_.size() && !spans_[index].empty()) {
        calls::WriteSpan(spans_[index][t], token);
      }
      for (int k = 0; k < top_k_; ++k) {
        const kernels::Candidate& found = task.labels[static_cast<size_t>(t) * top_k_ + k];
        v1::TagLabel* const label = token->add_labels();
        label->set_name(model().labels()[found.id]);
        label->set_index(found.id);
        label->set_probability(std::exp(found.log_prob));
      }
    }
    tagging->set_token_count(counts.computed);
    tagging->set_truncated(counts.truncated);
    tagging->set_unknown_tokens(counts.unknown);
  }

  void FreeInput() override { spans_ = {}; }

  std::vector<std::vector<models::TextSpan>> spans_;  // of texts
  int top_k_ = 1;
  int64_t longest_label_ = 0;
};

// The output of a value of each token's best label, [batch][longest sequence].
template <typename Value>
open_inference::Output TokenOutput(const char* name, Value (v1::TagLabel::*value_of)() const) {
  open_inference::Output output;
  output.name = name;
  output.datatype = open_inference::DatatypeOf<Value>();
  output.marks_blank = false;
  output.values = [value_of](const google::protobuf::Message& item, uint8_t* to) {
    for (const v1::TokenTags& token : static_cast<const v1::Tagging&>(item).tokens()) {
      const Value value = (token.labels(0).*value_of)();
      std::memcpy(to, &value, sizeof(value));
      to += sizeof(value);
    }
    return to;
  };
  output.sizes = [](const models::Model& /*model*/, const google::protobuf::Message* answer) {
    if (answer == nullptr) return open_inference::Shape{open_inference::kAnySize};
    int64_t longest = 0;
    for (const v1::Tagging& one : static_cast<const v1::TagResponse*>(answer)->taggings()) {
      longest = std::max<int64_t>(longest, one.token_count());
    }
    return open_inference::Shape{longest};
  };
  return output;
}

}  // namespace

Task Tag() {
  open_inference::TaskTensors tensors;
  tensors.outputs = {TokenOutput("label_ids", &v1::TagLabel::index),
                     TokenOutput("probabilities", &v1::TagLabel::probability),
                     open_inference::LengthsOutput<v1::Tagging>()};
  tensors.parameters = {"truncate", "unknown"};
  tensors.make_inputs = open_inference::MakeSequenceInputs<v1::TagRequest>;
  Task task = TaskOf<TagCall>(calls::MethodId::kTag, std::move(tensors));
  task.refuse = calls::RefuseQuickly<v1::TagRequest>;
  task.add_runners = [](batching::TaskRunners* row) { row->make_batch_runner = MakeTagRunner; };
  return task;
}

}  // namespace sru::server::tasks
