"""Somebody tries tokens as fast as possible, with messages of 1 MiB attached: none may pass, none of the messages may
be kept, and a caller that has a token must notice nothing."""

import os
import tempfile
import threading

from harness import CLASSIFY, QUESTION, Outcome, run
from http2 import Closed, Connection

TOKEN = "kR3vX9mQ2bT7wZ5n"


def attack(target):
    codes = {}
    lock = threading.Lock()

    def guess(number):
        tries = 0
        while target.time_left() > 0:
            try:
                with Connection(target.port) as connection:
                    while target.time_left() > 0:
                        tries += 1
                        token = "%s%d-%d" % (TOKEN[:8], number, tries)
                        request = b"\x7a" + bytes(1 << 20) if tries % 50 == 0 else QUESTION
                        headers = [("authorization", "Bearer " + token)]
                        code = connection.call(CLASSIFY, request, headers, timeout=2).code
                        with lock:
                            codes[code] = codes.get(code, 0) + 1
                        if code in ("CLOSED", "TIMEOUT"):
                            break
            except Closed:
                with lock:
                    codes["CLOSED"] = codes.get("CLOSED", 0) + 1

    threads = [threading.Thread(target=guess, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wrong = set(codes) - {"UNAUTHENTICATED", "CLOSED", "RST_STREAM"}
    failures = ["a guess was answered with " + ", ".join(wrong)] if wrong else []
    return Outcome("answers %s" % codes, failures=failures)


def after(server, outcome):
    lines = server.log().count("\n")
    outcome.text += ", %d log lines" % lines
    failures = [] if lines < 1000 else ["%d lines in the log" % lines]
    if not server.metric("sru_auth_failures_total"):
        failures.append("sru_auth_failures_total is 0")
    return failures


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "tokens")
        with open(path, "w") as file:
            file.write("team %s\n" % TOKEN)
        run("token guessing", attack, flags=["--auth_tokens_file=" + path],
            headers=[("authorization", "Bearer " + TOKEN)], after=after)  # fmt: skip
