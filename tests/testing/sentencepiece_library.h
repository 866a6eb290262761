// The library SentencePiece, as what our own reader of its files is compared with.
//
// A program that uses it must have nothing of protobuf, see docs/decisions/0012-tokenizers.md. Its
// header declares absl::string_view by itself, so it is included in one source file that includes
// nothing of Abseil.
#ifndef SRU_TESTS_TESTING_SENTENCEPIECE_LIBRARY_H_
#define SRU_TESTS_TESTING_SENTENCEPIECE_LIBRARY_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace sru::testing {

// Trains a model with the trainer's options (spm_train --help); gives its bytes, empty when that
// fails.
std::string TrainSentencePiece(const std::map<std::string, std::string>& options,
                               const std::vector<std::string>& sentences);

class SentencePieceLibrary {
 public:
  explicit SentencePieceLibrary(const std::string& model);
  ~SentencePieceLibrary();

  bool ok() const { return processor_ != nullptr; }
  std::vector<int> Encode(const std::string& text) const;
  std::string Decode(const std::vector<int>& ids) const;
  int size() const;
  bool IsByte(int id) const;
  float Score(int id) const;

 private:
  struct Processor;
  std::unique_ptr<Processor> processor_;
};

}  // namespace sru::testing

#endif  // SRU_TESTS_TESTING_SENTENCEPIECE_LIBRARY_H_
