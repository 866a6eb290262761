// ObjectReader: reads one object of a config.json strictly. A missing key, a wrong type, a value
// out of range and a key that nobody has read are errors that name the file, the key, what was
// expected and what was found. Not thread-safe.
#ifndef SRU_MODELS_OBJECT_READER_H_
#define SRU_MODELS_OBJECT_READER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/enum_names.h"
#include "nlohmann/json.hpp"

namespace sru::models {

// A JSON integer that fits; "2.0" is not one.
std::optional<int64_t> AsInt64(const nlohmann::json& value);

// Remembers the first error, which Finish() returns. What could not be read is left as it was.
class ObjectReader {
 public:
  // `path` is the key of the object in the file, empty for the root. `object` must outlive the
  // reader.
  ObjectReader(const nlohmann::json& object, const std::string& source, std::string path);

  const nlohmann::json& object() const { return object_; }
  // The name of the file, for errors.
  const std::string& source() const { return source_; }

  // Whether the object has the key, which is known from then on.
  bool Has(const std::string& key);

  // The value of a key; null, with an error, when it is missing.
  const nlohmann::json* Required(const std::string& key, const std::string& expected);

  void Integer(const std::string& key, int low, int high, int* value);
  void Boolean(const std::string& key, bool* value);
  void OptionalBoolean(const std::string& key, bool* value);
  // `expected` is what messages say, such as "a number from 0 to 1".
  void Number(const std::string& key, const std::string& expected, double low, double high,
              double* value);
  void OptionalString(const std::string& key, std::string* value);

  // A value of the enum that kName names (kernels/enum_names.h).
  template <auto kName>
  void Choice(const std::string& key, kernels::NamedEnum<kName>* value) {
    const auto quoted = [](std::string* out, auto choice) {
      absl::StrAppend(out, "\"", kName(choice), "\"");
    };
    const std::string expected =
        absl::StrCat("one of ", absl::StrJoin(kernels::AllNamed<kName>(), ", ", quoted));
    const nlohmann::json* found = Required(key, expected);
    if (found == nullptr) return;
    if (!found->is_string() ||
        !kernels::ParseNamed<kName>(found->get_ref<const std::string&>(), value)) {
      Fail(key, expected, *found);
    }
  }

  // Calls `take` with the elements of an array of `least` to `most` of them, until one is not as
  // `expected` says.
  void Array(const std::string& key, const std::string& expected, size_t least, size_t most,
             absl::FunctionRef<bool(const nlohmann::json&)> take);

  // `key` may also be a path from this object on, such as "labels[2]".
  void Fail(const std::string& key, const std::string& expected, const nlohmann::json& found);

  // Call last: returns the first error, or that of a key that was not read.
  absl::Status Finish();

 private:
  std::string Path(const std::string& key) const;

  const nlohmann::json& object_;
  const std::string source_;
  const std::string path_;
  std::set<std::string> known_;
  absl::Status status_;
};

}  // namespace sru::models

#endif  // SRU_MODELS_OBJECT_READER_H_
