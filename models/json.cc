#include "models/json.h"

#include <functional>
#include <set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

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
  explicit Checker(int max_depth) : max_depth_(max_depth) {}

  const std::string& error() const { return error_; }

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(size_t) override { return Push(); }
  bool end_object() override { return Pop(); }
  bool start_array(size_t) override { return Push(); }
  bool end_array() override { return Pop(); }

  bool key(string_t& key) override {
    if (!keys_.back().insert(key).second) {
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
  bool Push() {
    if (static_cast<int>(keys_.size()) == max_depth_) {
      error_ = absl::StrCat("nested deeper than ", max_depth_, " levels");
      return false;
    }
    keys_.emplace_back();
    return true;
  }
  bool Pop() {
    keys_.pop_back();
    return true;
  }

  const int max_depth_;
  std::vector<std::set<std::string, std::less<>>> keys_;
  std::string error_;
};

}  // namespace

absl::StatusOr<json> ParseJsonObject(std::string_view text, int max_depth,
                                     const std::string& source) {
  Checker checker(max_depth);
  if (!json::sax_parse(text, &checker)) {
    return absl::InvalidArgumentError(absl::StrCat(source, ": ", checker.error()));
  }
  json value = json::parse(text, /*cb=*/nullptr, /*allow_exceptions=*/false);
  if (!value.is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(source, ": expected a JSON object, found ",
                                                   value.type_name(), " ", JsonExcerpt(value)));
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
