#include "client/commands/text_input.h"

#include "client/command_line.h"

namespace sru::client {

void TargetFlags::AddUnknownTo(Flags* flags) {
  flags->AddChoice("unknown", &unknown, NamedValues<v1::Unknown>(),
                   "what becomes of words, characters and bytes that the model does not know: "
                   "refuse, skip, replace, or default for the model's own");
}

void TargetFlags::AddTo(Flags* flags) {
  flags->Add("model", &model, "name of the model; may be left out when the server has one");
  flags->Add("version", &version, {0}, "version of the model; 0 = the latest");
  flags->AddChoice("priority", &priority, NamedValues<v1::Priority>(), "low, normal or high");
  AddUnknownTo(flags);
}

void InputFlags::AddTo(Flags* flags, bool can_truncate, bool can_skip_empty) {
  target.AddTo(flags);
  if (can_truncate) {
    flags->Add("truncate", &truncate, "cut texts that are too long instead of refusing them");
  }
  if (can_skip_empty) {
    flags->Add("skip_empty", &skip_empty,
               "answer a text without tokens with nothing instead of refusing it; blank lines then "
               "are such texts, and each has its answer in its place");
  }
  flags->Add("batch", &batch, {1}, "texts per call");
}

}  // namespace sru::client
