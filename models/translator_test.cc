#include "models/translator.h"

#include <unistd.h>

#include <memory>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/model.h"
#include "tests/testing/translator_files.h"

namespace sru::models {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class TranslatorTest : public ::testing::Test {
 protected:
  TranslatorTest() { EXPECT_TRUE(kernels::CreateBackend("reference", &backend_).ok()); }

  absl::StatusOr<std::shared_ptr<const Model>> Load() {
    WriteTranslator(directory_, "m", config_, tensors_);
    if (pieces_ != "") directory_.Write("m/spm.model", pieces_);
    return Model::Load(directory_.path("m"), "m", 3, *backend_, kernels::CompileOptions());
  }

  std::string Error() {
    auto model = Load();
    return model.ok() ? "" : std::string(model.status().message());
  }

  TempDirectory directory_;
  nlohmann::json config_ = SmallTranslatorConfig();
  TestTensors tensors_ = TranslatorTensors(SmallTranslatorConfig());
  std::string pieces_;  // in place of SmallTranslatorPieces()
  std::unique_ptr<kernels::Backend> backend_;
};

// Weights of a linear map.
int64_t Linear(int64_t outputs, int64_t inputs) { return outputs * inputs + outputs; }

TEST_F(TranslatorTest, Loads) {
  auto loaded = Load();
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const Model& model = **loaded;
  EXPECT_EQ(model.task(), Task::kTranslator);
  EXPECT_FALSE(model.is_unidirectional());
  EXPECT_EQ(model.language_model(), nullptr);
  EXPECT_EQ(model.reader(), nullptr);
  ASSERT_NE(model.translator(), nullptr);
  const Translator& translator = *model.translator();
  EXPECT_EQ(translator.max_candidates, 11);
  EXPECT_EQ(translator.layers.size(), 1u);
  EXPECT_EQ(translator.program.fields[translator.layers[0].c].width, 12);
  EXPECT_FALSE(translator.program.fields[translator.layers[0].c].grows);
  EXPECT_TRUE(translator.program.fields[translator.layers[0].context_keys].grows);
  ASSERT_NE(model.tokenizer(), nullptr);
  EXPECT_NE(model.tokenizer()->detokenizer(), nullptr);
  const int64_t attention = 4 * Linear(8, 8);
  const int64_t feed_forward = 16 + 8 * 36 + 24 + 24 + Linear(8, 12);
  EXPECT_EQ(model.parameter_count(), 11 * 8 + 2 * (16 + attention + feed_forward) + 2 * 16 +
                                         (32 + 2 * attention + feed_forward) + Linear(11, 8));
}

TEST_F(TranslatorTest, HasEveryOption) {
  config_["translator"]["encoder_layers"] = 1;
  config_["translator"]["decoder_layers"] = 3;
  config_["translator"]["bidirectional_encoder"] = true;
  config_["translator"]["shared_embeddings"] = false;
  config_["translator"]["target_vocabulary"] = 90;
  config_.erase("preprocessing");
  tensors_ = TranslatorTensors(config_);
  auto loaded = Load();
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ((*loaded)->tokenizer(), nullptr);
  EXPECT_EQ((*loaded)->translator()->layers.size(), 3u);
  EXPECT_EQ((*loaded)->translator()->max_candidates, kMaxBeam);
}

TEST_F(TranslatorTest, NamesTheTensorThatIsWrong) {
  const TestTensors tensors = tensors_;
  tensors_.erase("decoder.transformer_layers.0.context_attn.linear_query.bias");
  EXPECT_THAT(Error(), HasSubstr("decoder.transformer_layers.0.context_attn.linear_query.bias"));
  tensors_ = tensors;
  tensors_["generator.0.weight"] = MakeTensor({8, 11});
  EXPECT_THAT(Error(),
              AllOf(HasSubstr("generator.0.weight"), HasSubstr("[11, 8]"), HasSubstr("[8, 11]")));
  tensors_ = tensors;
  tensors_["encoder.embeddings.make_embedding.emb_luts.0.weight"] = MakeTensor({12, 8});
  EXPECT_THAT(Error(), HasSubstr("encoder.embeddings.make_embedding.emb_luts.0.weight"));
  tensors_ = tensors;
  // A second table beside shared ones, and a layer too many.
  tensors_["decoder.embeddings.make_embedding.emb_luts.0.weight"] = MakeTensor({11, 8});
  EXPECT_THAT(Error(), HasSubstr("'decoder.embeddings.make_embedding.emb_luts.0.weight' of shape "
                                 "[11, 8] is not part of a model with this config.json"));
  tensors_ = tensors;
  tensors_["encoder.transformer.2.layer_norm.bias"] = MakeTensor({8});
  EXPECT_THAT(Error(), HasSubstr("encoder.transformer.2.layer_norm.bias"));
}

TEST_F(TranslatorTest, ThePiecesAreThoseOfTheModel) {
  testing::SentencePieceFile pieces = SmallTranslatorPieces();
  pieces.pieces.push_back({"bb", -7.0f});
  pieces_ = pieces.bytes();
  EXPECT_THAT(Error(), HasSubstr("m/spm.model: expected 11 pieces (translator.source_vocabulary in "
                                 "config.json), found 12"));
  pieces = SmallTranslatorPieces();
  std::swap(pieces.pieces[0], pieces.pieces[1]);
  pieces_ = pieces.bytes();
  EXPECT_THAT(Error(), HasSubstr("m/spm.model: expected the unknown piece with the id 1 "
                                 "(translator.unk_id in config.json), found '<pad>'"));
  pieces = SmallTranslatorPieces();
  pieces.pieces[3] = {"ca", -5.0f};
  pieces_ = pieces.bytes();
  EXPECT_THAT(Error(), HasSubstr("expected a control piece with the id 3 (translator.eos_id in "
                                 "config.json), found 'ca'"));
  pieces_ = "text";
  EXPECT_THAT(Error(), HasSubstr("m/spm.model: "));
}

TEST_F(TranslatorTest, NeedsTheFileOfThePieces) {
  WriteSmallTranslator(directory_, "n");
  ASSERT_EQ(unlink(directory_.path("n/spm.model").c_str()), 0);
  const auto model =
      Model::Load(directory_.path("n"), "n", 1, *backend_, kernels::CompileOptions());
  EXPECT_EQ(model.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(model.status().message()), HasSubstr("n/spm.model"));
}

}  // namespace
}  // namespace sru::models
