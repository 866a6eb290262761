"""A drain with answers that nobody reads: the server must end in time and with exit code 0."""

import time

from harness import CLASSIFY, ENCODE, QUESTION, Outcome, run
from http2 import Connection, message
from unread_answers import token_vectors

DRAIN_TIMEOUT_S = 8


def attack(target):
    return Outcome("the drain comes afterwards")


def after(server, outcome):
    with Connection(server.port, window=0, receive_buffer=4096) as connection:
        connection.pump(0.1)
        connection.start(CLASSIFY, body=message(QUESTION), end=True)
        connection.start(ENCODE, body=message(token_vectors(2, 1024)), end=True)
        connection.pump(0.3)
        start = time.monotonic()
        code = server.stop(timeout=2 * DRAIN_TIMEOUT_S)
        taken = time.monotonic() - start
    outcome.text = "exit code %s after %.1f s" % (code, taken)
    failures = []
    if code != 0:
        failures.append("exit code %s: %s" % (code, server.log()[-300:]))
    if taken > DRAIN_TIMEOUT_S / 2:
        failures.append("the drain took %.1f s of %d" % (taken, DRAIN_TIMEOUT_S))
    return failures


if __name__ == "__main__":
    run("drain with unread answers", attack, after=after, seconds=0.2, latency=False,
        flags=["--drain_timeout_s=%d" % DRAIN_TIMEOUT_S])  # fmt: skip
