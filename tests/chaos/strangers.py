"""Clients that are broken, slow or hostile, on the ports of gRPC and HTTP. Each function does its work for about
`seconds` and closes what it opened; what happens to its own calls does not matter, what happens to others' does."""

import collections
import contextlib
import os
import socket
import struct
import time

import cases  # lets modules of tests/attacks be imported
import harness
import http2
from harness import CLASSIFY, ENCODE, GENERATE, token_vectors
from http1 import post
from http2 import Closed, frame

TREC = http2.field(1, b"trec")
QUESTION = TREC + harness.QUESTION
LOST = (OSError, Closed)


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
                for request, method in ((TREC + token_vectors(2, 512), ENCODE), (QUESTION, CLASSIFY), (_text(), GENERATE)):
                    one.pump()
                    stream = one.start(method)
                    one.send_body(stream, http2.message(request), deadline=time.monotonic() + 2)
                page = _connect(server)
                crowd.append(page)
                page.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
                page.sendall(post("/v1/generate", b'{"model":"war_and_peace","prompt":{"text":"a"}}'))
            except LOST:
                pass
        time.sleep(seconds)


def slow_writers(server, seconds, draw):
    """Requests that come a byte at a time."""
    body, end = http2.message(QUESTION), time.monotonic() + seconds
    page = post("/v1/classify", b'{"sequences":[{"text":"Who wrote Hamlet ?"}]}')
    with _crowd() as crowd:
        streams, pages = [], []
        for _ in range(20):
            try:
                crowd.append(http2.Connection(server.ports["port"]))
                streams.append((crowd[-1], crowd[-1].start(CLASSIFY)))
                crowd.append(_connect(server))
                pages.append(crowd[-1])
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
            port = draw.choice(list(server.ports))
            begun = draw.choice([b"", http2.PREFACE[:10], http2.PREFACE + b"\0\0", b"POST /v1/classify HTTP/1.1\r\nHost: x"])
            with contextlib.suppress(*LOST):
                crowd.append(_connect(server, port))
                crowd[-1].send(begun)
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
                with _connect(server) as one:
                    text = post("/v1/generate", b'{"model":"war_and_peace","prompt":{"text":"a"},"max_new_tokens":50}')
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
                with _connect(server, timeout=1) as one:
                    one.sendall(_hostile_page(draw))
                    one.settimeout(0.02)
                    one.recv(4096)


def _flipped(draw):
    """A header block that was right, with another bit."""
    block = bytearray(http2.header_block(CLASSIFY))
    block[draw.randrange(len(block))] ^= 1 << draw.randrange(8)
    return bytes(block)


def _hostile_frames(one, draw):
    noise = draw.randbytes(draw.randint(1, 300))
    head = lambda block, flags=0: frame(http2.HEADERS, http2.END_HEADERS | flags, one.next_stream(), block)  # noqa: E731
    call = lambda body: one.start(draw.choice((CLASSIFY, ENCODE, GENERATE)), body=body, end=True)  # noqa: E731
    any_frame = lambda: frame(  # noqa: E731
        draw.randrange(12), draw.randrange(256), draw.randrange(64), draw.randbytes(draw.randrange(64)))
    draw.choice((
        lambda: one.send(noise),
        lambda: one.send(b"".join(any_frame() for _ in range(20))),
        lambda: one.finish(call(http2.message(noise)), 0.2),  # a request that is no message
        lambda: call(http2.message(noise, length=draw.choice((0, 1, 2**31, 2**32 - 1)))),  # not the message's length
        lambda: call(http2.message(noise, compressed=True)),
        lambda: one.send(head(noise)),
        lambda: one.send(head(_flipped(draw), http2.END_STREAM)),
        lambda: [one.send(http2.reset(one.start(CLASSIFY))) for _ in range(50)],
        # Windows that overflow, settings out of range.
        lambda: one.send(http2.window_update(0, 2**31 - 1) * 2 + http2.settings((4, 2**32 - 1), (5, 1))),
        # DATA of a stream that is not open, CONTINUATION of nothing.
        lambda: one.send(frame(http2.DATA, 0, 99, noise) + frame(http2.CONTINUATION, 0, 1, noise)),
        lambda: one.send(frame(http2.PING, 0, 0, b"12345678") * 100),
        # More headers than a call may have.
        lambda: one.send(head(http2.header_block(CLASSIFY, [("x-%d" % i, "y" * 200) for i in range(60)]))),
    ))()  # fmt: skip


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
            post("/v1/classify", noise),
            post("/v1/classify", b"[" * 5000),
            post("/v1/classify", b'{"sequences":[{"text":"\xff\xfe"}]}'),
            post("/v1/generate", b'{"max_new_tokens":-1e308,"prompt":{"text":null}}'),
            post("/v1/models/../../etc/passwd", method="DELETE"),
        )
    )


def _connect(server, port="http_port", timeout=5):
    return socket.create_connection(("127.0.0.1", server.ports[port]), timeout)


def _linger_0(one):
    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def connections(server, count, seconds):
    """Holds this many, as far as the server takes them."""
    with _crowd() as crowd:
        for _ in range(count):
            with contextlib.suppress(*LOST):
                crowd.append(_connect(server, "port", timeout=2))
                crowd[-1].send(http2.PREFACE + http2.settings())
        time.sleep(seconds)


def large_calls(server, seconds):
    """Calls of high priority with large answers, 16 at a time; returns how many got which code."""
    codes, end = collections.Counter(), time.monotonic() + seconds
    request = TREC + token_vectors(8, 512) + http2.field(8, 3)

    def loop(_):
        while time.monotonic() < end:
            try:
                with http2.Connection(server.ports["port"], timeout=5) as one:
                    codes[one.call(ENCODE, request, timeout=5).code] += 1
            except LOST:
                codes["CLOSED"] += 1

    harness.together(loop, range(16))
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
