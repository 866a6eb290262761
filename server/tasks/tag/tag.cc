#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "base/status.h"
#include "models/tagger.h"
#include "server/batching/engine.h"
#include "server/calls/kinds/quick_refusal.h"
#include "server/calls/kinds/task_call.h"
#include "server/open_inference/tensors/infer_form.h"
#include "server/open_inference/tensors/sequence_input.h"
#include "server/tasks/tag/tag_batch_runner.h"
#include "server/tasks/tasks.h"

namespace sru::server::tasks {
namespace {

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
  Task task = TaskOf<TagCall>(calls::MethodId::kTag, {models::Task::kTagger}, std::move(tensors));
  task.refuse = calls::RefuseQuickly<v1::TagRequest>;
  task.add_runners = [](batching::TaskRunners* row) {
    row->make_batch_runner = [](const models::Model& model,
                                const batching::RunnerPlace& place) -> BatchRunnerOr {
      return TagBatchRunner::Create(model, place.limits);
    };
  };
  return task;
}

}  // namespace sru::server::tasks
