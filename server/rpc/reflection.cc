#include "server/rpc/reflection.h"

#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/descriptor.pb.h"
#include "grpc/reflection/v1/reflection.pb.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "grpcpp/support/slice.h"
#include "server/rpc/grpc_status.h"
#include "server/rpc/request_parser.h"

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

}  // namespace

// One request after the other, each with its answer: at any time either a request is read or an
// answer is written. What fails ends the call, also that it is cancelled.
class Reflection::Call final : public grpc::ServerGenericBidiReactor {
 public:
  explicit Call(Reflection* reflection) : reflection_(*reflection) {
    if (reflection_.num_streams_.fetch_add(1) >= kMaxStreams) {
      End(absl::ResourceExhaustedError(
          absl::StrCat("there are ", kMaxStreams, " streams of reflection already")));
      return;
    }
    StartRead(&message_);
  }

 private:
  // noexcept: gRPC would swallow the exception, and the caller would wait for ever.
  void OnReadDone(bool ok) noexcept override {
    if (!ok) {  // the client has no more requests, or is gone
      End(absl::OkStatus());
      return;
    }
    const absl::Status status = ReadAndAnswer();
    if (status.ok()) {
      StartWrite(&message_);
    } else {
      End(status);
    }
  }

  void OnWriteDone(bool ok) override {
    if (ok) {
      StartRead(&message_);
    } else {
      End(absl::OkStatus());
    }
  }

  void OnDone() override {
    reflection_.num_streams_.fetch_sub(1);
    delete this;
  }

  // Puts the answer in the place of the request.
  absl::Status ReadAndAnswer() {
    if (message_.Length() > kMaxReflectionBytes) {
      return absl::InvalidArgumentError(absl::StrCat("a request of reflection has at most ",
                                                     kMaxReflectionBytes, " bytes, not ",
                                                     message_.Length()));
    }
    wire::ServerReflectionRequest request;
    if (absl::Status status = ParseSmallMessage(message_, &request); !status.ok()) return status;
    wire::ServerReflectionResponse response;
    response.set_valid_host(request.host());
    *response.mutable_original_request() = request;
    if (request.has_list_services()) {
      for (const std::string& service : reflection_.services_) {
        response.mutable_list_services_response()->add_service()->set_name(service);
      }
    } else {
      AnswerFromPool(request, &response);
    }
    const grpc::Slice bytes(response.SerializeAsString());
    message_ = grpc::ByteBuffer(&bytes, 1);
    return absl::OkStatus();
  }

  void End(const absl::Status& status) { Finish(ToGrpcStatus(status)); }

  Reflection& reflection_;
  grpc::ByteBuffer message_;
};

bool Reflection::IsMethod(absl::string_view path) {
  return path == "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo" ||
         path == "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";
}

grpc::ServerGenericBidiReactor* Reflection::Answer() { return new Call(this); }

}  // namespace sru::server::rpc
