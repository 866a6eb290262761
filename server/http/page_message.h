// A request to one of the HTTP ports and its answer, independent of the HTTP library.
#ifndef SRU_SERVER_HTTP_PAGE_MESSAGE_H_
#define SRU_SERVER_HTTP_PAGE_MESSAGE_H_

#include <algorithm>
#include <cstddef>
#include <functional>
#include <initializer_list>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "server/base/call_origin.h"

namespace sru::server::http {

// Headers by lower-case name, in the order of their first appearance. A header that came twice has
// both values, joined by ", ". Requests have few, so a search looks at all of them.
class PageHeaders {
 public:
  using Entry = std::pair<std::string, std::string>;

  PageHeaders() = default;
  PageHeaders(std::initializer_list<Entry> entries) : entries_(entries) {}

  void Add(absl::string_view lower_case_name, absl::string_view value) {
    const auto it = Position(lower_case_name);
    if (it == entries_.end()) {
      if (entries_.empty()) entries_.reserve(kUsual);
      entries_.emplace_back(lower_case_name, value);
      return;
    }
    auto& all = const_cast<std::string&>(it->second);
    if (!all.empty()) all += ", ";
    all.append(value.data(), value.size());
  }
  // Adds the header, empty, if there is none.
  std::string& operator[](absl::string_view lower_case_name) {
    const auto it = Position(lower_case_name);
    if (it != entries_.end()) return const_cast<std::string&>(it->second);
    entries_.emplace_back(std::string(lower_case_name), std::string());
    return entries_.back().second;
  }
  // Null if it was not sent.
  const std::string* Find(absl::string_view lower_case_name) const {
    const auto it = Position(lower_case_name);
    return it == entries_.end() ? nullptr : &it->second;
  }
  size_t count(absl::string_view lower_case_name) const {
    return Position(lower_case_name) == entries_.end() ? 0 : 1;
  }
  void erase(absl::string_view lower_case_name) {
    const auto it = Position(lower_case_name);
    if (it != entries_.end()) entries_.erase(it);
  }

  size_t size() const { return entries_.size(); }
  std::vector<Entry>::const_iterator begin() const { return entries_.begin(); }
  std::vector<Entry>::const_iterator end() const { return entries_.end(); }

 private:
  static constexpr size_t kUsual = 8;

  std::vector<Entry>::const_iterator Position(absl::string_view name) const {
    return std::find_if(entries_.begin(), entries_.end(),
                        [name](const Entry& entry) { return entry.first == name; });
  }

  std::vector<Entry> entries_;
};

struct PageRequest {
  std::string method;       // "GET"
  std::string path;         // without the query, undecoded
  std::string query;        // after '?', undecoded
  std::string peer;         // in gRPC's form: "ipv4:127.0.0.1:4711", "ipv6:%5B::1%5D:4711", "unix:"
  std::string certificate;  // the name that the client's certificate gives it; "": none
  PageHeaders headers;

  // "127.0.0.1", "::1" or "unix".
  std::string remote_address() const { return AddressOfPeer(peer); }

  // "" if it was not sent.
  std::string header(absl::string_view lower_case_name) const {
    const std::string* const value = headers.Find(lower_case_name);
    return value == nullptr ? "" : *value;
  }
};

// The body of an answer that is written while the client reads it.
class PageStream {
 public:
  virtual ~PageStream() = default;
  // Sends some more without waiting. `written` runs once, on any thread and possibly before this
  // returns: with true when the client should be sent more, with false once nobody reads. The next
  // part may be written when it has run.
  virtual void AsyncWrite(std::string part, std::function<void(bool)> written) = 0;
};

struct PageResponse {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers;  // additional headers

  // A 204 has no body, and RFC 9110 forbids that it states a length.
  bool has_body() const { return status != 204; }
};

// A line of text, or several.
inline PageResponse TextResponse(int status, std::string text) {
  PageResponse response;
  response.status = status;
  response.body = std::move(text);
  return response;
}

inline bool IsRead(const PageRequest& request) {
  return request.method == "GET" || request.method == "HEAD";
}

// The answer to what is no read, for a page that can only be read.
inline PageResponse NotARead(const PageRequest& request) {
  PageResponse response = TextResponse(405, absl::StrCat(request.path, " takes GET and HEAD\n"));
  response.headers.emplace_back("Allow", "GET, HEAD");
  return response;
}

}  // namespace sru::server::http

#endif  // SRU_SERVER_HTTP_PAGE_MESSAGE_H_
