#include "server/transport/listener_credentials.h"

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "grpc/grpc.h"
#include "grpc/grpc_security.h"
#include "grpc/grpc_security_constants.h"
#include "grpcpp/security/auth_metadata_processor.h"
#include "grpcpp/security/tls_certificate_provider.h"
#include "grpcpp/security/tls_credentials_options.h"
#include "server/compat/grpc_version.h"
#include "server/telemetry/request_id.h"
#include "server/telemetry/trace_context.h"

namespace sru::server::transport {
namespace {

// Adds a header to what is known of a call.
void ReadHeader(absl::string_view key, absl::string_view value, CallToCheck* call) {
  if (key == "authorization") {
    call->headers.authorization = value;
    ++call->authorizations;
  } else if (key == ":path") {
    call->path = value;
  } else if (key == telemetry::kRequestIdHeader) {
    call->headers.request_id = value;
  } else if (key == telemetry::kTraceparentHeader) {
    call->headers.traceparent = value;
  } else if (key == "user-agent") {
    call->headers.user_agent = value;
  }
}

absl::string_view ToView(const grpc_slice& slice) {
  return {reinterpret_cast<const char*>(GRPC_SLICE_START_PTR(slice)), GRPC_SLICE_LENGTH(slice)};
}

std::string CertificateName(const grpc_auth_context* context) {
  grpc_auth_property_iterator found =
      grpc_auth_context_find_properties_by_name(context, GRPC_X509_CN_PROPERTY_NAME);
  const grpc_auth_property* name = grpc_auth_property_iterator_next(&found);
  return name == nullptr ? std::string() : std::string(name->value, name->value_length);
}

// Answers gRPC's core, which asks what to do with a call.
void CheckCoreCall(const CallCheck& check, const grpc_auth_context* context,
                   const grpc_metadata* metadata, size_t count,
                   grpc_process_auth_metadata_done_cb done, void* done_data) {
  CallToCheck call;
  call.certificate = [context] { return CertificateName(context); };
  for (size_t i = 0; i < count; ++i) {
    ReadHeader(ToView(metadata[i].key), ToView(metadata[i].value), &call);
  }
  const char* const refusal = check(call);
  done(done_data, nullptr, 0, nullptr, 0,
       refusal == nullptr ? GRPC_STATUS_OK : GRPC_STATUS_UNAUTHENTICATED, refusal);
}

}  // namespace

#if SRU_GRPC_IS_CURRENT

// gRPC's public interface has what is needed but for one thing: insecure credentials that look at
// calls, which its core has.

struct ServedCertificates::Core {
  grpc::experimental::InMemoryCertificateProvider provider;  // thread-safe
};

ServedCertificates::ServedCertificates(bool mutual)
    : mutual_(mutual), core_(std::make_shared<Core>()) {}

ServedCertificates::~ServedCertificates() = default;

absl::Status ServedCertificates::Use(const TlsPem& pem) {
  const std::vector<grpc::experimental::IdentityKeyOrSignerCertPair> pairs = {
      {pem.key, pem.certificate}};
  // gRPC looks at them only when it needs them, which is when others are no longer in use.
  grpc::experimental::InMemoryCertificateProvider trial;
  absl::Status status = trial.UpdateIdentityKeyCertPair(pairs);
  // The trial insists on authorities; without mutual TLS any certificate serves.
  if (status.ok()) status = trial.UpdateRoot(mutual_ ? pem.client_ca : pem.certificate);
  if (status.ok()) status = trial.ValidateCredentials();
  // The authorities come first, so that no client of an authority that is removed gets in under the
  // new certificate.
  if (status.ok() && mutual_) status = core_->provider.UpdateRoot(pem.client_ca);
  if (!status.ok()) return status;
  return core_->provider.UpdateIdentityKeyCertPair(pairs);
}

namespace {

// With TLS.
class CheckingProcessor final : public grpc::AuthMetadataProcessor {
 public:
  explicit CheckingProcessor(CallCheck check) : check_(std::move(check)) {}

  bool IsBlocking() const override { return false; }

  grpc::Status Process(const InputMetadata& metadata, grpc::AuthContext* context,
                       OutputMetadata* /*consumed*/, OutputMetadata* /*response*/) override {
    CallToCheck call;
    call.certificate = [context] {
      const auto names = context->FindPropertyValues(GRPC_X509_CN_PROPERTY_NAME);
      return names.empty() ? std::string() : std::string(names[0].data(), names[0].size());
    };
    for (const auto& [key, value] : metadata) {
      ReadHeader({key.data(), key.size()}, {value.data(), value.size()}, &call);
    }
    const char* const refusal = check_(call);
    if (refusal == nullptr) return grpc::Status::OK;
    return grpc::Status(grpc::StatusCode::UNAUTHENTICATED, refusal);
  }

 private:
  const CallCheck check_;
};

// In the clear.
class InsecureCheckingCredentials final : public grpc::ServerCredentials {
 public:
  explicit InsecureCheckingCredentials(CallCheck check)
      : grpc::ServerCredentials(grpc_insecure_server_credentials_create()) {
    grpc_server_credentials_set_auth_metadata_processor(
        c_creds(), {CheckCall, DeleteCheck, new CallCheck(std::move(check))});
  }

 private:
  static void CheckCall(void* check, grpc_auth_context* context, const grpc_metadata* metadata,
                        size_t count, grpc_process_auth_metadata_done_cb done, void* done_data) {
    CheckCoreCall(*static_cast<CallCheck*>(check), context, metadata, count, done, done_data);
  }
  static void DeleteCheck(void* check) { delete static_cast<CallCheck*>(check); }
};

}  // namespace

std::shared_ptr<grpc::ServerCredentials> MakeListenerCredentials(
    std::shared_ptr<const ServedCertificates> certificates, CallCheck check) {
  if (certificates == nullptr) {
    if (check == nullptr) return grpc::InsecureServerCredentials();
    return std::make_shared<InsecureCheckingCredentials>(std::move(check));
  }
  // Keeps the provider alive, which `options` refers to by a shared pointer.
  const std::shared_ptr<grpc::experimental::CertificateProviderInterface> provider(
      certificates->core(), &certificates->core()->provider);
  absl::StatusOr<grpc::experimental::TlsServerCredentialsOptions> options =
      grpc::experimental::TlsServerCredentialsOptions::Create(provider);
  if (certificates->mutual()) {
    options->set_root_certificate_provider(provider);
    options->set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  }
  std::shared_ptr<grpc::ServerCredentials> credentials =
      grpc::experimental::TlsServerCredentials(*options);
  if (check != nullptr) {
    credentials->SetAuthMetadataProcessor(std::make_shared<CheckingProcessor>(std::move(check)));
  }
  return credentials;
}

#else  // an older gRPC

// gRPC fetches: its core asks before each handshake whether there is something newer.
struct ServedCertificates::Core {
  mutable Mutex mutex;
  TlsPem pem ABSL_GUARDED_BY(mutex);
  // Counts the certificates that were taken into use. Read without the lock.
  std::atomic<int64_t> generation{0};
};

ServedCertificates::ServedCertificates(bool mutual)
    : mutual_(mutual), core_(std::make_shared<Core>()) {}

ServedCertificates::~ServedCertificates() = default;

absl::Status ServedCertificates::Use(const TlsPem& pem) {
  MutexLock lock(&core_->mutex);
  core_->pem = pem;
  ++core_->generation;
  return absl::OkStatus();
}

namespace {

// What gRPC's callbacks of one listener are given. Lives as long as gRPC's credentials.
struct ListenerState {
  std::shared_ptr<const ServedCertificates> certificates;
  CallCheck check;
  int64_t generation = 0;  // of the certificates that gRPC has; gRPC calls one at a time
};

grpc_ssl_certificate_config_reload_status FetchCertificates(
    void* user_data, grpc_ssl_server_certificate_config** config) {
  auto* state = static_cast<ListenerState*>(user_data);
  const ServedCertificates::Core& core = *state->certificates->core();
  if (state->generation == core.generation.load(std::memory_order_acquire)) {
    return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
  }
  MutexLock lock(&core.mutex);
  const grpc_ssl_pem_key_cert_pair pair = {core.pem.key.c_str(), core.pem.certificate.c_str()};
  // gRPC 1.51 insists on authorities even where it asks for no client certificate and so never uses
  // them; any certificate does.
  const std::string& authorities =
      core.pem.client_ca.empty() ? core.pem.certificate : core.pem.client_ca;
  *config = grpc_ssl_server_certificate_config_create(authorities.c_str(), &pair, 1);
  state->generation = core.generation.load(std::memory_order_relaxed);
  return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
}

void CheckCall(void* state, grpc_auth_context* context, const grpc_metadata* metadata, size_t count,
               grpc_process_auth_metadata_done_cb done, void* done_data) {
  CheckCoreCall(static_cast<ListenerState*>(state)->check, context, metadata, count, done,
                done_data);
}

void DeleteListenerState(void* state) { delete static_cast<ListenerState*>(state); }

// gRPC's C++ library has no server credentials whose certificates its user can replace, nor
// insecure ones that look at metadata; its core has both.
class CoreServerCredentials final : public grpc::ServerCredentials {
 public:
  // Takes `credentials` over.
  explicit CoreServerCredentials(grpc_server_credentials* credentials)
      : credentials_(credentials) {}
  CoreServerCredentials(const CoreServerCredentials&) = delete;
  CoreServerCredentials& operator=(const CoreServerCredentials&) = delete;
  ~CoreServerCredentials() override { grpc_server_credentials_release(credentials_); }

  void SetAuthMetadataProcessor(
      const std::shared_ptr<grpc::AuthMetadataProcessor>& /*processor*/) override {
    // Calls are checked by this file.
  }

 private:
  int AddPortToServer(const std::string& address, grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), credentials_);
  }

  grpc_server_credentials* const credentials_;
};

}  // namespace

std::shared_ptr<grpc::ServerCredentials> MakeListenerCredentials(
    std::shared_ptr<const ServedCertificates> certificates, CallCheck check) {
  if (certificates == nullptr && check == nullptr) return grpc::InsecureServerCredentials();
  const bool checks_calls = check != nullptr;
  auto* state = new ListenerState{std::move(certificates), std::move(check)};
  grpc_server_credentials* core = nullptr;
  if (state->certificates != nullptr) {
    core = grpc_ssl_server_credentials_create_with_options(
        grpc_ssl_server_credentials_create_options_using_config_fetcher(
            state->certificates->mutual()
                ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
                : GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE,
            FetchCertificates, state));
  } else {
    core = grpc_insecure_server_credentials_create();
  }
  // Without a function gRPC skips the check; the state is deleted with the credentials either way.
  grpc_server_credentials_set_auth_metadata_processor(
      core, {checks_calls ? CheckCall : nullptr, DeleteListenerState, state});
  return std::make_shared<CoreServerCredentials>(core);
}

#endif  // SRU_GRPC_IS_CURRENT

}  // namespace sru::server::transport
