#include "tests/testing/sentencepiece_library.h"

#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <unordered_map>

namespace sru::testing {
namespace {

// The library's own until 0.2.1, Abseil's from 0.2.2 on.
using Status = decltype(sentencepiece::SentencePieceProcessor().status());

class Sentences final : public sentencepiece::SentenceIterator {
 public:
  explicit Sentences(const std::vector<std::string>& sentences) : sentences_(sentences) {}

  bool done() const override { return next_ == sentences_.size(); }
  void Next() override { ++next_; }
  const std::string& value() const override { return sentences_[next_]; }
  Status status() const override { return {}; }

 private:
  const std::vector<std::string>& sentences_;
  size_t next_ = 0;
};

}  // namespace

struct SentencePieceLibrary::Processor {
  sentencepiece::SentencePieceProcessor processor;
};

std::string TrainSentencePiece(const std::map<std::string, std::string>& options,
                               const std::vector<std::string>& sentences) {
  Sentences iterator(sentences);
  std::string model;
  const std::unordered_map<std::string, std::string> arguments(options.begin(), options.end());
  const Status status = sentencepiece::SentencePieceTrainer::Train(arguments, &iterator, &model);
  return status.ok() ? model : std::string();
}

SentencePieceLibrary::SentencePieceLibrary(const std::string& model)
    : processor_(std::make_unique<Processor>()) {
  if (!processor_->processor.LoadFromSerializedProto(model).ok()) processor_.reset();
}

SentencePieceLibrary::~SentencePieceLibrary() = default;

std::vector<int> SentencePieceLibrary::Encode(const std::string& text) const {
  return processor_->processor.EncodeAsIds(text);
}

std::string SentencePieceLibrary::Decode(const std::vector<int>& ids) const {
  return processor_->processor.DecodeIds(ids);
}

int SentencePieceLibrary::size() const { return processor_->processor.GetPieceSize(); }

bool SentencePieceLibrary::IsByte(int id) const { return processor_->processor.IsByte(id); }

float SentencePieceLibrary::Score(int id) const { return processor_->processor.GetScore(id); }

}  // namespace sru::testing
