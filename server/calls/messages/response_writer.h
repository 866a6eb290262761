// Writes results of the forward pass into messages. Pure functions, thread-safe.
#ifndef SRU_SERVER_CALLS_MESSAGES_RESPONSE_WRITER_H_
#define SRU_SERVER_CALLS_MESSAGES_RESPONSE_WRITER_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "google/protobuf/message.h"
#include "kernels/program.h"
#include "kernels/stack_spec.h"
#include "models/model.h"
#include "models/text/tokenizer.h"
#include "server/telemetry/call_times.h"
#include "server/telemetry/model_status.h"
#include "sru/v1/inference.pb.h"

namespace sru::server::calls {

// The best `count` of `found`, with what a user reads for them.
void WriteCandidates(const kernels::Candidate* found, size_t count,
                     const models::Tokenizer& tokenizer, v1::Candidates* candidates);

// Where a token stands, into a TokenTags or a Token.
template <typename Token>
void WriteSpan(const models::TextSpan& span, Token* token) {
  token->set_start_byte(static_cast<int32_t>(span.begin_byte));
  token->set_end_byte(static_cast<int32_t>(span.end_byte));
  token->set_start_char(static_cast<int32_t>(span.begin_char));
  token->set_end_char(static_cast<int32_t>(span.end_char));
}

void WriteTimes(const telemetry::CallTimes& times, v1::StageTimes* proto);

void WriteModelInfo(const models::Model& model, int instances, int max_sequence_tokens,
                    v1::ModelInfo* info);

void WriteModelStatus(const telemetry::ModelStatus& status, v1::ModelStatus* proto);

absl::Status SerializeMessage(const google::protobuf::Message& message, absl::Cord* bytes);

}  // namespace sru::server::calls

#endif  // SRU_SERVER_CALLS_MESSAGES_RESPONSE_WRITER_H_
