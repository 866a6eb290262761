#!/usr/bin/env python3
"""Measures Generate and writes docs/benchmarks/generate.md.

  make build && scripts/generate_report.py --shared=../shared          about 25 minutes

Every figure is a ratio of two things that are measured in one run on one machine, or a count. Parts can
be left out or chosen: --parts=continuations,resume. Needs grpcio in this interpreter, and PyTorch and
the package `sru` 2.6.0 in the interpreter --python, to make the model of the paper's size and as what is
compared with. Exits with 1 if a figure is not as wanted.
"""

import argparse
import datetime
import json
import os
import pathlib
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "client" / "python"))
sys.dont_write_bytecode = True
try:
    import generate  # noqa: E402  (client/python)
    import score  # noqa: E402
except ImportError as missing_module:
    print(f"SKIPPED: {missing_module} ({sys.executable})")
    sys.exit(77)

# The size of the paper's model of 12 layers: a session's state is 12 x 2,048 float32 values, and h.
PAPER = {"input_size": 256, "hidden_size": 2048, "num_layers": 12, "projection_size": 512}
PAPER_VOCABULARY = 205
PAPER_STATE_BYTES = 4 * 2048 * (12 + 1)
DTYPES = ("float32", "bfloat16")

# Steps tokens through the package, one at a time, as a program without a server would: the best next
# token of each sequence is what it reads next.
PYTORCH = """
import json, statistics, sys, time, torch, sru
arguments, vocabulary, sessions, seconds, threads = json.loads(sys.argv[1])
torch.manual_seed(0); torch.set_num_threads(threads); torch.set_flush_denormal(True)
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
print(sessions / statistics.median(times[5:]))
"""


def progress(text):
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


class NotMeasured(Exception):
    """A part cannot run here; says why."""


class Server:
    """A server on ports that the system picks."""

    def __init__(self, args, repository, dtype="float32", flags=()):
        self.process = subprocess.Popen(
            [
                str(args.bin / "sru_server"),
                f"--model_repository={repository}",
                f"--backend={args.backend}",
                f"--dtype={dtype}",
                "--listen=127.0.0.1:0",
                "--metrics_listen=127.0.0.1:0",
                *flags,
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        found = re.match(r"listening on ([^,]+), metrics on (\S+)", self.process.stdout.readline())
        if not found:
            self.process.wait()
            raise NotMeasured(self.process.stderr.read().strip().split("\n")[-1])
        # Its log must not fill the pipe.
        threading.Thread(target=self.process.stderr.read, daemon=True).start()
        self.address = found.group(1)
        self._metrics = f"http://{found.group(2)}/metrics"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        self.process.stdout.close()

    def memory_bytes(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
        return 1024 * int(re.search(r"VmRSS:\s+(\d+) kB", status).group(1))

    def paused_texts(self):
        with urllib.request.urlopen(self._metrics) as answer:
            text = answer.read().decode("utf-8")
        return sum(int(value) for value in re.findall(
            r'^sru_generate_calls\{[^}]*state="paused"[^}]*\} (\d+)', text, re.MULTILINE))


class MemoryWatch:
    """The server's memory, every second; `settled` is what it was while `paused` texts did not go on."""

    def __init__(self, server, paused=None):
        self.samples = []
        self.settled = []
        self._server = server
        self._paused = paused
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self):
        while not self._stop.wait(1):
            self.samples.append(self._server.memory_bytes())
            if self._paused is not None and self._server.paused_texts() >= self._paused:
                self.settled.append(self.samples[-1])

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()


def bench(args, command, server, *flags):
    """The JSON object of a run of sru_bench."""
    done = subprocess.run(
        [str(args.bin / "sru_bench"), command, f"--address={server.address}", "--json", *flags],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if not done.stdout.strip():
        raise NotMeasured(done.stderr.strip().split("\n")[-1])
    return json.loads(done.stdout)


def seconds(value):
    return f"{value:g}s"


class Models:
    """The repositories that are served, made when they are first asked for."""

    def __init__(self, args, folder):
        self._args, self._folder = args, pathlib.Path(folder)

    def _make(self, name, make):
        repository = self._folder / name
        if not repository.exists():
            progress(f"makes the repository '{name}'")
            make(repository)
        return repository

    def _python(self, *command):
        done = subprocess.run([self._args.python, *map(str, command)], stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            raise NotMeasured(done.stderr.strip().split("\n")[-1])

    def book(self):
        """The bundled model, which is that of checkpoints/lm_war_and_peace."""
        return self._make("book", lambda repository: shutil.copytree(
            ROOT / "models" / "pretrained" / "war_and_peace", repository / "war_and_peace"))

    def paper(self):
        """A model of the paper's size with random weights."""
        return self._make("paper", lambda repository: self._python(
            ROOT / "tests" / "golden" / "make_language_model.py", "--encoder", json.dumps(PAPER),
            "--vocabulary", PAPER_VOCABULARY, "--lengths", 1, "--out", repository / "paper" / "1"))

    def paper_and_classifier(self):
        def make(repository):
            shutil.copytree(self.paper() / "paper", repository / "paper")
            shutil.copytree(ROOT / "models" / "pretrained" / "trec", repository / "trec")
        return self._make("paper_and_classifier", make)


def row(name, figure, wanted, good):
    return {"name": name, "figure": figure, "wanted": wanted, "good": good}


def at_most(name, value, limit, detail=""):
    return row(name, f"{value:.2f}{detail}", f"at most {limit:g}", value <= limit)


def at_least(name, value, limit, detail=""):
    return row(name, f"{value:.1f}{detail}", f"at least {limit:g}", value >= limit)


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
            client = generate.Client(server.address)
            equal = 0
            for entry in entries:
                expected = encode(entry, "continuation")
                found = []
                for message in client.generate(encode(entry, "prompt"), max_new_tokens=len(expected)):
                    found += message["token_ids"]
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
        generator, scorer = generate.Client(server.address), score.Client(server.address)
        for _ in range(21):
            # Another first token each time, so that no kept prefix helps.
            prompt[0] = (prompt[0] + 1) % PAPER_VOCABULARY
            start = time.monotonic()
            next(generator.generate(prompt, max_new_tokens=1))
            generated.append(time.monotonic() - start)
            prompt[0] = (prompt[0] + 1) % PAPER_VOCABULARY
            start = time.monotonic()
            scorer.score([prompt], timeout=100)
            scored.append(time.monotonic() - start)
        generator.close()
        scorer.close()
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
        with MemoryWatch(server, paused=900) as watch:
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
    third = max(1, len(watch.samples) // 3)
    growth = statistics.median(watch.samples[-third:]) / statistics.median(watch.samples[third:2 * third])
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
        client = generate.Client(server.address)

        def run(**arguments):
            ids, log_probs, text, last = [], [], "", None
            for last in client.generate(token_log_probs=True, return_state=True, **arguments):
                ids += last["token_ids"]
                log_probs += last["log_probs"]
                text += last["text"]
            return ids, log_probs, text, last["state"]

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
    lines = [
        "# Generate",
        "",
        "Written by `scripts/generate_report.py`. Each ratio is of two things measured in one run. The model of the"
        f" paper's size has {PAPER['num_layers']} layers of {PAPER['hidden_size']:,} with projections of"
        f" {PAPER['projection_size']} and random weights; the small one is `lm_war_and_peace`.",
        "",
        f"Machine: {os.cpu_count()} cores, backend {args.backend}. Date: {datetime.date.today()}.",
        "",
        "| | found | wanted |",
        "|---|---|---|",
    ]
    for result in results:
        for entry in result.get("rows", []):
            found = entry["figure"] if entry["good"] else f"**{entry['figure']}**"
            lines.append(f"| {entry['name']} | {found} | {entry['wanted']} |")
    missing = [f"{result['part']}: {result['missing']}" for result in results if "missing" in result]
    if missing:
        lines += ["", "Not measured: " + "; ".join(missing) + "."]
    return "\n".join(lines) + "\n\n" + COMMANDS


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=pathlib.Path, default=ROOT.parent / "shared",
                        help="folder with checkpoints/lm_war_and_peace")
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build" / "bin",
                        help="folder with sru_server, sru_bench and kernel_benchmarks")
    parser.add_argument("--python", default=sys.executable, help="interpreter with torch and sru")
    parser.add_argument("--backend", default="cpu")
    parser.add_argument("--parts", default=",".join(PARTS), help="of " + ", ".join(PARTS))
    parser.add_argument("--seconds", type=float, default=10, help="of each measurement")
    parser.add_argument("--overload_seconds", type=float, default=600)
    parser.add_argument("--stops", type=int, default=1000)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "docs" / "benchmarks" / "generate.md")
    args = parser.parse_args()
    unknown = [part for part in args.parts.split(",") if part not in PARTS]
    if unknown:
        parser.error(f"--parts: expected some of {', '.join(PARTS)}, found {unknown[0]}")
    results = []
    with tempfile.TemporaryDirectory() as folder:
        models = Models(args, folder)
        for part in args.parts.split(","):
            progress(part)
            result = {"part": part}
            try:
                result["rows"] = PARTS[part](args, models)
                for entry in result["rows"]:
                    progress(f"  {entry['name']}: {entry['figure']}, wanted {entry['wanted']}")
            except NotMeasured as error:
                result["missing"] = str(error)
                progress(f"  not measured: {error}")
            results.append(result)
            # What was found so far is not lost if a later part is interrupted.
            args.out.write_text(report(args, results), encoding="utf-8")
    progress(f"wrote {args.out}")
    rows = [entry for result in results for entry in result.get("rows", [])]
    for entry in rows:
        if not entry["good"]:
            print(f"{entry['name']}: found {entry['figure']}, wanted {entry['wanted']}", file=sys.stderr)
    return 0 if rows and all(entry["good"] for entry in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
