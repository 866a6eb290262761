#include "server/transport/tls_certificates.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <ctime>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace sru::server::transport {
namespace {

// gRPC offers the same.
constexpr char kCipherSuites[] =
    "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256:"
    "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES256-GCM-SHA384:"
    "ECDHE-RSA-AES128-GCM-SHA256:ECDHE-RSA-AES256-GCM-SHA384";
constexpr size_t kLongestName = 255;
constexpr size_t kMaxNames = 5;  // of authorities in one log line

struct OpenSslFree {
  void operator()(BIO* p) const { BIO_free(p); }
  void operator()(X509* p) const { X509_free(p); }
  void operator()(EVP_PKEY* p) const { EVP_PKEY_free(p); }
  void operator()(SSL_CTX* p) const { SSL_CTX_free(p); }
};
template <typename T>
using Owned = std::unique_ptr<T, OpenSslFree>;

template <typename... Parts>
absl::Status Error(absl::string_view flag, const Parts&... parts) {
  ERR_clear_error();
  return absl::InvalidArgumentError(absl::StrCat("--", flag, ": ", parts...));
}

// Why the last call of OpenSSL failed.
std::string OpenSslReason() {
  const unsigned long code = ERR_peek_last_error();
  const char* reason = code == 0 ? nullptr : ERR_reason_error_string(code);
  return reason == nullptr ? "no reason given" : reason;
}

absl::Time ToTime(const ASN1_TIME* time) {
  std::tm parts{};
  if (ASN1_TIME_to_tm(time, &parts) != 1) return absl::InfinitePast();
  return absl::FromTimeT(timegm(&parts));
}

std::string SubjectOf(const X509& certificate) {
  char buffer[256] = "";
  X509_NAME_oneline(X509_get_subject_name(&certificate), buffer, sizeof(buffer));
  return buffer;
}

// Every certificate of `pem`.
absl::StatusOr<std::vector<Owned<X509>>> ReadCertificates(absl::string_view flag,
                                                          const std::string& pem) {
  const Owned<BIO> bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  std::vector<Owned<X509>> certificates;
  while (X509* certificate = PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)) {
    certificates.emplace_back(certificate);
  }
  // The end of the text reads as "no start line"; anything else is damage.
  const unsigned long code = ERR_peek_last_error();
  const bool at_end =
      ERR_GET_LIB(code) == ERR_LIB_PEM && ERR_GET_REASON(code) == PEM_R_NO_START_LINE;
  ERR_clear_error();
  if (certificates.empty() || !at_end) {
    return Error(flag, "expected PEM certificates (-----BEGIN CERTIFICATE-----), found ",
                 certificates.empty() ? "none that can be read" : "a damaged one after the first");
  }
  return certificates;
}

// A key with a passphrase is refused: nobody could type it.
int NoPassphrase(char* /*buffer*/, int /*size*/, int /*writing*/, void* asked) {
  *static_cast<bool*>(asked) = true;
  return -1;
}

absl::StatusOr<Owned<EVP_PKEY>> ReadKey(const std::string& pem) {
  const Owned<BIO> bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  bool asked = false;
  Owned<EVP_PKEY> key(PEM_read_bio_PrivateKey(bio.get(), nullptr, NoPassphrase, &asked));
  if (key != nullptr) return key;
  if (asked) {
    return Error("tls_key",
                 "expected a key without a passphrase, found an encrypted one; decrypt it with "
                 "`openssl pkey -in KEY -out NEW_KEY`");
  }
  return Error("tls_key",
               "expected a PEM private key (-----BEGIN PRIVATE KEY-----), found none that can be "
               "read");
}

// "RSA, 1024 bits".
std::string DescribeKey(const EVP_PKEY* key) {
  if (key == nullptr) return "a key of an unknown kind";
  const char* type = EVP_PKEY_get0_type_name(key);
  return absl::StrCat(type == nullptr ? "key" : type, ", ", EVP_PKEY_get_bits(key), " bits");
}

constexpr absl::string_view kHttp2 = "h2";
constexpr absl::string_view kHttp1 = "http/1.1";
constexpr AlpnOffer kOffers[] = {AlpnOffer::kHttp2, AlpnOffer::kHttp2AndHttp1};

// A connection's offer is a mark on the connection, as all share the context.
int OfferMark() {
  static const int index = SSL_get_ex_new_index(0, nullptr, nullptr, nullptr, nullptr);
  return index;
}

int ChooseProtocol(SSL* connection, const unsigned char** chosen, unsigned char* chosen_size,
                   const unsigned char* offered, unsigned offered_size, void* /*argument*/) {
  const auto* const offer = static_cast<const AlpnOffer*>(SSL_get_ex_data(connection, OfferMark()));
  for (const absl::string_view wanted : {kHttp2, kHttp1}) {
    if (wanted == kHttp1 && *offer == AlpnOffer::kHttp2) break;
    for (unsigned i = 0; i < offered_size; i += 1U + offered[i]) {
      if (absl::string_view(reinterpret_cast<const char*>(offered) + i + 1, offered[i]) != wanted) {
        continue;
      }
      *chosen = offered + i + 1;
      *chosen_size = offered[i];
      return SSL_TLSEXT_ERR_OK;
    }
  }
  return SSL_TLSEXT_ERR_ALERT_FATAL;
}

// A context that gRPC would make, without certificates.
absl::StatusOr<Owned<SSL_CTX>> MakeServerContext() {
  Owned<SSL_CTX> context(SSL_CTX_new(TLS_method()));
  if (context == nullptr) {
    return Error(
        "tls_cert", "OpenSSL cannot do TLS here (", OpenSslReason(),
        "); expected a configuration of OpenSSL (OPENSSL_CONF, openssl.cnf) that activates "
        "a provider of its algorithms, as `default` and `fips` are");
  }
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  SSL_CTX_set_max_proto_version(context.get(), TLS1_3_VERSION);
  if (SSL_CTX_set_cipher_list(context.get(), kCipherSuites) != 1) {
    return Error("tls_cert", "OpenSSL has none of the cipher suites of gRPC (", OpenSslReason(),
                 ")");
  }
  int curve = NID_X9_62_prime256v1;
  if (SSL_CTX_set1_groups(context.get(), &curve, 1) != 1) {
    return Error("tls_cert", "OpenSSL cannot do the key exchange of gRPC, P-256 (", OpenSslReason(),
                 ")");
  }
  return context;
}

// Whether OpenSSL would take this authority's key when it verifies a client's chain.
bool IsStrongEnough(const SSL_CTX* context, X509* authority) {
  const EVP_PKEY* key = X509_get0_pubkey(authority);
  const int bits = key == nullptr ? -1 : EVP_PKEY_get_security_bits(key);
  return SSL_CTX_get_security_callback(context)(nullptr, context, SSL_SECOP_CA_KEY | SSL_SECOP_PEER,
                                                bits, NID_undef, authority,
                                                SSL_CTX_get0_security_ex_data(context)) == 1;
}

// The characters, whatever their encoding is, in UTF-8; empty if one of them is a control
// character, or none.
std::string TextOf(const ASN1_STRING& characters) {
  unsigned char* bytes = nullptr;
  const int size = ASN1_STRING_to_UTF8(&bytes, &characters);
  ERR_clear_error();
  if (size < 0) return "";
  std::string text(reinterpret_cast<const char*>(bytes), static_cast<size_t>(size));
  OPENSSL_free(bytes);
  const auto is_control = [](char c) { return absl::ascii_iscntrl(static_cast<unsigned char>(c)); };
  return std::any_of(text.begin(), text.end(), is_control) ? "" : text;
}

std::string JoinNames(const std::vector<std::string>& names) {
  const size_t shown = std::min(names.size(), kMaxNames);
  std::string text = absl::StrJoin(names.begin(), names.begin() + shown, ", ");
  if (shown < names.size()) absl::StrAppend(&text, " and ", names.size() - shown, " more");
  return text;
}

}  // namespace

absl::StatusOr<TlsCertificates> CheckTlsCertificates(TlsPem pem, absl::Time now) {
  absl::StatusOr<Owned<SSL_CTX>> made = MakeServerContext();
  if (!made.ok()) return made.status();
  SSL_CTX* const context = made->get();
  const int security_level = SSL_CTX_get_security_level(context);

  absl::StatusOr<std::vector<Owned<X509>>> chain = ReadCertificates("tls_cert", pem.certificate);
  if (!chain.ok()) return chain.status();
  TlsCertificates result;
  const X509& own = *chain->front();
  result.subject = SubjectOf(own);
  result.not_after = absl::InfiniteFuture();
  for (size_t i = 0; i < chain->size(); ++i) {
    const X509& certificate = *(*chain)[i];
    const absl::Time from = ToTime(X509_get0_notBefore(&certificate));
    const absl::Time until = ToTime(X509_get0_notAfter(&certificate));
    if (now > until || now < from) {
      return Error("tls_cert", "expected a certificate that is valid now, found ",
                   SubjectOf(certificate), now > until ? " that expired at " : " that begins at ",
                   absl::FormatTime(now > until ? until : from, absl::UTCTimeZone()));
    }
    result.not_after = std::min(result.not_after, until);
    if (i + 1 < chain->size() &&
        X509_check_issued((*chain)[i + 1].get(), (*chain)[i].get()) != X509_V_OK) {
      return Error("tls_cert", "expected each certificate to be followed by that of its issuer, ",
                   "found ", SubjectOf(certificate), " followed by ", SubjectOf(*(*chain)[i + 1]));
    }
  }

  absl::StatusOr<Owned<EVP_PKEY>> key = ReadKey(pem.key);
  if (!key.ok()) return key.status();
  if (X509_check_private_key(&own, key->get()) != 1) {
    return Error("tls_key", "expected the key of the first certificate in --tls_cert, ",
                 result.subject, ", found another key");
  }

  if (SSL_CTX_use_certificate(context, chain->front().get()) != 1) {
    return Error("tls_cert", "expected a certificate that OpenSSL takes at its security level, ",
                 security_level, ", found that of ", result.subject, " (",
                 DescribeKey(X509_get0_pubkey(&own)), "): ", OpenSslReason());
  }
  for (size_t i = 1; i < chain->size(); ++i) {
    X509* const issuer = (*chain)[i].get();
    if (SSL_CTX_add1_chain_cert(context, issuer) != 1) {
      return Error("tls_cert", "expected a chain that OpenSSL takes at its security level, ",
                   security_level, ", found the certificate of ", SubjectOf(*issuer), ": ",
                   OpenSslReason());
    }
  }
  if (SSL_CTX_use_PrivateKey(context, key->get()) != 1) {
    return Error("tls_key", "expected a key that OpenSSL takes at its security level, ",
                 security_level, ", found ", DescribeKey(key->get()), ": ", OpenSslReason());
  }

  if (!pem.client_ca.empty()) {
    absl::StatusOr<std::vector<Owned<X509>>> authorities =
        ReadCertificates("tls_client_ca", pem.client_ca);
    if (!authorities.ok()) return authorities.status();
    // One that can be used is enough: bundles keep what has expired.
    std::string fault;
    bool usable = false;
    for (const Owned<X509>& authority : *authorities) {
      const absl::Time until = ToTime(X509_get0_notAfter(authority.get()));
      if (X509_STORE_add_cert(SSL_CTX_get_cert_store(context), authority.get()) != 1 ||
          SSL_CTX_add_client_CA(context, authority.get()) != 1) {
        return Error("tls_client_ca", "OpenSSL does not take the certificate of ",
                     SubjectOf(*authority), ": ", OpenSslReason());
      }
      std::string found;
      if (now > until) {
        found = absl::StrCat(" that expired at ", absl::FormatTime(until, absl::UTCTimeZone()));
      } else if (!IsStrongEnough(context, authority.get())) {
        found = absl::StrCat(" whose key (", DescribeKey(X509_get0_pubkey(authority.get())),
                             ") OpenSSL does not take at its security level, ", security_level);
      }
      usable = usable || found.empty();
      result.client_authorities.push_back(SubjectOf(*authority));
      if (fault.empty()) fault = absl::StrCat(SubjectOf(*authority), found);
    }
    if (!usable) {
      return Error("tls_client_ca", "expected an authority that is valid now, found ", fault);
    }
  }
  if (!pem.client_ca.empty()) {
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  }
  // Sessions are not taken up again: connections stay open.
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_options(context, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION);
  SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_alpn_select_cb(context, ChooseProtocol, nullptr);
  result.context = std::shared_ptr<SSL_CTX>(std::move(*made));
  result.pem = std::move(pem);
  return result;
}

void OfferProtocols(ssl_st* connection, AlpnOffer offer) {
  SSL_set_ex_data(connection, OfferMark(),
                  const_cast<AlpnOffer*>(&kOffers[static_cast<size_t>(offer)]));
}

absl::string_view AgreedProtocol(const ssl_st* connection) {
  const unsigned char* name = nullptr;
  unsigned size = 0;
  SSL_get0_alpn_selected(connection, &name, &size);
  return {reinterpret_cast<const char*>(name), size};
}

std::string OwnerOf(const X509& certificate) {
  X509_NAME* const subject = X509_get_subject_name(&certificate);
  if (X509_NAME_entry_count(subject) > 0) {
    const Owned<BIO> text(BIO_new(BIO_s_mem()));
    if (text == nullptr || X509_NAME_print_ex(text.get(), subject, 0, XN_FLAG_RFC2253) < 0) {
      return "";
    }
    char* data = nullptr;
    const long size = BIO_get_mem_data(text.get(), &data);
    std::string owner(data, static_cast<size_t>(std::max(0L, size)));
    const X509_NAME_ENTRY* const first = X509_NAME_get_entry(subject, 0);
    if (X509_NAME_entry_count(subject) > 1 ||
        OBJ_obj2nid(X509_NAME_ENTRY_get_object(first)) != NID_commonName) {
      return owner;
    }
    const std::string common = TextOf(*X509_NAME_ENTRY_get_data(first));
    // A name that looks like a whole subject stays one.
    const bool is_short = !common.empty() && common.size() < kLongestName;
    return is_short && !absl::StrContains(common, '=') ? common : owner;
  }
  const std::unique_ptr<GENERAL_NAMES, void (*)(GENERAL_NAMES*)> names(
      static_cast<GENERAL_NAMES*>(
          X509_get_ext_d2i(&certificate, NID_subject_alt_name, nullptr, nullptr)),
      GENERAL_NAMES_free);
  for (int i = 0; i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME& name = *sk_GENERAL_NAME_value(names.get(), i);
    if (name.type != GEN_URI && name.type != GEN_DNS) continue;
    const std::string text = TextOf(*name.d.ia5);
    if (!text.empty()) return absl::StrCat(name.type == GEN_URI ? "URI=" : "DNS=", text);
  }
  return "";
}

std::string OwnerOf(absl::string_view pem) {
  const Owned<BIO> bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  const Owned<X509> certificate(
      bio == nullptr ? nullptr : PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr));
  ERR_clear_error();
  return certificate == nullptr ? "" : OwnerOf(*certificate);
}

std::string Describe(const TlsCertificates& certificates) {
  std::string text = absl::StrCat(
      "certificate of ", certificates.subject, ", valid until ",
      absl::FormatTime(absl::RFC3339_sec, certificates.not_after, absl::UTCTimeZone()));
  if (!certificates.client_authorities.empty()) {
    absl::StrAppend(&text, ", clients must show a certificate of ",
                    JoinNames(certificates.client_authorities));
  }
  return text;
}

std::string DescribeChange(const TlsCertificates& before, const TlsCertificates& after) {
  std::vector<std::string> changes;
  if (before.pem.certificate != after.pem.certificate) {
    changes.push_back(
        absl::StrCat("new certificate of ", after.subject, ", valid until ",
                     absl::FormatTime(absl::RFC3339_sec, after.not_after, absl::UTCTimeZone())));
  } else if (before.pem.key != after.pem.key) {
    changes.push_back(absl::StrCat("the key of ", after.subject, " was written anew"));
  }
  if (before.pem.client_ca != after.pem.client_ca) {
    changes.push_back(
        absl::StrCat("new authorities of clients: ", JoinNames(after.client_authorities)));
  }
  return changes.empty() ? "the files are again those in use" : absl::StrJoin(changes, "; ");
}

}  // namespace sru::server::transport
