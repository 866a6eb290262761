// Small readers that tests write to a repository.
#ifndef SRU_TESTS_TESTING_SMALL_READER_H_
#define SRU_TESTS_TESTING_SMALL_READER_H_

#include <string>

#include "nlohmann/json.hpp"
#include "tests/testing/test_files.h"

namespace sru::models {

inline constexpr int kSmallReaderWords = 12;
inline constexpr char kSmallReaderVocabulary[] = "<PAD>\n<UNK>\na\nb\nc\nd\ne\nf\ng\nh\n.\n?\n";
inline constexpr int kSmallReaderPos = 5;
inline constexpr int kSmallReaderNer = 3;

// 12 words of 4 features, two layers over passages and one over questions, of 3 units per
// direction, with the aligned question and the features "exact" and "tf". With `tags` also the
// feature "lemma" and embeddings of 5 parts of speech and 3 named entities.
inline nlohmann::json SmallReaderConfig(bool tags = false) {
  nlohmann::json config = {{"format_version", 1},
                           {"description", "a test"},
                           {"task", "reader"},
                           {"encoder",
                            {{"input_size", tags ? 16 : 10},
                             {"hidden_size", 3},
                             {"num_layers", 2},
                             {"bidirectional", true}}},
                           {"embedding", {{"vocabulary_size", kSmallReaderWords}, {"oov_id", 1}}},
                           {"preprocessing", {{"type", "unicode_words"}, {"lowercase", true}}},
                           {"reader",
                            {{"embedding_dim", 4},
                             {"question_layers", 1},
                             {"features", {"exact", "tf"}},
                             {"use_qemb", true},
                             {"question_merge", "self_attn"},
                             {"max_len", 4}}}};
  if (tags) {
    nlohmann::json& reader = config["reader"];
    reader["features"] = {"exact", "lemma", "tf"};
    reader["pos_size"] = kSmallReaderPos;
    reader["pos_dim"] = 3;
    reader["ner_size"] = kSmallReaderNer;
    reader["ner_dim"] = 2;
  }
  return config;
}

inline TestTensors SmallReaderTensors(bool tags = false) {
  TestTensors tensors = {{"embedding.weight", MakeTensor({kSmallReaderWords, 4})},
                         {"qemb_match.linear.weight", MakeTensor({4, 4})},
                         {"qemb_match.linear.bias", MakeTensor({4})},
                         // A first layer whose highway term is a product, and one where it is not.
                         {"doc_rnn.rnns.0.weight", MakeTensor({tags ? 16 : 10, 24})},
                         {"doc_rnn.rnns.1.weight", MakeTensor({6, 18})},
                         {"question_rnn.rnns.0.weight", MakeTensor({4, 24})},
                         {"self_attn.linear.weight", MakeTensor({1, 6})},
                         {"self_attn.linear.bias", MakeTensor({1})},
                         {"start_attn.linear.weight", MakeTensor({6, 6})},
                         {"start_attn.linear.bias", MakeTensor({6})},
                         {"end_attn.linear.weight", MakeTensor({6, 6})},
                         {"end_attn.linear.bias", MakeTensor({6})}};
  for (const char* layer : {"doc_rnn.rnns.0.", "doc_rnn.rnns.1.", "question_rnn.rnns.0."}) {
    tensors[std::string(layer) + "weight_c"] = MakeTensor({12});
    tensors[std::string(layer) + "bias"] = MakeTensor({12});
    tensors[std::string(layer) + "scale_x"] = MakeTensor({1});
  }
  if (tags) {
    tensors["pos_embedding.weight"] = MakeTensor({kSmallReaderPos, 3});
    tensors["ner_embedding.weight"] = MakeTensor({kSmallReaderNer, 2});
  }
  // Else both ends of an answer would have the same logits.
  for (float& weight : tensors["end_attn.linear.weight"].values) weight = 0.3f - weight;
  return tensors;
}

// Writes <name>/config.json, model.safetensors and vocab.txt.
inline void WriteSmallReader(const TempDirectory& directory, const std::string& name,
                             bool tags = false) {
  directory.Write(name + "/config.json", SmallReaderConfig(tags).dump());
  directory.Write(name + "/model.safetensors", Safetensors(SmallReaderTensors(tags)));
  directory.Write(name + "/vocab.txt", kSmallReaderVocabulary);
}

}  // namespace sru::models

#endif  // SRU_TESTS_TESTING_SMALL_READER_H_
