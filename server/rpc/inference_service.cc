#include "server/rpc/inference_service.h"

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/rpc/answer_at_once.h"
#include "server/rpc/calls.h"
#include "server/rpc/request_parser.h"
#include "server/rpc/response_writer.h"

namespace sru::server::rpc {
namespace {

void WriteServedModel(const lifecycle::ServedModel& served, const RequestLimits& limits,
                      v1::ModelInfo* info) {
  WriteModelInfo(*served.model, served.engine->instances(), limits.max_sequence_tokens, info);
}

}  // namespace

grpc::ServerUnaryReactor* Service::Classify(grpc::CallbackServerContext* call,
                                            const grpc::ByteBuffer* request,
                                            grpc::ByteBuffer* response) {
  return StartClassify(context_, call, request, response);
}

grpc::ServerUnaryReactor* Service::Encode(grpc::CallbackServerContext* call,
                                          const grpc::ByteBuffer* request,
                                          grpc::ByteBuffer* response) {
  return StartEncode(context_, call, request, response);
}

grpc::ServerUnaryReactor* Service::Score(grpc::CallbackServerContext* call,
                                         const grpc::ByteBuffer* request,
                                         grpc::ByteBuffer* response) {
  return StartScore(context_, call, request, response);
}

grpc::ServerUnaryReactor* Service::Answer(grpc::CallbackServerContext* call,
                                          const grpc::ByteBuffer* request,
                                          grpc::ByteBuffer* response) {
  return StartAnswer(context_, call, request, response);
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* Service::Generate(grpc::CallbackServerContext* call,
                                                              const grpc::ByteBuffer* request) {
  return StartGenerate(context_, call, request);
}

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Service::EncodeStream(
    grpc::CallbackServerContext* call) {
  return StartEncodeStream(context_, call);
}

grpc::ServerUnaryReactor* Service::Translate(grpc::CallbackServerContext* call,
                                             const grpc::ByteBuffer* request,
                                             grpc::ByteBuffer* response) {
  return StartTranslate(context_, call, request, response);
}

grpc::ServerUnaryReactor* Service::ListModels(grpc::CallbackServerContext* call,
                                              const grpc::ByteBuffer* request,
                                              grpc::ByteBuffer* response) {
  return AnswerAtOnce(call, [&] {
    v1::ListModelsRequest list_request;
    absl::Status status = ParseSmallMessage(*request, &list_request);
    if (status.ok()) {
      v1::ListModelsResponse list_response;
      for (const std::shared_ptr<lifecycle::ServedModel>& served : context_.registry->List()) {
        WriteServedModel(*served, context_.limits, list_response.add_models());
      }
      for (const telemetry::ModelStatus& model : context_.manager->Statuses()) {
        WriteModelStatus(model, list_response.add_statuses());
      }
      status = SerializeMessage(list_response, response);
    }
    return EndInHandler(context_, telemetry::Method::kListModels, /*served=*/nullptr, status, call);
  });
}

grpc::ServerUnaryReactor* Service::GetModel(grpc::CallbackServerContext* call,
                                            const grpc::ByteBuffer* request,
                                            grpc::ByteBuffer* response) {
  return AnswerAtOnce(call, [&] {
    v1::GetModelRequest get_request;
    absl::Status status = ParseSmallMessage(*request, &get_request);
    std::shared_ptr<lifecycle::ServedModel> served;
    if (status.ok()) {
      absl::StatusOr<std::shared_ptr<lifecycle::ServedModel>> found =
          context_.registry->Find(get_request.model(), get_request.version());
      status = found.status();
      if (found.ok()) {
        served = *std::move(found);
        v1::GetModelResponse get_response;
        WriteServedModel(*served, context_.limits, get_response.mutable_model());
        status = SerializeMessage(get_response, response);
      }
    }
    return EndInHandler(context_, telemetry::Method::kGetModel, served.get(), status, call);
  });
}

}  // namespace sru::server::rpc
