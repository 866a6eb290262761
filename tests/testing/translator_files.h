// Small translators that tests make: config.json, tensors and pieces.
#ifndef SRU_TESTS_TESTING_TRANSLATOR_FILES_H_
#define SRU_TESTS_TESTING_TRANSLATOR_FILES_H_

#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "nlohmann/json.hpp"
#include "tests/testing/sentencepiece_file.h"
#include "tests/testing/test_files.h"

namespace sru::models {

// Eleven pieces: padding, unknown, start, end, the letters a, b, c, a space, and three longer ones.
inline sru::testing::SentencePieceFile SmallTranslatorPieces() {
  sru::testing::SentencePieceFile file = sru::testing::SmallSentencePieceFile();
  std::vector<sru::testing::SentencePieceFile::Piece> pieces = {
      {"<pad>", 0.0f, 3}, {"<unk>", 0.0f, 2}, {"<s>", 0.0f, 3}, {"</s>", 0.0f, 3}};
  pieces.insert(pieces.end(), file.pieces.begin() + 3, file.pieces.end());
  file.pieces = std::move(pieces);
  return file;
}

// Layers that differ in number, a shared table, and SmallTranslatorPieces().
inline nlohmann::json SmallTranslatorConfig() {
  return {{"format_version", 1},
          {"task", "translator"},
          {"translator",
           {{"d_model", 8},
            {"heads", 2},
            {"d_sru", 12},
            {"encoder_layers", 2},
            {"decoder_layers", 1},
            {"bidirectional_encoder", false},
            {"shared_embeddings", true},
            {"source_vocabulary", 11},
            {"target_vocabulary", 11},
            {"pad_id", 0},
            {"unk_id", 1},
            {"bos_id", 2},
            {"eos_id", 3},
            {"max_positions", 100},
            {"max_length", 20},
            {"beam_size", 3},
            {"length_penalty", "gnmt"},
            {"alpha", 0.6},
            {"source_language", "en"},
            {"target_language", "de"}}},
          {"preprocessing", {{"type", "sentencepiece"}}}};
}

// Random tensors with the shapes that the config says; `config` is that of the whole file.
inline TestTensors TranslatorTensors(const nlohmann::json& config, uint32_t seed = 1) {
  const nlohmann::json& translator = config["translator"];
  const int64_t width = translator["d_model"];
  const int64_t d_sru = translator["d_sru"];
  const int64_t source = translator["source_vocabulary"];
  const int64_t target = translator["target_vocabulary"];
  std::minstd_rand random(seed);
  TestTensors tensors;
  // Uniform in center +- bound.
  const auto add = [&](const std::string& name, std::vector<int64_t> shape, float center,
                       float bound) {
    TestTensor tensor = MakeTensor(std::move(shape));
    std::uniform_real_distribution<float> values(center - bound, center + bound);
    for (float& value : tensor.values) value = values(random);
    tensors[name] = std::move(tensor);
  };
  const auto norm = [&](const std::string& name) {
    add(name + ".weight", {width}, 1, 0.2f);
    add(name + ".bias", {width}, 0, 0.2f);
  };
  const auto linear = [&](const std::string& name, int64_t outputs, int64_t inputs) {
    add(name + ".weight", {outputs, inputs}, 0, std::sqrt(3.0f / static_cast<float>(inputs)));
    add(name + ".bias", {outputs}, 0, 0.2f);
  };
  const auto attention = [&](const std::string& name) {
    for (const char* part : {"linear_keys", "linear_values", "linear_query", "final_linear"}) {
      linear(name + "." + part, width, width);
    }
  };
  const auto feed_forward = [&](const std::string& name) {
    norm(name + ".layer_norm");
    add(name + ".sru.weight", {width, 3 * d_sru}, 0, std::sqrt(3.0f / static_cast<float>(width)));
    add(name + ".sru.weight_c", {2 * d_sru}, 0, 1);
    add(name + ".sru.bias", {2 * d_sru}, 0, 0.5f);
    linear(name + ".w_2", width, d_sru);
  };
  const float bound = 1 / std::sqrt(static_cast<float>(width));
  add("encoder.embeddings.make_embedding.emb_luts.0.weight", {source, width}, 0, bound);
  if (!translator["shared_embeddings"]) {
    add("decoder.embeddings.make_embedding.emb_luts.0.weight", {target, width}, 0, bound);
  }
  for (int i = 0; i < translator["encoder_layers"]; ++i) {
    const std::string layer = "encoder.transformer." + std::to_string(i);
    norm(layer + ".layer_norm");
    attention(layer + ".self_attn");
    feed_forward(layer + ".feed_forward");
  }
  for (int i = 0; i < translator["decoder_layers"]; ++i) {
    const std::string layer = "decoder.transformer_layers." + std::to_string(i);
    norm(layer + ".layer_norm_1");
    norm(layer + ".layer_norm_2");
    attention(layer + ".self_attn");
    attention(layer + ".context_attn");
    feed_forward(layer + ".feed_forward");
  }
  norm("encoder.layer_norm");
  norm("decoder.layer_norm");
  linear("generator.0", target, width);
  return tensors;
}

// Writes <name>/config.json, model.safetensors and, with "preprocessing", spm.model.
inline void WriteTranslator(const TempDirectory& directory, const std::string& name,
                            const nlohmann::json& config, const TestTensors& tensors) {
  directory.Write(name + "/config.json", config.dump());
  directory.Write(name + "/model.safetensors", Safetensors(tensors));
  if (config.contains("preprocessing")) {
    directory.Write(name + "/spm.model", SmallTranslatorPieces().bytes());
  }
}

inline void WriteSmallTranslator(const TempDirectory& directory, const std::string& name) {
  WriteTranslator(directory, name, SmallTranslatorConfig(),
                  TranslatorTensors(SmallTranslatorConfig()));
}

}  // namespace sru::models

#endif  // SRU_TESTS_TESTING_TRANSLATOR_FILES_H_
