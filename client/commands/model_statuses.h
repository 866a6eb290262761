// Prints the states of models, for models --status and admin load.
#ifndef SRU_CLIENT_COMMANDS_MODEL_STATUSES_H_
#define SRU_CLIENT_COMMANDS_MODEL_STATUSES_H_

#include "sru/v1/inference.pb.h"

namespace sru::client {

// To standard output: one JSON object per version, or a table.
void PrintStatuses(const google::protobuf::RepeatedPtrField<v1::ModelStatus>& statuses, bool json);

}  // namespace sru::client

#endif  // SRU_CLIENT_COMMANDS_MODEL_STATUSES_H_
