#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/stack_spec.h"
#include "server/calls/messages/wire_pooling.h"
#include "server/open_inference/tensors/infer_form.h"
#include "server/open_inference/tensors/infer_response.h"
#include "server/tasks/encode/encode.h"

namespace sru::server::tasks {
namespace {

class Form final : public open_inference::SequenceInferForm<v1::EncodeRequest, v1::EncodeResponse> {
 public:
  explicit Form(open_inference::InferCallPtr call)
      : SequenceInferForm(std::move(call)),
        pooling_(model().spec().pooling),
        has_requested_(!this->call().request.outputs.empty()) {}

 private:
  bool has_token_vectors() const { return pooling_ == kernels::Pooling::kNone; }
  int64_t width() const { return model().spec().output_size(); }

  absl::Status ReadParameter(const open_inference::InferParameter& parameter,
                             v1::EncodeRequest* request) override {
    if (parameter.name == "pooling") return ReadPooling(parameter, request);
    const bool is_truncate = parameter.name == "truncate";
    if (!is_truncate && parameter.name != "normalize") {
      return open_inference::UnknownParameter(parameter, "pooling, normalize, truncate");
    }
    const absl::StatusOr<bool> value = open_inference::ReadBool(parameter);
    if (!value.ok()) return value.status();
    if (is_truncate) {
      request->set_truncate(*value);
    } else {
      request->set_normalize(*value);
    }
    return absl::OkStatus();
  }

  absl::Status ReadPooling(const open_inference::InferParameter& parameter,
                           v1::EncodeRequest* request) {
    const absl::StatusOr<absl::string_view> name = open_inference::ReadString(parameter);
    if (!name.ok()) return name.status();
    std::string known;
    for (const kernels::Pooling pooling : kernels::kAllPoolings) {
      const char* const candidate = kernels::PoolingName(pooling);
      if (*name == candidate) {
        pooling_ = pooling;
        request->set_pooling(calls::ToProto(pooling));
        return absl::OkStatus();
      }
      absl::StrAppend(&known, known.empty() ? "" : ", ", candidate);
    }
    return absl::InvalidArgumentError(
        absl::StrCat("parameters[pooling]: ", open_inference::Quoted(*name),
                     " is unknown, expected one of ", known));
  }

  void SetOutputs(v1::EncodeRequest* request) const override {
    request->set_output_format(v1::OUTPUT_FORMAT_RAW_FLOAT32);
  }

  int64_t ExtraAnswerBytes(const std::vector<batching::SequenceTask>& tasks) const override {
    if (!has_token_vectors()) return 0;
    int64_t longest = 0;
    int64_t total = 0;
    for (const batching::SequenceTask& task : tasks) {
      longest = std::max<int64_t>(longest, task.num_tokens);
      total += task.num_tokens;
    }
    const int64_t padding = longest * static_cast<int64_t>(tasks.size()) - total;
    return padding * width() * static_cast<int64_t>(sizeof(float));
  }

  absl::Status Write(const v1::EncodeResponse& encoded, absl::Cord* bytes) override {
    const int batch = encoded.encodings_size();
    int64_t longest = 0;
    for (const v1::Encoding& one : encoded.encodings()) {
      longest = std::max<int64_t>(longest, one.token_count());
    }
    const int64_t row = has_token_vectors() ? longest * width() : width();
    open_inference::Outputs outputs = call().outputs;
    if (!has_requested_ && has_token_vectors())
      outputs.push_back(open_inference::OutputTensor::kLengths);
    open_inference::InferResponse response(model().name(), model().version(), call().id);
    for (const open_inference::OutputTensor output : outputs) {
      const open_inference::OutputInfo info = Describe(output);
      if (output == open_inference::OutputTensor::kLengths) {
        response.Add(info.name, info.datatype, {batch}, batch * sizeof(int32_t));
        continue;
      }
      open_inference::InferResponse::Shape shape = {batch};
      if (has_token_vectors()) shape.push_back(longest);
      shape.push_back(width());
      response.Add(info.name, info.datatype, std::move(shape), batch * row * sizeof(float));
    }
    if (absl::Status status = response.Allocate(); !status.ok()) return status;
    for (size_t i = 0; i < outputs.size(); ++i) {
      uint8_t* to = response.values(i);
      for (const v1::Encoding& one : encoded.encodings()) {
        if (outputs[i] == open_inference::OutputTensor::kLengths) {
          const int32_t length = one.token_count();
          std::memcpy(to, &length, sizeof(length));
          to += sizeof(length);
          continue;
        }
        const size_t size = row * sizeof(float);
        std::memcpy(to, one.data().data(), one.data().size());
        std::memset(to + one.data().size(), 0, size - one.data().size());
        to += size;
      }
    }
    response.MoveTo(bytes);
    return absl::OkStatus();
  }

  kernels::Pooling pooling_;
  const bool has_requested_;  // whether the outputs are named by the request
};

}  // namespace

calls::EncodeForm MakeEncodeForm(open_inference::InferCallPtr call) {
  return std::make_unique<Form>(std::move(call));
}

}  // namespace sru::server::tasks
