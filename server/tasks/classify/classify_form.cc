#include <cstring>
#include <memory>
#include <utility>

#include "server/open_inference/tensors/infer_form.h"
#include "server/open_inference/tensors/infer_response.h"
#include "server/tasks/classify/classify.h"

namespace sru::server::tasks {
namespace {

class Form final
    : public open_inference::SequenceInferForm<v1::ClassifyRequest, v1::ClassifyResponse> {
 public:
  using SequenceInferForm::SequenceInferForm;

 private:
  absl::Status ReadParameter(const open_inference::InferParameter& parameter,
                             v1::ClassifyRequest* request) override {
    if (parameter.name != "truncate")
      return open_inference::UnknownParameter(parameter, "truncate");
    const absl::StatusOr<bool> truncate = open_inference::ReadBool(parameter);
    if (truncate.ok()) request->set_truncate(*truncate);
    return truncate.status();
  }

  void SetOutputs(v1::ClassifyRequest* request) const override {
    const bool only_best =
        call().outputs.size() == 1 && call().outputs[0] == open_inference::OutputTensor::kLabel;
    request->set_top_k(only_best ? 1 : 0);
  }

  absl::Status Write(const v1::ClassifyResponse& classified, absl::Cord* bytes) override {
    const int batch = classified.classifications_size();
    const auto num_labels = static_cast<int64_t>(model().labels().size());
    open_inference::InferResponse response(model().name(), model().version(), call().id);
    for (const open_inference::OutputTensor output : call().outputs) {
      const open_inference::OutputInfo info = Describe(output);
      if (output == open_inference::OutputTensor::kLabel) {
        size_t size = 0;
        for (const v1::Classification& one : classified.classifications()) {
          size += open_inference::InferResponse::BytesOfString(one.labels(0).name().size());
        }
        response.Add(info.name, info.datatype, {batch}, size);
      } else {
        response.Add(info.name, info.datatype, {batch, num_labels},
                     batch * num_labels * sizeof(float));
      }
    }
    if (absl::Status status = response.Allocate(); !status.ok()) return status;
    for (size_t i = 0; i < call().outputs.size(); ++i) {
      WriteValues(call().outputs[i], classified, response.values(i));
    }
    response.MoveTo(bytes);
    return absl::OkStatus();
  }

  void WriteValues(open_inference::OutputTensor output, const v1::ClassifyResponse& classified,
                   uint8_t* to) const {
    if (output == open_inference::OutputTensor::kLabel) {
      for (const v1::Classification& one : classified.classifications()) {
        to = open_inference::InferResponse::WriteString(one.labels(0).name(), to);
      }
      return;
    }
    // The labels of the message are sorted by probability, the values of the tensor are not.
    for (const v1::Classification& one : classified.classifications()) {
      for (const v1::Label& label : one.labels()) {
        const float value =
            output == open_inference::OutputTensor::kLogits ? label.logit() : label.probability();
        std::memcpy(to + label.index() * sizeof(value), &value, sizeof(value));
      }
      to += model().labels().size() * sizeof(float);
    }
  }
};

}  // namespace

calls::ClassifyForm MakeClassifyForm(open_inference::InferCallPtr call) {
  return std::make_unique<Form>(std::move(call));
}

}  // namespace sru::server::tasks
