"""Attacks by the form of what is sent: credentials, parameters, JSON, tensors, HTTP/1.1, frames of HTTP/2, TLS."""

import contextlib
import itertools
import json
import re
import shutil
import socket
import subprocess
import time

import http1
from harness import BUDGET_MIB, BUDGETS, CLASSIFY, ELSEWHERE, ENCODE, GENERATE, MIB, OPEN, QUESTION, SCORE, SRU, STREAM
from harness import TOKEN, WATCH, Outcome, classify_request, counts, more_files, only, row, sequence, tls, together
from harness import tokens
from http1 import Tcp, ask, post
from http2 import CONTINUATION, DATA, DEFAULT_WINDOW, END_HEADERS, END_STREAM, HEADERS, INITIAL_WINDOW_SIZE, PREFACE
from http2 import PRIORITY, Closed, Connection, field, frame, header_block, literal, message, settings, varint
from http2 import window_update
from http_routes import ROUTES
from rows import MOST, client_hello, generate

# Credentials and parameters.

METHODS = [SRU + name for name in (
    "Classify Encode Score Generate EncodeStream Answer Translate Tag ListModels GetModel None").split()]  # fmt: skip
METHODS += [OPEN + name for name in (
    "ServerLive ModelInfer ModelStreamInfer RepositoryIndex ModelConfig ModelStatistics").split()]  # fmt: skip
METHODS += ["/sru.v1.AdminService/LoadModel", "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", "/a/b", "/"]
PATHS = (
    "/v1/models /v1/classify /v1/../v1/models //v1/models /v1//models /%76%31/models /v1/models/ /v1/models%00 /v1/models;a "
    "/openapi.json /V1/models /v2 /v2/models/trec /healthz/../v1/models http://localhost/v1/models /v1/completions"
).split()


@row(given=tokens, seconds=4)
def doors(target):
    """Every method and route with credentials that are none."""
    credentials = ["Bearer " + TOKEN[:-1], "Bearer " + TOKEN + "x", "Basic " + TOKEN, TOKEN, "Bearer", "Bearer  ", ""]
    codes, statuses = [], []
    with Connection(target.port) as connection:
        for method, value in itertools.product(METHODS, [None, *credentials]):
            headers = [] if value is None else [("authorization", value)]
            codes.append(connection.call(method, b"", headers, timeout=2).code)
    for path, value in itertools.product(PATHS, [None, *credentials]):
        headers = [] if value is None else ["Authorization: " + value]
        statuses.append(ask(target.http_port, post(path, b"{}", headers=headers)))
        statuses.append(ask(target.http_port, post(path, method="GET", headers=headers)))
    failures = only(codes, "UNAUTHENTICATED", "HTTP", "UNIMPLEMENTED") + only(statuses, 400, 401, 403, 404, 405)
    return Outcome("calls: %s, requests: %s" % (counts(codes), counts(statuses)), failures=failures)


def extreme_calls():
    numbers = [1, MOST, 1 << 31, (1 << 63) - 1, 1 << 63, (1 << 64) - 1]
    # NaN, the infinities and the ends of the range
    floats = [b"\0\0\xc0\x7f", b"\0\0\x80\x7f", b"\0\0\x80\xff", b"\xff\xff\x7f\x7f", b"\1\0\0\0"]
    text = field(3, sequence("Who wrote it ?"))
    for number in numbers:
        for method, request, positions in (
            (CLASSIFY, text, (2, 4, 5, 6, 7, 99)),
            (ENCODE, text, (2, 4, 5, 6, 7, 8, 9)),
            (SCORE, text, (2, 5, 6, 7, 8, 9)),
            (GENERATE, generate(2), (2, 7, 9, 10, 11, 12, 13, 14, 15, 16)),
        ):
            yield from ((method, request + field(position, number)) for position in positions)
        yield CLASSIFY, field(3, field(3, field(1, number)))
        yield GENERATE, generate(2) + field(5, field(2, number))
    for value, position in itertools.product(floats, (1, 3, 4, 6, 7, 8)):
        yield GENERATE, generate(2) + field(5, bytes([position << 3 | 5]) + value)
    yield GENERATE, generate(2) + b"".join(field(8, b"%d" % number) for number in range(1000))
    yield GENERATE, generate(2) + field(4, b"\xff" * 100000)


@row(flags=BUDGETS, budget_mib=BUDGET_MIB, seconds=8)
def extremes(target):
    """Parameters at the ends of their ranges."""
    codes = []
    connection = Connection(target.port)
    for method, request in extreme_calls():
        codes.append(connection.call(method, request, [("grpc-timeout", "500m")], timeout=3).code)
        if codes[-1] in ("CLOSED", "TIMEOUT"):
            connection = Connection(target.port)
    allowed = "OK", "INVALID_ARGUMENT", "NOT_FOUND", "RESOURCE_EXHAUSTED", "OUT_OF_RANGE", "FAILED_PRECONDITION"
    return Outcome(counts(codes), failures=only(codes, *allowed, "DEADLINE_EXCEEDED", "UNIMPLEMENTED"))


def json_bodies():
    size = 1 << 20
    inside = b'{"model": "trec", "sequences": [{"text": %s}]}'
    yield from (b"[" * size, b'{"a":' * (size // 5), b'{"sequences":' * 100000, b"[" * size + b"]" * size)
    yield from (b'{"sequences": [' + b"{}," * (size // 3), b'{"sequences": [' + b"[]," * (size // 3))
    yield from (b'"' + b"\\u0041" * (size // 6), b'{"' + b"k" * size + b'": 1}', b"1" * size, b"1e" + b"9" * size)
    yield from (b"-" * size, b"0." + b"0" * size + b"1", b"{" + b'"a":1,' * (size // 6) + b'"b":2}', b" " * size, b"")
    yield from (b"\xff" * size, b"null", b"\0" * size, b"nul" * (size // 3), inside % (b'"' + b"\\ud800" * 1000 + b'"'))
    yield from (inside % (b'"' + b"a " * (size // 2) + b'"'), inside % b"1e400", inside % (b"[" * 1000 + b"]" * 1000))
    yield from (inside % (b'"' + b"\xed\xa0\x80" * 100 + b'"'), inside % b"true", inside.replace(b"%s", b'"a"') * 1000)


@row(flags=BUDGETS, budget_mib=BUDGET_MIB, seconds=15)
def json_bombs(target):
    """Bodies that are costly to read, or no JSON."""
    codes, worst = [], 0.0
    for path in ("/v1/classify", "/v1/completions", "/v1/embeddings", "/pipelines/trec", "/v2/models/trec/infer", CLASSIFY):
        for body in json_bodies():
            start = time.monotonic()
            codes.append(ask(target.http_port, post(path, body)))
            worst = max(worst, time.monotonic() - start)
    failures = only(codes, 400, 404, 413, 422, 429) + (["one took %.1f s" % worst] if worst > 3 else [])
    return Outcome("%d bodies, slowest %.2f s: %s" % (len(codes), worst, counts(codes)), failures=failures)


# Requests that are costly to parse.

EXPANDED = 15 * MIB
REFLECTION = "/grpc.reflection.v1%s.ServerReflection/ServerReflectionInfo"
EXPANSIONS = {
    # With truncate the number of tokens is no reason to refuse it.
    "empty tokens": lambda: field(5, 1) + field(3, field(2, b"\x0a\0" * (EXPANDED // 2))),
    "empty sequences": lambda: b"\x1a\0" * (EXPANDED // 2),
    "unknown fields": lambda: classify_request("a") + b"\xf8\x01\0" * (EXPANDED // 3),
    "unknown fields in a sequence": lambda: field(3, sequence("a") + b"\x78\0" * (EXPANDED // 2)),
    "groups": lambda: classify_request("a") + b"\x7b\x7c" * (EXPANDED // 2),
    "many texts": lambda: classify_request("") * (EXPANDED // 4),
    "token ids": lambda: field(5, 1) + field(3, field(3, field(1, b"\x01" * EXPANDED))),
    "model names": lambda: field(1, b"x") * (EXPANDED // 3),
    "nested unknown": lambda: varint(15 << 3 | 2) + varint(EXPANDED) + b"\x0a\0" * (EXPANDED // 2),
}


@row(budget_mib=2 * EXPANDED // MIB, seconds=5, flags=["--max_message_bytes=%d" % (16 * MIB)])
def expansion(target):
    """Legal requests of 15 MiB whose parsed form would take thirty times that: empty tokens, empty sequences,
    unknown fields, groups; to a method of ours and to reflection."""
    calls = [(form, CLASSIFY, make) for form, make in EXPANSIONS.items()]
    calls += [("groups to reflection", REFLECTION % version, EXPANSIONS["groups"]) for version in ("", "alpha")]
    texts, failures = [], []
    for form, method, make in calls:
        try:
            with Connection(target.port) as connection:
                code = connection.call(method, make()).code
        except Closed:
            code = "CLOSED"
        texts.append("%s %s" % (form, code))
        if code == "TIMEOUT":
            failures.append("no answer to " + form)
    return Outcome(", ".join(texts), failures=failures)


def repeated(unit, between=",", size=4000000):
    return between.join([unit] * (size // (len(unit) + len(between))))


JSON_VALUES = {
    "objects": lambda: "[" + repeated("{}") + "]",
    "lists": lambda: "[" + repeated("[]") + "]",
    "numbers": lambda: "[" + repeated("1") + "]",
    "keys": lambda: "{" + ",".join('"%d":1' % key for key in range(4000000 // 12)) + "}",
    "one key": lambda: "{" + repeated('"a":1') + "}",
    "escapes": lambda: '"' + repeated("\\u4e2d", between="") + '"',
    "levels": lambda: repeated("[", between=""),
}
JSON_BODIES = {route.path.replace("MODEL", "trec"): route.hostile for route in ROUTES if route.hostile}
JSON_BODIES[CLASSIFY] = ('{"sequences":%s}',)


@row(budget_mib=96, seconds=10, flags=["--max_inflight_mb=64"])  # bodies that come are counted apart
def hostile_json(target):
    """JSON of 4 MB that is nothing but small lists and objects, keys, escapes or levels, to every kind of route. Each is
    answered within three seconds, with one of them after the other on four connections."""
    jobs = [(path, body, name) for path, bodies in JSON_BODIES.items() for body in bodies for name in JSON_VALUES]
    count, values = len(jobs), {name: make() for name, make in JSON_VALUES.items()}
    failures, times = [], [0.0]

    def work(_):
        with contextlib.suppress(IndexError):
            while True:
                path, body, name = jobs.pop()
                start = time.monotonic()
                status, _ = http1.call(target.port, path, body % values[name])
                times.append(time.monotonic() - start)
                if status not in (400, 413, 429, 503) or times[-1] > 3:
                    failures.append("%s, %s: %s after %.1f s" % (path, name, status, times[-1]))

    together(work, range(4))
    return Outcome("%d bodies, the slowest %.2f s" % (count, max(times)), failures=failures)


STATUS_LINE = re.compile(rb"HTTP/1\.1 \d\d\d ")
SMUGGLED = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n"


def smuggling_forms():
    chunked = b"0\r\n\r\n" + SMUGGLED
    for lines in (
        b"Content-Length: 5\r\nTransfer-Encoding: chunked",
        b"Transfer-Encoding: chunked\r\nContent-Length: 5",
        b"Content-Length: 0\r\nContent-Length: 5",
        b"Content-Length: 0, 5",
        b"Content-Length: +0",
        b"Content-Length: -1",
        b"Content-Length: 0x0",
        b"Content-Length : 0",
        b"Content-Length: 18446744073709551616",
        b"Content-Length:\r\n 0",
        b"Transfer-Encoding : chunked",
        b"Transfer-Encoding: xchunked",
        b"Transfer-Encoding: chunked, identity",
        b"Transfer-Encoding: identity, chunked",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
        b"Transfer-Encoding:\x0bchunked",
        b"Transfer-Encoding: \x00chunked",
        b"Transfer-Encoding: chunked\r\n X: y",
        b"X: y\nTransfer-Encoding: chunked",
        b"X: y\rTransfer-Encoding: chunked",
        b"X\x00: y\r\nContent-Length: 0",
        b"X y: z\r\nContent-Length: 0",
        b": y\r\nContent-Length: 0",
        b"\xff: y\r\nContent-Length: 0",
        b"Host: other\r\nContent-Length: 0",
        b"X(): y\r\nContent-Length: 0",
    ):
        yield b"POST /v1/classify HTTP/1.1\r\nHost: localhost\r\n" + lines + b"\r\n\r\n" + chunked
    head = b"POST /v1/classify HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    for size in (b"+0", b"0x0", b"-0", b"0 ", b"0\x00", b"ffffffffffffffff1", b"0\n", b"g", b""):
        yield head + size + b"\r\n\r\n" + SMUGGLED
    yield head + b"1\r\naa\r\n" + chunked
    # What a reader that ends these lines at LF takes for a chunk's end, and a request after it.
    inner = b"\n".join([b"hello", b"0", b"", b"GET /v2 HTTP/1.1", b"Host: a", b"X: "])
    for byte in (b"\n", b"\\\n", b"\0", b"\r", b"\x0b"):
        yield head + b'5;a="' + byte + inner + b'"\r\nhello\r\n' + chunked
        yield head + b'5;a="' + byte + b'"\r\nhello\r\n' + chunked
        yield head + b'5\r\nhello\r\n0;a="' + byte + b'"\r\n\r\n' + SMUGGLED
        yield head + b"5\r\nhello\r\n0\r\nA: b" + byte + b"C: d\r\n\r\n" + SMUGGLED
    for trailer in (b"A: b\r\n c", b"A: b\r\n\tc", b" A: b", b"A: b\r\n \r\n"):
        yield head + b"0\r\n" + trailer + b"\r\n\r\n" + SMUGGLED
    yield head + b"0" * 1000 + b"5\r\nhello\r\n" + chunked
    yield head + b"0" * 17 + b"\r\n\r\n" + SMUGGLED
    yield head + b"1\r\na\n" + chunked
    yield b"GET  /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n" + SMUGGLED
    yield b"GET /v1/models HTTP/1.1 x\r\nHost: localhost\r\n\r\n" + SMUGGLED
    yield b"GET /v1/models HTTP/2.0\r\nHost: localhost\r\n\r\n" + SMUGGLED
    yield b"GET /v1/models\x00 HTTP/1.1\r\nHost: localhost\r\n\r\n" + SMUGGLED
    yield b"GET /v1/models HTTP/1.1\nHost: localhost\n\n" + SMUGGLED


@row(seconds=15)
def smuggling(target):
    """Requests of HTTP/1.1 that proxies read in several ways: none may be taken for two."""
    answers, failures = [], []
    for form in smuggling_forms():
        with Tcp(target.http_port) as one:
            one.send(form)
            data, ended = one.receive(1.0, lambda data: len(STATUS_LINE.findall(data)) > 1)
        answers.append(data[9:12].decode() or ("closed" if ended else "silence"))
        if len(STATUS_LINE.findall(data)) > 1 or answers[-1] == "200":
            failures.append("%r is taken for two requests, or for one: %s" % (form[:160], answers[-1]))
    return Outcome("%d forms: %s" % (len(answers), counts(answers)), failures=failures)


TENSORS = (
    (b"BYTES", b"\xff" * 4), (b"BYTES", b"\1\0\0\0a"), (b"FP32", b"ab"), (b"X", b""), (b"INT64", b"a" * 8)
)  # fmt: skip


def tensor_calls():
    for shape in ([MOST, MOST], [-1], [0], [1 << 40], [(1 << 63) - 1, 2], [1] * 1000, [3], []):
        dimensions = b"".join(field(3, number % (1 << 64)) for number in shape)
        for kind, data in TENSORS:
            tensor = field(5, field(1, b"text") + field(2, kind) + dimensions)
            yield field(1, b"trec") + tensor + field(7, data), (shape, kind)
            yield field(1, b"trec") + tensor + field(7, data) * 3, (shape, kind)


@row(flags=BUDGETS, budget_mib=BUDGET_MIB, seconds=6)
def tensor_lies(target):
    """Tensors of the Open Inference Protocol whose data, type and shape do not agree."""
    codes, statuses = [], []
    with Connection(target.port) as connection:
        for request, (shape, kind) in tensor_calls():
            codes.append(connection.call(OPEN + "ModelInfer", request, timeout=2).code)
            tensor = {"name": "text", "shape": shape, "datatype": kind.decode(), "data": ["a", 1, [[]]]}
            body = json.dumps({"inputs": [tensor]}).encode()
            statuses.append(ask(target.http_port, post("/v2/models/trec/infer", body)))
    failures = only(codes, "INVALID_ARGUMENT", "RESOURCE_EXHAUSTED") + only(statuses, 400)
    return Outcome("%d calls: %s, %s" % (2 * len(codes), counts(codes), counts(statuses)), failures=failures)


# Tricks with frames.

HARMLESS = "OK", "RST_STREAM", "CLOSED", "INTERNAL", "INVALID_ARGUMENT", "UNIMPLEMENTED", "UNKNOWN"


def tricks(target, forms, path=CLASSIFY):
    """Does each on a connection of its own, again and again; says which were ended by the server, and how."""
    what = {}
    deadline = time.monotonic() + max(0, target.time_left())
    while time.monotonic() < deadline:
        for name, form in forms.items():
            with Connection(target.port, source=ELSEWHERE) as connection:
                try:
                    connection.pump(0.01)
                    form(connection)
                    connection.pump(0.02)
                    what.setdefault(name, "open")
                except Closed:
                    what[name] = "closed" if connection.goaway is None else "GOAWAY %d" % connection.goaway[0]
    return Outcome(", ".join("%s: %s" % one for one in what.items()))


@row(seconds=2)
def windows(target):
    """Windows that overflow, shrink below nothing, and stay at zero for many streams."""

    def shrinking(connection):
        body = message(field(3, sequence("a")))
        for number in range(200):
            connection.start(CLASSIFY, body=body, end=True)
            connection.send(settings((INITIAL_WINDOW_SIZE, 0 if number % 2 else MOST)))

    def many(connection):
        connection.send(settings((INITIAL_WINDOW_SIZE, 0)))
        for _ in range(400):
            connection.start(CLASSIFY, body=message(QUESTION), end=True)

    def stream_overflow(connection):
        stream = connection.start(CLASSIFY)
        connection.send(window_update(stream, MOST) * 2)

    forms = {
        "connection overflow": lambda c: c.send(window_update(0, MOST) * 2),
        "stream overflow": stream_overflow,
        "overflow by SETTINGS": lambda c: c.send(
            window_update(c.start(CLASSIFY), MOST - DEFAULT_WINDOW) + settings((4, MOST))
        ),
        "too large a window": lambda c: c.send(settings((INITIAL_WINDOW_SIZE, 1 << 31))),
        "up and down": shrinking,
        "zero for 400 streams": many,
        "idle stream": lambda c: c.send(window_update(9, 1)),
    }
    return tricks(target, forms)


@row(seconds=2)
def priorities(target):
    """Chains and rings of dependencies, and of streams that never come."""

    def chain(connection):
        links = (frame(PRIORITY, 0, n, (n - 2).to_bytes(4, "big") + b"\xff") for n in range(3, 1900, 2))
        connection.send(b"".join(links))

    def headers(connection):
        block = header_block(CLASSIFY)
        for _ in range(500):
            stream = connection.next_stream()
            priority = max(0, stream - 2).to_bytes(4, "big") + b"\0"
            connection.send(frame(HEADERS, END_HEADERS | 32, stream, priority + block))

    def ring(connection):
        connection.send(frame(PRIORITY, 0, 3, b"\0\0\0\5\1") + frame(PRIORITY, 0, 5, b"\0\0\0\3\1") * 400)

    itself = frame(PRIORITY, 0, 3, b"\0\0\0\3\1")
    return tricks(target, {"chain": chain, "streams": headers, "ring": ring, "itself": lambda c: c.send(itself)})


@row(flags=BUDGETS, budget_mib=32, seconds=3)
def trailers(target):
    """Trailers without an end, again and again, and lengths that the DATA does not have."""
    more = literal("x-trailer", "v" * 1000)

    def after_call(flags, block, more_frames=lambda stream: b"", times=1):
        def one(connection):
            stream = connection.start(CLASSIFY, body=message(QUESTION))
            connection.send(frame(HEADERS, flags, stream, block) * times + more_frames(stream))

        return one

    def lie(length, path=CLASSIFY, kind="application/grpc"):
        def one(connection):
            body = message(QUESTION)
            connection.start(path, [("content-length", length)], body, end=True, content_type=kind)

        return one

    lengths = {"length %s%s" % (length, path): lie(length, path, kind) for length, (path, kind) in itertools.product(
        ("0", "5", "99999999999999999999", "-1", "1, 1"), ((CLASSIFY, "application/grpc"), ("/v1/classify", "application/json")))}  # fmt: skip
    endless = lambda stream: frame(CONTINUATION, 0, stream, more * 15) * 200  # noqa: E731
    return tricks(target, {
        "no end": after_call(END_HEADERS, more, times=50),
        "no end of headers": after_call(END_STREAM, more, endless),
        "pseudo": after_call(END_STREAM | END_HEADERS, literal(":path", "/x")),
        **lengths,
    })  # fmt: skip


@row(seconds=3)
def odd_headers(target):
    """Names and values of headers with bytes that they may not have, over HTTP/2."""
    found = []
    names = ["X-Upper", "", "a b", "a\0", "a\r\nb", "a:b", ":odd", "\xff", "connection", "transfer-encoding"]
    names += ["host", "grpc-x", "te"]
    fields = [(name.encode("latin-1"), b"a") for name in names]
    fields += [(b"x", value) for value in (b"\0", b"a\r\nb: c", b" a", b"a ", b"\x7f", b"\xff" * 100)]
    fields += [(b":path", b"/v1/models"), (b":method", b"CONNECT"), (b":authority", b"a@b"), (b":scheme", b"\0")]
    fields.append((b":status", b"200"))
    for name, value in fields:
        for kind in (CLASSIFY, SCORE):
            with Connection(target.port, source=ELSEWHERE) as connection:
                try:
                    found.append(connection.call(kind, QUESTION, [(name, value)], timeout=1).code)
                except Closed:
                    found.append("CLOSED")
    return Outcome("%d headers: %s" % (len(found), counts(found)), failures=only(found, *HARMLESS))


def sent_as(connection, block):
    """A call with this block of headers."""
    stream = connection.next_stream()
    connection.send(frame(HEADERS, END_HEADERS, stream, block) + frame(DATA, END_STREAM, stream, message(QUESTION)))
    return connection.finish(stream, timeout=2).code


def good(connection):
    return sent_as(connection, header_block(CLASSIFY))


def over_the_limit(connection):
    """Headers over --max_metadata_bytes, among them one that enters the table."""
    block = header_block(CLASSIFY, [("x-%d" % i, "v" * 1000) for i in range(12)])
    return sent_as(connection, block + literal("x-other", "of somebody else", indexed=True))


def refers_to_the_table(connection):
    """A call by somebody else that refers to the entry."""
    return sent_as(connection, header_block(CLASSIFY) + bytes([0x80 | 62]))


@row()
def bad_headers(target):
    """CVE-2023-32731, -32732: one caller's bad header on a connection that a proxy shares with others: their calls must continue."""
    failures, texts = [], []
    for name, bad, later in (
        ("bad -bin", lambda c: sent_as(c, header_block(CLASSIFY, [("x-bin", "!!!!")])), [good, good]),
        ("over the limit", over_the_limit, [good, refers_to_the_table, good]),
    ):
        codes, watching = [], False
        try:
            with Connection(target.port) as connection:
                connection.pump(0.1)
                watch = connection.start(WATCH, body=message(b""), end=True)
                codes += [call(connection) for call in [bad, *later]]
                watching = watch not in connection.resets
        except Closed as error:
            codes.append(str(error))
        texts.append("%s: %s" % (name, " ".join(codes)))
        if codes[1:] != ["OK"] * len(later) or not watching:
            failures.append("others on the connection got %s, their stream went on: %s" % (codes[1:], watching))
        if codes[0] == "OK":
            failures.append("the bad call was answered")
    return Outcome("; ".join(texts), failures=failures)


# Tricks with HTTP/1.1, Connect and gRPC-Web.


@row(flags=BUDGETS, budget_mib=32, seconds=3)
def pipelining(target):
    """Requests without end on connections that read no answer."""
    request = post("/v1/classify", b'{"model": "trec", "sequences": [{"text": "a"}]}') * 200
    request += post("/openapi.json", method="GET") * 50

    def work(_):
        sent = 0
        with Tcp(target.http_port, ELSEWHERE, receive_buffer=4096, timeout=0.3) as one:
            while target.time_left() > 0 and one.send(request):
                sent += 250
        return sent

    return Outcome("%s requests taken" % sorted(together(work, range(8))))


@row(flags=BUDGETS, budget_mib=32, seconds=4)
def chunks(target):
    """Chunks whose extensions, sizes and trailers do not end, or that have a byte each."""
    head = b"POST /v1/classify HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    forms = {
        "extension": (b"1;a=", b"b" * 65536),
        "quoted extension": (b'1;a="', b"b" * 65536),
        "many extensions": (b"1", b";a=b" * 16384),
        "zeros": (b"", b"0" * 65536),
        "trailers": (b"0\r\n", b"x: y\r\n" * 10000),
        "a byte each": (b"", b"1\r\n \r\n" * 10000),
        "a byte each, extended": (b"", (b"1;" + b"x" * 1000 + b"\r\n \r\n") * 60),
        "empty lines first": None,
        "header": (b"\r\n\r\n", b"x" * 65536),
    }

    def work(form):
        begin, part = forms[form] or (b"", b"\r\n" * 32768)
        with Tcp(target.http_port, ELSEWHERE, timeout=0.5) as one:
            sent = 0
            one.send(head + begin if forms[form] else b"")
            while sent < 32 * MIB and target.time_left() > 0 and one.send(part):
                sent += len(part)
            data, ended = one.receive(0.2)
            end = data[9:12].decode() or ("closed" if ended else "open")
        return "%s: %.1f MiB, %s" % (form, sent / MIB, end)

    return Outcome(", ".join(together(work, forms)))


@row(flags=BUDGETS, budget_mib=32, seconds=5)
def web_frames(target):
    """Frames of Connect and gRPC-Web that lie about their length, and base64 that is none."""
    body = message(QUESTION)
    bodies = [message(QUESTION, length=length) for length in (0, 5, len(QUESTION) + 1, MOST, (1 << 32) - 1)]
    bodies += [body * 2, body[:3], b"", b"\x80" + body[1:], b"\x02" + body[1:], b"\1" + body[1:], body + b"x"]
    bodies.append(b"\xff" * 100)
    texts = [b"AAAA" * 100000, b"====", b"A", b"AA==" * 1000, b"\xff" * 1000, b"A\r\n" * 1000, b"AAAAB\0AA", b"=AAA"]
    codes, worst = [], 0.0
    for kind in ("application/grpc-web", "application/grpc-web-text", "application/connect+proto", "application/proto"):
        for method in (CLASSIFY, GENERATE, WATCH, STREAM):
            for one in bodies + texts:
                start = time.monotonic()
                codes.append(ask(target.http_port, post(method, one, kind), 2))
                worst = max(worst, time.monotonic() - start)
    failures = ["no answer to %d" % codes.count(0)] if 0 in codes else []
    return Outcome("%d bodies, slowest %.2f s: %s" % (len(codes), worst, counts(codes)), failures=failures)


@row(flags=["--allow_origins=https://app.example.com"], seconds=2)
def preflights(target):
    """CORS preflights, as fast as possible, by allowed and other origins."""

    def work(number):
        codes = []
        origin = "https://app.example.com" if number % 2 else "https://" + "a" * 4000
        headers = ["Origin: " + origin, "Access-Control-Request-Method: POST"]
        request = post("/v1/classify", method="OPTIONS", headers=headers)
        with Tcp(target.http_port, ELSEWHERE) as one:
            while target.time_left() > 0 and one.send(request):
                data, ended = one.receive(1, lambda data: b"\r\n\r\n" in data)
                codes.append(data[9:12].decode())
                if ended:
                    break
        return codes

    codes = list(itertools.chain(*together(work, range(4))))
    return Outcome("%d preflights: %s" % (len(codes), counts(codes)))


# Tricks with TLS and TCP.


@row(given=tls, seconds=5)
def tls_tricks(target):
    """Records of a byte each, 64 kB of ALPN, renegotiation, garbage, a handshake in crumbs."""
    hello = client_hello()
    body = hello[5:]
    # 14 kB: longer names do not fit OpenSSL's first record
    names = [("%03d" % (number % 1000)) * 80 for number in range(60)]
    record = b"\x16\3\1\x40\0"
    forms = {
        "records of a byte": b"".join(b"\x16\3\1\0\1" + body[i : i + 1] for i in range(len(body))),
        "empty records": b"\x16\3\1\0\0" * 20000,
        "long ALPN": client_hello(names),
        "64 kB that are announced": record + b"\1\0\xff\xff\3\3" + bytes(16378) + (record + bytes(16384)) * 4,
        "16 MiB that are announced": record + b"\1\xff\xff\xff" + bytes(16380) + (record + bytes(16384)) * 64,
        "alerts": b"\x15\3\1\0\2\1\0" * 10000,
        "garbage": bytes(range(256)) * 256,
    }

    def work(form):
        with Tcp(target.port, ELSEWHERE, timeout=1) as one:
            one.send(forms[form])
            data, ended = one.receive(0.5)
        what = "answered" if data[:1] == b"\x16" else "refused" if data else "-"
        return "%s: %s%s" % (form, what, ", closed" if ended else "")

    texts, failures = together(work, forms), []
    if shutil.which("openssl"):
        command = ["openssl", "s_client", "-connect", "127.0.0.1:%d" % target.port, "-tls1_2", "-alpn", "h2"]
        pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        with subprocess.Popen(command, **pipes) as client:
            time.sleep(0.5)
            try:
                said = client.communicate(b"R\n" * 50, timeout=2)[0]
            except subprocess.TimeoutExpired:
                client.kill()
                said = client.communicate()[0]
        refused = b"no renegotiation" in said or b"unexpected" in said or said.count(b"RENEGOTIATING") <= 1
        texts.append("renegotiation " + ("refused" if refused else "done"))
        failures = [] if refused else ["renegotiation is taken"]
    return Outcome(", ".join(texts), failures=failures)


@row(flags=BUDGETS, budget_mib=32, seconds=4)
def half_closed(target):
    """Sockets that are closed for sending after half a preface, a request or a call, and never read."""
    more_files(5000)
    call = PREFACE + settings((INITIAL_WINDOW_SIZE, 0))
    call += frame(HEADERS, END_HEADERS, 1, header_block(CLASSIFY)) + frame(DATA, END_STREAM, 1, message(QUESTION))
    forms = [b"", call[:10], call[:24], call, call[:-10], post("/v1/models", method="GET")]
    forms.append(post("/v1/classify", b"{", length=9))
    held = []
    for number in range(3000):
        if target.time_left() < 0.3:
            break
        port = target.port if number % 7 < 5 else target.http_port
        with contextlib.suppress(Closed, OSError):
            held.append(Tcp(port, ELSEWHERE, receive_buffer=4096, timeout=0.5))
            held[-1].send(forms[number % 7])
            held[-1].socket.shutdown(socket.SHUT_WR)
    target.settled(0.5)
    return Outcome("%d half-closed" % len(held))
