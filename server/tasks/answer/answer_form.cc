#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/utf8.h"
#include "server/open_inference/tensors/infer_form.h"
#include "server/open_inference/tensors/infer_response.h"
#include "server/open_inference/tensors/tensor_values.h"
#include "server/tasks/answer/answer.h"

namespace sru::server::tasks {
namespace {

template <typename Value>
uint8_t* WriteValue(Value value, uint8_t* to) {
  std::memcpy(to, &value, sizeof(value));
  return to + sizeof(value);
}

// Question i with passage i is a query of its own.
class Form final : public open_inference::InferForm<v1::AnswerRequest, v1::AnswerResponse> {
 public:
  using InferForm::InferForm;

 private:
  static constexpr const char* kNames[] = {"question", "passage"};

  absl::Status OutlineInputs(calls::RequestOutline* outline) override {
    const open_inference::InferRequest& request = call().request;
    for (size_t i = 0; i < request.inputs.size(); ++i) {
      const bool is_passage = request.inputs[i].name == kNames[1];
      if (!is_passage && request.inputs[i].name != kNames[0]) {
        return absl::InvalidArgumentError(absl::StrCat(
            "inputs[", i, "].name: ", open_inference::Quoted(request.inputs[i].name),
            " is not an input of '", model().name(), "', expected question or passage"));
      }
      int& index = is_passage ? passages_ : questions_;
      if (index >= 0) {
        return absl::InvalidArgumentError(
            absl::StrCat("input ", kNames[is_passage], ": occurs twice, expected once"));
      }
      index = static_cast<int>(i);
    }
    for (const bool is_passage : {false, true}) {
      const int index = is_passage ? passages_ : questions_;
      if (index < 0) {
        return absl::InvalidArgumentError(
            absl::StrCat("input ", kNames[is_passage], ": expected one, found none"));
      }
      if (absl::Status status = CheckShape(index, kNames[is_passage]); !status.ok()) return status;
    }
    const int64_t batch = request.inputs[questions_].shape[0];
    if (request.inputs[passages_].shape[0] != batch) {
      return absl::InvalidArgumentError(absl::StrCat(
          "input passage: shape ", open_inference::ShapeText(request.inputs[passages_]),
          ", expected [", batch, "] as question has ",
          open_inference::ShapeText(request.inputs[questions_])));
    }
    outline->num_queries = static_cast<int>(batch);
    outline->num_sequences = static_cast<int>(batch);
    return absl::OkStatus();
  }

  absl::Status CheckShape(int index, absl::string_view name) const {
    const open_inference::InferInput& input = call().request.inputs[index];
    const auto& shape = input.shape;
    if (shape.size() != 1 && (shape.size() != 2 || shape[1] != 1)) {
      return absl::InvalidArgumentError(absl::StrCat("input ", name, ": shape ",
                                                     open_inference::ShapeText(input),
                                                     ", expected [batch] or [batch, 1]"));
    }
    if (shape[0] < 1 || shape[0] > call().limits.max_sequences) {
      return absl::InvalidArgumentError(absl::StrCat(
          "input ", name, ": shape ", open_inference::ShapeText(input), ", expected 1 to ",
          call().limits.max_sequences, " texts (--max_sequences_per_request)"));
    }
    return absl::OkStatus();
  }

  absl::Status ReadParameter(const open_inference::InferParameter& parameter,
                             v1::AnswerRequest* request) override {
    if (parameter.name != "max_answer_tokens") {
      return open_inference::UnknownParameter(parameter, "max_answer_tokens");
    }
    const absl::StatusOr<int32_t> number = open_inference::ReadNumber(parameter);
    if (number.ok()) request->set_max_answer_tokens(*number);
    return number.status();
  }

  absl::StatusOr<std::vector<absl::string_view>> ReadTexts(int index,
                                                           absl::string_view name) const {
    auto texts = open_inference::ReadStrings(open_inference::ValuesOf(call().request, index, name));
    if (!texts.ok()) return texts;
    for (size_t i = 0; i < texts->size(); ++i) {
      const absl::string_view text = (*texts)[i];
      const size_t invalid = FindInvalidUtf8({text.data(), text.size()});
      if (invalid == text.size()) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("input ", name, "[", i, "]: invalid UTF-8 at byte ", invalid));
    }
    return texts;
  }

  absl::Status ReadInputs(v1::AnswerRequest* request) override {
    const auto questions = ReadTexts(questions_, kNames[0]);
    if (!questions.ok()) return questions.status();
    const auto passages = ReadTexts(passages_, kNames[1]);
    if (!passages.ok()) return passages.status();
    request->mutable_queries()->Reserve(static_cast<int>(questions->size()));
    for (size_t i = 0; i < questions->size(); ++i) {
      v1::Query* const query = request->add_queries();
      query->set_question((*questions)[i].data(), (*questions)[i].size());
      query->add_passages((*passages)[i].data(), (*passages)[i].size());
    }
    return absl::OkStatus();
  }

  // The best one; an empty one if there is none.
  static const v1::SpanAnswer& BestOf(const v1::QueryAnswers& answers) {
    return answers.answers().empty() ? v1::SpanAnswer::default_instance() : answers.answers(0);
  }

  absl::Status Write(const v1::AnswerResponse& answered, absl::Cord* bytes) override {
    const int batch = answered.results_size();
    open_inference::InferResponse response(model().name(), model().version(), call().id);
    for (const open_inference::OutputTensor output : call().outputs) {
      const open_inference::OutputInfo info = Describe(output);
      size_t size = batch * open_inference::ElementBytes(info.datatype);
      if (output == open_inference::OutputTensor::kAnswer) {
        for (const v1::QueryAnswers& answers : answered.results()) {
          size += open_inference::InferResponse::BytesOfString(BestOf(answers).text().size());
        }
      }
      response.Add(info.name, info.datatype, {batch}, size);
    }
    if (absl::Status status = response.Allocate(); !status.ok()) return status;
    for (size_t i = 0; i < call().outputs.size(); ++i) {
      uint8_t* to = response.values(i);
      for (const v1::QueryAnswers& answers : answered.results()) {
        to = WriteOutput(call().outputs[i], BestOf(answers), to);
      }
    }
    response.MoveTo(bytes);
    return absl::OkStatus();
  }

  static uint8_t* WriteOutput(open_inference::OutputTensor output, const v1::SpanAnswer& answer,
                              uint8_t* to) {
    switch (output) {
      case open_inference::OutputTensor::kAnswer:
        return open_inference::InferResponse::WriteString(answer.text(), to);
      case open_inference::OutputTensor::kScore:
        return WriteValue(static_cast<float>(answer.log_score()), to);
      case open_inference::OutputTensor::kProbability:
        return WriteValue(answer.probability(), to);
      case open_inference::OutputTensor::kStart:
        return WriteValue(answer.start_char(), to);
      case open_inference::OutputTensor::kEnd:
        return WriteValue(answer.end_char(), to);
      default:
        return to;  // of another task
    }
  }

  int questions_ = -1;  // indices of the inputs
  int passages_ = -1;
};

}  // namespace

calls::AnswerForm MakeAnswerForm(open_inference::InferCallPtr call) {
  return std::make_unique<Form>(std::move(call));
}

}  // namespace sru::server::tasks
