// HttpRequestParser: reads one HTTP/1.x request from bytes as they come. Boost.Beast knows the
// grammar; what it lets pass and proxies read in another way (request smuggling) is refused here: a
// length given twice or together with chunks, other transfer codings, continued header lines, line
// ends without CR, and the same around chunks.
//
//   HttpRequestParser parser(max_header_bytes, max_body_bytes);
//   parser.ReadHeader(&in);  // until it is kDone; takes what it has read from the front of `in`
//   parser.ReadBody(&in, &body);
//
// Not thread-safe.
#ifndef SRU_SERVER_HTTP_HTTP_REQUEST_PARSER_H_
#define SRU_SERVER_HTTP_HTTP_REQUEST_PARSER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"
#include "server/http/page_message.h"

namespace sru::server::http {

class HttpRequestParser {
 public:
  enum class Result { kNeedMore, kDone, kError };

  HttpRequestParser(size_t max_header_bytes, size_t max_body_bytes);
  HttpRequestParser(const HttpRequestParser&) = delete;
  HttpRequestParser& operator=(const HttpRequestParser&) = delete;
  ~HttpRequestParser();

  // Method, path, query and headers. Until they are complete nothing is taken, and the next call
  // must have the same bytes again, with more behind them.
  Result ReadHeader(absl::string_view* in);
  // Then the body, which is appended. What is not taken must be passed again.
  Result ReadBody(absl::string_view* in, absl::Cord* body);
  // Another bound for the bodies that follow.
  void set_max_body_bytes(size_t bytes) { max_body_bytes_ = bytes; }
  // For the next request.
  void Reset();

  // After kError: the status of the answer and what is wrong.
  int error_status() const { return error_status_; }
  const std::string& error() const { return error_; }

  // After the headers.
  PageRequest& request() { return request_; }
  bool is_http_1_0() const;
  bool keep_alive() const;
  bool chunked() const { return chunked_; }
  std::optional<uint64_t> content_length() const { return content_length_; }
  bool expects_continue() const { return expects_continue_; }

 private:
  class Beast;

  Result Error(int status, std::string text);
  // Looks at the lines before the next chunk, or at the last one and the trailers; kDone once they
  // have come whole.
  Result CheckChunkLines(absl::string_view text);
  void OnRequest(absl::string_view method, absl::string_view target, int version);
  // Takes the scheme and the authority off a target in absolute form (RFC 9112, section 3.2.2). The
  // authority is the host, whatever the field says. False if it is wrong.
  bool TakeAuthority(absl::string_view* target);
  void OnField(absl::string_view name, absl::string_view value);

  const size_t max_header_bytes_;
  size_t max_body_bytes_;
  std::unique_ptr<Beast> beast_;
  PageRequest request_;
  size_t scanned_ = 0;     // bytes of the headers that were looked at
  size_t line_begin_ = 0;  // in them
  int fields_ = 0;
  int version_ = 11;
  bool in_header_ = true;
  bool chunked_ = false;
  bool has_chunk_ = false;   // one has begun
  uint64_t chunk_left_ = 0;  // bytes of it
  bool expects_continue_ = false;
  bool has_host_ = false;
  bool host_in_target_ = false;
  std::optional<uint64_t> content_length_;
  absl::Cord* body_ = nullptr;  // during ReadBody()
  int error_status_ = 0;
  std::string error_;
};

}  // namespace sru::server::http

#endif  // SRU_SERVER_HTTP_HTTP_REQUEST_PARSER_H_
