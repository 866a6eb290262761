#!/usr/bin/env python3
"""Measures the server on this machine and writes docs/benchmarks/serving.md.

  make build && scripts/serving_report.py          about 9 minutes; run nothing else meanwhile

Starts build/bin/sru_server on ports that the system picks, drives it with build/bin/sru_bench over
loopback, and stops it. Every ratio compares runs that alternate in this one call. Needs only Python.
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

    def rss_mib(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status).group(1)) / 1024

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()


def server(*flags, repository=ROOT / "models" / "pretrained"):
    return Process(
        BUILD / "sru_server",
        f"--model_repository={repository}",
        "--listen=127.0.0.1:0",
        "--metrics_listen=127.0.0.1:0",
        *flags,
    )


def bench(command, *flags):
    result = subprocess.run(
        [str(BUILD / "sru_bench"), command, *[str(f) for f in flags], "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode != 0:
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
        f"| Classify / echo, 64 in flight | {spread(to_echo, 2)} | >= 0.5 |",
        f"| 64 in flight / 1 in flight | {spread(to_one, 2)} | >= 5 |",
        "",
    )


def latency_under_load(report, flags, rounds):
    progress("saturation and latency below it")
    ratios, rates = [], []
    with server(*flags) as s:
        for _ in range(rounds):
            run = bench("sweep", f"--address={s.addresses[0]}", "--step=3s", "--max_in_flight=64")
            ratios.append(run["p99_at_half_over_idle_p50"])
            rates.append(run["saturation_per_s"])
    report.add(
        "### Latency at half of the saturation rate",
        "",
        f"`sru_bench sweep --step=3s --max_in_flight=64`, {rounds} times; min / median / max.",
        "",
        "| | figure | wanted |",
        "|---|---|---|",
        f"| saturation rate, calls/s | {spread(rates)} | |",
        f"| p99 at half of it / p50 idle | {spread(ratios, 2)} | <= 5 |",
        "",
    )


def client_seconds():
    """Processor time of the clients that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def sample_rss(process, samples, stop):
    while not stop.wait(1.0):
        samples.append(process.rss_mib())


def flood(report, flags, seconds):
    shape = ["--sequences=32", "--deadline=100ms"]
    with server(*flags) as s:
        address = f"--address={s.addresses[0]}"
        progress("flood: finding the saturation rate with 32 questions a call")
        saturation = max(
            bench("load", address, *shape, f"--in_flight={n}", "--duration=4s")["goodput_per_s"]
            for n in (4, 8, 16)
        )
        calm_rate = saturation * 0.3
        calm = bench("load", address, *shape, f"--rate={calm_rate:.0f}", "--duration=4s")
        progress(f"flood: {seconds} s at three times {saturation:.0f} calls/s")
        rss, stop = [], threading.Event()
        sampler = threading.Thread(target=sample_rss, args=(s, rss, stop))
        sampler.start()
        used = client_seconds()
        run = bench(
            "load", address, *shape, f"--rate={3 * saturation:.0f}", f"--duration={seconds}s"
        )
        used = (client_seconds() - used) / (run["elapsed_s"] * os.cpu_count())
        stop.set()
        sampler.join()
        after = bench(
            "load", address, *shape, f"--rate={calm_rate:.0f}", "--duration=4s", "--warmup=1s"
        )
    answered = sum(run["codes"].values())
    report.add(
        f"### {seconds} seconds at three times the saturation rate",
        "",
        "Open loop, 32 questions a call (so that the model, not the wire, is the limit), deadline 100 ms:",
        f"`sru_bench load --sequences=32 --deadline=100ms --rate={3 * saturation:.0f}"
        f" --duration={seconds}s`.",
        "",
        "| | figure | wanted |",
        "|---|---|---|",
        f"| saturation (best closed loop), calls/s | {saturation:,.0f} | |",
        f"| goodput in the flood / saturation | {run['goodput_per_s'] / saturation:.2f} | >= 0.9 |",
        f"| p99 of the accepted, ms | {run['latency_us']['p99'] / 1000:.1f} | <= 100 |",
        f"| p99 of the refusals, ms | {run['refused_us']['p99'] / 1000:.1f} | <= 20 |",
        f"| answers, by code | {', '.join(f'{k} {v:,}' for k, v in run['codes'].items())} | |",
        f"| of all cores' time, the client's | {used:.0%} | |",
        f"| calls without an answer | {run['calls'] - answered:,} | 0 |",
        f"| not sent by the client (deadline passed before it could be) | {run['unsent']:,} | |",
        f"| resident memory after 5 s / at the end, MiB | {rss[min(5, len(rss) - 1)]:.0f} / {rss[-1]:.0f} | flat |",
        f"| p99 at 30% load before / from 1 s after the flood, ms |"
        f" {calm['latency_us']['p99'] / 1000:.1f} / {after['latency_us']['p99'] / 1000:.1f} | equal |",
        "",
    )


def two_models(report, flags, seconds):
    with tempfile.TemporaryDirectory() as folder:
        for name in ("quiet", "busy"):
            shutil.copytree(ROOT / "models" / "pretrained" / "trec", f"{folder}/{name}")
        with server(*flags, repository=folder) as s:
            address = f"--address={s.addresses[0]}"
            progress("two models: the busy one's saturation rate")
            busy = [address, "--model=busy", "--sequences=32", "--deadline=100ms"]
            saturation = bench("load", *busy, "--in_flight=8", "--duration=3s")["goodput_per_s"]
            quiet = [address, "--model=quiet", "--rate=200", f"--duration={seconds}s"]
            results = {}
            for label, factor in (("lightly loaded", 0.1), ("flooded", 3.0)):
                progress(f"two models: the other one {label}")
                command = [str(BUILD / "sru_bench"), "load", *busy, "--json"]
                command += [f"--rate={saturation * factor:.0f}", f"--duration={seconds + 3}s"]
                other = subprocess.Popen(
                    command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
                )
                time.sleep(2)
                results[label] = bench("load", *quiet)["latency_us"]
                other.wait()
    light, flooded = results["lightly loaded"], results["flooded"]
    report.add(
        "### Two models, one flooded",
        "",
        "Model `quiet`: `sru_bench load --model=quiet --rate=200`, one question a call. Model `busy`:"
        " 32 questions a call at a tenth, then at three times its saturation rate"
        f" ({saturation:,.0f} calls/s).",
        "",
        "| latency of `quiet`, us | p50 | p99 |",
        "|---|---|---|",
        f"| `busy` lightly loaded | {light['p50']:,.0f} | {light['p99']:,.0f} |",
        f"| `busy` flooded | {flooded['p50']:,.0f} | {flooded['p99']:,.0f} |",
        f"| ratio (wanted: p99 <= 2) | {flooded['p50'] / light['p50']:.1f} |"
        f" {flooded['p99'] / light['p99']:.1f} |",
        "",
    )


def spin(seconds, gaps):
    """Reads the clock without a pause; a gap is time that somebody else had the core."""
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


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", default=ROOT / "docs" / "benchmarks" / "serving.md")
    parser.add_argument("--rounds", type=int, default=5, help="of each alternating measurement")
    parser.add_argument("--seconds", type=int, default=4, help="of one closed-loop run")
    parser.add_argument("--flood_seconds", type=int, default=60)
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
    progress("the machine's own noise")
    share, longest = stolen_time(4)
    report.add(
        "A machine that is shared with others cannot have a short p99: programs that only read the clock, one"
        f" a core, lost {share:.2%} of the time in gaps of more than 0.5 ms just before this run, the"
        f" longest {longest * 1e3:.1f} ms.",
        "",
    )
    progress("default flags")
    report.add("## Default flags (one instance per core)", "")
    wire(report, [], args.rounds, args.seconds)
    latency_under_load(report, [], 3)
    flood(report, [], args.flood_seconds)
    two_models(report, [], 8)
    # The client shares the cores with the server; one that leaves a core to gRPC and the client takes
    # more calls.
    progress("--instances=1")
    report.add("## With --instances=1", "")
    wire(report, ["--instances=1"], args.rounds, args.seconds)
    path = pathlib.Path(args.out)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(report.lines).rstrip() + "\n")
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
