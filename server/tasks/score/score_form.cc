#include <cstring>
#include <memory>
#include <utility>

#include "server/open_inference/tensors/infer_form.h"
#include "server/open_inference/tensors/infer_response.h"
#include "server/tasks/score/score.h"

namespace sru::server::tasks {
namespace {

class Form final : public open_inference::SequenceInferForm<v1::ScoreRequest, v1::ScoreResponse> {
 public:
  using SequenceInferForm::SequenceInferForm;

 private:
  absl::Status ReadParameter(const open_inference::InferParameter& parameter,
                             v1::ScoreRequest* /*request*/) override {
    return open_inference::UnknownParameter(parameter, "");
  }

  absl::Status Write(const v1::ScoreResponse& scored, absl::Cord* bytes) override {
    const int batch = scored.scores_size();
    const open_inference::OutputInfo info = Describe(open_inference::OutputTensor::kLogProb);
    open_inference::InferResponse response(model().name(), model().version(), call().id);
    response.Add(info.name, info.datatype, {batch}, batch * sizeof(double));
    if (absl::Status status = response.Allocate(); !status.ok()) return status;
    uint8_t* to = response.values(0);
    for (const v1::Score& score : scored.scores()) {
      const double log_prob = score.log_prob();
      std::memcpy(to, &log_prob, sizeof(log_prob));
      to += sizeof(log_prob);
    }
    response.MoveTo(bytes);
    return absl::OkStatus();
  }
};

}  // namespace

calls::ScoreForm MakeScoreForm(open_inference::InferCallPtr call) {
  return std::make_unique<Form>(std::move(call));
}

}  // namespace sru::server::tasks
