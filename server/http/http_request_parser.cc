#include "server/http/http_request_parser.h"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http/basic_parser.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/optional.hpp>
#include <boost/system/error_code.hpp>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace sru::server::http {
namespace {

namespace http = boost::beast::http;
using boost::system::error_code;

// Far more than any client sends.
constexpr int kMaxFields = 100;
constexpr absl::string_view kLineEnd = "\r\n";

absl::string_view ToView(boost::beast::string_view text) { return {text.data(), text.size()}; }

// tchar of RFC 9110, of which methods are made.
bool IsTokenChar(char c) {
  return absl::ascii_isalnum(c) || (c != 0 && std::strchr("!#$%&'*+-.^_`|~", c) != nullptr);
}

// True if the text has only characters of a host and a port (RFC 3986, section 3.2.2).
bool HasHostChars(absl::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isalnum(c) || (c != 0 && std::strchr("-._~%!$&'()*+,;=:[]", c) != nullptr);
  });
}

}  // namespace

class HttpRequestParser::Beast final : public http::basic_parser<true> {
 public:
  explicit Beast(HttpRequestParser* parser) : parser_(*parser) {
    header_limit(static_cast<std::uint32_t>(parser->max_header_bytes_ + 4));
    body_limit(std::numeric_limits<std::uint64_t>::max());
    eager(false);
  }

 private:
  using View = boost::beast::string_view;

  void on_request_impl(http::verb /*verb*/, View method, View target, int version,
                       error_code& /*error*/) override {
    parser_.OnRequest(ToView(method), ToView(target), version);
  }
  void on_response_impl(int /*code*/, View /*reason*/, int /*version*/,
                        error_code& /*error*/) override {}
  void on_field_impl(http::field /*field*/, View name, View value, error_code& error) override {
    if (!parser_.in_header_) return;  // nobody needs what follows the last chunk
    parser_.OnField(ToView(name), ToView(value));
    if (!parser_.error_.empty()) error = http::error::bad_field;
  }
  // A recent Boost has this for what follows the last chunk. An older one does not, hence no
  // `override`.
  void on_trailer_field_impl(http::field /*field*/, View /*name*/, View /*value*/,
                             error_code& /*error*/) {}
  void on_header_impl(error_code& /*error*/) override {}
  void on_body_init_impl(const boost::optional<std::uint64_t>& /*length*/,
                         error_code& /*error*/) override {}
  std::size_t on_body_impl(View body, error_code& error) override { return Append(body, error); }
  void on_chunk_header_impl(std::uint64_t size, View /*extensions*/, error_code& error) override {
    if (!Fits(size)) error = http::error::body_limit;
    parser_.has_chunk_ = true;
    parser_.chunk_left_ = size;
  }
  std::size_t on_chunk_body_impl(std::uint64_t remain, View body, error_code& error) override {
    parser_.chunk_left_ = remain - body.size();
    return Append(body, error);
  }
  void on_finish_impl(error_code& /*error*/) override {}

  bool Fits(std::uint64_t more) const {
    return more <=
           parser_.max_body_bytes_ - std::min(parser_.max_body_bytes_, parser_.body_->size());
  }

  std::size_t Append(View body, error_code& error) {
    if (!Fits(body.size())) {
      error = http::error::body_limit;
      return 0;
    }
    parser_.body_->Append(ToView(body));
    return body.size();
  }

  HttpRequestParser& parser_;
};

HttpRequestParser::HttpRequestParser(size_t max_header_bytes, size_t max_body_bytes)
    : max_header_bytes_(max_header_bytes), max_body_bytes_(max_body_bytes) {}

HttpRequestParser::~HttpRequestParser() = default;

void HttpRequestParser::Reset() {
  beast_ = nullptr;
  request_ = {};
  scanned_ = line_begin_ = 0;
  fields_ = 0;
  version_ = 11;
  in_header_ = true;
  has_chunk_ = false;
  chunk_left_ = 0;
  chunked_ = expects_continue_ = has_host_ = host_in_target_ = false;
  content_length_.reset();
  error_status_ = 0;
  error_.clear();
}

HttpRequestParser::Result HttpRequestParser::Error(int status, std::string text) {
  // The first fault counts.
  if (error_.empty()) {
    error_status_ = status;
    error_ = std::move(text);
  }
  return Result::kError;
}

bool HttpRequestParser::is_http_1_0() const { return version_ == 10; }
bool HttpRequestParser::keep_alive() const { return beast_ != nullptr && beast_->keep_alive(); }

HttpRequestParser::Result HttpRequestParser::ReadHeader(absl::string_view* in) {
  // Some clients send an empty line after a body (RFC 9112, section 2.2).
  const size_t skip = scanned_ == 0 && absl::StartsWith(*in, kLineEnd) ? kLineEnd.size() : 0;
  const absl::string_view text = in->substr(skip);
  if (!text.empty() && !IsTokenChar(text.front()) && text != "\r") {
    return Error(400, "not an HTTP/1.1 request: expected the name of a method");
  }
  size_t end = 0;
  while (end == 0) {
    const size_t feed = text.find('\n', scanned_);
    if (feed == absl::string_view::npos) break;
    if (feed == 0 || text[feed - 1] != '\r') {
      return Error(400, "not an HTTP/1.1 request: a line ends without CR");
    }
    if (line_begin_ > 0 && (text[line_begin_] == ' ' || text[line_begin_] == '\t')) {
      return Error(400, "a header is continued on the next line, which HTTP no longer allows");
    }
    if (feed == line_begin_ + 1) end = feed + 1;
    scanned_ = line_begin_ = feed + 1;
  }
  if (end > max_header_bytes_ || (end == 0 && text.size() > max_header_bytes_)) {
    return Error(431, absl::StrCat("the headers have more than ", max_header_bytes_, " bytes"));
  }
  if (end == 0) {
    // What was skipped is passed again and skipped again.
    if (skip > 0) scanned_ = line_begin_ = 0;
    return Result::kNeedMore;
  }
  beast_ = std::make_unique<Beast>(this);
  error_code error;
  const size_t used = beast_->put(boost::asio::const_buffer(text.data(), end), error);
  if (!error_.empty()) return Result::kError;
  if (error || used != end || !beast_->is_header_done()) {
    return Error(400, absl::StrCat("not an HTTP/1.1 request: ", error.message()));
  }
  in_header_ = false;
  if (chunked_ && (version_ == 10 || content_length_.has_value())) {
    return Error(400, "Transfer-Encoding: expected neither Content-Length nor HTTP/1.0 beside it");
  }
  // RFC 9112, section 3.2. Nobody's page, and no proxy's rule, applies to a request without one.
  if (version_ == 11 && !has_host_) return Error(400, "Host: expected one, found none");
  in->remove_prefix(skip + end);
  return Result::kDone;
}

HttpRequestParser::Result HttpRequestParser::ReadBody(absl::string_view* in, absl::Cord* body) {
  while (!beast_->is_done()) {
    if (in->empty()) return Result::kNeedMore;
    if (chunked_ && chunk_left_ == 0) {
      const Result lines = CheckChunkLines(*in);
      if (lines != Result::kDone) return lines;
    }
    body_ = body;
    error_code error;
    // A chunk, what is there of it, or what stands before it.
    const size_t used = beast_->put(boost::asio::const_buffer(in->data(), in->size()), error);
    in->remove_prefix(std::min(used, in->size()));
    body_ = nullptr;
    if (error == http::error::body_limit) {
      return Error(413, absl::StrCat("the body has more than ", max_body_bytes_, " bytes"));
    }
    if (error == http::error::need_more) return Result::kNeedMore;
    if (error) return Error(400, absl::StrCat("the body is not in chunks: ", error.message()));
  }
  return Result::kDone;
}

// Beast passes over extensions and trailers. It takes bytes in them that end a line for others, and
// lines that go on.
HttpRequestParser::Result HttpRequestParser::CheckChunkLines(absl::string_view text) {
  constexpr size_t kMostDigits = 16;
  const int size_line = has_chunk_ ? 1 : 0;  // the first one ends the chunk before
  size_t begin = 0;
  for (int i = 0;; ++i) {
    const size_t feed = text.find('\n', begin);
    if (feed == absl::string_view::npos) break;
    absl::string_view line = text.substr(begin, feed - begin);
    begin = feed + 1;
    if (!absl::ConsumeSuffix(&line, "\r") || std::any_of(line.begin(), line.end(), [](char c) {
          return c != '\t' && absl::ascii_iscntrl(c);
        })) {
      return Error(400, "the lines around chunks: expected characters, ended by CR and LF");
    }
    if (i > size_line && !line.empty() && absl::ascii_isblank(line[0])) {
      return Error(400, "a trailer is continued on the next line, which HTTP no longer allows");
    }
    const bool is_size = i == size_line;
    const size_t digits = std::min(line.find_first_not_of("0123456789abcdefABCDEF"), line.size());
    if (is_size && digits > kMostDigits) {
      return Error(400, absl::StrCat("a chunk's size has more than ", kMostDigits, " digits"));
    }
    const bool is_last = digits > 0 && line.find_first_not_of('0') >= digits;
    // What is wrong besides, Beast says.
    if (is_size ? !is_last : line.empty() == (i > size_line)) return Result::kDone;
  }
  if (text.size() <= max_header_bytes_) return Result::kNeedMore;
  return Error(400, absl::StrCat("a chunk begins with more than ", max_header_bytes_, " bytes"));
}

void HttpRequestParser::OnRequest(absl::string_view method, absl::string_view target, int version) {
  version_ = version;
  request_.method = std::string(method);
  if (!TakeAuthority(&target)) {
    Error(400, "the request's target: expected http://HOST/PATH, without a user");
    return;
  }
  const absl::string_view resource = target.substr(0, target.find('#'));
  const size_t query = resource.find('?');
  request_.path = std::string(resource.substr(0, query));
  if (host_in_target_ && request_.path.empty()) request_.path = "/";
  if (query != absl::string_view::npos) request_.query = std::string(resource.substr(query + 1));
}

bool HttpRequestParser::TakeAuthority(absl::string_view* target) {
  if (!absl::StartsWithIgnoreCase(*target, "http://") &&
      !absl::StartsWithIgnoreCase(*target, "https://")) {
    return true;
  }
  target->remove_prefix(target->find("//") + 2);
  const absl::string_view authority = target->substr(0, target->find_first_of("/?#"));
  target->remove_prefix(authority.size());
  host_in_target_ = true;
  request_.headers.Add("host", authority);
  return !authority.empty() && authority[0] != ':' && HasHostChars(authority);
}

void HttpRequestParser::OnField(absl::string_view name, absl::string_view value) {
  if (++fields_ > kMaxFields) {
    Error(431, absl::StrCat("more than ", kMaxFields, " headers"));
    return;
  }
  const bool is_host = absl::EqualsIgnoreCase(name, "host");
  if (!is_host || !host_in_target_) request_.headers.Add(absl::AsciiStrToLower(name), value);
  if (absl::EqualsIgnoreCase(name, "content-length")) {
    uint64_t length = 0;
    const bool digits = !value.empty() && std::all_of(value.begin(), value.end(), [](char c) {
      return absl::ascii_isdigit(c);
    });
    if (content_length_.has_value() || !digits || !absl::SimpleAtoi(value, &length)) {
      Error(400, "Content-Length: expected one whole number");
      return;
    }
    content_length_ = length;
  } else if (absl::EqualsIgnoreCase(name, "transfer-encoding")) {
    if (chunked_ || !absl::EqualsIgnoreCase(value, "chunked")) {
      Error(chunked_ ? 400 : 501, "Transfer-Encoding: expected chunked, and nothing else");
      return;
    }
    chunked_ = true;
  } else if (absl::EqualsIgnoreCase(name, "expect")) {
    if (!absl::EqualsIgnoreCase(value, "100-continue")) {
      Error(417, "Expect: expected 100-continue");
      return;
    }
    expects_continue_ = true;
  } else if (is_host) {
    if (has_host_) Error(400, "Host: expected one, found several");
    if (!HasHostChars(value)) Error(400, "Host: expected a name or an address, and a port");
    has_host_ = true;
  }
}

}  // namespace sru::server::http
