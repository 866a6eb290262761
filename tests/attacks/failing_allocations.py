"""Calls that need more memory than there is: the address space is 32 MiB larger than the server at rest. Each
call must get its answer or RESOURCE_EXHAUSTED, and the process must survive."""

import threading

from harness import ENCODE, MIB, Outcome, run
from http2 import Closed, Connection
from unread_answers import token_vectors


def attack(target):
    request = token_vectors(8, 1024)
    codes, failures = {}, []
    lock = threading.Lock()

    def caller():
        for _ in range(6):
            try:
                with Connection(target.port, timeout=3) as connection:
                    answer = connection.call(ENCODE, request, timeout=3)
                    code = answer.code
                    if code not in ("OK", "RESOURCE_EXHAUSTED"):
                        failures.append(repr(answer))
            except Closed:
                code = "CLOSED"
            with lock:
                codes[code] = codes.get(code, 0) + 1

    threads = [threading.Thread(target=caller) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return Outcome("answers %s" % codes, failures=sorted(set(failures)))


if __name__ == "__main__":
    run("failing allocations", attack, memory_mib=128, seconds=3, room_bytes=32 * MIB)
