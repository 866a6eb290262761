"""No attack, but clients that the server's defenses must not take for attackers: uploads of many messages at once, as fast
as possible and slowly; calls that are all refused; a connection that is silent for long; one that pings. Every call must
be answered, and no connection may end for a flood."""

import threading
import time

from harness import CLASSIFY, MIB, QUESTION, Outcome, classify_request, run
from http2 import Closed, Connection, field, message

LARGE = field(15, bytes(3 * MIB)) + QUESTION  # an unknown field, which is skipped


def answers(connection, streams):
    return [connection.finish(stream).code for stream in streams]


def fast_uploads(port, rounds=4, parallel=16):
    with Connection(port) as connection:
        codes = []
        for _ in range(rounds):
            streams = [connection.start(CLASSIFY) for _ in range(parallel)]
            for stream in streams:
                connection.send_body(stream, message(LARGE))
                codes.append(connection.finish(stream).code)
        return codes


def slow_upload(port):
    with Connection(port) as connection:
        stream = connection.start(CLASSIFY)
        body = message(LARGE)
        step = len(body) // 30 + 1
        for position in range(0, len(body), step):
            connection.send_body(stream, body[position : position + step], end=position + step >= len(body))
            time.sleep(0.08)
        return answers(connection, [stream])


def refused(port):
    with Connection(port) as connection:
        codes = []
        for _ in range(40):
            streams = [connection.start(CLASSIFY, body=message(field(1, b"none")), end=True) for _ in range(50)]
            del streams[:-1]
            codes += answers(connection, streams)
        return ["OK" if code == "NOT_FOUND" else code for code in codes]


def long_texts(port):
    with Connection(port) as connection:
        request = classify_request(*["where is the longest river of the world ?"] * 64)
        return [connection.call(CLASSIFY, request).code for _ in range(30)]


def silent(port):
    with Connection(port) as connection:
        time.sleep(2.5)
        return [connection.call(CLASSIFY, QUESTION).code]


def attack(target):
    failures, counts = [], {}

    def client(work):
        try:
            codes = work(target.port)
        except Closed as error:
            codes = [str(error)]
        counts[work.__name__] = counts.get(work.__name__, 0) + len(codes)
        wrong = sorted(set(codes) - {"OK"})
        if wrong:
            failures.append("%s: %s" % (work.__name__.replace("_", " "), ", ".join(wrong)))

    threads = []
    for work in (fast_uploads, fast_uploads, slow_upload, slow_upload, refused, long_texts, silent):
        threads.append(threading.Thread(target=client, args=(work,)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    floods = target.metric("sru_door_floods_total")
    if floods:
        failures.append("%d connections ended for a flood" % floods)
    return Outcome("%d calls" % sum(counts.values()), failures=failures)


if __name__ == "__main__":
    run("honest clients", attack, budget_mib=7 * 4, latency=False)
