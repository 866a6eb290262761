// Makes certificates for tests of TLS, with the strength, names and times that a test asks for.
// Aborts if OpenSSL cannot make one. Thread-safe.
#ifndef SRU_TESTS_TESTING_CERTIFICATES_H_
#define SRU_TESTS_TESTING_CERTIFICATES_H_

#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <string>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace sru::testing {

struct CertificateOptions {
  std::string name;                                              // the common name; "" = none
  int rsa_bits = 0;                                              // 0 = a key on the curve P-256
  bool authority = false;                                        // may issue others
  std::string alternative_names = "DNS:localhost,IP:127.0.0.1";  // of one that may not
  absl::Time from = absl::Now() - absl::Hours(1);
  absl::Time until = absl::Now() + absl::Hours(24);
  std::string organization{};   // "" = none
  int encoding = MBSTRING_ASC;  // of the names: OpenSSL's type of string, whose bytes they are
};

class Certificate {
 public:
  // Issued by `issuer`, or by itself if that is null.
  explicit Certificate(const CertificateOptions& options, const Certificate* issuer = nullptr)
      : key_(Check(options.rsa_bits > 0 ? EVP_RSA_gen(static_cast<unsigned int>(options.rsa_bits))
                                        : EVP_EC_gen("P-256")),
             EVP_PKEY_free),
        certificate_(Check(X509_new()), X509_free) {
    static std::atomic<long> serial{1};
    X509* const x509 = certificate_.get();
    X509_set_version(x509, X509_VERSION_3);
    ASN1_INTEGER_set(X509_get_serialNumber(x509), serial++);
    ASN1_TIME_set(X509_getm_notBefore(x509), absl::ToTimeT(options.from));
    ASN1_TIME_set(X509_getm_notAfter(x509), absl::ToTimeT(options.until));
    const std::unique_ptr<X509_NAME, void (*)(X509_NAME*)> name(Check(X509_NAME_new()),
                                                                X509_NAME_free);
    const auto add = [&](const char* kind, const std::string& text) {
      if (text.empty()) return;
      X509_NAME_add_entry_by_txt(name.get(), kind, options.encoding,
                                 reinterpret_cast<const unsigned char*>(text.data()),
                                 static_cast<int>(text.size()), -1, 0);
    };
    add("O", options.organization);
    add("CN", options.name);
    X509_set_subject_name(x509, name.get());
    X509* const issued_by = issuer == nullptr ? x509 : issuer->certificate_.get();
    X509_set_issuer_name(x509, X509_get_subject_name(issued_by));
    X509_set_pubkey(x509, key_.get());
    X509V3_CTX context;
    X509V3_set_ctx(&context, issued_by, x509, nullptr, nullptr, 0);
    AddExtension(&context, NID_basic_constraints,
                 options.authority ? "critical,CA:TRUE" : "critical,CA:FALSE");
    if (!options.authority) {
      AddExtension(&context, NID_subject_alt_name, options.alternative_names.c_str());
    }
    EVP_PKEY* const signer = issuer == nullptr ? key_.get() : issuer->key_.get();
    if (X509_sign(x509, signer, EVP_sha256()) == 0) std::abort();
  }

  std::string pem() const {
    return Written([this](BIO* bio) { return PEM_write_bio_X509(bio, certificate_.get()); });
  }
  std::string key_pem() const {
    return Written([this](BIO* bio) {
      return PEM_write_bio_PrivateKey(bio, key_.get(), nullptr, nullptr, 0, nullptr, nullptr);
    });
  }

 private:
  template <typename T>
  static T* Check(T* made) {
    if (made == nullptr) std::abort();
    return made;
  }

  template <typename Write>
  static std::string Written(const Write& write) {
    const std::unique_ptr<BIO, int (*)(BIO*)> bio(Check(BIO_new(BIO_s_mem())), BIO_free);
    if (write(bio.get()) != 1) std::abort();
    char* data = nullptr;
    const long size = BIO_get_mem_data(bio.get(), &data);
    return {data, static_cast<size_t>(size)};
  }

  void AddExtension(X509V3_CTX* context, int kind, const char* value) {
    const std::unique_ptr<X509_EXTENSION, void (*)(X509_EXTENSION*)> extension(
        Check(X509V3_EXT_conf_nid(nullptr, context, kind, value)), X509_EXTENSION_free);
    X509_add_ext(certificate_.get(), extension.get(), -1);
  }

  std::unique_ptr<EVP_PKEY, void (*)(EVP_PKEY*)> key_;
  std::unique_ptr<X509, void (*)(X509*)> certificate_;
};

}  // namespace sru::testing

#endif  // SRU_TESTS_TESTING_CERTIFICATES_H_
