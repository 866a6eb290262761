"""gRPC's interoperation tests with grpcio, in cleartext and over mutual TLS, and by hand what grpcio does not show, on either transport.

    [SRU_GRPC_TRANSPORT=library] interop_test.py SRU_INTEROP_SERVER

Needs grpcio, protobuf and the programs openssl and protoc; a machine without them skips the tests visibly.
"""

import contextlib
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import unittest
import zlib

try:
    import google.protobuf  # noqa: F401
    import grpc
except ImportError as missing:
    print("SKIPPED: %s (%s)" % (missing, sys.executable))
    sys.exit(77)
for program in ("openssl", "protoc"):
    if shutil.which(program) is None:
        print("SKIPPED: there is no program " + program)
        sys.exit(77)

from transports import HERE, either, interop_server  # noqa: E402
import http2  # noqa: E402

SERVER = sys.argv[1]
STUBS = tempfile.TemporaryDirectory()
subprocess.run(["protoc", "--python_out=" + STUBS.name, "-I", HERE, "interop.proto"], check=True)
sys.path.insert(0, STUBS.name)
import interop_pb2 as pb  # noqa: E402

SERVICE = "/grpc.testing.TestService/"
INPUT_SIZES = (27182, 8, 1828, 45904)
OUTPUT_SIZES = (31415, 9, 2653, 58979)
SPECIAL = "\t\ntest with whitespace\r\nand Unicode BMP \u263a and non-BMP \U0001f608\t\n"
INITIAL = ("x-grpc-test-echo-initial", "test_initial_metadata_value")
TRAILING = ("x-grpc-test-echo-trailing-bin", b"\xab\xab\xab")
TIMEOUT = 20
KNOWS_COMPRESSED = either(True, False, "a call that asks if its message came compressed, which none of the server's does")
ANSWERS = "answers, if `--allow_compression`"


def payload(size):
    return pb.Payload(body=bytes(size))


def output_request(*sizes, size=0, **fields):
    parameters = [pb.ResponseParameters(size=one) for one in sizes]
    return pb.StreamingOutputCallRequest(response_parameters=parameters, payload=payload(size), **fields)


class Requests:
    """An iterator that gives what the test puts in, until it says that there is no more."""

    def __init__(self, *first):
        self._waiting = queue.SimpleQueue()
        self.put = self._waiting.put
        for request in first:
            self.put(request)

    def end(self):
        self.put(None)

    def __next__(self):
        request = self._waiting.get()
        if request is None:
            raise StopIteration
        return request


class Cases:
    """The cases by their names; a subclass has flags and credentials."""

    flags = ()
    credentials = None

    @classmethod
    def setUpClass(cls):
        server = interop_server(SERVER, *cls.flags)
        cls.port = server.__enter__()
        cls.addClassCleanup(server.__exit__, None, None, None)
        options = [("grpc.enable_retries", 0), ("grpc.ssl_target_name_override", "localhost")]
        address = "127.0.0.1:%d" % cls.port
        if cls.credentials is None:
            cls.channel = grpc.insecure_channel(address, options)
        else:
            cls.channel = grpc.secure_channel(address, cls.credentials, options)
        cls.addClassCleanup(cls.channel.close)

    def method(self, kind, name, answer, service=SERVICE):
        make = getattr(self.channel, kind)
        return make(service + name, lambda message: message.SerializeToString(), answer.FromString)

    def unary(self, request=None, **options):
        return self.method("unary_unary", "UnaryCall", pb.SimpleResponse).with_call(
            request or pb.SimpleRequest(), timeout=TIMEOUT, **options
        )

    def full_duplex(self, requests, timeout=TIMEOUT, **options):
        call = self.method("stream_stream", "FullDuplexCall", pb.StreamingOutputCallResponse)
        return call(requests, timeout=timeout, **options)

    @contextlib.contextmanager
    def ends_with(self, code, details=None):
        with self.assertRaises(grpc.RpcError) as raised:
            yield
        self.assertEqual(raised.exception.code(), code, raised.exception.details())
        if details is not None:
            self.assertEqual(raised.exception.details(), details)

    def test_empty_unary(self):
        call = self.method("unary_unary", "EmptyCall", pb.Empty)
        self.assertEqual(call(pb.Empty(), timeout=TIMEOUT), pb.Empty())

    def test_large_unary(self):
        answer, _ = self.unary(pb.SimpleRequest(response_size=314159, payload=payload(271828)))
        self.assertEqual(answer.payload, payload(314159))

    def test_client_streaming(self):
        call = self.method("stream_unary", "StreamingInputCall", pb.StreamingInputCallResponse)
        requests = [pb.StreamingInputCallRequest(payload=payload(size)) for size in INPUT_SIZES]
        answer = call(iter(requests), timeout=TIMEOUT)
        self.assertEqual(answer.aggregated_payload_size, 74922)

    def test_server_streaming(self):
        call = self.method("unary_stream", "StreamingOutputCall", pb.StreamingOutputCallResponse)
        answers = call(output_request(*OUTPUT_SIZES), timeout=TIMEOUT)
        self.assertEqual([len(answer.payload.body) for answer in answers], list(OUTPUT_SIZES))

    def test_server_streaming_with_pauses(self):
        call = self.method("unary_stream", "StreamingOutputCall", pb.StreamingOutputCallResponse)
        request = output_request(1, 2, 3)
        for parameters in request.response_parameters:
            parameters.interval_us = 20000
        answers = call(request, timeout=TIMEOUT)
        self.assertEqual([len(answer.payload.body) for answer in answers], [1, 2, 3])

    def test_ping_pong(self):
        requests = Requests()
        answers = self.full_duplex(requests)
        for wanted, size in zip(OUTPUT_SIZES, INPUT_SIZES):
            requests.put(output_request(wanted, size=size))
            self.assertEqual(len(next(answers).payload.body), wanted)
        requests.end()
        self.assertEqual(list(answers), [])
        self.assertEqual(answers.code(), grpc.StatusCode.OK)

    def test_half_duplex(self):
        call = self.method("stream_stream", "HalfDuplexCall", pb.StreamingOutputCallResponse)
        answers = call(iter([output_request(size) for size in OUTPUT_SIZES]), timeout=TIMEOUT)
        self.assertEqual([len(answer.payload.body) for answer in answers], list(OUTPUT_SIZES))

    def test_empty_stream(self):
        answers = self.full_duplex(iter(()))
        self.assertEqual(list(answers), [])
        self.assertEqual(answers.code(), grpc.StatusCode.OK)

    def test_client_compressed_unary(self):
        request = pb.SimpleRequest(response_size=314159, payload=payload(271828))
        request.expect_compressed.value = True
        with self.ends_with(grpc.StatusCode.INVALID_ARGUMENT):
            self.unary(request)
        request.expect_compressed.value = KNOWS_COMPRESSED
        answer, _ = self.unary(request, compression=grpc.Compression.Gzip)
        self.assertEqual(answer.payload, payload(314159))
        request.expect_compressed.value = False
        answer, _ = self.unary(request)
        self.assertEqual(answer.payload, payload(314159))

    def test_client_compressed_streaming(self):
        call = self.method("stream_unary", "StreamingInputCall", pb.StreamingInputCallResponse)
        request = pb.StreamingInputCallRequest(payload=payload(27182))
        request.expect_compressed.value = True
        with self.ends_with(grpc.StatusCode.INVALID_ARGUMENT):
            call(iter([request]), timeout=TIMEOUT)
        request.expect_compressed.value = KNOWS_COMPRESSED
        answer = call(iter([request]), timeout=TIMEOUT, compression=grpc.Compression.Gzip)
        self.assertEqual(answer.aggregated_payload_size, 27182)

    def test_server_compressed_unary(self):
        request = pb.SimpleRequest(response_size=314159, payload=payload(271828))
        for compressed in (True, False):
            request.response_compressed.value = compressed
            answer, _ = self.unary(request)
            self.assertEqual(answer.payload, payload(314159))

    def test_custom_metadata(self):
        _, call = self.unary(
            pb.SimpleRequest(response_size=314159, payload=payload(271828)),
            metadata=(INITIAL, TRAILING),
        )
        self.assertIn(INITIAL, call.initial_metadata())
        self.assertIn(TRAILING, call.trailing_metadata())
        answers = self.full_duplex(
            iter([output_request(314159, size=271828)]), metadata=(INITIAL, TRAILING)
        )
        self.assertEqual(len(list(answers)), 1)
        self.assertIn(INITIAL, answers.initial_metadata())
        self.assertIn(TRAILING, answers.trailing_metadata())

    def test_status_code_and_message(self):
        for message in ("test status message", SPECIAL):  # the second is special_status_message
            status = pb.EchoStatus(code=2, message=message)
            with self.ends_with(grpc.StatusCode.UNKNOWN, message):
                self.unary(pb.SimpleRequest(response_status=status))
            with self.ends_with(grpc.StatusCode.UNKNOWN, message):
                list(self.full_duplex(iter([output_request(response_status=status)])))

    def test_unimplemented(self):
        for service in (SERVICE, "/grpc.testing.UnimplementedService/"):
            call = self.method("unary_unary", "UnimplementedCall", pb.Empty, service)
            with self.ends_with(grpc.StatusCode.UNIMPLEMENTED):
                call(pb.Empty(), timeout=TIMEOUT)

    def test_cancel_after_begin(self):
        call = self.method("stream_unary", "StreamingInputCall", pb.StreamingInputCallResponse)
        requests = Requests()
        future = call.future(requests, timeout=TIMEOUT)
        future.cancel()
        requests.end()
        self.assertEqual(future.code(), grpc.StatusCode.CANCELLED)

    def test_cancel_after_first_response(self):
        requests = Requests(output_request(31415, size=27182))
        answers = self.full_duplex(requests)
        self.assertEqual(len(next(answers).payload.body), 31415)
        answers.cancel()
        requests.end()
        with self.ends_with(grpc.StatusCode.CANCELLED):
            next(answers)

    def test_timeout_on_sleeping_server(self):
        requests = Requests(output_request(size=27182))
        with self.ends_with(grpc.StatusCode.DEADLINE_EXCEEDED):
            next(self.full_duplex(requests, timeout=0.001))
        requests.end()

    def test_wrong_requests(self):
        for request in (pb.SimpleRequest(response_size=-1), pb.SimpleRequest(response_size=1 << 30)):
            with self.ends_with(grpc.StatusCode.INVALID_ARGUMENT):
                self.unary(request)
        with self.ends_with(grpc.StatusCode.INVALID_ARGUMENT):
            list(self.full_duplex(iter([output_request(-1)])))
        with self.ends_with(grpc.StatusCode.RESOURCE_EXHAUSTED):
            list(self.full_duplex(iter([output_request(*[1] * 10001)])))


class CleartextTest(Cases, unittest.TestCase):
    def raw_call(self, request, headers, compressed=False):
        """The headers before the messages, and (compressed?, bytes) of each message."""
        body = request.SerializeToString()
        if compressed:
            pack = zlib.compressobj(wbits=31)
            body = pack.compress(body) + pack.flush()
        with http2.Connection(self.port, window=1 << 20) as connection:
            stream = connection.start(SERVICE + "UnaryCall", headers)
            connection.send_body(stream, http2.message(body, compressed))
            head, data, ended = None, b"", False
            while not ended:
                kind, flags, where, part = connection.read_frame(5)
                if where != stream:
                    continue
                if kind == http2.HEADERS and head is None:
                    head = http2.read_fields(part)
                if kind == http2.DATA:
                    data += part
                ended = kind == http2.HEADERS and flags & http2.END_STREAM
        messages = []
        while data:
            size = int.from_bytes(data[1:5], "big")
            messages.append((data[0], data[5 : 5 + size]))
            data = data[5 + size :]
        return head, messages

    def test_compressed_answers(self):
        accepts = ("grpc-accept-encoding", "identity,deflate,gzip")
        request = pb.SimpleRequest(response_size=100000)
        asks = pb.SimpleRequest(response_size=100000)
        asks.response_compressed.value = True
        small = pb.SimpleRequest(response_size=100)
        small.response_compressed.value = True
        gzip = ("grpc-encoding", "gzip")
        for name, arguments, (encoding, flag) in (
            ("the call asks", (asks, [accepts]), ("gzip", 1)),
            ("the request is compressed", (request, [accepts, gzip], True), either(("gzip", 1), (None, 0), ANSWERS)),
            ("nobody asks", (request, [accepts]), (None, 0)),
            ("the client does not accept it", (asks, []), either((None, 0), ("gzip", 1), ANSWERS)),
            ("the client does not accept it, and asks", (request, [gzip], True), (None, 0)),
            ("a small message", (small, [accepts]), either(("gzip", 0), ("gzip", 1), ANSWERS)),
        ):
            with self.subTest(name):
                head, messages = self.raw_call(*arguments)
                self.assertEqual(head.get("grpc-encoding"), encoding)
                self.assertEqual([found for found, _ in messages], [flag])
                body = messages[0][1]
                if flag:
                    self.assertLess(len(body), 1000)
                    body = zlib.decompress(body, wbits=31)
                answer = pb.SimpleResponse.FromString(body)
                self.assertEqual(len(answer.payload.body), arguments[0].response_size)


class TlsTest(Cases, unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        certificate, key = (os.path.join(folder.name, name) for name in ("pem", "key"))
        subprocess.run(
            "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost "
            "-addext subjectAltName=DNS:localhost -keyout".split() + [key, "-out", certificate],
            check=True,
            capture_output=True,
        )
        cls.flags = [
            "--tls_certificate=" + certificate,
            "--tls_key=" + key,
            "--tls_client_ca=" + certificate,
        ]
        with open(certificate, "rb") as pem, open(key, "rb") as secret:
            text = pem.read()
            cls.credentials = grpc.ssl_channel_credentials(text, secret.read(), text)
        super().setUpClass()

    def test_a_client_without_a_certificate_is_refused(self):
        pem = open(self.flags[0].split("=")[1], "rb")
        with pem:
            credentials = grpc.ssl_channel_credentials(pem.read())
        options = [("grpc.ssl_target_name_override", "localhost"), ("grpc.enable_retries", 0)]
        with grpc.secure_channel("127.0.0.1:%d" % self.port, credentials, options) as channel:
            with self.ends_with(grpc.StatusCode.UNAVAILABLE):
                channel.unary_unary(SERVICE + "EmptyCall")(b"", timeout=TIMEOUT)


class FlagsTest(unittest.TestCase):
    def test_help_and_errors(self):
        done = subprocess.run([SERVER, "--help"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0)
        for flag in ("--listen", "--tls_certificate", "--tls_key", "--tls_client_ca"):
            self.assertIn(flag, done.stdout)
        for flags in (["--listen=x"], ["--tls_key=/none"], ["--tls_client_ca=/none"], ["--wrong"]):
            done = subprocess.run([SERVER, *flags], capture_output=True, text=True, timeout=30)
            self.assertEqual(done.returncode, 1, flags)
            self.assertIn(" ERROR ", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
