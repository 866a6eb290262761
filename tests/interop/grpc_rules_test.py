"""gRPC's protocol over HTTP/2, by frames that no client library sends: each row is a request and how it must end, on either transport.

    [SRU_GRPC_TRANSPORT=library] grpc_rules_test.py SRU_INTEROP_SERVER
"""

import base64
import sys
import unittest

from transports import either, interop_server
import http2
from http2 import DATA, END_HEADERS, END_STREAM, HEADERS, RST_STREAM, field, frame, message

EMPTY_CALL = "/grpc.testing.TestService/EmptyCall"
UNARY_CALL = "/grpc.testing.TestService/UnaryCall"
FULL_DUPLEX_CALL = "/grpc.testing.TestService/FullDuplexCall"
OK, UNKNOWN, EXCEEDED, EXHAUSTED, UNIMPLEMENTED, INTERNAL, UNAVAILABLE = "0", "2", "4", "8", "12", "13", "14"
NOTHING = message(b"")

# The transports differ in these.
IS_PARSED = either(INTERNAL, OK, "a message that is compressed without an encoding, cut short or has a wrong flag")
IS_NO_GZIP = either(INTERNAL, "reset 2", "a compressed message that is no gzip")
HAS_NO_TE = either(OK, UNKNOWN, "no `te`, or no known `content-type`")
IS_NO_BASE64 = either(INTERNAL, UNAVAILABLE, "a `-bin` header that is no base64")
HAS_LONG_LIST = either(EXHAUSTED, "closed", "a list of headers that is too large")


class Answer:
    def __init__(self):
        self.heads = []
        self.data = b""
        self.reset = None
        self.closed = False

    @property
    def end(self):
        """The grpc-status; without one, what ended the stream."""
        return self.field("grpc-status") or ("closed" if self.closed else "reset %s" % self.reset)

    def field(self, name):
        return self.heads[-1].get(name) if self.heads else None

    def __repr__(self):
        return "%s %r, reset: %s, closed: %s" % (self.heads, self.data, self.reset, self.closed)


def fields(path=EMPTY_CALL, **changes):
    """The fields of a call; `changes` are by their names, `_` for a hyphen, None to leave one out."""
    found = dict(http2.request_fields(path))
    for name, value in changes.items():
        found[{"method": ":method"}.get(name, name.replace("_", "-"))] = value
    return [(name, value) for name, value in found.items() if value is not None]


def request(connection, head, *parts, ends=True, wait=5):
    """Sends a request with each part in a frame of its own, and waits for the answer."""
    stream = connection.next_stream()
    block = b"".join(http2.literal(*one) for one in head)
    bytes_ = frame(HEADERS, END_HEADERS | (0 if parts or not ends else END_STREAM), stream, block)
    for i, part in enumerate(parts):
        bytes_ += frame(DATA, END_STREAM if ends and i + 1 == len(parts) else 0, stream, part)
    connection.send(bytes_)
    answer = Answer()
    ended = False
    while not ended or (not ends and answer.reset is None):
        try:
            one = connection.read_frame(wait)
        except http2.Closed:
            answer.closed = True
            return answer
        if one is None:
            raise AssertionError("no end: %s" % answer)
        kind, flags, where, payload = one
        if where != stream:
            continue
        if kind == HEADERS:
            answer.heads.append(http2.read_fields(payload))
        if kind == DATA:
            answer.data += payload
        if kind == RST_STREAM:
            answer.reset = int.from_bytes(payload, "big")
        ended = ended or kind == RST_STREAM or (kind in (HEADERS, DATA) and flags & END_STREAM != 0)
    return answer


class GrpcRulesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        server = interop_server(sys.argv[1])
        cls.port = server.__enter__()
        cls.addClassCleanup(server.__exit__, None, None, None)

    def setUp(self):
        self.connect()

    def connect(self):
        self.connection = http2.Connection(self.port)
        self.addCleanup(self.connection.close)

    def check_rows(self, rows):
        """Rows of name, expected end, header fields, parts of the body. All share a connection."""
        for name, status, head, *parts in rows:
            with self.subTest(name):
                answer = request(self.connection, head, *parts)
                if answer.closed:
                    self.connect()
                self.assertEqual(answer.end, status, answer)
                if status.isdigit():
                    self.assertEqual(answer.heads[0][":status"], "200")
                if status == OK:
                    self.assertEqual(answer.data, b"" if dict(head)[":path"] == FULL_DUPLEX_CALL else NOTHING)

    def test_messages(self):
        self.check_rows(
            [
                ("one", OK, fields(), NOTHING),
                ("none, which is an empty one to gRPC's library as well", OK, fields()),
                ("two, of which the second is not read", OK, fields(), NOTHING + NOTHING),
                ("two in two frames", OK, fields(), NOTHING, NOTHING),
                ("in single bytes", OK, fields(), *(bytes([byte]) for byte in NOTHING)),
                ("half a prefix", IS_PARSED, fields(), NOTHING[:2]),
                ("half a message", IS_PARSED, fields(), message(b"abcd")[:7]),
                ("half a message of a stream", IS_PARSED, fields(FULL_DUPLEX_CALL), NOTHING + message(b"abcd")[:7]),
                ("compressed without an encoding", IS_PARSED, fields(), message(b"x", compressed=True)),
                ("compressed with identity", IS_PARSED, fields(grpc_encoding="identity"), message(b"x", compressed=True)),
                ("a flag that is none", IS_PARSED, fields(), b"\2\0\0\0\0"),
                ("not gzip", IS_NO_GZIP, fields(grpc_encoding="gzip"), message(b"x", compressed=True)),
                ("gzip that is not used", OK, fields(grpc_encoding="gzip"), NOTHING),
            ]
        )

    def test_a_message_that_is_too_large_is_refused_before_it_is_sent(self):
        if either(False, True, "a message that is too large"):
            with self.assertRaisesRegex(AssertionError, "no end"):
                request(self.connection, fields(), message(b"", length=1 << 30), ends=False, wait=0.3)
            return
        answer = request(self.connection, fields(), message(b"", length=1 << 30), ends=False)
        self.assertEqual(answer.field("grpc-status"), EXHAUSTED)
        self.assertEqual(len(answer.heads), 1)  # trailers only
        self.assertEqual(answer.reset, 0)  # NO_ERROR: the client need not send the rest

    def test_header_fields(self):
        self.check_rows(
            [
                ("no te", HAS_NO_TE, fields(te=None), NOTHING),
                ("a content type with +proto", OK, fields(content_type="application/grpc+proto"), NOTHING),
                ("a content type with a parameter", OK, fields(content_type="application/grpc;a=b"), NOTHING),
                ("an unknown method", UNIMPLEMENTED, fields("/a.B/C"), NOTHING),
                ("a method with a query", UNIMPLEMENTED, fields(EMPTY_CALL + "?a=b"), NOTHING),
                ("no base64", IS_NO_BASE64, fields(x_bin="?"), NOTHING),
                ("a list that is too large", HAS_LONG_LIST, fields(x="y" * 9000), NOTHING),
                ("a timeout of nothing", EXCEEDED, fields(FULL_DUPLEX_CALL, grpc_timeout="0S"), NOTHING),
                ("a long timeout", OK, fields(grpc_timeout="99999999H"), NOTHING),
            ]
            # Neither transport takes notice of these.
            + [
                ("grpc-timeout: %r" % timeout, OK, fields(grpc_timeout=timeout), NOTHING)
                for timeout in ("", "1", "S", "1s", "-1S", "1 S", "123456789S", "1x")
            ]
        )

    def test_encodings_that_are_refused(self):
        for encoding in ("snappy", ""):
            answer = request(self.connection, fields(grpc_encoding=encoding), NOTHING)
            native, library = (UNIMPLEMENTED, "identity,deflate,gzip"), (OK, "identity, deflate, gzip")
            expected = either(native, library, "an encoding that is unknown")
            self.assertEqual((answer.end, answer.heads[0]["grpc-accept-encoding"]), expected)

    def test_what_is_no_call(self):
        for status, to_library, head in (
            ("405", UNKNOWN, fields(method="GET")),
            ("405", UNKNOWN, fields(method="PUT")),
            ("404", OK, fields(content_type="application/json")),
            ("404", OK, fields(content_type="application/grpc-web")),
            ("404", OK, fields(content_type=None)),
        ):
            answer = request(self.connection, head, NOTHING)
            expected = either((status, None), ("200", to_library), "what is no gRPC call")
            self.assertEqual((answer.heads[0][":status"], answer.field("grpc-status")), expected, head)

    def test_repeated_fields(self):
        initial, trailing = "x-grpc-test-echo-initial", "x-grpc-test-echo-trailing-bin"
        head = fields(UNARY_CALL) + [(initial, "a"), (trailing, "AAEC"), (initial, "b"), (trailing, "AA==")]
        answer = request(self.connection, head, NOTHING)
        self.assertEqual(answer.heads[0][initial], either("a,b", "a", "a header that a caller sends several times"))
        self.assertEqual(answer.heads[1][trailing], "AAEC")
        with_commas = either("AA", None, "a `-bin` header with commas")
        for coded, echo in (("AA", "AA"), ("AA==", "AA"), ("AA==,AAEC", with_commas)):
            answer = request(self.connection, fields(UNARY_CALL) + [(trailing, coded)], NOTHING)
            self.assertEqual((answer.end, answer.field(trailing)), (OK if echo else UNAVAILABLE, echo))

    def test_values_of_fields(self):
        initial = "x-grpc-test-echo-initial"
        forbidden = either(("reset 1", None), (OK, None), "a header with a byte that HTTP forbids")
        beyond_ascii = either((OK, "\u00e9"), (OK, None), "a header of an answer that is not printable ASCII")
        for value, expected in ((b"a\nb", forbidden), (b"a\0b", forbidden), (b"\xe9", beyond_ascii)):
            answer = request(self.connection, fields(UNARY_CALL) + [(initial, value)], NOTHING)
            self.assertEqual((answer.end, dict(*answer.heads[:1]).get(initial)), expected, value)

    def test_a_status_is_percent_encoded(self):
        status = field(7, field(1, 2) + field(2, "50%\t\u00e4\n".encode()))
        answer = request(self.connection, fields(UNARY_CALL), message(status))
        self.assertEqual(answer.field("grpc-status"), UNKNOWN)
        self.assertEqual(answer.field("grpc-message"), "50%25%09%C3%A4%0A")
        self.assertEqual(len(answer.heads), 1)

    def test_an_independent_client(self):
        """What the server sends is what python3-h2 takes, with its checks of states and its tables of header fields."""
        try:
            import h2.config
            import h2.connection
            import h2.events
        except ImportError:
            self.skipTest("there is no python3-h2")
        self.connection.close()
        client = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
        with http2.socket.create_connection(("127.0.0.1", self.port), 5) as connection:
            client.initiate_connection()
            value = base64.b64encode(bytes(range(256))).decode()
            size = 100000
            for i in range(20):
                extra = [("x-grpc-test-echo-trailing-bin", value), ("x-grpc-test-echo-initial", "v%d" % i)]
                stream = client.get_next_available_stream_id()
                client.send_headers(stream, fields(UNARY_CALL) + extra)
                client.send_data(stream, message(field(2, size)), end_stream=True)
                events, data = {}, b""
                while h2.events.StreamEnded not in events:
                    connection.sendall(client.data_to_send())
                    for event in client.receive_data(connection.recv(65536)):
                        events[type(event)] = event
                        if isinstance(event, h2.events.DataReceived):
                            data += event.data
                            client.acknowledge_received_data(event.flow_controlled_length, stream)
                head = dict(events[h2.events.ResponseReceived].headers)
                self.assertEqual(head["x-grpc-test-echo-initial"], "v%d" % i)
                trailers = dict(events[h2.events.TrailersReceived].headers)
                self.assertEqual(trailers["grpc-status"], OK)
                self.assertEqual(trailers["x-grpc-test-echo-trailing-bin"], value.rstrip("="))
                self.assertGreater(len(data), size)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
