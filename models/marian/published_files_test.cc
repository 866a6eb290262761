#include "models/marian/published_files.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/test_files.h"

namespace sru::models {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

absl::StatusOr<std::optional<PublishedFiles>> Find(const std::vector<std::string>& names) {
  TempDirectory directory;
  for (const std::string& name : names) directory.Write(name, "x");
  return FindPublishedFiles(directory.path());
}

PublishedFiles Found(const std::vector<std::string>& names) {
  auto files = Find(names);
  EXPECT_TRUE(files.ok()) << files.status();
  EXPECT_TRUE(files.ok() && files->has_value());
  return files.ok() ? files->value_or(PublishedFiles()) : PublishedFiles();
}

std::string Error(const std::vector<std::string>& names) {
  return std::string(Find(names).status().message());
}

TEST(PublishedFilesTest, KnowsFirefoxsNames) {
  const PublishedFiles files = Found({"lex.50.50.ende.s2t.bin.gz", "metadata.json",
                                      "model.ende.intgemm.alphas.bin.gz", "vocab.ende.spm.gz"});
  EXPECT_EQ(files.weights, "model.ende.intgemm.alphas.bin.gz");
  EXPECT_EQ(files.source_vocabulary, "vocab.ende.spm.gz");
  EXPECT_TRUE(files.shares_vocabulary());
  EXPECT_EQ(files.shortlist, "lex.50.50.ende.s2t.bin.gz");
  EXPECT_EQ(files.search, "");
  EXPECT_EQ(files.source_language, "en");
  EXPECT_EQ(files.target_language, "de");
  EXPECT_THAT(files.names(), ElementsAre("model.ende.intgemm.alphas.bin.gz", "vocab.ende.spm.gz",
                                         "lex.50.50.ende.s2t.bin.gz"));
}

TEST(PublishedFilesTest, KnowsVocabulariesApart) {
  const PublishedFiles files =
      Found({"model.enzh.intgemm8.bin", "srcvocab.enzh.spm", "trgvocab.enzh.spm", "config.yml"});
  EXPECT_EQ(files.source_vocabulary, "srcvocab.enzh.spm");
  EXPECT_EQ(files.target_vocabulary, "trgvocab.enzh.spm");
  EXPECT_FALSE(files.shares_vocabulary());
  EXPECT_EQ(files.search, "config.yml");
  EXPECT_EQ(files.target_language, "zh");
  EXPECT_THAT(files.names(), ElementsAre("model.enzh.intgemm8.bin", "srcvocab.enzh.spm",
                                         "trgvocab.enzh.spm", "config.yml"));
}

TEST(PublishedFilesTest, KnowsMariansNames) {
  const PublishedFiles files =
      Found({"model.npz", "model.npz.best-bleu.npz", "model.npz.optimizer.npz", "model.npz.yml",
             "model.npz.decoder.yml", "config.yml", "vocab.spm"});
  EXPECT_EQ(files.weights, "model.npz");
  EXPECT_EQ(files.search, "model.npz.decoder.yml");
  EXPECT_EQ(files.source_language, "");
  EXPECT_EQ(Found({"model.best.npz", "vocab.spm"}).source_language, "")
      << "four letters that the vocabulary has not";
}

TEST(PublishedFilesTest, PrefersFloatWeightsThenMultipliers) {
  const PublishedFiles both = Found({"model.npz", "model.ende.intgemm.alphas.bin",
                                     "model.intgemm8.bin", "vocab.ende.spm", "lex.50.50.ende.bin"});
  EXPECT_EQ(both.weights, "model.npz");
  EXPECT_EQ(both.source_language, "en");
  EXPECT_EQ(both.target_language, "de");
  EXPECT_EQ(
      Found({"model.alphas.npz", "model.intgemm8.bin", "model.intgemm.alphas.bin.gz", "vocab.spm"})
          .weights,
      "model.intgemm.alphas.bin.gz");
  EXPECT_EQ(Found({"model.deen.intgemm.alphas.bin", "vocab.ende.spm"}).source_language, "");
}

TEST(PublishedFilesTest, PrefersWhatIsNotCompressed) {
  const PublishedFiles files =
      Found({"model.bin", "model.bin.gz", "vocab.spm", "vocab.spm.gz", "lex.bin", "lex.bin.gz"});
  EXPECT_THAT(files.names(), ElementsAre("model.bin", "vocab.spm", "lex.bin"));
}

TEST(PublishedFilesTest, FindsNothingInOtherFolders) {
  for (const std::vector<std::string>& names : {std::vector<std::string>{},
                                                {"config.json", "model.safetensors", "spm.model"},
                                                {"vocab.spm"},
                                                {"weights.npz", "vocab.spm"}}) {
    const auto files = Find(names);
    ASSERT_TRUE(files.ok()) << files.status();
    EXPECT_FALSE(files->has_value());
  }
  EXPECT_FALSE(FindPublishedFiles(std::string("no/such/folder")).value().has_value());
}

TEST(PublishedFilesTest, SaysWhatIsMissingOrAmbiguous) {
  EXPECT_THAT(Error({"model.npz"}), HasSubstr("expected vocab*.spm, or srcvocab*.spm and "
                                              "trgvocab*.spm, beside 'model.npz', found none"));
  EXPECT_THAT(Error({"model.npz", "srcvocab.spm"}), HasSubstr("found others"));
  EXPECT_THAT(Error({"model.npz", "vocab.spm", "srcvocab.spm", "trgvocab.spm"}),
              HasSubstr("found others"));
  EXPECT_THAT(Error({"model.a.bin", "model.b.bin", "vocab.spm"}),
              HasSubstr("found 'model.a.bin', 'model.b.bin'"));
  EXPECT_THAT(Error({"model.npz", "vocab.a.spm", "vocab.b.spm"}),
              HasSubstr("expected one vocab*.spm, found 'vocab.a.spm', 'vocab.b.spm'"));
  EXPECT_THAT(Error({"model.npz", "vocab.spm", "lex.a.bin", "lex.b.bin"}),
              HasSubstr("expected one lex*.bin"));
}

}  // namespace
}  // namespace sru::models
