#!/usr/bin/env python3
"""Measures Answer and writes build/reports/reader.md.

  make build && scripts/reader_report.py --shared=../shared          about 30 minutes

Compares the reader with the reference in PyTorch (SHARED/reference/reader.py): recorded answers, exact match and F1 on SQuAD, and speed;
measures long passages; and checks what every call is promised under load. Parts can be left out or chosen:
--parts=checkpoint,squad. Needs grpcio and numpy in this interpreter, and PyTorch and the package `sru` 2.6.0 in the interpreter --python.
Exits with 1 if a figure is not as wanted.
"""

import collections
import json
import random
import re
import statistics
import string
import sys

import report_calls
from report_calls import Method
from report_common import (DTYPES, Program, Report, Row, Server, at_least, at_most, chunks, difference, kernel_benchmarks, of_all,
                           one_core, progress)

CHECKPOINT = "reader_squad"
SCORE_LIMIT = 1e-3   # of a span's score
QUESTIONS = 32       # of a batch that is compared with PyTorch
BATCHES = 4          # of as many other questions
ROUNDS = 7
WORDS = (25000, 50000, 100000)

# Times the reference on one thread. It is sent the batches, then names of variants, and answers with the
# seconds that all batches take: texts are ids and features already, as they are in the server's figure.
# A variant is how many questions are padded to one length; "sorted" means that those of similar length
# are put together first.
PYTORCH = report_calls.PYTORCH_CHECKED + """
sys.path.insert(0, sys.argv[1])
import reader
model, vocab = reader.load(sys.argv[2])
config, variants = model.config, {}

def prepare(question, passage):
    q, d = ([t[0] for t in reader.tokenize(text)] for text in (question, passage))
    return dict(doc=reader.lookup(d, vocab, config["lowercase"]), features=reader.features(d, q, config["features"]),
                question=reader.lookup(q, vocab, config["lowercase"]))

def collate(batches, size, by_length):
    arguments = []
    for pairs in batches:
        if by_length:
            pairs = sorted(pairs, key=lambda pair: len(pair["doc"]))
        arguments += [reader.collate(pairs[i:i + size]) for i in range(0, len(pairs), size)]
    return arguments

for line in sys.stdin:
    command = json.loads(line)
    if isinstance(command, list):
        batches = [[prepare(*pair) for pair in pairs] for pairs in command]
        variants = {"padded, 32": collate(batches, 32, False), "sorted, 16": collate(batches, 16, True),
                    "sorted, 8": collate(batches, 8, True), "one by one": collate(batches, 1, False)}
        answer = [list(variants), sum(len(pair["doc"]) + len(pair["question"]) for pairs in batches for pair in pairs)]
    else:
        start = time.monotonic()
        with torch.no_grad():
            for arguments in variants[command]:
                model(**arguments)
        answer = time.monotonic() - start
    print(json.dumps(answer), file=out, flush=True)
"""


class Squad:
    """SQuAD's dev file: (question, passage, the answer)."""

    def __init__(self, models):
        data = json.loads(models.shared("datasets", "squad", "dev-v1.1.json").read_text(encoding="utf-8"))["data"]
        paragraphs = [paragraph for article in data for paragraph in article["paragraphs"]]
        self.passages = [paragraph["context"] for paragraph in paragraphs]
        self.questions = [(qa["question"], paragraph["context"], qa["answers"][0]["text"])
                          for paragraph in paragraphs for qa in paragraph["qas"]]


def squad_score(prediction, gold):
    """(exact match, F1) of one answer as SQuAD counts them, each 0 to 1; as SHARED/reference/reader.py."""
    def words(text):
        text = "".join(ch for ch in text.lower() if ch not in string.punctuation)
        return re.sub(r"\b(a|an|the)\b", " ", text).split()
    a, b = words(prediction), words(gold)
    common = sum((collections.Counter(a) & collections.Counter(b)).values())
    return float(a == b), 2 * common / (len(a) + len(b)) if common else 0.0


def squad_answers(args, models, questions, dtype):
    """(the texts of the best answers, the means of exact match and F1 in percent)"""
    requests = [{"queries": [{"question": question, "passages": [passage]} for question, passage, _ in part]}
                for part in chunks(questions, 32)]
    with Server(args, models.checkpoint(CHECKPOINT), dtype) as server, Method(server.address, "Answer") as answer:
        texts = [result.answers[0].text for response in answer.all(requests) for result in response.results]
    scores = [squad_score(text, gold) for text, (_, _, gold) in zip(texts, questions)]
    return texts, [100 * statistics.fmean(score[i] for score in scores) for i in (0, 1)]


def same_span(expected, found):
    return expected["answer"] == found.text and all(
        expected[key] == getattr(found, key) for key in ("start_char", "end_char", "start_byte", "end_byte"))


def checkpoint(args, models):
    """The recorded answers: one passage each, and several."""
    single = models.lines("checkpoints", CHECKPOINT, "expected.jsonl")
    several = models.lines("checkpoints", CHECKPOINT, "expected_paragraphs.jsonl")
    for dtype in DTYPES:
        with Server(args, models.checkpoint(CHECKPOINT), dtype) as server, Method(server.address, "Answer") as answer:
            found = [result.answers for response in answer.all(
                {"queries": [{"question": entry["question"], "passages": [entry["paragraph"]]} for entry in part], "top_n": 3}
                for part in chunks(single, 30)) for result in response.results]
            by_passage = [response.results[0].answers for response in answer.all(
                {"queries": [{"question": entry["question"], "passages": entry["paragraphs"]}],
                 "top_n": len(entry["paragraphs"]), "one_per_passage": 1} for entry in several)]
        exact = dtype == "float32"
        right = [(entry, spans[0]) for entry, spans in zip(single, found) if same_span(entry, spans[0])]
        yield of_all(f"recorded answers and offsets, {dtype}", len(right), len(single), exact)
        # The order of the spans after the first may be a near-tie.
        best = sum(len(spans) == 3 and all(map(same_span, entry["top3"], spans)) for entry, spans in zip(single, found))
        yield of_all(f"the same, the best three, {dtype}", best, len(single), False)
        yield difference(f"the same: largest difference of a score, {dtype}",
                         max(abs(entry["log_score"] - span.log_score) for entry, span in right), SCORE_LIMIT if exact else None)
        yield difference(f"the same: largest difference of a probability, {dtype}",
                         max(abs(entry["probability"] - span.probability) for entry, span in right))
        yield of_all(f"questions on several passages: the best passage, {dtype}",
                     sum(entry["best_paragraph"] == spans[0].passage for entry, spans in zip(several, by_passage)),
                     len(several), exact)
        pairs = [(expected, {span.passage: span for span in spans}.get(i))
                 for entry, spans in zip(several, by_passage) for i, expected in enumerate(entry["answers"])]
        yield of_all(f"the same: answers of all passages, {dtype}",
                     sum(span is not None and same_span(expected, span) for expected, span in pairs), len(pairs), exact)


def squad(args, models):
    """Exact match and F1 on the dev file."""
    questions = Squad(models).questions
    config = json.loads(models.shared("checkpoints", CHECKPOINT, "config.json").read_text(encoding="utf-8"))
    for dtype, limit in zip(DTYPES, (0.1, 0.5)):
        figures = squad_answers(args, models, questions, dtype)[1]
        for found, (name, key) in zip(figures, (("exact match", "dev_exact_match"), ("F1", "dev_f1"))):
            yield Row(f"SQuAD dev, {len(questions):,} questions: {name}, {dtype}", f"{found:.2f}",
                      f"{config[key]} within {limit}", abs(found - config[key]) <= limit)


def pytorch(args, models):
    """The forward pass of batches of real questions on one thread of one core, alternating."""
    random.seed(3)
    batches = [[(question, passage) for question, passage, _ in part]
               for part in chunks(random.sample(Squad(models).questions, QUESTIONS * BATCHES), QUESTIONS)]
    requests = [{"queries": [{"question": question, "passages": [passage]} for question, passage in batch]} for batch in batches]
    flags = ["--max_batch_tokens=32768", "--max_queue_tokens=131072", "--instances=1", "--cpu_threads=1"]
    words = [args.python, "-c", PYTORCH, models.shared("reference"), models.shared("checkpoints", CHECKPOINT)]
    with Program(words, one_core()) as reference:
        variants, tokens = reference.ask(batches)
        for variant in variants:
            reference.ask(variant)
        for dtype in DTYPES:
            ours, whole, theirs = [], [], {variant: [] for variant in variants}
            with Server(args, models.checkpoint(CHECKPOINT), dtype, flags, one_core()) as server, \
                    Method(server.address, "Answer") as answer:
                for _ in range(3):
                    answer.all(requests, 1)
                for _ in range(ROUNDS):
                    for variant in variants:
                        theirs[variant].append(reference.ask(variant))
                    times = [response.times for response in answer.all(requests, 1)]
                    ours.append(sum(time.compute_us for time in times) / 1e6)
                    whole.append(sum(time.total_us for time in times) / 1e6)
            best = min(variants, key=lambda variant: statistics.median(theirs[variant]))
            mine, all_of_it, reference_s = map(statistics.median, (ours, whole, theirs[best]))
            yield at_least(f"one core, batches of {QUESTIONS} questions: the reference's time in PyTorch (float32, best of {len(variants)} "
                           f"ways to pad: {best}) / ours, {dtype}", reference_s / mine, 3,
                           f" ({1e3 * reference_s / BATCHES:.1f} / {1e3 * mine / BATCHES:.1f} ms; aim 6)", digits=2)
            yield Row(f"the same with the texts: reference's forward pass / our whole calls, {dtype}",
                      f"{reference_s / all_of_it:.2f} ({tokens / all_of_it:,.0f} tokens/s)")


def products(args, _):
    """The forward pass against its own products, without a server."""
    for dimensions, result in kernel_benchmarks(args, "BM_Reader/shape:0/.*questions:32"):
        dtype = DTYPES[dimensions["bfloat16"]]
        name = f"batch of 32 questions of the checkpoint's shape: forward pass / its products alone, {dtype}"
        yield at_most(name, result["ratio"], 1.35) if dtype == "float32" else Row(name, f"{result['ratio']:.2f}")


def long_passages(args, models):
    """Time and memory of one passage by its length; each length has a server whose limits just admit it."""
    words = [word for passage in Squad(models).passages for word in passage.split()]
    times, memory, tokens = [], [], []
    for number in WORDS:
        limit = int(1.3 * number)
        flags = [f"--max_sequence_tokens={limit}", f"--max_batch_tokens={limit + 100}", f"--max_queue_tokens={4 * limit}",
                 "--instances=1"]
        request = {"queries": [{"question": "Who wrote the song?",
                                "passages": [" ".join(words[i % len(words)] for i in range(number))]}]}
        progress(f"a passage of {number:,} words")
        with Server(args, models.checkpoint(CHECKPOINT), flags=flags) as server, Method(server.address, "Answer") as answer:
            responses = [answer(request) for _ in range(5)]
            memory.append(server.memory_bytes("VmHWM"))
        times.append(statistics.median(response.times.total_us for response in responses[1:]) / 1e6)
        tokens.append(responses[0].results[0].token_count)
        yield Row(f"a passage of {number:,} words ({tokens[-1]:,} tokens): time, most memory of the process",
                  f"{times[-1]:.2f} s, {memory[-1] / 1e6:,.0f} MB")
    yield at_most(f"time per token at {WORDS[-1]:,} words / at {WORDS[0]:,}", times[-1] / tokens[-1] / (times[0] / tokens[0]), 1.2)
    growth = [(memory[i + 1] - memory[i]) / (tokens[i + 1] - tokens[i]) for i in range(2)]
    yield at_most(f"memory per token beyond {WORDS[1]:,} words / up to there from {WORDS[0]:,}", growth[1] / growth[0], 1.2,
                  f" ({growth[1]:,.0f} bytes)")


def call(number):
    """A call of ten passages, each of them other words."""
    random.seed(number)
    words = ("the", "man", "of", "came", "1901", "river", "was", "first", ".")
    return {"queries": [{"question": "Who came first?",
                         "passages": [" ".join(random.choice(words) for _ in range(300)) for _ in range(10)]}]}


def main():
    # Passages as long as SQuAD's.
    promises = report_calls.Promises("Answer", "answer", CHECKPOINT, call,
                                     lambda _: ["--passage=lognormal:130:0.45:800", "--question=uniform:5:18"])
    report = Report(
        __file__, "Answer",
        "The model is `reader_squad` of the shared checkpoints, the reference is their `reader.py` with the package's own float32 operator."
        " In the comparison with PyTorch both have one thread on the same core; ours is the server's time for the batch (`compute_us`),"
        " in which nothing is padded.",
        (checkpoint, squad, pytorch, products, long_passages, *promises.parts))
    report.parser.add_argument("--overload_seconds", type=float, default=600)
    return report.run()


if __name__ == "__main__":
    sys.exit(main())
