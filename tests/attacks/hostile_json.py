"""JSON of 4 MB that is nothing but small lists and objects, keys, escapes or levels, to every kind of route. Each is answered within three
seconds, with one of them after the other on four connections."""

import threading
import time

import http1
from harness import Outcome, run

SIZE = 4000000
MOST_S = 3.0


def repeated(unit, size=SIZE, between=","):
    return between.join([unit] * (size // (len(unit) + len(between))))


def many_keys():
    return "{" + ",".join('"%d":1' % key for key in range(SIZE // 12)) + "}"


VALUES = {
    "objects": lambda: "[" + repeated("{}") + "]",
    "lists": lambda: "[" + repeated("[]") + "]",
    "numbers": lambda: "[" + repeated("1") + "]",
    "keys": many_keys,
    "one key": lambda: "{" + repeated('"a":1') + "}",
    "escapes": lambda: '"' + repeated("\\u4e2d", between="") + '"',
    "levels": lambda: repeated("[", between=""),
}
BODIES = {
    "/v1/completions": ('{"prompt":%s}', '{"prompt":"a","logit_bias":%s}'),
    "/v1/classify": ('{"sequences":%s}', '{"sequences":[{"text":%s}]}'),
    "/v2/models/trec/infer": ('{"inputs":[{"name":"text","shape":[9],"datatype":"BYTES","data":%s}]}',),
    "/v2/translate": ('{"target_lang":"de","text":%s}',),
    "/translate": ('{"source":"en","target":"de","q":%s}', '{"source":"en","target":"de","q":"a","x":%s}'),
    "/sru.v1.InferenceService/Classify": ('{"sequences":%s}',),
}


def attack(target):
    jobs = [(path, body, name) for path, bodies in BODIES.items() for body in bodies for name in VALUES]
    values = {name: make() for name, make in VALUES.items()}
    failures, slowest = [], [0.0]
    lock = threading.Lock()

    def work():
        while True:
            with lock:
                if not jobs:
                    return
                path, body, name = jobs.pop()
            start = time.monotonic()
            status, _ = http1.post(target.port, path, body % values[name])
            taken = time.monotonic() - start
            with lock:
                slowest[0] = max(slowest[0], taken)
                if status not in (400, 413, 429, 503) or taken > MOST_S:
                    failures.append("%s, %s: %s after %.1f s" % (path, name, status, taken))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    count = len(BODIES) * len(VALUES)
    return Outcome("at least %d bodies, the slowest %.2f s" % (count, slowest[0]), failures=failures)


if __name__ == "__main__":
    http1.skip_without_http()
    run("hostile JSON", attack, budget_mib=96, seconds=10, flags=["--max_inflight_mb=64"])  # bodies that come are counted apart
