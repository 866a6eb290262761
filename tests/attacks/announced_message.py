"""A message that announces 4 GiB and sends them, to the health service, which needs no token.

gRPC checks the length of a message only when it is whole, so a budget of the process has to end it.
"""

from harness import HEALTH, MIB, Outcome, run
from http2 import Closed, Connection, message

BUDGET_MIB = 96
MOST_MIB = 512


def attack(target):
    what = "all was taken"
    with Connection(target.port) as connection:
        try:
            stream = connection.start(HEALTH)
            connection.send_body(stream, message(b"", length=(1 << 32) - 1), end=False)
            part = bytes(MIB)
            while connection.sent < MOST_MIB * MIB:
                if not connection.send_body(stream, part, end=False, deadline=target.deadline):
                    what = "reset" if stream in connection.resets else "held up until the end"
                    break
        except Closed as error:
            what = "connection closed (%s)" % error
        return Outcome("%d MiB sent: %s" % (connection.sent // MIB, what))


if __name__ == "__main__":
    run(
        "announced 4 GiB",
        attack,
        budget_mib=BUDGET_MIB,
        flags=["--max_receive_memory_mb=%d" % BUDGET_MIB],
    )
