#include "client/commands/text_input.h"

#include "client/names.h"

namespace sru::client {

void TargetFlags::AddTo(FlagSet* flags) {
  flags->Add("model", &model, "name of the model; may be left out when the server has one");
  flags->Add("version", &version, "version of the model; 0 = the latest");
  flags->Add("priority", &priority_name, "low, normal or high");
}

absl::Status TargetFlags::Check() {
  absl::Status status = CheckAtLeast("version", version, 0);
  status.Update(ParsePriority(priority_name, &priority));
  return status;
}

void InputFlags::AddTo(FlagSet* flags, bool can_truncate, bool can_skip_empty) {
  target.AddTo(flags);
  if (can_truncate) {
    flags->Add("truncate", &truncate, "cut texts that are too long instead of refusing them");
  }
  if (can_skip_empty) {
    flags->Add("skip_empty", &skip_empty,
               "answer a text without tokens with nothing instead of refusing it; blank lines then "
               "are such texts, and each has its answer in its place");
  }
  flags->Add("batch", &batch, "texts per call");
}

absl::Status InputFlags::Check() {
  absl::Status status = CheckAtLeast("batch", batch, 1);
  status.Update(target.Check());
  return status;
}

}  // namespace sru::client
