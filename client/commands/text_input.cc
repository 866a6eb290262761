#include "client/commands/text_input.h"

#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "client/client.h"
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

void InputFlags::AddTo(FlagSet* flags, bool can_truncate) {
  target.AddTo(flags);
  if (can_truncate) {
    flags->Add("truncate", &truncate, "cut texts that are too long instead of refusing them");
  }
  flags->Add("tokens", &tokens, "the words are split by spaces already: look them up as they are");
  flags->Add("batch", &batch, "texts per call");
}

void InputFlags::AddSkipEmpty(FlagSet* flags) {
  flags->Add("skip_empty", &skip_empty,
             "answer a text without tokens with nothing instead of refusing it; blank lines then "
             "are such texts, and each has its answer in its place");
}

absl::Status InputFlags::Check() {
  absl::Status status = CheckAtLeast("batch", batch, 1);
  status.Update(target.Check());
  return status;
}

v1::Sequence MakeSequence(const std::string& text, bool tokens) {
  if (!tokens) return TextSequence(text);
  return TokensSequence(
      std::vector<std::string>(absl::StrSplit(text, absl::ByAnyChar(" \t"), absl::SkipEmpty())));
}

}  // namespace sru::client
