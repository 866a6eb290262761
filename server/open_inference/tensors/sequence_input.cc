#include "server/open_inference/tensors/sequence_input.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/utf8.h"
#include "server/open_inference/tensors/tensor_values.h"

namespace sru::server::open_inference {
namespace {

constexpr absl::string_view kLengths = "lengths";

template <typename... Args>
absl::Status Wrong(absl::string_view tensor, const Args&... what) {
  return absl::InvalidArgumentError(absl::StrCat("input ", tensor, ": ", what...));
}

absl::string_view NameOf(const SequenceInput& input) { return SequenceFormName(input.form); }

// The shapes that a form has: the first is the usual one, of the second the batch is left out or has
// a size of 1 after it, as Triton's configs write it.
absl::Status CheckShape(const InferInput& tensor, const SequenceInput& input,
                        const SequenceModel& model) {
  const auto& shape = tensor.shape;
  switch (input.form) {
    case SequenceForm::kText:
      if (shape.size() == 1 || (shape.size() == 2 && shape[1] == 1)) return absl::OkStatus();
      return Wrong("text", "shape ", ShapeText(tensor), ", expected [batch] or [batch, 1]");
    case SequenceForm::kTokenIds:
      if (shape.size() == 2) return absl::OkStatus();
      return Wrong("token_ids", "shape ", ShapeText(tensor), ", expected [batch, length]");
    case SequenceForm::kFeatures:
      if (shape.size() == 3 && shape[2] == model.input_size) return absl::OkStatus();
      return Wrong("features", "shape ", ShapeText(tensor), ", expected [batch, length, ",
                   model.input_size, "]");
  }
  return absl::OkStatus();
}

// Of each sequence, by the input `lengths`; all of them if there is none.
absl::StatusOr<std::vector<int64_t>> ReadLengths(const InferRequest& request,
                                                 const SequenceInput& input) {
  const InferInput& values = request.inputs[input.values];
  const int64_t batch = values.shape[0];
  const int64_t length = values.shape[1];
  if (input.lengths < 0) return std::vector<int64_t>(batch, length);
  const InferInput& tensor = request.inputs[input.lengths];
  const bool fits =
      (tensor.shape.size() == 1 || (tensor.shape.size() == 2 && tensor.shape[1] == 1)) &&
      tensor.shape[0] == batch;
  if (!fits) {
    return Wrong(kLengths, "shape ", ShapeText(tensor), ", expected [", batch, "] as ",
                 NameOf(input), " has ", ShapeText(values));
  }
  absl::StatusOr<std::vector<int64_t>> lengths =
      ReadIntegers(ValuesOf(request, input.lengths, kLengths));
  if (!lengths.ok()) return lengths;
  for (int64_t i = 0; i < batch; ++i) {
    if ((*lengths)[i] < 0 || (*lengths)[i] > length) {
      return Wrong(kLengths, (*lengths)[i], " at [", i, "] is out of range, expected 0 to ", length,
                   " as ", NameOf(input), " has ", ShapeText(values));
    }
  }
  return lengths;
}

absl::Status ReadText(const InferRequest& request, const SequenceInput& input,
                      google::protobuf::RepeatedPtrField<v1::Sequence>* sequences) {
  const auto texts = ReadStrings(ValuesOf(request, input.values, NameOf(input)));
  if (!texts.ok()) return texts.status();
  sequences->Reserve(static_cast<int>(texts->size()));
  for (size_t i = 0; i < texts->size(); ++i) {
    const absl::string_view text = (*texts)[i];
    const size_t invalid = FindInvalidUtf8({text.data(), text.size()});
    if (invalid < text.size()) {
      return Wrong(absl::StrCat("text[", i, "]"), "invalid UTF-8 at byte ", invalid);
    }
    sequences->Add()->set_text(text.data(), text.size());
  }
  return absl::OkStatus();
}

absl::Status ReadTokenIds(const InferRequest& request, const SequenceInput& input,
                          const SequenceModel& model,
                          google::protobuf::RepeatedPtrField<v1::Sequence>* sequences) {
  const auto lengths = ReadLengths(request, input);
  if (!lengths.ok()) return lengths.status();
  const auto ids = ReadIntegers(ValuesOf(request, input.values, NameOf(input)));
  if (!ids.ok()) return ids.status();
  const int64_t row = request.inputs[input.values].shape[1];
  const int64_t vocabulary = model.vocabulary_size;
  sequences->Reserve(static_cast<int>(lengths->size()));
  for (size_t i = 0; i < lengths->size(); ++i) {
    auto* const values = sequences->Add()->mutable_token_ids()->mutable_values();
    const int64_t length = (*lengths)[i];
    values->Reserve(static_cast<int>(length));
    for (int64_t t = 0; t < length; ++t) {
      const int64_t id = (*ids)[i * row + t];
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
                          const SequenceModel& model,
                          google::protobuf::RepeatedPtrField<v1::Sequence>* sequences) {
  const auto lengths = ReadLengths(request, input);
  if (!lengths.ok()) return lengths.status();
  std::string storage;
  const auto floats = ReadFloats(ValuesOf(request, input.values, NameOf(input)), &storage);
  if (!floats.ok()) return floats.status();
  const int input_size = model.input_size;
  const size_t frame = input_size * sizeof(float);
  const size_t row = request.inputs[input.values].shape[1] * frame;
  sequences->Reserve(static_cast<int>(lengths->size()));
  for (size_t i = 0; i < lengths->size(); ++i) {
    v1::Features* const features = sequences->Add()->mutable_features();
    features->set_feature_size(input_size);
    if ((*lengths)[i] == 0) continue;
    features->set_data(floats->data() + i * row, (*lengths)[i] * frame);
  }
  return absl::OkStatus();
}

}  // namespace

std::string InputNames(const SequenceModel& model) {
  std::vector<absl::string_view> names;
  if (model.takes_text) names.push_back("text");
  if (model.vocabulary_size > 0) names.push_back("token_ids");
  if (model.takes_features) names.push_back("features");
  if (names.empty() || names.back() != "text") names.push_back(kLengths);
  return absl::StrJoin(names, ", ");
}

absl::Status CheckContents(const InferRequest& request) {
  if (request.raw_inputs.empty()) {
    return absl::OkStatus();
  }
  if (request.raw_inputs.size() != request.inputs.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("raw_input_contents: ", request.raw_inputs.size(), " entries, expected ",
                     request.inputs.size(), ", one for each input"));
  }
  for (size_t i = 0; i < request.inputs.size(); ++i) {
    if (!request.inputs[i].has_contents || request.inputs[i].contents.empty()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("inputs[", i, "].contents: expected none beside raw_input_contents"));
  }
  return absl::OkStatus();
}

absl::Status FindSequenceInput(const InferRequest& request, const SequenceModel& model,
                               SequenceInput* input) {
  *input = SequenceInput();
  for (size_t i = 0; i < request.inputs.size(); ++i) {
    const absl::string_view name = request.inputs[i].name;
    const auto index = static_cast<int>(i);
    if (name == kLengths) {
      if (input->lengths >= 0) return Wrong(kLengths, "occurs twice, expected once");
      input->lengths = index;
      continue;
    }
    SequenceForm form = SequenceForm::kText;
    if (name == "text" && model.takes_text) {
      form = SequenceForm::kText;
    } else if (name == "token_ids" && model.vocabulary_size > 0) {
      form = SequenceForm::kTokenIds;
    } else if (name == "features" && model.takes_features) {
      form = SequenceForm::kFeatures;
    } else {
      return absl::InvalidArgumentError(absl::StrCat("inputs[", i, "].name: ", Quoted(name),
                                                     " is not an input of '", model.name,
                                                     "', expected one of ", InputNames(model)));
    }
    if (input->values >= 0) {
      return Wrong(SequenceFormName(form), "given beside ", NameOf(*input),
                   ", expected only one of them");
    }
    input->form = form;
    input->values = index;
  }
  if (input->values < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("inputs: no values, expected one of ", InputNames(model)));
  }
  if (input->lengths >= 0 && input->form == SequenceForm::kText) {
    return Wrong(kLengths, "given beside text, expected beside token_ids or features only");
  }
  return CheckShape(request.inputs[input->values], *input, model);
}

absl::Status OutlineSequences(const InferRequest& request, const SequenceInput& input,
                              const calls::RequestLimits& limits, calls::RequestOutline* outline) {
  const TensorValues values = ValuesOf(request, input.values, NameOf(input));
  const absl::StatusOr<int64_t> count = NumElements(values);
  if (!count.ok()) return count.status();
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
  const int64_t most = std::min(*count, bytes);
  switch (input.form) {
    case SequenceForm::kText:
    case SequenceForm::kFeatures:
      return absl::OkStatus();
    case SequenceForm::kTokenIds:
      // Without lengths all of them are ids. With lengths some may be padding, which takes as much memory
      // while it is read, but is not counted as tokens.
      if (input.lengths < 0) {
        outline->num_unpacked_ids = most;
      } else {
        outline->message_bytes += most * static_cast<int64_t>(sizeof(int32_t));
      }
      return absl::OkStatus();
  }
  return absl::OkStatus();
}

absl::Status ReadSequences(const InferRequest& request, const SequenceInput& input,
                           const SequenceModel& model,
                           google::protobuf::RepeatedPtrField<v1::Sequence>* sequences) {
  switch (input.form) {
    case SequenceForm::kText:
      return ReadText(request, input, sequences);
    case SequenceForm::kTokenIds:
      return ReadTokenIds(request, input, model, sequences);
    case SequenceForm::kFeatures:
      return ReadFeatures(request, input, model, sequences);
  }
  return absl::OkStatus();
}

}  // namespace sru::server::open_inference
