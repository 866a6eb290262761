"""Words of megabytes to a model with subwords (BPE), where every neighbor might be merged with the next one: over gRPC, as JSON, and just
short enough to be read by the thread that others' connections wait for. None may take a tenth of a second of the processor."""

import json
import os
import shutil
import struct

import http1
from harness import CLASSIFY, Outcome, classify_request, counts, only, repeatedly, row
from http2 import Connection, field, varint

LONGEST = 16  # of a piece
PIECES = 8759  # of the model that lends its weights


def processor_seconds(pid):
    with open("/proc/%d/stat" % pid, encoding="ascii") as stat:
        times = stat.read().rsplit(")", 1)[1].split()[11:13]
    return sum(map(int, times)) / os.sysconf("SC_CLK_TCK")


def piece(text, score, kind=1):
    return field(1, field(1, text.encode()) + varint(2 << 3 | 5) + struct.pack("<f", score) + field(3, kind))


def words_of_pieces(setting):
    """The bundled classifier, with a made-up file of pieces in the place of its words."""
    folder = os.path.join(setting.directory, "pieces")
    shutil.copytree(os.path.join(setting.repository, "trec"), os.path.join(folder, "bpe"))
    setting.repository = folder
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


@row(given=words_of_pieces, budget_mib=64, seconds=2.5)
def long_words(target):
    """Words of megabytes over gRPC and as JSON, and some just short enough for the thread that others' connections wait for."""
    before = processor_seconds(target.pid)

    def classify(size):
        with Connection(target.port) as connection:
            return connection.call(CLASSIFY, classify_request("a" * size)).code

    body = json.dumps({"sequences": [{"text": "a" * 3000000}]})
    found = repeatedly(target, {
        "3 MB": lambda: classify(3000000),
        "60 kB": lambda: classify(60000),
        "JSON": lambda: http1.call(target.port, "/v1/classify", body)[0],
    })  # fmt: skip
    count = sum(map(len, found.values()))
    seconds = (processor_seconds(target.pid) - before) / count
    failures = [name + ": " + wrong for name in found for wrong in only(found[name], "INVALID_ARGUMENT", 400, "RESOURCE_EXHAUSTED")]
    if seconds > 0.1:
        failures.append("%.2f s of the processor for each of %d texts" % (seconds, count))
    texts = ["%s: %s" % (name, counts(codes)) for name, codes in found.items()]
    return Outcome("%s; %.0f ms each" % (", ".join(texts), 1e3 * seconds), failures=failures)
