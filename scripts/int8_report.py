#!/usr/bin/env python3
"""Measures --dtype=int8 and writes build/reports/int8.md.

  make build && scripts/int8_report.py --shared=../shared          about 15 minutes

Compares int8 with float32 and bfloat16: the time of a step of language models and of a classifier's batches, without a server; then what
rounding the weights does to the trained models of SHARED/checkpoints: accuracy and labels of classifiers, bits per byte of the language
model, exact match and F1 of the reader, translations. Parts can be left out or chosen: --parts=steps,classifiers. Needs grpcio and numpy in
this interpreter and PyTorch in the interpreter --python. Exits with 1 if a figure is not as wanted.
"""

import statistics
import sys

from reader_report import Squad, squad_answers
from report_calls import Client, Method
from report_common import Report, Row, Server, at_most, chunks, kernel_benchmarks
from score_report import Corpus, Stream
from translator_report import translated

DTYPES = ("float32", "bfloat16", "int8")
CLASSIFIERS = {"trec": "TREC", "sst2": "SST-2", "subj": "SUBJ"}
SHAPES = ("4 x 512, projections of 128", "12 x 2,048, projections of 512", "5 x 1,024, 20,000 words")
# Weights in int8 that are larger than this are read from memory, not from a cache.
MEMORY_BOUND_MB = 40


def steps(args, _):
    """A step of language models on one thread, the types in turn in one run."""
    for dimensions, result in kernel_benchmarks(args, "BM_DecodingStepByType"):
        batch = dimensions["batch"]
        name = f"step, {SHAPES[dimensions['shape']]}, {batch} session{'s' * (batch > 1)}: int8 / bfloat16"
        times = [result[dtype + "_us"] for dtype in DTYPES]
        detail = " ({:,.0f} / {:,.0f} us; float32 {:,.0f} us; weights {:.1f} / {:.1f} / {:.1f} MB)".format(
            times[2], times[1], times[0], *(result[dtype + "_mb"] for dtype in reversed(DTYPES)))
        ratio = times[2] / times[1]
        bound = batch == 1 and result["int8_mb"] > MEMORY_BOUND_MB
        yield at_most(name, ratio, 0.5, detail) if bound else Row(name, f"{ratio:.2f}{detail}")
        if batch == 1:
            read = ", ".join(f"{result[dtype + '_us'] / result[dtype + '_reading_us']:.2f}" for dtype in reversed(DTYPES))
            yield Row("the same: step / time to read its weights once, int8, bfloat16, float32",
                      f"{read} (int8 {1e3 * result['int8_mb'] / result['int8_us']:.1f} GB/s)")


def batches(args, _):
    """A small classifier, 2 x 64 in both directions, 32 tokens a sentence."""
    times = {}
    for _ in range(3):
        for dimensions, result in kernel_benchmarks(args, "BM_Stack/length:32/"):
            times.setdefault((dimensions["batch"], DTYPES[dimensions["dtype"]]), []).append(result["cpu_time"])
    for batch in (1, 32):
        float32, bfloat16, int8 = (statistics.median(times[(batch, dtype)]) for dtype in DTYPES)
        yield Row(f"classifier, batch of {batch}: int8 / bfloat16, int8 / float32",
                  f"{int8 / bfloat16:.2f}, {int8 / float32:.2f} ({int8:,.0f} / {bfloat16:,.0f} / {float32:,.0f} us)")


def differing(found, dtype):
    """How many of what was found with a type differ from float32's."""
    return sum(a != b for a, b in zip(found[dtype], found["float32"]))


def classifiers(args, models):
    """Accuracy on the test sentences, and labels that differ from float32's."""
    for name, title in CLASSIFIERS.items():
        entries = models.lines("checkpoints", name, "expected.jsonl")
        labels = {}
        for dtype in DTYPES:
            with Server(args, models.checkpoint(name), dtype) as server, Client(server.address) as client:
                labels[dtype] = [result.label for part in chunks([entry["text"] for entry in entries], 100)
                                 for result in client.classify(part)]
            right = sum(label == entry["label"] for label, entry in zip(labels[dtype], entries))
            differ = f", {differing(labels, dtype)} of {len(entries):,} labels differ" if dtype != "float32" else ""
            yield Row(f"{title}: accuracy, {dtype}", f"{100 * right / len(entries):.2f}%{differ}")


def language_model(args, models):
    """Bits per byte of the test part of the book, read as one stream."""
    corpus = Corpus(args.shared)
    bits = {}
    for dtype in DTYPES:
        with Server(args, models.checkpoint("lm_war_and_peace"), dtype, ["--max_sequence_tokens=4096"]) as server, \
                Client(server.address) as client:
            bits[dtype] = Stream(client, corpus.part("test"), 4096).bits()
    yield Row("language model, test part: bits per byte, float32", f"{bits['float32']:.4f}")
    for dtype, limit in (("bfloat16", ""), ("int8", "at most 0.02")):
        more = bits[dtype] - bits["float32"]
        yield Row(f"the same: more than float32, {dtype}", f"{more:+.5f}", limit, not limit or more <= 0.02)


def reader(args, models):
    """Exact match and F1 on SQuAD's dev file, and answers that differ from float32's."""
    questions = Squad(models).questions[::args.every]
    answers = {}
    for dtype in DTYPES:
        answers[dtype], (exact, f1) = squad_answers(args, models, questions, dtype)
        differ = f"; {differing(answers, dtype):,} answers differ" if dtype != "float32" else ""
        yield Row(f"reader, {len(questions):,} questions of SQuAD's dev file: exact match, F1, {dtype}",
                  f"{exact:.2f}, {f1:.2f}{differ}")


def translator(args, models):
    """Translations of the recorded sentences with a beam of 5 that differ from float32's, and their log-probabilities."""
    sources = [entry["source"] for entry in models.lines("checkpoints", "translator_multi30k", "expected.jsonl")]
    found = {}
    for dtype in DTYPES:
        with Server(args, models.checkpoint("translator_multi30k"), dtype) as server, Method(server.address, "Translate") as method:
            found[dtype] = [translation.hypotheses[0] for translation in translated(method, sources, beam_size=5)]
    for dtype in DTYPES[1:]:
        differences = [abs(a.log_prob - b.log_prob) for a, b in zip(found["float32"], found[dtype]) if a.text == b.text]
        yield Row(f"translator, beam of 5: sentences that differ from float32's, {dtype}",
                  f"{len(sources) - len(differences)} of {len(sources)}")
        yield Row(f"the same: difference of the others' log-probabilities, mean and largest, {dtype}",
                  f"{statistics.fmean(differences):.3f}, {max(differences):.3f}")


def main():
    report = Report(__file__, "int8",
                    "Each ratio is of two things measured in one run. Language models of the steps have random weights; the others are"
                    " trained ones, against the same models in float32.",
                    (steps, batches, classifiers, language_model, reader, translator))
    report.parser.add_argument("--every", type=int, default=1, help="only every so many-th question of SQuAD")
    return report.run()


if __name__ == "__main__":
    sys.exit(main())
