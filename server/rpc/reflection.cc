#include "server/rpc/reflection.h"

#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "base/status.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/descriptor.pb.h"
#include "grpc/reflection/v1/reflection.pb.h"
#include "server/base/retry.h"
#include "server/callers/caller.h"
#include "server/calls/messages/request_parser.h"
#include "server/calls/messages/response_writer.h"

namespace sru::server::rpc {
namespace {

namespace wire = ::grpc::reflection::v1;
using google::protobuf::DescriptorPool;
using google::protobuf::FieldDescriptor;
using google::protobuf::FileDescriptor;

constexpr size_t kMaxReflectionBytes = 4 << 10;  // a name, a host, and much room

void AddFiles(const FileDescriptor& file, std::set<const FileDescriptor*>* added,
              wire::FileDescriptorResponse* response) {
  if (!added->insert(&file).second) return;
  google::protobuf::FileDescriptorProto proto;
  file.CopyTo(&proto);
  *response->add_file_descriptor_proto() = proto.SerializeAsString();
  for (int i = 0; i < file.dependency_count(); ++i) {
    AddFiles(*file.dependency(i), added, response);
  }
}

// With no file, there is none that has `what`.
void AnswerFile(const FileDescriptor* file, absl::string_view what,
                wire::ServerReflectionResponse* response) {
  if (file == nullptr) {
    wire::ErrorResponse* const error = response->mutable_error_response();
    error->set_error_code(static_cast<int>(absl::StatusCode::kNotFound));
    error->set_error_message(absl::StrCat("this server has no ", what));
    return;
  }
  std::set<const FileDescriptor*> added;
  AddFiles(*file, &added, response->mutable_file_descriptor_response());
}

// What the request asks of the descriptors that are linked into the program.
void AnswerFromPool(const wire::ServerReflectionRequest& request,
                    wire::ServerReflectionResponse* response) {
  const DescriptorPool& pool = *DescriptorPool::generated_pool();
  switch (request.message_request_case()) {
    case wire::ServerReflectionRequest::kFileByFilename:
      AnswerFile(pool.FindFileByName(request.file_by_filename()), "such file", response);
      return;
    case wire::ServerReflectionRequest::kFileContainingSymbol:
      AnswerFile(pool.FindFileContainingSymbol(request.file_containing_symbol()), "such symbol",
                 response);
      return;
    case wire::ServerReflectionRequest::kFileContainingExtension: {
      const wire::ExtensionRequest& wanted = request.file_containing_extension();
      const auto* const type = pool.FindMessageTypeByName(wanted.containing_type());
      const FieldDescriptor* const extension =
          type == nullptr ? nullptr : pool.FindExtensionByNumber(type, wanted.extension_number());
      AnswerFile(extension == nullptr ? nullptr : extension->file(), "such extension", response);
      return;
    }
    case wire::ServerReflectionRequest::kAllExtensionNumbersOfType: {
      const auto* const type = pool.FindMessageTypeByName(request.all_extension_numbers_of_type());
      if (type == nullptr) {
        AnswerFile(nullptr, "such type", response);
        return;
      }
      wire::ExtensionNumberResponse* const numbers =
          response->mutable_all_extension_numbers_response();
      numbers->set_base_type_name(type->full_name());
      std::vector<const FieldDescriptor*> extensions;
      pool.FindAllExtensions(type, &extensions);
      for (const FieldDescriptor* extension : extensions) {
        numbers->add_extension_number(extension->number());
      }
      return;
    }
    default: {
      wire::ErrorResponse* const error = response->mutable_error_response();
      error->set_error_code(static_cast<int>(absl::StatusCode::kInvalidArgument));
      error->set_error_message("the request asks nothing: expected one of message_request");
    }
  }
}

// One request after the other, each with its answer: at any time either a request is read or an
// answer is written. What fails ends the call, also that it is cancelled.
class ReflectionCall final : public calls::CallHandler {
 public:
  // Shared by the calls of a port.
  struct Service {
    explicit Service(std::vector<std::string> given) : services(std::move(given)) {}

    const std::vector<std::string> services;
    Mutex mutex;
    std::multiset<const callers::Caller*> streams ABSL_GUARDED_BY(mutex);
  };

  ReflectionCall(std::shared_ptr<Service> service, calls::Exchange* exchange)
      : service_(std::move(service)), exchange_(*exchange) {}

  void Start() {
    {
      MutexLock lock(&service_->mutex);
      const callers::Caller* const caller = exchange_.caller().get();  // null: anybody
      has_place_ =
          service_->streams.size() < kMaxReflectionStreams &&
          (caller == nullptr || service_->streams.count(caller) < kMaxReflectionStreams / 4);
      if (has_place_) service_->streams.insert(caller);
    }
    if (has_place_) return exchange_.Read();
    End(RetryAfter(absl::ResourceExhaustedError(
                       absl::StrCat("there are ", kMaxReflectionStreams,
                                    " streams of reflection already, or a quarter of one caller")),
                   kStreamRetryAfter));
  }

 private:
  // noexcept: the transport would lose the exception, and the caller would wait for ever.
  void OnMessage(std::optional<absl::Cord> message) noexcept override {
    // Without one, the client has no more requests, or is gone.
    if (!message.has_value()) return End(absl::OkStatus());
    absl::Cord answer;
    absl::Status status = Answer(*message, &answer);
    if (!status.ok()) return End(std::move(status));
    exchange_.Write(std::move(answer));
  }
  void OnWritten(bool ok) noexcept override {
    if (ok) {
      exchange_.Read();
    } else {
      End(absl::OkStatus());
    }
  }
  void OnDone() override {
    if (has_place_) {
      MutexLock lock(&service_->mutex);
      service_->streams.erase(service_->streams.find(exchange_.caller().get()));
    }
    delete this;
  }

  absl::Status Answer(const absl::Cord& message, absl::Cord* answer) const {
    if (message.size() > kMaxReflectionBytes) {
      return InvalidArgument("a request of reflection has at most ", kMaxReflectionBytes,
                             " bytes, not ", message.size());
    }
    wire::ServerReflectionRequest request;
    SRU_RETURN_UNLESS_OK(calls::ParseSmallMessage(message, &request));
    wire::ServerReflectionResponse response;
    response.set_valid_host(request.host());
    *response.mutable_original_request() = request;
    if (request.has_list_services()) {
      for (const std::string& service : service_->services) {
        response.mutable_list_services_response()->add_service()->set_name(service);
      }
    } else {
      AnswerFromPool(request, &response);
    }
    return calls::SerializeMessage(response, answer);
  }

  void End(absl::Status status) { exchange_.Finish({std::move(status), {}, {}}); }

  const std::shared_ptr<Service> service_;
  calls::Exchange& exchange_;
  bool has_place_ = false;
};

}  // namespace

std::vector<calls::Method> ReflectionMethods(std::vector<std::string> services) {
  const auto service = std::make_shared<ReflectionCall::Service>(std::move(services));
  std::vector<calls::Method> rows;
  // By its name of today and by its earlier one.
  for (const char* name :
       {"grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection"}) {
    calls::Method row;
    row.service = name;
    row.name = "ServerReflectionInfo";
    row.kind = calls::MethodKind::kBidirectional;
    row.start = [service](calls::Exchange* exchange) {
      auto* const call = new ReflectionCall(service, exchange);
      call->Start();
      return call;
    };
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace sru::server::rpc
