// Readers with random weights that tests make: config.json and tensors of any variant.
#ifndef SRU_TESTS_TESTING_RANDOM_READER_H_
#define SRU_TESTS_TESTING_RANDOM_READER_H_

#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "nlohmann/json.hpp"
#include "tests/testing/test_files.h"

namespace sru::models {

// A reader without a vocabulary.
struct RandomReader {
  std::string name;  // for messages
  int words = 12;
  int dim = 4;     // of the embedding
  int hidden = 3;  // per direction
  int layers = 2;  // over passages
  int question_layers = 1;
  std::vector<std::string> features = {"exact", "tf"};
  bool use_qemb = true;
  bool pos = false;
  int pos_size = 5;
  int pos_dim = 2;
  bool concat = false;
  bool self_attention = true;

  int input_size() const {
    return dim * (use_qemb ? 2 : 1) + static_cast<int>(features.size()) + (pos ? pos_dim : 0);
  }

  nlohmann::json Config() const {
    nlohmann::json config = {{"format_version", 1},
                             {"task", "reader"},
                             {"encoder",
                              {{"input_size", input_size()},
                               {"hidden_size", hidden},
                               {"num_layers", layers},
                               {"bidirectional", true},
                               {"rescale", true}}},
                             {"embedding", {{"vocabulary_size", words}}},
                             {"reader",
                              {{"embedding_dim", dim},
                               {"question_layers", question_layers},
                               {"features", features},
                               {"use_qemb", use_qemb},
                               {"concat_rnn_layers", concat},
                               {"question_merge", self_attention ? "self_attn" : "avg"},
                               {"max_len", 4}}}};
    if (pos) {
      config["reader"]["pos_size"] = pos_size;
      config["reader"]["pos_dim"] = pos_dim;
    }
    return config;
  }

  TestTensors Tensors() const {
    std::mt19937 random(3);
    std::uniform_real_distribution<float> distribution(-0.8f, 0.8f);
    const auto make = [&](std::vector<int64_t> shape) {
      TestTensor tensor = MakeTensor(std::move(shape));
      for (float& value : tensor.values) value = distribution(random);
      return tensor;
    };
    TestTensors tensors = {{"embedding.weight", make({words, dim})}};
    const auto linear = [&](const std::string& module, int64_t out, int64_t in) {
      tensors[module + ".linear.weight"] = make({out, in});
      tensors[module + ".linear.bias"] = make({out});
    };
    if (pos) tensors["pos_embedding.weight"] = make({pos_size, pos_dim});
    if (use_qemb) linear("qemb_match", dim, dim);
    const int64_t output = int64_t{2} * hidden;
    const auto stack = [&](const std::string& prefix, int64_t input, int count) {
      for (int i = 0; i < count; ++i) {
        const std::string layer = prefix + std::to_string(i) + ".";
        tensors[layer + "weight"] = make({input, output * (input == output ? 3 : 4)});
        tensors[layer + "weight_c"] = make({2 * output});
        tensors[layer + "bias"] = make({2 * output});
        tensors[layer + "scale_x"] = make({1});
        input = output;
      }
    };
    stack("doc_rnn.rnns.", input_size(), layers);
    stack("question_rnn.rnns.", dim, question_layers);
    const int64_t passage_width = output * (concat ? layers : 1);
    const int64_t question_width = output * (concat ? question_layers : 1);
    if (self_attention) linear("self_attn", 1, question_width);
    linear("start_attn", passage_width, question_width);
    linear("end_attn", passage_width, question_width);
    return tensors;
  }
};

}  // namespace sru::models

#endif  // SRU_TESTS_TESTING_RANDOM_READER_H_
