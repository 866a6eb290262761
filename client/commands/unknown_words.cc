#include "client/commands/unknown_words.h"

#include <iostream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace sru::client {

void UnknownWords::Warn(const Command& command) const {
  if (2 * unknown_ <= tokens_) return;
  std::cerr << "sru_client " << command.name << ": warning: the model's vocabulary does not have "
            << unknown_ << " of " << tokens_
            << " words, so the answers say little; is it the right model for these texts?\n";
}

std::string TokenCell(int tokens, bool truncated, int unknown) {
  std::vector<std::string> notes;
  if (truncated) notes.emplace_back("cut");
  if (unknown > 0) notes.push_back(absl::StrCat(unknown, " unknown"));
  if (notes.empty()) return absl::StrCat(tokens);
  return absl::StrCat(tokens, " (", absl::StrJoin(notes, ", "), ")");
}

}  // namespace sru::client
