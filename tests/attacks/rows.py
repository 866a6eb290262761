"""Attacks by strangers and callers on what others need: memory, places, time, logs and secrets."""

import collections
import contextlib
import errno
import gzip
import hashlib
import itertools
import os
import re
import select
import shutil
import socket
import ssl
import struct
import threading
import time
import zlib

import http1
from harness import BUDGET_MIB, BUDGETS, CLASSIFY, ELSEWHERE, ENCODE, GENERATE, HEALTH, LIST_MODELS, MIB, OPEN
from harness import OTHER_TOKEN, QUESTION, SCORE, SRU, STREAM, TOKEN, WATCH, Outcome, bearer, classify_request, counts
from harness import few_descriptors, keep_calling, more_files, only, others, own_repository, repeatedly, row, sequence, state_key, tls
from harness import together, token_vectors, tokens
from http1 import Tcp, ask, post
from http2 import DATA, DEFAULT_WINDOW, END_STREAM, PREFACE, Closed, Connection, field, fields, frame, header_block, heads
from http2 import literal, message, reset, settings, window_update

VOCABULARY = 113  # of war_and_peace
SECRET = "aSecretOfAnotherProgram"
MOST = (1 << 31) - 1
HANDSHAKES_MIB = 512 * 46 // 1024
SHORT_S = 1  # what a short text or Score call may take beside the longest ones; on a machine that others use, one of ten may take longer


def held_up(codes, times):
    """What is wrong with the short calls, which got these codes; those that were answered, after these times."""
    late = sum(taken > SHORT_S for taken in times) + sum(code != "OK" for code in codes)
    return ["%d of %d short calls failed or took over %d s" % (late, len(codes), SHORT_S)] if late * 10 > len(codes) else []


def generate(tokens, samples=1, *more):
    return b"".join([field(3, sequence("It was")), field(6, tokens), field(10, samples), *more])


def empty_message(stream):
    return frame(DATA, END_STREAM, stream, message(b""))


def leave_open(target, count, begin, unread=False, source=ELSEWHERE, **options):
    """Connections on which `begin(connection)` does its work, which stay open until the attack ends; and how many the server closed."""
    if unread:
        options.update(window=0, receive_buffer=4096)
    held, closed = [], 0
    for _ in range(count):
        held.append(Connection(target.port, source=source, **options))
        try:
            begin(held[-1])
        except Closed:
            closed += 1
    return held, closed


# Strangers. Most servers here want tokens, which an attack does not have.


@row(given=tokens, flags=BUDGETS, budget_mib=64, seconds=4)
def health_streams(target):
    """N1: streams of the health service, with and without their message, whose answers nobody takes."""
    opened = closed = 0
    held = []
    for number in range(110):
        if target.time_left() < 0.5:
            break
        connection = Connection(target.port, window=0, receive_buffer=4096, source=ELSEWHERE)
        held.append(connection)
        blocks = [header_block(WATCH if number % 2 else HEALTH)] * 512
        try:
            connection.send(heads(connection, blocks, empty_message if number % 4 > 1 else lambda stream: b""))
            connection.pump()
            opened += len(blocks)
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


@row(given=tls, flags=BUDGETS, budget_mib=HANDSHAKES_MIB, seconds=6)
def half_handshakes(target):
    """N2: half handshakes, on the port of gRPC."""
    return begin_handshakes(target, target.port)


@row(given=tls, flags=[*BUDGETS, "--http_listen=127.0.0.1:0"], budget_mib=HANDSHAKES_MIB, seconds=6)
def half_handshakes_http(target):
    """N2: the same on a port of HTTP/1.1."""
    return begin_handshakes(target, target.http_port)


@row(given=tls, flags=BUDGETS, budget_mib=HANDSHAKES_MIB, seconds=3)
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


@row(given=tokens, flags=BUDGETS, budget_mib=64, seconds=4)
def binary_headers(target):
    """Headers whose name ends with -bin and whose value is nothing but commas, each of which ends one more value."""
    large = literal("a" * 2028 + "-bin", "," * 2032, indexed=True)
    calls = closed = 0
    while target.time_left() > 0.5:
        try:
            with Connection(target.port, source=ELSEWHERE) as connection:
                blocks = [header_block(HEALTH) + large] + [header_block(HEALTH) + b"\xbe"] * 200
                connection.send(heads(connection, blocks))
                calls += len(blocks)
                connection.pump(0.3)
        except Closed:
            closed += 1
    return Outcome("%d calls, %d connections closed" % (calls, closed))


@row(given=tokens, flags=["--max_connections=64"], seconds=5)
def open_calls(target):
    """N3: connections that each have an open call, which needs no token; others must have places."""
    held = []
    while target.time_left() > 1 and len(held) < 800:
        with contextlib.suppress(Closed):
            held.append(Connection(target.port, source=ELSEWHERE))
            held[-1].start((HEALTH, WATCH, SRU + "Classify")[len(held) % 3])
            held[-1].pump(0.005)
    return Outcome("%d connections with a call" % len(held))


@row(given=tokens, flags=BUDGETS, budget_mib=64, seconds=5)
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
                held[-1].send(heads(held[-1], [header_block(WATCH)] * 200))
    codes = others(target, 5, CLASSIFY, classify_request(*["w " * 500] * 60), TOKEN)
    return Outcome("%d connections; others' messages of 60 kB: %s" % (len(held), counts(codes)), failures=only(codes, "OK"))


def stray_streams(target, addresses, connections):
    """Streams of HTTP/2 that are no calls of gRPC, without a token and without their end; each other connection takes no answer."""
    held, streams = [], 0
    kinds = ("/v1/classify", "application/json"), ("/nothing", "text/plain"), ("/healthz", "text/plain"), (CLASSIFY, "application/grpc-web")
    blocks = [header_block(path, content_type=kind) for path, kind in kinds] * 63
    for number in range(connections):
        with contextlib.suppress(Closed):
            source = addresses[number % len(addresses)]
            one = Connection(target.http_port, window=0 if number % 2 else None, receive_buffer=4096, source=source, timeout=0.3)
            held.append(one)
            one.send(heads(one, blocks))
            streams += len(blocks)
            one.pump(0.01)
    while target.time_left() > 1:
        for one in held[::2]:
            with contextlib.suppress(Closed):
                one.pump()
        time.sleep(0.05)
    refused = sum(len(one.resets) for one in held)
    with Connection(target.http_port, source="127.0.0.9") as other:
        code = other.call(HEALTH).code
    used = target.metric("sru_receive_memory_bytes") / 1e6
    failures = ([] if used < 10 else ["strangers held %.0f MB of 64" % used]) + only([code], "OK")
    return Outcome("%d streams on %d connections, %d reset, %.1f MB held" % (streams, len(held), refused, used), failures=failures)


@row(given=tokens, flags=BUDGETS, budget_mib=64, seconds=5)
def stray_requests(target):
    """Requests over HTTP/2 that are refused or open to all, from two addresses; those of others must be answered."""
    return stray_streams(target, (ELSEWHERE, "127.0.0.3"), 62)


@row(given=tokens, flags=BUDGETS, budget_mib=64, seconds=5)
def stray_neighbours(target):
    """The same from the address of the other callers, as behind a balancer."""
    return stray_streams(target, ("127.0.0.1",), 28)


@row(given=tokens, flags=BUDGETS, budget_mib=16, seconds=7)
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


@row(given=tokens, seconds=4)
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
                one.send(heads(one, [block] * 4500, reset))
                count += 4500
        return count

    return Outcome("%d streams reset" % sum(together(churn, range(4))))


@row(given=few_descriptors, seconds=9)
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
        codes += others(target, 1, GENERATE, generate(4), pause=0.3)
    return Outcome("1024 texts; another's: " + counts(codes), failures=only(codes[-3:], "OK"))


@row(given=tokens, seconds=4)
def watches(target):
    """All places of Watch, from one address; that of another must have one."""

    def watch(connection):
        connection.send(heads(connection, [header_block(WATCH)] * 500, empty_message))
        connection.pump(0.2)

    held, closed = leave_open(target, 4, watch)
    with Connection(target.port) as connection:
        code = connection.finish(connection.start(WATCH, body=message(b""), end=True), 1).code
    failures = only([code], "TIMEOUT") + ["%d connections were closed" % closed] * (closed > 0)
    return Outcome("%d calls of Watch; another's: %s" % (500 * len(held), code), failures=failures)


@row(given=tokens, flags=BUDGETS, budget_mib=BUDGET_MIB, seconds=5)
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


@row(given=tokens, flags=[*BUDGETS, "--credentials_poll_interval_s=0.1"], seconds=6)
def free_tokens(target):
    """Texts that go on from a state, without a prompt, by a caller who has no tokens left."""
    target.setting.write("tokens", "team %s\nothers %s tokens_per_second=1 burst=20\n" % (TOKEN, OTHER_TOKEN))
    target.settled(1)
    headers = bearer(OTHER_TOKEN)
    with Connection(target.port) as connection:
        state = state_of(connection, headers)
        codes = [connection.call(GENERATE, field(4, state) + field(6, 300), headers).code for _ in range(4)]
    failures = only(codes, "OK", "RESOURCE_EXHAUSTED") + (["more than one was answered"] if codes.count("OK") > 1 else [])
    return Outcome("texts of 300 tokens: " + counts(codes), failures=failures)


@row(given=tokens, flags=BUDGETS, budget_mib=BUDGET_MIB, seconds=5)
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
    data = message(packed, compressed=True)
    block = header_block(CLASSIFY, [("grpc-encoding", "gzip")])

    def work(_):
        sent = 0
        while target.time_left() > 0.2:
            with contextlib.suppress(Closed), Connection(target.port, source=ELSEWHERE) as connection:
                connection.send(heads(connection, [block] * 12, lambda stream: frame(DATA, END_STREAM, stream, data)))
                sent += 12
                connection.pump(0.05)
        return sent

    return Outcome("%d messages" % sum(together(work, range(2))))


@row(flags=BUDGETS, budget_mib=BUDGET_MIB, seconds=5)
def packed_bodies(target):
    """Bodies of HTTP with a Content-Encoding: a bomb, one that just fits and is no JSON, members without end, one that
    ends early, one that comes a byte at a time, and one that is packed twice."""
    member = gzip.compress(b"")
    bodies = {
        "bomb": (zeros(512), [413]),
        "3.9 MB": (gzip.compress(bytes(3900000), 9), [400, 429, 503]),
        "members": (member * 100000, [400, 429, 503]),
        "blocks": (b"\x1f\x8b\x08\0\0\0\0\0\0\xff" + b"\0\0\0\xff\xff" * 400000, [400, 429, 503]),  # each is empty
        "cut": (zeros(16)[:-1], [413]),
        "twice": (gzip.compress(zeros(512)), [400, 429, 503]),
    }
    requests = {name: post("/v1/classify", body, headers=["Content-Encoding: gzip"]) for name, (body, _) in bodies.items()}
    slow = Tcp(target.http_port, ELSEWHERE)
    slow.send(post("/v1/classify", member, headers=["Content-Encoding: gzip"], length=len(member) + 1000))
    found = {name: [] for name in bodies}

    def work(_):
        while target.time_left() > 0.5:
            for name, request in requests.items():
                found[name].append(ask(target.http_port, request, 3, ELSEWHERE))
            slow.send(b"x")

    together(work, range(3))
    slow.socket.close()
    failures = [
        "%s: %s" % (name, counts(codes)) for name, codes in found.items() if not codes or set(codes) - {0, *bodies[name][1]}
    ]
    return Outcome(", ".join("%s %s" % (name, counts(codes)) for name, codes in found.items()), failures=failures)


@row(flags=BUDGETS, budget_mib=64, seconds=4)
def long_names(target):
    """N4: names of 4 MB, to which the errors go to clients that do not read."""
    body = message(field(1, b"x" * 4000000))
    call = lambda connection: connection.send_body(connection.start(CLASSIFY), body, deadline=target.deadline)  # noqa: E731
    held, closed = leave_open(target, 40, call, unread=True)
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


@row(flags=BUDGETS, budget_mib=16, seconds=4)
def idle_streams(target):
    """N7: streams that say nothing, from one address; those of others must have places."""

    def begin(connection):
        for _ in range(200):
            connection.start(STREAM)
        connection.pump(0.02)

    held, closed = leave_open(target, 12, begin)
    codes = others(target, 10, GENERATE, generate(4))
    refused = sum(len(connection.resets) for connection in held)
    failures = only(codes, "OK") + ["%d connections were closed" % closed] * (closed > 0)
    return Outcome("2400 streams, %d reset; others' texts %s" % (refused, counts(codes)), failures=failures)


@row(given=tls, flags=["--max_connection_age_s=1", "--drain_timeout_s=1"], seconds=6)
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


@row(given=tokens, seconds=6)
def a_removed_token(target):
    """N9: a stream whose token is taken away must end."""
    headers = bearer(OTHER_TOKEN)
    with Connection(target.port) as connection:
        stream = connection.start(STREAM, headers)
        connection.pump(0.3)
        target.setting.write("tokens", "team %s\n" % TOKEN)
        codes = [connection.finish(stream, 4).code, connection.call(CLASSIFY, QUESTION, headers).code]
    return Outcome("the stream and a later call got " + counts(codes), failures=only(codes, "UNAUTHENTICATED"))


def drained(server, outcome, most_s, of_s):
    """Stops the server, which must end in time and with exit code 0."""
    time.sleep(0.3)
    start = time.monotonic()
    code = server.stop(timeout=2 * of_s)
    taken = time.monotonic() - start
    outcome.text = "exit code %s after %.1f s of %d" % (code, taken, of_s)
    return [outcome.text + server.log()[-300:]] if code != 0 or taken > most_s else []


def drain_with_answers(server, outcome):
    with Connection(server.port, window=0, receive_buffer=4096) as connection:
        connection.pump(0.1)
        connection.start(CLASSIFY, body=message(QUESTION), end=True)
        connection.start(ENCODE, body=message(token_vectors(2, 1024)), end=True)
        connection.pump(0.3)
        return drained(server, outcome, 4, 8)


@row(after=drain_with_answers, latency=False, seconds=0.2, flags=["--drain_timeout_s=8"])
def drain_unread(target):
    """A drain with answers that nobody reads."""
    return Outcome()


def drain_with_texts(server, outcome):
    long = b'{"model": "war_and_peace", "prompt": "It was", "max_tokens": 4000, "stream": true}'
    with Connection(server.port, window=0, receive_buffer=4096) as call, Tcp(
        server.http_port, receive_buffer=4096
    ) as one, Tcp(server.http_port, receive_buffer=4096) as other:
        call.pump(0.1)
        call.start(GENERATE, body=message(generate(4000, 8)), end=True)
        one.send(post("/v1/generate", b'{"prompt": {"text": "It was"}, "max_new_tokens": 4000, "num_samples": 8}'))
        other.send(post("/v1/completions", long))
        time.sleep(0.2)
        return drained(server, outcome, 10, 20)


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
        with contextlib.suppress(Closed):
            held.append(Tcp(target.http_port, ELSEWHERE, timeout=0.05))
            held[-1].send(request)
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
    reader = threading.Thread(target=together, args=(read, calls))
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

    def greedy(connection):
        stream = connection.start(SCORE)
        connection.send_body(stream, long)
        return connection.finish(stream).code

    def short(connection):
        start = time.monotonic()
        code = connection.call(SCORE, field(3, sequence("It was")), [("grpc-timeout", "3S")]).code
        times.append(time.monotonic() - start)
        time.sleep(0.02)
        return code

    times, codes = [], {greedy: [], short: []}

    def caller(number):
        call = short if number == 0 else greedy
        codes[call] += keep_calling(target, call, until=0.3, source=None if call is short else ELSEWHERE)

    together(caller, range(3))
    text = "long: %s, short: %s, at most %.2f s" % (counts(codes[greedy]), counts(codes[short]), max(times))
    return Outcome(text, failures=held_up(codes[short], times))


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
            codes += others(target, 1, GENERATE, generate(4, 1, field(12, VOCABULARY), field(16, 1)), pause=0)
    failures = only(codes, "OK")
    if held < 0.7 * 64 * 10**6 / MIB:
        failures.append("the attack held only %.0f MiB" % held)
    return Outcome("%d texts held %.0f MiB; another caller's: %s" % (opened, held, counts(codes)), failures=failures)


@row(given=tokens, flags=BUDGETS, budget_mib=64, seconds=5)
def many_addresses(target):
    """Streams of one token from eight addresses; another token's texts must have places."""
    held = []
    for address in range(2, 10):
        connection = Connection(target.port, source="127.0.0.%d" % address)
        held.append(connection)
        for _ in range(200):
            connection.start(GENERATE, bearer(OTHER_TOKEN), message(generate(4000)), end=True)
        connection.pump(0.02)
    codes = others(target, 10, GENERATE, generate(4), TOKEN)
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


@row(given=state_key, flags=BUDGETS, budget_mib=BUDGET_MIB, seconds=6)
def forged_signed_states(target):
    """N11: the same where states are signed: none is taken."""
    return send_states(target, taken=0)


def no_secret(server, outcome):
    return ["the log has the secret"] if SECRET in server.log() else []


@row(
    given=own_repository,
    flags=["--model_control=poll", "--poll_interval_s=0.2"],
    budget_mib=144,  # a language model and what its workers need
    after=no_secret,
    seconds=6,
)
def linked_files(target):
    """N14: models whose files are links out of the repository; only the one with a link within it is served."""
    repository = target.setting.repository
    outside = repository + ".outside"
    shutil.copytree(os.path.join(repository, "trec", "1"), os.path.join(outside, "1"))
    secret = target.setting.write("secret", SECRET + "\n")
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


@row(given=tokens, flags=["--prefix_cache_mb=16"], seconds=4)
def another_prompt(target):
    """N14b: prompts that begin as another caller's, which neither a counter nor a saved token may tell."""
    prompt = field(3, sequence("It was the best of times and the number of it is 314159. " * 8)) + field(6, 1) + field(10, 1)

    def hits(token):
        before = target.metric("sru_prefix_cache_hits_total")
        (code,) = others(target, 1, GENERATE, prompt, token, pause=0)
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


@row(given=tokens, after=others_are_logged, seconds=4)
def drowned_log(target):
    """N16: wrong tokens as fast as possible; the wrong tokens of another address must be in the log."""
    numbers = itertools.count()

    def guess(connection):
        return connection.call(CLASSIFY, QUESTION, bearer("guess%d" % next(numbers))).code

    def work(number):
        if number < 2:
            return keep_calling(target, guess, until=0.3, source=ELSEWHERE)
        for other in range(5):
            others(target, 1, CLASSIFY, QUESTION, "other%d" % other, pause=0.4)
        return []

    codes = list(itertools.chain(*together(work, range(3))))
    failures = only(codes, "UNAUTHENTICATED", "RESOURCE_EXHAUSTED") + ["nothing was guessed"] * (not codes)
    return Outcome("%d guesses: %s" % (len(codes), counts(codes)), failures=failures)


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
    return Outcome("%d requests, calls: %s" % (len(codes), counts(called)), failures=only(called, 400, 403, 404, 405, 421))


# Messages and answers that take memory or time.


def zeros(mib):
    """A gzip stream of zeros: one block of 16 MiB, repeated."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = packer.compress(bytes(16 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)
    end = zlib.compressobj(9, zlib.DEFLATED, -15).flush()
    return b"\x1f\x8b\x08\0\0\0\0\0\0\xff" + block * (mib // 16) + end + struct.pack("<II", 0, mib << 20)


@row()
def gzip_bomb(target):
    """Half a megabyte that unpacks to 512 MiB, to a method that needs no token and to one that parses it. gRPC unpacks a
    message before it checks its length, so nothing may be unpacked at all."""
    data, codes = zeros(512), []
    for method in (HEALTH, CLASSIFY, HEALTH):
        try:
            with Connection(target.port) as connection:
                codes.append(connection.call(method, data, [("grpc-encoding", "gzip")], compressed=True).code)
        except Closed:
            codes.append("CLOSED")
    failures = ["a bomb was answered with OK"] if "OK" in codes else []
    return Outcome("%d kB each, answers %s" % (len(data) // 1000, " ".join(codes)), failures=failures)


@row(flags=["--max_receive_memory_mb=96"], budget_mib=96)
def announced_message(target):
    """A message that announces 4 GiB and sends them, to the health service, which needs no token. gRPC checks the length
    of a message only when it is whole, so a budget of the process has to end it."""
    what = "all was taken"
    with Connection(target.port) as connection:
        try:
            stream = connection.start(HEALTH)
            connection.send_body(stream, message(b"", length=(1 << 32) - 1), end=False)
            while connection.sent < 512 * MIB:
                if not connection.send_body(stream, bytes(MIB), end=False, deadline=target.deadline):
                    what = "reset" if stream in connection.resets else "held up until the end"
                    break
        except Closed as error:
            what = "connection closed (%s)" % error
        return Outcome("%d MiB sent: %s" % (connection.sent // MIB, what))


PARTIAL = dict(flags=["--max_receive_memory_mb=96", "--max_message_bytes=%d" % (16 * MIB)], budget_mib=96, seconds=3)


@row(**PARTIAL)
def partial_messages(target):
    """Messages that lack their last byte, on many streams of some connections: each is legal, all of them together are not."""
    part = message(bytes(8 * MIB - 1), length=8 * MIB)

    def begin(connection):
        for _ in range(20):
            connection.send_body(connection.start(CLASSIFY), part, end=False, deadline=target.deadline - 0.5)

    held, closed = leave_open(target, 3, begin, source=None, tls=target.setting.tls)
    target.settled(0.5)
    for connection in held:
        try:
            connection.pump()
        except Closed:
            closed += 1
    what = "%d MiB of 60 partial messages sent, %d reset, %d connections closed"
    sent, resets = sum(one.sent for one in held), sum(len(one.resets) for one in held)
    return Outcome(what % (sent // MIB, resets, min(closed, len(held))))


@row(given=tls, **PARTIAL)
def partial_messages_tls(target):
    """The same under TLS, whose plain text only gRPC holds."""
    return partial_messages(target)


@row(flags=["--max_inflight_mb=96"], budget_mib=96, seconds=3)
def unread_answers(target):
    """Answers that nobody reads: SETTINGS_INITIAL_WINDOW_SIZE is 0 and no window is ever opened. Each call asks for
    one vector per token, 500 times what it sent."""
    request = message(token_vectors(2, 1024))

    def begin(connection):
        for call in range(24):
            connection.pump()
            stream = connection.start(ENCODE if call % 4 else CLASSIFY)
            connection.send_body(stream, request if call % 4 else message(QUESTION), deadline=target.deadline)
            target.settled(0.02)  # it is the answers that are to be many, not the work

    held, closed = leave_open(target, 3, begin, unread=True, source=None)
    target.settled(1)
    for connection in held:
        try:
            connection.pump()
        except Closed:
            closed += 1
    return Outcome("72 calls, %d of %d connections closed" % (closed, len(held)))


@row(budget_mib=3 * 2 * 3, seconds=2.5)
def parse_cpu(target):
    """Three callers with requests that are costly to refuse: millions of empty sequences and one broken byte, whose
    place the server must find."""
    request = b"\x1a\0" * (3 << 19) + b"\x1a\x02\xff"

    def call(connection):
        code = connection.call(CLASSIFY, request).code
        if target.time_left() > 0.1:
            target.settled(0.1)  # three callers with little to send, not a flood
        return code

    codes = list(itertools.chain(*together(lambda _: keep_calling(target, call), range(3))))
    return Outcome("answers " + counts(codes), failures=["a broken request was answered"] if "OK" in codes else [])


def guesses_are_counted(server, outcome):
    lines = server.log().count("\n")
    outcome.text += ", %d log lines" % lines
    failures = [] if lines < 1000 else ["%d lines in the log" % lines]
    return failures + ([] if server.metric("sru_auth_failures_total") else ["sru_auth_failures_total is 0"])


@row(given=tokens, after=guesses_are_counted)
def token_guessing(target):
    """Somebody tries tokens as fast as possible, with messages of 1 MiB attached: none may pass, none of the messages may
    be kept, and a caller that has a token must notice nothing."""
    numbers = itertools.count(1)

    def guess(connection):
        number = next(numbers)
        request = QUESTION if number % 50 else b"\x7a" + bytes(1 << 20)
        return connection.call(CLASSIFY, request, bearer("%s%d" % (TOKEN[:8], number)), timeout=2).code

    codes = list(itertools.chain(*together(lambda _: keep_calling(target, guess), range(2))))
    return Outcome("answers " + counts(codes), failures=only(codes, "UNAUTHENTICATED", "CLOSED", "RST_STREAM"))


LONG = "a " * 2047


def padded(count):
    """One long text and short ones, whose vectors are padded to the same length."""
    tensor = {"name": "text", "shape": [count], "datatype": "BYTES", "data": [LONG] + ["a"] * (count - 1)}
    return {"inputs": [tensor], "parameters": {"pooling": "none"}, "outputs": [{"name": "encoding"}]}


def refused_before_the_work(server, outcome):
    """An answer that would not fit costs nothing."""
    before = server.metric("sru_batch_tokens_sum")
    status, _ = http1.call(server.port, "/v2/models/trec/infer", padded(256))
    outcome.text += "; 268 MB: %d" % status
    if status != 429 or server.metric("sru_batch_tokens_sum") != before:
        return ["an answer of 268 MB: %d, or it was computed" % status]
    return []


# Beside the answers, the blocks that two large batches compute in, which a server at rest has not touched.
@row(flags=["--max_inflight_mb=192"], budget_mib=192 + 2 * 24, seconds=3, after=refused_before_the_work)
def large_answers(target):
    """Small requests with large answers, as JSON and in gRPC: padding, vectors of each token, candidates for each token. Each
    answer takes a processor a quarter of a second."""
    vectors = {"model": "trec", "pooling": "POOLING_NONE", "sequences": [{"text": LONG}] * 4}
    candidates = field(1, b"war_and_peace") + field(3, sequence("a" * 2048)) * 2 + field(7, VOCABULARY)

    def score():
        with Connection(target.port) as connection:
            answer = connection.call(SCORE, candidates, timeout=20)
            return answer.code, len(answer.body)

    found = repeatedly(target, {
        "padded": lambda: http1.call(target.port, "/v2/models/trec/infer", padded(16)),
        "vectors": lambda: http1.call(target.port, "/v1/encode", vectors),
        "candidates": score,
    })  # fmt: skip
    text, failures = [], []
    for name, outcomes in sorted(found.items()):
        sizes = [one[1] for one in outcomes if one[0] in (200, "OK")]
        text.append("%s: %d answers of %.0f MB" % (name, len(sizes), max(sizes, default=0) / 1e6))
        if not sizes or min(sizes) < 0.99 * max(sizes):  # the times in them vary
            failures.append("%s: %s" % (name, outcomes[:5]))
    return Outcome(", ".join(text), failures=failures)


# Connections.


@row(budget_mib=1500 * 16 // 1024)
def connection_flood(target):
    """Thousands of connections: 1,500 that are held, silent or after their preface, and others that come and go."""
    more_files(2000)
    held, churned = [], []

    def churn():
        while target.time_left() > 0:
            with contextlib.suppress(Closed):
                Tcp(target.port, timeout=1).socket.close()
                churned.append(1)
            time.sleep(0.0005)  # the attacker is on the same machine: its own work is not what counts

    def hold():
        while len(held) < 1500 and target.time_left() > 0:
            held.append(Tcp(target.port, timeout=1))
            if len(held) % 2 == 0:
                held[-1].send(PREFACE + settings())

    together(lambda work: work(), [churn, hold])
    return Outcome("%d held, %d came and went" % (len(held), len(churned)))


HALF = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nX-Slow: "
PROBE_LIMIT_S = 1.0


@contextlib.contextmanager
def slow_crowd(port, count, form):
    """Keeps this many slow connections open: silent, with half a header, or a byte at a time."""
    stop = threading.Event()

    def keep():
        crowd = {}  # connection -> whether it has sent half a header
        while not stop.is_set():
            for _ in range(min(50, count - len(crowd))):
                one = socket.socket()
                one.setblocking(False)
                if one.connect_ex(("127.0.0.1", port)) not in (0, errno.EINPROGRESS):
                    one.close()
                    break
                crowd[one] = False
            gone, writable, _ = select.select(list(crowd), list(crowd), [], 0.02)
            for one in writable:
                try:
                    if form != "silent" and not crowd[one]:
                        one.send(HALF)
                        crowd[one] = True
                    elif form == "drip":
                        one.send(b"x")
                except OSError:
                    gone.append(one)
            for one in set(gone):
                try:
                    if one.recv(4096):
                        continue
                except BlockingIOError:
                    continue
                except OSError:
                    pass
                del crowd[one]
                one.close()
            time.sleep(0.01)
        for one in crowd:
            one.close()

    thread = threading.Thread(target=keep)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@row()
def slow_http(target):
    """Slow connections on the port of the probes, which are opened anew when they are closed; /readyz and /healthz must
    answer within a second."""
    failures, worst = [], {}
    for count, form in itertools.product((8, 40, 300), ("silent", "half", "drip")):
        if worst.get(count, 0) > PROBE_LIMIT_S:
            continue
        with slow_crowd(target.metrics_port, count, form):
            time.sleep(0.15)
            for path in ("/readyz", "/healthz") * 3:
                if worst.get(count, 0) <= PROBE_LIMIT_S:
                    start = time.monotonic()
                    try:
                        target.page(path, timeout=2 * PROBE_LIMIT_S)
                    except OSError as error:
                        failures.append("%s with %d connections (%s): %s" % (path, count, form, error))
                    worst[count] = max(worst.get(count, 0), time.monotonic() - start)
        if worst[count] > PROBE_LIMIT_S:
            failures.append("a probe took %.1f s with %d connections (%s)" % (worst[count], count, form))
    what = ", ".join("%d: %.0f ms" % (count, seconds * 1e3) for count, seconds in worst.items())
    return Outcome("slowest probe with " + what, failures=failures)


# No attack, but clients that the server's defenses must not take for attackers.

LARGE = field(15, bytes(3 * MIB)) + QUESTION  # an unknown field, which is skipped


def fast_uploads(connection):
    for _ in range(4):
        streams = [connection.start(CLASSIFY) for _ in range(16)]
        for stream in streams:
            connection.send_body(stream, message(LARGE))
            yield connection.finish(stream).code


def slow_upload(connection):
    stream, body = connection.start(CLASSIFY), message(LARGE)
    step = len(body) // 30 + 1
    for position in range(0, len(body), step):
        connection.send_body(stream, body[position : position + step], end=position + step >= len(body))
        time.sleep(0.08)
    yield connection.finish(stream).code


def refused(connection):
    for _ in range(40):
        for _ in range(50):
            stream = connection.start(CLASSIFY, body=message(field(1, b"none")), end=True)
        code = connection.finish(stream).code
        yield "OK" if code == "NOT_FOUND" else code


def long_texts(connection):
    request = classify_request(*["where is the longest river of the world ?"] * 64)
    for _ in range(30):
        yield connection.call(CLASSIFY, request).code


def silent(connection):
    time.sleep(2.5)
    yield connection.call(CLASSIFY, QUESTION).code


@row(budget_mib=7 * 4, latency=False)
def honest_clients(target):
    """Uploads of many messages at once, as fast as possible and slowly; calls that are all refused; a connection that is
    silent for long. Every call must be answered, and no connection may end for a flood."""

    def client(work):
        try:
            with Connection(target.port) as connection:
                return work.__name__, list(work(connection))
        except Closed as error:
            return work.__name__, [str(error)]

    found = together(client, (fast_uploads, fast_uploads, slow_upload, slow_upload, refused, long_texts, silent))
    failures = ["%s: %s" % (name, wrong) for name, codes in found for wrong in only(codes, "OK")]
    floods = target.metric("sru_door_floods_total")
    if floods:
        failures.append("%d connections ended for a flood" % floods)
    return Outcome("%d calls" % sum(len(codes) for _, codes in found), failures=failures)
