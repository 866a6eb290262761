"""Words of megabytes to a model with subwords (BPE), where every neighbor might be merged with the next one: over gRPC, as JSON, and just
short enough to be read by the thread that others' connections wait for. None may take a tenth of a second of the processor."""

import json
import os
import shutil
import struct
import sys
import tempfile
import threading

import http1
from harness import CLASSIFY, Outcome, run
from http2 import Closed, Connection, field, varint

LONGEST = 16  # of a piece
PIECES = 8759  # of the model that lends its weights


def processor_seconds(pid):
    with open("/proc/%d/stat" % pid, encoding="ascii") as stat:
        times = stat.read().rsplit(")", 1)[1].split()[11:13]
    return sum(map(int, times)) / os.sysconf("SC_CLK_TCK")


def piece(text, score, kind=1):
    return field(1, field(1, text.encode()) + varint(2 << 3 | 5) + struct.pack("<f", score) + field(3, kind))


def make_repository(pretrained, folder):
    """The bundled classifier, with a made-up file of pieces in the place of its words."""
    shutil.copytree(os.path.join(pretrained, "trec"), os.path.join(folder, "bpe"))
    version = os.path.join(folder, "bpe", "1")
    os.remove(os.path.join(version, "vocab.txt"))
    path = os.path.join(version, "config.json")
    with open(path, encoding="utf-8") as file:
        config = json.load(file)
    config["preprocessing"] = {"type": "sentencepiece"}
    del config["embedding"]["oov_id"]
    with open(path, "w", encoding="utf-8") as file:
        json.dump(config, file)
    pieces = [piece("<unk>", 0, 2)] + [piece(one, -1) for one in "abcdefghijklmnopqrstuvwxyz\u2581"]
    pieces += [piece("a" * size, -2 - size) for size in range(2, LONGEST + 1)]
    pieces += [piece("z%d" % i, -100 - i) for i in range(PIECES - len(pieces))]
    trainer, normalizer = field(3, 2), field(3, 1) + field(4, 1)
    with open(os.path.join(version, "spm.model"), "wb") as file:
        file.write(b"".join(pieces) + field(2, trainer) + field(3, normalizer))


def attack(target):
    codes = {}
    before = processor_seconds(target.pid)

    def repeat(name, call):
        while target.time_left() > 0:
            key = "%s %s" % (name, call())
            codes[key] = codes.get(key, 0) + 1

    def classify(size):
        try:
            with Connection(target.port) as connection:
                return connection.call(CLASSIFY, field(3, field(1, b"a" * size))).code
        except Closed:
            return "CLOSED"

    body = json.dumps({"sequences": [{"text": "a" * 3000000}]})
    calls = {
        "3 MB": lambda: classify(3000000),
        "60 kB": lambda: classify(60000),
        "JSON": lambda: http1.post(target.port, "/v1/classify", body)[0],
    }
    threads = [threading.Thread(target=repeat, args=item) for item in calls.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    count = sum(codes.values())
    seconds = (processor_seconds(target.pid) - before) / count
    failures = []
    if seconds > 0.1:
        failures.append("%.2f s of the processor for each of %d texts" % (seconds, count))
    for key in codes:
        if not key.endswith((" INVALID_ARGUMENT", " 400", " RESOURCE_EXHAUSTED")):
            failures.append("answered with " + key)
    return Outcome("%s, %.0f ms each" % (codes, 1e3 * seconds), failures=failures)


if __name__ == "__main__":
    http1.skip_without_http()
    with tempfile.TemporaryDirectory() as repository:
        make_repository(sys.argv[2], repository)
        sys.argv[2] = repository
        run("words of megabytes", attack, budget_mib=64, seconds=2.5)
