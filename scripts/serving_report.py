#!/usr/bin/env python3
"""Measures the server on this machine and writes docs/benchmarks/serving.md.

  make build && scripts/serving_report.py          about 12 minutes; run nothing else meanwhile

Starts build/bin/sru_server on ports that the system picks, drives it with build/bin/sru_bench over
loopback, and stops it. Every ratio compares runs that alternate in this one call. Needs only Python; with the Python
package's requirements it also tells in which stages a call spends its time.
"""

import argparse
import datetime
import json
import multiprocessing
import os
import pathlib
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import call_stages

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "bin"


def progress(text):
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)



class Process:
    """A program that prints its address in its first line."""

    def __init__(self, *args):
        self.process = subprocess.Popen(
            [str(a) for a in args], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.addresses = re.findall(r"[\w.]+:\d+", self.process.stdout.readline())

    def seconds(self):
        """Processor time of all of its threads so far."""
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def rss_mib(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status).group(1)) / 1024

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()


def server(*flags, repository=ROOT / "models" / "pretrained", program=None):
    return Process(
        program or BUILD / "sru_server",
        f"--model_repository={repository}",
        "--listen=127.0.0.1:0",
        "--metrics_listen=127.0.0.1:0",
        "--http_listen=",
        *flags,
    )


def bench(command, *flags, none_ok=False):
    result = subprocess.run(
        [str(BUILD / "sru_bench"), command, *[str(f) for f in flags], "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    # It also fails when no call was answered OK, after it has printed what became of them.
    if result.returncode != 0 and not (none_ok and result.stdout):
        sys.exit(f"sru_bench {command} {' '.join(map(str, flags))}: {result.stderr}")
    return json.loads(result.stdout)


def spread(values, digits=0):
    """min / median / max."""
    return " / ".join(
        f"{v:,.{digits}f}" for v in (min(values), statistics.median(values), max(values))
    )


class Report:
    def __init__(self):
        self.lines = []

    def add(self, *lines):
        self.lines.extend(lines)


def wire(report, flags, rounds, seconds):
    progress("the wire: echo, 64 in flight and 1 in flight, alternating")
    echo, many, one, idle = [], [], [], []
    with server(*flags) as s:
        address = f"--address={s.addresses[0]}"
        for _ in range(rounds):
            echo.append(bench("echo", f"--duration={seconds}s")["throughput_per_s"])
            many.append(bench("load", address, f"--duration={seconds}s")["throughput_per_s"])
            run = bench("load", address, "--in_flight=1", f"--duration={seconds}s")
            one.append(run["throughput_per_s"])
            idle.append(run["latency_us"]["p50"])
    to_echo = [m / e for m, e in zip(many, echo)]
    to_one = [m / o for m, o in zip(many, one)]
    report.add(
        "### One question a call",
        "",
        f"{rounds} rounds of {seconds} s each of `sru_bench echo`, `sru_bench load` and"
        " `sru_bench load --in_flight=1`; min / median / max.",
        "",
        "| | figure | wanted |",
        "|---|---|---|",
        f"| bare echo, 64 in flight, calls/s | {spread(echo)} | |",
        f"| Classify, 64 in flight, calls/s | {spread(many)} | |",
        f"| Classify, 1 in flight, calls/s | {spread(one)} | |",
        f"| Classify, 1 in flight, p50 us | {spread(idle)} | |",
        f"| Classify / echo, 64 in flight | {spread(to_echo, 2)} | >= 0.7 |",
        f"| 64 in flight / 1 in flight | {spread(to_one, 2)} | >= 5 |",
        "",
    )


def latency_under_load(report, flags, rounds, step):
    progress("saturation and latency below it")
    ratios, rates, ours, echoes = [], [], [], []
    with server(*flags) as s:
        for _ in range(rounds):
            run = bench("sweep", f"--address={s.addresses[0]}", f"--step={step}s", "--max_in_flight=64")
            ratios.append(run["p99_at_half_over_idle_p50"])
            rates.append(run["saturation_per_s"])
            half = next(r for r in run["runs"] if r["name"] == "offered: 50%")
            ours.append(half["latency_us"]["p99"])
            echo = bench("echo", f"--rate={rates[-1] / 2:.0f}", f"--duration={step}s")
            echoes.append(echo["latency_us"]["p99"])
    report.add(
        "### Latency at half of the saturation rate",
        "",
        f"`sru_bench sweep --step={step}s --max_in_flight=64`, {rounds} times; min / median / max.",
        "",
        "| | figure | wanted |",
        "|---|---|---|",
        f"| saturation rate, calls/s | {spread(rates)} | |",
        f"| p99 at half of it / p50 idle | {spread(ratios, 2)} | <= 5 |",
        f"| p99 at half of it, us | {spread(ours)} | |",
        f"| p99 of `sru_bench echo` at the same rate, just after, us | {spread(echoes)} | |",
        f"| ours / the echo's | {spread([a / b for a, b in zip(ours, echoes)], 2)} | |",
        "",
    )


def one_connection(report, flags, rounds, seconds):
    progress("one connection and four, alternating")
    rates = {1: [], 4: []}
    costs = {1: [], 4: []}
    with server(*flags) as s:
        for _ in range(rounds):
            for connections in (1, 4):
                used = s.seconds()
                run = bench(
                    "load",
                    f"--address={s.addresses[0]}",
                    f"--connections={connections}",
                    f"--duration={seconds}s",
                    "--warmup=0s",
                )
                rates[connections].append(run["throughput_per_s"])
                costs[connections].append((s.seconds() - used) * 1e6 / run["ok"])
    ratios = [one / four for one, four in zip(rates[1], rates[4])]
    report.add(
        "### One connection",
        "",
        f"{rounds} rounds of {seconds} s each of `sru_bench load --connections=1` and `--connections=4`, 64 in"
        " flight; min / median / max.",
        "",
        "| | figure | wanted |",
        "|---|---|---|",
        f"| one connection, calls/s | {spread(rates[1])} | |",
        f"| four connections, calls/s | {spread(rates[4])} | |",
        f"| one / four | {spread(ratios, 2)} | >= 0.95 |",
        f"| the server's processor time for a call, one connection, us | {spread(costs[1], 1)} | |",
        f"| the same, four connections, us | {spread(costs[4], 1)} | |",
        "",
    )


# A server whose queue is always full: its one place is taken by calls that wait for a batch.
FULL_QUEUE = ("--max_queue_delay_us=100000", "--max_queue_sequences=32", "--max_batch_sequences=64")
REFUSED_RATE = 8000


def refusal_cost(program, questions, flags, seconds):
    """The server's processor time for a call that it refuses because its queue is full, in us."""
    with server(*flags, *FULL_QUEUE, program=program) as s:
        address = f"--address={s.addresses[0]}"
        filler = subprocess.Popen(
            [str(BUILD / "sru_bench"), "load", address, "--sequences=32", "--in_flight=1",
             "--connections=1", "--deadline=inf", f"--duration={seconds + 30}s", "--json"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        time.sleep(0.3)
        used = s.seconds()
        run = bench("load", address, f"--sequences={questions}", f"--rate={REFUSED_RATE}", SEND_INTERVAL,
                    f"--duration={seconds}s", "--warmup=0s", none_ok=True)  # fmt: skip
        used = s.seconds() - used
        filler.kill()
        filler.wait()
        return used * 1e6 / run["codes"]["RESOURCE_EXHAUSTED"]


def refusals(report, flags, rounds, base):
    progress("what a refusal costs")
    report.add(
        "### What a refused call costs",
        "",
        f"Processor time of the server for a call that finds the queue full, {REFUSED_RATE:,} calls/s,"
        f" `{' '.join(FULL_QUEUE)}`, a queue that is filled by another client; {rounds} rounds of 3 s;"
        " min / median / max.",
        "",
        "| us of processor time | figure | wanted |",
        "|---|---|---|",
    )
    programs = [(None, "")] + ([(base, ", the server before")] if base else [])
    for questions in (32, 1):
        costs = {name: [] for _, name in programs}
        for _ in range(rounds):
            for program, name in programs:
                costs[name].append(refusal_cost(program, questions, flags, 3))
        for name, values in costs.items():
            report.add(f"| {questions} question{'s' if questions > 1 else ''} a call{name} | {spread(values, 1)} | |")
    report.add("")


def client_seconds():
    """Processor time of the clients that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def sample_rss(process, samples, stop):
    while not stop.wait(1.0):
        samples.append(process.rss_mib())


# For the clients that flood: they share the cores with the server, and a client that woke for each of its
# calls would take a third of them. Latency counts from the time at which a call was meant to be sent.
SEND_INTERVAL = "--send_interval=1ms"


class Flood:
    """One flood and what was measured before, in and after it."""

    def __init__(self, server_process, questions, seconds):
        address = f"--address={server_process.addresses[0]}"
        shape = [address, f"--sequences={questions}", "--deadline=100ms"]
        self.saturation, per_second = max(
            self.costed(server_process, *shape, f"--in_flight={n}", "--duration=3s")[1:]
            for n in (4, 8, 16)
        )
        calm = [*shape, f"--rate={self.saturation * 0.3:.0f}", "--duration=4s"]
        self.p99_before = bench("load", *calm)["latency_us"]["p99"] / 1000
        self.rate = 3 * self.saturation
        progress(f"flood: {seconds} s at {self.rate:.0f} calls/s of {questions} questions")
        rss, stop = [], threading.Event()
        sampler = threading.Thread(target=sample_rss, args=(server_process, rss, stop))
        sampler.start()
        used = client_seconds()
        run, _, flooded_per_second = self.costed(
            server_process, *shape, SEND_INTERVAL, f"--rate={self.rate:.0f}", f"--duration={seconds}s"
        )
        self.client_share = (client_seconds() - used) / (run["elapsed_s"] * os.cpu_count())
        stop.set()
        sampler.join()
        self.p99_after = bench("load", *calm, "--warmup=1s")["latency_us"]["p99"] / 1000
        self.goodput = run["goodput_per_s"] / self.saturation
        self.goodput_per_second = flooded_per_second / per_second
        self.p99_accepted = run["latency_us"]["p99"] / 1000
        self.p99_refused = run["refused_us"]["p99"] / 1000
        self.codes = run["codes"]
        self.unanswered = run["calls"] - sum(run["codes"].values())
        self.unsent = run["unsent"]
        self.rss_early = rss[min(5, len(rss) - 1)]
        self.rss_end = rss[-1]


    @staticmethod
    def costed(server_process, *flags):
        """A run, its goodput, and its goodput per second of the processor time of server and client."""
        used = server_process.seconds() + client_seconds()
        start = time.monotonic()
        run = bench("load", *flags)
        wall = time.monotonic() - start
        used = server_process.seconds() + client_seconds() - used
        return run, run["goodput_per_s"], run["goodput_per_s"] * wall / used


def flood(report, flags, questions, seconds, rounds):
    runs = []
    for _ in range(rounds):
        with server(*flags) as s:
            runs.append(Flood(s, questions, seconds))

    def figure(name, digits=0):
        return spread([getattr(run, name) for run in runs], digits)

    codes = {}
    for run in runs:
        for code, count in run.codes.items():
            codes[code] = codes.get(code, 0) + count
    report.add(
        f"### {seconds} seconds at three times the saturation rate, {questions} questions a call",
        "",
        f"{rounds} times: `sru_bench load --sequences={questions} --deadline=100ms"
        f" --rate=R --duration={seconds}s {SEND_INTERVAL}`, R three times the best of closed loops with 4, 8 and"
        " 16 calls in flight just before; min / median / max.",
        "",
        "| | figure | wanted |",
        "|---|---|---|",
        f"| saturation (best closed loop), calls/s | {figure('saturation')} | |",
        f"| goodput in the flood / saturation | {figure('goodput', 2)} | >= 0.9 |",
        "| the same per second of processor time, which other programs on the machine disturb less |"
        f" {figure('goodput_per_second', 2)} | |",
        f"| p99 of the accepted, ms | {figure('p99_accepted', 1)} | <= 100 |",
        f"| p99 of the refusals, ms | {figure('p99_refused', 1)} | <= 20 |",
        f"| answers of all rounds, by code | {', '.join(f'{k} {v:,}' for k, v in codes.items())} | |",
        f"| of all cores' time, the client's, % | {spread([100 * r.client_share for r in runs])} | |",
        f"| calls without an answer | {figure('unanswered')} | 0 |",
        "| not sent by the client (deadline passed before it could be) |"
        f" {figure('unsent')} | |",
        f"| resident memory after 5 s, MiB | {figure('rss_early')} | |",
        f"| resident memory at the end, MiB | {figure('rss_end')} | flat |",
        f"| p99 at 30% load before the flood, ms | {figure('p99_before', 1)} | |",
        f"| p99 at 30% load from 1 s after it, ms | {figure('p99_after', 1)} | as before |",
        "",
    )


def call_stages_of(address, seconds):
    """What scripts/call_stages.py measures of the model `quiet`; empty where Python has no gRPC."""
    command = [sys.executable, str(ROOT / "scripts" / "call_stages.py"), address, "--model=quiet"]
    run = subprocess.run(
        [*command, f"--duration={seconds}", "--json"], capture_output=True, text=True, check=False
    )
    if run.returncode == 0:
        return json.loads(run.stdout)
    if "No module named" not in run.stderr:
        sys.exit(f"scripts/call_stages.py: {run.stderr}")
    return []


def two_models(report, flags, seconds, rounds):
    light, flooded, saturations = [], [], []
    stages = ([], [])
    with tempfile.TemporaryDirectory() as folder:
        for name in ("quiet", "busy"):
            shutil.copytree(ROOT / "models" / "pretrained" / "trec", f"{folder}/{name}")
        with server(*flags, repository=folder) as s:
            address = f"--address={s.addresses[0]}"
            busy = [address, "--model=busy", "--sequences=32", "--deadline=100ms"]
            quiet = [address, "--model=quiet", "--rate=200", f"--duration={seconds}s"]
            for number in range(rounds):
                progress(f"two models, round {number + 1}")
                run = bench("load", *busy, "--in_flight=8", "--duration=3s")
                saturations.append(run["goodput_per_s"])
                for results, rows, factor in ((light, stages[0], 0.1), (flooded, stages[1], 3.0)):
                    command = [str(BUILD / "sru_bench"), "load", *busy, SEND_INTERVAL, "--json"]
                    command += [
                        f"--rate={saturations[-1] * factor:.0f}",
                        f"--duration={2 * seconds + 4}s",
                    ]
                    other = subprocess.Popen(
                        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
                    )
                    time.sleep(2)
                    results.append(bench("load", *quiet)["latency_us"])
                    rows += call_stages_of(s.addresses[0], seconds)
                    other.wait()

    def row(label, values, digits=0):
        p50, p99 = ([value[p] for value in values] for p in ("p50", "p99"))
        return f"| {label} | {spread(p50, digits)} | {spread(p99, digits)} |"

    ratios = [{p: f[p] / l[p] for p in ("p50", "p99")} for l, f in zip(light, flooded)]
    report.add(
        "### Two models, one flooded",
        "",
        "Model `quiet`: `sru_bench load --model=quiet --rate=200`, one question a call. Model `busy`:"
        f" 32 questions a call, {SEND_INTERVAL}, at a tenth, then at three times its saturation rate"
        f" ({spread(saturations)} calls/s). {rounds} rounds; min / median / max.",
        "",
        "| latency of `quiet`, us | p50 | p99 |",
        "|---|---|---|",
        row("`busy` lightly loaded", light),
        row("`busy` flooded", flooded),
        row("ratio (wanted: p99 <= 2)", ratios, 1),
        "",
    )
    if not stages[0]:
        report.add("Stages were not measured: this Python has no gRPC.", "")
        return
    report.add(
        "Where a call of `quiet` spends its time: `scripts/call_stages.py`, whose client is gRPC's for Python, one"
        f" call at a time, {seconds} s in each of the rounds, just after the above.",
        "",
    )
    for title, rows in zip(("`busy` lightly loaded", "`busy` flooded"), stages):
        report.add(f"{title}, {len(rows):,} calls:", "", *call_stages.table(rows), "")
    report.add(*(f"* {name}: {meaning}" for name, meaning in call_stages.STAGES), "")


# Results that are right or wrong, not fast or slow: one test each, which fails with any other result.
CHECKS = (
    ("100 calls of poison among 1,000 good ones fail alone; the good ones keep their bits",
     "bad_input_test", "PoisonTest.FailsAlone"),
    ("SIGTERM with 64 calls in flight: all accepted are answered, exit code 0",
     "process_test", "StopTest.WhatWasAcceptedIsAnswered"),
)


def checks(report, rounds):
    progress("checks")
    report.add(
        "## Checks",
        "",
        f"{rounds} runs of each program.",
        "",
        "| | command | passed |",
        "|---|---|---|",
    )
    for what, program, test in CHECKS:
        command = [str(BUILD / program), f"--gtest_filter={test}"]
        passed = 0
        for _ in range(rounds):
            run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
            passed += run.returncode == 0 and "[  PASSED  ] 1 test." in run.stdout
        report.add(
            f"| {what} | `build/bin/{program} --gtest_filter={test}` | {passed} of {rounds} |"
        )
    report.add("")


def spin(seconds, gaps):
    """Reads the clock without a pause; a gap is time during which somebody else had the core."""
    start = last = time.perf_counter()
    while last - start < seconds:
        now = time.perf_counter()
        if now - last > 0.0005:
            gaps.append(now - last)
        last = now


def stolen_time(seconds):
    """How much of each core's time an idle machine does not give to programs that want it."""
    with multiprocessing.Manager() as manager:
        gaps = [manager.list() for _ in range(os.cpu_count())]
        programs = [multiprocessing.Process(target=spin, args=(seconds, g)) for g in gaps]
        for program in programs:
            program.start()
        for program in programs:
            program.join()
        every = [gap for one in gaps for gap in one]
    return sum(every) / (seconds * os.cpu_count()), max(every, default=0.0)


def machine():
    cpu = "unknown processor"
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            cpu = line.split(":")[1].strip()
            break
    return f"{cpu}, {os.cpu_count()} cores shared by server and client"


PARTS = ("wire", "connection", "latency", "refusals", "flood", "models", "instance", "checks")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", default=ROOT / "docs" / "benchmarks" / "serving.md")
    parser.add_argument("--rounds", type=int, default=5, help="of each alternating measurement")
    parser.add_argument("--seconds", type=int, default=4, help="of one closed-loop run")
    parser.add_argument("--flood_seconds", type=int, default=60)
    parser.add_argument("--note", help="a sentence about the machine for the report")
    parser.add_argument("--base", help="another sru_server, whose refusals are measured beside")
    parser.add_argument(
        "--parts", default=",".join(PARTS), help=f"comma-separated, of {', '.join(PARTS)}"
    )
    args = parser.parse_args()

    report = Report()
    report.add(
        "# Serving",
        "",
        "Written by `scripts/serving_report.py`, which reproduces every figure. Bundled TREC model,"
        " backend cpu, float32. Times move with the machine; ratios come from runs that"
        " alternate in one call of the script.",
        "",
        f"Machine: {machine()}. Date: {datetime.date.today()}.",
        "",
    )
    if args.note:
        report.add(args.note, "")
    progress("the machine's own noise")
    share, longest = stolen_time(4)
    report.add(
        "A machine that is shared with others cannot have a short p99: programs that only read the clock, one"
        f" a core, lost {share:.2%} of the time in gaps of more than 0.5 ms just before this run, the"
        f" longest {longest * 1e3:.1f} ms.",
        "",
    )
    parts = args.parts.split(",")
    if unknown := set(parts) - set(PARTS):
        parser.error(f"--parts: no part {', '.join(sorted(unknown))}")
    progress("default flags")
    report.add("## Default flags (one instance per core)", "")
    if "wire" in parts:
        wire(report, [], args.rounds, args.seconds)
    if "connection" in parts:
        one_connection(report, [], args.rounds, args.seconds)
    if "latency" in parts:
        latency_under_load(report, [], min(args.rounds, 3), max(args.seconds - 1, 1))
    if "refusals" in parts:
        refusals(report, [], args.rounds, args.base)
    if "flood" in parts:
        # With many questions per call the model is the limit, with few it is the wire.
        flood(report, [], 32, args.flood_seconds, min(args.rounds, 3))
        flood(report, [], 128, max(args.flood_seconds // 3, 2), min(args.rounds, 3))
    if "models" in parts:
        two_models(report, [], 2 * args.seconds, min(args.rounds, 3))
    if "instance" in parts:
        # The client shares the cores with the server; a server that leaves a core to gRPC and the client
        # accepts more calls.
        progress("--instances=1")
        report.add("## With --instances=1", "")
        wire(report, ["--instances=1"], args.rounds, args.seconds)
    if "checks" in parts:
        checks(report, args.rounds)
    path = pathlib.Path(args.out)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(report.lines).rstrip() + "\n")
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
