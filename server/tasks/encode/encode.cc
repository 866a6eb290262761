#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "base/status.h"
#include "kernels/stack_spec.h"
#include "server/calls/kinds/quick_refusal.h"
#include "server/calls/kinds/task_call.h"
#include "server/open_inference/tensors/infer_form.h"
#include "server/open_inference/tensors/sequence_input.h"
#include "server/tasks/encode/encoding.h"
#include "server/tasks/stacks/stack_batch_runner.h"
#include "server/tasks/tasks.h"

namespace sru::server::tasks {
namespace {

class EncodeCall final
    : public calls::SequenceCall<v1::EncodeRequest, v1::EncodeResponse, StackTask> {
 public:
  using SequenceCall::SequenceCall;

 private:
  absl::Status ParseParameters(const v1::EncodeRequest& request) override {
    SRU_ASSIGN_OR_RETURN(pooling_, ParsePooling(request.pooling(), model().spec().pooling));
    SRU_ASSIGN_OR_RETURN(format_, ParseOutputFormat(request.output_format()));
    normalize_ = request.normalize();
    return absl::OkStatus();
  }

  bool has_token_vectors() const { return pooling_ == kernels::Pooling::kNone; }
  int width() const { return model().spec().output_size(); }

  size_t OutputSize(int num_tokens) const override {
    return static_cast<size_t>(has_token_vectors() ? num_tokens : 1) * width();
  }

  int64_t AnswerBytes(size_t /*index*/, int num_tokens) const override {
    // The values, both in the message and on the wire; half precision takes less.
    return 256 + 2 * static_cast<int64_t>(OutputSize(num_tokens) * sizeof(float));
  }

  // Token vectors are padded to the longest sequence.
  int64_t FormBytes(const std::vector<calls::TokenCounts>& sequences) const override {
    int64_t longest = 0;
    int64_t total = 0;
    for (const calls::TokenCounts& counts : sequences) {
      longest = std::max<int64_t>(longest, counts.computed);
      total += counts.computed;
    }
    const int64_t padding = longest * static_cast<int64_t>(sequences.size()) - total;
    return has_token_vectors() ? padding * width() * static_cast<int64_t>(sizeof(float)) : 0;
  }

  void SetOutput(size_t /*index*/, float* values, StackTask* task) override {
    task->output.pooling = pooling_;
    (has_token_vectors() ? task->output.token_vectors : task->output.pooled) = values;
  }

  void WriteSequence(size_t /*index*/, const calls::TokenCounts& counts, float* values,
                     v1::EncodeResponse* response) const override {
    v1::Encoding* encoding = response->add_encodings();
    encoding->set_unknown_tokens(counts.unknown);
    if (counts.computed == 0) {
      encoding->add_shape(0);
      if (has_token_vectors()) encoding->add_shape(width());
      return;
    }
    const int64_t rows = has_token_vectors() ? counts.computed : 1;
    if (normalize_) {
      for (int64_t row = 0; row < rows; ++row) Normalize(values + row * width(), width());
    }
    if (has_token_vectors()) encoding->add_shape(rows);
    encoding->add_shape(width());
    WriteValues(values, rows, width(), format_, encoding);
    encoding->set_token_count(counts.computed);
    encoding->set_truncated(counts.truncated);
  }

  kernels::Pooling pooling_ = kernels::Pooling::kNone;
  v1::OutputFormat format_ = v1::OUTPUT_FORMAT_FLOATS;
  bool normalize_ = false;
};

open_inference::Output EncodingOutput() {
  open_inference::Output output;
  output.name = "encoding";
  output.values = [](const google::protobuf::Message& item, uint8_t* to) {
    const std::string& data = static_cast<const v1::Encoding&>(item).data();
    std::memcpy(to, data.data(), data.size());
    return to + data.size();
  };
  output.sizes = [](const models::Model& model, const google::protobuf::Message* answer) {
    bool has_token_vectors = model.spec().pooling == kernels::Pooling::kNone;
    int64_t longest = open_inference::kAnySize;
    if (answer != nullptr) {
      for (const v1::Encoding& one : static_cast<const v1::EncodeResponse*>(answer)->encodings()) {
        has_token_vectors = one.shape_size() == 2;
        longest = std::max<int64_t>(longest, one.token_count());
      }
    }
    open_inference::Shape sizes;
    if (has_token_vectors) sizes.push_back(longest);
    sizes.push_back(model.spec().output_size());
    return sizes;
  };
  return output;
}

}  // namespace

Task Encode() {
  open_inference::TaskTensors tensors;
  tensors.outputs = {EncodingOutput(), open_inference::LengthsOutput<v1::Encoding>(
                                           open_inference::Output::kComesWithTokens)};
  tensors.parameters = {"pooling", "normalize", "truncate", "unknown"};
  tensors.make_inputs = open_inference::MakeSequenceInputs<v1::EncodeRequest>;
  tensors.prepare = [](const open_inference::InferCall& /*call*/,
                       google::protobuf::Message* request) {
    static_cast<v1::EncodeRequest*>(request)->set_output_format(v1::OUTPUT_FORMAT_RAW_FLOAT32);
  };
  Task task = TaskOf<EncodeCall>(calls::MethodId::kEncode, std::move(tensors));
  task.refuse = calls::RefuseQuickly<v1::EncodeRequest>;
  task.add_runners = AddStackRunners;
  return task;
}

}  // namespace sru::server::tasks
