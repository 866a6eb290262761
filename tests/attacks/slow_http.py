"""Slow connections on the port of the probes: 8, 40 and 300 that are silent, send half a header, or drip a byte
at a time, and are opened anew when they are closed. /readyz and /healthz must answer within a second."""

import errno
import select
import socket
import threading
import time

from harness import Outcome, run

HALF = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nX-Slow: "
PROBE_LIMIT_S = 1.0


class Crowd:
    """Keeps this many slow connections open until it is told to stop."""

    def __init__(self, port, count, form):
        self._port, self._count, self._form = port, count, form
        self._stop = threading.Event()
        self.opened = 0
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def close(self):
        self._stop.set()
        self._thread.join()

    def _run(self):
        crowd = {}
        while not self._stop.is_set():
            for _ in range(min(50, self._count - len(crowd))):
                one = socket.socket()
                one.setblocking(False)
                error = one.connect_ex(("127.0.0.1", self._port))
                if error not in (0, errno.EINPROGRESS):
                    one.close()
                    break
                crowd[one] = False
                self.opened += 1
            gone, writable, _ = select.select(list(crowd), list(crowd), [], 0.02)
            for one in writable:
                try:
                    if self._form != "silent" and not crowd[one]:
                        one.send(HALF)
                        crowd[one] = True
                    elif self._form == "drip":
                        one.send(b"x")
                except OSError:
                    gone.append(one)
            for one in set(gone):
                try:
                    if one.recv(4096):
                        continue
                except BlockingIOError:
                    continue
                except OSError:
                    pass
                del crowd[one]
                one.close()
            time.sleep(0.01)
        for one in crowd:
            one.close()


def attack(target):
    failures, worst = [], {}
    for count in (8, 40, 300):
        for form in ("silent", "half", "drip"):
            crowd = Crowd(target.metrics_port, count, form)
            time.sleep(0.15)
            for path in ("/readyz", "/healthz") * 3:
                if worst.get(count, 0) <= PROBE_LIMIT_S:
                    start = time.monotonic()
                    try:
                        target.page(path, timeout=2 * PROBE_LIMIT_S)
                    except OSError as error:
                        failures.append("%s with %d connections (%s): %s" % (path, count, form, error))
                    worst[count] = max(worst.get(count, 0), time.monotonic() - start)
            crowd.close()
            if worst[count] > PROBE_LIMIT_S:
                failures.append("a probe took %.1f s with %d connections (%s)" % (worst[count], count, form))
                break
    what = ", ".join("%d: %.0f ms" % (count, seconds * 1e3) for count, seconds in worst.items())
    return Outcome("slowest probe with " + what, failures=failures)


if __name__ == "__main__":
    run("slow HTTP", attack)
