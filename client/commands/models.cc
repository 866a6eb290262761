// sru_client models: what the server has loaded.
#include <algorithm>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/client.h"
#include "client/command_line.h"
#include "client/commands/commands.h"
#include "client/commands/printer.h"
#include "google/protobuf/generated_enum_reflection.h"

namespace sru::client {
namespace {

constexpr char kModelsHelp[] =
    R"(sru_client models lists the models that the server has loaded.

usage: sru_client models [--flag=value ...] [NAME]

examples:
  sru_client models
  sru_client models --json trec
  sru_client models --version=2 trec
  sru_client models --status               (also what is loading, unloading or could not be loaded)
)";

constexpr size_t kAbilitiesWidth = 60;

template <typename Enum>
std::string EnumName(Enum value) {
  const auto* const known = google::protobuf::GetEnumDescriptor<Enum>()->FindValueByNumber(value);
  return known == nullptr ? "unknown" : NameOf(*known);
}

Json ModelJson(const v1::ModelInfo& model) {
  Json json = MessageJson(model);
  if (model.has_translator()) {
    const v1::LengthPenalty& penalty = model.translator().length_penalty();
    json["translator"]["length_penalty"] = EnumName(penalty.form());
    json["translator"]["alpha"] = Exact(penalty.alpha());
  }
  return json;
}

// What a model can do, in the last column: a classifier's labels, how a reader and a translator
// are set.
std::string Abilities(const v1::ModelInfo& model) {
  if (model.has_reader()) {
    const v1::ReaderInfo& reader = model.reader();
    std::vector<std::string> tags;  // that a caller has to give
    if (reader.pos_size() > 0) tags.emplace_back("pos_ids");
    if (reader.ner_size() > 0) tags.emplace_back("ner_ids");
    if (std::count(reader.features().begin(), reader.features().end(), "lemma") > 0) {
      tags.emplace_back("lemmas");
    }
    return absl::StrCat("(answers of up to ", reader.max_answer_tokens(), " tokens",
                        tags.empty() ? "" : "; needs ", absl::StrJoin(tags, ", "), ")");
  }
  if (model.has_translator()) {
    const v1::TranslatorInfo& translator = model.translator();
    std::string text = "(";
    if (!translator.source_language().empty() || !translator.target_language().empty()) {
      absl::StrAppend(&text, translator.source_language(), " to ", translator.target_language(),
                      "; ");
    }
    absl::StrAppend(&text, "beam ", translator.beam_size());
    const v1::LengthPenalty::Form form = translator.length_penalty().form();
    if (form == v1::LengthPenalty::FORM_GNMT || form == v1::LengthPenalty::FORM_POWER) {
      absl::StrAppend(&text, ", ", EnumName(form), " ", Exact(translator.length_penalty().alpha()));
    }
    return absl::StrCat(text, ")");
  }
  return model.labels().empty() ? "(no classifier)" : absl::StrJoin(model.labels(), " ");
}

std::vector<std::string> Cells(const v1::ModelInfo& model) {
  return {model.name(),
          absl::StrCat(model.version()),
          model.task(),
          absl::StrCat(model.num_layers(), " x ", model.bidirectional() ? "2 x " : "",
                       model.hidden_size()),
          EnumName(model.pooling()),
          absl::StrCat(model.vocabulary_size()),
          absl::StrCat(model.parameter_count()),
          absl::StrCat(model.backend(), " ", model.dtype()),
          absl::StrCat(model.instances()),
          OneLine(Abilities(model), kAbilitiesWidth)};
}

int Models(const Command& command, const std::vector<std::string>& args) {
  CommonFlags common;
  common.connect.only_serving = false;  // the user may want to know why nothing is served
  int64_t version = 0;
  bool status = false;
  Flags flags;
  flags.Add("status", &status, "show the state of each version, and why one could not be loaded");
  flags.Add("version", &version, "with NAME: version of the model; 0 = the latest");
  const Start start = Begin(command, args, &flags, &common, [&](const auto& names) {
    const bool named = !names.empty();
    return names.size() > 1 ? absl::InvalidArgumentError(
                                  absl::StrCat("expected at most one name, found ", names.size()))
           : !named && version != 0 ? absl::InvalidArgumentError("--version needs a NAME")
           : named && status        ? absl::InvalidArgumentError("--status takes no NAME")
                                    : absl::OkStatus();
  });
  if (start.client == nullptr) return start.exit_code;

  absl::StatusOr<v1::ListModelsResponse> list = v1::ListModelsResponse();
  if (start.arguments.empty()) {
    list = start.client->ListModels();
  } else {
    absl::StatusOr<v1::ModelInfo> model = start.client->GetModel(start.arguments[0], version);
    if (!model.ok()) return CallError(command, common, model.status());
    *list->add_models() = *std::move(model);
  }
  if (!list.ok()) return CallError(command, common, list.status());
  if (status) {
    PrintStatuses(command, common.json, list->statuses());
    return kExitOk;
  }
  Printer printer(command, common.json,
                  {{"NAME"},
                   {"VERSION", true},
                   {"TASK"},
                   {"LAYERS"},
                   {"POOLING"},
                   {"WORDS", true},
                   {"WEIGHTS", true},
                   {"BACKEND"},
                   {"INSTANCES", true},
                   {"LABELS"}});
  for (const v1::ModelInfo& model : list->models()) {
    if (common.json) {
      printer.Object(ModelJson(model));
    } else {
      printer.Row(Cells(model));
    }
  }
  printer.Flush();
  if (list->models().empty() && !common.json) std::cerr << "the server has loaded no model\n";
  return kExitOk;
}

}  // namespace

constexpr Command kModels = {"models", "what the server has loaded", kModelsHelp, Models};

}  // namespace sru::client
