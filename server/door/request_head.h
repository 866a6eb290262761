// RequestHead: the header fields of a call, and what gRPC's protocol says of them.
#ifndef SRU_SERVER_DOOR_REQUEST_HEAD_H_
#define SRU_SERVER_DOOR_REQUEST_HEAD_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/container/inlined_vector.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace sru::server::door {

// How a message is packed.
enum class Encoding { kIdentity, kGzip, kDeflate, kUnknown };

class RequestHead {
 public:
  // A field, as it arrives. Fields beyond `max_bytes` are counted, and not kept.
  void Add(absl::string_view name, absl::string_view value, size_t max_bytes);
  // Joins values of one name, once, after the last field.
  void JoinRepeated();

  // As RFC 9113 counts a list: 32 bytes for each field besides its own.
  size_t list_bytes() const { return list_bytes_; }
  // Returns how much memory the head takes.
  size_t memory_bytes() const { return text_.capacity() + fields_.capacity() * sizeof(Field); }

  // Finds a field that callers may set, or ":authority"; to be called after JoinRepeated(), which
  // joins the values of one name with commas. Values of a name that ends with "-bin" are decoded,
  // and the first one is found. Empty if there is none. Names that begin with "grpc-" are the
  // protocol's own and not found.
  absl::string_view Find(absl::string_view name) const;
  // Returns the number of fields of that name.
  int Count(absl::string_view name) const;

  // Visits the fields in their order, and ":authority" as "host".
  template <typename Visit>
  void VisitFields(const Visit& visit) const {
    for (const Field& field : fields_) {
      const absl::string_view name = View(field.name);
      visit(name == ":authority" ? "host" : name, View(field.value));
    }
  }

  absl::string_view path() const { return View(path_); }
  absl::string_view verb() const { return View(verb_); }
  bool is_grpc() const { return is_grpc_; }  // by its content type
  // Breaks a rule of HTTP/2: a value has space at an end, or "host" names another one than
  // ":authority".
  bool is_malformed() const { return is_malformed_; }
  bool has_bad_binary() const { return has_bad_binary_; }  // a "-bin" header that is no base64
  absl::Duration timeout() const { return timeout_; }
  Encoding encoding() const { return encoding_; }
  absl::string_view encoding_name() const { return View(encoding_name_); }
  bool accepts_gzip() const { return accepts_gzip_; }

 private:
  // A part of text_.
  struct Part {
    uint32_t begin = 0;
    uint32_t size = 0;
  };
  struct Field {
    Part name;
    Part value;
    int count = 1;  // that are joined in the value
  };

  absl::string_view View(Part part) const {
    return absl::string_view(text_).substr(part.begin, part.size);
  }
  Part Keep(absl::string_view text);
  // Whether `host` is that of ":authority", by which it goes then.
  bool IsAuthority(absl::string_view host) const;
  void AddCustom(absl::string_view name, absl::string_view value, size_t max_bytes);

  std::string text_;
  absl::InlinedVector<Field, 6> fields_;
  uint64_t name_bits_ = 0;  // of all names, a bit each
  bool may_repeat_ = false;
  size_t list_bytes_ = 0;
  Part path_;
  Part verb_;
  Part authority_;
  absl::string_view default_port_ = ":80";
  Part encoding_name_;
  absl::Duration timeout_ = absl::InfiniteDuration();
  Encoding encoding_ = Encoding::kIdentity;
  bool is_grpc_ = false;
  bool is_malformed_ = false;
  bool has_bad_binary_ = false;
  bool accepts_gzip_ = false;
};

}  // namespace sru::server::door

#endif  // SRU_SERVER_DOOR_REQUEST_HEAD_H_
