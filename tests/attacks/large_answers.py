"""Small requests with large answers, as JSON and in gRPC: one long text and many short ones, whose vectors are padded to the same length;
vectors of each token; candidates for each token. Each answer takes a processor a quarter of a second."""

import threading

import http1
from harness import Outcome, run
from http2 import Closed, Connection, field

LONG = "a " * 2047
PADDED = {
    "inputs": [{"name": "text", "shape": [16], "datatype": "BYTES", "data": [LONG] + ["a"] * 15}],
    "parameters": {"pooling": "none"},
    "outputs": [{"name": "encoding"}],
}
VECTORS = {"model": "trec", "pooling": "POOLING_NONE", "sequences": [{"text": LONG}] * 4}
SCORE = "/sru.v1.InferenceService/Score"
CANDIDATES = field(1, b"war_and_peace") + field(3, field(1, b"a" * 2048)) * 2 + field(7, 113)


def attack(target):
    outcomes = {}

    def repeat(name, call):
        while target.time_left() > 0:
            outcome = call()
            outcomes.setdefault(name, []).append(outcome)

    def score():
        try:
            with Connection(target.port) as connection:
                answer = connection.call(SCORE, CANDIDATES, timeout=20)
                return answer.code, len(answer.body)
        except Closed:
            return "CLOSED", 0

    calls = {
        "padded": lambda: http1.post(target.port, "/v2/models/trec/infer", PADDED),
        "vectors": lambda: http1.post(target.port, "/v1/encode", VECTORS),
        "candidates": score,
    }
    threads = [threading.Thread(target=repeat, args=item) for item in calls.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    text, failures = [], []
    for name, all_of_it in sorted(outcomes.items()):
        sizes = [size for code, size in all_of_it if code in (200, "OK")]
        text.append("%s: %d answers of %.0f MB" % (name, len(sizes), max(sizes, default=0) / 1e6))
        if not sizes or min(sizes) < 0.99 * max(sizes):  # the times in them vary
            failures.append("%s: %s" % (name, all_of_it[:5]))
    return Outcome(", ".join(text), failures=failures)


def refused_before_the_work(server, outcome):
    """An answer that would not fit costs nothing."""
    before = server.metric("sru_batch_tokens_sum")
    padded = dict(PADDED, inputs=[dict(PADDED["inputs"][0], shape=[256], data=[LONG] + ["a"] * 255)])
    status, _ = http1.post(server.port, "/v2/models/trec/infer", padded)
    outcome.text += "; 268 MB: %d" % status
    if status != 429 or server.metric("sru_batch_tokens_sum") != before:
        return ["an answer of 268 MB: %d, or it was computed" % status]
    return []


if __name__ == "__main__":
    http1.skip_without_http()
    run("small requests, large answers", attack, budget_mib=192, seconds=3, flags=["--max_inflight_mb=192"], after=refused_before_the_work)
