// Recognizes the files of a student in a folder, by the names that Marian, Bergamot and Firefox
// give them:
//
//   weights       model*.npz or model*.bin
//   vocabularies  vocab*.spm, or srcvocab*.spm and trgvocab*.spm, or two vocab*.spm that the search
//                 file lists as `vocabs` or whose names tell which is which: vocab.src.spm and
//                 vocab.trg.spm, or vocab.de.spm and vocab.en.spm beside model.deen.npz
//   shortlist     lex*.bin, optional
//   search        WEIGHTS.decoder.yml, decoder.yml or config*.yml, optional
//
// Each may be gzip'd, with ".gz" at the end of its name; the file without it comes first. WEIGHTS
// is the name without ".gz".
#ifndef SRU_MODELS_MARIAN_PUBLISHED_FILES_H_
#define SRU_MODELS_MARIAN_PUBLISHED_FILES_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "models/files/file.h"

namespace sru::models {

// Names of files in one folder.
struct PublishedFiles {
  std::string weights;
  std::string source_vocabulary;
  std::string target_vocabulary;  // the same if both languages share one
  std::string shortlist;          // empty: none
  std::string search;             // empty: none
  // "en" and "zh-Hant" for model.enzh_hant.intgemm.alphas.bin: from the weights' name, else the
  // shortlist's, else the `shortName` in Bergamot's model_info.json, else the source vocabulary's
  // name. A shared vocabulary beside Bergamot's model.intgemm* does not count, since vocab.deen.spm
  // serves both directions there. Empty: not known.
  std::string source_language;
  std::string target_language;

  bool shares_vocabulary() const { return source_vocabulary == target_vocabulary; }
  // All that are there.
  std::vector<std::string> names() const;
};

// Nothing if the folder has no weights, or cannot be listed. kInvalidArgument names the folder when
// it has weights and lacks a vocabulary, or when several files could be meant. Of several files of
// weights, the one that decoder.yml or config*.yml names as `models` is meant, else Marian's
// model.npz (or model.npz.gz), beside which training leaves others, and then the only int8 file
// with multipliers (model*.alphas.bin). Of several vocabularies or shortlists, those are meant that
// the search file names as `vocabs` and `shortlist`; its errors are returned.
absl::StatusOr<std::optional<PublishedFiles>> FindPublishedFiles(const FilePath& directory);

}  // namespace sru::models

#endif  // SRU_MODELS_MARIAN_PUBLISHED_FILES_H_
