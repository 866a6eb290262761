#!/usr/bin/env python3
"""Measures Translate and writes build/reports/translator.md.

  make build && scripts/translator_report.py --shared=../shared          about 20 minutes

Compares the translator with the reference in PyTorch (SHARED/reference/translator.py): recorded translations, BLEU and speed; and checks what every call
is promised under load. Parts can be left out or chosen: --parts=checkpoint,bleu. Needs grpcio and numpy in this interpreter, and PyTorch in
the interpreter --python. sacrebleu is installed from PyPI into a virtual environment, --tools. Exits with 1 if a figure is not as wanted.
"""

import pathlib
import random
import statistics
import sys

import report_calls
import report_common
from report_calls import Method
from report_common import (DTYPES, Program, ROOT, Report, Row, Server, at_least, chunks, difference, of_all, one_core,
                           output_of, progress)

CHECKPOINT = "translator_multi30k"
SCORE_LIMIT = 1e-3   # of a hypothesis
# Of SHARED/reference/TRANSLATOR.md.
BLEU = {"greedy": 36.5, "beam 5": 37.9}
BLEU_LIMITS = {"float32": 0.05, "bfloat16": 0.3}
TOOL = "sacrebleu==2.6.0"
SENTENCES = 64  # that are compared with PyTorch
ONE_CORE = ["--instances=1", "--cpu_threads=1"]

# Times the reference's beam search, which takes a sentence at a time, on one thread. It is sent lists of
# ids and answers with the seconds that all of them take and the best hypotheses.
PYTORCH = report_calls.PYTORCH_CHECKED + """
sys.path.insert(0, sys.argv[1])
import translator
config = json.load(open(os.path.join(sys.argv[2], "config.json")))
model = translator.load(config, torch.load(os.path.join(sys.argv[2], "checkpoint.pt"), map_location="cpu"))
for line in sys.stdin:
    sentences = json.loads(line)
    start = time.monotonic()
    tokens = [translator.beam_search(model, ids, beam=5)[0][0].tokens for ids in sentences]
    print(json.dumps([time.monotonic() - start, tokens]), file=out, flush=True)
"""

SCORE_BLEU = """
import json, sys
import sacrebleu
for line in sys.stdin:
    texts, references = json.loads(line)
    metric = sacrebleu.metrics.BLEU()
    score = metric.corpus_score(texts, [references]).score
    print(json.dumps([score, str(metric.get_signature())]), flush=True)
"""


class Models(report_common.Models):
    def corpus(self, name):
        return self.shared("datasets", "multi30k", name).read_text(encoding="utf-8").splitlines()

    def recorded(self):
        return self.lines("checkpoints", CHECKPOINT, "expected.jsonl")


def tools(args):
    """The interpreter of the virtual environment with TOOL, which is made when it is not there."""
    python = args.tools / "bin" / "python"
    if not (args.tools / "complete").exists():
        progress(f"installs {TOOL} into {args.tools}")
        output_of([sys.executable, "-m", "venv", args.tools])
        output_of([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", TOOL])
        (args.tools / "complete").touch()
    return python


def request_of(sequences, **fields):
    """Of texts or of lists of ids."""
    return {"sequences": [{"text": given} if isinstance(given, str) else {"token_ids": {"values": given}} for given in sequences],
            **fields}


def translated(method, texts, **fields):
    """The translations of texts, in their order."""
    return [found for response in method.all(request_of(part, **fields) for part in chunks(texts, 25))
            for found in response.translations]


def same_tokens(expected, found):
    return expected["tokens"] == found.token_ids and expected.get("finished", True) != found.unfinished


def alignment_agrees(entry, found):
    """Whether each token looks most at the source piece that was recorded, wherever one was."""
    width = len(entry["source_ids"])
    weights = chunks(found.hypotheses[0].alignment, width)
    return len(weights) == len(entry["alignment"]) and all(
        piece is None or max(range(width), key=weight.__getitem__) == piece for piece, weight in zip(entry["alignment"], weights))


def checkpoint(args, models):
    """The recorded translations: greedy, beam 5, and its five best."""
    entries = models.recorded()
    sources = [entry["source"] for entry in entries]
    for dtype in DTYPES:
        exact = dtype == "float32"
        with Server(args, models.checkpoint(CHECKPOINT), dtype) as server, Method(server.address, "Translate") as method:
            greedy = translated(method, sources, beam_size=1, return_alignment=1)
            best = translated(method, sources, beam_size=5)
            five = translated(method, sources, beam_size=5, num_hypotheses=5)
        yield of_all(f"recorded source pieces, {dtype}",
                     sum(entry["pieces"] == found.source_tokens for entry, found in zip(entries, greedy)), len(entries), exact)
        right = []
        for name, key, all_found in (("greedy", "greedy", greedy), ("beam 5", "beam5_best", best)):
            pairs = [(entry[key], found.hypotheses[0]) for entry, found in zip(entries, all_found)]
            same = [pair for pair in pairs if same_tokens(*pair)]
            yield of_all(f"recorded translations, {name}: all tokens equal, {dtype}", len(same), len(pairs), exact)
            yield of_all("the same: texts equal, " + dtype, sum(expected["text"] == found.text for expected, found in pairs),
                         len(pairs), exact)
            right += same
        pairs = [(entry["beam5"], found.hypotheses) for entry, found in zip(entries, five)]
        same = [pair for pair in pairs if len(pair[0]) == len(pair[1]) and all(map(same_tokens, *pair))]
        yield of_all(f"recorded translations, the five best of beam 5: all tokens equal, {dtype}", len(same), len(pairs), exact)
        right += [pair for lists in same for pair in zip(*lists)]
        for name, key in (("score", "score"), ("log-probability", "log_prob")):
            largest = max((abs(expected[key] - getattr(found, key)) for expected, found in right if key in expected), default=0.0)
            yield difference(f"the same: largest difference of a {name} where tokens are equal, {dtype}", largest,
                             SCORE_LIMIT if exact else None)
        yield of_all(f"recorded alignments, greedy, {dtype}", sum(map(alignment_agrees, entries, greedy)), len(entries), exact)


def bleu(args, models):
    """BLEU on test_2016_flickr, as it was recorded."""
    sources, references = models.corpus("test_2016_flickr.en"), models.corpus("test_2016_flickr.de")
    with Program([tools(args), "-c", SCORE_BLEU], one_core()) as scorer:
        for dtype in DTYPES:
            with Server(args, models.checkpoint(CHECKPOINT), dtype) as server, Method(server.address, "Translate") as method:
                for name, beam in (("greedy", 1), ("beam 5", 5)):
                    found = translated(method, sources, beam_size=beam)
                    score, signature = scorer.ask([[translation.hypotheses[0].text for translation in found], references])
                    yield Row(f"BLEU, test_2016_flickr, {name} ({signature}), {dtype}".replace("|", " "), f"{score:.2f}",
                              f"{BLEU[name]} within {BLEU_LIMITS[dtype]}", abs(score - BLEU[name]) <= BLEU_LIMITS[dtype])


def pytorch(args, models):
    """64 sentences, beam 5, on one thread of one core, alternating."""
    sentences = [entry["source_ids"] for entry in models.recorded()[:SENTENCES]]
    words = [args.python, "-c", PYTORCH, models.shared("reference"), models.shared("checkpoints", CHECKPOINT)]
    request = request_of(sentences, beam_size=5)
    with Program(words, one_core()) as reference:
        reference.ask(sentences[:4])
        for dtype in DTYPES:
            ours, theirs = [], []
            with Server(args, models.checkpoint(CHECKPOINT), dtype, ONE_CORE, one_core()) as server, \
                    Method(server.address, "Translate") as method:
                for _ in range(3):
                    method(request)
                for _ in range(args.rounds):
                    elapsed, tokens = reference.ask(sentences)
                    theirs.append(elapsed)
                    answers = [method(request) for _ in range(3)]
                    ours.append(statistics.median(answer.times.total_us for answer in answers) / 1e6)
            equal = sum(found.hypotheses[0].token_ids == expected for found, expected in zip(answers[0].translations, tokens))
            mine, reference_s = statistics.median(ours), statistics.median(theirs)
            yield at_least(
                f"one core, {SENTENCES} sentences, beam 5: the reference's time in PyTorch (float32) / ours, {dtype}", reference_s / mine, 4,
                f" ({1e3 * reference_s:,.0f} / {1e3 * mine:,.0f} ms; {equal} of {SENTENCES} translations equal)")


def call(number):
    random.seed(number)
    return request_of([[random.randrange(4, 6000) for _ in range(20)] for _ in range(8)], beam_size=5, max_new_tokens=40)


def sentences_of(models):
    """Flags of sru_bench: real sentences, and the model's own beam."""
    path = models.folder / "sentences.txt"
    path.write_text("\n".join(models.corpus("test_2016_flickr.en")[:256]) + "\n", encoding="utf-8")
    return [f"--input={path}"]


def main():
    promises = report_calls.Promises("Translate", "translate", CHECKPOINT, call, sentences_of)
    report = Report(
        __file__, "Translate",
        "The model is `translator_multi30k` of the shared checkpoints, the reference is their `translator.py`. The comparison with PyTorch gives"
        " both sides one thread on the same core; ours is the server's time for the whole call (`total_us`).",
        (checkpoint, bleu, pytorch, *promises.parts))
    report.parser.add_argument("--overload_seconds", type=float, default=600)
    report.parser.add_argument("--tools", type=pathlib.Path, default=ROOT / "build" / "report_tools",
                               help=f"virtual environment with {TOOL}; made when it is not there")
    return report.run(models=Models)


if __name__ == "__main__":
    sys.exit(main())
