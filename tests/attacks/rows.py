"""Attacks that are a few lines each, as rows of one table: budgets, places and floods, and tricks with frames, windows,
bodies and handshakes.

    rows.py SRU_SERVER MODEL_REPOSITORY ROW
"""

import collections
import contextlib
import gzip
import hashlib
import itertools
import json
import os
import re
import resource
import shutil
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import time

from control_floods import Slice
from flood import Flood
from harness import BUDGET_MIB, BUDGETS, CLASSIFY, ENCODE, HEALTH, LIST_MODELS, MIB, QUESTION, Outcome, TlsFiles, run
from http2 import ACK, CONTINUATION, DATA, DEFAULT_WINDOW, END_HEADERS, END_STREAM, GOAWAY, HEADERS, INITIAL_WINDOW_SIZE
from http2 import PING, PRIORITY, PUSH_PROMISE, SETTINGS, Closed, Connection, Traffic, bind, field, frame, header_block
from http2 import fields, literal, message, reset, settings, window_update
from unread_answers import token_vectors

SRU, OPEN = "/sru.v1.InferenceService/", "/inference.GRPCInferenceService/"
GENERATE, SCORE, STREAM, INFER = SRU + "Generate", SRU + "Score", SRU + "EncodeStream", OPEN + "ModelInfer"
WATCH = "/grpc.health.v1.Health/Watch"
ELSEWHERE = "127.0.0.2"  # the attacker's address where it has another one than the other callers
TOKEN, OTHER_TOKEN = "kR3vX9mQ2bT7wZ5n", "pL8sD1fG4hJ6kA0c"
VOCABULARY = 113  # of war_and_peace
SECRET = "aSecretOfAnotherProgram"
MOST = (1 << 31) - 1
HANDSHAKES_MIB = 512 * 46 // 1024
SHORT_S = 1  # what a short text or Score call may take beside the longest ones; on a machine that others use, one of ten may take longer
ROWS = {}


def row(**arguments):
    """Adds a function to the rows; the arguments are those of harness.run, and `credentials`: tokens, tls."""

    def add(attack):
        ROWS[attack.__name__] = (attack, arguments)
        return attack

    return add


class Tcp:
    """A connection for bytes that are no HTTP/2."""

    def __init__(self, port, source="127.0.0.1", receive_buffer=None, timeout=3.0):
        self.socket = socket.socket()
        if receive_buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(timeout)
        try:
            bind(self.socket, source)
            self.socket.connect(("127.0.0.1", port))
        except OSError as error:
            self.socket.close()
            raise Closed(str(error)) from error

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, data):
        """Sends as much as the server takes; returns whether it took all."""
        view = memoryview(data)
        while view:
            try:
                sent = self.socket.send(view[: 1 << 18])
            except OSError:
                return False
            Traffic.sent += sent
            view = view[sent:]
        return True

    def receive(self, seconds=3.0, enough=lambda data: False):
        """What comes until the connection ends, time is up or it is enough, and whether it ended."""
        data, deadline = b"", time.monotonic() + seconds
        while not enough(data):
            self.socket.settimeout(max(0.001, deadline - time.monotonic()))
            try:
                more = self.socket.recv(1 << 16)
            except socket.timeout:
                return data, False
            except OSError:
                return data, True
            if not more:
                return data, True
            data += more
        return data, False


def post(path, body=b"", kind="application/json", headers=(), length=None, method="POST"):
    """A request of HTTP/1.1; `length` announces another one than the body's."""
    lines = ["%s %s HTTP/1.1" % (method, path), "Host: localhost", "Content-Type: " + kind, *headers]
    lines.append("Content-Length: %d" % (len(body) if length is None else length))
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def ask(port, request, seconds=3.0, source="127.0.0.1"):
    """The status of the answer to one request, 0 if there is none."""
    try:
        with Tcp(port, source) as one:
            one.send(request)
            data, _ = one.receive(seconds, lambda data: data[:9].startswith(b"HTTP/1.1 ") and len(data) >= 12)
    except Closed:
        return 0
    return int(data[9:12]) if data.startswith(b"HTTP/1.1 ") and len(data) >= 12 else 0


def counts(codes):
    return ", ".join("%s: %d" % one for one in sorted((str(code), codes.count(code)) for code in set(codes))) or "-"


def only(codes, *allowed):
    wrong = [code for code in codes if code not in allowed]
    return ["answered with " + counts(wrong)] if wrong else []


def more_files(count):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, count)), hard))


def together(work, arguments):
    """Calls `work` in a thread for each argument; returns what the calls returned, in the order in which they ended."""
    found = []

    def one(argument):
        try:
            found.append(work(argument))
        except Closed:
            found.append("CLOSED")

    threads = [threading.Thread(target=one, args=(argument,)) for argument in arguments]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def held_up(codes, times):
    """What is wrong with the short calls, which got these codes after these times."""
    late = sum(code != "OK" or taken > SHORT_S for code, taken in zip(codes, times))
    return ["%d of %d short calls failed or took over %d s" % (late, len(times), SHORT_S)] if late * 10 > len(times) else []


def sequence(text):
    return field(1, text.encode())


def generate(tokens, samples=1, *more):
    return b"".join([field(3, sequence("It was")), field(6, tokens), field(10, samples), *more])


# Strangers. Most servers here want tokens, which an attack does not have.


@row(credentials="tokens", flags=BUDGETS, budget_mib=64, seconds=4)
def health_streams(target):
    """N1: streams of the health service, with and without their message, whose answers nobody takes."""
    opened = closed = 0
    held = []
    for number in range(110):
        if target.time_left() < 0.5:
            break
        connection = Connection(target.port, window=0, receive_buffer=4096, source=ELSEWHERE)
        held.append(connection)
        block = header_block(WATCH if number % 2 else HEALTH)
        streams = [connection.next_stream() for _ in range(512)]
        parts = [frame(HEADERS, END_HEADERS, stream, block) for stream in streams]
        if number % 4 > 1:
            parts += [frame(DATA, END_STREAM, stream, message(b"")) for stream in streams]
        try:
            connection.send(b"".join(parts))
            connection.pump()
            opened += len(streams)
        except Closed:
            closed += 1
    target.settled(1)
    return Outcome("%d streams on %d connections, %d closed" % (opened, len(held), closed))


def client_hello(protocols=("h2",)):
    context = ssl.create_default_context()
    context.set_alpn_protocols(list(protocols))
    out = ssl.MemoryBIO()
    try:
        context.wrap_bio(ssl.MemoryBIO(), out, server_hostname="localhost").do_handshake()
    except ssl.SSLWantReadError:
        pass
    return out.read()


def begin_handshakes(target, port):
    """TLS handshakes that do not go on after the first message."""
    more_files(5000)
    hello, held = client_hello(), []
    while len(held) < 4000 and target.time_left() > 0.5:
        try:
            held.append(Tcp(port, ELSEWHERE, timeout=0.5))
            held[-1].send(hello)
        except Closed:
            break
        if len(held) % 500 == 0:
            time.sleep(0.4)  # it comes in waves, since the server's time for handshakes is not what counts
    target.settled(0.3)
    return Outcome("%d handshakes begun" % len(held))


@row(credentials="tls", flags=BUDGETS, budget_mib=HANDSHAKES_MIB, seconds=6)
def half_handshakes(target):
    """N2: half handshakes, on the port of gRPC."""
    return begin_handshakes(target, target.port)


@row(credentials="tls", flags=[*BUDGETS, "--http_listen=127.0.0.1:0"], budget_mib=HANDSHAKES_MIB, seconds=6)
def half_handshakes_http(target):
    """N2: the same on a port of HTTP/1.1."""
    return begin_handshakes(target, target.http_port)


@row(credentials="tls", flags=BUDGETS, budget_mib=HANDSHAKES_MIB, seconds=3)
def handshake_flood(target):
    """First messages of TLS handshakes as fast as the server takes them: it signs for each."""
    more_files(5000)
    hello, held, begun = client_hello(), collections.deque(), 0
    while target.time_left() > 0:
        try:
            held.append(Tcp(target.port, ELSEWHERE, timeout=0.5))
            held[-1].socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            begun += held[-1].send(hello)
        except Closed:
            pass
        if len(held) > 600:
            held.popleft().socket.close()
    return Outcome("%d handshakes begun" % begun)


@row(flags=BUDGETS, budget_mib=10000 * 4 // 1024, seconds=6)
def silent_connections(target):
    """N3: more connections than the server has places for, which say nothing."""
    more_files(13000)
    held, probes = [], []
    while len(held) < 12000 and target.time_left() > 0.5:
        try:
            held.append(Tcp(target.port, ELSEWHERE, timeout=0.5))
        except Closed:
            continue
        if len(held) % 500 == 0:
            start = time.monotonic()
            target.page("/readyz")
            probes.append(time.monotonic() - start)
            time.sleep(0.02)  # it is the places that are to be taken, not the processor
    slowest = max(probes, default=99)
    failures = ["/readyz took %.1f s" % slowest] if slowest > 2 else []
    return Outcome("%d connections, slowest /readyz %.0f ms" % (len(held), 1e3 * slowest), failures=failures)


@row(credentials="tokens", flags=BUDGETS, budget_mib=64, seconds=4)
def binary_headers(target):
    """Headers whose name ends with -bin and whose value is nothing but commas, each of which ends one more value."""
    large = literal("a" * 2028 + "-bin", "," * 2032, indexed=True)
    calls = closed = 0
    while target.time_left() > 0.5:
        try:
            with Connection(target.port, source=ELSEWHERE) as connection:
                blocks = [header_block(HEALTH) + large] + [header_block(HEALTH) + b"\xbe"] * 200
                connection.send(b"".join(frame(HEADERS, END_HEADERS, connection.next_stream(), one) for one in blocks))
                calls += len(blocks)
                connection.pump(0.3)
        except Closed:
            closed += 1
    return Outcome("%d calls, %d connections closed" % (calls, closed))


@row(credentials="tokens", flags=["--max_connections=64"], seconds=5)
def open_calls(target):
    """N3: connections that each have an open call, which needs no token; others must have places."""
    held = []
    while target.time_left() > 1 and len(held) < 800:
        with contextlib.suppress(Closed):
            held.append(Connection(target.port, source=ELSEWHERE))
            held[-1].start((HEALTH, WATCH, SRU + "Classify")[len(held) % 3])
            held[-1].pump(0.005)
    return Outcome("%d connections with a call" % len(held))


@row(credentials="tokens", flags=BUDGETS, budget_mib=64, seconds=5)
def open_messages(target):
    """N1: parts of messages, of calls that need no token, and of bodies that may have one, from six addresses; others must have room."""
    held = []
    for address in range(2, 8):
        for _ in range(4):
            with contextlib.suppress(Closed):
                held.append(Connection(target.port, source="127.0.0.%d" % address, timeout=0.3))
                held[-1].send_body(held[-1].start(HEALTH), message(b"\n" + b"x" * 3500000, length=4000000), end=False,
                                   deadline=min(target.deadline, time.monotonic() + 0.3))  # fmt: skip
                body = held[-1].start("/translate", content_type="application/json")
                held[-1].send_body(body, b" " * 3500000, end=False, deadline=min(target.deadline, time.monotonic() + 0.3))
                streams = [held[-1].next_stream() for _ in range(200)]
                held[-1].send(b"".join(frame(HEADERS, END_HEADERS, one, header_block(WATCH)) for one in streams))
    codes = []
    for _ in range(5):
        with Connection(target.port) as connection:
            long = b"".join(field(3, sequence("w " * 500)) for _ in range(60))
            codes.append(connection.call(CLASSIFY, long, [("authorization", "Bearer " + TOKEN)]).code)
    return Outcome("%d connections; others' messages of 60 kB: %s" % (len(held), counts(codes)), failures=only(codes, "OK"))


def stray_streams(target, addresses, connections):
    """Streams of HTTP/2 that are no calls of gRPC, without a token and without their end; each other connection takes no answer."""
    held, streams, reset = [], 0, 0
    kinds = ("/v1/classify", "application/json"), ("/nothing", "text/plain"), ("/healthz", "text/plain"), (CLASSIFY, "application/grpc-web")
    blocks = [header_block(path, content_type=kind) for path, kind in kinds]
    for number in range(connections):
        with contextlib.suppress(Closed):
            source = addresses[number % len(addresses)]
            one = Connection(target.http_port, window=0 if number % 2 else None, receive_buffer=4096, source=source, timeout=0.3)
            held.append(one)
            one.send(b"".join(frame(HEADERS, END_HEADERS, one.next_stream(), block) for block in blocks * 63))
            streams += 4 * 63
            one.pump(0.01)
    while target.time_left() > 1:
        for one in held[::2]:
            with contextlib.suppress(Closed):
                one.pump()
        time.sleep(0.05)
    reset = sum(len(one.resets) for one in held)
    with Connection(target.http_port, source="127.0.0.9") as other:
        code = other.call(HEALTH).code
    used = target.metric("sru_receive_memory_bytes") / 1e6
    failures = [] if used < 10 else ["strangers held %.0f MB of 64" % used]
    return Outcome("%d streams on %d connections, %d reset, %.1f MB held" % (streams, len(held), reset, used), failures=failures + only([code], "OK"))


@row(credentials="tokens", flags=BUDGETS, budget_mib=64, seconds=5)
def stray_requests(target):
    """Requests over HTTP/2 that are refused or open to all, from two addresses; those of others must be answered."""
    return stray_streams(target, (ELSEWHERE, "127.0.0.3"), 62)


@row(credentials="tokens", flags=BUDGETS, budget_mib=64, seconds=5)
def stray_neighbours(target):
    """The same from the address of the other callers, as behind a balancer."""
    return stray_streams(target, ("127.0.0.1",), 28)


@row(credentials="tokens", flags=BUDGETS, budget_mib=16, seconds=7)
def open_bodies(target):
    """Bodies of 4 MB without a token, or with one that is none, to what needs neither."""
    paths = "/healthz", "/readyz", "/grpc.health.v1.Health/Check", WATCH, "/languages", "/frontend/settings"
    held = []
    for number, method in itertools.product(range(len(paths)), ("POST", "GET")):
        kind = "application/json" if number > 1 else "text/plain"
        with contextlib.suppress(Closed):
            held.append(Tcp(target.http_port, ELSEWHERE, timeout=0.2))
            held[-1].send(post(paths[number], b" " * 3900000, kind, length=3900001, method=method))
        with contextlib.suppress(Closed):
            one = Connection(target.http_port, source=ELSEWHERE, timeout=0.2)
            held.append(one)
            stream = one.start(paths[number], [("authorization", "x")], content_type=kind)
            one.send_body(stream, b" " * 3900000, end=False, deadline=time.monotonic() + 0.2)
    bodies, received = target.metric("sru_http_body_bytes") / 1e6, target.metric("sru_receive_memory_bytes") / 1e6
    failures = [] if bodies < 1 and received < 3 else ["bodies that nobody reads are kept"]
    return Outcome("%d bodies, %.1f and %.1f MB held" % (len(held), bodies, received), failures=failures)


@row(credentials="tokens", seconds=4)
def pipelined_refusals(target):
    """Requests of 27 bytes without a token, one after the other; each is refused in a turn of its own."""
    part = b"GET /v1/models HTTP/1.0\r\n\r\n".replace(b"1.0", b"1.1\r\nHost: a") * 400

    def flood(_):
        sent = 0
        with Tcp(target.http_port, ELSEWHERE, timeout=0.5) as one:
            one.socket.setblocking(False)
            rest = b""
            while target.time_left() > 0:
                rest = rest or part
                with contextlib.suppress(BlockingIOError):
                    taken = one.socket.send(rest)
                    rest, sent = rest[taken:], sent + taken
                with contextlib.suppress(BlockingIOError):
                    one.socket.recv(1 << 20)
        Traffic.sent += sent
        return sent // (len(part) // 400)

    requests = sum(together(flood, range(4)))
    page = target.page("/metrics")
    turns = dict(re.findall(r'sru_door_long_turn_seconds_bucket\{le="([^"]+)"\} (\d+)', page))
    long = int(turns["+Inf"]) - int(turns["0.001"])
    failures = ["%d turns took more than a millisecond" % long] if long > requests // 1000 + 20 else []
    return Outcome("%d requests, %d turns of more than 1 ms" % (requests, long), failures=failures)


@row(seconds=6)
def reset_churn(target):
    """Streams that are opened and reset, fewer on a connection than are a flood, from the others' address."""
    block = header_block(CLASSIFY)

    def churn(_):
        count = 0
        while target.time_left() > 0:
            with contextlib.suppress(Closed), Connection(target.port) as one:
                streams = [one.next_stream() for _ in range(4500)]
                one.send(b"".join(frame(HEADERS, END_HEADERS, stream, block) + reset(stream) for stream in streams))
                count += len(streams)
        return count

    return Outcome("%d streams reset" % sum(together(churn, range(4))))


@row(credentials="few files", seconds=9)
def few_files(target):
    """Connections that say nothing, to a server with few descriptors; calls on old connections of others must go on."""
    more_files(1000)
    held, count = collections.deque(), 0
    while target.time_left() > 0:
        with contextlib.suppress(Closed):
            held.append(Tcp(target.port, ELSEWHERE, timeout=0.5))
            count += 1
        if len(held) > 400:
            held.popleft().socket.close()
    return Outcome("%d connections" % count)


@row(flags=BUDGETS, budget_mib=64, seconds=8)
def slow_texts(target):
    """Texts whose answers are taken a few bytes a second, from four addresses; that of a fifth must have a place."""
    held = []
    for number in range(32):
        one = Connection(target.port, window=0, source="127.0.0.%d" % (number % 4 + 2))
        held.append((one, [one.start(GENERATE, body=message(generate(4000)), end=True) for _ in range(32)]))
        one.pump(0.01)
    codes = []
    while target.time_left() > 1:
        for one, streams in held:
            with contextlib.suppress(Closed):
                one.send(b"".join(window_update(stream, 60) for stream in streams))
                one.pump()
        with Connection(target.port) as other:
            codes.append(other.call(GENERATE, generate(4)).code)
        time.sleep(0.3)
    return Outcome("1024 texts; another's: " + counts(codes), failures=only(codes[-3:], "OK"))


@row(credentials="tokens", seconds=4)
def watches(target):
    """All places of Watch, from one address; that of another must have one."""
    held = []
    for _ in range(4):
        held.append(Connection(target.port, source=ELSEWHERE))
        streams = [held[-1].next_stream() for _ in range(500)]
        held[-1].send(b"".join(
            frame(HEADERS, END_HEADERS, one, header_block(WATCH)) + frame(DATA, END_STREAM, one, message(b"")) for one in streams
        ))  # fmt: skip
        held[-1].pump(0.2)
    with Connection(target.port) as connection:
        code = connection.finish(connection.start(WATCH, body=message(b""), end=True), 1).code
    return Outcome("2000 calls of Watch; another's: " + code, failures=only([code], "TIMEOUT"))


@row(credentials="tokens", flags=BUDGETS, budget_mib=BUDGET_MIB, seconds=5)
def unproven_bodies(target):
    """Bodies whose token is within them, and wrong: together they may have an eighth of the memory of calls."""
    body = b'{"q":[%s],"source":"en","target":"de","api_key":"wrong"}' % b",".join([b'""'] * 60000)
    held = []

    def stranger(_):
        codes = []
        while target.time_left() > 1.5:
            codes.append(ask(target.http_port, post("/translate", body), 10, ELSEWHERE))
        return codes

    def watch(_):
        while target.time_left() > 1.5:
            held.append(target.metric("sru_inflight_bytes"))
        return []

    codes = list(itertools.chain(*together(lambda work: work(0), [stranger] * 8 + [watch])))
    failures = only(codes, 403, 429, 503)
    if max(held) > 64e6 / 8 + 1e6:
        failures.append("calls' memory held %.0f MB of 64" % (max(held) / 1e6))
    return Outcome("%d bodies: %s; at most %.0f MB of 64 in flight" % (len(codes), counts(codes), max(held) / 1e6), failures=failures)


@row(credentials="tokens", flags=[*BUDGETS, "--credentials_poll_interval_s=0.1"], seconds=6)
def free_tokens(target):
    """Texts that go on from a state, without a prompt, by a caller who has no tokens left."""
    with open(os.environ["SRU_ATTACKS_TOKENS"], "w", encoding="ascii") as file:
        file.write("team %s\nothers %s tokens_per_second=1 burst=20\n" % (TOKEN, OTHER_TOKEN))
    target.settled(1)
    headers = [("authorization", "Bearer " + OTHER_TOKEN)]
    with Connection(target.port) as connection:
        state = state_of(connection, headers)
        codes = [connection.call(GENERATE, field(4, state) + field(6, 300), headers).code for _ in range(4)]
    failures = only(codes, "OK", "RESOURCE_EXHAUSTED") + (["more than one was answered"] if codes.count("OK") > 1 else [])
    return Outcome("texts of 300 tokens: " + counts(codes), failures=failures)


@row(credentials="tokens", flags=BUDGETS, budget_mib=BUDGET_MIB, seconds=5)
def many_tags(target):
    """A million names of tags in a request of DeepL's dialect."""
    tags = ",".join("%06x" % number for number in range(580000))
    body = ("text=a&target_lang=de&tag_handling=xml&splitting_tags=" + tags).encode()
    request = post("/v2/translate", body, "application/x-www-form-urlencoded", ["Authorization: DeepL-Auth-Key " + TOKEN])
    codes = together(lambda _: ask(target.http_port, request, 4, ELSEWHERE), range(4))
    return Outcome("answers " + counts(codes), failures=only(codes, 400, 429, 503))


@row(flags=[*BUDGETS, "--allow_compression"], budget_mib=BUDGET_MIB, seconds=4)
def packed_messages(target):
    """1: messages that unpack to 3.9 MB, twelve at once, on a server that takes such."""
    packed = gzip.compress(bytes(3900000), 9)
    data = b"\x01" + struct.pack(">I", len(packed)) + packed
    block = header_block(CLASSIFY, [("grpc-encoding", "gzip")])

    def work(_):
        sent = 0
        while target.time_left() > 0.2:
            with contextlib.suppress(Closed), Connection(target.port, source=ELSEWHERE) as connection:
                streams = [connection.next_stream() for _ in range(12)]
                connection.send(b"".join(
                    frame(HEADERS, END_HEADERS, stream, block) + frame(DATA, END_STREAM, stream, data) for stream in streams
                ))  # fmt: skip
                sent += len(streams)
                connection.pump(0.05)
        return sent

    return Outcome("%d messages" % sum(together(work, range(2))))


@row(flags=BUDGETS, budget_mib=64, seconds=4)
def long_names(target):
    """N4: names of 4 MB, to which the errors go to clients that do not read."""
    held, closed = [], 0
    body = message(field(1, b"x" * 4000000))
    for _ in range(40):
        try:
            connection = Connection(target.port, window=0, receive_buffer=4096, source=ELSEWHERE)
            held.append(connection)
            connection.send_body(connection.start(CLASSIFY), body, deadline=target.deadline)
        except Closed:
            closed += 1
    target.settled(0.5)
    return Outcome("%d calls, %d connections closed" % (len(held), closed))


@row(flags=BUDGETS, budget_mib=BUDGET_MIB, seconds=4)
def unread_lookups(target):
    """N5: look-ups whose answers nobody takes, from 200 connections."""
    calls, held, closed = 0, [], 0
    config = message(field(1, b"trec"))
    for _ in range(200):
        if target.time_left() < 0.7:
            break
        connection = Connection(target.port, window=0, receive_buffer=4096, source=ELSEWHERE)
        held.append(connection)
        try:
            for number in range(200):
                connection.start(
                    *((LIST_MODELS, (), message(b"")) if number % 2 else (OPEN + "ModelConfig", (), config)), end=True
                )
                calls += 1
            connection.pump()
        except Closed:
            closed += 1
    target.settled(0.6)
    return Outcome("%d calls on %d connections, %d closed" % (calls, len(held), closed))


@row(flags=BUDGETS, budget_mib=20, seconds=4)
def unread_pages(target):
    """Pages of HTTP/1.1, of 100 kB each, that nobody takes: they have an eighth of --max_inflight_mb, and sockets have the rest."""
    more_files(4000)
    request, held = post("/openapi.json", method="GET"), []
    while len(held) < 2000 and target.time_left() > 0.5:
        try:
            held.append(Tcp(target.http_port, ELSEWHERE, receive_buffer=4096, timeout=0.5))
        except Closed:
            break
        held[-1].send(request)
    target.settled(0.4)
    return Outcome("%d pages, %.0f MB in flight" % (len(held), target.metric("sru_inflight_bytes") / 1e6))


@row(flags=BUDGETS, budget_mib=64, seconds=3)
def crumbs(target):
    """N15: messages that arrive a byte a frame."""

    def begin(connection):
        connection.left = 64000
        connection.stream = connection.start(CLASSIFY, body=message(b"", length=4000000))

    def part(connection):
        connection.left -= 1000
        return frame(DATA, 0, connection.stream, b"x") * 1000 if connection.left > 0 else None

    return Flood(target, 8, 40 * MIB, begin, part).outcome()


@row(flags=BUDGETS, budget_mib=16, seconds=4)
def idle_streams(target):
    """N7: streams that say nothing, from one address; those of others must have places."""
    held = []
    for _ in range(12):
        connection = Connection(target.port, source=ELSEWHERE)
        held.append(connection)
        for _ in range(200):
            connection.start(STREAM)
        connection.pump(0.02)
    codes = []
    for _ in range(10):
        with Connection(target.port) as connection:
            codes.append(connection.call(GENERATE, generate(4)).code)
            time.sleep(0.05)
    refused = sum(len(connection.resets) for connection in held)
    return Outcome("2400 streams, %d reset; others' texts %s" % (refused, counts(codes)), failures=only(codes, "OK"))


@row(credentials="tls", flags=["--max_connection_age_s=1", "--max_connection_age_grace_s=1"], seconds=6)
def an_old_http_connection(target):
    """N8: a connection of HTTP/1.1 that goes on calling must end at its age."""
    context = ssl._create_unverified_context()
    calls, start = 0, time.monotonic()
    with Tcp(target.http_port) as one:
        one.socket = context.wrap_socket(one.socket)
        while target.time_left() > 0.5:
            if not one.send(post("/v1/models", method="GET")):
                break
            data, ended = one.receive(1, lambda data: b"\r\n\r\n" in data)
            calls += data.startswith(b"HTTP/1.1 200")
            if ended or b"onnection: close" in data:
                break
            time.sleep(0.05)
    taken = time.monotonic() - start
    return Outcome("%d calls in %.1f s" % (calls, taken), failures=["it was not ended"] if taken > 4 else [])


@row(credentials="tokens", seconds=6)
def a_removed_token(target):
    """N9: a stream whose token is taken away must end."""
    headers = [("authorization", "Bearer " + OTHER_TOKEN)]
    with Connection(target.port) as connection:
        stream = connection.start(STREAM, headers)
        connection.pump(0.3)
        with open(os.environ["SRU_ATTACKS_TOKENS"], "w", encoding="ascii") as file:
            file.write("team %s\n" % TOKEN)
        codes = [connection.finish(stream, 4).code, connection.call(CLASSIFY, QUESTION, headers).code]
    return Outcome("the stream and a later call got " + counts(codes), failures=only(codes, "UNAUTHENTICATED"))


def drain_with_texts(server, outcome):
    long = b'{"model": "war_and_peace", "prompt": %s, "%s": 4000, "stream": true}'
    with Connection(server.port, window=0, receive_buffer=4096) as call, Tcp(
        server.http_port, receive_buffer=4096
    ) as one, Tcp(server.http_port, receive_buffer=4096) as other:
        call.pump(0.1)
        call.start(GENERATE, body=message(generate(4000, 8)), end=True)
        one.send(post("/v1/generate", b'{"prompt": {"text": "It was"}, "max_new_tokens": 4000, "num_samples": 8}'))
        other.send(post("/v1/completions", long % (b'"It was"', b"max_tokens")))
        time.sleep(0.5)
        start = time.monotonic()
        code = server.stop(timeout=40)
    taken = time.monotonic() - start
    outcome.text = "exit code %s after %.1f s of 20" % (code, taken)
    return [outcome.text + server.log()[-300:]] if code != 0 or taken > 10 else []


@row(after=drain_with_texts, latency=False, seconds=0.2, flags=["--drain_timeout_s=20"])
def drain_unread_texts(target):
    """N9: a drain with texts that nobody reads, over each protocol."""
    return Outcome()


@row(flags=BUDGETS, budget_mib=64, seconds=5)
def short_bodies(target):
    """N12: bodies of HTTP/1.1 that lack their last byte; those of others must have room."""
    request = post("/v1/classify", b" " * 3400000, length=3400001)
    held, codes = [], []
    for _ in range(42):
        try:
            one = Tcp(target.http_port, ELSEWHERE, timeout=0.05)
            held.append(one)
            one.send(request)
        except Closed:
            pass
    body = b'{"model": "trec", "sequences": [{"text": "Who wrote it ?"}]}'
    for _ in range(20):
        codes.append(ask(target.http_port, post("/v1/classify", body)))
        time.sleep(0.05)
    return Outcome("%d bodies; others got %s" % (len(held), counts(codes)), failures=only(codes, 200))


@row(flags=(*BUDGETS, "--caller_limits=highest_priority=high"), budget_mib=BUDGET_MIB, seconds=6)
def greedy_texts(target):
    """N13: eight calls with 64 long texts each, which are read as they come, and short texts of the same priority and address."""
    greedy = message(generate(4000, 64, field(7, 4000)))  # 7 = the least number of tokens
    calls, ended = [], threading.Event()

    def read(connection):
        while not ended.is_set():
            with contextlib.suppress(socket.timeout):
                connection.socket.recv(1 << 18)

    for _ in range(8):
        calls.append(Connection(target.port, window=MOST, timeout=0.1))
        calls[-1].send(window_update(0, MOST - DEFAULT_WINDOW))
        calls[-1].start(GENERATE, body=greedy, end=True)
    readers = [threading.Thread(target=read, args=(connection,)) for connection in calls]
    for reader in readers:
        reader.start()
    target.settled(0.5)
    times, codes = [], []
    while target.time_left() > 1 and len(times) < 20:
        with Connection(target.port) as connection:
            start = time.monotonic()
            codes.append(connection.call(GENERATE, generate(8), timeout=10).code)
            times.append(time.monotonic() - start)
    writing = target.metric("sru_requests_in_flight")
    ended.set()
    for reader in readers:
        reader.join()
    text = "%d short texts took at most %.2f s: %s" % (len(times), max(times), counts(codes))
    failures = only(codes, "OK") + held_up(codes, times)
    if writing < len(calls):
        failures.append("only %d of the long texts were being written" % writing)
    return Outcome(text, failures=failures)


@row(flags=BUDGETS, budget_mib=BUDGET_MIB, seconds=4)
def greedy_scores(target):
    """N13: the longest Score calls beside short ones of the same priority, which have 3 s."""
    long = message(b"".join(field(3, sequence("it was " * 280)) for _ in range(30)) + field(8, 2))

    def greedy(_):
        codes = []
        with Connection(target.port, source=ELSEWHERE) as connection:
            while target.time_left() > 0.3:
                stream = connection.start(SCORE)
                connection.send_body(stream, long)
                codes.append(connection.finish(stream).code)
        return codes

    def short(_):
        codes = []
        with Connection(target.port) as connection:
            while target.time_left() > 0.3:
                start = time.monotonic()
                codes.append(connection.call(SCORE, field(3, sequence("It was")), [("grpc-timeout", "3S")]).code)
                times.append(time.monotonic() - start)
                time.sleep(0.02)
        return codes

    times = []
    found = together(lambda work: (work.__name__, work(0)), [greedy, greedy, short])
    codes = {
        name: list(itertools.chain(*[codes for one, codes in found if one == name])) for name in ("greedy", "short")
    }
    text = "long: %s, short: %s, at most %.2f s" % (counts(codes["greedy"]), counts(codes["short"]), max(times))
    return Outcome(text, failures=held_up(codes["short"], times))


@row(flags=BUDGETS, budget_mib=BUDGET_MIB, seconds=4)
def hoarded_memory(target):
    """Short requests for long answers, which nobody takes, until the memory of calls has no place for even a small one; another
    caller's, of some 3 MB, must have a place."""
    codes, opened = [], 0
    with Connection(target.port, source=ELSEWHERE, window=0) as connection:
        for samples in (5, 1):
            for _ in range(12):
                connection.start(GENERATE, body=message(generate(4000, samples, field(12, VOCABULARY), field(16, 1))), end=True)
                opened += 1
        for _ in range(60):
            connection.start(GENERATE, body=message(generate(4000, 4)), end=True)
            opened += 1
        target.settled(0.5)
        held = target.metric("sru_inflight_bytes") / MIB
        while target.time_left() > 0.5:
            with Connection(target.port) as other:
                codes.append(other.call(GENERATE, generate(4, 1, field(12, VOCABULARY), field(16, 1))).code)
    failures = only(codes, "OK")
    if held < 0.7 * 64 * 10**6 / MIB:
        failures.append("the attack held only %.0f MiB" % held)
    return Outcome("%d texts held %.0f MiB; another caller's: %s" % (opened, held, counts(codes)), failures=failures)


@row(credentials="tokens", flags=BUDGETS, budget_mib=64, seconds=5)
def many_addresses(target):
    """Streams of one token from eight addresses; another token's texts must have places."""
    held, headers = [], [("authorization", "Bearer " + OTHER_TOKEN)]
    for address in range(2, 10):
        connection = Connection(target.port, source="127.0.0.%d" % address)
        held.append(connection)
        for _ in range(200):
            connection.start(GENERATE, headers, message(generate(4000)), end=True)
        connection.pump(0.02)
    codes = []
    for _ in range(10):
        with Connection(target.port) as connection:
            code = connection.call(GENERATE, generate(4), [("authorization", "Bearer " + TOKEN)]).code
        codes.append(code)
        time.sleep(0.05)
    return Outcome("1600 texts; another's: " + counts(codes), failures=only(codes, "OK"))


def state_of(connection, headers=()):
    """The state after a text of one token."""
    answer = connection.call(GENERATE, generate(1, 1, field(13, 1)), headers)
    found = [value for number, value, _ in fields(answer.body) if number == 9]
    if not found:
        raise RuntimeError("no state: %r" % answer)
    return found[0]


def forged(state):
    """States that nobody was given, as models/state_codec.h says, with a plain digest that agrees with them."""
    def sign(data):
        return data[:56] + hashlib.sha256(data[:56] + data[72:]).digest()[:16] + data[72:]

    def put(offset, data):
        return sign(state[:offset] + data + state[offset + len(data) :])

    for offset in 84, 88, 92:  # generated tokens, tokens of prompts, bytes of text: so many are not there
        yield from (put(offset, struct.pack("<I", count)) for count in (1 << 16, MOST, (1 << 32) - 1))
    yield put(72, struct.pack("<Q", MOST << 32))
    yield put(72, struct.pack("<q", -1))
    # The text of one token has counted none, so all that follows the values is this test's.
    for counted, prompt, text in (VOCABULARY, VOCABULARY, 2000), (256, 0, 0), (100000, 0, 0), (0, 100000, 0), (0, 0, 800000):
        tail = b"".join(struct.pack("<ii", token, MOST) for token in range(counted))
        tail += b"".join(struct.pack("<i", token) for token in range(prompt)) + b"\xe2" * text
        yield sign(state[:84] + struct.pack("<III", counted, prompt, text) + state[96:] + tail)
    yield sign(state[:-4] + b"\x00\x00\xc0\x7f")  # not a number
    yield from (state[:-1], state[:40], sign(state[: len(state) // 2]), sign(state + bytes(1 << 20)), b"SRUstate")


def send_states(target, taken):
    """Goes on from forged states, with 64 samples each; so many of them are to be taken."""
    with Connection(target.port) as connection:
        state = state_of(connection)
        own = connection.call(GENERATE, generate(2, 1, field(4, state))).code
    states = list(forged(state))

    def work(part):
        with Connection(target.port) as connection:
            requests = [field(4, one) + field(6, 20) + field(10, 64) for one in states[part::6]]
            return [connection.call(GENERATE, request).code for request in requests]

    codes = list(itertools.chain(*together(work, range(6))))
    failures = only(codes, "INVALID_ARGUMENT", "OK") + only([own], "OK")
    if codes.count("OK") != taken:
        failures.append("%d states were taken, expected %d" % (codes.count("OK"), taken))
    return Outcome("%d states: %s; its own: %s" % (len(states), counts(codes), own), failures=failures)


@row(flags=BUDGETS, budget_mib=BUDGET_MIB, seconds=6)
def forged_states(target):
    """N11: forged states whose digest agrees with them. One of them a text may have had: it is taken, within the budget."""
    return send_states(target, taken=1)


@row(credentials="state key", flags=BUDGETS, budget_mib=BUDGET_MIB, seconds=6)
def forged_signed_states(target):
    """N11: the same where states are signed: none is taken."""
    return send_states(target, taken=0)


def no_secret(server, outcome):
    return ["the log has the secret"] if SECRET in server.log() else []


@row(
    credentials="repository",
    flags=["--model_control=poll", "--poll_interval_s=0.2"],
    budget_mib=144,  # a language model and what its workers need
    after=no_secret,
    seconds=6,
)
def linked_files(target):
    """N14: models whose files are links out of the repository; only the one with a link within it is served."""
    repository = os.environ["SRU_ATTACKS_REPOSITORY"]
    outside = repository + ".outside"
    shutil.copytree(os.path.join(repository, "trec", "1"), os.path.join(outside, "1"))
    secret = os.path.join(outside, "secret")
    with open(secret, "w", encoding="ascii") as file:
        file.write(SECRET + "\n")
    links = {  # what the model is a copy of, the link in it, and where that leads
        "vocabulary": ("trec", "1/vocab.txt", os.path.join(outside, "1", "vocab.txt")),
        "climbing": ("trec", "1/vocab.txt", "../../../models.outside/1/vocab.txt"),
        "config": ("trec", "1/config.json", secret),
        "version": ("trec", "1", os.path.join(outside, "1")),
        "model": ("trec", "", outside),
        "within": ("war_and_peace", "1/config.json", "../../war_and_peace/1/config.json"),
    }
    for name, (copied, link, to) in links.items():
        path = os.path.join(repository, name, link).rstrip("/")
        if link.startswith("1/"):
            shutil.copytree(os.path.join(repository, copied, "1"), os.path.join(repository, name, "1"))
            os.remove(path)
        elif link:
            os.mkdir(os.path.join(repository, name))
        os.symlink(to, path)
    served, pages = set(), b""
    while "within" not in served and target.time_left() > 1:
        target.settled(0.5)
        with Connection(target.port) as connection:
            pages = connection.call(LIST_MODELS).body
            served = {name for name in links if connection.call(SRU + "GetModel", field(1, name.encode())).code == "OK"}
    failures = [] if served == {"within"} else ["served, of the linked: " + " ".join(sorted(served))]
    if SECRET.encode() in pages:
        failures.append("the list of models has the secret")
    return Outcome("served, of %d linked: %s" % (len(links), " ".join(sorted(served))), failures=failures)


@row(credentials="tokens", flags=["--prefix_cache_mb=16"], seconds=4)
def another_prompt(target):
    """N14b: prompts that begin as another caller's, which neither a counter nor a saved token may tell."""
    prompt = field(3, sequence("It was the best of times and the number of it is 314159. " * 8)) + field(6, 1) + field(10, 1)

    def hits(token):
        before = target.metric("sru_prefix_cache_hits_total")
        with Connection(target.port) as connection:
            code = connection.call(GENERATE, prompt, [("authorization", "Bearer " + token)]).code
        return code, target.metric("sru_prefix_cache_hits_total") - before

    first, again, guess = hits(TOKEN), hits(TOKEN), hits(OTHER_TOKEN)
    failures = only([first[0], again[0], guess[0]], "OK")
    if (first[1], again[1], guess[1]) != (0, 1, 0):
        failures.append("expected hits 0, 1 and 0")
    return Outcome("hits: %d, its own %d, another caller's %d" % (first[1], again[1], guess[1]), failures=failures)


def others_are_logged(server, outcome):
    lines = [line for line in server.log().splitlines() if "UNAUTHENTICATED" in line]
    own = sum("127.0.0.1:" in line for line in lines)
    outcome.text += "; %d lines, %d of the other's" % (len(lines), own)
    failures = [] if own >= 3 else ["only %d of the other caller's lines are in the log" % own]
    return failures + (["%d lines in the log" % len(lines)] if len(lines) > 500 else [])


@row(credentials="tokens", after=others_are_logged, seconds=4)
def drowned_log(target):
    """N16: wrong tokens as fast as possible; the wrong tokens of another address must be in the log."""
    def guess(_):
        tries = 0
        with Connection(target.port, source=ELSEWHERE) as connection:
            while target.time_left() > 0.3:
                connection.call(CLASSIFY, QUESTION, [("authorization", "Bearer guess%d" % tries)])
                tries += 1
        return tries

    def other(_):
        for number in range(5):
            with Connection(target.port) as connection:
                connection.call(CLASSIFY, QUESTION, [("authorization", "Bearer other%d" % number)])
            time.sleep(0.4)
        return 0

    return Outcome("%d guesses" % sum(together(lambda work: work(0), [guess, guess, other])))


@row(seconds=3)
def metrics_flood(target):
    """Pages and calls of the metrics port by other sites' pages and under their names."""
    evil = "Origin: http://evil.example", "Sec-Fetch-Site: cross-site"
    body = b'{"model": "trec", "sequences": [{"text": "a"}]}'
    named = post("/v1/classify", body).replace(b"Host: localhost", b"Host: evil.example")
    requests = [post(path, method="GET", headers=evil) for path in ("/metrics", "/", "/status.json", "/../etc/passwd")]
    requests += [post("/v1/classify", body, headers=evil), named, post("/v1/classify", method="OPTIONS", headers=evil)]

    def work(offset):
        codes = []
        for number in itertools.count(offset):
            if target.time_left() < 0:
                return codes
            codes.append((number % 7 < 4, ask(target.metrics_port, requests[number % 7])))

    codes = list(itertools.chain(*together(work, range(4))))
    called = [code for page, code in codes if not page]
    return Outcome(
        "%d requests, calls: %s" % (len(codes), counts(called)), failures=only(called, 400, 403, 404, 405, 421)
    )


# Callers.

METHODS = [
    SRU + name
    for name in "Classify Encode Score Generate EncodeStream Answer Translate Tag ListModels GetModel None".split()
]
METHODS += [
    OPEN + name for name in "ServerLive ModelInfer ModelStreamInfer RepositoryIndex ModelConfig ModelStatistics".split()
]
METHODS += ["/sru.v1.AdminService/LoadModel", "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", "/a/b", "/"]
PATHS = "/v1/models /v1/classify /v1/../v1/models //v1/models /v1//models /%76%31/models /v1/models/ /v1/models%00 /v1/models;a"
PATHS += (
    " /openapi.json /V1/models /v2 /v2/models/trec /healthz/../v1/models http://localhost/v1/models /v1/completions"
)


@row(credentials="tokens", seconds=4)
def doors(target):
    """Every method and route with credentials that are none."""
    credentials = ["Bearer " + TOKEN[:-1], "Bearer " + TOKEN + "x", "Basic " + TOKEN, TOKEN, "Bearer", "Bearer  ", ""]
    codes, statuses = [], []
    with Connection(target.port) as connection:
        for method, value in itertools.product(METHODS, [None, *credentials]):
            headers = [] if value is None else [("authorization", value)]
            codes.append(connection.call(method, b"", headers, timeout=2).code)
    for path, value in itertools.product(PATHS.split(), [None, *credentials]):
        headers = [] if value is None else ["Authorization: " + value]
        statuses.append(ask(target.http_port, post(path, b"{}", headers=headers)))
        statuses.append(ask(target.http_port, post(path, method="GET", headers=headers)))
    failures = only(codes, "UNAUTHENTICATED", "HTTP", "UNIMPLEMENTED") + only(statuses, 400, 401, 403, 404, 405)
    return Outcome("calls: %s, requests: %s" % (counts(codes), counts(statuses)), failures=failures)


def extreme_calls():
    numbers = [1, MOST, 1 << 31, (1 << 63) - 1, 1 << 63, (1 << 64) - 1]
    floats = [
        b"\0\0\xc0\x7f",
        b"\0\0\x80\x7f",
        b"\0\0\x80\xff",
        b"\xff\xff\x7f\x7f",
        b"\1\0\0\0",
    ]  # NaN, infinities, ends
    text = field(3, sequence("Who wrote it ?"))
    for number in numbers:
        for position in (2, 4, 5, 6, 7, 99):
            yield CLASSIFY, text + field(position, number)
        for position in (2, 4, 5, 6, 7, 8, 9):
            yield ENCODE, text + field(position, number)
        for position in (2, 5, 6, 7, 8, 9):
            yield SCORE, text + field(position, number)
        for position in (2, 7, 9, 10, 11, 12, 13, 14, 15, 16):
            yield GENERATE, generate(2) + field(position, number)
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
    for path in ("/v1/classify", "/v1/completions", "/v2/models/trec/infer", CLASSIFY):
        for body in json_bodies():
            start = time.monotonic()
            codes.append(ask(target.http_port, post(path, body)))
            worst = max(worst, time.monotonic() - start)
    failures = only(codes, 400, 404, 413, 422, 429) + (["one took %.1f s" % worst] if worst > 3 else [])
    return Outcome("%d bodies, slowest %.2f s: %s" % (len(codes), worst, counts(codes)), failures=failures)


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


def tensor_calls():
    for shape in ([MOST, MOST], [-1], [0], [1 << 40], [(1 << 63) - 1, 2], [1] * 1000, [3], []):
        dimensions = b"".join(field(3, number % (1 << 64)) for number in shape)
        for kind, data in (
            (b"BYTES", b"\xff\xff\xff\xff"),
            (b"BYTES", b"\1\0\0\0a"),
            (b"FP32", b"ab"),
            (b"X", b""),
            (b"INT64", b"a" * 8),
        ):
            tensor = field(5, field(1, b"text") + field(2, kind) + dimensions)
            yield field(1, b"trec") + tensor + field(7, data), (shape, kind)
            yield field(1, b"trec") + tensor + field(7, data) * 3, (shape, kind)


@row(flags=BUDGETS, budget_mib=BUDGET_MIB, seconds=6)
def tensor_lies(target):
    """Tensors of the Open Inference Protocol whose data, type and shape do not agree."""
    codes, statuses = [], []
    with Connection(target.port) as connection:
        for request, (shape, kind) in tensor_calls():
            codes.append(connection.call(INFER, request, timeout=2).code)
            tensor = {"name": "text", "shape": shape, "datatype": kind.decode(), "data": ["a", 1, [[]]]}
            statuses.append(
                ask(target.http_port, post("/v2/models/trec/infer", json.dumps({"inputs": [tensor]}).encode()))
            )
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
        connection.send(
            b"".join(frame(PRIORITY, 0, n, (n - 2).to_bytes(4, "big") + b"\xff") for n in range(3, 1900, 2))
        )

    def headers(connection):
        block = header_block(CLASSIFY)
        for _ in range(500):
            stream = connection.next_stream()
            connection.send(
                frame(HEADERS, END_HEADERS | 32, stream, max(0, stream - 2).to_bytes(4, "big") + b"\0" + block)
            )

    def ring(connection):
        connection.send(frame(PRIORITY, 0, 3, b"\0\0\0\5\1") + frame(PRIORITY, 0, 5, b"\0\0\0\3\1") * 400)

    itself = frame(PRIORITY, 0, 3, b"\0\0\0\3\1")
    return tricks(target, {"chain": chain, "streams": headers, "ring": ring, "itself": lambda c: c.send(itself)})


@row(flags=BUDGETS, budget_mib=32, seconds=3)
def trailers(target):
    """Trailers without an end, again and again, and lengths that the DATA does not have."""
    more = literal("x-trailer", "v" * 1000)

    def open_trailers(connection):
        stream = connection.start(CLASSIFY, body=message(QUESTION))
        connection.send(frame(HEADERS, END_HEADERS, stream, more) * 50)

    def endless(connection):
        stream = connection.start(CLASSIFY, body=message(QUESTION))
        connection.send(frame(HEADERS, END_STREAM, stream, more) + frame(CONTINUATION, 0, stream, more * 15) * 200)

    def pseudo(connection):
        stream = connection.start(CLASSIFY, body=message(QUESTION))
        connection.send(frame(HEADERS, END_STREAM | END_HEADERS, stream, literal(":path", "/x")))

    def lie(length, path=CLASSIFY, kind="application/grpc"):
        def one(connection):
            body = message(QUESTION)
            connection.start(path, [("content-length", length)], body, end=True, content_type=kind)

        return one

    lengths = {"length %s%s" % (length, path): lie(length, path, kind) for length, (path, kind) in itertools.product(
        ("0", "5", "99999999999999999999", "-1", "1, 1"), ((CLASSIFY, "application/grpc"), ("/v1/classify", "application/json")))}  # fmt: skip
    return tricks(target, {"no end": open_trailers, "no end of headers": endless, "pseudo": pseudo, **lengths})


@row(seconds=3)
def odd_headers(target):
    """Names and values of headers with bytes that they may not have, over HTTP/2."""
    found = []
    names = [
        "X-Upper",
        "",
        "a b",
        "a\0",
        "a\r\nb",
        "a:b",
        ":odd",
        "\xff",
        "connection",
        "transfer-encoding",
        "host",
        "grpc-x",
        "te",
    ]
    fields = [(name.encode("latin-1"), b"a") for name in names]
    fields += [(b"x", value) for value in (b"\0", b"a\r\nb: c", b" a", b"a ", b"\x7f", b"\xff" * 100)]
    fields += [
        (b":path", b"/v1/models"),
        (b":method", b"CONNECT"),
        (b":authority", b"a@b"),
        (b":scheme", b"\0"),
        (b":status", b"200"),
    ]
    for name, value in fields:
        for kind in (CLASSIFY, SCORE):
            with Connection(target.port, source=ELSEWHERE) as connection:
                try:
                    found.append(connection.call(kind, QUESTION, [(name, value)], timeout=1).code)
                except Closed:
                    found.append("CLOSED")
    return Outcome("%d headers: %s" % (len(found), counts(found)), failures=only(found, *HARMLESS))


def opened(connection):
    connection.stream = connection.start(CLASSIFY)


def unread_encode(connection):
    connection.pump(0.05)
    connection.stream = connection.start(ENCODE)
    connection.send_body(connection.stream, message(token_vectors(2, 1024)))
    connection.pump(0.2)


def calls(block):
    """Headers of calls, again and again."""

    def part(connection):
        streams = [connection.next_stream() for _ in range(4)]
        return b"".join(frame(HEADERS, END_HEADERS | END_STREAM, stream, block) for stream in streams)

    return part


def page(connection):
    fields = ((":method", "GET"), (":scheme", "http"), (":path", "/openapi.json"), (":authority", "a"))
    return calls(b"".join(literal(*one) for one in fields))(connection)


FRAMES = {
    "padded DATA": (opened, lambda c: frame(DATA, 8, c.stream, b"\xff" + bytes(255)) * 100),
    "unknown": (opened, lambda c: frame(200, 0, 0, b"x") * 500),
    "PRIORITY_UPDATE": (opened, lambda c: frame(16, 0, 0, c.stream.to_bytes(4, "big") + b"u=1") * 500),
    "long SETTINGS": (opened, lambda c: settings(*[(1000 + number, 1) for number in range(2700)])),
    "ACKs": (opened, lambda c: (frame(SETTINGS, ACK, 0) + frame(PING, ACK, 0, bytes(8))) * 200),
    "PUSH_PROMISE": (opened, lambda c: frame(PUSH_PROMISE, END_HEADERS, c.stream, b"\0\0\0\2\x82") * 9),
    "GOAWAY": (opened, lambda c: frame(GOAWAY, 0, 0, bytes(108)) * 99),
    "resets of no stream": (opened, lambda c: reset(9999) * 99),
    "sizes of tables": (lambda c: None, calls(b"\x20" * 8000)),
    "cookies": (lambda c: None, calls(header_block(CLASSIFY) + literal("cookie", "a=b") * 500)),
    "empty names": (lambda c: None, calls(header_block(CLASSIFY) + b"\x40\0\0" * 4000)),
    "a field 12,000 times": (
        lambda c: None,
        calls(header_block(CLASSIFY) + literal("x", "v" * 3900, indexed=True) + b"\xbe" * 12000),
    ),
    "windows of a byte": (unread_encode, lambda c: window_update(c.stream, 1) * 500),
    "unread pages": (lambda c: c.send(settings((INITIAL_WINDOW_SIZE, 0))), page),
}


@row(flags=BUDGETS, budget_mib=64, seconds=9)
def odd_frames(target):
    """Frames and headers that are legal or nearly so, and dear to handle or to keep."""
    texts = []
    for name, (begin, part) in FRAMES.items():
        flood = Flood(Slice(target, 0.5), 1, 4 * MIB, begin, part, read=name != "unread pages")
        texts.append("%s: %.1f MiB, %d closed" % (name, flood.sent / MIB, flood.closed))
    return Outcome(", ".join(texts))


# Tricks with HTTP/1.1, Connect and gRPC-Web.


@row(flags=BUDGETS, budget_mib=32, seconds=3)
def pipelining(target):
    """Requests without end on connections that read no answer."""
    request = (
        post("/v1/classify", b'{"model": "trec", "sequences": [{"text": "a"}]}') * 200
        + post("/openapi.json", method="GET") * 50
    )

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
    bodies += [
        body * 2,
        body[:3],
        b"",
        b"\x80" + body[1:],
        b"\x02" + body[1:],
        b"\1" + body[1:],
        body + b"x",
        b"\xff" * 100,
    ]
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
        request = post(
            "/v1/classify", method="OPTIONS", headers=["Origin: " + origin, "Access-Control-Request-Method: POST"]
        )
        with Tcp(target.http_port, ELSEWHERE) as one:
            while target.time_left() > 0:
                if not one.send(request):
                    break
                data, ended = one.receive(1, lambda data: b"\r\n\r\n" in data)
                codes.append(data[9:12].decode())
                if ended:
                    break
        return codes

    codes = list(itertools.chain(*together(work, range(4))))
    return Outcome("%d preflights: %s" % (len(codes), counts(codes)))


# Tricks with TLS and TCP.


@row(credentials="tls", seconds=5)
def tls_tricks(target):
    """Records of a byte each, 64 kB of ALPN, renegotiation, garbage, a handshake in crumbs."""
    hello = client_hello()
    body = hello[5:]
    names = [
        ("%03d" % (number % 1000)) * 80 for number in range(60)
    ]  # 14 kB: longer ones do not fit OpenSSL's first record
    forms = {
        "records of a byte": b"".join(b"\x16\3\1\0\1" + body[i : i + 1] for i in range(len(body))),
        "empty records": b"\x16\3\1\0\0" * 20000,
        "long ALPN": client_hello(names),
        "64 kB that are announced": b"\x16\3\1\x40\0"
        + b"\1\0\xff\xff"
        + b"\3\3"
        + bytes(16378)
        + (b"\x16\3\1\x40\0" + bytes(16384)) * 4,
        "16 MiB that are announced": b"\x16\3\1\x40\0"
        + b"\1\xff\xff\xff"
        + bytes(16380)
        + (b"\x16\3\1\x40\0" + bytes(16384)) * 64,
        "alerts": b"\x15\3\1\0\2\1\0" * 10000,
        "garbage": bytes(range(256)) * 256,
    }

    def work(form):
        with Tcp(target.port, ELSEWHERE, timeout=1) as one:
            for _ in range(1):
                one.send(forms[form])
            data, ended = one.receive(0.5)
        return "%s: %s%s" % (
            form,
            "answered" if data[:1] == b"\x16" else "refused" if data else "-",
            ", closed" if ended else "",
        )

    texts = together(work, forms)
    if shutil.which("openssl"):
        command = ["openssl", "s_client", "-connect", "127.0.0.1:%d" % target.port, "-tls1_2", "-alpn", "h2"]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        ) as client:
            time.sleep(0.5)
            try:
                said = client.communicate(b"R\n" * 50, timeout=2)[0]
            except subprocess.TimeoutExpired:
                client.kill()
                said = client.communicate()[0]
        refused = b"no renegotiation" in said or b"unexpected" in said or said.count(b"RENEGOTIATING") <= 1
        texts.append("renegotiation " + ("refused" if refused else "done"))
        return Outcome(", ".join(texts), failures=[] if refused else ["renegotiation is taken"])
    return Outcome(", ".join(texts))


@row(flags=BUDGETS, budget_mib=32, seconds=4)
def half_closed(target):
    """Sockets that are closed for sending after half a preface, a request or a call, and never read."""
    more_files(5000)
    call = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + settings((INITIAL_WINDOW_SIZE, 0))
    call += frame(HEADERS, END_HEADERS, 1, header_block(CLASSIFY)) + frame(DATA, END_STREAM, 1, message(QUESTION))
    forms = [
        b"",
        call[:10],
        call[:24],
        call,
        call[:-10],
        post("/v1/models", method="GET"),
        post("/v1/classify", b"{", length=9),
    ]
    held = []
    for number in range(3000):
        if target.time_left() < 0.3:
            break
        try:
            one = Tcp(target.port if number % 7 < 5 else target.http_port, ELSEWHERE, receive_buffer=4096, timeout=0.5)
        except Closed:
            continue
        held.append(one)
        one.send(forms[number % 7])
        try:
            one.socket.shutdown(socket.SHUT_WR)
        except OSError:
            pass
    target.settled(0.5)
    return Outcome("%d half-closed" % len(held))


def main():
    name = sys.argv[3]
    attack, arguments = ROWS[name]
    arguments = dict(arguments)
    credentials = arguments.pop("credentials", None)
    flags = list(arguments.pop("flags", ()))
    if credentials == "tls":
        files = TlsFiles()
        arguments["tls"] = files.context
        flags += files.flags
    with tempfile.TemporaryDirectory() as directory:
        if credentials == "tokens":
            path = os.path.join(directory, "tokens")
            with open(path, "w", encoding="ascii") as file:
                file.write("team %s\nothers %s\n" % (TOKEN, OTHER_TOKEN))
            os.environ["SRU_ATTACKS_TOKENS"] = path
            flags.append("--auth_tokens_file=" + path)
            arguments["headers"] = [("authorization", "Bearer " + TOKEN)]
        if credentials == "state key":
            path = os.path.join(directory, "keys")
            with open(path, "w", encoding="ascii", opener=lambda *one: os.open(*one, 0o600)) as file:
                file.write("0123456789abcdef" * 4 + "\n")
            flags.append("--state_key_file=" + path)
        if credentials == "few files":
            path = os.path.join(directory, "sru_server")
            with open(path, "w", encoding="ascii", opener=lambda *one: os.open(*one, 0o700)) as file:
                file.write('#!/bin/sh\nulimit -n 256\nexec "%s" "$@"\n' % sys.argv[1])
            sys.argv[1] = path
        if credentials == "repository":
            path = os.path.join(directory, "models")
            shutil.copytree(sys.argv[2], path)
            os.environ["SRU_ATTACKS_REPOSITORY"] = sys.argv[2] = path
        run(name.replace("_", " "), attack, flags=flags, **arguments)


if __name__ == "__main__":
    main()
