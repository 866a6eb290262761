"""The server as clients of Connect and gRPC-Web see it: connectrpc, which speaks both, and sonora.

    web_calls_test.py SRU_SERVER SRU_CLIENT MODELS
"""

import sys
import tempfile
import unittest

import clients_venv
from clients_venv import TOKEN, tokens_file

clients_venv.enter("connectrpc", "sonora", "grpc")

import grpc  # noqa: E402
import sonora.client  # noqa: E402
from connectrpc.client import ConnectClientSync  # noqa: E402
from connectrpc.code import Code  # noqa: E402
from connectrpc.compat import google_protobuf_binary_codec, google_protobuf_json_codec  # noqa: E402
from connectrpc.errors import ConnectError  # noqa: E402
from connectrpc.method import IdempotencyLevel, MethodInfo, StreamType  # noqa: E402
from connectrpc.protocol import ProtocolType  # noqa: E402
from server_process import SERVICE, Server, inference_pb2  # noqa: E402

AUTHORIZATION = "Bearer " + TOKEN


def method(name, stream_type=StreamType.UNARY):
    return MethodInfo(
        name=name,
        service_name=SERVICE.strip("/"),
        input=getattr(inference_pb2, name + "Request"),
        output=getattr(inference_pb2, name + "Response"),
        idempotency_level=IdempotencyLevel.UNKNOWN,
        stream_type=stream_type,
    )


CLASSIFY = method("Classify")
GENERATE = method("Generate", StreamType.SERVER_STREAM)


def classify(model="trec"):
    return inference_pb2.ClassifyRequest(model=model, sequences=[{"text": "Where is Lake Titicaca ?"}])


def generate(tokens, samples=1):
    return inference_pb2.GenerateRequest(
        model="war_and_peace", prompt={"text": "It was"}, max_new_tokens=tokens, num_samples=samples
    )


class WebCallsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as directory:
            cls.server = Server("--auth_tokens_file=" + tokens_file(directory))
        cls.addClassCleanup(cls.server.stop)
        cls.url = "http://127.0.0.1:%d" % cls.server.http_port

    def clients(self):
        """connectrpc in each of the forms that it has."""
        for protocol, codec in (
            (ProtocolType.CONNECT, google_protobuf_binary_codec()),
            (ProtocolType.CONNECT, google_protobuf_json_codec()),
            (ProtocolType.GRPC_WEB, google_protobuf_binary_codec()),
        ):
            with self.subTest(protocol=protocol, codec=codec.name()):
                with ConnectClientSync(self.url, codec=codec, protocol=protocol, send_compression=None) as client:
                    yield client

    def error(self, run):
        with self.assertRaises(ConnectError) as caught:
            run()
        return caught.exception

    def test_connectrpc_gets_an_answer(self):
        for client in self.clients():
            answer = client.execute_unary(
                request=classify(), method=CLASSIFY, headers={"authorization": AUTHORIZATION}, timeout_ms=30000)
            self.assertEqual(answer.classifications[0].labels[0].name, "LOC")

    def test_connectrpc_gets_a_stream(self):
        for client in self.clients():
            answers = list(client.execute_server_stream(
                request=generate(800), method=GENERATE, headers={"authorization": AUTHORIZATION}))
            self.assertGreater(len(answers), 3)
            self.assertEqual(sum(len(answer.token_ids) for answer in answers), 800)

    def test_connectrpc_gets_errors(self):
        headers = {"authorization": AUTHORIZATION}
        for client in self.clients():
            error = self.error(lambda: client.execute_unary(request=classify("nope"), method=CLASSIFY, headers=headers))
            self.assertEqual(error.code, Code.NOT_FOUND)
            self.assertIn("'nope' is not loaded", error.message)
            error = self.error(lambda: client.execute_unary(request=classify(), method=CLASSIFY))
            self.assertEqual(error.code, Code.UNAUTHENTICATED)
            error = self.error(lambda: list(client.execute_server_stream(
                request=generate(-1), method=GENERATE, headers=headers)))
            self.assertEqual(error.code, Code.INVALID_ARGUMENT)
            self.assertIn("max_new_tokens", error.message)

    def test_connectrpc_may_pack_bodies_and_no_messages(self):
        """It packs with gzip unless told otherwise: the body of a unary call, or each message of a stream."""
        headers = {"authorization": AUTHORIZATION}
        with ConnectClientSync(self.url, codec=google_protobuf_binary_codec()) as client:
            answer = client.execute_unary(request=classify(), method=CLASSIFY, headers=headers)
            self.assertEqual(answer.classifications[0].labels[0].name, "LOC")
            error = self.error(lambda: list(client.execute_server_stream(request=generate(1), method=GENERATE, headers=headers)))
        self.assertEqual(error.code, Code.UNIMPLEMENTED)
        self.assertIn("expected identity, found 'gzip'", error.message)

    def sonora(self, kind, info):
        channel = sonora.client.insecure_web_channel(self.url)
        self.addCleanup(channel.__exit__, None, None, None)
        call = getattr(channel, kind)(SERVICE + info.name, info.input.SerializeToString, info.output.FromString)
        # This version does not say what it sends, later ones do.
        return lambda request, token=AUTHORIZATION, **options: call(
            request, metadata=[("content-type", "application/grpc-web+proto"), ("authorization", token)], **options)

    def test_sonora_calls(self):
        answer = self.sonora("unary_unary", CLASSIFY)(classify(), timeout=30)
        self.assertEqual(answer.classifications[0].labels[0].name, "LOC")
        answers = list(self.sonora("unary_stream", GENERATE)(generate(800)))
        self.assertGreater(len(answers), 3)
        self.assertEqual(sum(len(answer.token_ids) for answer in answers), 800)

    def test_sonora_gets_errors(self):
        for request, token, code in (
            (classify("nope"), AUTHORIZATION, grpc.StatusCode.NOT_FOUND),
            (classify(), "Bearer wrong", grpc.StatusCode.UNAUTHENTICATED),
        ):
            with self.assertRaises(grpc.RpcError) as caught:
                self.sonora("unary_unary", CLASSIFY)(request, token)
            self.assertEqual(caught.exception.code(), code)
            self.assertTrue(caught.exception.details())

    def test_a_stream_that_is_left_is_cancelled(self):
        stream = iter(self.sonora("unary_stream", GENERATE)(generate(4000, samples=64)))
        next(stream)
        self.assertEqual(self.server.metric("sru_requests_in_flight"), 1)
        stream.close()
        self.server.await_metric("sru_requests_in_flight", 0)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
