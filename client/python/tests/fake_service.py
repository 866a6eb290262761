"""A server of the contract in this process, whose answers a test writes."""

from concurrent import futures

import grpc
from google.protobuf import any_pb2, duration_pb2

from sru_inference import details_pb2, open_inference_pb2
from sru_inference.v1 import admin_pb2, inference_pb2
from sru_inference.v1._service import service as service_of


class Refusal(Exception):
    """What an answer raises: the call's error, with RetryInfo if `retry_after` is given."""

    def __init__(self, code, message="as the test wants it", retry_after=None):
        super().__init__(message)
        self.code, self.message = code, message
        self.details = None
        if retry_after is not None:
            delay = duration_pb2.Duration()
            delay.FromNanoseconds(round(retry_after * 1e9))
            detail = any_pb2.Any(
                type_url="type.googleapis.com/google.rpc.RetryInfo",
                value=details_pb2.RetryInfo(retry_delay=delay).SerializeToString(),
            )
            self.details = details_pb2.Status(code=code.value[0], message=message, details=[detail]).SerializeToString()


class FakeService:
    """answers: by the name of a method, a function of the request (of a call that stays open: of the iterator of
    requests) that returns the response (of a stream: an iterable of responses) or raises a Refusal.
    self.requests are those that came, self.metadata what came with them."""

    def __init__(self, **answers):
        self.requests, self.metadata = [], []
        self._server = grpc.server(futures.ThreadPoolExecutor(max_workers=8))
        for messages, name, *package in (
            (inference_pb2, "InferenceService"),
            (admin_pb2, "AdminService"),
            (open_inference_pb2, "GRPCInferenceService", "inference"),
        ):
            _, base, add_to_server = service_of(messages, name, *package)
            methods = {method: self._handler(answer) for method, answer in answers.items() if hasattr(base, method)}
            if methods:
                add_to_server(type("Fake", (base,), methods)(), self._server)
        self._server.add_generic_rpc_handlers((self._health(answers.get("health", lambda service: 1)),))
        self.address = "127.0.0.1:%d" % self._server.add_insecure_port("127.0.0.1:0")
        self._server.start()

    def _handler(self, answer):
        def handle(_, request, context):
            self.requests.append(request)
            metadata = dict(context.invocation_metadata())
            self.metadata.append(metadata)
            sent_back = [("x-request-id", metadata["x-request-id"])] if "x-request-id" in metadata else []
            try:
                result = answer(request)
            except Refusal as refusal:
                self._refuse(refusal, context, sent_back)
            if sent_back:
                context.send_initial_metadata(sent_back)
            return result if hasattr(result, "SerializeToString") else self._stream(result, context)

        return handle

    @staticmethod
    def _refuse(refusal, context, sent_back=()):
        trailing = list(sent_back)
        if refusal.details is not None:
            trailing.append(("grpc-status-details-bin", refusal.details))
        context.set_trailing_metadata(trailing)
        context.abort(refusal.code, refusal.message)

    def _stream(self, responses, context):
        try:
            yield from responses
        except Refusal as refusal:
            self._refuse(refusal, context)

    @staticmethod
    def _health(status):
        def response(request):
            return details_pb2.HealthCheckResponse(status=status(request.service))

        def watch(request, context):
            yield response(request)
            ended = futures.Future()
            if not context.add_callback(lambda: ended.set_result(None)):
                return
            ended.result()

        forms = details_pb2.HealthCheckRequest.FromString, details_pb2.HealthCheckResponse.SerializeToString
        methods = {
            "Check": grpc.unary_unary_rpc_method_handler(lambda request, context: response(request), *forms),
            "Watch": grpc.unary_stream_rpc_method_handler(watch, *forms),
        }
        return grpc.method_handlers_generic_handler("grpc.health.v1.Health", methods)

    def stop(self):
        self._server.stop(None).wait()


def serve(test, **answers):
    """A FakeService until the test ends."""
    service = FakeService(**answers)
    test.addCleanup(service.stop)
    return service
