#!/usr/bin/env python3
"""Compares Score with what PyTorch computes and writes docs/benchmarks/score.md.

  make build && scripts/score_report.py --shared=../shared          about 8 minutes

Exports the language model of SHARED/checkpoints/lm_war_and_peace, serves it on each backend that runs
here, in float32 and bfloat16, and asks for

* the passages of its expected.jsonl, whose log-probabilities were recorded with PyTorch;
* the test part of the book as one stream, carried by states from call to call, in calls of 7, 1,000 and
  4,096 tokens, and a beginning of it in calls of 1: all of them must give equal bits.

Needs PyTorch for the export, grpcio and numpy for the calls. Exits with 1 if a figure is not as wanted.
"""

import argparse
import datetime
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "client" / "python"))
sys.dont_write_bytecode = True
from sru_inference import Client  # noqa: E402  (client/python)

CHUNKS = (4096, 1000, 7, 1)
# Tokens that are read in calls of one token, and all that the reference backend reads.
FEW_TOKENS = 3000
# What a difference to the recorded figures may be; passages are compared in bits per byte from 100
# bytes on. None: reported only.
WANTED = {
    "float32": {"log_prob": 3e-4, "passage_bits": 2e-5, "stream_bits": 1e-5},
    "bfloat16": {"log_prob": None, "passage_bits": None, "stream_bits": 0.01},
}
LEAST_BYTES = 100


def progress(text):
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


class Server:
    """A server of one model, on a port that the system picks."""

    def __init__(self, binaries, repository, backend, dtype):
        self.process = subprocess.Popen(
            [
                str(binaries / "sru_server"),
                f"--model_repository={repository}",
                f"--backend={backend}",
                f"--dtype={dtype}",
                "--max_sequence_tokens=4096",
                "--listen=127.0.0.1:0",
                "--metrics_listen=127.0.0.1:0",
                "--http_listen=",
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        found = re.match(r"listening on ([^,]+),", self.process.stdout.readline())
        if not found:
            self.process.wait()
            self.error = self.process.stderr.read().strip().split("\n")[-1]
            self.client = None
            return
        self.client = Client(found.group(1))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.client is not None:
            self.client.close()
        self.process.terminate()
        self.process.communicate()


class Corpus:
    """The recorded figures, the book and the ids of its bytes."""

    def __init__(self, shared):
        folder = shared / "checkpoints" / "lm_war_and_peace"
        self.config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        self.book = (shared / self.config["data"]["file"]).read_bytes()
        self.ids = {byte: i for i, byte in enumerate(self.config["vocabulary"])}
        self.passages, self.streams = [], {}
        for line in (folder / "expected.jsonl").read_text(encoding="utf-8").splitlines():
            entry = json.loads(line)
            if entry["kind"] == "score":
                self.passages.append(entry)
            elif entry["kind"] == "stream":
                self.streams[entry["part"]] = entry

    def encode(self, data):
        return [self.ids[byte] for byte in data]


def passage_differences(client, corpus):
    """The largest difference of a log-probability, and of the bits per byte of a passage."""
    log_prob = bits = 0.0
    for start in range(0, len(corpus.passages), 32):
        passages = corpus.passages[start:start + 32]
        texts = [bytes(p["text_bytes"]) if "text_bytes" in p else p["text"].encode("utf-8")
                 for p in passages]
        response = client.score([corpus.encode(text) for text in texts], token_log_probs=True,
                                timeout=300)
        for passage, text, found in zip(passages, texts, response):
            expected = passage["log_probs"][1:]
            if found.token_count != len(text) or found.scored_count != len(expected):
                sys.exit(f"a passage of {len(text)} bytes: {found.scored_count} are scored")
            for a, b in zip(expected, found.token_log_probs.tolist()):
                log_prob = max(log_prob, abs(a - b))
            if len(text) >= LEAST_BYTES:
                bits = max(bits, abs(found.bits_per_token - passage["bpc"]))
    return log_prob, bits


class Stream:
    """What a text gives that is read in calls of `chunk` tokens."""

    def __init__(self, client, ids, chunk):
        self.log_probs, self.log_prob, self.state = [], 0.0, b""
        start = time.monotonic()
        for i in range(0, len(ids), chunk):
            response = client.score(
                [ids[i:i + chunk]], states=[self.state] if self.state else [], return_states=True,
                token_log_probs=True, timeout=300)
            found = response[0]
            self.log_probs += found.token_log_probs.tolist()
            self.log_prob += found.log_prob
            self.state = found.state
        self.seconds = time.monotonic() - start
        self.tokens_per_second = len(ids) / self.seconds

    def bits(self):
        return -math.fsum(self.log_probs) / math.log(2) / len(self.log_probs)


def measure(client, corpus, backend, dtype):
    progress(f"{backend}, {dtype}: passages")
    result = {"backend": backend, "dtype": dtype, "tokens_per_second": {}}
    result["log_prob"], result["passage_bits"] = passage_differences(client, corpus)
    expected = corpus.streams["test"]
    ids = corpus.encode(corpus.book[expected["begin"]:expected["end"]])
    few = ids[:FEW_TOKENS]
    whole = backend != "reference"
    first = {}
    for chunk in CHUNKS:
        given = ids if whole and chunk > 1 else few
        progress(f"{backend}, {dtype}: {len(given)} tokens in calls of {chunk}")
        stream = Stream(client, given, chunk)
        result["tokens_per_second"][chunk] = stream.tokens_per_second
        # The first stream of this length is what the others must be, bit by bit.
        same = first.setdefault(len(given), stream)
        result["equal_bits"] = (result.get("equal_bits", True)
                                and stream.log_probs == same.log_probs
                                and stream.state == same.state)
    if whole:
        # What was read one by one is how the long stream begins.
        begin = first[len(few)].log_probs
        result["equal_bits"] &= begin == first[len(ids)].log_probs[:len(begin)]
        stream = first[len(ids)]
        if len(stream.log_probs) != expected["scored"]:
            sys.exit(f"expected {expected['scored']} scored tokens, found {len(stream.log_probs)}")
        result["bits"] = stream.bits()
        result["stream_bits"] = abs(stream.bits() - expected["bpc"])
        if backend == "cpu" and dtype == "float32":
            progress(f"{backend}, {dtype}: the valid part")
            valid = corpus.streams["valid"]
            found = Stream(client, corpus.encode(corpus.book[valid["begin"]:valid["end"]]), 4096)
            result["valid_bits"] = abs(found.bits() - valid["bpc"])
    return result


def failures(result):
    name = f"{result['backend']}, {result['dtype']}"
    wanted = WANTED[result["dtype"]]
    found = []
    if not result["equal_bits"]:
        found.append(f"{name}: the bits depend on how the stream is cut")
    for key in ("log_prob", "passage_bits", "stream_bits"):
        if wanted[key] is not None and result.get(key, 0) > wanted[key]:
            found.append(f"{name}: {key} differs by {result[key]:.2g}, wanted {wanted[key]:.2g}")
    return found


def figure(value, limit):
    if value is None:
        return "–"
    return f"{value:.1e}" + ("" if limit is None else f" (at most {limit:.0e})")


def report(results, missing, corpus):
    test = corpus.streams["test"]
    lines = [
        "# Score",
        "",
        "Written by `scripts/score_report.py`, which reproduces every figure: the language model"
        f" `lm_war_and_peace` ({corpus.config['parameters']:,} parameters, bytes), against what"
        f" {corpus.config['made_with']} computes in float32.",
        "",
        f"Machine: {os.cpu_count()} cores. Date: {datetime.date.today()}.",
        "",
        "## The same figures",
        "",
        f"{len(corpus.passages)} passages of the book, and its test part ({test['scored'] + 1:,} bytes) as one stream"
        f" that states carry from call to call, for which PyTorch gives {test['bpc']:.6f} bits per byte. The reference"
        f" backend reads the first {FEW_TOKENS:,} bytes of the stream.",
        "",
        "| backend | type | passages: a log-probability differs by | bits per byte differ by | test part: bits per byte"
        " | differ by | equal bits in calls of 1, 7, 1,000 and 4,096 tokens |",
        "|---|---|---|---|---|---|---|",
    ]
    for result in results:
        wanted = WANTED[result["dtype"]]
        bits = f"{result['bits']:.6f}" if "bits" in result else "–"
        lines.append(
            f"| {result['backend']} | {result['dtype']} | {figure(result['log_prob'], wanted['log_prob'])} |"
            f" {figure(result['passage_bits'], wanted['passage_bits'])} | {bits} |"
            f" {figure(result.get('stream_bits'), wanted['stream_bits'])} |"
            f" {'yes' if result['equal_bits'] else '**no**'} |")
    for result in results:
        if "valid_bits" in result:
            lines += ["", f"The valid part ({result['backend']}, {result['dtype']}) differs by"
                          f" {result['valid_bits']:.1e} bits per byte."]
    lines += [
        "",
        "## One stream, by tokens per call",
        "",
        "Tokens per second of one caller that waits for each answer and sends its state with the next call: a state takes"
        " part of the time of a short call. Times move with the machine.",
        "",
        "| backend | type | " + " | ".join(f"{chunk:,}" for chunk in reversed(CHUNKS)) + " |",
        "|---|---|" + "---|" * len(CHUNKS),
    ]
    for result in results:
        rates = " | ".join(f"{result['tokens_per_second'][chunk]:,.0f}" for chunk in reversed(CHUNKS))
        lines.append(f"| {result['backend']} | {result['dtype']} | {rates} |")
    if missing:
        lines += ["", "Not measured: " + "; ".join(missing) + "."]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=pathlib.Path, default=ROOT.parent / "shared",
                        help="folder with checkpoints/lm_war_and_peace and its book")
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build" / "bin",
                        help="folder with sru_server")
    parser.add_argument("--backends", default="cpu,cuda,reference")
    parser.add_argument("--dtypes", default="float32,bfloat16")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "docs" / "benchmarks" / "score.md")
    args = parser.parse_args()
    corpus = Corpus(args.shared)
    checkpoint = args.shared / "checkpoints" / "lm_war_and_peace"
    results, missing = [], []
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [sys.executable, str(ROOT / "models" / "export_torch.py"), "--checkpoint",
             str(checkpoint / "checkpoint.pt"), "--config", str(checkpoint / "config.json"), "--out",
             f"{folder}/war_and_peace/1"], check=True, stdout=subprocess.DEVNULL)
        for backend in args.backends.split(","):
            for dtype in args.dtypes.split(","):
                with Server(args.bin, folder, backend, dtype) as server:
                    if server.client is None:
                        progress(f"{backend}, {dtype}: {server.error}")
                        missing.append(f"{backend}, {dtype}, which does not run on this machine")
                        continue
                    results.append(measure(server.client, corpus, backend, dtype))
    args.out.write_text(report(results, missing, corpus), encoding="utf-8")
    progress(f"wrote {args.out}")
    failed = [line for result in results for line in failures(result)]
    for line in failed:
        print(line, file=sys.stderr)
    return 1 if failed or not results else 0


if __name__ == "__main__":
    sys.exit(main())
