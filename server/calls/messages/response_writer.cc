#include "server/calls/messages/response_writer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "kernels/common/bfloat16.h"
#include "server/calls/message_cord.h"
#include "server/calls/messages/wire_pooling.h"

namespace sru::server::calls {
namespace {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "raw values are little-endian");

uint32_t Bits(float value) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

// `bits` without its lowest `count` bits, rounded to nearest, ties to even.
uint32_t RoundOff(uint32_t bits, int count) {
  const uint32_t half = uint32_t{1} << (count - 1);
  const uint32_t odd = (bits >> count) & 1;
  return (bits + half - 1 + odd) >> count;
}

template <uint16_t (*Convert)(float)>
void WriteHalves(const float* values, size_t count, std::string* data) {
  data->resize(count * sizeof(uint16_t));
  for (size_t i = 0; i < count; ++i) {
    const uint16_t half = Convert(values[i]);
    std::memcpy(data->data() + i * sizeof(half), &half, sizeof(half));
  }
}

}  // namespace

void WriteLabels(const std::vector<std::string>& labels, const float* logits,
                 const float* probabilities, int top_k, v1::Classification* classification) {
  std::vector<int> order(labels.size());
  std::iota(order.begin(), order.end(), 0);
  // A NaN (from broken weights) goes last, since it must not break the ordering of the sort.
  const auto key = [logits](int i) {
    return std::isnan(logits[i]) ? -std::numeric_limits<float>::infinity() : logits[i];
  };
  std::partial_sort(order.begin(), order.begin() + top_k, order.end(), [&key](int a, int b) {
    const float key_a = key(a);
    const float key_b = key(b);
    return key_a != key_b ? key_a > key_b : a < b;
  });
  classification->mutable_labels()->Reserve(top_k);
  for (int k = 0; k < top_k; ++k) {
    const int i = order[k];
    v1::Label* label = classification->add_labels();
    label->set_name(labels[i]);
    label->set_index(i);
    label->set_probability(probabilities[i]);
    label->set_logit(logits[i]);
  }
}

uint16_t FloatToHalf(float value) {
  const uint32_t bits = Bits(value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000);
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return sign | 0x7e00;   // NaN
  if (magnitude >= 0x47800000) return sign | 0x7c00;  // 65536 and more, infinity
  if (magnitude >= 0x38800000) {
    // Normal: the exponent's bias goes from 127 to 15; rounding may carry into it, up to infinity.
    return static_cast<uint16_t>(sign | RoundOff(magnitude - (uint32_t{112} << 23), 13));
  }
  if (magnitude < 0x33000000) return sign;  // below half of the smallest subnormal
  // Subnormal: the value is mantissa * 2^(exponent - 150), a unit of half precision 2^-24.
  const int shift = 126 - static_cast<int>(magnitude >> 23);
  return static_cast<uint16_t>(sign | RoundOff((magnitude & 0x7fffff) | 0x800000, shift));
}

void Normalize(float* vector, int width) {
  double sum = 0;
  for (int i = 0; i < width; ++i) sum += static_cast<double>(vector[i]) * vector[i];
  if (sum == 0) return;
  const double scale = 1.0 / std::sqrt(sum);
  for (int i = 0; i < width; ++i) vector[i] = static_cast<float>(vector[i] * scale);
}

void WriteValues(const float* values, int64_t rows, int width, v1::OutputFormat format,
                 v1::Encoding* encoding) {
  static_assert(v1::OutputFormat_MAX == v1::OUTPUT_FORMAT_RAW_BFLOAT16, "a case for each format");
  const size_t count = static_cast<size_t>(rows) * width;
  switch (format) {
    case v1::OUTPUT_FORMAT_RAW_FLOAT32:
      encoding->mutable_data()->assign(reinterpret_cast<const char*>(values),
                                       count * sizeof(float));
      return;
    case v1::OUTPUT_FORMAT_RAW_FLOAT16:
      WriteHalves<FloatToHalf>(values, count, encoding->mutable_data());
      return;
    case v1::OUTPUT_FORMAT_RAW_BFLOAT16:
      WriteHalves<kernels::BFloat16Bits>(values, count, encoding->mutable_data());
      return;
    default:
      encoding->mutable_values()->Add(values, values + count);
      return;
  }
}

void WriteCandidates(const kernels::Candidate* found, size_t count,
                     const models::Tokenizer& tokenizer, v1::Candidates* candidates) {
  for (size_t i = 0; i < count; ++i) {
    v1::Candidate* const candidate = candidates->add_candidates();
    candidate->set_token_id(found[i].id);
    candidate->set_text(tokenizer.TokenName(found[i].id));
    candidate->set_log_prob(found[i].log_prob);
  }
}

void WriteTimes(const telemetry::CallTimes& times, v1::StageTimes* proto) {
  proto->set_tokenize_us(absl::ToDoubleMicroseconds(times.tokenize));
  proto->set_queue_us(absl::ToDoubleMicroseconds(times.queue));
  proto->set_compute_us(absl::ToDoubleMicroseconds(times.compute));
  proto->set_total_us(absl::ToDoubleMicroseconds(times.total));
}

void WriteModelInfo(const models::Model& model, int instances, int max_sequence_tokens,
                    v1::ModelInfo* info) {
  info->set_name(model.name());
  info->set_version(model.version());
  info->set_description(model.config().description);
  info->set_pooling(ToProto(model.config().pooling));
  for (const std::string& label : model.labels()) info->add_labels(label);
  info->set_vocabulary_size(model.config().embedding.vocabulary_size);
  if (model.tokenizer() != nullptr) {
    info->set_preprocessing(models::TokenizerTypeName(model.config().tokenizer.type));
  }
  info->set_max_sequence_tokens(max_sequence_tokens);
  info->set_backend(model.backend_name());
  info->set_backend_description(model.backend_description());
  info->set_dtype(kernels::DataTypeName(model.dtype()));
  info->set_instances(instances);
  info->set_parameter_count(model.parameter_count());
  info->set_task(models::TaskName(model.task()));
}

v1::ModelStatus::State ToProto(telemetry::ModelState state) {
  switch (state) {
    case telemetry::ModelState::kLoading:
      return v1::ModelStatus::LOADING;
    case telemetry::ModelState::kReady:
      return v1::ModelStatus::READY;
    case telemetry::ModelState::kUnloading:
      return v1::ModelStatus::UNLOADING;
    case telemetry::ModelState::kFailed:
      return v1::ModelStatus::FAILED;
  }
  return v1::ModelStatus::STATE_UNSPECIFIED;
}

void WriteModelStatus(const telemetry::ModelStatus& status, v1::ModelStatus* proto) {
  proto->set_model(status.model);
  proto->set_version(status.version);
  proto->set_state(ToProto(status.state));
  proto->set_message(status.message);
}

absl::Status SerializeMessage(const google::protobuf::Message& message, absl::Cord* bytes) {
  if (SerializeToCord(message, bytes)) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("cannot serialise ", message.GetTypeName(), ": it has more than 2 GiB"));
}

}  // namespace sru::server::calls
