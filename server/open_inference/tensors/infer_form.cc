#include "server/open_inference/tensors/infer_form.h"

#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "google/protobuf/io/coded_stream.h"
#include "inference/open_inference.pb.h"
#include "server/open_inference/tensors/sequence_input.h"

namespace sru::server::open_inference {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::io::CodedOutputStream;

constexpr size_t kMostBytes = std::numeric_limits<int32_t>::max();  // of protobuf
// Of a field with values.
constexpr uint8_t kTag = inference::ModelInferResponse::kRawOutputContentsFieldNumber << 3 | 2;

// What a row without tokens has in an output that marks it: NaN, or -1.
void FillBlank(Datatype datatype, uint8_t* to, const uint8_t* end) {
  const auto fill = [&](auto value) {
    for (; to < end; to += sizeof(value)) std::memcpy(to, &value, sizeof(value));
  };
  switch (datatype) {
    case Datatype::kFp32:
      return fill(std::numeric_limits<float>::quiet_NaN());
    case Datatype::kFp64:
      return fill(std::numeric_limits<double>::quiet_NaN());
    default:
      return fill(int32_t{-1});
  }
}

// The items of an answer.
class Items {
 public:
  explicit Items(const Message& answer) : answer_(answer) {
    const google::protobuf::Descriptor& type = *answer.GetDescriptor();
    for (int i = 0; i < type.field_count(); ++i) {
      if (type.field(i)->is_repeated()) field_ = type.field(i);
    }
  }

  int size() const { return answer_.GetReflection()->FieldSize(answer_, field_); }
  const Message& operator[](int i) const {
    return answer_.GetReflection()->GetRepeatedMessage(answer_, field_, i);
  }
  bool HasTokens(int i) const {
    const auto* const count = field_->message_type()->FindFieldByName("token_count");
    const Message& item = (*this)[i];
    return item.GetReflection()->GetInt32(item, count) > 0;
  }

 private:
  const Message& answer_;
  const FieldDescriptor* field_ = nullptr;
};

class InferForm final : public calls::MessageForm {
 public:
  explicit InferForm(InferCallPtr call)
      : call_(std::move(call)),
        inputs_(call_->tensors->make_inputs()),
        has_requested_(!call_->request.outputs.empty()) {}

  const std::shared_ptr<lifecycle::ServedModel>& served() const override { return call_->served; }
  absl::Duration timeout() const override { return call_->common.timeout; }

  absl::Status ReadOutline(calls::RequestOutline* outline) override {
    *outline = calls::RequestOutline();
    outline->priority = call_->common.priority;
    outline->message_bytes = static_cast<int64_t>(call_->bytes.view().size()) + kFormBytes;
    SRU_RETURN_UNLESS_OK(CheckContents(call_->request));
    return inputs_->Outline(*call_, outline);
  }

  absl::Status Parse(Message* request) override {
    const auto* const priority = request->GetDescriptor()->FindFieldByName("priority");
    request->GetReflection()->SetEnumValue(request, priority, call_->common.priority);
    // Translate takes blank rows anyway; for Answer, the inputs replace them.
    const auto* const skip_empty = request->GetDescriptor()->FindFieldByName("skip_empty");
    if (skip_empty != nullptr) {
      request->GetReflection()->SetBool(request, skip_empty, call_->common.skip_empty);
    }
    for (const InferParameter& parameter : call_->request.parameters) {
      if (IsCommonParameter(parameter.name)) continue;
      SRU_RETURN_UNLESS_OK(ReadField(parameter, call_->tensors->parameters, request));
    }
    if (call_->tensors->prepare != nullptr) call_->tensors->prepare(*call_, request);
    SRU_RETURN_UNLESS_OK(inputs_->Read(*call_, request));
    call_->request = InferRequest();
    call_->bytes.Release();
    return absl::OkStatus();
  }

  absl::Status Write(const Message& answer, absl::Cord* bytes) override {
    const Items items(answer);
    if (!has_requested_) AddOutputsOfTokens(answer);
    std::vector<bool> blank(items.size());
    for (int i = 0; call_->common.skip_empty && i < items.size(); ++i) {
      blank[i] = !items.HasTokens(i) || inputs_->IsReplaced(i);
    }
    const auto text_of = [&](const Output& output, int i) {
      return blank[i] ? absl::string_view() : output.text(items[i]);
    };
    inference::ModelInferResponse head;
    head.set_model_name(call_->model().name());
    head.set_model_version(absl::StrCat(call_->model().version()));
    head.set_id(call_->id);
    absl::InlinedVector<size_t, 4> sizes;
    absl::InlinedVector<size_t, 4> row_bytes;
    absl::InlinedVector<bool, 4> marks_blank;
    for (const Output* const output : call_->outputs) {
      inference::ModelInferResponse::InferOutputTensor& tensor = *head.add_outputs();
      tensor.set_name(output->name);
      tensor.set_datatype(Describe(output->datatype).name);
      tensor.add_shape(items.size());
      size_t row = Describe(output->datatype).element_bytes;
      for (const int64_t size : SizesOf(*output, &answer)) {
        tensor.add_shape(size);
        row *= size;
      }
      size_t size = items.size() * row;
      for (int i = 0; output->text && i < items.size(); ++i) {
        size += sizeof(uint32_t) + text_of(*output, i).size();
      }
      sizes.push_back(size);
      row_bytes.push_back(row);
      // The vectors of a blank row's tokens are none.
      marks_blank.push_back(output->marks_blank && tensor.shape_size() < 3);
    }
    const auto write = [&](size_t k, uint8_t* to) {
      const Output& output = *call_->outputs[k];
      for (int i = 0; i < items.size(); ++i) {
        if (output.text) {
          to = WriteElement(text_of(output, i), to);
          continue;
        }
        uint8_t* const end = to + row_bytes[k];
        if (blank[i] && marks_blank[k]) {
          FillBlank(output.datatype, to, end);
        } else {
          uint8_t* const written = output.values(items[i], to);
          std::memset(written, 0, end - written);
        }
        to = end;
      }
    };
    return WriteInferResponse(head, sizes, write, bytes);
  }

  absl::Status Explain(const absl::Status& status) const override {
    if (!absl::IsInvalidArgument(status)) return status;
    const absl::string_view message = status.message();
    // Its own errors name tensors and fields of the protocol. The others are of sru.v1, whose
    // fields the parameters are named after.
    for (const absl::string_view own :
         {"input ", "inputs", "outputs", "parameters", "raw_input_contents", "message", "model"}) {
      if (absl::StartsWith(message, own)) return status;
    }
    std::string explained = inputs_->Explain(message);
    if (explained.empty()) {
      const size_t colon = message.find(": ");
      if (colon == absl::string_view::npos) return status;
      explained = absl::StrCat("parameters[", message.substr(0, colon), "]", message.substr(colon));
    }
    return absl::InvalidArgumentError(explained);
  }

 private:
  // The form and the InferCall take about 1 KiB; the bytes of a message are counted four times.
  static constexpr int64_t kFormBytes = 256;

  Shape SizesOf(const Output& output, const Message* answer) const {
    return output.sizes == nullptr ? Shape() : output.sizes(call_->model(), answer);
  }

  void AddOutputsOfTokens(const Message& answer) {
    if (SizesOf(*call_->outputs.front(), &answer).size() < 2) return;
    for (const Output& output : call_->tensors->outputs) {
      if (output.comes == Output::kComesWithTokens) call_->outputs.push_back(&output);
    }
  }

  const InferCallPtr call_;
  const std::unique_ptr<TaskInputs> inputs_;
  const bool has_requested_;  // whether the outputs are named by the request
};

}  // namespace

// Writes an element of BYTES and returns where the next one goes.
uint8_t* WriteElement(absl::string_view text, uint8_t* to) {
  const auto size = static_cast<uint32_t>(text.size());
  std::memcpy(to, &size, sizeof(size));
  if (!text.empty()) std::memcpy(to + sizeof(size), text.data(), text.size());
  return to + sizeof(size) + text.size();
}

absl::Status WriteInferResponse(const inference::ModelInferResponse& head,
                                absl::Span<const size_t> sizes,
                                absl::FunctionRef<void(size_t tensor, uint8_t* to)> write,
                                absl::Cord* bytes) {
  size_t size = head.ByteSizeLong();
  for (const size_t tensor : sizes) {
    size += sizeof(kTag) + CodedOutputStream::VarintSize64(tensor) + tensor;
  }
  if (size > kMostBytes) {
    return InvalidArgument("outputs: the answer would have ", size, " bytes, expected at most ",
                           kMostBytes, "; send fewer sequences at a time");
  }
  std::unique_ptr<uint8_t[]> buffer(new uint8_t[size]);  // not initialized: all of it is written
  uint8_t* to = head.SerializeWithCachedSizesToArray(buffer.get());
  for (size_t k = 0; k < sizes.size(); ++k) {
    *to++ = kTag;
    to = CodedOutputStream::WriteVarint64ToArray(sizes[k], to);
    write(k, to);
    to += sizes[k];
  }
  const absl::string_view view(reinterpret_cast<const char*>(buffer.get()), size);
  *bytes = absl::MakeCordFromExternal(view, [owned = std::move(buffer)] {});
  return absl::OkStatus();
}

calls::MessageFormPtr MakeInferForm(InferCallPtr call) {
  return std::make_unique<InferForm>(std::move(call));
}

absl::string_view TakeIndex(absl::string_view* path) {
  if (!absl::StartsWith(*path, "[")) return {};
  const size_t end = path->find(']');
  if (end == absl::string_view::npos) return {};
  const absl::string_view index = path->substr(1, end - 1);
  path->remove_prefix(end + 1);
  return index;
}

}  // namespace sru::server::open_inference
