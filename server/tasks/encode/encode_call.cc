#include <utility>

#include "server/calls/kinds/task_call.h"
#include "server/tasks/encode/encode.h"

namespace sru::server::tasks {
namespace {

class EncodeCall final : public calls::SequenceCall<v1::EncodeRequest, v1::EncodeResponse> {
 public:
  EncodeCall(const calls::ServiceContext& context, calls::Exchange* exchange, Form form)
      : SequenceCall(calls::MethodId::kEncode, context, exchange, std::move(form)) {}

 private:
  absl::Status ParseParameters(const v1::EncodeRequest& request) override {
    if (absl::Status status = calls::CheckTask(model(), calls::MethodId::kEncode); !status.ok()) {
      return status;
    }
    absl::StatusOr<kernels::Pooling> pooling =
        calls::ParsePooling(request.pooling(), model().spec().pooling);
    if (!pooling.ok()) return pooling.status();
    pooling_ = *pooling;
    absl::StatusOr<v1::OutputFormat> format = calls::ParseOutputFormat(request.output_format());
    if (!format.ok()) return format.status();
    format_ = *format;
    normalize_ = request.normalize();
    return absl::OkStatus();
  }

  bool has_token_vectors() const { return pooling_ == kernels::Pooling::kNone; }
  int width() const { return model().spec().output_size(); }

  size_t OutputSize(int num_tokens) const override {
    return static_cast<size_t>(has_token_vectors() ? num_tokens : 1) * width();
  }

  int64_t AnswerBytes(size_t /*index*/, int num_tokens) const override {
    // The values, both in the message and on the wire; half precision takes less.
    return 256 + 2 * static_cast<int64_t>(OutputSize(num_tokens) * sizeof(float));
  }

  void SetOutput(size_t /*index*/, float* values, batching::SequenceTask* task) override {
    task->output.pooling = pooling_;
    (has_token_vectors() ? task->output.token_vectors : task->output.pooled) = values;
  }

  void WriteSequence(size_t /*index*/, const calls::TokenCounts& counts, float* values,
                     v1::EncodeResponse* response) const override {
    v1::Encoding* encoding = response->add_encodings();
    if (counts.computed == 0) {
      encoding->add_shape(0);
      if (has_token_vectors()) encoding->add_shape(width());
      return;
    }
    const int64_t rows = has_token_vectors() ? counts.computed : 1;
    if (normalize_) {
      for (int64_t row = 0; row < rows; ++row) calls::Normalize(values + row * width(), width());
    }
    if (has_token_vectors()) encoding->add_shape(rows);
    encoding->add_shape(width());
    calls::WriteValues(values, rows, width(), format_, encoding);
    encoding->set_token_count(counts.computed);
    encoding->set_truncated(counts.truncated);
    encoding->set_unknown_tokens(counts.unknown);
  }

  kernels::Pooling pooling_ = kernels::Pooling::kNone;
  v1::OutputFormat format_ = v1::OUTPUT_FORMAT_FLOATS;
  bool normalize_ = false;
};

}  // namespace

calls::CallHandler* StartEncode(const calls::ServiceContext& context, calls::Exchange* exchange,
                                calls::EncodeForm form) {
  return new EncodeCall(context, exchange, std::move(form));
}

calls::Method EncodeMethod(const calls::ServiceContext& context) {
  return calls::Method::Of<v1::EncodeRequest, v1::EncodeResponse>(
      calls::MethodId::kEncode,
      [&context](calls::Exchange* exchange) { return StartEncode(context, exchange); });
}

}  // namespace sru::server::tasks
