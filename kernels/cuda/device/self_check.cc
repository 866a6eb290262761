#include "kernels/cuda/device/self_check.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "kernels/cuda/device/row_layout.h"
#include "kernels/cuda/kernels/operation_args.h"
#include "kernels/cuda/kernels/predict_shape.h"

namespace sru::kernels::cuda {
namespace {

// A row that a cluster answers where there are any, and as many candidates as it has blocks: the
// best of each.
constexpr int kSymbols = kSmallVocabulary + 1;
constexpr int kCount = kPredictCluster;
constexpr int kStride = (kSymbols + kSegmentAlignment - 1) / kSegmentAlignment * kSegmentAlignment;
constexpr double kTolerance = 1e-3;

// The known numbers, what is asked about them, and the answers. The device has a copy in its
// memory.
struct Question {
  float logits[kStride];
  PredictHeader header;
  int32_t target;
  int32_t count;
  Sampling sampling;  // of temperature 0: the best symbol is picked
  Candidate candidates[kCount];
  Candidate picked;
  float log_prob;
};

int32_t BestOfBlock(int block) { return block * RowPartSize<kLargePredictThreads>(kSymbols) + 77; }

void Ask(Question* on_device, Question* question) {
  for (int v = 0; v < kSymbols; ++v) question->logits[v] = static_cast<float>(v % 7);
  for (int i = 0; i < kCount; ++i) question->logits[BestOfBlock(i)] = static_cast<float>(12 - i);
  question->header = {{1, {}}, kCount, 0, on_device->candidates};
  question->count = kCount;
  question->picked = {0, 0.0f};
}

bool IsRight(const Question& asked, const Question& answered) {
  double sum = 0;
  for (int v = 0; v < kSymbols; ++v) sum += std::exp(static_cast<double>(asked.logits[v]));
  const auto is = [&](const Candidate& found, int32_t id) {
    return found.id == id &&
           std::abs(found.log_prob - (asked.logits[id] - std::log(sum))) < kTolerance;
  };
  bool right =
      is(answered.picked, BestOfBlock(0)) && is({asked.target, answered.log_prob}, asked.target);
  for (int i = 0; i < kCount; ++i) right = right && is(answered.candidates[i], BestOfBlock(i));
  return right;
}

}  // namespace

Status CheckAnswers(Device& device, Stream& stream) {
  const auto asked = std::make_unique<Question>();
  const auto answered = std::make_unique<Question>();
  void* memory = nullptr;
  SRU_RETURN_IF_ERROR(device.Allocate(sizeof(Question), &memory));
  auto* const on_device = static_cast<Question*>(memory);
  Ask(on_device, asked.get());
  PredictArgs args{};
  args.header = &on_device->header;
  args.max_rows = 1;
  args.logits = on_device->logits;
  args.logit_stride = kStride;
  args.vocabulary_size = kSymbols;
  args.targets = &on_device->target;
  args.counts = &on_device->count;
  args.log_prob = &on_device->log_prob;
  args.sampling = &on_device->sampling;
  args.picked = &on_device->picked;
  const Status status = RunWork(stream, [&] {
    SRU_RETURN_IF_ERROR(stream.CopyToDevice(on_device, asked.get(), sizeof(Question)));
    SRU_RETURN_IF_ERROR(stream.RunOperation(args));
    return stream.CopyToHost(answered.get(), on_device, sizeof(Question));
  });
  device.Free(memory);
  if (!status.ok() || IsRight(*asked, *answered)) return status;
  return Status(StatusCode::kUnavailable, "device ", device.ordinal(), " (", device.name(),
                "): it answers wrongly: the best of known numbers is symbol ", BestOfBlock(0),
                ", found ", answered->picked.id,
                "; this build's kernels may be for other GPUs (SRU_CUDA_ARCHITECTURES)");
}

}  // namespace sru::kernels::cuda
