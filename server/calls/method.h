// Method: a row of the table of methods: what a transport and a gateway must know of a method to
// serve it.
#ifndef SRU_SERVER_CALLS_METHOD_H_
#define SRU_SERVER_CALLS_METHOD_H_

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/message.h"
#include "server/calls/exchange.h"
#include "server/calls/method_info.h"

namespace sru::server::calls {

// Of the method's POST: "/v1/classify"; empty: none.
inline std::string HttpPathOf(const MethodInfo& info) {
  return *info.summary == 0 ? "" : absl::StrCat("/v1/", absl::AsciiStrToLower(info.name));
}

struct Method {
  std::optional<MethodId> id;  // nothing: health, reflection
  std::string service;         // "sru.v1.InferenceService"
  std::string name;            // "Classify"
  MethodKind kind = MethodKind::kUnary;
  // The longest message of a method that needs no token: it is a name.
  static constexpr uint32_t kMostOpenMessage = 4 << 10;
  bool needs_token = true;  // false, of probes: only with --auth_health
  // Default instances; null where nothing needs them.
  const google::protobuf::Message* request = nullptr;
  const google::protobuf::Message* response = nullptr;
  std::string http_path;  // HttpPathOf()
  std::string summary;    // a sentence
  // How a call of one message ends that is refused in an overload before it is made; nothing:
  // `start` makes it. Null: none is refused so.
  std::function<std::optional<CallEnd>(const Exchange& exchange, const absl::Cord& message)> refuse;
  // Makes a call. It lives until its OnDone().
  std::function<CallHandler*(Exchange* exchange)> start;

  // The row of a method, whose calls `start` makes. Their messages are `Request` and `Response`.
  template <typename Request, typename Response>
  static Method Of(MethodId id, std::function<CallHandler*(Exchange* exchange)> start) {
    Method row = Of(id);
    row.request = &Request::default_instance();
    row.response = &Response::default_instance();
    row.start = std::move(start);
    return row;
  }
  // One that has no calls yet.
  static Method Of(MethodId id) {
    const MethodInfo info = Describe(id);
    Method row;
    row.id = id;
    row.service = info.service;
    row.name = info.name;
    row.kind = info.kind;
    row.http_path = HttpPathOf(info);
    row.summary = info.summary;
    // Those that tell no more than the health service does.
    row.needs_token =
        id != MethodId::kServerLive && id != MethodId::kServerReady && id != MethodId::kModelReady;
    return row;
  }

  std::string path() const { return absl::StrCat("/", service, "/", name); }
};

// The methods of a port. Constant, so thread-safe.
class MethodTable {
 public:
  explicit MethodTable(std::vector<Method> rows) : rows_(std::move(rows)) {
    for (const Method& row : rows_) by_path_[row.path()] = &row;
  }
  MethodTable(const MethodTable&) = delete;
  MethodTable& operator=(const MethodTable&) = delete;

  const std::vector<Method>& rows() const { return rows_; }
  // Null if no row has the path.
  const Method* Find(absl::string_view path) const {
    const auto found = by_path_.find(path);
    return found == by_path_.end() ? nullptr : found->second;
  }
  // Whether a call of the path needs a token, where the port asks for them. What has no row does.
  bool NeedsToken(absl::string_view path) const {
    const Method* const row = Find(path);
    return row == nullptr || row->needs_token;
  }

 private:
  const std::vector<Method> rows_;
  absl::flat_hash_map<std::string, const Method*> by_path_;
};

}  // namespace sru::server::calls

#endif  // SRU_SERVER_CALLS_METHOD_H_
