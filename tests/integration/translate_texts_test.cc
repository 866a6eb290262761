// Texts through the routes of DeepL's and LibreTranslate's APIs with small random translators: the
// translations are those of Translate, sentence by sentence, and what stands between sentences
// stays; languages, detection, two models one after the other; tokens; what is refused.
#include <sys/stat.h>

#include <algorithm>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "google/protobuf/stubs/logging.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/integration/server_fixture.h"
#include "tests/testing/poll.h"
#include "tests/testing/translator_files.h"

namespace sru::testing {
namespace {

using ::nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// German and English in both directions, and English to French (of Canada) and Portuguese.
class TextsRepository {
 public:
  TextsRepository() {
    Write("de_en", "de", "en", 1);
    Write("en_de", "en", "de", 2);
    Write("en_fr", "en", "fr-CA", 3);
    Write("en_pt", "en", "pt-BR", 4);
    Write("nameless", "", "", 5);
    directory_.Write("tokens", "tester 0123456789abcdef0123456789abcdef\n");
  }
  std::string path(const std::string& name = "") const { return directory_.path(name); }

 private:
  void Write(const std::string& name, const std::string& source, const std::string& target,
             uint32_t seed) {
    json config = models::SmallTranslatorConfig();
    config["translator"]["source_language"] = source;
    config["translator"]["target_language"] = target;
    models::TestTensors tensors = models::TranslatorTensors(config, seed);
    // No translation is empty: the four special pieces are improbable, the end among them.
    std::vector<float>& bias = tensors["generator.0.bias"].values;
    std::fill_n(bias.begin(), 4, -100.0f);
    // Translations differ more.
    for (float& weight :
         tensors["decoder.transformer_layers.0.context_attn.final_linear.weight"].values) {
      weight *= 8;
    }
    models::WriteTranslator(directory_, "models/" + name + "/1", config, tensors);
  }

  models::TempDirectory directory_;
};

HttpResponse Send(int port, const std::string& method, const std::string& path,
                  const std::string& type, const std::string& body,
                  const std::string& headers = "") {
  return HttpExchange(
      port, absl::StrCat(method, " ", path, " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n",
                         type.empty() ? "" : absl::StrCat("Content-Type: ", type, "\r\n"), headers,
                         "Content-Length: ", body.size(), "\r\n\r\n", body));
}

constexpr char kJson[] = "application/json";
constexpr char kForm[] = "application/x-www-form-urlencoded";

class TranslateTextsTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    google::protobuf::SetLogHandler(nullptr);
    repository_ = new TextsRepository();
    server::Options options = TestOptions(repository_->path("models"));
    options.rpc.limits.max_sequence_tokens = 24;
    server_ = new RunningServer(options);
  }
  static void TearDownTestSuite() {
    delete std::exchange(server_, nullptr);
    delete std::exchange(repository_, nullptr);
  }
  void TearDown() override { server_->ExpectIdle(); }

  static int port() { return server_->http_port(); }
  // The best translation of one sentence, by the call.
  static std::string Sentence(const std::string& model, const std::string& text) {
    v1::TranslateRequest request;
    v1::TranslateResponse response;
    request.set_model(model);
    request.add_sequences()->set_text(text);
    const grpc::Status status = server_->Call(request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response.translations_size() == 0 ? "" : response.translations(0).hypotheses(0).text();
  }
  static json Post(const std::string& path, const json& body, int status = 200) {
    const HttpResponse response = Send(port(), "POST", path, kJson, body.dump());
    EXPECT_EQ(response.status, status) << response.body;
    return json::parse(response.body, nullptr, /*allow_exceptions=*/false);
  }
  static std::vector<std::string> DeepL(const json& body) {
    std::vector<std::string> texts;
    const json answer = Post("/v2/translate", body);
    for (const json& text : answer["translations"]) texts.push_back(text["text"]);
    return texts;
  }
  static std::string DeepLError(const json& body) {
    return Post("/v2/translate", body, 400)["message"];
  }

  static inline TextsRepository* repository_ = nullptr;
  static inline RunningServer* server_ = nullptr;
};

TEST_F(TranslateTextsTest, SentencesAreTranslatedAndWhiteSpaceStays) {
  const std::string first = Sentence("en_de", "A b c.");
  const std::string second = Sentence("en_de", "Cab a!");
  ASSERT_FALSE(first.empty());
  EXPECT_THAT(
      DeepL({{"text", {" A b c.  Cab a!\n\nA b c.\t", "Cab a!", " ", ""}},
             {"target_lang", "DE"},
             {"source_lang", "EN"}}),
      ElementsAre(absl::StrCat(" ", first, "  ", second, "\n\n", first, "\t"), second, " ", ""));
  EXPECT_THAT(DeepL({{"text", {"A b c. Cab a!"}},
                     {"target_lang", "de"},
                     {"source_lang", "en"},
                     {"split_sentences", "0"}}),
              ElementsAre(Sentence("en_de", "A b c. Cab a!")));
  EXPECT_THAT(DeepL({{"text", {"a\nb. C"}},
                     {"target_lang", "de"},
                     {"source_lang", "en"},
                     {"split_sentences", "nonewlines"}}),
              ElementsAre(absl::StrCat(Sentence("en_de", "a b."), " ", Sentence("en_de", "C"))));
}

TEST_F(TranslateTextsTest, FormsSayWhatJsonSays) {
  const HttpResponse response =
      Send(port(), "POST", "/v2/translate", kForm,
           "text=A+b%20c.&text=&target_lang=DE&source_lang=en-GB&show_billed_characters=1");
  EXPECT_EQ(response.status, 200) << response.body;
  EXPECT_EQ(json::parse(response.body), Post("/v2/translate", {{"text", {"A b c.", ""}},
                                                               {"target_lang", "DE"},
                                                               {"source_lang", "EN"},
                                                               {"show_billed_characters", true}}));
  EXPECT_EQ(json::parse(response.body)["translations"][0]["billed_characters"], 6);
}

TEST_F(TranslateTextsTest, LongSentencesAreCut) {
  std::string text;
  for (int i = 0; i < 40; ++i) text += i % 7 == 0 ? "cab " : "a ";
  // Each part is at most 24 tokens long, and is translated by itself; cut off would be all but one.
  const std::vector<std::string> texts =
      DeepL({{"text", {text}}, {"target_lang", "de"}, {"source_lang", "en"}});
  ASSERT_THAT(texts, SizeIs(1));
  const size_t half = text.size() / 2;
  ASSERT_NE(text[half], ' ');
  EXPECT_THAT(texts[0], ::testing::Ne(Sentence("en_de", "a")));
  EXPECT_GE(absl::StrJoin(texts, "").size(), 3u);
}

TEST_F(TranslateTextsTest, WithoutADirectModelTextsGoThroughEnglish) {
  const std::string english = Sentence("de_en", "A b c.");
  const std::vector<std::string> texts =
      DeepL({{"text", {"A b c."}}, {"target_lang", "FR"}, {"source_lang", "DE"}});
  json again = {{"text", {english}}, {"target_lang", "FR"}, {"source_lang", "EN"}};
  EXPECT_EQ(texts, DeepL(again));
  // The same language: the text itself.
  EXPECT_THAT(DeepL({{"text", {"A b."}}, {"target_lang", "DE"}, {"source_lang", "DE"}}),
              ElementsAre("A b."));
}

TEST_F(TranslateTextsTest, Languages) {
  const auto codes = [](const HttpResponse& response) {
    std::vector<std::string> found;
    EXPECT_EQ(response.status, 200) << response.body;
    for (const json& language : json::parse(response.body)) found.push_back(language["language"]);
    return found;
  };
  EXPECT_THAT(codes(HttpGet(port(), "/v2/languages")), ElementsAre("DE", "EN"));
  EXPECT_THAT(codes(HttpGet(port(), "/v2/languages?type=target")),
              ElementsAre("DE", "EN", "FR-CA", "PT-BR"));
  EXPECT_THAT(codes(Send(port(), "POST", "/v2/languages", kForm, "type=target")), SizeIs(4));
  EXPECT_THAT(codes(Send(port(), "GET", "/v2/languages", kForm, "type=target")), SizeIs(4));
  EXPECT_EQ(HttpGet(port(), "/v2/languages?type=x").status, 400);
  const json all = json::parse(HttpGet(port(), "/languages").body);
  ASSERT_THAT(all, SizeIs(2));
  EXPECT_EQ(all[0],
            json({{"code", "de"}, {"name", "German"}, {"targets", {"en", "fr-CA", "pt-BR"}}}));
  EXPECT_EQ(all[1]["targets"], json({"de", "fr-CA", "pt-BR"}));
  // What is not read is not waited for.
  EXPECT_EQ(json::parse(Send(port(), "GET", "/languages", "text/plain", "api_key=x").body), all);
}

TEST_F(TranslateTextsTest, TheSourceIsFoundInTheText) {
  const json answer =
      Post("/v2/translate", {{"text",
                              {"Das ist ein kurzer deutscher Satz, der nichts sagt.",
                               "This is a short English sentence which says nothing."}},
                             {"target_lang", "PT"}});
  EXPECT_EQ(answer["translations"][0]["detected_source_language"], "DE");
  EXPECT_EQ(answer["translations"][1]["detected_source_language"], "EN");
  const json found = Post("/detect", {{"q", "Das ist ein kurzer deutscher Satz."}});
  EXPECT_EQ(found[0]["language"], "de");
  EXPECT_GT(found[0]["confidence"], 50);
  // Languages of no model as well; a text in the target's language stays as it is.
  const std::string portuguese = "Esta frase curta foi escrita em portugu\xC3\xAAs por uma pessoa.";
  EXPECT_EQ(Post("/detect", {{"q", portuguese}})[0]["language"], "pt-BR");
  EXPECT_EQ(Post("/detect", {{"q",
                              "\xD0\xAD\xD1\x82\xD0\xBE \xD1\x80\xD1\x83\xD1\x81\xD1\x81"
                              "\xD0\xBA\xD0\xB8\xD0\xB9 \xD1\x82\xD0\xB5\xD0\xBA\xD1\x81"
                              "\xD1\x82"}})[0]["language"],
            "ru");
  EXPECT_THAT(DeepL({{"text", {portuguese}}, {"target_lang", "PT"}}), ElementsAre(portuguese));
  // Nothing can be told: English.
  EXPECT_EQ(Post("/detect", {{"q", "1"}}), json::array({{{"language", "en"}, {"confidence", 0}}}));
}

TEST_F(TranslateTextsTest, FieldsThatTheServerDoesNotKnowAreIgnored) {
  const json other = {{"a", {nullptr, {{"b", 1}}}}};
  EXPECT_THAT(DeepL({{"text", {"A b c."}},
                     {"target_lang", "de"},
                     {"source_lang", "en"},
                     {"x", other},
                     {"y", {other}}}),
              ElementsAre(Sentence("en_de", "A b c.")));
  EXPECT_EQ(Post("/translate", {{"q", "A b c."}, {"source", "en"}, {"target", "de"}, {"x", other}}),
            json({{"translatedText", Sentence("en_de", "A b c.")}}));
}

TEST_F(TranslateTextsTest, LibreTranslate) {
  const std::string first = Sentence("en_de", "A b c.");
  EXPECT_EQ(Post("/translate", {{"q", "A b c.\n"}, {"source", "en"}, {"target", "de"}}),
            json({{"translatedText", first + "\n"}}));
  EXPECT_EQ(Post("/translate", {{"q", {"A b c."}}, {"source", "en"}, {"target", "de"}}),
            json({{"translatedText", {first}}}));
  const json answer = Post(
      "/translate", {{"q", "A b c."}, {"source", "auto"}, {"target", "pt"}, {"alternatives", 3}});
  // They are a preference of the client's, and there are none.
  EXPECT_EQ(answer["alternatives"], json::array());
  EXPECT_EQ(
      Post("/translate",
           {{"q", {"a"}}, {"source", "en"}, {"target", "de"}, {"alternatives", 1}})["alternatives"],
      json::parse("[[]]"));
  EXPECT_TRUE(answer["detectedLanguage"].contains("confidence"));
  EXPECT_EQ(Post("/translate", {{"q", "A b c."}, {"source", "en"}, {"target", "pb"}}),
            json({{"translatedText", Sentence("en_pt", "A b c.")}}));
  EXPECT_THAT(Post("/translate", {{"q", "a"}, {"source", "en"}, {"target", "zt"}}, 400).dump(),
              ::testing::HasSubstr("no model translates into 'zh-Hant'"));
  const json settings = json::parse(HttpGet(port(), "/frontend/settings").body);
  EXPECT_EQ(settings["keyRequired"], false);
  EXPECT_EQ(settings["language"]["target"]["code"], "de");
}

TEST_F(TranslateTextsTest, Html) {
  const std::string word = Sentence("en_de", "a");
  EXPECT_EQ(Post("/translate", {{"q", "<h1>a</h1>\n<p><b>a</b></p><script>a</script>"},
                                {"source", "en"},
                                {"target", "de"},
                                {"format", "html"}})["translatedText"],
            absl::StrCat("<h1>", word, "</h1>\n<p><b>", word, "</b></p><script>a</script>"));
  // Names of HTML's elements have no case, those of XML's do.
  json upper = {{"text", {"<x>a</x>"}},
                {"target_lang", "de"},
                {"source_lang", "en"},
                {"tag_handling", "html"},
                {"ignore_tags", {"X,Y"}}};
  EXPECT_THAT(DeepL(upper), ElementsAre("<x>a</x>"));
  upper["tag_handling"] = "xml";
  EXPECT_THAT(DeepL(upper), ElementsAre(absl::StrCat("<x>", word, "</x>")));
  // Within a sentence tags follow the alignment; what they stand around differs, but none is lost.
  const std::string text = DeepL({{"text", {"<p>a cab <i>c b</i> a cab a</p>"}},
                                  {"target_lang", "de"},
                                  {"source_lang", "en"},
                                  {"tag_handling", "html"}})[0];
  EXPECT_THAT(text, ::testing::StartsWith("<p>"));
  EXPECT_THAT(text, ::testing::EndsWith("</p>"));
  std::string plain = text;
  for (const char* const tag : {"<p>", "</p>", "<i>", "</i>"}) {
    for (size_t at = 0; (at = plain.find(tag)) != std::string::npos;)
      plain.erase(at, std::string(tag).size());
  }
  EXPECT_EQ(plain, Sentence("en_de", "a cab c b a cab a"));
}

TEST_F(TranslateTextsTest, ManySentencesTakeSeveralCalls) {
  std::string text;
  std::string expected;
  const std::string sentence = Sentence("en_de", "A b c.");
  for (int i = 0; i < 200; ++i) {
    text += "A b c.\n";
    absl::StrAppend(&expected, sentence, "\n");
  }
  EXPECT_THAT(DeepL({{"text", {text}}, {"target_lang", "de"}, {"source_lang", "en"}}),
              ElementsAre(expected));
}

TEST_F(TranslateTextsTest, ADrainWaitsForAllCallsOfAText) {
  server::Options options = TestOptions(repository_->path("models"));
  options.drain_timeout = absl::Seconds(100);
  RunningServer server(options);
  const std::string sentence = Sentence("en_de", "A b c.");
  std::string text;
  std::string expected;
  for (int i = 0; i < 3000; ++i) {
    text += "A b c.\n";
    absl::StrAppend(&expected, sentence, "\n");
  }
  const json body = {{"text", {text}}, {"target_lang", "de"}, {"source_lang", "en"}};
  HttpResponse response;
  std::thread client(
      [&] { response = Send(server.http_port(), "POST", "/v2/translate", kJson, body.dump()); });
  EXPECT_TRUE(PollUntil([&] { return server.Metric("sru_requests_in_flight") > 0; }));
  EXPECT_TRUE(server.server().Drain());
  client.join();
  EXPECT_EQ(response.status, 200) << response.body;
  EXPECT_EQ(json::parse(response.body, nullptr, false)["translations"][0]["text"], expected);
}

TEST_F(TranslateTextsTest, Usage) {
  const auto used = [] {
    return json::parse(HttpGet(port(), "/v2/usage").body)["character_count"].get<int64_t>();
  };
  const int64_t before = used();
  DeepL({{"text", {"A b \xC3\xA9."}}, {"target_lang", "de"}, {"source_lang", "en"}});
  EXPECT_EQ(used(), before + 6);
  // Refused requests do not count.
  DeepLError({{"text", {"A b c."}}, {"target_lang", "XX"}});
  DeepLError({{"text", std::vector<std::string>(1001, "a")}, {"target_lang", "de"}});
  EXPECT_EQ(used(), before + 6);
}

TEST_F(TranslateTextsTest, ThereAreNoGlossaries) {
  const HttpResponse pairs = HttpGet(port(), "/v2/glossary-language-pairs");
  EXPECT_EQ(pairs.status, 200);
  EXPECT_EQ(pairs.body, "{\"supported_languages\":[]}");
  EXPECT_EQ(HttpGet(port(), "/v2/glossaries").body, "{\"glossaries\":[]}");
  const json paths = json::parse(HttpGet(port(), "/openapi.json").body)["paths"];
  EXPECT_TRUE(paths["/v2/glossary-language-pairs"].contains("get"));
  EXPECT_TRUE(paths["/v2/glossaries"].contains("get"));
}

TEST_F(TranslateTextsTest, WhatIsWrongIsNamed) {
  EXPECT_THAT(DeepLError({{"target_lang", "DE"}}), HasSubstr("'text' not specified"));
  EXPECT_THAT(DeepLError({{"text", {"a"}}}), HasSubstr("'target_lang' not specified"));
  EXPECT_THAT(DeepLError({{"text", {"a"}}, {"target_lang", "XX"}}),
              HasSubstr("target language: no model translates into 'XX'; there are de, en"));
  EXPECT_THAT(DeepLError({{"text", {"a"}}, {"target_lang", "de"}, {"source_lang", "ja"}}),
              HasSubstr("source language: no model translates from 'ja'"));
  for (const char* const name : {"formality", "tag_handling", "split_sentences"}) {
    EXPECT_THAT(DeepLError({{"text", {"a"}}, {"target_lang", "de"}, {name, "x"}}), HasSubstr(name));
  }
  EXPECT_THAT(DeepLError({{"text", {"a"}}, {"target_lang", "de"}, {"formality", "more"}}),
              HasSubstr("'formality' is not supported"));
  EXPECT_THAT(DeepLError({{"text", {"a"}}, {"target_lang", "de"}, {"glossary_id", "1"}}),
              HasSubstr("glossary_id"));
  EXPECT_THAT(DeepLError({{"text", std::vector<std::string>(1001, "a")}, {"target_lang", "de"}}),
              HasSubstr("text: expected 1 to 1000 texts, found 1001"));
  EXPECT_THAT(DeepLError({{"text", {"a", nullptr}}, {"target_lang", "de"}}),
              HasSubstr("text: value 2: expected a text, a number, true or false, found null"));
  EXPECT_THAT(DeepLError({{"text", {{"a", 1}}}, {"target_lang", "de"}}),
              HasSubstr("text: expected a text, a number, true or false, or a list of them"));
  EXPECT_THAT(DeepLError({{"text", {"a"}}, {"target_lang", "de"}, {"ignore_tags", {{"a", 1}}}}),
              HasSubstr("ignore_tags: expected"));
  EXPECT_EQ(Post("/detect", {{"q", {{"a", 1}}}}, 400)["error"],
            "q: expected a text, a number, true or false, or a list of them, found an object");
  EXPECT_THAT(
      Post("/translate", {{"q", "a"}, {"source", "en"}, {"target", "de"}, {"format", {{"a", 1}}}},
           400)["error"]
          .dump(),
      HasSubstr("format: expected"));
  EXPECT_EQ(Post("/translate",
                 {{"q", std::vector<std::string>(1001, "a")}, {"source", "en"}, {"target", "de"}},
                 400)["error"],
            "q: expected 1 to 1000 texts, found 1001");
  EXPECT_EQ(Post("/translate", {{"q", "a"}, {"source", "en"}}, 400)["error"],
            "Invalid request: missing target parameter");
  const auto post = [](const std::string& type, const std::string& body) {
    const HttpResponse response = Send(port(), "POST", "/v2/translate", type, body);
    return absl::StrCat(response.status, " ", response.body);
  };
  EXPECT_THAT(post(kForm, "text=a%FF&target_lang=de"),
              HasSubstr("400 {\"message\":\"text: expected UTF-8"));
  EXPECT_THAT(post(kForm, "text=a%F&target_lang=de"), HasSubstr("400 "));
  EXPECT_THAT(post(kJson, "{\"text\":[\"\xFF\"]}"),
              HasSubstr("400 {\"message\":\"the body is not JSON"));
  EXPECT_THAT(post(kJson, "[]"), HasSubstr("400 {\"message\":\"the body: expected a JSON object"));
  EXPECT_THAT(post(kJson, "{\"text\":[\"a\"],\"text\":[\"b\"]}"), HasSubstr("comes twice"));
  EXPECT_THAT(post("text/plain", "a"), HasSubstr("415 {\"message\""));
  const HttpResponse parts =
      Send(port(), "POST", "/translate", "multipart/form-data; boundary=x", "--x--");
  EXPECT_EQ(parts.status, 415);
  EXPECT_THAT(parts.body, HasSubstr("Content-Type: expected application/x-www-form-urlencoded or "
                                    "application/json, found 'multipart/form-data"));
  // Routes of the Open Inference Protocol are still there, with its errors.
  EXPECT_EQ(HttpGet(port(), "/v2/models/en_de").status, 200);
  EXPECT_THAT(HttpGet(port(), "/v2/nothing").body, HasSubstr("{\"code\""));
}

TEST_F(TranslateTextsTest, TokensComeInHeadersAndFields) {
  const std::string tokens = repository_->path("tokens");
  ASSERT_EQ(chmod(tokens.c_str(), 0600), 0);
  server::Options options = TestOptions(repository_->path("models"));
  options.security.auth_tokens_file = tokens;
  RunningServer server(options);
  const int port = server.http_port();
  const std::string token = "0123456789abcdef0123456789abcdef";
  const std::string deepl = "text=a&source_lang=en&target_lang=de";
  const std::string libre = "q=a&source=en&target=de";
  const auto post = [&](const std::string& path, const std::string& body,
                        const std::string& header) {
    return Send(port, "POST", path, kForm, body,
                header.empty() ? "" : absl::StrCat("Authorization: ", header, "\r\n"));
  };
  EXPECT_EQ(post("/v2/translate", deepl, "DeepL-Auth-Key " + token).status, 200);
  EXPECT_EQ(post("/v2/translate", deepl, "Bearer " + token).status, 200);
  for (const char* const header : {"", "DeepL-Auth-Key wrong"}) {
    const HttpResponse refused = post("/v2/translate", deepl, header);
    EXPECT_EQ(refused.status, 403);
    EXPECT_THAT(refused.body, HasSubstr("{\"message\":\"authorization"));
  }
  EXPECT_EQ(HttpGet(port, "/v2/glossaries").status, 403);
  EXPECT_EQ(HttpGet(port, "/v2/glossary-language-pairs").status, 403);
  EXPECT_EQ(post("/translate", libre + "&api_key=" + token, "").status, 200);
  EXPECT_EQ(post("/translate", libre, "Bearer " + token).status, 200);
  EXPECT_EQ(post("/detect", "q=a&api_key=" + token, "").status, 200);
  EXPECT_EQ(HttpGet(port, "/languages?api_key=" + token).status, 200);
  for (const std::string& body :
       {libre, libre + "&api_key=wrong", std::string("%"), std::string()}) {
    const HttpResponse refused = post("/translate", body, "");
    EXPECT_EQ(refused.status, 403);
    EXPECT_THAT(refused.body, HasSubstr("{\"error\":\"authorization"));
  }
  EXPECT_EQ(post("/translate", libre + "&api_key=" + token, "Bearer wrong").status, 403);
  // No token is needed, and none is read.
  EXPECT_THAT(json::parse(HttpGet(port, "/languages").body), SizeIs(2));
  EXPECT_EQ(HttpGet(port, "/languages?api_key=wrong").status, 200);
  EXPECT_EQ(json::parse(HttpGet(port, "/frontend/settings").body)["keyRequired"], true);
}

TEST_F(TranslateTextsTest, TheMemoryOfAnAnswerIsReserved) {
  server::Options options = TestOptions(repository_->path("models"));
  options.memory.max_inflight_mb = 16;
  RunningServer server(options);
  // In JSON each of these bytes takes six.
  const auto post = [&](size_t bytes) {
    return Send(server.http_port(), "POST", "/translate", kForm,
                absl::StrCat("source=en&target=de&format=html&q=<!--", std::string(bytes, '\x01'),
                             "-->A b c."),
                "Authorization: Bearer any\r\n");
  };
  EXPECT_EQ(post(300000).status, 200);
  const HttpResponse refused = post(700000);
  EXPECT_EQ(refused.status, 429);
  EXPECT_THAT(refused.body, HasSubstr("--max_inflight_mb"));
  EXPECT_TRUE(server.Becomes("sru_inflight_bytes", 0));
}

TEST_F(TranslateTextsTest, TheStatusPagesBoxCallsItsOwnPort) {
  const int port = server_->metrics_port();
  const json request = {{"q", "A b c."}, {"source", "en"}, {"target", "de"}};
  const HttpResponse answer = Send(port, "POST", "/translate", kJson, request.dump());
  EXPECT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(json::parse(answer.body)["translatedText"], Sentence("en_de", "A b c."));
  EXPECT_EQ(Send(port, "GET", "/languages", kJson, "").status, 200);
  // A form is what a page of another site can send.
  EXPECT_EQ(Send(port, "POST", "/translate", kForm, "q=a&source=en&target=de").status, 403);
  EXPECT_EQ(Send(port, "POST", "/v2/translate", kJson, "{}").status, 404);
}

}  // namespace
}  // namespace sru::testing
