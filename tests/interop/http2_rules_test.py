"""HTTP/2 as RFC 9113 and RFC 7541 (HPACK) have it, by frames: each row sends some and says what must
come back. Which frames a state of a stream allows, and of which sizes, is in frame_states_test.py.

    [SRU_GRPC_TRANSPORT=library] http2_rules_test.py SRU_INTEROP_SERVER [NAME...]      starts the server
    [SRU_GRPC_TRANSPORT=library] http2_rules_test.py --port=PORT[,/CALL/PATH] [NAME...]    tests what listens there

With names, the rows run whose names contain one. Each row runs with two requests: a call of gRPC, and one that is none, which
gRPC's library does not answer. RFC 7540 is followed where it asks for more.
"""

import contextlib
import socket
import struct
import sys
import time

from transports import either, interop_server
import http2
from http2 import (
    ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PING, RST_STREAM, SETTINGS,
    WINDOW_UPDATE, frame, integer, literal, settings,
)  # fmt: skip

PROTOCOL, FLOW_CONTROL, STREAM_CLOSED, FRAME_SIZE, REFUSED, CANCEL, COMPRESSION = 1, 3, 5, 6, 7, 8, 9
PADDED, WITH_PRIORITY = 8, 32
MOST_WINDOW = (1 << 31) - 1
MAX_FRAME = 16384
PING_BYTES = b"whatever"
WAIT_S = 2  # for a byte more: a busy machine takes longer for many answers
MOST_WAIT_S = 30  # for a frame, whatever comes before it
SHORT_WAIT_S = 0.3  # for what is not expected

# Rows that fail by choice, with the reason.
BY_CHOICE = {
    "5.3.1 PRIORITY that depends on itself": "RFC 9113 has no priorities (5.3.2); what such a frame says is not read",
    "6.9.2 a new initial size that is too large for a window": "nghttp2 resets the stream; other calls go on",
}


class Request:
    """The header fields of a request, and forms of its HEADERS frame."""

    def __init__(self, name, method, path, extra):
        self.name = name
        self.pseudo = [(":method", method), (":scheme", "http"), (":path", path), (":authority", "localhost")]
        self.extra = extra

    def fields(self, change=None, more=(), first=()):
        """`change`: pseudo header fields to replace, or with None to leave out."""
        changed = [(name, (change or {}).get(name, value)) for name, value in self.pseudo]
        return [*first, *((n, v) for n, v in changed if v is not None), *self.extra, *more]

    def block(self, change=None, more=(), first=()):
        return b"".join(literal(name, value) for name, value in self.fields(change, more, first))

    def head(self, stream=1, end=True, flags=END_HEADERS, raw=b"", before=b"", **fields):
        """`raw` and `before` are put after and before the fields of the block."""
        return frame(HEADERS, flags | (END_STREAM if end else 0), stream, before + self.block(**fields) + raw)


CALL_PATH = "/grpc.testing.TestService/EmptyCall"
GRPC_FIELDS = [("content-type", "application/grpc"), ("te", "trailers")]


def word(value):
    return struct.pack(">I", value)


def huffman(text):
    """A string in HPACK's Huffman code."""
    bits = "".join(
        format(code, "0%db" % length)
        for byte in text.encode()
        for (length, code), known in http2._HUFFMAN.items()
        if known == byte
    )
    bits += "1" * (-len(bits) % 8)
    coded = int(bits, 2).to_bytes(len(bits) // 8, "big")
    return integer(len(coded), 7, 0x80) + coded


class Peer:
    """A client that has sent its preface and SETTINGS and acknowledged the server's, and notes what comes."""

    def __init__(self, port, preface=True, wait=WAIT_S):
        self.wait = wait
        self.socket = socket.create_connection(("127.0.0.1", port), 5)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.input = b""
        self.frames = []
        self.closed = False
        if preface:
            self.send(http2.PREFACE + settings())
            self.await_frame(lambda f: f[0] == SETTINGS and f[1] & ACK)

    def close(self):
        self.socket.close()

    def send(self, data):
        try:
            self.socket.sendall(data)
        except OSError:
            self.closed = True

    def await_frame(self, wanted):
        """The next frame that is wanted; None if the connection closes before or none comes."""
        last = time.monotonic() + MOST_WAIT_S
        end = time.monotonic() + self.wait
        while True:
            if len(self.input) >= 9:
                length = int.from_bytes(self.input[:3], "big")
                if len(self.input) >= 9 + length:
                    kind, flags, stream = struct.unpack(">BBI", self.input[3:9])
                    got = (kind, flags, stream, self.input[9 : 9 + length])
                    self.input = self.input[9 + length :]
                    self.frames.append(got)
                    if kind == SETTINGS and not flags & ACK:
                        self.send(frame(SETTINGS, ACK, 0))
                    if wanted(got):
                        return got
                    continue
            left = min(end, last) - time.monotonic()
            if self.closed or left <= 0:
                return None
            self.socket.settimeout(left)
            try:
                data = self.socket.recv(65536)
                end = time.monotonic() + self.wait
            except TimeoutError:
                return None
            except OSError:
                data = b""
            self.closed = not data
            self.input += data

    def seen(self):
        names = "DATA HEADERS PRIORITY RST_STREAM SETTINGS PUSH_PROMISE PING GOAWAY WINDOW_UPDATE CONTINUATION".split()
        shown = [f for f in self.frames if f[0] not in (SETTINGS, WINDOW_UPDATE)][-5:]
        text = ["%s %d %s" % (names[kind], stream, payload[:8].hex()) for kind, _, stream, payload in shown]
        return ", ".join(text + (["closed"] if self.closed else ["open"]))


# Functions of a Peer that return whether the expected answer came.


def connection_error(*codes):
    def check(peer):
        got = peer.await_frame(lambda f: f[0] == GOAWAY and struct.unpack(">I", f[3][4:8])[0] in codes)
        if got is None:
            return False
        peer.await_frame(lambda f: False)
        return peer.closed  # after a GOAWAY with an error the connection ends

    return check


def stream_error(*codes, stream=1):
    def wanted(got):
        kind, _, where, payload = got
        if kind == GOAWAY:
            return struct.unpack(">I", payload[4:8])[0] in codes
        return kind == RST_STREAM and where == stream and struct.unpack(">I", payload)[0] in codes

    return lambda peer: peer.await_frame(wanted) is not None


def closes(peer):
    peer.await_frame(lambda f: False)
    return peer.closed


def stays_open(peer):
    peer.wait = SHORT_WAIT_S
    return not closes(peer)


def lives(peer):
    """Nothing happened: a ping is answered, and no error came before."""
    peer.send(frame(PING, 0, 0, b"and now?"))
    got = peer.await_frame(lambda f: f[0] == GOAWAY or (f[0] == PING and f[1] & ACK and f[3] == b"and now?"))
    return got is not None and got[0] == PING


def answers(stream=1):
    return lambda peer: peer.await_frame(lambda f: f[0] == HEADERS and f[2] == stream) is not None


def first_data(size):
    def check(peer):
        got = peer.await_frame(lambda f: f[0] == DATA)
        return got is not None and len(got[3]) == size

    return check


def acknowledges_settings(peer):
    return peer.await_frame(lambda f: f[0] == SETTINGS and f[1] & ACK) is not None


def answers_ping(payload):
    return lambda peer: peer.await_frame(lambda f: f[0] == PING and f[1] & ACK and f[3] == payload) is not None


def ignores_ping(peer):
    return lives(peer) and not any(f[0] == PING and f[3] == PING_BYTES for f in peer.frames)


def ends_silently(peer):
    """The connection ends without a GOAWAY."""
    return closes(peer) and not any(f[0] == GOAWAY for f in peer.frames)


def goes_on(peer):
    """Nothing happened, nor did a stream end with an error."""
    twice = lives(peer) and lives(peer)  # what the first ping overtook has come at the second
    return twice and not any(f[0] == RST_STREAM and any(f[3]) for f in peer.frames)


def answers_all_the_same(peer):
    return peer.await_frame(lambda f: f[0] == HEADERS and f[1] & END_STREAM) is not None and goes_on(peer)


class Wait:
    """A step of a row: waits for a frame."""

    def __init__(self, wanted):
        self.wanted = wanted


SOME_DATA = Wait(lambda f: f[0] == DATA)
SETTLED = Wait(lambda f: f[0] == SETTINGS and f[1] & ACK)


# gRPC's library does this instead, in rows whose names begin so.
OF_LIBRARY = {
    ends_silently: (
        "3.4 another frame first", "4.1 flags that are not defined", "4.3 ", "5.1.2 ", "6.5.2 ENABLE_PUSH",
        "6.5.2 INITIAL_WINDOW_SIZE", "6.5.2 MAX_FRAME_SIZE", "6.9 ", "6.10 CONTINUATION", "8.1 trailers without END_STREAM",
        "HPACK 2.3.3 ", "HPACK 6.1 index 0", "HPACK 5.1 ", "HPACK 5.2 a string longer", "HPACK 6.3 a size update beyond",
        "HPACK 4.3 ", "HPACK a list that is too large",
    ),
    goes_on: (
        "5.1 idle: RST_STREAM", "5.3.1 PRIORITY", "6.9.1 a window", "6.9.2 a new initial size that is too large", "7 GOAWAY",
        "8.1 trailers with a pseudo field", "8.1.1 ",
    ),
    answers_all_the_same: (
        "5.3.1 HEADERS", "8.2", "8.3 ", "8.3.1 a path", "8.3.1 an empty path", "8.3.1 no", "8.3.1 two",
        "8.3.1 a host that is not", "HPACK 4.2 a size update", "HPACK 5.2 padding", "HPACK 5.2 the end",
    ),
}  # fmt: skip
# A row that is in neither of the two tables must pass.
INSTEAD = either({}, OF_LIBRARY, "frames that HTTP/2 forbids, or flags that it does not define")


def rows(r):
    """(name, expected, steps...) with the request r."""
    no_window = settings((http2.INITIAL_WINDOW_SIZE, 0))
    body_head = r.head(end=False, change={":method": "POST"})
    data = frame(DATA, END_STREAM, 1, b"test")
    rst = frame(RST_STREAM, 0, 1, word(CANCEL))
    continuation = frame(CONTINUATION, END_HEADERS, 1, literal("x-more", "1"))
    priority = word(0) + b"\xff"
    half = r.block()[:20], r.block()[20:]
    open_head = frame(HEADERS, END_STREAM, 1, half[0])
    rest = frame(CONTINUATION, END_HEADERS, 1, half[1])
    yield from [
        ("4.1 flags that are not defined are ignored", answers_ping(PING_BYTES), frame(PING, 0x16, 0, PING_BYTES)),
        ("4.1 the reserved bit is ignored", answers_ping(PING_BYTES), frame(PING, 0, 1 << 31, PING_BYTES)),
        ("4.2 DATA of 2^14 bytes", answers(), body_head + frame(DATA, END_STREAM, 1, bytes(MAX_FRAME))),
        ("4.3 a block that is no HPACK", connection_error(COMPRESSION),
         frame(HEADERS, END_HEADERS | END_STREAM, 1, b"\x40\x81")),
        ("4.3 HEADERS of another stream within a block", connection_error(PROTOCOL), open_head, r.head(3)),
        ("5.1 idle: RST_STREAM", connection_error(PROTOCOL), rst),
        ("5.1.2 too many streams", stream_error(PROTOCOL, REFUSED, stream=1 + 2 * 512),
         no_window, SETTLED, *(r.head(1 + 2 * i) for i in range(513))),
        ("5.3.1 HEADERS that depend on themselves", stream_error(PROTOCOL),
         frame(HEADERS, END_HEADERS | END_STREAM | WITH_PRIORITY, 1, word(1) + b"\xff" + r.block())),
        ("5.3.1 PRIORITY that depends on itself", stream_error(PROTOCOL),
         frame(http2.PRIORITY, 0, 1, word(1) + b"\xff")),
        ("6.1 DATA with padding", answers(), body_head, frame(DATA, PADDED | END_STREAM, 1, b"\x03" + bytes(8))),
        ("6.2 HEADERS with padding and priority", answers(),
         frame(HEADERS, 0x2D, 1, b"\x02" + priority + r.block() + bytes(2))),
        ("6.5.2 ENABLE_PUSH = 2", connection_error(PROTOCOL), settings((2, 2))),
        ("6.5.2 INITIAL_WINDOW_SIZE = 2^31", connection_error(FLOW_CONTROL), settings((4, 1 << 31))),
        ("6.5.2 MAX_FRAME_SIZE = 2^14 - 1", connection_error(PROTOCOL), settings((5, MAX_FRAME - 1))),
        ("6.5.2 MAX_FRAME_SIZE = 2^24", connection_error(PROTOCOL), settings((5, 1 << 24))),
        ("6.5.2 an unknown setting", lives, settings((0xFF, 1))),
        ("6.5.3 settings apply in their order", first_data(1), settings((4, 100), (4, 1)), SETTLED, r.head()),
        ("6.5.3 settings are acknowledged", acknowledges_settings, settings((2, 0))),
        ("6.7 PING", answers_ping(PING_BYTES), frame(PING, 0, 0, PING_BYTES)),
        ("6.7 an acknowledgement of no PING", ignores_ping, frame(PING, ACK, 0, PING_BYTES)),
        ("6.9 WINDOW_UPDATE by 0", connection_error(PROTOCOL), frame(WINDOW_UPDATE, 0, 0, word(0))),
        ("6.9 WINDOW_UPDATE of a stream by 0", stream_error(PROTOCOL),
         body_head, frame(WINDOW_UPDATE, 0, 1, word(0))),
        ("6.9.1 no more is sent than the window has", first_data(1), settings((4, 1)), SETTLED, r.head()),
        ("6.9.1 a window beyond 2^31 - 1", connection_error(FLOW_CONTROL),
         frame(WINDOW_UPDATE, 0, 0, word(MOST_WINDOW)) * 2),
        ("6.9.1 a window of a stream beyond 2^31 - 1", stream_error(FLOW_CONTROL),
         no_window, SETTLED, r.head(end=False), frame(WINDOW_UPDATE, 0, 1, word(MOST_WINDOW)) * 2),
        ("6.9.2 a new initial size opens windows", first_data(1), no_window, SETTLED, r.head(), settings((4, 1))),
        ("6.9.2 a window may be negative", first_data(1),
         settings((4, 3)), SETTLED, r.head(), SOME_DATA, settings((4, 2)), SETTLED,
         frame(WINDOW_UPDATE, 0, 1, word(2))),
        ("6.9.2 a new initial size that is too large for a window", connection_error(FLOW_CONTROL),
         no_window, SETTLED, r.head(end=False), frame(WINDOW_UPDATE, 0, 1, word(MOST_WINDOW)), settings((4, 2))),
        ("6.10 several CONTINUATION frames", answers(),
         open_head, frame(CONTINUATION, 0, 1, half[1][:5]), frame(CONTINUATION, END_HEADERS, 1, half[1][5:])),
        ("6.10 CONTINUATION that is not the stream's", connection_error(PROTOCOL),
         open_head, frame(CONTINUATION, END_HEADERS, 3, half[1])),
        ("6.10 CONTINUATION after CONTINUATION with END_HEADERS", connection_error(PROTOCOL),
         open_head, rest, continuation),
        ("6.10 CONTINUATION after DATA", connection_error(PROTOCOL),
         body_head, frame(DATA, 0, 1, b"test"), continuation),
        ("7 GOAWAY with an unknown code", closes, frame(GOAWAY, 0, 0, word(0) + word(0xFF))),
        ("7 RST_STREAM with an unknown code", lives, body_head, frame(RST_STREAM, 0, 1, word(0xFF))),
        ("8.1 trailers", answers(),
         body_head, frame(DATA, 0, 1, bytes(5)),
         frame(HEADERS, END_HEADERS | END_STREAM, 1, literal("x-test", "ok"))),
        ("8.1 trailers without END_STREAM", stream_error(PROTOCOL),
         no_window, SETTLED, body_head, frame(HEADERS, END_HEADERS, 1, literal("x-test", "ok"))),
        ("8.1 trailers with a pseudo field", stream_error(PROTOCOL),
         no_window, SETTLED, body_head, frame(HEADERS, END_HEADERS | END_STREAM, 1, literal(":method", "POST"))),
    ]
    for name, fields in (
        ("8.2 an upper-case name", {"more": [("X-TEST", "ok")]}),
        ("8.2.1 a value with NUL", {"more": [("x-test", "a\0b")]}),
        ("8.2.1 a value with a line break", {"more": [("x-test", "a\r\nb: c")]}),
        ("8.2.1 a value that begins with a space", {"more": [("x-test", " a")]}),
        ("8.2.1 a value that ends with a tab", {"more": [("x-test", "a\t")]}),
        ("8.2.1 an empty name", {"more": [("", "a")]}),
        ("8.2.1 a name with a space", {"more": [("x test", "a")]}),
        ("8.2.2 connection", {"more": [("connection", "keep-alive")]}),
        ("8.2.2 transfer-encoding", {"more": [("transfer-encoding", "chunked")]}),
        ("8.2.2 upgrade", {"more": [("upgrade", "h2c")]}),
        ("8.2.2 keep-alive", {"more": [("keep-alive", "1")]}),
        ("8.2.2 proxy-connection", {"more": [("proxy-connection", "close")]}),
        ("8.2.2 te with other than trailers", {"more": [("te", "trailers, deflate")]}),
        ("8.3 an unknown pseudo field", {"first": [(":test", "ok")]}),
        ("8.3 a pseudo field of responses", {"first": [(":status", "200")]}),
        ("8.3 a pseudo field after others", {"change": {":path": None}, "more": [("x-test", "a"), (":path", "/")]}),
        ("8.3.1 an empty path", {"change": {":path": ""}}),
        ("8.3.1 a path that is none", {"change": {":path": "x"}}),
        ("8.3.1 no method", {"change": {":method": None}}),
        ("8.3.1 no scheme", {"change": {":scheme": None}}),
        ("8.3.1 no path", {"change": {":path": None}}),
        ("8.3.1 two methods", {"first": [(":method", "GET")]}),
        ("8.3.1 two schemes", {"first": [(":scheme", "http")]}),
        ("8.3.1 two paths", {"first": [(":path", "/")]}),
        ("8.3.1 a host that is not the authority", {"more": [("host", "elsewhere")]}),
    ):
        yield name, stream_error(PROTOCOL), r.head(**fields)
    length = r.head(end=False, change={":method": "POST"}, more=[("content-length", "1")])
    yield "8.1.1 a content-length that DATA does not have", stream_error(PROTOCOL), no_window, SETTLED, length, data
    yield (
        "8.1.1 a content-length that several DATA do not have",
        stream_error(PROTOCOL), no_window, SETTLED, length, frame(DATA, 0, 1, b"test"), data,
    )  # fmt: skip
    yield "8.3.1 a host that is the authority", answers(), r.head(more=[("host", "LocalHost:80")])
    for method in ("GET", "HEAD", "POST", "PUT", "OPTIONS"):
        yield "8.1 %s is answered" % method, answers(), r.head(change={":method": method})

    # HPACK.
    for name, raw in (
        ("2.3.3 an index beyond the tables", integer(70, 7, 0x80)),
        ("2.3.3 a name's index beyond the tables", integer(70, 6, 0x40) + http2.text("a")),
        ("4.2 a size update at the end of a block", b"\x20"),
        ("5.2 padding of more than 7 bits", b"\x00\x01x\x85\xf2\xb2\x4a\x84\xff"[:3] + b"\x82\x1f\xff"),
        ("5.2 padding of zeros", b"\x00\x01x\x81\x18"),
        ("5.2 the end of string within a string", b"\x00\x01x\x84\xff\xff\xff\xff"),
        ("6.1 index 0", b"\x80"),
        ("5.1 an integer that is too large", b"\x7f" + b"\xff" * 20),
        ("5.2 a string longer than the block", b"\x00\x01x\x7f\xff\x01a"),
    ):
        yield "HPACK " + name, connection_error(COMPRESSION), r.head(raw=raw)
    too_large = integer(4097, 5, 0x20)
    yield "HPACK 6.3 a size update beyond SETTINGS", connection_error(COMPRESSION), r.head(before=too_large)
    for name, first, bits in (("with indexing", 0x40, 6), ("without indexing", 0, 4), ("never indexed", 0x10, 4)):
        for coding, text in (("plain", http2.text), ("Huffman", huffman)):
            raw = integer(58, bits, first) + text("a browser")  # 58: user-agent
            yield "HPACK 6.2 a literal %s, an indexed name, %s" % (name, coding), answers(), r.head(raw=raw)
            raw = bytes([first]) + text("x-test") + text("a value")
            yield "HPACK 6.2 a literal %s, a new name, %s" % (name, coding), answers(), r.head(raw=raw)
    indexed = literal("x-kept", "a", indexed=True)
    yield "HPACK 6.1 a field of the static table", answers(), r.head(raw=b"\xba")  # user-agent
    yield "HPACK 6.1 a field of the dynamic table", answers(3), r.head(raw=indexed), r.head(3, raw=b"\xbe")
    yield "HPACK 6.3 a size update", answers(), r.head(before=b"\x20")
    yield "HPACK 4.2 two size updates", answers(), r.head(before=b"\x20" + integer(4096, 5, 0x20))
    emptied = r.head(3, before=b"\x20", raw=b"\xbe")
    yield "HPACK 4.3 a size update empties the table", connection_error(COMPRESSION), r.head(raw=indexed), emptied
    # A list that is refused has changed the table all the same.
    yield (
        "HPACK a list that is too large leaves the tables in step", answers(3),
        frame(HEADERS, END_STREAM, 1, r.block() + literal("x-kept", "a", indexed=True)),
        frame(CONTINUATION, END_HEADERS, 1, literal("x-long", "y" * 9000)), r.head(3, raw=b"\xbe"),
    )  # fmt: skip


def preface_rows():
    """Rows of what is sent in place of the preface that the others begin with."""
    begin = http2.PREFACE + settings()
    return [
        ("3.4 the server's first frame is SETTINGS", lambda p: p.await_frame(lambda f: True)[0] == SETTINGS, begin),
        ("3.4 a wrong preface", closes, b"INVALID CONNECTION PREFACE\r\n\r\n"),
        ("3.4 a preface whose end is wrong", closes, http2.PREFACE[:-3] + b"x\r\n" + settings()),
        ("3.4 another frame first", connection_error(PROTOCOL), http2.PREFACE + frame(PING, 0, 0, PING_BYTES)),
        ("3.4 SETTINGS that are cut short are waited for", stays_open, http2.PREFACE + settings((4, 1))[:-3]),
        ("3.4 a preface in single bytes", acknowledges_settings, *(bytes([byte]) for byte in begin)),
    ]


def run(port, steps, expected, **options):
    """What was seen if it was not what was expected; else nothing."""
    with contextlib.closing(Peer(port, **options)) as peer:
        for step in steps:
            if isinstance(step, Wait):
                peer.await_frame(step.wanted)
            else:
                peer.send(step)
        return None if expected(peer) else peer.seen()


def run_all(port, call_path, names):
    requests = Request("call", "POST", call_path, GRPC_FIELDS), Request("page", "GET", "/", [])
    all_rows = [("preface", row) for row in preface_rows()]
    all_rows += [(request.name, row) for request in requests for row in rows(request)]
    if INSTEAD:
        all_rows = [(request, row) for request, row in all_rows if request != "page"]
    passed = by_choice = failed = 0
    for request, (name, expected, *steps) in all_rows:
        if names and not any(part in name for part in names):
            continue
        for instead, beginnings in INSTEAD.items():
            if name.startswith(beginnings):
                expected = instead
        is_choice = name in BY_CHOICE and not INSTEAD
        wait = SHORT_WAIT_S if is_choice else WAIT_S
        seen = run(port, steps, expected, preface=request != "preface", wait=wait)
        if seen is None and not is_choice:
            passed += 1
        elif seen is not None and is_choice:
            by_choice += 1
        else:
            failed += 1
            print("FAILED %s (%s): %s" % (name, request, seen or "passes, and is listed in BY_CHOICE"))
    print("%d rows passed, %d fail by choice, %d failed" % (passed, by_choice, failed))
    return 0 if failed == 0 and passed > 0 else 1


def main():
    first, names = sys.argv[1], sys.argv[2:]
    if first.startswith("--port="):
        port, _, path = first[len("--port=") :].partition(",")
        return run_all(int(port), path or CALL_PATH, names)
    with interop_server(first, quiet=True) as port:
        return run_all(port, CALL_PATH, names)


if __name__ == "__main__":
    sys.exit(main())
