"""Messages that lack their last byte, on many streams of some connections: each is legal, all of them together
are not."""

from harness import CLASSIFY, MIB, Outcome, run
from http2 import Closed, Connection, message

BUDGET_MIB = 96
MESSAGE = 8 * MIB
CONNECTIONS = 3
STREAMS = 20  # on each of them


FLAGS = ("--max_receive_memory_mb=%d" % BUDGET_MIB, "--max_message_bytes=%d" % (16 * MIB))


def attack(target, tls=None):
    connections = [Connection(target.port, tls=tls) for _ in range(CONNECTIONS)]
    sent = resets = closed = 0
    part = message(bytes(MESSAGE - 1), length=MESSAGE)
    for connection in connections:
        try:
            for _ in range(STREAMS):
                stream = connection.start(CLASSIFY)
                connection.send_body(stream, part, end=False, deadline=target.deadline - 0.5)
        except Closed:
            closed += 1
    target.settled(0.5)
    for connection in connections:
        try:
            connection.pump()
        except Closed:
            closed += 1
        sent += connection.sent
        resets += len(connection.resets)
        connection.close()
    what = "%d MiB of %d partial messages sent, %d reset, %d connections closed"
    return Outcome(what % (sent // MIB, CONNECTIONS * STREAMS, resets, min(closed, CONNECTIONS)))


if __name__ == "__main__":
    run("partial messages", attack, budget_mib=BUDGET_MIB, seconds=3, flags=FLAGS)
