#include <memory>
#include <string>
#include <utility>

#include "server/open_inference/tensors/infer_form.h"
#include "server/open_inference/tensors/infer_response.h"
#include "server/tasks/translate/translate.h"

namespace sru::server::tasks {
namespace {

class Form final
    : public open_inference::SequenceInferForm<v1::TranslateRequest, v1::TranslateResponse> {
 public:
  using SequenceInferForm::SequenceInferForm;

 private:
  absl::Status ReadParameter(const open_inference::InferParameter& parameter,
                             v1::TranslateRequest* request) override {
    if (parameter.name == "truncate") {
      const absl::StatusOr<bool> truncate = open_inference::ReadBool(parameter);
      if (truncate.ok()) request->set_truncate(*truncate);
      return truncate.status();
    }
    const bool is_beam = parameter.name == "beam_size";
    if (!is_beam && parameter.name != "max_new_tokens") {
      return open_inference::UnknownParameter(parameter, "beam_size, max_new_tokens, truncate");
    }
    const absl::StatusOr<int32_t> number = open_inference::ReadNumber(parameter);
    if (!number.ok()) return number.status();
    if (is_beam) {
      request->set_beam_size(*number);
    } else {
      request->set_max_new_tokens(*number);
    }
    return absl::OkStatus();
  }

  static const std::string& TextOf(const v1::Translation& translation) {
    static const auto* const kNone = new std::string();
    return translation.hypotheses().empty() ? *kNone : translation.hypotheses(0).text();
  }

  absl::Status Write(const v1::TranslateResponse& translated, absl::Cord* bytes) override {
    const open_inference::OutputInfo info = Describe(open_inference::OutputTensor::kTranslation);
    size_t size = 0;
    for (const v1::Translation& translation : translated.translations()) {
      size += open_inference::InferResponse::BytesOfString(TextOf(translation).size());
    }
    open_inference::InferResponse response(model().name(), model().version(), call().id);
    response.Add(info.name, info.datatype, {translated.translations_size()}, size);
    if (absl::Status status = response.Allocate(); !status.ok()) return status;
    uint8_t* to = response.values(0);
    for (const v1::Translation& translation : translated.translations()) {
      to = open_inference::InferResponse::WriteString(TextOf(translation), to);
    }
    response.MoveTo(bytes);
    return absl::OkStatus();
  }
};

}  // namespace

calls::TranslateForm MakeTranslateForm(open_inference::InferCallPtr call) {
  return std::make_unique<Form>(std::move(call));
}

}  // namespace sru::server::tasks
