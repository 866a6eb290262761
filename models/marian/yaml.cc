#include "models/marian/yaml.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <sstream>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "models/files/json.h"

namespace sru::models {
namespace {

constexpr size_t kMaxYamlBytes = 64 << 10;  // Marian's options take 2 KB
constexpr int kMaxYamlDepth = 16;

struct TooDeep {};

// Counts the levels. The library parses recursively, and tells of each level before it enters it.
class DepthCheck final : public YAML::EventHandler {
 public:
  void OnDocumentStart(const YAML::Mark& /*mark*/) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& /*mark*/, YAML::anchor_t /*anchor*/) override {}
  void OnAlias(const YAML::Mark& /*mark*/, YAML::anchor_t /*anchor*/) override {}
  void OnScalar(const YAML::Mark& /*mark*/, const std::string& /*tag*/, YAML::anchor_t /*anchor*/,
                const std::string& /*value*/) override {}
  void OnSequenceStart(const YAML::Mark& /*mark*/, const std::string& /*tag*/,
                       YAML::anchor_t /*anchor*/, YAML::EmitterStyle::value /*style*/) override {
    Enter();
  }
  void OnSequenceEnd() override { --depth_; }
  void OnMapStart(const YAML::Mark& /*mark*/, const std::string& /*tag*/, YAML::anchor_t /*anchor*/,
                  YAML::EmitterStyle::value /*style*/) override {
    Enter();
  }
  void OnMapEnd() override { --depth_; }

 private:
  void Enter() {
    if (++depth_ > kMaxYamlDepth) throw TooDeep();
  }

  int depth_ = 0;
};

}  // namespace

absl::StatusOr<YamlMap> YamlMap::Parse(std::string_view text, std::string source) {
  YamlMap map(std::move(source));
  if (text.size() > kMaxYamlBytes) {
    return InvalidArgument(map.source_, ": expected at most ", kMaxYamlBytes,
                           " bytes of YAML, found ", text.size());
  }
  // The parser shares what aliases repeat, but the values below are copies. Without aliases they
  // are at most as long as the text, or a little longer where it has escapes.
  size_t left = 2 * text.size() + 64;
  const auto take = [&left](const YAML::Node& node) {
    const size_t bytes = 1 + (node.IsScalar() ? node.Scalar().size() : 0);
    const bool fits = bytes <= left;
    left -= fits ? bytes : left;
    return fits;
  };
  try {
    std::istringstream once{std::string(text)};
    DepthCheck depth;
    YAML::Parser(once).HandleNextDocument(depth);
    const YAML::Node root = YAML::Load(std::string(text));
    if (!root.IsMap()) return InvalidArgument(map.source_, ": expected a YAML map");
    for (const auto& entry : root) {
      if (!entry.first.IsScalar())
        return InvalidArgument(map.source_, ": expected keys that are scalars");
      Value value;
      bool fits = take(entry.second);
      if (fits && entry.second.IsScalar()) {
        value.items.push_back(entry.second.Scalar());
      } else if (fits && entry.second.IsSequence()) {
        for (const YAML::Node& item : entry.second) {
          fits = take(item);
          if (!fits) break;
          value.nested = value.nested || !item.IsScalar();
          if (item.IsScalar()) value.items.push_back(item.Scalar());
        }
      } else {
        value.nested = entry.second.IsMap();
      }
      if (!fits) {
        return InvalidArgument(map.source_, ": aliases make the values longer than twice the text");
      }
      if (!map.values_.emplace(entry.first.Scalar(), std::move(value)).second) {
        return InvalidArgument(map.source_, ": key ", Quoted(entry.first.Scalar()),
                               " is there twice");
      }
    }
  } catch (const TooDeep&) {
    return InvalidArgument(map.source_, ": expected YAML of at most ", kMaxYamlDepth, " levels");
  } catch (const YAML::Exception& e) {
    return InvalidArgument(map.source_, ": not YAML: line ", e.mark.line + 1, ", column ",
                           e.mark.column + 1);
  }
  return map;
}

void YamlMap::Fail(const std::string& key, const std::string& expected) {
  const auto it = values_.find(key);
  std::string found = "no such key";
  if (it != values_.end()) {
    found = it->second.nested ? "nested values" : Quoted(absl::StrJoin(it->second.items, ","));
  }
  status_.Update(
      InvalidArgument(source_, ": key ", Quoted(key), ": expected ", expected, ", found ", found));
}

const std::string* YamlMap::Scalar(const std::string& key, const std::string& expected) {
  const auto it = values_.find(key);
  if (it == values_.end()) return nullptr;
  if (!it->second.nested && it->second.items.size() == 1) return &it->second.items.front();
  Fail(key, expected);
  return nullptr;
}

void YamlMap::Integer(const std::string& key, int low, int high, int* value) {
  const std::string expected = absl::StrCat("an integer from ", low, " to ", high);
  const std::string* const text = Scalar(key, expected);
  int found = 0;
  if (text == nullptr) return;
  if (!absl::SimpleAtoi(*text, &found) || found < low || found > high) return Fail(key, expected);
  *value = found;
}

void YamlMap::Number(const std::string& key, double low, double high, double* value) {
  const std::string expected = absl::StrCat("a number from ", low, " to ", high);
  const std::string* const text = Scalar(key, expected);
  double found = 0;
  if (text == nullptr) return;
  if (!absl::SimpleAtod(*text, &found) || !(found >= low && found <= high))
    return Fail(key, expected);
  *value = found;
}

void YamlMap::Boolean(const std::string& key, bool* value) {
  const std::string* const text = Scalar(key, "true or false");
  if (text == nullptr) return;
  if (*text != "true" && *text != "false") return Fail(key, "true or false");
  *value = *text == "true";
}

std::vector<std::string> YamlMap::List(const std::string& key) {
  const auto it = values_.find(key);
  if (it == values_.end()) return {};
  if (it->second.nested) Fail(key, "a scalar or a list of scalars");
  return it->second.items;
}

void YamlMap::Expect(const std::string& key, const std::string& value) {
  const auto it = values_.find(key);
  if (it == values_.end()) return;
  if (it->second.nested || absl::StrJoin(it->second.items, ",") != value) {
    Fail(key, value.empty() ? "no value" : absl::StrCat("'", value, "'"));
  }
}

}  // namespace sru::models
