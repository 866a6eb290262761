// A request to the metrics port and its answer, independent of the HTTP library.
#ifndef SRU_SERVER_HTTP_PAGE_MESSAGE_H_
#define SRU_SERVER_HTTP_PAGE_MESSAGE_H_

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace sru::server {

struct PageRequest {
  std::string method;          // "GET"
  std::string path;            // without the query
  std::string remote_address;  // of the connection: "127.0.0.1", "::1"
  // By lower-case name. A header that came twice has both values, joined by ", ".
  std::map<std::string, std::string> headers;
  // Reads the body; called at most once. kInvalidArgument: its length is not stated;
  // kResourceExhausted: it is too long; kDeadlineExceeded: it did not arrive completely in time.
  std::function<absl::StatusOr<std::string>()> read_body;

  // "" if it was not sent.
  std::string header(const std::string& lower_case_name) const {
    const auto it = headers.find(lower_case_name);
    return it == headers.end() ? "" : it->second;
  }
};

// The body of an answer that is written while the client reads it.
class PageStream {
 public:
  virtual ~PageStream() = default;
  // Sends some more, and waits while the client has much of it to take. False once nobody reads:
  // then the rest need not be made.
  virtual bool Write(std::string part) = 0;
};

struct PageResponse {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers;  // additional headers
  // If set, the body is what this writes. Called at most once, on a thread that it may block.
  std::function<void(PageStream* stream)> write_body;
};

}  // namespace sru::server

#endif  // SRU_SERVER_HTTP_PAGE_MESSAGE_H_
