"""A process of callers: closed loops of every call, each answer compared to the bit, each call accounted for.

    caller.py OPTIONS      a file of JSON, see Caller; run by chaos.py, and ended by the end of its standard input

Four times a second it prints what has ended: {"t": CLOCK_MONOTONIC, "ends": {"KIND:END": COUNT}, "events": [...]}.
END is a code of gRPC that the server gave (CANCELLED: gRPC itself, in the server), or

    WRONG     OK, but not the right answer
    HUNG      the call outlived its deadline by GRACE_S
    BROKEN    the connection ended, and the server may have accepted the call: no word came from it
    REFUSED   no server took the call: there was no connection, or the server disowned the call
    PASSED    the deadline passed on the caller's side first

A call counts as accepted from when it was sent on a connection that stood, unless the server disowned it by GOAWAY or
REFUSED_STREAM. The server's own word is told from what a client library makes up by the request id, which a server sends back.
"""

import collections
import http.client
import json
import os
import queue
import random
import struct
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import cases as chaos_cases  # noqa: E402
from fleet import Stalls  # noqa: E402

import grpc  # noqa: E402
import sru_inference  # noqa: E402

GRACE_S = 20.0
NOT_SERVING = b"\x08\x02"
REPORT_S = 0.25
# What gRPC says when a call never went to a server.
NOT_SENT = (
    "failed to connect",
    "connections to all backends failing",
    "no server answered",  # nginx
    "empty address list",
    "connection refused",
    "no connection established",
    "not connected",
    "handshake",
    "refused_stream",
    "timed out",
)
RECONNECT = [
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 5000),  # how long an attempt may take
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.use_local_subchannel_pool", 1),
]


class Caller:
    """Options:
    name, seed, deadline_s, think_s, threads; cases: "replica" or "small"; right: a file
    addresses: one for calls without retries, several (or nginx') for the client library with its retries and balancing
    balanced: whether to use the client library
    http_port, rest_right: callers over HTTP
    tls_ca, token_file: for a server that asks for them; then connections are opened anew every second
    """

    def __init__(self, options):
        self.options = options
        served = ("trec",) if options["cases"] == "replica" else ()
        self.cases = chaos_cases.load(chaos_cases.make_cases(served), options["right"])
        self.rest_cases = []
        if options.get("http_port"):
            self.rest_cases = chaos_cases.load(chaos_cases.make_rest_cases(), options["rest_right"])
        self._lock = threading.Lock()
        self._ends = collections.Counter()
        self._events = []
        self._stop = threading.Event()
        self._stalls = Stalls()
        self._next_id = 0

    # --- counting

    def _count(self, kind, end, detail=""):
        with self._lock:
            self._ends["%s:%s" % (kind, end)] += 1
            if end in ("WRONG", "HUNG", "BROKEN") or end not in ("OK", "REFUSED", "PASSED", *USUAL):
                if len(self._events) < 200:
                    self._events.append([time.monotonic(), kind, end, str(detail)[:300]])

    def _report(self):
        with self._lock:
            line = {"t": time.monotonic(), "ends": dict(self._ends), "events": self._events}
            self._ends.clear()
            self._events = []
        print(json.dumps(line), flush=True)

    def _request_id(self):
        with self._lock:
            self._next_id += 1
            return "%s-%d" % (self.options["name"], self._next_id)

    # --- gRPC

    def _channel(self):
        options = self.options
        if options["balanced"]:
            client = sru_inference.Client(options["addresses"], timeout=options["deadline_s"], channel_options=RECONNECT)
            return client, client._channels.get().channel  # raw bytes over the channel of the client library
        if options.get("tls_ca"):
            with open(options["tls_ca"], "rb") as file:
                credentials = grpc.ssl_channel_credentials(file.read())
            arguments = RECONNECT + [("grpc.ssl_target_name_override", "localhost")]
            return None, grpc.secure_channel(options["addresses"][0], credentials, arguments)
        return None, grpc.insecure_channel(options["addresses"][0], RECONNECT)

    def _metadata(self, request_id):
        metadata = [("x-request-id", request_id)]
        if self.options.get("token_file"):
            with open(self.options["token_file"], encoding="ascii") as file:
                metadata.append(("authorization", "Bearer " + file.read().strip()))
        return metadata

    def _one(self, channel, case):
        deadline_s = self.options["deadline_s"] * (3 if case.kind in ("Generate", "EncodeStream") else 1)
        began, stalled = time.monotonic(), self._stalls.total()
        request_id = self._request_id()
        metadata = self._metadata(request_id)
        call = None
        try:
            if case.stream:
                call = channel.stream_stream(case.method)(_in_turn(case.requests), timeout=deadline_s, metadata=metadata)
                responses = list(call)
            else:
                body, call = channel.unary_unary(case.method).with_call(
                    case.requests[0], timeout=deadline_s, metadata=metadata
                )
                responses = [body]
            end, detail = "OK", ""
            if case.kind == "Health" and responses == [NOT_SERVING]:
                end = "UNAVAILABLE"  # it drains, or its devices are lost
            elif not case.is_right(responses):
                end, detail = "WRONG", case.answer(responses)[0].hex()
        except grpc.RpcError as error:
            end, detail = _end_of(error, request_id), "%s %s (%s)" % (error.code().name, error.details(), request_id)
        self._ended(case.kind, end, detail, began, stalled, deadline_s)

    def _ended(self, kind, end, detail, began, stalled, deadline_s):
        if time.monotonic() - began > deadline_s + GRACE_S + self._stalls.total() - stalled:
            end, detail = "HUNG", "%s after %.1f s: %s" % (end, time.monotonic() - began, detail)
        self._count(kind, end, detail)

    def _long_text(self, client):
        """A text that is gone on with at another server if the first stops, by the client library."""
        right = self._long_right
        began, stalled = time.monotonic(), self._stalls.total()
        request_id = self._request_id()
        try:
            request = chaos_cases.long_text()
            pieces = list(
                client.generate(
                    request.prompt.text,
                    model=request.model,
                    sampling={"temperature": request.sampling.temperature, "seed": request.sampling.seed},
                    max_new_tokens=request.max_new_tokens,
                    timeout=3 * self.options["deadline_s"],
                    request_id=request_id,
                )
            )
            tokens = [token for piece in pieces for token in piece.token_ids]
            found = "".join(piece.text for piece in pieces).encode() + struct.pack("<%di" % len(tokens), *tokens)
            whole = len(tokens) == request.max_new_tokens and right.startswith(found)
            end, detail = "OK" if whole else "WRONG", found.hex()
        except sru_inference.InferenceError as error:
            said = error.request_id == request_id
            end, detail = error.code.name if said else _not_said(error.code.name, error.message), str(error)
        self._ended("Generate, gone on with", end, detail, began, stalled, 3 * self.options["deadline_s"])

    def _loop(self, number):
        draw = random.Random("%s %s %d" % (self.options["seed"], self.options["name"], number))
        client, channel = self._channel()
        opened = time.monotonic()
        long_case = [case for case in self.cases if case.requests[0] == chaos_cases.long_text().SerializeToString()]
        if long_case:
            self._long_right = long_case[0].right[1]
        while not self._stop.wait(draw.expovariate(1 / self.options["think_s"])):
            if self.options.get("tls_ca") and time.monotonic() > opened + 1:
                channel.close()
                client, channel = self._channel()
                opened = time.monotonic()
            if client is not None and draw.random() < 0.1:
                self._long_text(client)
            else:
                self._one(channel, draw.choice(self.cases))
        (client or channel).close()

    # --- HTTP

    def _rest_loop(self, number):
        draw = random.Random("%s %s rest %d" % (self.options["seed"], self.options["name"], number))
        connection = None
        while not self._stop.wait(draw.expovariate(1 / self.options["think_s"])):
            case = draw.choice(self.rest_cases)
            began, stalled = time.monotonic(), self._stalls.total()
            if connection is None:
                connection = http.client.HTTPConnection("127.0.0.1", self.options["http_port"], timeout=60)
            end, detail, keep = self._rest(connection, case)
            self._ended(case.kind, end, detail, began, stalled, self.options["deadline_s"])
            if not keep:
                connection.close()
                connection = None

    def _rest(self, connection, case):
        timeout_ms = int(self.options["deadline_s"] * 1000)
        headers = {"Content-Type": "application/json", "X-Request-Timeout-Ms": str(timeout_ms)}
        try:
            connection.connect() if connection.sock is None else None
        except OSError as error:
            return "REFUSED", error, False
        try:
            connection.request(case.method, case.path, case.body, headers)
            answer = connection.getresponse()
            body = answer.read()
        except TimeoutError as error:
            return "PASSED", error, False
        except (OSError, http.client.HTTPException) as error:
            return "BROKEN", repr(error), False
        keep = not answer.will_close
        if answer.status == 200:
            try:
                return ("OK", "", keep) if case.is_right(body) else ("WRONG", body[:200], keep)
            except chaos_cases.EventError as error:
                return str(error), "", keep
        try:
            error = json.loads(body)
            return (error.get("code") or error["error"]["code"]), body[:200], keep
        except (ValueError, KeyError, TypeError):
            return "HTTP %d" % answer.status, body[:200], keep

    # --- all

    def run(self):
        options = self.options
        loops = [threading.Thread(target=self._loop, args=(i,), daemon=True) for i in range(options["threads"])]
        if self.rest_cases:
            loops += [threading.Thread(target=self._rest_loop, args=(i,), daemon=True) for i in range(2)]
        for loop in loops:
            loop.start()
        stdin = threading.Thread(target=lambda: (sys.stdin.read(), self._stop.set()), daemon=True)
        stdin.start()
        while not self._stop.wait(REPORT_S):
            self._report()
        end = time.monotonic() + 3 * options["deadline_s"] + GRACE_S + 5
        for loop in loops:
            loop.join(max(0, end - time.monotonic()))
            if loop.is_alive():
                self._count("a caller", "HUNG", "a call did not end")
        self._report()
        os._exit(0)


# What a server may say to an honest caller at any time: too much, too late, it drains, its devices are lost.
USUAL = ("RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED", "UNAVAILABLE")


def _in_turn(requests):
    """As an iterator that gRPC's thread takes from; a list's would do, but not its end before an error."""
    items = queue.SimpleQueue()
    for request in requests:
        items.put(request)
    items.put(None)
    return iter(items.get, None)


def _end_of(error, request_id):
    """Who ended the call, and how."""
    code = error.code().name
    for metadata in (error.trailing_metadata(), error.initial_metadata()):
        if any(entry.key == "x-request-id" and entry.value == request_id for entry in metadata or ()):
            return code
    return _not_said(code, error.details() or "")


def _not_said(code, details):
    """What it means that a client's library says this."""
    if code == "DEADLINE_EXCEEDED":
        return "PASSED"
    if any(part in details.lower() for part in NOT_SENT):
        return "REFUSED"
    if code in ("UNAVAILABLE", "UNKNOWN", "INTERNAL"):
        return "BROKEN"
    return code  # gRPC's own refusals, as of a message that is too large, and those for a token


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as options_file:
        Caller(json.load(options_file)).run()
