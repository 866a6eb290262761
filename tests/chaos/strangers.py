"""Clients that are broken, slow or hostile, on the ports of gRPC and HTTP. Each function does its work for about
`seconds` and closes what it opened; what happens to its own calls does not matter, what happens to others' does."""

import collections
import contextlib
import os
import socket
import struct
import threading
import time

import cases
import http2
from http2 import Closed, frame

CLASSIFY = cases.SERVICE + "Classify"
ENCODE = cases.SERVICE + "Encode"
GENERATE = cases.SERVICE + "Generate"
QUESTION = http2.field(1, b"trec") + http2.field(3, http2.field(1, b"Who wrote Hamlet ?"))
LOST = (OSError, Closed)


def token_vectors(sequences, tokens):
    """An EncodeRequest whose answer is 500 times as large."""
    one = http2.field(3, http2.field(3, http2.field(1, b"\x05" * tokens)))
    return http2.field(1, b"trec") + one * sequences + http2.field(5, 1) + http2.field(7, 2)


def _text():
    text = cases.long_text()
    text.max_new_tokens = 400
    return text.SerializeToString()


@contextlib.contextmanager
def _crowd():
    """What is put into the list is closed at the end."""
    with contextlib.ExitStack() as stack:
        opened = []
        stack.callback(lambda: [one.close() for one in opened])
        yield opened


def slow_readers(server, seconds, draw):
    """Calls with large answers, and texts, whose windows never open."""
    with _crowd() as crowd:
        for _ in range(6):
            try:
                one = http2.Connection(server.ports["port"], window=0, receive_buffer=4096)
                crowd.append(one)
                for request, method in ((token_vectors(2, 512), ENCODE), (QUESTION, CLASSIFY), (_text(), GENERATE)):
                    one.pump()
                    stream = one.start(method)
                    one.send_body(stream, http2.message(request), deadline=time.monotonic() + 2)
                page = socket.create_connection(("127.0.0.1", server.ports["http_port"]), timeout=5)
                crowd.append(page)
                page.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
                page.sendall(_http("POST", "/v1/generate", b'{"model":"war_and_peace","prompt":{"text":"a"}}'))
            except LOST:
                pass
        time.sleep(seconds)


def slow_writers(server, seconds, draw):
    """Requests that come a byte at a time."""
    body, end = http2.message(QUESTION), time.monotonic() + seconds
    page = _http("POST", "/v1/classify", b'{"sequences":[{"text":"Who wrote Hamlet ?"}]}')
    with _crowd() as crowd:
        streams, pages = [], []
        for _ in range(20):
            try:
                one = http2.Connection(server.ports["port"])
                crowd.append(one)
                streams.append((one, one.start(CLASSIFY)))
                other = socket.create_connection(("127.0.0.1", server.ports["http_port"]), timeout=5)
                crowd.append(other)
                pages.append(other)
            except LOST:
                pass
        position = 0
        while time.monotonic() < end:
            for one, stream in streams:
                with contextlib.suppress(*LOST):
                    one.pump()
                    one.send(frame(http2.DATA, 0, stream, body[position : position + 1]))
            for one in pages:
                with contextlib.suppress(*LOST):
                    one.send(page[position : position + 1])
            position = min(position + 1, len(body) - 2)  # never the last one
            time.sleep(0.1)


def half_open(server, seconds, draw):
    """Connections that are never used: silent, with half a preface, half a frame, half a request."""
    with _crowd() as crowd:
        for _ in range(60):
            port = draw.choice(list(server.ports.values()))
            try:
                one = socket.create_connection(("127.0.0.1", port), timeout=5)
                crowd.append(one)
                one.send(draw.choice([b"", http2.PREFACE[:10], http2.PREFACE + b"\0\0", b"POST /v1/classify HTTP/1.1\r\nHost: x"]) or b"")
            except LOST:
                pass
        time.sleep(seconds)


def resets(server, seconds, draw):
    """Connections that are reset in the middle of a call (SO_LINGER 0)."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with contextlib.suppress(*LOST):
            if draw.random() < 0.5:
                with http2.Connection(server.ports["port"]) as one:
                    for _ in range(draw.randint(1, 8)):
                        one.start(draw.choice((CLASSIFY, GENERATE)), body=http2.message(QUESTION), end=draw.random() < 0.7)
                    time.sleep(draw.random() * 0.01)
                    _linger_0(one.socket)
            else:
                with socket.create_connection(("127.0.0.1", server.ports["http_port"]), timeout=5) as one:
                    text = _http("POST", "/v1/generate", b'{"model":"war_and_peace","prompt":{"text":"a"},"max_new_tokens":50}')
                    one.sendall(text[: draw.randint(1, len(text))])
                    time.sleep(draw.random() * 0.01)
                    _linger_0(one)


def hostile(server, seconds, draw):
    """Frames and requests that break the protocols, one connection after the other, on both ports."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with contextlib.suppress(*LOST):
            if draw.random() < 0.6:
                with http2.Connection(server.ports["port"], timeout=1) as one:
                    _hostile_frames(one, draw)
                    one.pump(0.01)
            else:
                with socket.create_connection(("127.0.0.1", server.ports["http_port"]), timeout=1) as one:
                    one.sendall(_hostile_page(draw))
                    one.settimeout(0.02)
                    one.recv(4096)


def _hostile_frames(one, draw):
    noise = draw.randbytes(draw.randint(1, 300))
    what = draw.randrange(12)
    if what == 0:
        one.send(noise)
    elif what == 1:  # frames of any kind, for any stream
        for _ in range(20):
            one.send(frame(draw.randrange(12), draw.randrange(256), draw.randrange(64), draw.randbytes(draw.randrange(64))))
    elif what == 2:  # a request that is no message
        stream = one.start(draw.choice((CLASSIFY, ENCODE, GENERATE)), body=http2.message(noise), end=True)
        one.finish(stream, 0.2)
    elif what == 3:  # a length that the message does not have
        one.start(CLASSIFY, body=http2.message(noise, length=draw.choice((0, 1, 2**31, 2**32 - 1))), end=True)
    elif what == 4:
        one.start(CLASSIFY, body=http2.message(noise, compressed=True), end=True)
    elif what == 5:  # a header block that is none
        one.send(frame(http2.HEADERS, http2.END_HEADERS, one.next_stream(), noise))
    elif what == 6:  # a flipped bit in what was right
        block = bytearray(http2.header_block(CLASSIFY))
        block[draw.randrange(len(block))] ^= 1 << draw.randrange(8)
        one.send(frame(http2.HEADERS, http2.END_HEADERS | http2.END_STREAM, one.next_stream(), bytes(block)))
    elif what == 7:  # rapid resets
        for _ in range(50):
            one.send(http2.reset(one.start(CLASSIFY)))
    elif what == 8:  # windows that overflow, settings out of range
        one.send(http2.window_update(0, 2**31 - 1) * 2 + http2.settings((4, 2**32 - 1), (5, 1)))
    elif what == 9:  # DATA of a stream that is not open, CONTINUATION of nothing
        one.send(frame(http2.DATA, 0, 99, noise) + frame(http2.CONTINUATION, 0, 1, noise))
    elif what == 10:
        one.send(frame(http2.PING, 0, 0, b"12345678") * 100)
    else:  # more headers than a call may have
        fields = [("x-%d" % i, "y" * 200) for i in range(60)]
        one.send(frame(http2.HEADERS, http2.END_HEADERS, one.next_stream(), http2.header_block(CLASSIFY, fields)))


def _hostile_page(draw):
    noise = draw.randbytes(draw.randint(1, 300))
    return draw.choice(
        (
            noise,
            http2.PREFACE,
            b"GET / HTTP/9.9\r\n\r\n",
            b"POST /v1/classify HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\n",
            b"POST /v1/classify HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n12345",
            b"POST /v1/classify HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n" + noise,
            b"POST /v1/classify HTTP/1.1\r\n" + b"X: y\r\n" * 3000 + b"\r\n",
            b"GET /" + b"a" * 20000 + b" HTTP/1.1\r\n\r\n",
            _http("POST", "/v1/classify", noise),
            _http("POST", "/v1/classify", b"[" * 5000),
            _http("POST", "/v1/classify", b'{"sequences":[{"text":"\xff\xfe"}]}'),
            _http("POST", "/v1/generate", b'{"max_new_tokens":-1e308,"prompt":{"text":null}}'),
            _http("DELETE", "/v1/models/../../etc/passwd", b""),
        )
    )


def _http(method, path, body):
    head = "%s %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    return (head % (method, path, len(body))).encode() + body


def _linger_0(one):
    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def connections(server, count, seconds):
    """Holds this many, as far as the server takes them."""
    with _crowd() as crowd:
        for _ in range(count):
            with contextlib.suppress(*LOST):
                one = socket.create_connection(("127.0.0.1", server.ports["port"]), timeout=2)
                crowd.append(one)
                one.send(http2.PREFACE + http2.settings())
        time.sleep(seconds)


def large_calls(server, seconds):
    """Calls of high priority with large answers, 16 at a time; returns how many got which code."""
    codes, end = collections.Counter(), time.monotonic() + seconds
    request = token_vectors(8, 512) + http2.field(8, 3)

    def loop():
        while time.monotonic() < end:
            try:
                with http2.Connection(server.ports["port"], timeout=5) as one:
                    codes[one.call(ENCODE, request, timeout=5).code] += 1
            except LOST:
                codes["CLOSED"] += 1

    loops = [threading.Thread(target=loop) for _ in range(16)]
    for one in loops:
        one.start()
    for one in loops:
        one.join()
    return codes


def fill(folder):
    """A file that leaves no room in its file system; returns its path."""
    path = os.path.join(folder, "ballast")
    with open(path, "ab", buffering=0) as file, contextlib.suppress(OSError):
        for size in (1 << 20, 1 << 12, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(bytes(size))
    return path
