#include "models/marian/options.h"

#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/limits.h"
#include "base/status.h"
#include "models/marian/yaml.h"

namespace sru::models {
namespace {

// Far above any student, so that products of sizes cannot overflow.
constexpr int kMaxMarianWidth = 16384;
constexpr int kMaxMarianLayers = 256;
constexpr int kMaxMarianVocabulary = 1 << 24;

// The values that make the graph of this model. Older files lack some.
constexpr std::pair<const char*, const char*> kGraph[] = {
    {"type", "transformer"},
    {"transformer-decoder-autoreg", "rnn"},
    {"dec-cell", "ssru"},
    {"transformer-ffn-activation", "relu"},
    {"transformer-ffn-depth", "2"},
    {"transformer-tied-layers", ""},
    {"transformer-no-projection", "false"},
    {"transformer-rnn-projection", "false"},
    {"transformer-no-bias", "false"},
    {"transformer-no-affine", "false"},
    {"transformer-train-position-embeddings", "false"},
    {"transformer-disable-position-embeddings", "false"},
    {"transformer-attention-mask", "default"},
    {"transformer-alibi-shift", "false"},
    {"transformer-alibi-trainable", "false"},
    {"transformer-pool", "false"},
    {"transformer-depth-scaling", "false"},
    {"output-omit-bias", "false"},
    {"lemma-dim-emb", "0"},
    {"factors-dim-emb", "0"},
    {"input-types", ""},
    {"right-left", "false"},
    {"ulr", "false"},
    {"layer-normalization", "false"},
};

// The steps around a sublayer, without d, which is dropout and does nothing in a translation.
constexpr std::pair<const char*, const char*> kSteps[] = {
    {"transformer-preprocess", ""},
    {"transformer-postprocess", "an"},
    {"transformer-postprocess-emb", ""},
    {"transformer-postprocess-top", ""},
};

// Options that are not in every file, and without which the model is another one.
constexpr const char* kRequired[] = {"type",
                                     "transformer-decoder-autoreg",
                                     "dec-cell",
                                     "dim-emb",
                                     "transformer-ffn-activation",
                                     "enc-depth",
                                     "transformer-dim-ffn",
                                     "dec-depth",
                                     "transformer-heads",
                                     "dim-vocabs",
                                     "transformer-postprocess"};

void ReadVocabularies(YamlMap* map, MarianOptions* options) {
  const std::vector<std::string> sizes = map->List("dim-vocabs");
  int* const to[] = {&options->source_vocabulary, &options->target_vocabulary};
  bool good = sizes.size() == 2;
  for (size_t i = 0; good && i < 2; ++i) {
    good = absl::SimpleAtoi(sizes[i], to[i]) && *to[i] >= 1 && *to[i] <= kMaxMarianVocabulary;
  }
  if (!good) map->Fail("dim-vocabs", absl::StrCat("two integers from 1 to ", kMaxMarianVocabulary));
  bool two_tables = false;
  map->Boolean("tied-embeddings-all", &options->one_table);
  map->Boolean("tied-embeddings", &two_tables);
  if (!options->one_table && !two_tables) {
    map->Fail("tied-embeddings",
              "'true', or tied-embeddings-all: an output layer of its own isn't known");
  }
  if (!options->one_table) map->Expect("tied-embeddings-src", "false");
  if (options->one_table && options->source_vocabulary != options->target_vocabulary) {
    map->Fail("dim-vocabs", "two equal numbers beside tied-embeddings-all");
  }
}

// `key` is absent, 0, which stands for the encoder's, or the encoder's value.
void ExpectAsInEncoder(const char* key, int value, YamlMap* map) {
  int found = 0;
  map->Integer(key, 0, kMaxMarianWidth, &found);
  if (found != 0 && found != value)
    map->Fail(key, absl::StrCat("0 or ", value, ", as in the encoder"));
}

}  // namespace

absl::StatusOr<MarianOptions> ParseMarianOptions(std::string_view yaml, const std::string& source) {
  SRU_ASSIGN_OR_RETURN(YamlMap map,
                       YamlMap::Parse(yaml, absl::StrCat(source, ": ", kMarianOptionsTensor)));
  for (const char* key : kRequired) map.Require(key);
  for (const auto& [key, value] : kGraph) map.Expect(key, value);
  for (const auto& [key, steps] : kSteps) {
    const std::string found = absl::StrReplaceAll(absl::StrJoin(map.List(key), ","), {{"d", ""}});
    if (found != steps) map.Fail(key, absl::StrCat("the steps '", steps, "', with or without d"));
  }
  MarianOptions options;
  map.Integer("dim-emb", 4, kMaxMarianWidth, &options.width);
  map.Integer("transformer-dim-ffn", 1, kMaxMarianWidth, &options.ffn);
  map.Integer("transformer-heads", 1, kMaxMarianWidth, &options.heads);
  map.Integer("enc-depth", 1, kMaxMarianLayers, &options.encoder_layers);
  map.Integer("dec-depth", 1, kMaxMarianLayers, &options.decoder_layers);
  SRU_RETURN_UNLESS_OK(map.status());
  if (options.width % 2 != 0) map.Fail("dim-emb", "an even number");
  if (options.width % options.heads != 0) {
    map.Fail("transformer-heads", absl::StrCat("a divisor of dim-emb ", options.width));
  }
  ExpectAsInEncoder("transformer-decoder-dim-ffn", options.ffn, &map);
  ExpectAsInEncoder("transformer-decoder-ffn-depth", 2, &map);
  ReadVocabularies(&map, &options);
  options.alignment_layer = options.decoder_layers;
  const std::vector<std::string> alignment = map.List("transformer-guided-alignment-layer");
  if (!alignment.empty() && alignment.front() != "last") {
    map.Integer("transformer-guided-alignment-layer", 1, options.decoder_layers,
                &options.alignment_layer);
  }
  --options.alignment_layer;
  SRU_RETURN_UNLESS_OK(map.status());
  return options;
}

absl::Status ReadMarianSearch(std::string_view yaml, const std::string& source,
                              MarianSearch* search) {
  SRU_ASSIGN_OR_RETURN(YamlMap map, YamlMap::Parse(yaml, source));
  map.Integer("beam-size", 1, kMaxBeam, &search->beam_size);
  map.Number("normalize", 0, kMaxNormalize, &search->normalize);
  map.Number("word-penalty", -kMaxMarianWordPenalty, kMaxMarianWordPenalty, &search->word_penalty);
  map.Number("max-length-factor", 0, kMaxMarianLengthFactor, &search->max_length_factor);
  // Marian ends each translation at once then.
  if (search->max_length_factor == 0 && !map.List("max-length-factor").empty()) {
    map.Fail("max-length-factor", "a number above 0");
  }
  map.Integer("max-length-break", 0, kMaxLengthBreak, &search->max_length_break);
  map.Boolean("allow-unk", &search->allow_unk);
  map.Boolean("allow-special", &search->allow_special);
  if (map.List("models").size() > 1) map.Fail("models", "one: ensembles are not known");
  // The file, and then what Marian is to do with it.
  if (const std::vector<std::string> shortlist = map.List("shortlist"); !shortlist.empty()) {
    search->shortlist = shortlist.front().substr(shortlist.front().rfind('/') + 1);
  }
  return map.status();
}

}  // namespace sru::models
