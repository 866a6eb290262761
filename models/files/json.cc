#include "models/files/json.h"

#include <functional>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "nlohmann/json.hpp"

namespace sru::models {
namespace {

using nlohmann::json;

constexpr size_t kExcerptBytes = 60;

std::string Escaped(std::string_view text) {
  const std::string escaped = json(std::string(text.substr(0, kExcerptBytes)))
                                  .dump(-1, ' ', true, json::error_handler_t::replace);
  return escaped.substr(1, escaped.size() - 2) + (text.size() > kExcerptBytes ? "..." : "");
}

// Sees every token before any value is built, so that a hostile file costs a bounded stack of key
// sets and stops at its first fault.
class Checker : public nlohmann::json_sax<json> {
 public:
  explicit Checker(const JsonLimits& limits) : limits_(limits) {}

  const std::string& error() const { return error_; }

  bool null() override { return Count(); }
  bool boolean(bool) override { return Count(); }
  bool number_integer(number_integer_t) override { return Count(); }
  bool number_unsigned(number_unsigned_t) override { return Count(); }
  bool number_float(number_float_t, const string_t&) override { return Count(); }
  bool string(string_t&) override { return Count(); }
  bool binary(binary_t&) override { return Count(); }
  bool start_object(size_t) override { return Push(/*is_array=*/false); }
  bool end_object() override { return Pop(); }
  bool start_array(size_t) override { return Push(/*is_array=*/true); }
  bool end_array() override { return Pop(); }

  bool key(string_t& key) override {
    if (!levels_.back().keys.insert(key).second) {
      error_ = absl::StrCat("key ", Quoted(key), " appears twice");
      return false;
    }
    return true;
  }

  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    error_ = absl::StrCat("not valid JSON at byte ", position == 0 ? 0 : position - 1);
    return false;
  }

 private:
  // One value more, in the array or object that is open.
  bool Count() {
    if (++values_ > limits_.max_values) {
      error_ = absl::StrCat("expected at most ", limits_.max_values, " values, found more");
      return false;
    }
    if (levels_.empty() || !levels_.back().is_array) return true;
    if (++levels_.back().elements > limits_.max_elements) {
      error_ = absl::StrCat("expected arrays of at most ", limits_.max_elements,
                            " elements, found one with more");
      return false;
    }
    return true;
  }

  bool Push(bool is_array) {
    if (!Count()) return false;
    if (static_cast<int>(levels_.size()) == limits_.max_depth) {
      error_ = absl::StrCat("nested deeper than ", limits_.max_depth, " levels");
      return false;
    }
    levels_.emplace_back();
    levels_.back().is_array = is_array;
    return true;
  }
  bool Pop() {
    levels_.pop_back();
    return true;
  }

  struct Level {
    bool is_array = false;
    int64_t elements = 0;                     // of an array
    std::set<std::string, std::less<>> keys;  // of an object
  };

  const JsonLimits limits_;
  int64_t values_ = 0;
  std::vector<Level> levels_;
  std::string error_;
};

}  // namespace

absl::StatusOr<json> ParseJsonObject(std::string_view text, const JsonLimits& limits,
                                     const std::string& source) {
  Checker checker(limits);
  if (!json::sax_parse(text, &checker)) {
    return InvalidArgument(source, ": ", checker.error());
  }
  json value = json::parse(text, /*cb=*/nullptr, /*allow_exceptions=*/false);
  if (!value.is_object()) {
    const std::string found =
        value.is_array()
            ? absl::StrCat(JsonExcerpt(value), value.size() == 1 ? " value" : " values")
            : absl::StrCat(value.type_name(), " ", JsonExcerpt(value));
    return InvalidArgument(source, ": expected a JSON object, found ", found);
  }
  return value;
}

std::string Quoted(std::string_view text) { return absl::StrCat("'", Escaped(text), "'"); }

std::string JsonExcerpt(const json& value) {
  if (value.is_array()) return absl::StrCat("an array of ", value.size());
  if (value.is_object()) return absl::StrCat("an object of ", value.size());
  if (value.is_string()) {
    return absl::StrCat("\"", Escaped(value.get_ref<const std::string&>()), "\"");
  }
  return value.dump(-1, ' ', true, json::error_handler_t::replace);
}

}  // namespace sru::models
