#include "server/door/request_head.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "server/calls/grpc_text.h"

namespace sru::server::door {
namespace {

constexpr size_t kFieldBytes = 32;  // RFC 9113, 10.5.1

bool IsGrpc(absl::string_view type) {
  if (!absl::ConsumePrefix(&type, "application/grpc")) return false;
  return type.empty() || type[0] == '+' || type[0] == ';';
}

// gRPC's clients send "Bearer " with an empty token, which is refused as a wrong one.
bool MayEndWithSpace(absl::string_view name) { return name == "authorization"; }

bool IsReserved(absl::string_view name) { return absl::StartsWith(name, "grpc-"); }

Encoding EncodingOf(absl::string_view name) {
  if (name == "identity") return Encoding::kIdentity;
  if (name == "gzip") return Encoding::kGzip;
  if (name == "deflate") return Encoding::kDeflate;
  return Encoding::kUnknown;
}

}  // namespace

RequestHead::Part RequestHead::Keep(absl::string_view text) {
  const Part part = {static_cast<uint32_t>(text_.size()), static_cast<uint32_t>(text.size())};
  text_.append(text.data(), text.size());
  return part;
}

void RequestHead::Add(absl::string_view name, absl::string_view value, size_t max_bytes) {
  list_bytes_ += name.size() + value.size() + kFieldBytes;
  if (absl::StripAsciiWhitespace(value).size() < value.size() && !MayEndWithSpace(name)) {
    is_malformed_ = true;
  }
  if (name == "content-type") is_grpc_ = IsGrpc(value);  // how a refusal is told
  if (list_bytes_ > max_bytes) return;
  if (name == ":path") {
    path_ = Keep(value);
  } else if (name == ":method") {
    verb_ = Keep(value);
  } else if (name == ":scheme") {
    default_port_ = value == "https" ? ":443" : ":80";
  } else if (name == ":authority") {
    AddCustom(name, value, max_bytes);
    authority_ = fields_.back().value;
  } else if (name == "host" && authority_.size > 0) {
    if (!IsAuthority(value)) is_malformed_ = true;
  } else if (IsReserved(name)) {
    AddCustom(name, value, max_bytes);
    if (name == "grpc-timeout") {
      timeout_ = calls::ParseGrpcTimeout(value);
    } else if (name == "grpc-encoding") {
      encoding_ = EncodingOf(value);
      encoding_name_ = Keep(value);
    } else if (name == "grpc-accept-encoding") {
      for (const absl::string_view one : absl::StrSplit(value, ',')) {
        if (absl::StripAsciiWhitespace(one) == "gzip") accepts_gzip_ = true;
      }
    }
  } else if (!absl::StartsWith(name, ":") && name != "te") {
    AddCustom(name, value, max_bytes);
  }
}

bool RequestHead::IsAuthority(absl::string_view host) const {
  absl::string_view authority = View(authority_);
  absl::ConsumeSuffix(&authority, default_port_);
  absl::ConsumeSuffix(&host, default_port_);
  return absl::EqualsIgnoreCase(authority, host);
}

void RequestHead::AddCustom(absl::string_view name, absl::string_view value, size_t max_bytes) {
  const unsigned char last = name.empty() ? 0 : static_cast<unsigned char>(name.back());
  const uint64_t bit = uint64_t{1} << ((name.size() * 7 + last) % 64);
  may_repeat_ = may_repeat_ || (name_bits_ & bit) != 0;
  name_bits_ |= bit;
  const Part kept_name = Keep(name);
  if (!absl::EndsWith(name, "-bin")) {
    fields_.push_back({kept_name, Keep(value)});
    return;
  }
  // Several values of one key may come as one, with commas between them. Each takes as much as a
  // field of its own.
  list_bytes_ -= kFieldBytes;
  for (const absl::string_view one : absl::StrSplit(value, ',')) {
    list_bytes_ += kFieldBytes;
    if (list_bytes_ > max_bytes) return;
    std::string bytes;
    // With and without padding.
    if (!absl::Base64Unescape(absl::StripAsciiWhitespace(one), &bytes)) {
      has_bad_binary_ = true;
      continue;
    }
    fields_.push_back({kept_name, Keep(bytes)});
  }
}

void RequestHead::JoinRepeated() {
  if (!may_repeat_) return;  // as in most calls
  // By name, and by arrival within a name.
  std::sort(fields_.begin(), fields_.end(), [this](const Field& a, const Field& b) {
    const int order = View(a.name).compare(View(b.name));
    return order < 0 || (order == 0 && a.value.begin < b.value.begin);
  });
  size_t kept = 0;
  for (size_t i = 0; i < fields_.size();) {
    const absl::string_view name = View(fields_[i].name);
    size_t end = i + 1;
    if (!absl::EndsWith(name, "-bin")) {
      while (end < fields_.size() && View(fields_[end].name) == name) ++end;
    }
    Field field = fields_[i];
    if (end - i > 1) {
      std::string joined;
      for (size_t j = i; j < end; ++j) {
        absl::StrAppend(&joined, j == i ? "" : ",", View(fields_[j].value));
      }
      field.value = Keep(joined);
      field.count = static_cast<int>(end - i);
    }
    fields_[kept++] = field;
    i = end;
  }
  fields_.resize(kept);
}

absl::string_view RequestHead::Find(absl::string_view name) const {
  for (const Field& field : fields_) {
    if (View(field.name) == name && !IsReserved(name)) return View(field.value);
  }
  return {};
}

int RequestHead::Count(absl::string_view name) const {
  int count = 0;
  for (const Field& field : fields_) {
    if (View(field.name) == name && !IsReserved(name)) count += field.count;
  }
  return count;
}

}  // namespace sru::server::door
