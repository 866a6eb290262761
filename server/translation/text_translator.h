// TextTranslator: texts as users have them, translated by calls of Translate. For each text it
// finds the language, if it is not given, and the models; cuts the text into sentences, and
// sentences into parts that the model takes; makes the calls; and puts the text together again.
// Without a direct model a text goes through English, by two models.
//
// Sentences of all texts share calls, each of which is answered before the next one is made. The
// request makes them (RestCall::Unary()), so that its token, deadline and limits hold for them.
//
// Thread-safe.
#ifndef SRU_SERVER_TRANSLATION_TEXT_TRANSLATOR_H_
#define SRU_SERVER_TRANSLATION_TEXT_TRANSLATOR_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "server/calls/bounds/request_limits.h"
#include "server/calls/in_flight.h"
#include "server/lifecycle/model_registry.h"
#include "server/rest/route.h"
#include "server/translation/document.h"
#include "server/translation/languages.h"

namespace sru::server::translation {

inline constexpr size_t kMostTexts = 1000;

using SharedCall = std::shared_ptr<rest::RestCall>;

struct TextRequest {
  std::vector<std::string> texts;    // valid UTF-8
  const char* texts_field = "text";  // their name, for errors
  std::string source;                // a code; "" = that of each text is found
  std::string target;
  TextRules rules;
};

struct TranslatedText {
  std::string
      source;  // the code, as the model has it; of the target's language perhaps another form
  int confidence = 0;  // of the source that was found, in percent
  std::string text;    // the translation
};

class TextTranslator {
 public:
  using Done = std::function<void(const std::vector<TranslatedText>& texts)>;

  // Both outlive this. `in_flight` counts the texts that are being translated: between two calls
  // nothing else tells that more will come.
  TextTranslator(const lifecycle::ModelRegistry* registry, const calls::RequestLimits& limits,
                 calls::InFlight* in_flight)
      : registry_(*registry), limits_(limits), in_flight_(*in_flight) {}

  LanguageCatalog Catalog() const { return LanguageCatalog(registry_); }
  // Changes with the catalog.
  int64_t catalog_generation() const { return registry_.generation(); }

  // Calls `done` with the translations, or fails the request; once, on any thread. A model that the
  // caller may not use is chosen only if no other has the languages.
  void Translate(const SharedCall& call, TextRequest request, Done done);

  // The characters of all texts so far, except those of requests that were refused before their
  // first call.
  int64_t num_characters() const { return num_characters_; }

 private:
  const lifecycle::ModelRegistry& registry_;
  const calls::RequestLimits limits_;
  calls::InFlight& in_flight_;
  std::atomic<int64_t> num_characters_{0};
};

}  // namespace sru::server::translation

#endif  // SRU_SERVER_TRANSLATION_TEXT_TRANSLATOR_H_
