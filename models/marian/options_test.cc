#include "models/marian/options.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/marian_files.h"

namespace sru::models {
namespace {

using ::testing::HasSubstr;

// The message of options in which `key` has another value; none for "".
std::string ErrorWith(const std::string& key, const std::string& value) {
  return std::string(ParseMarianOptions(testing::MarianOptionsText({{key, value}}), "model.npz")
                         .status()
                         .message());
}

TEST(MarianOptionsTest, ReadsSizes) {
  auto options = ParseMarianOptions(testing::MarianOptionsText({}), "model.npz");
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->width, 8);
  EXPECT_EQ(options->ffn, 12);
  EXPECT_EQ(options->heads, 2);
  EXPECT_EQ(options->encoder_layers, 2);
  EXPECT_EQ(options->decoder_layers, 1);
  EXPECT_EQ(options->source_vocabulary, 270);
  EXPECT_EQ(options->target_vocabulary, 270);
  EXPECT_TRUE(options->one_table);
  EXPECT_EQ(options->alignment_layer, 0);
  options =
      ParseMarianOptions(testing::MarianOptionsText({{"tied-embeddings-all", "false"},
                                                     {"tied-embeddings", "true"},
                                                     {"dim-vocabs", "[3, 4]"},
                                                     {"dec-depth", "4"},
                                                     {"transformer-guided-alignment-layer", "2"}}),
                         "model.npz");
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_FALSE(options->one_table);
  EXPECT_EQ(options->source_vocabulary, 3);
  EXPECT_EQ(options->target_vocabulary, 4);
  EXPECT_EQ(options->alignment_layer, 1);
}

TEST(MarianOptionsTest, IgnoresWhatOtherModelsHave) {
  for (const char* key :
       {"dec-cell-base-depth", "dec-cell-high-depth", "enc-cell", "enc-cell-depth", "enc-type",
        "dim-rnn", "skip", "transformer-aan-depth", "version"}) {
    EXPECT_EQ(ErrorWith(key, "anything"), "") << key;
  }
}

TEST(MarianOptionsTest, RefusesByNameWhatChangesTheGraph) {
  const std::pair<const char*, const char*> cases[] = {
      {"type", "s2s"},
      {"transformer-decoder-autoreg", "self-attention"},
      {"dec-cell", "gru"},
      {"transformer-tied-layers", "[1, 1]"},
      {"transformer-rnn-projection", "true"},
      {"transformer-no-projection", "true"},
      {"transformer-no-affine", "true"},
      {"transformer-no-bias", "true"},
      {"transformer-preprocess", "n"},
      {"transformer-postprocess", "da"},
      {"transformer-postprocess", "dar"},
      {"transformer-postprocess-emb", "nd"},
      {"transformer-postprocess-top", "n"},
      {"layer-normalization", "true"},
      {"transformer-ffn-activation", "swish"},
      {"transformer-ffn-depth", "3"},
      {"transformer-decoder-dim-ffn", "13"},
      {"transformer-decoder-ffn-depth", "1"},
      {"transformer-train-position-embeddings", "true"},
      {"transformer-disable-position-embeddings", "true"},
      {"transformer-attention-mask", "alibi"},
      {"transformer-pool", "true"},
      {"transformer-depth-scaling", "true"},
      {"output-omit-bias", "true"},
      {"lemma-dim-emb", "8"},
      {"factors-dim-emb", "8"},
      {"right-left", "true"},
      {"transformer-heads", "3"},
      {"dim-emb", "7"},
      {"dim-emb", "100000"},
      {"enc-depth", "0"},
      {"dim-vocabs", "[270]"},
      {"dim-vocabs", "[270, 271]"},
      {"dim-vocabs", "[0, 0]"},
      {"transformer-guided-alignment-layer", "2"},
  };
  for (const auto& [key, value] : cases) {
    EXPECT_THAT(ErrorWith(key, value),
                HasSubstr(std::string("model.npz: special:model.yml: key '") + key + "'"))
        << value;
  }
  EXPECT_THAT(ErrorWith("tied-embeddings-all", "false"), HasSubstr("key 'tied-embeddings'"));
  EXPECT_EQ(ErrorWith("transformer-decoder-dim-ffn", "12"), "") << "as in the encoder";
  EXPECT_EQ(ErrorWith("transformer-decoder-ffn-depth", "2"), "");
  EXPECT_EQ(ErrorWith("transformer-postprocess", "an"), "") << "trained without dropout";
  EXPECT_EQ(ErrorWith("transformer-preprocess", "d"), "");
}

TEST(MarianOptionsTest, RefusesOptionsThatAreMissing) {
  for (const char* key : {"type", "dec-cell", "transformer-decoder-autoreg", "dim-emb", "enc-depth",
                          "dec-depth", "transformer-heads", "transformer-dim-ffn", "dim-vocabs",
                          "transformer-postprocess", "transformer-ffn-activation"}) {
    EXPECT_THAT(ErrorWith(key, ""), HasSubstr(std::string("key '") + key + "': expected a value"))
        << key;
  }
}

TEST(MarianOptionsTest, ReadsTheSearch) {
  MarianSearch search;
  EXPECT_TRUE(ReadMarianSearch(
                  "beam-size: 12\nnormalize: 0.6\nword-penalty: -0.5\nmax-length-factor: "
                  "3\nmax-length-break: 64\n"
                  "allow-unk: true\nshortlist:\n  - some/lex.bin\n  - false\nmodels: [model.npz]\n",
                  "decoder.yml", &search)
                  .ok());
  EXPECT_EQ(search.beam_size, 12);
  EXPECT_EQ(search.normalize, 0.6);
  EXPECT_EQ(search.word_penalty, -0.5);
  EXPECT_EQ(search.max_length_factor, 3);
  EXPECT_EQ(search.max_length_break, 64);
  EXPECT_TRUE(search.allow_unk);
  EXPECT_FALSE(search.allow_special);
  EXPECT_EQ(search.shortlist, "lex.bin");
  EXPECT_THAT(ReadMarianSearch("max-length-factor: 0", "decoder.yml", &search).message(),
              HasSubstr("key 'max-length-factor': expected a number above 0"));
  EXPECT_THAT(ReadMarianSearch("models: [a.npz, b.npz]", "decoder.yml", &search).message(),
              HasSubstr("key 'models': expected one"));
  EXPECT_THAT(ReadMarianSearch("beam-size: 100", "decoder.yml", &search).message(),
              HasSubstr("decoder.yml: key 'beam-size': expected an integer from 1 to 64"));
}

}  // namespace
}  // namespace sru::models
