#!/usr/bin/env python3
"""Measures Generate and writes docs/benchmarks/generate.md.

  make build && scripts/generate_report.py --shared=../shared          about 25 minutes

Every figure is a ratio of two things that are measured in one run on one machine, or a count. Parts can
be left out or chosen: --parts=continuations,resume. Needs grpcio and numpy in this interpreter, and PyTorch and
the package `sru` 2.6.0 in the interpreter --python, to make the model of the paper's size and as what is
compared with. Exits with 1 if a figure is not as wanted.
"""

import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import time

sys.dont_write_bytecode = True
import report_common
from report_common import (DTYPES, MemoryWatch, NotMeasured, ROOT, Server, at_least, at_most, bench, row,
                           seconds)
from sru_inference import Client  # client/python, where report_common looks

# The size of the paper's model of 12 layers: a session's state is 12 x 2,048 float32 values, and h.
PAPER = {"input_size": 256, "hidden_size": 2048, "num_layers": 12, "projection_size": 512}
PAPER_VOCABULARY = 205
PAPER_STATE_BYTES = 4 * 2048 * (12 + 1)

# Steps tokens through the package, one at a time, as a program without a server would: the best next
# token of each sequence is what it reads next.
PYTORCH = report_common.PYTORCH_CHECKED + """
import json, statistics, sru
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
        return self.make("book", lambda repository: shutil.copytree(
            ROOT / "models" / "pretrained" / "war_and_peace", repository / "war_and_peace"))

    def paper(self):
        """A model of the paper's size with random weights."""
        return self.make("paper", lambda repository: self.python(
            ROOT / "tests" / "golden" / "make_language_model.py", "--encoder", json.dumps(PAPER),
            "--vocabulary", PAPER_VOCABULARY, "--lengths", 1, "--out", repository / "paper" / "1"))

    def paper_and_classifier(self):
        def make(repository):
            shutil.copytree(self.paper() / "paper", repository / "paper")
            shutil.copytree(ROOT / "models" / "pretrained" / "trec", repository / "trec")
        return self.make("paper_and_classifier", make)


def continuations(args, models):
    """Greedy texts against those that PyTorch gave."""
    folder = args.shared / "checkpoints" / "lm_war_and_peace"
    if not folder.exists():
        raise NotMeasured(f"{folder} is not here")
    repository = models.book()
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    ids = {byte: i for i, byte in enumerate(config["vocabulary"])}

    def encode(entry, key):
        data = bytes(entry[key + "_bytes"]) if key + "_bytes" in entry else entry[key].encode("utf-8")
        return [ids[byte] for byte in data]

    entries = [json.loads(line)
               for line in (folder / "expected.jsonl").read_text(encoding="utf-8").splitlines()]
    entries = [entry for entry in entries if entry["kind"] == "generate"]
    rows = []
    for dtype in DTYPES:
        with Server(args, repository, dtype) as server:
            client = Client(server.address)
            equal = 0
            for entry in entries:
                expected = encode(entry, "continuation")
                found = []
                for message in client.generate(encode(entry, "prompt"), max_new_tokens=len(expected)):
                    found += message.token_ids.tolist()
                equal += found == expected
            client.close()
        exact = dtype == "float32"
        rows.append(row(f"greedy continuations of 200 bytes that PyTorch's are equal to, {dtype}",
                        f"{equal} of {len(entries)}", "all" if exact else "–",
                        equal == len(entries) or not exact))
    return rows


def steps(args, _):
    """A step of a model of the paper's size (shape 1 of the benchmark), without a server."""
    program = args.bin / "kernel_benchmarks"
    if not program.exists():
        raise NotMeasured("kernel_benchmarks is not built (Google Benchmark is not installed)")
    done = subprocess.run(
        [str(program), "--benchmark_filter=BM_DecodingStep/shape:1/", "--benchmark_format=json"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
    rows = []
    for result in json.loads(done.stdout)["benchmarks"]:
        dimensions = dict(part.split(":") for part in result["name"].split("/") if ":" in part)
        dtype = "bfloat16" if dimensions.get("bfloat16") == "1" else "float32"
        dtype += ", sampled" if dimensions.get("sampled") == "1" else ", greedy"
        if dimensions.get("batch") == "1" and "to_reading" in result:
            rows.append(at_most(f"one session: step / time to read its weights once, {dtype}",
                                result["to_reading"], 1.35, " (aim 1.1)"))
        elif dimensions.get("batch") == "64":
            rows.append(at_most(f"64 sessions: step / its matrix products alone, {dtype}",
                                result["ratio"], 1.35, " (aim 1.1)"))
    if not rows:
        raise NotMeasured("BM_DecodingStep has no run of the large model with 1 and 64 sessions")
    return rows


def tokens_per_second(args, server, sessions):
    return bench(args, "generate", server, f"--sessions={sessions}", "--prompt=fixed:10",
                 "--output=fixed:1000", f"--duration={seconds(args.seconds)}",
                 "--warmup=2s")["tokens_per_s"]


def rates(args, models):
    """Tokens per second of the whole server: 64 sessions against 1, alternating."""
    with Server(args, models.paper(), "bfloat16") as server:
        runs = [(tokens_per_second(args, server, 1), tokens_per_second(args, server, 64))
                for _ in range(3)]
    ratio = statistics.median(many / one for one, many in runs)
    one, many = (statistics.median(run[i] for run in runs) for i in (0, 1))
    return [at_least("tokens/s of 64 sessions / of 1, bfloat16", ratio, 12,
                     f" ({many:,.0f} / {one:,.0f})")]


def package(args, models):
    """The server against the published package in PyTorch, which steps token by token."""
    rows = []
    for sessions in (1, 32):
        found = []
        for _ in range(3):
            done = subprocess.run(
                [args.python, "-c", PYTORCH,
                 json.dumps([PAPER, PAPER_VOCABULARY, sessions, args.seconds, os.cpu_count()])],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
            if done.returncode:
                raise NotMeasured(done.stderr.strip().split("\n")[-1])
            theirs = float(done.stdout.split()[-1])
            for dtype in DTYPES:
                with Server(args, models.paper(), dtype) as server:
                    ours = tokens_per_second(args, server, sessions)
                found.append((dtype, ours / theirs, ours, theirs))
        for dtype in DTYPES:
            runs = sorted(run[1:] for run in found if run[0] == dtype)
            ratio, ours, theirs = runs[len(runs) // 2]
            rows.append(at_least(f"tokens/s / those of the package in PyTorch (float32), {sessions} "
                                 f"sessions, {dtype}", ratio, 5,
                                 f" ({ours:,.0f} / {theirs:,.0f}; aim 10)"))
    return rows


def first_token(args, models):
    """The first token after a prompt of 1,000 tokens, against Score of the prompt."""
    random.seed(1)
    prompt = [random.randrange(PAPER_VOCABULARY) for _ in range(1000)]
    generated, scored = [], []
    with Server(args, models.paper()) as server:
        client = Client(server.address)
        for _ in range(21):
            # Another first token each time, so that no kept prefix helps.
            prompt[0] = (prompt[0] + 1) % PAPER_VOCABULARY
            start = time.monotonic()
            next(client.generate(prompt, max_new_tokens=1))
            generated.append(time.monotonic() - start)
            prompt[0] = (prompt[0] + 1) % PAPER_VOCABULARY
            start = time.monotonic()
            client.score([prompt], timeout=100)
            scored.append(time.monotonic() - start)
        client.close()
    ratio = statistics.median(generated[1:]) / statistics.median(scored[1:])
    return [at_most("prompt of 1,000 tokens: time to first token / Score of the prompt", ratio, 1.1,
                    f" ({1e3 * statistics.median(generated[1:]):.0f} ms)")]


def memory(args, models):
    """1,000 sessions open, of which 100 generate."""
    # Sessions that read nothing are cut off after a while, which is not what is measured here.
    flags = ["--max_streams=1100", "--max_new_tokens=100000", "--send_timeout_s=0"]
    with Server(args, models.paper(), "bfloat16", flags) as server:
        bench(args, "generate", server, "--sessions=100", "--prompt=fixed:10", "--output=fixed:20",
              "--duration=2s")
        idle = server.memory_bytes()
        # An idle session goes on until what its client does not read stops it.
        def is_settled():
            return server.metric("sru_generate_calls", 'state="paused"') >= 900
        with MemoryWatch(server, is_settled) as watch:
            result = bench(args, "generate", server, "--sessions=100", "--idle=900",
                           "--prompt=fixed:10", "--output=fixed:100",
                           f"--duration={seconds(60 + 3 * args.seconds)}")
    if result["idle"] != 900:
        reasons = "; ".join(result["first_errors"].values())
        raise NotMeasured(f"only {result['idle']} of 900 idle sessions were open: {reasons}")
    if len(watch.settled) < 5:
        raise NotMeasured("900 sessions were not idle in time: a larger --seconds gives them more")

    def above_idle(memory_bytes):
        return (memory_bytes - idle) / (1000 * PAPER_STATE_BYTES)

    # In the steps in which all of them go on, each has a second state.
    peak = above_idle(max(watch.samples))
    return [at_most("1,000 sessions open, 100 active: memory above idle / 1,000 states",
                    above_idle(statistics.median(watch.settled[-5:])), 1.3),
            row("the same at the peak, while all 1,000 go on", f"{peak:.2f}", "", True)]


def overload(args, models):
    """Twice the texts per second that the server can write."""
    with Server(args, models.book()) as server:
        closed = bench(args, "generate", server, "--sessions=64", "--prompt=uniform:1:200",
                       "--output=geometric:50:500", f"--duration={seconds(args.seconds)}")
        rate = 2 * closed["ok"] / closed["elapsed_s"]
        with MemoryWatch(server) as watch:
            result = bench(args, "generate", server, f"--rate={rate:.3f}", "--check",
                           "--prompt=uniform:1:200", "--output=geometric:50:500",
                           "--temperature=0.8", "--deadline=10s",
                           f"--duration={seconds(args.overload_seconds)}")
    growth = watch.growth()
    what = f"{args.overload_seconds / 60:g} minutes at 2x overload"
    return [
        row(f"{what}: texts that were lost", f"{result['lost']} of {result['texts']:,}", "0",
            result["lost"] == 0),
        row(f"{what}: tokens that differ from the run of each text alone",
            f"{result['wrong_tokens']} of {result['checked_tokens']:,}", "0",
            result["wrong_tokens"] == 0),
        row(f"{what}: memory in the last third / in the middle third", f"{growth:.3f}", "at most 1.02",
            growth <= 1.02),
    ]


def flood(args, models):
    """The time between tokens while another model classifies as much as it can."""
    flags = ["--sessions=4", "--prompt=fixed:20", "--output=fixed:200",
             f"--duration={seconds(args.seconds)}"]
    with Server(args, models.paper_and_classifier()) as server:
        alone, flooded = [], []
        for _ in range(3):
            alone.append(bench(args, "generate", server, *flags)["between_tokens_us"]["p99"])
            load = subprocess.Popen(
                [str(args.bin / "sru_bench"), "load", f"--address={server.address}", "--model=trec",
                 "--in_flight=256", f"--duration={seconds(args.seconds + 5)}", "--json"],
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                time.sleep(1)
                flooded.append(bench(args, "generate", server, *flags)["between_tokens_us"]["p99"])
            finally:
                load.terminate()
                load.wait()
    ratio = statistics.median(flooded) / statistics.median(alone)
    return [at_most("time between tokens, p99, while Classify floods another model / unloaded", ratio, 3,
                    f" ({statistics.median(flooded) / 1e3:.1f} / {statistics.median(alone) / 1e3:.1f} ms; "
                    "aim 2)")]


def resume(args, models):
    """Stops at random places and goes on from the state: the same bits as without the stop?"""
    random.seed(2)
    length, trials = 60, args.stops
    equal = states = 0
    with Server(args, models.book()) as server:
        client = Client(server.address)

        def run(**arguments):
            ids, log_probs, text, last = [], [], "", None
            for last in client.generate(token_log_probs=True, return_state=True, **arguments):
                ids += last.token_ids.tolist()
                log_probs += last.log_probs.tolist()
                text += last.text
            return ids, log_probs, text, last.state

        wholes = {}
        for trial in range(trials):
            seed = trial % 20
            sampling = {"temperature": 0.9, "top_p": 0.95, "seed": seed}
            if seed % 4 == 3:
                sampling = {"repetition_penalty": 1.2, "frequency_penalty": 0.1, "temperature": 1.0,
                            "seed": seed}
            prompt = "It was in the year %d that " % (1800 + seed)
            if seed not in wholes:
                wholes[seed] = run(prompt=prompt, sampling=sampling, max_new_tokens=length)
            stop = random.randrange(1, length)
            begin = run(prompt=prompt, sampling=sampling, max_new_tokens=stop)
            rest = run(state=begin[3], sampling=sampling, max_new_tokens=length - stop)
            equal += (begin[0] + rest[0], begin[1] + rest[1]) == wholes[seed][:2]
            states += rest[3] == wholes[seed][3]
        client.close()
    return [row(f"stopped and gone on from the state at {trials:,} random places: equal tokens and "
                "log-probabilities, bit by bit", f"{equal:,}", f"{trials:,}", equal == trials),
            row("the same: equal states at the end, byte by byte", f"{states:,}", f"{trials:,}",
                states == trials)]


PARTS = {part.__name__: part for part in (continuations, steps, rates, package, first_token, memory,
                                          overload, flood, resume)}

NOTES = """## How to read it

One session is bound by memory: a step reads every weight once, and takes 1.0 to 1.15 times as long as reading alone. The package in PyTorch, with
OpenBLAS, takes about twice the time of reading the same float32 weights. So with one session and weights of the same type nothing can be five times as
fast; bfloat16 halves what is read, and only smaller weights would bring more. With 32 sessions a weight that was read serves all of them. Without
OpenBLAS (the reference BLAS, which Debian installs by default), PyTorch is up to five times slower, and `package` refuses to compare."""

COMMANDS = """## Commands

`scripts/generate_report.py --shared=../shared` reproduces every figure and writes this page. What it runs can be
run by itself against any server of this machine:

```
sru_bench generate --sessions=64                                   tokens per second, time to first token, time between tokens
sru_bench generate --sessions=64 --check                           and compares every token with those of each text alone
sru_bench generate --rate=5 --prompt=lognormal:200:0.8:2000 --output=geometric:100:1000     open loop
sru_bench generate --sessions=100 --idle=900                       900 sessions more that are open and read nothing
sru_client generate --stats --max_new_tokens=500 "It was a dark"   the times of one text
kernel_benchmarks --benchmark_filter=BM_DecodingStep               a step without a server, against its products and against reading
                                                                   its weights once
```
"""


def report(args, results):
    text = ("Each ratio is of two things measured in one run. The model of the paper's size has"
            f" {PAPER['num_layers']} layers of {PAPER['hidden_size']:,} with projections of"
            f" {PAPER['projection_size']} and random weights; the small one is `lm_war_and_peace`.")
    return report_common.page("Generate", "generate_report.py", text, args, results,
                              f"{NOTES}\n\n{COMMANDS}")


def main():
    parser = report_common.make_parser(__doc__, PARTS, "checkpoints/lm_war_and_peace", "generate.md")
    parser.add_argument("--stops", type=int, default=1000)
    return report_common.run(parser, PARTS, Models, report)


if __name__ == "__main__":
    sys.exit(main())
