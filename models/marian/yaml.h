// YAML as Marian writes it: a map of keys to scalars and lists of scalars.
#ifndef SRU_MODELS_MARIAN_YAML_H_
#define SRU_MODELS_MARIAN_YAML_H_

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace sru::models {

// Looks values up by their keys and remembers the first error, "<source>: key 'beam-size': expected
// ..., found ...". Unlike the keys of a config.json, those that nobody reads are ignored: Marian's
// files have many that don't matter here. Not thread-safe.
class YamlMap {
 public:
  // kInvalidArgument when `text` is longer than 64 KiB, is nested too deeply, is not YAML, or is
  // not a map, or when its aliases make the values longer than twice the text.
  static absl::StatusOr<YamlMap> Parse(std::string_view text, std::string source);

  // A missing key leaves `value` as it was.
  void Integer(const std::string& key, int low, int high, int* value);
  void Number(const std::string& key, double low, double high, double* value);
  void Boolean(const std::string& key, bool* value);
  // The scalars of a list, or the only one; empty without the key.
  std::vector<std::string> List(const std::string& key);
  // An error if the key is missing.
  void Require(const std::string& key) {
    if (values_.count(key) == 0) Fail(key, "a value");
  }
  // An error if the key has another value than this scalar, or than no value for "". A list of
  // several is joined by commas.
  void Expect(const std::string& key, const std::string& value);

  void Fail(const std::string& key, const std::string& expected);

  const absl::Status& status() const { return status_; }

 private:
  struct Value {
    bool nested = false;  // a map, or a list of more than scalars
    std::vector<std::string> items;
  };

  explicit YamlMap(std::string source) : source_(std::move(source)) {}

  // Null, with an error if there are several, unless the key has one scalar.
  const std::string* Scalar(const std::string& key, const std::string& expected);

  std::string source_;
  std::map<std::string, Value> values_;
  absl::Status status_;
};

}  // namespace sru::models

#endif  // SRU_MODELS_MARIAN_YAML_H_
