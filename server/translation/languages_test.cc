#include "server/translation/languages.h"

#include <memory>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "models/model.h"
#include "nlohmann/json.hpp"
#include "tests/testing/translator_files.h"

namespace sru::server::translation {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

int Match(const char* a, const char* b) { return MatchOf(KeyOf(a), KeyOf(b)); }

TEST(LanguagesTest, CodesOfTheSameLanguageMatch) {
  EXPECT_EQ(Match("en", "EN-US"), 2);
  EXPECT_EQ(Match("en-GB", "en"), 1);
  EXPECT_EQ(Match("pt_BR", "pt-br"), 2);
  EXPECT_EQ(Match("zh", "zh-Hans"), 2);
  EXPECT_EQ(Match("zh-TW", "zh-Hant"), 2);
  EXPECT_EQ(Match("zh-TW", "zh"), 0);
  EXPECT_EQ(Match("iw", "he"), 2);
  EXPECT_EQ(Match("no", "nb"), 2);
  EXPECT_EQ(Match("en", "de"), 0);
}

TEST(LanguagesTest, WhatIsNoCodeMatchesNothing) {
  for (const char* const code : {"", "1", "e n", "en;", "\xC3\xA9", "-"}) {
    EXPECT_TRUE(KeyOf(code).empty()) << code;
  }
  EXPECT_TRUE(KeyOf(std::string(100, 'a')).empty());
  EXPECT_EQ(MatchOf(KeyOf(""), KeyOf("")), 0);
}

TEST(LanguagesTest, Names) {
  EXPECT_EQ(LanguageName("de"), "German");
  EXPECT_EQ(LanguageName("PT-BR"), "Portuguese (Brazil)");
  EXPECT_TRUE(HasSpaces(KeyOf("de")));
  EXPECT_FALSE(HasSpaces(KeyOf("zh-Hant")));
}

// The registry's models, with these languages in their config.json.
class CatalogTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(kernels::CreateBackend("reference", {}, &backend_).ok()); }

  std::shared_ptr<lifecycle::ServedModel> Make(const std::string& name, const std::string& source,
                                               const std::string& target) {
    nlohmann::json config = models::SmallTranslatorConfig();
    config["translator"]["source_language"] = source;
    config["translator"]["target_language"] = target;
    models::WriteTranslator(directory_, name, config, models::TranslatorTensors(config));
    auto model = models::Model::Load(directory_.path(name), name, 1, *backend_, {});
    EXPECT_TRUE(model.ok()) << model.status();
    auto served = std::make_shared<lifecycle::ServedModel>();
    served->name = name;
    if (model.ok()) served->model = *std::move(model);
    return served;
  }

  models::TempDirectory directory_;
  std::unique_ptr<kernels::Backend> backend_;
};

TEST_F(CatalogTest, LeavesOutWhatNoCodeCanName) {
  lifecycle::ModelRegistry registry;
  registry.Replace({Make("a", "en", "zh-Hant"), Make("b", "!!", "de"), Make("c", "en", "f r"),
                    Make("d", "en", "")});
  const LanguageCatalog catalog(registry);
  EXPECT_THAT(catalog.Sources(), ElementsAre("en"));
  EXPECT_THAT(catalog.Targets(), ElementsAre("zh-Hant"));
}

TEST_F(CatalogTest, ShortensCodesOfThreeLetters) {
  lifecycle::ModelRegistry registry;
  registry.Replace(
      {Make("a", "eng", "deu"), Make("b", "ENG", "chi_Hant"), Make("c", "fil", "eng")});
  const LanguageCatalog catalog(registry);
  EXPECT_THAT(catalog.Sources(), ElementsAre("en", "fil"));
  EXPECT_THAT(catalog.Targets(), ElementsAre("de", "en", "zh-Hant"));
  EXPECT_EQ(catalog.FindCode(KeyOf("eng"), /*is_source=*/true), "en");
  EXPECT_THAT(catalog.TargetsOf("fil"), ElementsAre("de", "en", "zh-Hant"));
}

TEST_F(CatalogTest, AModelThatTheCallerMayUseGoesFirst) {
  lifecycle::ModelRegistry registry;
  registry.Replace({Make("a", "en", "de"), Make("b", "en", "de"), Make("c", "en", "fr")});
  const auto model = [](const LanguageCatalog& catalog, const char* target) {
    return catalog.Path(KeyOf("en"), KeyOf(target)).value().front().served->name;
  };
  EXPECT_EQ(model(LanguageCatalog(registry), "de"), "a");
  const LanguageCatalog limited(registry, [](absl::string_view name) { return name == "b"; });
  EXPECT_EQ(model(limited, "de"), "b");
  EXPECT_EQ(model(limited, "fr"), "c") << "the call says that it may not be used";
}

TEST_F(CatalogTest, SerboCroatianStandsForItsLanguages) {
  lifecycle::ModelRegistry registry;
  registry.Replace({Make("a", "hbs", "en"), Make("b", "hr", "en"), Make("c", "en", "hbs")});
  const LanguageCatalog catalog(registry);
  EXPECT_THAT(catalog.Sources(), ElementsAre("bs", "en", "hr", "sr-Latn"));
  EXPECT_THAT(catalog.Targets(), ElementsAre("en", "sr-Latn"));
  const auto model = [&](const char* source) {
    const auto path = catalog.Path(KeyOf(source), KeyOf("en"));
    return path.ok() ? path->front().served->name : "none";
  };
  for (const char* const code : {"hbs", "bs", "sr-Latn", "sh"}) EXPECT_EQ(model(code), "a") << code;
  EXPECT_EQ(model("hr"), "b") << "the model of the language itself goes first";
  EXPECT_EQ(model("sr"), "none");
  EXPECT_EQ(catalog.FindCode(KeyOf("bs"), /*is_source=*/true), "bs");
}

TEST(DetectionTest, FindsTheLanguage) {
  const auto english = DetectLanguages("The quick brown fox jumps over the lazy dog.");
  ASSERT_FALSE(english.empty());
  EXPECT_EQ(english[0].code, "en");
  EXPECT_GT(english[0].confidence, 50);
  const auto german = DetectLanguages(
      "Das ist ein kurzer deutscher Satz \xC3\xBC"
      "ber Hunde.");
  ASSERT_FALSE(german.empty());
  EXPECT_EQ(german[0].code, "de");
  EXPECT_THAT(DetectLanguages(""), IsEmpty());
  EXPECT_THAT(DetectLanguages("1 2 3"), IsEmpty());
  std::string cut(16 * 1024 - 1, 'a');
  EXPECT_THAT(DetectLanguages(cut + "\xC3\xA9").size(), ::testing::Le(3u));
}

}  // namespace
}  // namespace sru::server::translation
