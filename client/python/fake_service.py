"""A server of one method of sru.v1.InferenceService in this process, for the tests of this folder."""

from concurrent import futures

import grpc

import sru_wire


class FakeService:
    """answer: a function of the request's dict that returns the response's; a grpc.StatusCode that
    it returns is the call's error. self.requests are those that have come."""

    def __init__(self, method, request, response, answer):
        self.requests = []

        def handle(values, context):
            self.requests.append(values)
            result = answer(values)
            if isinstance(result, grpc.StatusCode):
                context.abort(result, "as the test wants it")
            return result

        handler = grpc.unary_unary_rpc_method_handler(
            handle,
            request_deserializer=lambda data: sru_wire.decode(request, data),
            response_serializer=lambda values: sru_wire.encode(response, values),
        )
        self._server = grpc.server(futures.ThreadPoolExecutor(max_workers=8))
        self._server.add_generic_rpc_handlers(
            [grpc.method_handlers_generic_handler("sru.v1.InferenceService", {method: handler})]
        )
        self.address = "127.0.0.1:%d" % self._server.add_insecure_port("127.0.0.1:0")
        self._server.start()

    def stop(self):
        self._server.stop(None)
