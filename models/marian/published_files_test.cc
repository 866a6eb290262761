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

// Beside `names`, `content` is in the file `filled`.
absl::StatusOr<std::optional<PublishedFiles>> Find(const std::vector<std::string>& names,
                                                   const std::string& filled = "notes",
                                                   const std::string& content = "") {
  TempDirectory directory;
  for (const std::string& name : names) directory.Write(name, "x");
  directory.Write(filled, content);
  return FindPublishedFiles(directory.path());
}

PublishedFiles Found(const std::vector<std::string>& names, const std::string& filled = "notes",
                     const std::string& content = "") {
  auto files = Find(names, filled, content);
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
}

std::string Languages(const std::vector<std::string>& names, const std::string& filled = "notes",
                      const std::string& content = "") {
  const PublishedFiles files = Found(names, filled, content);
  return files.source_language + ">" + files.target_language;
}

TEST(PublishedFilesTest, TakesLanguagesFromTheWeightsThenTheShortlist) {
  const std::string model = ".intgemm.alphas.bin";
  EXPECT_EQ(Languages({"model.ende" + model + ".gz", "vocab.deen.spm.gz"}), "en>de");
  EXPECT_EQ(Languages({"model.enet" + model, "vocab.eten.spm", "lex.50.50.enet.s2t.bin"}), "en>et");
  EXPECT_EQ(Languages({"model.npz", "vocab.eten.spm", "lex.50.50.enet.s2t.bin"}), "en>et");
  EXPECT_EQ(
      Languages({"model.enzh_hant" + model, "srcvocab.enzh_hant.spm", "trgvocab.enzh_hant.spm"}),
      "en>zh-Hant");
  EXPECT_EQ(Languages({"model.zh_hanten" + model, "vocab.zh_hanten.spm"}), "zh-Hant>en");
  EXPECT_EQ(Languages({"model.hbsen" + model, "vocab.spm"}), "hbs>en");
  EXPECT_EQ(Languages({"model" + model, "srcvocab.enja.spm", "trgvocab.enja.spm"}), "en>ja");
  EXPECT_EQ(Languages({"model.npz", "vocab.deen.spm"}), "de>en");
  for (const char* name :
       {"model.english.npz", "model.en.npz", "model.gen.npz", "model.enzh_han.npz",
        "model.enzh_hant_tw.npz", "model.enDE.npz", "model..npz"}) {
    EXPECT_EQ(Languages({name, "vocab.spm"}), ">") << name;
  }
}

TEST(PublishedFilesTest, FourLettersWithoutEnglishMayBeAWord) {
  EXPECT_EQ(Languages({"model.defr.npz", "vocab.frde.spm"}), "de>fr");
  EXPECT_EQ(Languages({"model.defr.npz", "srcvocab.defr.spm", "trgvocab.defr.spm"}), "de>fr");
  EXPECT_EQ(Languages({"model.npz", "vocab.defr.spm"}), "de>fr");
  EXPECT_EQ(Languages({"model.best.npz", "vocab.ende.spm"}), "en>de");
  EXPECT_EQ(Languages({"model.base.npz", "vocab.spm", "lex.defr.bin"}), ">");
}

TEST(PublishedFilesTest, BergamotsVocabularyDoesNotTellTheDirection) {
  const std::vector<std::string> names = {"model.intgemm.alphas.bin", "vocab.deen.spm",
                                          "lex.s2t.bin", "config.intgemm8bitalpha.yml"};
  EXPECT_EQ(Languages(names), ">");
  const auto with_info = [&](const std::string& info) {
    return Languages(names, "model_info.json", info);
  };
  EXPECT_EQ(with_info("{\n    \"modelName\": \"English-German tiny\",\n"
                      "\t\"shortName\": \"en-de-tiny\",\n    \"srcTags\": {\"en\": \"English\"},\n"
                      "    \"version\": 1,\n    \"API\": 1.0\n}\n"),
            "en>de");
  EXPECT_EQ(with_info(R"({"shortName":"de-en-base","type":"base"})"), "de>en");
  for (const char* info : {"", "{", "[]", "{}", R"({"shortName": 1})", R"({"shortName": "en"})",
                           R"({"shortName": ["en-de"], "shortName": {}})", R"({"shortName": {}})",
                           R"({"shortName": "English-German"})"}) {
    EXPECT_EQ(with_info(info), ">") << info;
  }
}

TEST(PublishedFilesTest, TheSearchFileNamesOneOfSeveral) {
  const std::vector<std::string> names = {"model.npz",    "vocab.de.spm", "vocab.en.spm.gz",
                                          "vocab.fr.spm", "lex.a.bin",    "lex.b.bin"};
  const PublishedFiles files = Found(
      names, "decoder.yml",
      "vocabs:\n  - /tmp/train/vocab.en.spm\n  - vocab.de.spm\nshortlist: [x/lex.b.bin, 50, 50]\n");
  EXPECT_EQ(files.source_vocabulary, "vocab.en.spm.gz");
  EXPECT_EQ(files.target_vocabulary, "vocab.de.spm");
  EXPECT_EQ(files.shortlist, "lex.b.bin");
  EXPECT_TRUE(
      Found(names, "decoder.yml", "vocabs: [vocab.fr.spm, vocab.fr.spm]\nshortlist: lex.a.bin")
          .shares_vocabulary());
  const auto error = [&](const std::string& yaml) {
    return std::string(Find(names, "decoder.yml", yaml).status().message());
  };
  for (const char* yaml :
       {"beam-size: 4", "vocabs: vocab.de.spm", "vocabs: [vocab.de.spm, a.spm]"}) {
    EXPECT_THAT(error(yaml), HasSubstr("expected one vocab*.spm, found 'vocab.de.spm', "));
  }
  EXPECT_THAT(error("vocabs: [vocab.de.spm, vocab.fr.spm]"), HasSubstr("expected one lex*.bin"));
  EXPECT_THAT(error("vocabs"), HasSubstr("decoder.yml: expected a YAML map"));
}

TEST(PublishedFilesTest, NamesTellTwoVocabulariesApart) {
  const auto vocabularies = [](const std::vector<std::string>& names) {
    const PublishedFiles files = Found(names);
    return files.source_vocabulary + ">" + files.target_vocabulary;
  };
  EXPECT_EQ(vocabularies({"model.bin", "vocab.src.spm", "vocab.trg.spm"}),
            "vocab.src.spm>vocab.trg.spm");
  EXPECT_EQ(vocabularies({"model.npz", "vocab.target.spm.gz", "vocab.source.spm.gz"}),
            "vocab.source.spm.gz>vocab.target.spm.gz");
  const std::vector<std::string> apart = {"model.ende.intgemm8.bin", "vocab.de.spm",
                                          "vocab.en.spm"};
  EXPECT_EQ(vocabularies(apart), "vocab.en.spm>vocab.de.spm");
  EXPECT_EQ(Languages(apart), "en>de");
  const std::vector<std::string> without_english = {"model.npz.gz", "model.npz.best-bleu.npz.gz",
                                                    "lex.50.50.frde.s2t.bin", "vocab.de.spm",
                                                    "vocab.fr.spm"};
  EXPECT_EQ(vocabularies(without_english), "vocab.fr.spm>vocab.de.spm");
  EXPECT_EQ(Languages(without_english), "fr>de");
  EXPECT_EQ(Found(without_english).weights, "model.npz.gz");
  // The weights' name counts more than those of shortlists, of which each direction may have one.
  const std::vector<std::string> both_ways = {"model.ende.npz", "lex.deen.bin", "vocab.de.spm",
                                              "vocab.en.spm"};
  EXPECT_EQ(vocabularies(both_ways), "vocab.en.spm>vocab.de.spm");
  EXPECT_THAT(Error({"model.npz", "vocab.de.spm", "vocab.en.spm"}),
              HasSubstr("expected one vocab"));
  EXPECT_THAT(Error({"model.npz", "lex.deen.bin", "lex.ende.bin", "vocab.de.spm", "vocab.en.spm"}),
              HasSubstr("expected one vocab"));
}

TEST(PublishedFilesTest, TheSearchFileNamesOneOfSeveralWeights) {
  const std::vector<std::string> names = {"model.npz", "model.npz.best-bleu.npz", "vocab.spm"};
  EXPECT_EQ(Found(names, "decoder.yml", "models: [/tmp/train/model.npz.best-bleu.npz]").weights,
            "model.npz.best-bleu.npz");
  EXPECT_EQ(Found(names, "decoder.yml", "models: [elsewhere.npz]").weights, "model.npz");
  EXPECT_EQ(Found({"model.a.bin", "model.b.bin.gz", "vocab.spm"}, "config.x.yml",
                  "models:\n  - model.b.bin\n")
                .weights,
            "model.b.bin.gz");
}

TEST(PublishedFilesTest, PrefersWhatIsNotCompressed) {
  const PublishedFiles files =
      Found({"model.bin", "model.bin.gz", "vocab.spm", "vocab.spm.gz", "lex.bin", "lex.bin.gz"});
  EXPECT_THAT(files.names(), ElementsAre("model.bin", "vocab.spm", "lex.bin"));
}

TEST(PublishedFilesTest, FindsTheSearchFileOfCompressedFiles) {
  const auto search = [](const std::vector<std::string>& names) { return Found(names).search; };
  EXPECT_EQ(search({"model.npz.gz", "vocab.spm.gz", "model.npz.decoder.yml"}),
            "model.npz.decoder.yml");
  EXPECT_EQ(search({"model.npz.gz", "vocab.spm.gz", "model.npz.decoder.yml.gz"}),
            "model.npz.decoder.yml.gz");
  EXPECT_EQ(search({"model.bin.gz", "vocab.spm.gz", "decoder.yml.gz"}), "decoder.yml.gz");
  EXPECT_EQ(search({"model.bin.gz", "vocab.spm.gz", "config.a.yml.gz"}), "config.a.yml.gz");
  EXPECT_EQ(search({"model.bin", "vocab.spm", "config.yml", "config.yml.gz"}), "config.yml");
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
