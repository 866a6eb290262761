#!/usr/bin/env python3
"""Measures Generate and writes build/reports/generate.md.

  make build && scripts/generate_report.py --shared=../shared          about 25 minutes

Every figure is a ratio of two things that are measured in one run on one machine, or a count. Parts can be left out or chosen:
--parts=continuations,resume. Needs grpcio and numpy in this interpreter, and PyTorch and the package `sru` 2.6.0 in the interpreter
--python, to make the model of the paper's size and as what is compared with. Exits with 1 if a figure is not as wanted.
"""

import json
import os
import random
import shutil
import statistics
import sys
import time

import report_calls
import report_common
from report_calls import Client
from report_common import (DTYPES, NotMeasured, PRETRAINED, ROOT, Row, Server, Watch, alternate, at_least, at_most, background, bench, count,
                           kernel_benchmarks, of_all, output_of, ratios, seconds)
from score_report import Corpus, bytes_of

# The size of the paper's model of 12 layers: a session's state is 12 x 2,048 float32 values, and h.
PAPER = {"input_size": 256, "hidden_size": 2048, "num_layers": 12, "projection_size": 512}
PAPER_VOCABULARY = 205
PAPER_STATE_BYTES = 4 * 2048 * (12 + 1)

# Steps tokens through the package, one at a time, as a program without a server would: the best next
# token of each sequence is what it reads next.
PYTORCH = report_calls.PYTORCH_CHECKED + """
import statistics, sru
arguments, vocabulary, sessions, seconds, threads = json.loads(sys.argv[1])
torch.manual_seed(0); torch.set_num_threads(threads)
embedding = torch.nn.Embedding(vocabulary, arguments["input_size"])
rnn = sru.SRU(**arguments).eval()
output = torch.nn.Linear(arguments["hidden_size"], vocabulary)
ids = torch.zeros(1, sessions, dtype=torch.long)
times = []
with torch.no_grad():
    c = None
    end = time.monotonic() + seconds
    while time.monotonic() < end or len(times) < 20:
        start = time.monotonic()
        h, c = rnn(embedding(ids), c)
        ids = output(h).argmax(-1)
        times.append(time.monotonic() - start)
print(sessions / statistics.median(times[5:]), file=out)
"""


class Models(report_common.Models):
    def book(self):
        """The bundled model, which is that of checkpoints/lm_war_and_peace."""
        return self.make("book", lambda repository: shutil.copytree(PRETRAINED / "war_and_peace", repository / "war_and_peace"))

    def paper(self):
        """A model of the paper's size with random weights."""
        return self.make("paper", lambda repository: self.python(
            ROOT / "tests" / "golden" / "make_language_model.py", "--encoder", json.dumps(PAPER),
            "--vocabulary", PAPER_VOCABULARY, "--lengths", 1, "--out", repository / "paper" / "1"))

    def paper_and_classifier(self):
        def make(repository):
            shutil.copytree(self.paper() / "paper", repository / "paper")
            shutil.copytree(PRETRAINED / "trec", repository / "trec")
        return self.make("paper_and_classifier", make)


def continuations(args, models):
    """Greedy texts against those that PyTorch gave."""
    corpus = Corpus(args.shared)
    entries = [entry for entry in corpus.entries if entry["kind"] == "generate"]
    for dtype in DTYPES:
        equal = 0
        with Server(args, models.book(), dtype) as server, Client(server.address) as client:
            for entry in entries:
                prompt, expected = (corpus.encode(bytes_of(entry, key)) for key in ("prompt", "continuation"))
                stream = client.generate(prompt, max_new_tokens=len(expected))
                equal += [i for message in stream for i in message.token_ids.tolist()] == expected
        yield of_all(f"greedy continuations of 200 bytes that PyTorch's are equal to, {dtype}", equal, len(entries), dtype == "float32")


def steps(args, _):
    """A step of a model of the paper's size (shape 1 of the benchmark), without a server."""
    for dimensions, result in kernel_benchmarks(args, "BM_DecodingStep/shape:1/"):
        kind = f"{DTYPES[dimensions['bfloat16']]}, {'sampled' if dimensions['sampled'] else 'greedy'}"
        if dimensions["batch"] == 1:
            yield at_most(f"one session: step / time to read its weights once, {kind}", result["to_reading"], 1.35, " (aim 1.1)")
        elif dimensions["batch"] == 64:
            yield at_most(f"64 sessions: step / its matrix products alone, {kind}", result["ratio"], 1.35, " (aim 1.1)")


def tokens_per_second(args, server, sessions):
    return bench(args, "generate", server, f"--sessions={sessions}", "--prompt=fixed:10", "--output=fixed:1000",
                 f"--duration={seconds(args.seconds)}", "--warmup=2s")["tokens_per_s"]


def rates(args, models):
    """Tokens per second of the whole server: 64 sessions against 1, alternating."""
    with Server(args, models.paper(), "bfloat16") as server:
        runs = alternate(3, {n: lambda n=n: tokens_per_second(args, server, n) for n in (1, 64)})
    yield at_least("tokens/s of 64 sessions / of 1, bfloat16", statistics.median(ratios(runs[64], runs[1])), 12,
                   f" ({statistics.median(runs[64]):,.0f} / {statistics.median(runs[1]):,.0f})")


def package(args, models):
    """The server against the published package in PyTorch, which steps token by token."""
    def theirs(sessions):
        given = json.dumps([PAPER, PAPER_VOCABULARY, sessions, args.seconds, os.cpu_count()])
        return float(output_of([args.python, "-c", PYTORCH, given]).split()[-1])

    def ours(sessions, dtype):
        with Server(args, models.paper(), dtype) as server:
            return tokens_per_second(args, server, sessions)

    for sessions in (1, 32):
        runs = alternate(3, {"package": lambda: theirs(sessions), **{d: lambda d=d: ours(sessions, d) for d in DTYPES}})
        for dtype in DTYPES:
            ratio, mine, other = sorted(zip(ratios(runs[dtype], runs["package"]), runs[dtype], runs["package"]))[1]
            yield at_least(f"tokens/s / those of the package in PyTorch (float32), {sessions} sessions, {dtype}", ratio, 5,
                           f" ({mine:,.0f} / {other:,.0f}; aim 10)")


def first_token(args, models):
    """The first token after a prompt of 1,000 tokens, against Score of the prompt."""
    random.seed(1)
    prompt = [random.randrange(PAPER_VOCABULARY) for _ in range(1000)]

    def timed(call):
        # Another first token each time, so that no kept prefix helps.
        prompt[0] = (prompt[0] + 1) % PAPER_VOCABULARY
        start = time.monotonic()
        call()
        return time.monotonic() - start

    with Server(args, models.paper()) as server, Client(server.address) as client:
        runs = alternate(21, {"generated": lambda: timed(lambda: next(client.generate(prompt, max_new_tokens=1))),
                              "scored": lambda: timed(lambda: client.score([prompt], timeout=100))})
    generated, scored = (statistics.median(runs[name][1:]) for name in ("generated", "scored"))
    yield at_most("prompt of 1,000 tokens: time to first token / Score of the prompt", generated / scored, 1.1,
                  f" ({1e3 * generated:.0f} ms)")


def memory(args, models):
    """1,000 sessions open, of which 100 generate."""
    # Sessions that read nothing are cut off after a while, which is not what is measured here.
    flags = ["--max_streams=4400", "--max_new_tokens=100000", "--send_timeout_s=0"]
    with Server(args, models.paper(), "bfloat16", flags) as server:
        bench(args, "generate", server, "--sessions=100", "--prompt=fixed:10", "--output=fixed:20", "--duration=2s")
        idle = server.memory_bytes()
        # An idle session goes on until what its client does not read stops it.
        with Watch(lambda: (server.memory_bytes(), server.metric("sru_generate_calls", 'state="paused"') >= 900)) as watch:
            result = bench(args, "generate", server, "--sessions=100", "--idle=900", "--prompt=fixed:10", "--output=fixed:100",
                           f"--duration={seconds(60 + 3 * args.seconds)}")
    if result["idle"] != 900:
        raise NotMeasured(f"only {result['idle']} of 900 idle sessions were open: {'; '.join(result['first_errors'].values())}")
    settled = [memory_bytes for memory_bytes, paused in watch.samples if paused]
    if len(settled) < 5:
        raise NotMeasured("900 sessions were not idle in time: a larger --seconds gives them more")

    def above_idle(memory_bytes):
        return (memory_bytes - idle) / (1000 * PAPER_STATE_BYTES)

    yield at_most("1,000 sessions open, 100 active: memory above idle / 1,000 states", above_idle(statistics.median(settled[-5:])), 1.3)
    # In the steps in which all of them go on, each has a second state.
    yield Row("the same at the peak, while all 1,000 go on", f"{above_idle(max(watch.samples)[0]):.2f}")


def overload(args, models):
    """Twice the texts per second that the server can write."""
    shape = ["--prompt=uniform:1:200", "--output=geometric:50:500"]
    with Server(args, models.book()) as server:
        closed = bench(args, "generate", server, "--sessions=64", *shape, f"--duration={seconds(args.seconds)}")
        with Watch(server.memory_bytes) as watch:
            result = bench(args, "generate", server, f"--rate={2 * closed['ok'] / closed['elapsed_s']:.3f}", "--check", *shape,
                           "--temperature=0.8", "--deadline=10s", f"--duration={seconds(args.overload_seconds)}")
    what = f"{args.overload_seconds / 60:g} minutes at 2x overload"
    yield Row(f"{what}: texts that were lost", f"{result['lost']} of {result['texts']:,}", "0", result["lost"] == 0)
    yield Row(f"{what}: tokens that differ from the run of each text alone", f"{result['wrong_tokens']} of {result['checked_tokens']:,}",
              "0", result["wrong_tokens"] == 0)
    yield at_most(f"{what}: memory in the last third / in the middle third", watch.growth(), 1.02, digits=3)


def flood(args, models):
    """The time between tokens while another model classifies as much as it can."""
    with Server(args, models.paper_and_classifier()) as server:
        def alone():
            return bench(args, "generate", server, "--sessions=4", "--prompt=fixed:20", "--output=fixed:200",
                         f"--duration={seconds(args.seconds)}")["between_tokens_us"]["p99"] / 1e3

        def flooded():
            with background([args.bin / "sru_bench", "load", f"--address={server.address}", "--model=trec", "--in_flight=256",
                             f"--duration={seconds(args.seconds + 5)}", "--json"]):
                time.sleep(1)
                return alone()

        found = report_common.medians(3, {"alone": alone, "flooded": flooded})
    yield at_most("time between tokens, p99, while Classify floods another model / unloaded", found["flooded"] / found["alone"], 3,
                  f" ({found['flooded']:.1f} / {found['alone']:.1f} ms; aim 2)")


def resume(args, models):
    """Stops at random places and goes on from the state: the same bits as without the stop?"""
    random.seed(2)
    length, wholes, equal, states = 60, {}, 0, 0
    with Server(args, models.book()) as server, Client(server.address) as client:
        def run(**arguments):
            """(ids and log-probabilities, the state)"""
            tokens, last = [], None
            for last in client.generate(token_log_probs=True, return_state=True, **arguments):
                tokens += zip(last.token_ids.tolist(), last.log_probs.tolist())
            return tokens, last.state

        for trial in range(args.stops):
            seed = trial % 20
            sampling = {"temperature": 0.9, "top_p": 0.95, "seed": seed}
            if seed % 4 == 3:
                sampling = {"repetition_penalty": 1.2, "frequency_penalty": 0.1, "temperature": 1.0, "seed": seed}
            given = {"prompt": f"It was in the year {1800 + seed} that ", "sampling": sampling}
            if seed not in wholes:
                wholes[seed] = run(max_new_tokens=length, **given)
            stop = random.randrange(1, length)
            begin, state = run(max_new_tokens=stop, **given)
            rest, end = run(max_new_tokens=length - stop, state=state, sampling=sampling)
            equal += begin + rest == wholes[seed][0]
            states += end == wholes[seed][1]
    yield count(f"stopped and gone on from the state at {args.stops:,} random places: equal tokens and log-probabilities, bit by bit", equal,
                args.stops)
    yield count("the same: equal states at the end, byte by byte", states, args.stops)


def main():
    report = report_common.Report(
        __file__, "Generate",
        f"Each ratio is of two things measured in one run. The model of the paper's size has {PAPER['num_layers']} layers of"
        f" {PAPER['hidden_size']:,} with projections of {PAPER['projection_size']} and random weights; the small one is `lm_war_and_peace`.",
        (continuations, steps, rates, package, first_token, memory, overload, flood, resume))
    report.parser.add_argument("--overload_seconds", type=float, default=600)
    report.parser.add_argument("--stops", type=int, default=1000)
    return report.run(models=Models)


if __name__ == "__main__":
    sys.exit(main())
