#!/usr/bin/env python3
"""Compares Score with what PyTorch computes and writes build/reports/score.md.

  make build && scripts/score_report.py --shared=../shared          about 8 minutes

Serves the language model of SHARED/checkpoints/lm_war_and_peace on each backend that runs here, in float32 and bfloat16, and asks for

* the passages of its expected.jsonl, whose log-probabilities were recorded with PyTorch;
* the test part of the book as one stream, carried by states from call to call, in calls of 7, 1,000 and 4,096 tokens, and a beginning of
  it in calls of 1: all of them must give equal bits.

Needs PyTorch for the export, grpcio and numpy for the calls. Exits with 1 if a figure is not as wanted.
"""

import json
import math
import sys
import time

from report_calls import Client
from report_common import NotMeasured, Report, Row, Server, Table, chunks, difference, progress

MODEL = "lm_war_and_peace"
CHUNKS = (4096, 1000, 7, 1)
# Tokens that are read in calls of one token, and all that the reference backend reads.
FEW_TOKENS = 3000
# What a difference to the recorded figures may be; passages are compared in bits per byte from 100 bytes on.
WANTED = {"float32": {"log_prob": 3e-4, "passage_bits": 2e-5, "stream_bits": 1e-5}, "bfloat16": {"stream_bits": 0.01}}
LEAST_BYTES = 100


class Corpus:
    """The recorded figures, the book and the ids of its bytes."""

    def __init__(self, shared):
        folder = shared / "checkpoints" / MODEL
        if not folder.exists():
            raise NotMeasured(f"{folder} is not here")
        self.config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        self.book = (shared / self.config["data"]["file"]).read_bytes()
        self.ids = {byte: i for i, byte in enumerate(self.config["vocabulary"])}
        self.entries = [json.loads(line) for line in (folder / "expected.jsonl").read_text(encoding="utf-8").splitlines()]
        self.passages = [entry for entry in self.entries if entry["kind"] == "score"]
        self.streams = {entry["part"]: entry for entry in self.entries if entry["kind"] == "stream"}

    def encode(self, data):
        return [self.ids[byte] for byte in data]

    def part(self, name):
        return self.encode(self.book[self.streams[name]["begin"]:self.streams[name]["end"]])


def bytes_of(entry, key):
    return bytes(entry[key + "_bytes"]) if key + "_bytes" in entry else entry[key].encode("utf-8")


def passage_differences(client, corpus):
    """The largest difference of a log-probability, and of the bits per byte of a passage."""
    log_prob = bits = 0.0
    for passages in chunks(corpus.passages, 32):
        texts = [bytes_of(passage, "text") for passage in passages]
        response = client.score([corpus.encode(text) for text in texts], token_log_probs=True, timeout=300)
        for passage, text, found in zip(passages, texts, response):
            expected = passage["log_probs"][1:]
            if found.token_count != len(text) or found.scored_count != len(expected):
                sys.exit(f"a passage of {len(text)} bytes: {found.scored_count} are scored")
            log_prob = max(log_prob, *(abs(a - b) for a, b in zip(expected, found.token_log_probs.tolist())), 0.0)
            if len(text) >= LEAST_BYTES:
                bits = max(bits, abs(found.bits_per_token - passage["bpc"]))
    return log_prob, bits


class Stream:
    """What a text gives that is read in calls of `chunk` tokens."""

    def __init__(self, client, ids, chunk):
        self.log_probs, self.state = [], b""
        start = time.monotonic()
        for part in chunks(ids, chunk):
            found = client.score([part], states=[self.state] if self.state else [], return_states=True, token_log_probs=True,
                                 timeout=300)[0]
            self.log_probs += found.token_log_probs.tolist()
            self.state = found.state
        self.tokens_per_second = len(ids) / (time.monotonic() - start)

    def bits(self):
        return -math.fsum(self.log_probs) / math.log(2) / len(self.log_probs)


def measure(client, corpus, backend, dtype):
    """(cells of the table of differences, tokens per second of each of CHUNKS, the difference of the valid part or None)"""
    name, wanted, rates = f"{backend}, {dtype}", WANTED[dtype], []
    cells = [difference(f"{name}: {key}", found, wanted.get(key))
             for key, found in zip(("log_prob", "passage_bits"), passage_differences(client, corpus))]
    test, few = corpus.part("test"), corpus.part("test")[:FEW_TOKENS]
    whole = backend != "reference"
    equal, first, valid = True, {}, None
    for chunk in CHUNKS:
        given = test if whole and chunk > 1 else few
        progress(f"{name}: {len(given)} tokens in calls of {chunk}")
        stream = Stream(client, given, chunk)
        rates.append(stream.tokens_per_second)
        # The first stream of this length is what the others must be, bit by bit.
        same = first.setdefault(len(given), stream)
        equal &= stream.log_probs == same.log_probs and stream.state == same.state
    if whole:
        # What was read one by one is how the long stream begins.
        begin, stream, expected = first[len(few)].log_probs, first[len(test)], corpus.streams["test"]
        equal &= begin == stream.log_probs[:len(begin)]
        if len(stream.log_probs) != expected["scored"]:
            sys.exit(f"expected {expected['scored']} scored tokens, found {len(stream.log_probs)}")
        cells += [f"{stream.bits():.6f}",
                  difference(f"{name}: stream_bits", abs(stream.bits() - expected["bpc"]), wanted["stream_bits"])]
        if backend == "cpu" and dtype == "float32":
            valid = Stream(client, corpus.part("valid"), CHUNKS[0]).bits() - corpus.streams["valid"]["bpc"]
    else:
        cells += ["–", "–"]
    return [*cells, Row(f"{name}: equal bits however the stream is cut", "yes" if equal else "no", "", equal)], rates, valid


def figures(args, models):
    """Every backend and type, in one part: each is a row of two tables."""
    corpus = Corpus(args.shared)
    test, calls = corpus.streams["test"], [f"{chunk:,}" for chunk in reversed(CHUNKS)]
    yield (f"## The same figures\n\n{len(corpus.passages)} passages of the book, and its test part ({test['scored'] + 1:,} bytes) as one"
           f" stream that states carry from call to call, for which PyTorch gives {test['bpc']:.6f} bits per byte"
           f" ({corpus.config['made_with']}, float32). The reference backend reads the first {FEW_TOKENS:,} bytes of the stream.")
    same, speeds, notes, missing = [], [], [], []
    for backend in args.backends.split(","):
        for dtype in args.dtypes.split(","):
            try:
                with Server(args, models.checkpoint(MODEL), dtype, ["--max_sequence_tokens=4096"], backend=backend) as server, \
                        Client(server.address) as client:
                    cells, rates, valid = measure(client, corpus, backend, dtype)
            except NotMeasured as error:
                progress(f"{backend}, {dtype}: {error}")
                missing.append(f"{backend}, {dtype}, which does not run on this machine")
                continue
            same.append((backend, dtype, *cells))
            speeds.append((backend, dtype, *(f"{rate:,.0f}" for rate in reversed(rates))))
            if valid is not None:
                notes.append(f"The valid part ({backend}, {dtype}) differs by {abs(valid):.1e} bits per byte.")
    if not same:
        raise NotMeasured("; ".join(missing))
    yield Table(("backend", "type", "passages: a log-probability differs by", "bits per byte differ by", "test part: bits per byte",
                 "differ by", "equal bits in calls of 1, 7, 1,000 and 4,096 tokens"), same)
    yield from notes
    yield ("## One stream, by tokens per call\n\nTokens per second of one caller that waits for each answer and sends its state with the"
           " next call: a state takes part of the time of a short call. Times move with the machine.")
    yield Table(("backend", "type", *calls), speeds)
    if missing:
        yield f"Not measured: {'; '.join(missing)}."


def main():
    report = Report(__file__, "Score", f"The language model `{MODEL}` (bytes), against what PyTorch computes.", (figures,))
    report.parser.add_argument("--backends", default="cpu,cuda,reference")
    report.parser.add_argument("--dtypes", default="float32,bfloat16")
    return report.run()


if __name__ == "__main__":
    sys.exit(main())
