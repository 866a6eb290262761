#include "server/open_inference/tensors/sequence_input.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "base/status.h"
#include "server/open_inference/tensors/infer_form.h"
#include "server/open_inference/tensors/tensor_values.h"

namespace sru::server::open_inference {
namespace {

constexpr absl::string_view kLengths = "lengths";

// A form's input, and whether a model has it. In the order of SequenceForm.
struct FormInfo {
  const char* name;
  Datatype datatype;
  bool (*has)(const calls::ModelInput& takes);
};
constexpr FormInfo kForms[] = {
    {"text", Datatype::kBytes,
     [](const calls::ModelInput& takes) { return takes.tokenizer != nullptr; }},
    {"token_ids", Datatype::kInt64,
     [](const calls::ModelInput& takes) { return takes.vocabulary_size > 0; }},
    {"features", Datatype::kFp32,
     [](const calls::ModelInput& takes) { return takes.takes_features; }}};

template <typename... Args>
absl::Status Wrong(absl::string_view tensor, const Args&... what) {
  return InvalidArgument("input ", tensor, ": ", what...);
}

absl::string_view NameOf(const SequenceInput& input) {
  return kForms[static_cast<size_t>(input.form)].name;
}

// The inputs of a model. Of several forms a request has one.
std::vector<TensorInfo> InfosOf(const calls::ModelInput& takes) {
  std::vector<TensorInfo> infos;
  Shape shape;
  for (const FormInfo& form : kForms) {
    shape.push_back(kAnySize);
    if (!form.has(takes)) continue;
    const bool is_text = form.datatype == Datatype::kBytes;
    infos.push_back({form.name, form.datatype, is_text ? ColumnShape() : shape});
    if (form.datatype == Datatype::kFp32) infos.back().shape.back() = takes.input_size;
  }
  for (TensorInfo& info : infos) info.is_optional = infos.size() > 1;
  if (infos.empty() || infos.back().datatype != Datatype::kBytes) {
    infos.push_back({std::string(kLengths), Datatype::kInt64, ColumnShape(), true});
  }
  return infos;
}

// For an error: "text, token_ids, lengths".
std::string InputNames(const calls::ModelInput& takes) {
  return absl::StrJoin(InfosOf(takes), ", ",
                       [](std::string* out, const TensorInfo& info) { out->append(info.name); });
}

absl::Status CheckShape(const InferInput& tensor, const SequenceInput& input,
                        const calls::ModelInput& takes) {
  const auto& shape = tensor.shape;
  if (input.form == SequenceForm::kText) return CheckColumn(tensor, NameOf(input));
  const bool is_ids = input.form == SequenceForm::kTokenIds;
  if (is_ids ? shape.size() == 2 : shape.size() == 3 && shape[2] == takes.input_size) {
    return absl::OkStatus();
  }
  return Wrong(NameOf(input), "shape ", ShapeText(tensor), ", expected [batch, length",
               is_ids ? "" : absl::StrCat(", ", takes.input_size), "]");
}

// Of each sequence, by the input `lengths`; all of them if there is none.
absl::StatusOr<std::vector<int64_t>> ReadLengths(const InferRequest& request,
                                                 const SequenceInput& input) {
  const InferInput& values = request.inputs[input.values];
  const int64_t batch = values.shape[0];
  const int64_t length = values.shape[1];
  if (input.lengths < 0) return std::vector<int64_t>(batch, length);
  const InferInput& tensor = request.inputs[input.lengths];
  if (!IsColumn(tensor) || tensor.shape[0] != batch) {
    return Wrong(kLengths, "shape ", ShapeText(tensor), ", expected [", batch, "] as ",
                 NameOf(input), " has ", ShapeText(values));
  }
  SRU_ASSIGN_OR_RETURN(std::vector<int64_t> lengths,
                       ReadIntegers(ValuesOf(request, input.lengths, kLengths)));
  for (int64_t i = 0; i < batch; ++i) {
    if (lengths[i] < 0 || lengths[i] > length) {
      return Wrong(kLengths, lengths[i], " at [", i, "] is out of range, expected 0 to ", length,
                   " as ", NameOf(input), " has ", ShapeText(values));
    }
  }
  return lengths;
}

absl::Status ReadText(const InferRequest& request, const SequenceInput& input,
                      Sequences* sequences) {
  SRU_ASSIGN_OR_RETURN(const auto texts, ReadTexts(ValuesOf(request, input.values, NameOf(input))));
  sequences->Reserve(static_cast<int>(texts.size()));
  for (const absl::string_view text : texts) sequences->Add()->set_text(text.data(), text.size());
  return absl::OkStatus();
}

absl::Status ReadTokenIds(const InferRequest& request, const SequenceInput& input,
                          const calls::ModelInput& takes, Sequences* sequences) {
  SRU_ASSIGN_OR_RETURN(const auto lengths, ReadLengths(request, input));
  SRU_ASSIGN_OR_RETURN(const auto ids,
                       ReadIntegers(ValuesOf(request, input.values, NameOf(input))));
  const int64_t row = request.inputs[input.values].shape[1];
  const int64_t vocabulary = takes.vocabulary_size;
  sequences->Reserve(static_cast<int>(lengths.size()));
  for (size_t i = 0; i < lengths.size(); ++i) {
    auto* const values = sequences->Add()->mutable_token_ids()->mutable_values();
    const int64_t length = lengths[i];
    values->Reserve(static_cast<int>(length));
    for (int64_t t = 0; t < length; ++t) {
      const int64_t id = ids[i * row + t];
      if (id < 0 || id >= vocabulary) {
        return Wrong("token_ids", id, " at [", i, ", ", t, "] is out of range, expected 0 to ",
                     vocabulary - 1);
      }
      values->AddAlreadyReserved(static_cast<int32_t>(id));
    }
  }
  return absl::OkStatus();
}

absl::Status ReadFeatures(const InferRequest& request, const SequenceInput& input,
                          const calls::ModelInput& takes, Sequences* sequences) {
  SRU_ASSIGN_OR_RETURN(const auto lengths, ReadLengths(request, input));
  std::string storage;
  SRU_ASSIGN_OR_RETURN(const auto floats,
                       ReadFloats(ValuesOf(request, input.values, NameOf(input)), &storage));
  const int input_size = takes.input_size;
  const size_t frame = input_size * sizeof(float);
  const size_t row = request.inputs[input.values].shape[1] * frame;
  sequences->Reserve(static_cast<int>(lengths.size()));
  for (size_t i = 0; i < lengths.size(); ++i) {
    v1::Features* const features = sequences->Add()->mutable_features();
    features->set_feature_size(input_size);
    if (lengths[i] == 0) continue;
    features->set_data(floats.data() + i * row, lengths[i] * frame);
  }
  return absl::OkStatus();
}

class SequenceInputs final : public TaskInputs {
 public:
  explicit SequenceInputs(Sequences* (*get)(google::protobuf::Message*)) : get_(get) {}

  std::vector<TensorInfo> Infos(const models::Model& model) const override {
    return InfosOf(calls::InputOf(model));
  }

  absl::Status Outline(const InferCall& call, calls::RequestOutline* outline) override {
    absl::Status status =
        FindSequenceInput(call.request, call.model().name(), calls::InputOf(call.model()), &input_);
    return status.ok() ? OutlineSequences(call.request, input_, call.limits, outline) : status;
  }

  absl::Status Read(const InferCall& call, google::protobuf::Message* request) override {
    return ReadSequences(call.request, input_, calls::InputOf(call.model()), get_(request));
  }

  // "input token_ids[3, 7]: 9000 is out of range" of sequences[3].token_ids.values[7]: 9000 is out
  // of range
  std::string Explain(absl::string_view message) const override {
    absl::string_view rest = message;
    if (!absl::ConsumePrefix(&rest, "sequences")) return "";
    const absl::string_view sequence = TakeIndex(&rest);
    if (sequence.empty()) return absl::StrCat("input ", NameOf(input_), rest);
    const size_t colon = rest.find(": ");
    if (colon == absl::string_view::npos) return std::string(message);
    absl::string_view path = rest.substr(0, colon);
    path.remove_prefix(std::min(path.find('['), path.size()));
    const absl::string_view token = TakeIndex(&path);
    return absl::StrCat("input ", NameOf(input_), "[", sequence, token.empty() ? "" : ", ", token,
                        "]", rest.substr(colon));
  }

 private:
  Sequences* (*const get_)(google::protobuf::Message*);
  SequenceInput input_;
};

}  // namespace

std::unique_ptr<TaskInputs> MakeSequenceInputsOf(Sequences* (*get)(google::protobuf::Message*)) {
  return std::make_unique<SequenceInputs>(get);
}

absl::Status CheckContents(const InferRequest& request) {
  if (request.raw_inputs.empty()) {
    return absl::OkStatus();
  }
  if (request.raw_inputs.size() != request.inputs.size()) {
    return InvalidArgument("raw_input_contents: ", request.raw_inputs.size(), " entries, expected ",
                           request.inputs.size(), ", one for each input");
  }
  for (size_t i = 0; i < request.inputs.size(); ++i) {
    if (!request.inputs[i].has_contents || request.inputs[i].contents.empty()) continue;
    return InvalidArgument("inputs[", i, "].contents: expected none beside raw_input_contents");
  }
  return absl::OkStatus();
}

absl::Status FindSequenceInput(const InferRequest& request, absl::string_view model,
                               const calls::ModelInput& takes, SequenceInput* input) {
  *input = SequenceInput();
  for (size_t i = 0; i < request.inputs.size(); ++i) {
    const absl::string_view name = request.inputs[i].name;
    const auto index = static_cast<int>(i);
    if (name == kLengths) {
      if (input->lengths >= 0) return Wrong(kLengths, "occurs twice, expected once");
      input->lengths = index;
      continue;
    }
    const auto* const form =
        std::find_if(std::begin(kForms), std::end(kForms),
                     [&](const FormInfo& known) { return name == known.name && known.has(takes); });
    if (form == std::end(kForms)) {
      return InvalidArgument("inputs[", i, "].name: ", Quoted(name), " is not an input of '", model,
                             "', expected one of ", InputNames(takes));
    }
    if (input->values >= 0) {
      return Wrong(name, "given beside ", NameOf(*input), ", expected only one of them");
    }
    input->form = static_cast<SequenceForm>(form - kForms);
    input->values = index;
  }
  if (input->values < 0) {
    return InvalidArgument("inputs: no values, expected one of ", InputNames(takes));
  }
  if (input->lengths >= 0 && input->form == SequenceForm::kText) {
    return Wrong(kLengths, "given beside text, expected beside token_ids or features only");
  }
  return CheckShape(request.inputs[input->values], *input, takes);
}

absl::Status OutlineSequences(const InferRequest& request, const SequenceInput& input,
                              const calls::RequestLimits& limits, calls::RequestOutline* outline) {
  const TensorValues values = ValuesOf(request, input.values, NameOf(input));
  SRU_ASSIGN_OR_RETURN(const int64_t count, NumElements(values));
  const int64_t batch = request.inputs[input.values].shape[0];
  if (batch == 0) {
    return Wrong(values.name, "shape ", ShapeText(*values.input),
                 ", expected at least one sequence");
  }
  if (batch > limits.max_sequences) {
    return Wrong(values.name, batch, " sequences are too many, expected at most ",
                 limits.max_sequences, " (--max_sequences_per_request); send several requests");
  }
  outline->num_sequences = static_cast<int>(batch);
  // What the values can be at most: the shape may promise more than there is.
  const auto bytes =
      static_cast<int64_t>(values.is_raw ? values.raw.size() : values.input->contents.size());
  const int64_t most = std::min(count, bytes);
  if (input.form != SequenceForm::kTokenIds) return absl::OkStatus();
  // Without lengths all of them are ids. With lengths some may be padding, which takes as much
  // memory while it is read, but is not counted as tokens.
  if (input.lengths < 0) {
    outline->num_unpacked_ids = most;
  } else {
    outline->message_bytes += most * static_cast<int64_t>(sizeof(int32_t));
  }
  return absl::OkStatus();
}

absl::Status ReadSequences(const InferRequest& request, const SequenceInput& input,
                           const calls::ModelInput& takes, Sequences* sequences) {
  switch (input.form) {
    case SequenceForm::kText:
      return ReadText(request, input, sequences);
    case SequenceForm::kTokenIds:
      return ReadTokenIds(request, input, takes, sequences);
    case SequenceForm::kFeatures:
      return ReadFeatures(request, input, takes, sequences);
  }
  return absl::OkStatus();
}

}  // namespace sru::server::open_inference
