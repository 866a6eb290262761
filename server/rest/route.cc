#include "server/rest/route.h"

#include <algorithm>
#include <charconv>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/similar_name.h"

namespace sru::server::rest {
namespace {

bool IsParameter(absl::string_view segment) { return !segment.empty() && segment.front() == '{'; }

bool HasParameters(const Route& route) { return route.path.find('{') != std::string::npos; }

// Whether the segments of a path are those of the pattern; what stood for the parameters.
bool Matches(const std::string& pattern, const std::vector<absl::string_view>& segments,
             std::map<std::string, std::string>* parameters) {
  parameters->clear();
  const std::vector<absl::string_view> wanted = absl::StrSplit(pattern, '/');
  if (wanted.size() != segments.size()) return false;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (!IsParameter(wanted[i])) {
      if (wanted[i] != segments[i]) return false;
      continue;
    }
    std::optional<std::string> value = PercentDecode(segments[i]);
    if (!value.has_value() || value->empty()) return false;
    parameters->emplace(wanted[i].substr(1, wanted[i].size() - 2), *std::move(value));
  }
  return true;
}

// How much of two paths is the same: the first segment decides whose form an error has.
bool SameApi(absl::string_view a, absl::string_view b) {
  const auto first = [](absl::string_view path) { return path.substr(0, path.find('/', 1)); };
  return first(a) == first(b);
}

}  // namespace

std::string MediaType(absl::string_view content_type) {
  const absl::string_view type = content_type.substr(0, content_type.find(';'));
  return absl::AsciiStrToLower(absl::StripAsciiWhitespace(type));
}

std::optional<std::string> PercentDecode(absl::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    auto byte = static_cast<uint8_t>(text[i]);
    if (byte == '%') {
      const absl::string_view digits = text.substr(i + 1, 2);
      const char* const end = digits.data() + digits.size();
      if (digits.size() < 2 || std::from_chars(digits.data(), end, byte, 16).ptr != end) {
        return std::nullopt;
      }
      i += 2;
    }
    decoded += static_cast<char>(byte);
  }
  return decoded;
}

RouteTable::Match RouteTable::Find(absl::string_view method, absl::string_view path) const {
  if (method == "HEAD") method = "GET";
  Match match;
  for (const Route& route : routes_) {
    if (route.method == method && route.path == path) {
      match.route = &route;
      match.errors = route.error_form;
      return match;
    }
  }
  const std::vector<absl::string_view> segments = absl::StrSplit(path, '/');
  std::vector<std::string> allowed;
  bool has_like = false;
  for (const Route& route : routes_) {
    if (!has_like && SameApi(route.path, path)) {
      match.errors = route.error_form;
      has_like = true;
    }
    std::map<std::string, std::string> parameters;
    if (HasParameters(route) ? !Matches(route.path, segments, &parameters) : route.path != path)
      continue;
    match.errors = route.error_form;
    if (route.method == method) {
      match.route = &route;
      match.parameters = std::move(parameters);
      return match;
    }
    allowed.push_back(route.method);
  }
  match.allowed = absl::StrJoin(allowed, ", ");
  return match;
}

std::string RouteTable::Nearest(absl::string_view path) const {
  const std::vector<absl::string_view> segments = absl::StrSplit(path, '/');
  std::vector<std::string> paths;
  for (const Route& route : routes_) {
    // What was sent in the place of a parameter is no mistake.
    std::vector<absl::string_view> wanted = absl::StrSplit(route.path, '/');
    for (size_t i = 0; i < wanted.size() && wanted.size() == segments.size(); ++i) {
      if (IsParameter(wanted[i]) && !segments[i].empty()) wanted[i] = segments[i];
    }
    paths.push_back(absl::StrJoin(wanted, "/"));
  }
  const std::vector<absl::string_view> names(paths.begin(), paths.end());
  const absl::string_view nearest = SimilarName(path, names);
  const auto found = std::find(names.begin(), names.end(), nearest);
  // Many routes begin alike: what follows the common segments must be like it, too.
  const size_t most = std::min(path.size(), nearest.size());
  size_t same = 0;
  while (same < most && path[same] == nearest[same]) ++same;
  same = path.substr(0, same).rfind('/') + 1;  // npos + 1 is 0
  if (SimilarName(path.substr(same), {nearest.substr(std::min(same, nearest.size()))}).empty()) {
    return "";
  }
  return absl::StrCat(routes_[found - names.begin()].method, " ", nearest);
}

}  // namespace sru::server::rest
