#include "server/calls/messages/response_writer.h"

#include "absl/strings/str_cat.h"
#include "server/calls/message_cord.h"
#include "server/calls/messages/wire_pooling.h"

namespace sru::server::calls {

void WriteCandidates(const kernels::Candidate* found, size_t count,
                     const models::Tokenizer& tokenizer, v1::Candidates* candidates) {
  for (size_t i = 0; i < count; ++i) {
    v1::Candidate* const candidate = candidates->add_candidates();
    candidate->set_token_id(found[i].id);
    candidate->set_text(tokenizer.TokenName(found[i].id));
    candidate->set_log_prob(found[i].log_prob);
  }
}

void WriteTimes(const telemetry::CallTimes& times, v1::StageTimes* proto) {
  proto->set_tokenize_us(absl::ToDoubleMicroseconds(times.tokenize));
  proto->set_queue_us(absl::ToDoubleMicroseconds(times.queue));
  proto->set_compute_us(absl::ToDoubleMicroseconds(times.compute));
  proto->set_total_us(absl::ToDoubleMicroseconds(times.total));
}

void WriteModelInfo(const models::Model& model, int instances, int max_sequence_tokens,
                    v1::ModelInfo* info) {
  info->set_name(model.name());
  info->set_version(model.version());
  info->set_description(model.config().description);
  info->set_pooling(ToProto(model.config().pooling));
  for (const std::string& label : model.labels()) info->add_labels(label);
  info->set_vocabulary_size(model.config().embedding.vocabulary_size);
  if (model.tokenizer() != nullptr) {
    info->set_preprocessing(models::TokenizerTypeName(model.config().tokenizer.type));
  }
  info->set_max_sequence_tokens(max_sequence_tokens);
  info->set_backend(model.backend_name());
  info->set_backend_description(model.backend_description());
  info->set_dtype(kernels::DataTypeName(model.dtype()));
  info->set_instances(instances);
  info->set_parameter_count(model.parameter_count());
  info->set_task(models::TaskName(model.task()));
}

void WriteModelStatus(const telemetry::ModelStatus& status, v1::ModelStatus* proto) {
  proto->set_model(status.model);
  proto->set_version(status.version);
  static constexpr v1::ModelStatus::State kStates[] = {
      v1::ModelStatus::LOADING, v1::ModelStatus::READY, v1::ModelStatus::UNLOADING,
      v1::ModelStatus::FAILED};
  proto->set_state(kStates[static_cast<size_t>(status.state)]);
  proto->set_message(status.message);
}

absl::Status SerializeMessage(const google::protobuf::Message& message, absl::Cord* bytes) {
  if (SerializeToCord(message, bytes)) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("cannot serialise ", message.GetTypeName(), ": it has more than 2 GiB"));
}

}  // namespace sru::server::calls
