#!/usr/bin/env python3
"""Measures Answer and writes docs/benchmarks/reader.md.

  make build && scripts/reader_report.py --shared=../shared          about 30 minutes

Compares the reader with the reference in PyTorch (SHARED/reference/reader.py): golden cases, recorded
answers, exact match and F1 on SQuAD, and speed; measures long passages; and checks what every call is
promised under load. Every figure is a ratio of two things that are measured in one run on one machine, a
count, or a difference. Parts can be left out or chosen: --parts=checkpoint,squad. Needs grpcio and numpy in this
interpreter, and PyTorch and the package `sru` 2.6.0 in the interpreter --python. Exits with 1 if a figure
is not as wanted.
"""

import collections
import json
import random
import re
import statistics
import string
import subprocess
import sys

sys.dont_write_bytecode = True
import report_common
from report_common import (DTYPES, Models, NotMeasured, Reference, Server, answer_method, at_least, at_most,
                           chunks, difference, of_all, one_core, progress, row)

CHECKPOINT = "reader_squad"
GOLDEN_LIMIT = 1e-4  # of a logit
SCORE_LIMIT = 1e-3   # of a span's score
QUESTIONS = 32       # of a batch that is compared with PyTorch
BATCHES = 4          # of as many other questions
ROUNDS = 7
WORDS = (25000, 50000, 100000)

# Times the reference on one thread. It is sent the batches, then names of variants, and answers with the
# seconds that all batches take: texts are ids and features already, as they are in the server's figure.
# A variant is how many questions are padded to one length; "sorted" means that those of similar length
# are put together first.
PYTORCH = report_common.PYTORCH_CHECKED + """
import json
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


def read_lines(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def checkpoint_folder(args):
    folder = args.shared / "checkpoints" / CHECKPOINT
    if not folder.exists():
        raise NotMeasured(f"{folder} is not here")
    return folder


class Squad:
    """SQuAD's dev file: (question, passage, the answer)."""

    def __init__(self, args):
        path = args.shared / "datasets" / "squad" / "dev-v1.1.json"
        if not path.exists():
            raise NotMeasured(f"{path} is not here")
        data = json.loads(path.read_text(encoding="utf-8"))["data"]
        self.passages = [paragraph["context"] for article in data for paragraph in article["paragraphs"]]
        self.questions = [(qa["question"], paragraph["context"], qa["answers"][0]["text"])
                          for article in data for paragraph in article["paragraphs"]
                          for qa in paragraph["qas"]]


def squad_score(prediction, gold):
    """(exact match, F1) of one answer as SQuAD counts them, each 0 to 1; as SHARED/reference/reader.py."""
    def words(text):
        text = "".join(ch for ch in text.lower() if ch not in string.punctuation)
        return re.sub(r"\b(a|an|the)\b", " ", text).split()
    a, b = words(prediction), words(gold)
    common = sum((collections.Counter(a) & collections.Counter(b)).values())
    return float(a == b), 2 * common / (len(a) + len(b)) if common else 0.0


def goldens(args, _):
    return report_common.golden_cases(args, "reader", "golden cases, logits", GOLDEN_LIMIT)


SPAN = ("start_char", "end_char", "start_byte", "end_byte")


def same_span(expected, found):
    return expected["answer"] == found.text and all(expected[key] == getattr(found, key) for key in SPAN)


def checkpoint(args, models):
    """The recorded answers: one passage each, and several."""
    folder = checkpoint_folder(args)
    single = read_lines(folder / "expected.jsonl")
    several = read_lines(folder / "expected_paragraphs.jsonl")
    repository = models.checkpoint(CHECKPOINT)
    rows = []
    for dtype in DTYPES:
        with Server(args, repository, dtype) as server, answer_method(server.address) as answer:
            found = [result.answers for response in answer.all(
                {"queries": [{"question": entry["question"], "passages": [entry["paragraph"]]}
                             for entry in part], "top_n": 3} for part in chunks(single, 30))
                     for result in response.results]
            by_passage = [response.results[0].answers for response in answer.all(
                {"queries": [{"question": entry["question"], "passages": entry["paragraphs"]}],
                 "top_n": len(entry["paragraphs"]), "one_per_passage": 1} for entry in several)]
        exact = dtype == "float32"
        rows.append(of_all(f"recorded answers and offsets, {dtype}",
                           sum(same_span(entry, spans[0]) for entry, spans in zip(single, found)),
                           len(single), exact))
        # The order of the spans after the first may be a near-tie.
        rows.append(row(f"the same, the best three, {dtype}", "{:,} of {:,}".format(
            sum(len(spans) == 3 and all(map(same_span, entry["top3"], spans))
                for entry, spans in zip(single, found)), len(single))))
        right = [(entry, spans[0]) for entry, spans in zip(single, found) if same_span(entry, spans[0])]
        rows.append(difference(
            f"the same: largest difference of a score, {dtype}",
            max(abs(entry["log_score"] - span.log_score) for entry, span in right),
            SCORE_LIMIT if exact else None))
        rows.append(difference(
            f"the same: largest difference of a probability, {dtype}",
            max(abs(entry["probability"] - span.probability) for entry, span in right)))
        rows.append(of_all(f"questions on several passages: the best passage, {dtype}",
                           sum(entry["best_paragraph"] == spans[0].passage
                               for entry, spans in zip(several, by_passage)), len(several), exact))
        pairs = [(expected, {span.passage: span for span in spans}.get(i))
                 for entry, spans in zip(several, by_passage) for i, expected in enumerate(entry["answers"])]
        rows.append(of_all(f"the same: answers of all passages, {dtype}",
                           sum(span is not None and same_span(expected, span) for expected, span in pairs),
                           len(pairs), exact))
    return rows


def squad(args, models):
    """Exact match and F1 on the dev file."""
    questions = Squad(args).questions
    config = json.loads((checkpoint_folder(args) / "config.json").read_text(encoding="utf-8"))
    repository = models.checkpoint(CHECKPOINT)
    rows = []
    for dtype in DTYPES:
        limit = 0.1 if dtype == "float32" else 0.5
        with Server(args, repository, dtype) as server, answer_method(server.address) as answer:
            texts = [result.answers[0].text for response in answer.all(
                {"queries": [{"question": question, "passages": [passage]} for question, passage, _ in part]}
                for part in chunks(questions, 32)) for result in response.results]
        scores = [squad_score(text, gold) for text, (_, _, gold) in zip(texts, questions)]
        for i, (name, key) in enumerate((("exact match", "dev_exact_match"), ("F1", "dev_f1"))):
            found = 100 * statistics.fmean(score[i] for score in scores)
            rows.append(row(f"SQuAD dev, {len(questions):,} questions: {name}, {dtype}", f"{found:.2f}",
                            f"{config[key]} within {limit}", abs(found - config[key]) <= limit))
    return rows


def one_core_flags(tokens):
    return [f"--max_batch_tokens={tokens}", f"--max_queue_tokens={4 * tokens}", "--instances=1",
            "--cpu_threads=1"]


def pytorch(args, models):
    """The forward pass of batches of real questions on one thread of one core, alternating."""
    questions = Squad(args).questions
    folder = checkpoint_folder(args)
    repository = models.checkpoint(CHECKPOINT)
    random.seed(3)
    batches = [[(question, passage) for question, passage, _ in part]
               for part in chunks(random.sample(questions, QUESTIONS * BATCHES), QUESTIONS)]
    requests = [{"queries": [{"question": question, "passages": [passage]} for question, passage in batch]}
                for batch in batches]
    core = one_core()
    rows = []
    with Reference(args.python, PYTORCH, core, args.shared / "reference", folder) as reference:
        variants, tokens = reference.ask(batches)
        for variant in variants:
            reference.ask(variant)
        for dtype in DTYPES:
            ours, whole, theirs = [], [], {variant: [] for variant in variants}
            with Server(args, repository, dtype, one_core_flags(1 << 15), core) as server, \
                    answer_method(server.address) as answer:
                for _ in range(3):
                    answer.all(requests, 1)
                for _ in range(ROUNDS):
                    for variant in variants:
                        theirs[variant].append(reference.ask(variant))
                    times = [response.times for response in answer.all(requests, 1)]
                    ours.append(sum(time.compute_us for time in times) / 1e6)
                    whole.append(sum(time.total_us for time in times) / 1e6)
            best = min(variants, key=lambda variant: statistics.median(theirs[variant]))
            mine, reference_s = statistics.median(ours), statistics.median(theirs[best])
            rows.append(at_least(
                f"one core, batches of {QUESTIONS} questions: the reference's time in PyTorch (float32, best of "
                f"{len(variants)} ways to pad: {best}) / ours, {dtype}", reference_s / mine, 3,
                f" ({1e3 * reference_s / BATCHES:.1f} / {1e3 * mine / BATCHES:.1f} ms; aim 6)", digits=2))
            rows.append(row(f"the same with the texts: reference's forward pass / our whole calls, {dtype}",
                            f"{reference_s / statistics.median(whole):.2f} "
                            f"({tokens / statistics.median(whole):,.0f} tokens/s)"))
    return rows


def products(args, _):
    """The forward pass against its own products, without a server."""
    program = args.bin / "kernel_benchmarks"
    if not program.exists():
        raise NotMeasured("kernel_benchmarks is not built (Google Benchmark is not installed)")
    done = subprocess.run(
        [str(program), "--benchmark_filter=BM_Reader/shape:0/.*questions:32", "--benchmark_format=json"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
    rows = []
    for result in json.loads(done.stdout)["benchmarks"]:
        dtype = "bfloat16" if "bfloat16:1" in result["name"] else "float32"
        name = f"batch of 32 questions of the checkpoint's shape: forward pass / its products alone, {dtype}"
        rows.append(at_most(name, result["ratio"], 1.35) if dtype == "float32"
                    else row(name, f"{result['ratio']:.2f}"))
    if not rows:
        raise NotMeasured("BM_Reader has no run of 32 questions")
    return rows


def long_passages(args, models):
    """Time and memory of one passage by its length; each length has a server whose limits just admit it."""
    words = [word for passage in Squad(args).passages for word in passage.split()]
    repository = models.checkpoint(CHECKPOINT)
    times, memory, tokens = [], [], []
    for number in WORDS:
        text = " ".join(words[i % len(words)] for i in range(number))
        limit = int(1.3 * number)
        flags = [f"--max_sequence_tokens={limit}", f"--max_batch_tokens={limit + 100}",
                 f"--max_queue_tokens={4 * limit}", "--instances=1"]
        request = {"queries": [{"question": "Who wrote the song?", "passages": [text]}]}
        progress(f"a passage of {number:,} words")
        with Server(args, repository, flags=flags) as server, answer_method(server.address) as answer:
            responses = [answer(request) for _ in range(5)]
            memory.append(server.memory_bytes("VmHWM"))
        times.append(statistics.median(response.times.total_us for response in responses[1:]) / 1e6)
        tokens.append(responses[0].results[0].token_count)
    rows = [row(f"a passage of {number:,} words ({count:,} tokens): time, most memory of the process",
                f"{seconds:.2f} s, {most / 1e6:,.0f} MB")
            for number, count, seconds, most in zip(WORDS, tokens, times, memory)]
    per_token = [seconds / count for seconds, count in zip(times, tokens)]
    rows.append(at_most(f"time per token at {WORDS[-1]:,} words / at {WORDS[0]:,}", per_token[-1] / per_token[0], 1.2))
    growth = [(memory[i + 1] - memory[i]) / (tokens[i + 1] - tokens[i]) for i in range(2)]
    rows.append(at_most(f"memory per token beyond {WORDS[1]:,} words / up to there from {WORDS[0]:,}",
                        growth[1] / growth[0], 1.2, f" ({growth[1]:,.0f} bytes)"))
    return rows


# As long as SQuAD's.
LOAD_SHAPE = ["--passage=lognormal:130:0.45:800", "--question=uniform:5:18"]


def overload(args, models):
    return report_common.overload(args, "answer", models.checkpoint(CHECKPOINT), LOAD_SHAPE)


def request(number):
    """A call of ten passages, each of them other words."""
    random.seed(number)
    return {"queries": [{"question": "Who came first?", "passages": [
        " ".join(random.choice(("the", "man", "of", "came", "1901", "river", "was", "first", "."))
                 for _ in range(300)) for _ in range(10)]}]}


# All calls of a part may wait, whatever time they have.
PATIENT = ["--max_queue_tokens=1000000", "--admission=none"]


def deadlines(args, models):
    return report_common.deadlines(args, models.checkpoint(CHECKPOINT), answer_method, request, PATIENT)


def cancellation(args, models):
    return report_common.after_cancellation(args, models.checkpoint(CHECKPOINT), answer_method, request,
                                            PATIENT)


def drain(args, models):
    return report_common.drain(args, models.checkpoint(CHECKPOINT), answer_method, request, PATIENT)


PARTS = {part.__name__: part for part in (goldens, checkpoint, squad, pytorch, products, long_passages,
                                          overload, deadlines, cancellation, drain)}

COMMANDS = """## Commands

`scripts/reader_report.py --shared=../shared` reproduces every figure and writes this page. What it runs can be
run by itself, the last three against any server of this machine:

```
ctest --test-dir build -R '^reader_'                               the golden cases on every backend
kernel_benchmarks --benchmark_filter=BM_Reader                     the forward pass against its products, without a server
sru_bench answer --check                                           throughput and latency; every answer compared with that of its call alone
sru_bench answer --rate=200 --deadline=500ms --passage=lognormal:130:0.45:800      open loop, passages as long as SQuAD's
sru_bench answer --input=questions.tsv --queries=32                questions of a file, 32 in a call
```
"""


def report(args, results):
    text = ("The model is `reader_squad` of the shared checkpoints, the reference is their `reader.py` with the"
            " package's own float32 operator. In the comparison with PyTorch both have one thread on the same core;"
            " ours is the server's time for the batch (`compute_us`), in which nothing is padded.")
    return report_common.page("Answer", "reader_report.py", text, args, results, COMMANDS)


def main():
    parser = report_common.make_parser(
        __doc__, PARTS, "checkpoints/reader_squad, reference and datasets/squad", "reader.md")
    return report_common.run(parser, PARTS, Models, report)


if __name__ == "__main__":
    sys.exit(main())
