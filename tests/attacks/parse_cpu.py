"""Three callers with requests that are costly to refuse: millions of empty sequences and one broken byte, whose
place the server must find."""

import threading

from harness import CLASSIFY, Outcome, run
from http2 import Closed, Connection

SIZE = 3 << 20


def attack(target):
    request = b"\x1a\0" * (SIZE // 2) + b"\x1a\x02\xff"
    codes = {}

    def caller():
        while target.time_left() > 0:
            try:
                with Connection(target.port) as connection:
                    while target.time_left() > 0:
                        code = connection.call(CLASSIFY, request).code
                        codes[code] = codes.get(code, 0) + 1
                        if code in ("CLOSED", "TIMEOUT"):
                            break
                        if target.time_left() > 0.1:
                            target.settled(0.1)  # three callers with little to send, not a flood
            except Closed:
                codes["CLOSED"] = codes.get("CLOSED", 0) + 1

    threads = [threading.Thread(target=caller) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return Outcome("answers %s" % codes, failures=["a broken request was answered"] if "OK" in codes else [])


if __name__ == "__main__":
    run("costly parse failures", attack, budget_mib=3 * 2 * SIZE >> 20, seconds=2.5)
