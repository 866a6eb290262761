// sru_client models: what the server has loaded.
#include <algorithm>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/client.h"
#include "client/commands/commands.h"
#include "client/commands/common_flags.h"
#include "client/commands/json_output.h"
#include "client/commands/model_statuses.h"
#include "client/names.h"
#include "client/text_table.h"
#include "google/protobuf/generated_enum_reflection.h"
#include "sru/v1/inference.pb.h"

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

void PrintTable(const std::vector<v1::ModelInfo>& models) {
  TextTable table({{"NAME"},
                   {"VERSION", true},
                   {"TASK"},
                   {"LAYERS"},
                   {"POOLING"},
                   {"WORDS", true},
                   {"WEIGHTS", true},
                   {"BACKEND"},
                   {"INSTANCES", true},
                   {"LABELS"}},
                  &std::cout);
  for (const v1::ModelInfo& model : models) {
    table.AddRow({model.name(), absl::StrCat(model.version()), model.task(),
                  absl::StrCat(model.num_layers(), " x ", model.bidirectional() ? "2 x " : "",
                               model.hidden_size()),
                  EnumName(model.pooling()), absl::StrCat(model.vocabulary_size()),
                  absl::StrCat(model.parameter_count()),
                  absl::StrCat(model.backend(), " ", model.dtype()),
                  absl::StrCat(model.instances()), OneLine(Abilities(model), kAbilitiesWidth)});
  }
  table.Flush();
}

int Models(const Command& command, const std::vector<std::string>& args) {
  CommonFlags common;
  int64_t version = 0;
  bool status = false;
  FlagSet flags;
  flags.Add("status", &status, "show the state of each version, and why one could not be loaded");
  flags.Add("version", &version, "with NAME: version of the model; 0 = the latest");
  common.AddTo(&flags);
  std::vector<std::string> names;
  if (auto code = ParseArgs(command, args, &flags, &names)) return *code;
  if (names.size() > 1) {
    return UsageError(command, absl::StrCat("expected at most one name, found ", names.size()));
  }
  if (names.empty() && version != 0) return UsageError(command, "--version needs a NAME");
  if (!names.empty() && status) return UsageError(command, "--status takes no NAME");
  common.connect.only_serving = false;  // the user may want to know why nothing is served
  int exit_code = kExitOk;
  const auto client = MakeClient(command, common, &exit_code);
  if (client == nullptr) return exit_code;

  std::vector<v1::ModelInfo> models;
  if (names.empty()) {
    auto response = client->ListModels();
    if (!response.ok()) return CallError(command, common, response.status());
    if (status) {
      PrintStatuses(response->statuses(), common.json);
      return kExitOk;
    }
    models.assign(response->models().begin(), response->models().end());
  } else {
    auto model = client->GetModel(names[0], version);
    if (!model.ok()) return CallError(command, common, model.status());
    models.push_back(*std::move(model));
  }
  if (common.json) {
    for (const v1::ModelInfo& model : models) std::cout << Dump(ModelJson(model)) << "\n";
    return kExitOk;
  }
  PrintTable(models);
  if (models.empty()) std::cerr << "the server has loaded no model\n";
  return kExitOk;
}

}  // namespace

constexpr Command kModels = {"models", "what the server has loaded", kModelsHelp, Models};

}  // namespace sru::client
