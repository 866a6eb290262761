#include "server/transport/tls_certificates.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <ctime>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace sru::server {
namespace {

struct OpenSslFree {
  void operator()(BIO* p) const { BIO_free(p); }
  void operator()(X509* p) const { X509_free(p); }
  void operator()(EVP_PKEY* p) const { EVP_PKEY_free(p); }
};
template <typename T>
using Owned = std::unique_ptr<T, OpenSslFree>;

template <typename... Parts>
absl::Status Error(absl::string_view flag, const Parts&... parts) {
  ERR_clear_error();
  return absl::InvalidArgumentError(absl::StrCat("--", flag, ": ", parts...));
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

}  // namespace

absl::StatusOr<TlsCertificates> CheckTlsCertificates(TlsPem pem, absl::Time now) {
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

  if (!pem.client_ca.empty()) {
    absl::StatusOr<std::vector<Owned<X509>>> authorities =
        ReadCertificates("tls_client_ca", pem.client_ca);
    if (!authorities.ok()) return authorities.status();
    const auto valid = [&](const Owned<X509>& certificate) {
      return now <= ToTime(X509_get0_notAfter(certificate.get()));
    };
    if (std::none_of(authorities->begin(), authorities->end(), valid)) {
      return Error("tls_client_ca", "expected an authority that is valid now, found ",
                   SubjectOf(*authorities->front()), " that expired at ",
                   absl::FormatTime(ToTime(X509_get0_notAfter(authorities->front().get())),
                                    absl::UTCTimeZone()));
    }
  }
  result.pem = std::move(pem);
  return result;
}

}  // namespace sru::server
