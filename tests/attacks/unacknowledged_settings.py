"""A client that never acknowledges the server's SETTINGS: the limits on streams and headers in them hold
only once they are acknowledged. Until then every gRPC accepts 16 MiB of headers; the cost of that must be bounded."""

from flood import Flood
from harness import BUDGETS, CLASSIFY, MIB, QUESTION, run
from http2 import END_HEADERS, HEADERS, Closed, Connection, frame, header_block

MOST_STREAMS = 10000  # on each of two connections


def attack(target):
    headers = "CLOSED"
    try:
        with Connection(target.port, acknowledge=False) as connection:
            large = [("x-%d" % i, "v" * 4000) for i in range(100)]
            block = header_block(CLASSIFY, large)
            stream = connection.next_stream()
            parts = [block[i : i + 16384] for i in range(0, len(block), 16384)]
            connection.send(frame(HEADERS, 0, stream, parts[0]))
            for i, part in enumerate(parts[1:], 2):
                connection.send(frame(9, END_HEADERS if i == len(parts) else 0, stream, part))
            connection.send(frame(0, 1, stream, b"\0" + len(QUESTION).to_bytes(4, "big") + QUESTION))
            headers = connection.finish(stream, timeout=1).code
    except Closed:
        pass

    block = header_block(CLASSIFY)
    streams = []

    def begin(connection):
        connection.streams = 0
        streams.append(connection)

    def part(connection):
        if connection.streams >= MOST_STREAMS:
            return None
        connection.streams += 500
        return b"".join(frame(HEADERS, END_HEADERS, connection.next_stream(), block) for _ in range(500))

    flood = Flood(target, 2, 8 * MIB, begin, part, acknowledge=False)
    opened = sum(connection.streams for connection in streams)
    return flood.outcome("a call with 400 kB of headers got %s; %d streams, " % (headers, opened))


if __name__ == "__main__":
    run("limits without SETTINGS ACK", attack, flags=BUDGETS)
