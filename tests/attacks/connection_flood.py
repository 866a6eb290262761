"""Thousands of connections: 1,500 that are held, silent or after their preface, and others that come and go."""

import resource
import socket
import threading
import time

from harness import Outcome, run
from http2 import PREFACE, settings

HELD = 1500


def connect(port):
    one = socket.socket()
    one.settimeout(1)
    try:
        one.connect(("127.0.0.1", port))
        return one
    except OSError:
        one.close()
        return None


def attack(target):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, HELD + 500)), hard))
    held, churned = [], [0]

    def churn():
        while target.time_left() > 0:
            one = connect(target.port)
            if one is not None:
                one.close()
                churned[0] += 1
            time.sleep(0.0005)  # the attacker is on the same machine: its own work is not what counts

    thread = threading.Thread(target=churn)
    thread.start()
    while len(held) < HELD and target.time_left() > 0:
        one = connect(target.port)
        if one is None:
            break
        if len(held) % 2:
            one.send(PREFACE + settings())
        held.append(one)
    thread.join()
    for one in held:
        one.close()
    return Outcome("%d held, %d came and went" % (len(held), churned[0]))


if __name__ == "__main__":
    run("connection flood", attack, budget_mib=HELD * 16 // 1024, seconds=2)
