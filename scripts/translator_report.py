#!/usr/bin/env python3
"""Measures Translate and writes docs/benchmarks/translator.md.

  make build && scripts/translator_report.py --shared=../shared          about 45 minutes

Compares the translator with the reference in PyTorch (SHARED/reference/translator.py): golden cases,
recorded translations, BLEU and speed; with CTranslate2 in operations per second; measures time by length
and the memory of a hypothesis; and checks what every call is promised under load. Every figure is a ratio
of two things that are measured in one run on one machine, a count, or a difference. Parts can be left out
or chosen: --parts=checkpoint,bleu. Needs grpcio and numpy in this interpreter, and PyTorch in the interpreter
--python. sacrebleu and CTranslate2 are installed from PyPI into a virtual environment, --tools. Exits with
1 if a figure is not as wanted.
"""

import json
import pathlib
import random
import statistics
import subprocess
import sys
import threading
import time

sys.dont_write_bytecode = True
import report_common
from report_common import (DTYPES, NotMeasured, ROOT, Reference, Server, at_least, at_most, chunks, difference,
                           linear_fit, of_all, one_core, progress, row, translate_method)

CHECKPOINT = "translator_multi30k"
GOLDEN_LIMIT = 1e-4  # of a log-probability
SCORE_LIMIT = 1e-3   # of a hypothesis
# Of SHARED/reference/TRANSLATOR.md.
BLEU = {"greedy": 36.5, "beam 5": 37.9}
BLEU_LIMITS = {"float32": 0.05, "bfloat16": 0.3}
TOOLS = ("sacrebleu==2.6.0", "ctranslate2==4.8.5")
ROUNDS = 5
SENTENCES = 64  # that are compared with PyTorch
SOURCE, TARGET = 20, 20  # tokens, in the comparison with CTranslate2
FORM_GNMT = 1

# Models with random weights: that of the checkpoint's size, and the paper's with five layers.
SIZES = {
    "checkpoint's size": {"d_model": 128, "heads": 4, "d_sru": 512, "encoder_layers": 3,
                          "decoder_layers": 3, "source_vocabulary": 6000, "target_vocabulary": 6000},
    "paper's size": {"d_model": 512, "heads": 8, "d_sru": 2048, "encoder_layers": 5, "decoder_layers": 5,
                     "source_vocabulary": 32000, "target_vocabulary": 32000},
}
COMMON = {"task": "translator", "bidirectional_encoder": False, "shared_embeddings": True, "pad_id": 0,
          "unk_id": 1, "bos_id": 2, "eos_id": 3, "max_positions": 5000, "max_length": 100, "beam_size": 5,
          "length_penalty": "gnmt", "alpha": 0.6}

# Writes the checkpoint of a translator with random weights whose translations never end.
MAKE_RANDOM = """
import json, os, sys
sys.path.insert(0, sys.argv[1])
import torch, translator
config = json.loads(sys.argv[2])
torch.manual_seed(0)
model = translator.Translator(config)
with torch.no_grad():
    model.generator[0].bias[config["eos_id"]] = -1e4
os.makedirs(sys.argv[3])
torch.save(model.state_dict(), os.path.join(sys.argv[3], "checkpoint.pt"))
json.dump(config, open(os.path.join(sys.argv[3], "config.json"), "w"))
"""

# Times the reference's beam search, which takes a sentence at a time, on one thread. It is sent lists of
# ids and answers with the seconds that all of them take and the best hypotheses.
PYTORCH = report_common.PYTORCH_CHECKED + """
import json, os
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

# Times CTranslate2 on a plain Transformer (with a feed-forward layer of d_sru values where ours has an
# SRU) with random weights, on one thread. It is sent [sentences, beam] with lists of ids, and answers with
# the seconds. A translation cannot end before it has its length, nor go on.
CTRANSLATE2 = """
import json, sys, tempfile, time
import ctranslate2, numpy
from ctranslate2.specs import TransformerSpec
config, length = json.loads(sys.argv[1]), int(sys.argv[2])
random = numpy.random.default_rng(0)
d, ff, vocabulary = config["d_model"], config["d_sru"], config["target_vocabulary"]
spec = TransformerSpec.from_config((config["encoder_layers"], config["decoder_layers"]), config["heads"])

def linear(layer, rows, columns):
    layer.weight = (random.standard_normal((rows, columns), dtype=numpy.float32) / columns ** 0.5)
    layer.bias = numpy.zeros(rows, dtype=numpy.float32)

def norm(layer):
    layer.gamma, layer.beta = numpy.ones(d, dtype=numpy.float32), numpy.zeros(d, dtype=numpy.float32)

def attention(layer, own):
    norm(layer.layer_norm)
    for part, rows in zip(layer.linear, (3 * d, d) if own else (d, 2 * d, d)):
        linear(part, rows, d)

def feed_forward(layer):
    norm(layer.layer_norm)
    linear(layer.linear_0, ff, d)
    linear(layer.linear_1, d, ff)

table = random.standard_normal((vocabulary, d), dtype=numpy.float32) / d ** 0.5
spec.encoder.embeddings[0].weight = table
spec.decoder.embeddings.weight = table
norm(spec.encoder.layer_norm)
norm(spec.decoder.layer_norm)
linear(spec.decoder.projection, vocabulary, d)
for layer in spec.encoder.layer:
    attention(layer.self_attention, True)
    feed_forward(layer.ffn)
for layer in spec.decoder.layer:
    attention(layer.self_attention, True)
    attention(layer.attention, False)
    feed_forward(layer.ffn)
names = ["<blank>", "<unk>", "<s>", "</s>"] + ["t%d" % i for i in range(4, vocabulary)]
spec.register_source_vocabulary(names)
spec.register_target_vocabulary(names)
spec.validate()
with tempfile.TemporaryDirectory() as folder:
    spec.save(folder)
    translator = ctranslate2.Translator(folder, device="cpu", compute_type="float32", inter_threads=1, intra_threads=1)
for line in sys.stdin:
    sentences, beam = json.loads(line)
    tokens = [[names[i] for i in ids] for ids in sentences]
    start = time.monotonic()
    found = translator.translate_batch(tokens, beam_size=beam, min_decoding_length=length, max_decoding_length=length)
    seconds = time.monotonic() - start
    lengths = sorted({len(result.hypotheses[0]) for result in found})
    if lengths != [length]:
        sys.exit("expected translations of %d tokens, found %s" % (length, lengths))
    print(json.dumps(seconds), flush=True)
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
    def random(self, size):
        """A model of one of SIZES with random weights, whose translations never end."""
        name = "random_" + size.split("'")[0]

        def make(repository):
            source = self.folder / (name + "_checkpoint")
            self.python("-c", MAKE_RANDOM, reference_folder(self.args), json.dumps({**COMMON, **SIZES[size]}),
                        source)
            self.export(source, repository / "random" / "1")
        return self.make(name, make)


def reference_folder(args):
    folder = args.shared / "reference"
    if not (folder / "translator.py").exists():
        raise NotMeasured(f"{folder / 'translator.py'} is not here")
    return folder


def checkpoint_folder(args):
    folder = args.shared / "checkpoints" / CHECKPOINT
    if not folder.exists():
        raise NotMeasured(f"{folder} is not here")
    return folder


def corpus(args, name):
    path = args.shared / "datasets" / "multi30k" / name
    if not path.exists():
        raise NotMeasured(f"{path} is not here")
    return path.read_text(encoding="utf-8").splitlines()


def tools(args):
    """The interpreter of the virtual environment with TOOLS, which is made when it is not there."""
    python = args.tools / "bin" / "python"
    if not (args.tools / "complete").exists():
        progress(f"installs {', '.join(TOOLS)} into {args.tools}")
        for command in ([sys.executable, "-m", "venv", args.tools],
                        [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *TOOLS]):
            done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True, check=False)
            if done.returncode:
                raise NotMeasured(done.stdout.strip().split("\n")[-1])
        (args.tools / "complete").touch()
    return str(python)


def translated(method, texts, per_call=25, **fields):
    """The translations of texts (or of lists of ids), in their order."""
    requests = ({"sequences": [{"text": text} if isinstance(text, str) else {"token_ids": {"values": text}}
                               for text in part], **fields} for part in chunks(texts, per_call))
    return [found for response in method.all(requests) for found in response.translations]


def goldens(args, _):
    return report_common.golden_cases(args, "translator", "golden cases, log-probabilities; all searches equal",
                                      GOLDEN_LIMIT)


def same_tokens(expected, found):
    return expected["tokens"] == found.token_ids and expected.get("finished", True) != found.unfinished


def alignment_agrees(entry, found):
    """Whether each token looks most at the source piece that was recorded, wherever one was."""
    width = len(entry["source_ids"])
    weights = chunks(found.hypotheses[0].alignment, width)
    return len(weights) == len(entry["alignment"]) and all(
        piece is None or max(range(width), key=weight.__getitem__) == piece
        for piece, weight in zip(entry["alignment"], weights))


def checkpoint(args, models):
    """The recorded translations: greedy, beam 5, and its five best."""
    entries = [json.loads(line) for line in
               (checkpoint_folder(args) / "expected.jsonl").read_text(encoding="utf-8").splitlines()]
    sources = [entry["source"] for entry in entries]
    repository = models.checkpoint(CHECKPOINT)
    rows = []
    for dtype in DTYPES:
        exact = dtype == "float32"
        with Server(args, repository, dtype) as server, translate_method(server.address) as method:
            greedy = translated(method, sources, beam_size=1, return_alignment=1)
            best = translated(method, sources, beam_size=5)
            five = translated(method, sources, beam_size=5, num_hypotheses=5)
        rows.append(of_all(f"recorded source pieces, {dtype}",
                           sum(entry["pieces"] == found.source_tokens
                               for entry, found in zip(entries, greedy)), len(entries), exact))
        scores, log_probs = [0.0], [0.0]
        for name, key, all_found in (("greedy", "greedy", greedy), ("beam 5", "beam5_best", best)):
            pairs = [(entry[key], found.hypotheses[0]) for entry, found in zip(entries, all_found)]
            right = [pair for pair in pairs if same_tokens(*pair)]
            rows.append(of_all(f"recorded translations, {name}: all tokens equal, {dtype}", len(right),
                               len(pairs), exact))
            rows.append(of_all(f"the same: texts equal, {dtype}",
                               sum(expected["text"] == found.text for expected, found in pairs),
                               len(pairs), exact))
            log_probs += [abs(expected["log_prob"] - found.log_prob) for expected, found in right]
            scores += [abs(expected["score"] - found.score) for expected, found in right
                       if "score" in expected]
        pairs = [(entry["beam5"], found.hypotheses) for entry, found in zip(entries, five)]
        right = [pair for pair in pairs if len(pair[0]) == len(pair[1]) and all(map(same_tokens, *pair))]
        rows.append(of_all(f"recorded translations, the five best of beam 5: all tokens equal, {dtype}",
                           len(right), len(pairs), exact))
        for expected, found in right:
            log_probs += [abs(a["log_prob"] - b.log_prob) for a, b in zip(expected, found)]
            scores += [abs(a["score"] - b.score) for a, b in zip(expected, found)]
        for name, values in (("score", scores), ("log-probability", log_probs)):
            rows.append(difference(f"the same: largest difference of a {name} where tokens are equal, {dtype}",
                                   max(values), SCORE_LIMIT if exact else None))
        rows.append(of_all(f"recorded alignments, greedy, {dtype}",
                           sum(alignment_agrees(*pair) for pair in zip(entries, greedy)), len(entries), exact))
    return rows


def bleu(args, models):
    """BLEU on test_2016_flickr, as it was recorded."""
    sources, references = corpus(args, "test_2016_flickr.en"), corpus(args, "test_2016_flickr.de")
    repository = models.checkpoint(CHECKPOINT)
    rows = []
    with Reference(tools(args), SCORE_BLEU, one_core()) as scorer:
        for dtype in DTYPES:
            with Server(args, repository, dtype) as server, translate_method(server.address) as method:
                for name, beam in (("greedy", 1), ("beam 5", 5)):
                    found = translated(method, sources, beam_size=beam)
                    score, signature = scorer.ask(
                        [[translation.hypotheses[0].text for translation in found], references])
                    rows.append(row(f"BLEU, test_2016_flickr, {name} ({signature}), {dtype}".replace("|", " "),
                                    f"{score:.2f}", f"{BLEU[name]} within {BLEU_LIMITS[dtype]}",
                                    abs(score - BLEU[name]) <= BLEU_LIMITS[dtype]))
    return rows


ONE_CORE = ["--instances=1", "--cpu_threads=1"]


def pytorch(args, models):
    """64 sentences, beam 5, on one thread of one core, alternating."""
    folder = checkpoint_folder(args)
    lines = (folder / "expected.jsonl").read_text(encoding="utf-8").splitlines()[:SENTENCES]
    sentences = [json.loads(line)["source_ids"] for line in lines]
    repository = models.checkpoint(CHECKPOINT)
    core = one_core()
    rows = []
    request = {"sequences": [{"token_ids": {"values": ids}} for ids in sentences], "beam_size": 5}
    with Reference(args.python, PYTORCH, core, reference_folder(args), folder) as reference:
        reference.ask(sentences[:4])
        for dtype in DTYPES:
            ours, theirs, equal = [], [], 0
            with Server(args, repository, dtype, ONE_CORE, core) as server, \
                    translate_method(server.address) as method:
                for _ in range(3):
                    method(request)
                for _ in range(ROUNDS):
                    elapsed, tokens = reference.ask(sentences)
                    theirs.append(elapsed)
                    answers = [method(request) for _ in range(3)]
                    ours.append(statistics.median(answer.times.total_us for answer in answers) / 1e6)
                    equal = sum(found.hypotheses[0].token_ids == expected
                                for found, expected in zip(answers[0].translations, tokens))
            mine, reference_s = statistics.median(ours), statistics.median(theirs)
            rows.append(at_least(
                f"one core, {SENTENCES} sentences, beam 5: the reference's time in PyTorch (float32) / ours, {dtype}",
                reference_s / mine, 4,
                f" ({1e3 * reference_s:,.0f} / {1e3 * mine:,.0f} ms; {equal} of {SENTENCES} translations equal)"))
    return rows


def flop(size, feed_forward_products, sentences, beam):
    """Floating-point operations of the matrix products that a search needs, attention's included: each
    source token through the encoder once, one row in the first step and `beam` in each other one.
    feed_forward_products: products of d_model x d_sru in each layer, 2 of a feed-forward layer and 4 of an
    SRU layer (three in, one out)."""
    c = SIZES[size]
    d, wide = c["d_model"], feed_forward_products * c["d_model"] * c["d_sru"]
    encoder = c["encoder_layers"] * SOURCE * (4 * d * d + wide + 2 * d * SOURCE)
    keys = c["decoder_layers"] * SOURCE * 2 * d * d
    decoder = 0
    for step in range(TARGET):
        hypotheses = beam if step else 1
        decoder += hypotheses * (c["decoder_layers"] * (6 * d * d + wide + 2 * d * (step + 1 + SOURCE))
                                 + d * c["target_vocabulary"])
    return 2 * sentences * (encoder + keys + decoder)


def random_ids(sentences, length, vocabulary):
    random.seed(5)
    return [[random.randrange(4, vocabulary) for _ in range(length)] for _ in range(sentences)]


def ctranslate2(args, models):
    """Operations per second against CTranslate2's, float32, on one thread of one core, alternating."""
    python = tools(args)
    core = one_core()
    rows = []
    for size, config in SIZES.items():
        with Reference(python, CTRANSLATE2, core, json.dumps(config), TARGET) as reference, \
                Server(args, models.random(size), "float32", ONE_CORE, core) as server, \
                translate_method(server.address) as method:
            for sentences in (1, 32):
                ids = random_ids(sentences, SOURCE, config["source_vocabulary"])
                for beam in (1, 5):
                    request = {"sequences": [{"token_ids": {"values": sentence}} for sentence in ids],
                               "beam_size": beam, "max_new_tokens": TARGET}
                    answer = method(request)
                    lengths = {len(found.hypotheses[0].token_ids) for found in answer.translations}
                    if lengths != {TARGET}:
                        raise NotMeasured(f"expected translations of {TARGET} tokens, found {sorted(lengths)}")
                    reference.ask([ids, beam])
                    ours, theirs = [], []
                    end = time.monotonic() + 2 * args.seconds
                    while len(ours) < ROUNDS or (time.monotonic() < end and len(ours) < 51):
                        theirs.append(reference.ask([ids, beam]))
                        ours.append(method(request).times.total_us / 1e6)
                    mine, other = statistics.median(ours), statistics.median(theirs)
                    rates = flop(size, 4, sentences, beam) / mine, flop(size, 2, sentences, beam) / other
                    rows.append(at_least(
                        f"{size}, {sentences} sentence{'s' * (sentences > 1)}, beam {beam}: FLOP/s / those of "
                        "CTranslate2", rates[0] / rates[1], 1,
                        f" ({rates[0] / 1e9:.1f} / {rates[1] / 1e9:.1f} GFLOP/s, {1e3 * mine:.1f} / "
                        f"{1e3 * other:.1f} ms)", digits=2))
    return rows


LENGTHS = range(10, 101, 10)


def by_length(args, models):
    """The time of one sentence by the tokens of its translation."""
    size = "checkpoint's size"
    ids = random_ids(1, SOURCE, SIZES[size]["source_vocabulary"])[0]
    rows = []
    with Server(args, models.random(size), flags=ONE_CORE) as server, \
            translate_method(server.address) as method:
        for beam in (1, 5):
            times = {length: [] for length in LENGTHS}
            for _ in range(3 + 3 * ROUNDS):
                for length in LENGTHS:
                    answer = method({"sequences": [{"token_ids": {"values": ids}}], "beam_size": beam,
                                     "max_new_tokens": length})
                    times[length].append(answer.times.total_us / 1e3)
            medians = [statistics.median(times[length][3:]) for length in LENGTHS]
            slope, start = linear_fit(LENGTHS, medians)
            largest = max(abs(found - start - slope * length) / found
                          for length, found in zip(LENGTHS, medians))
            rows.append(at_most(
                f"translations of 10 to 100 tokens, beam {beam}: largest deviation of the time from a straight line",
                largest, 0.1, f" ({start:.2f} ms + {slope:.3f} ms per token)"))
            rows.append(at_most(f"the same: time per token from 60 to 100 tokens / from 10 to 50, beam {beam}",
                                linear_fit(LENGTHS[5:], medians[5:])[0] / linear_fit(LENGTHS[:5], medians[:5])[0],
                                1.2))
    return rows


class StateWatch:
    """The most memory that the states of a server's sequences have had."""

    def __init__(self, server):
        self.most = 0
        self._server = server
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self):
        while not self._stop.wait(0.005):
            self.most = max(self.most, self._server.metric("sru_state_bytes", 'kind="used"'))

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()


def memory(args, models):
    """What the arena holds while sentences are translated, against keys, values and states."""
    size, sentences, source, target = "paper's size", 16, 40, 80
    c = SIZES[size]
    ids = random_ids(sentences, source, c["source_vocabulary"])
    rows = []
    for dtype in DTYPES:
        with Server(args, models.random(size), dtype) as server, translate_method(server.address) as method:
            for beam in (1, 5):
                with StateWatch(server) as watch:
                    method({"sequences": [{"token_ids": {"values": sentence}} for sentence in ids],
                            "beam_size": beam, "max_new_tokens": target})
                # States are float32 whatever the type of the weights.
                context = 4 * c["decoder_layers"] * 2 * c["d_model"] * source
                own = 4 * c["decoder_layers"] * (2 * c["d_model"] * target + c["d_sru"])
                calculated = sentences * (context + beam * own)
                rows.append(at_most(
                    f"{sentences} sentences of {source} tokens, {target} new ones, beam {beam}: most memory of states "
                    f"/ keys, values and c of all hypotheses, {dtype}", watch.most / calculated, 1.25,
                    f" ({watch.most / sentences / beam / 1e6:.2f} MB a hypothesis)"))
    return rows


def overload(args, models):
    """With real sentences, and the model's own beam."""
    path = models.folder / "sentences.txt"
    path.write_text("\n".join(corpus(args, "test_2016_flickr.en")[:256]) + "\n", encoding="utf-8")
    return report_common.overload(args, "translate", models.checkpoint(CHECKPOINT), [f"--input={path}"])


def request(number):
    random.seed(number)
    return {"sequences": [{"token_ids": {"values": [random.randrange(4, 6000) for _ in range(20)]}}
                          for _ in range(8)], "beam_size": 5, "max_new_tokens": 40}


# All calls of a part may wait, whatever time they have.
PATIENT = ["--max_queue_tokens=1000000", "--admission=none"]


def deadlines(args, models):
    return report_common.deadlines(args, models.checkpoint(CHECKPOINT), translate_method, request, PATIENT)


def cancellation(args, models):
    return report_common.after_cancellation(args, models.checkpoint(CHECKPOINT), translate_method, request,
                                            PATIENT)


def drain(args, models):
    return report_common.drain(args, models.checkpoint(CHECKPOINT), translate_method, request, PATIENT)


PARTS = {part.__name__: part for part in (goldens, checkpoint, bleu, pytorch, ctranslate2, by_length, memory,
                                          overload, deadlines, cancellation, drain)}

COMMANDS = """## Commands

`scripts/translator_report.py --shared=../shared` reproduces every figure and writes this page. What it runs can be
run by itself, the last three against any server of this machine:

```
ctest --test-dir build -R '^translator_'                           the golden cases on every backend
kernel_benchmarks --benchmark_filter=BM_Translator                 a step and the encoder against their products, without a server
sru_bench translate --check                                        throughput and latency; every answer compared with that of its call alone
sru_bench translate --rate=20 --deadline=2s --input=sentences.txt  open loop, a text per line
sru_bench translate --lengths=lognormal:14:0.4:60 --output=fixed:40 --beam_size=1      random ids, greedy
```
"""


def report(args, results):
    text = ("The model is `translator_multi30k` of the shared checkpoints, the reference is their `translator.py`."
            " The comparisons with PyTorch and CTranslate2 give both sides one thread on the same core; ours is the"
            " server's time for the whole call (`total_us`).\n\n"
            "CTranslate2 runs a plain Transformer with random weights and our sizes: a feed-forward layer of d_sru"
            f" values where ours has an SRU. Sources and translations have {SOURCE} and {TARGET} tokens each, since the"
            " end is forbidden until then (`min_decoding_length`; in our model by its bias). Operations are those of"
            " the matrix products that each needs, attention's included: two per weight and row, where a source token is"
            " a row of the encoder and of the decoder's keys and values, and every step has one row per live hypothesis."
            " With beam 5 that is one row in the first step and five in each other one. An SRU layer needs four"
            " products of d x d_sru, a feed-forward layer two.")
    return report_common.page("Translate", "translator_report.py", text, args, results, COMMANDS)


def main():
    parser = report_common.make_parser(
        __doc__, PARTS, "checkpoints/translator_multi30k, reference and datasets/multi30k", "translator.md")
    parser.add_argument("--tools", type=pathlib.Path, default=ROOT / "build" / "report_tools",
                        help="virtual environment with " + " and ".join(TOOLS) + "; made when it is not there")
    return report_common.run(parser, PARTS, Models, report)


if __name__ == "__main__":
    sys.exit(main())
