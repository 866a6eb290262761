#!/usr/bin/env python3
"""Measures --dtype=int8 and writes docs/benchmarks/int8.md.

  make build && scripts/int8_report.py --shared=../shared          about 15 minutes

Compares int8 with float32 and bfloat16: the time of a step of language models and of a classifier's batches,
without a server; then what rounding the weights does to the trained models of SHARED/checkpoints: accuracy and labels
of classifiers, bits per byte of the language model, exact match and F1 of the reader, translations. Parts can be left out or
chosen: --parts=steps,classifiers. Needs grpcio and numpy in this interpreter and PyTorch in the interpreter --python.
Exits with 1 if a figure is not as wanted.
"""

import json
import math
import statistics
import subprocess
import sys

sys.dont_write_bytecode = True
import report_common
from report_common import (Models, NotMeasured, Server, at_most, chunks, row, translate_method, answer_method)
from reader_report import Squad, squad_score
from sru_inference import Client  # client/python, where report_common looks

DTYPES = ("float32", "bfloat16", "int8")
CLASSIFIERS = {"trec": "TREC", "sst2": "SST-2", "subj": "SUBJ"}
SHAPES = ("4 x 512, projections of 128", "12 x 2,048, projections of 512", "5 x 1,024, 20,000 words")
# Weights in int8 that are larger than this are read from memory, not from a cache.
MEMORY_BOUND_MB = 40
CHUNK = 4096  # tokens of a call


def benchmarks(args, pattern):
    program = args.bin / "kernel_benchmarks"
    if not program.exists():
        raise NotMeasured("kernel_benchmarks is not built (Google Benchmark is not installed)")
    done = subprocess.run(
        [str(program), f"--benchmark_filter={pattern}", "--benchmark_format=json"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
    found = []
    for result in json.loads(done.stdout)["benchmarks"]:
        dimensions = dict(part.split(":") for part in result["name"].split("/") if ":" in part)
        found.append(({key: int(value) for key, value in dimensions.items() if value.isdigit()}, result))
    return found


def steps(args, _):
    """A step of language models on one thread, the types in turn in one run."""
    rows = []
    for dimensions, result in benchmarks(args, "BM_DecodingStepByType"):
        batch = dimensions["batch"]
        sessions = "1 session" if batch == 1 else f"{batch} sessions"
        name = f"step, {SHAPES[dimensions['shape']]}, {sessions}: int8 / bfloat16"
        times = [result[dtype + "_us"] for dtype in DTYPES]
        ratio = times[2] / times[1]
        detail = " ({:,.0f} / {:,.0f} us; float32 {:,.0f} us; weights {:.1f} / {:.1f} / {:.1f} MB)".format(
            times[2], times[1], times[0], *(result[dtype + "_mb"] for dtype in reversed(DTYPES)))
        if batch == 1 and result["int8_mb"] > MEMORY_BOUND_MB:
            rows.append(at_most(name, ratio, 0.5, detail))
        else:
            rows.append(row(name, f"{ratio:.2f}{detail}"))
        if batch == 1:
            rows.append(row("the same: step / time to read its weights once, int8, bfloat16, float32",
                            ", ".join(f"{result[d + '_us'] / result[d + '_reading_us']:.2f}"
                                      for d in reversed(DTYPES))
                            + f" (int8 {1e3 * result['int8_mb'] / result['int8_us']:.1f} GB/s)"))
    return rows


def batches(args, _):
    """A small classifier, 2 x 64 in both directions, 32 tokens a sentence."""
    times = {}
    for _ in range(3):
        for dimensions, result in benchmarks(args, "BM_Stack/length:32/"):
            key = (dimensions["batch"], DTYPES[dimensions["dtype"]])
            times.setdefault(key, []).append(result["cpu_time"])
    rows = []
    for batch in (1, 32):
        us = {dtype: statistics.median(times[(batch, dtype)]) for dtype in DTYPES}
        rows.append(row(f"classifier, batch of {batch}: int8 / bfloat16, int8 / float32",
                        f"{us['int8'] / us['bfloat16']:.2f}, {us['int8'] / us['float32']:.2f}"
                        f" ({us['int8']:,.0f} / {us['bfloat16']:,.0f} / {us['float32']:,.0f} us)"))
    return rows


def read_lines(path):
    if not path.exists():
        raise NotMeasured(f"{path} is not here")
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def classifiers(args, models):
    """Accuracy on the test sentences, and labels that differ from float32's."""
    rows = []
    for name, title in CLASSIFIERS.items():
        entries = read_lines(args.shared / "checkpoints" / name / "expected.jsonl")
        repository = models.checkpoint(name)
        labels = {}
        for dtype in DTYPES:
            with Server(args, repository, dtype) as server:
                client = Client(server.address)
                labels[dtype] = [result.label for part in chunks([entry["text"] for entry in entries], 100)
                                 for result in client.classify(part)]
                client.close()
        for dtype in DTYPES:
            right = sum(label == entry["label"] for label, entry in zip(labels[dtype], entries))
            differ = sum(a != b for a, b in zip(labels[dtype], labels["float32"]))
            text = f"{100 * right / len(entries):.2f}%"
            if dtype != "float32":
                text += f", {differ} of {len(entries):,} labels differ"
            rows.append(row(f"{title}: accuracy, {dtype}", text))
    return rows


def language_model(args, models):
    """Bits per byte of the test part of the book, read as one stream."""
    folder = args.shared / "checkpoints" / "lm_war_and_peace"
    stream = next(entry for entry in read_lines(folder / "expected.jsonl")
                  if entry["kind"] == "stream" and entry["part"] == "test")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    book = (args.shared / config["data"]["file"]).read_bytes()
    ids = {byte: i for i, byte in enumerate(config["vocabulary"])}
    tokens = [ids[byte] for byte in book[stream["begin"]:stream["end"]]]
    repository = models.checkpoint("lm_war_and_peace")
    bits = {}
    for dtype in DTYPES:
        with Server(args, repository, dtype, [f"--max_sequence_tokens={CHUNK}"]) as server:
            client = Client(server.address)
            log_probs, state = [], b""
            for part in chunks(tokens, CHUNK):
                found = client.score([part], states=[state] if state else [], return_states=True,
                                     token_log_probs=True, timeout=300)[0]
                log_probs += found.token_log_probs.tolist()
                state = found.state
            client.close()
        bits[dtype] = -math.fsum(log_probs) / math.log(2) / len(log_probs)
    rows = [row("language model, test part: bits per byte, float32", f"{bits['float32']:.4f}")]
    for dtype in DTYPES[1:]:
        more = bits[dtype] - bits["float32"]
        rows.append(row(f"the same: more than float32, {dtype}", f"{more:+.5f}",
                        "at most 0.02" if dtype == "int8" else "", dtype != "int8" or more <= 0.02))
    return rows


def reader(args, models):
    """Exact match and F1 on SQuAD's dev file, and answers that differ from float32's."""
    questions = Squad(args).questions[::args.every]
    repository = models.checkpoint("reader_squad")
    answers = {}
    for dtype in DTYPES:
        with Server(args, repository, dtype) as server, answer_method(server.address) as answer:
            answers[dtype] = [result.answers[0].text for response in answer.all(
                {"queries": [{"question": question, "passages": [passage]} for question, passage, _ in part]}
                for part in chunks(questions, 32)) for result in response.results]
    rows = []
    for dtype in DTYPES:
        scores = [squad_score(text, gold) for text, (_, _, gold) in zip(answers[dtype], questions)]
        exact, f1 = (100 * statistics.fmean(score[i] for score in scores) for i in (0, 1))
        text = f"{exact:.2f}, {f1:.2f}"
        if dtype != "float32":
            differ = sum(a != b for a, b in zip(answers[dtype], answers["float32"]))
            text += f"; {differ:,} answers differ"
        rows.append(row(f"reader, {len(questions):,} questions of SQuAD's dev file: exact match, F1, {dtype}", text))
    return rows


def translator(args, models):
    """Translations of the recorded sentences with a beam of 5 that differ from float32's, and their
    log-probabilities."""
    entries = read_lines(args.shared / "checkpoints" / "translator_multi30k" / "expected.jsonl")
    repository = models.checkpoint("translator_multi30k")
    found = {}
    for dtype in DTYPES:
        with Server(args, repository, dtype) as server, translate_method(server.address) as method:
            found[dtype] = [translation for response in method.all(
                {"sequences": [{"text": entry["source"]} for entry in part], "beam_size": 5}
                for part in chunks(entries, 25)) for translation in response.translations]
    rows = []
    for dtype in DTYPES[1:]:
        pairs = list(zip(found["float32"], found[dtype]))
        same = [(a, b) for a, b in pairs if a.hypotheses[0].text == b.hypotheses[0].text]
        differences = [abs(a.hypotheses[0].log_prob - b.hypotheses[0].log_prob) for a, b in same]
        rows.append(row(f"translator, beam of 5: sentences that differ from float32's, {dtype}",
                        f"{len(pairs) - len(same)} of {len(pairs)}"))
        rows.append(row(f"the same: difference of the others' log-probabilities, mean and largest, {dtype}",
                        f"{statistics.fmean(differences):.3f}, {max(differences):.3f}"))
    return rows


PARTS = {part.__name__: part for part in (steps, batches, classifiers, language_model, reader, translator)}

NOTES = """## How to read it

A step of one session reads every weight once: where these are larger than the caches it takes little longer than reading them, and the fewer bytes
the less time. Embeddings, of which a step reads a row, are a part of the megabytes and not of the time. With more sessions the weights that were read serve all of them, and what counts is how fast products
are. int8's are sums of whole numbers (`kernels/cpu/int8_product.h`), which AVX512_VNNI adds up twice as fast as
float32's; where bfloat16 has tiles of its own (AVX512_BF16, AMX) with the scan between them, these are faster for many rows.

Nothing but the weights of products is in 8 bits: embeddings are bfloat16, a classifier's last layer, scans, states and outputs float32.
One scale for each column is enough: no group scales, and no layer that is left out, were needed for the
figures above."""

COMMANDS = """## Commands

`scripts/int8_report.py --shared=../shared` reproduces every figure and writes this page. By themselves:

```
kernel_benchmarks --benchmark_filter=BM_DecodingStepByType      a step in every data type, and reading its weights
kernel_benchmarks --benchmark_filter=BM_Stack/length:32/        a classifier; dtype 0, 1, 2: float32, bfloat16, int8
kernel_benchmarks --benchmark_filter=BM_Product                 products alone: bytes of weights and operations per second
```
"""


def report(args, results):
    text = ("Each ratio is of two things measured in one run. Language models of the steps have random weights; the others are"
            " trained ones, against the same models in float32.")
    return report_common.page("int8", "int8_report.py", text, args, results, f"{NOTES}\n\n{COMMANDS}")


def main():
    parser = report_common.make_parser(__doc__, PARTS, "checkpoints and datasets", "int8.md")
    parser.add_argument("--every", type=int, default=1, help="only every so many-th question of SQuAD")
    return report_common.run(parser, PARTS, Models, report)


if __name__ == "__main__":
    sys.exit(main())
