#include "server/tasks/answer/query_inputs.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/status.h"
#include "models/text/unicode_word_tokenizer.h"
#include "server/open_inference/tensors/infer_form.h"
#include "server/open_inference/tensors/tensor_values.h"
#include "sru/v1/inference.pb.h"

namespace sru::server::tasks {
namespace {

using open_inference::InferInput;
using open_inference::ShapeText;

constexpr const char* kNames[] = {"question", "passage"};
// A word that stands for a blank pair, whose answer nobody sees.
constexpr absl::string_view kReplacement = "a";

class QueryInputs final : public open_inference::TaskInputs {
 public:
  std::vector<open_inference::TensorInfo> Infos(const models::Model& /*model*/) const override {
    std::vector<open_inference::TensorInfo> infos;
    for (const char* const name : kNames) {
      infos.push_back({name, open_inference::Datatype::kBytes, open_inference::ColumnShape()});
    }
    return infos;
  }

  absl::Status Outline(const open_inference::InferCall& call,
                       calls::RequestOutline* outline) override {
    const auto& inputs = call.request.inputs;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const bool is_passage = inputs[i].name == kNames[1];
      if (!is_passage && inputs[i].name != kNames[0]) {
        return InvalidArgument("inputs[", i, "].name: ", open_inference::Quoted(inputs[i].name),
                               " is not an input of '", call.model().name(),
                               "', expected question or passage");
      }
      if (indices_[is_passage] >= 0) {
        return InvalidArgument("input ", kNames[is_passage], ": occurs twice, expected once");
      }
      indices_[is_passage] = static_cast<int>(i);
    }
    for (const bool is_passage : {false, true}) {
      if (indices_[is_passage] < 0) {
        return InvalidArgument("input ", kNames[is_passage], ": expected one, found none");
      }
      SRU_RETURN_UNLESS_OK(
          CheckShape(inputs[indices_[is_passage]], kNames[is_passage], call.limits.max_sequences));
    }
    const InferInput& questions = inputs[indices_[0]];
    const InferInput& passages = inputs[indices_[1]];
    const int64_t batch = questions.shape[0];
    if (passages.shape[0] != batch) {
      return InvalidArgument("input passage: shape ", ShapeText(passages), ", expected [", batch,
                             "] as question has ", ShapeText(questions));
    }
    outline->num_queries = static_cast<int>(batch);
    outline->num_sequences = static_cast<int>(batch);
    return absl::OkStatus();
  }

  absl::Status Read(const open_inference::InferCall& call,
                    google::protobuf::Message* message) override {
    std::vector<absl::string_view> texts[2];
    for (const bool is_passage : {false, true}) {
      SRU_ASSIGN_OR_RETURN(texts[is_passage],
                           open_inference::ReadTexts(open_inference::ValuesOf(
                               call.request, indices_[is_passage], kNames[is_passage])));
    }
    auto* const request = static_cast<v1::AnswerRequest*>(message);
    request->mutable_queries()->Reserve(static_cast<int>(texts[0].size()));
    replaced_.resize(texts[0].size());
    for (size_t i = 0; i < texts[0].size(); ++i) {
      if (call.common.skip_empty && (IsBlank(texts[0][i]) || IsBlank(texts[1][i]))) {
        replaced_[i] = true;
        texts[0][i] = texts[1][i] = kReplacement;
      }
      v1::Query* const query = request->add_queries();
      query->set_question(texts[0][i].data(), texts[0][i].size());
      query->add_passages(texts[1][i].data(), texts[1][i].size());
    }
    return absl::OkStatus();
  }

  // "input passage[3]: only white space" of queries[3].passages[0]: only white space
  std::string Explain(absl::string_view message) const override {
    absl::string_view rest = message;
    if (!absl::ConsumePrefix(&rest, "queries")) return "";
    const absl::string_view query = open_inference::TakeIndex(&rest);
    if (query.empty()) return absl::StrCat("input question", rest);
    if (absl::ConsumePrefix(&rest, ".question:")) {
      return absl::StrCat("input question[", query, "]:", rest);
    }
    if (absl::ConsumePrefix(&rest, ".passages[0]:")) {
      return absl::StrCat("input passage[", query, "]:", rest);
    }
    // The tags and lemmas, which the protocol has no tensors for.
    return absl::StrCat("model: the reader needs tags of tokens, which ",
                        "sru.v1.InferenceService/Answer takes: ", rest.substr(1));
  }

  bool IsReplaced(int row) const override { return replaced_[row]; }

 private:
  static bool IsBlank(absl::string_view text) {
    int found = 0;
    // What is no UTF-8 is left to the call, which refuses it.
    const auto count = [&found](const models::TextSpan& /*token*/) { ++found; };
    return models::UnicodeWordTokenizer::Split({text.data(), text.size()}, 1, count).ok() &&
           found == 0;
  }

  static absl::Status CheckShape(const InferInput& input, absl::string_view name, int most) {
    SRU_RETURN_UNLESS_OK(open_inference::CheckColumn(input, name));
    if (input.shape[0] >= 1 && input.shape[0] <= most) return absl::OkStatus();
    return InvalidArgument("input ", name, ": shape ", ShapeText(input), ", expected 1 to ", most,
                           " texts (--max_sequences_per_request)");
  }

  std::vector<bool> replaced_;  // the pairs that were blank
  int indices_[2] = {-1, -1};   // of question and passage among the inputs
};

}  // namespace

std::unique_ptr<open_inference::TaskInputs> MakeQueryInputs() {
  return std::make_unique<QueryInputs>();
}

}  // namespace sru::server::tasks
