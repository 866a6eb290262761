#!/usr/bin/env python3
"""Compares what sru_bench capacity predicts with what this machine does, and writes docs/benchmarks/capacity.md.

  make build && scripts/capacity_report.py          about 5 minutes

The bundled classifier, its server and sru_bench load on this machine's cores. Measurements of the speed, of the
real server and of the bare echo server alternate; medians over the rounds count. Then fleets are simulated, on
the speed that was measured. --quick measures for a moment only. Needs grpcio.
"""

import argparse
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
import report_common
from report_common import NotMeasured, Server, bench, progress

MODEL = report_common.ROOT / "models" / "pretrained" / "trec"
SHARES = (0.30, 0.60, 0.85)
WANTED = 0.30  # of what was measured


def capacity(args, *flags):
    """(JSON object, the command as a reader would type it)"""
    command = [str(args.bin / "sru_bench"), "capacity", *map(str, flags)]
    done = subprocess.run([*command, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise NotMeasured(done.stderr.strip().split("\n")[-1])
    return json.loads(done.stdout)


def echo(args, *flags):
    done = subprocess.run([str(args.bin / "sru_bench"), "echo", "--json", *flags], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise NotMeasured(done.stderr.strip().split("\n")[-1])
    return json.loads(done.stdout)


def measure_speed(args, path):
    return capacity(args, f"--model={MODEL}", f"--save_speed={path}", f"--measure_s={args.speed_seconds:g}")


def predict(args, path, rate):
    return capacity(args, f"--speed={path}", f"--model={MODEL}", "--servers=1", "--client_on_machine", "--deadline=10s",
                    f"--rate={rate:.0f}", f"--calls={args.calls}")["rows"][0]


def median(values):
    return statistics.median(values)


def spread(values):
    return " / ".join(f"{value:,.0f}" for value in (min(values), median(values), max(values)))


def unquiet(speeds):
    """A warning, where the figures are those of a machine that others use."""
    share = median([speed["speed"]["pauses"]["per_s"] * speed["speed"]["pauses"]["mean_us"] * 1e-6 for speed in speeds])
    if share < 0.02:
        return []
    return [f"**The machine was not quiet.** Other programs had {share:.0%} of each core's time during these runs, so that "
            "the comparison says little about the simulation; repeat it on a quiet machine.", ""]


def validation(args, folder):
    """Lines of the report."""
    timing = [f"--duration={args.seconds:g}s", f"--warmup={min(0.5, args.seconds):g}s"]
    loads = {share: {name: [] for name in ("measured", "predicted", "echo")} for share in SHARES}
    speeds, saturations, simulated_saturations = [], [], []
    with Server(args, MODEL.parent, flags=("--load_models=trec", "--model_control=explicit")) as server:
        progress("finds the saturation rate")
        bench(args, "load", server, "--in_flight=64", *timing)  # warm
        saturations = [bench(args, "load", server, "--in_flight=64", *timing)["throughput_per_s"]
                       for _ in range(args.rounds)]
        rates = {share: share * median(saturations) for share in SHARES}
        for number in range(args.rounds):
            progress(f"round {number + 1} of {args.rounds}: the speed")
            path = folder / f"speed{number}.json"
            speed = measure_speed(args, path)
            speeds.append(speed)
            simulated_saturations.append(
                next(loop for loop in speed["loops"] if loop["in_flight"] == 64)["simulated"]["calls_per_s"])
            for share in SHARES:
                progress(f"round {number + 1} of {args.rounds}: {share:.0%} of saturation")
                rate = rates[share]
                flags = [f"--rate={rate:.0f}", *timing]
                loads[share]["measured"].append(bench(args, "load", server, *flags))
                loads[share]["echo"].append(echo(args, *flags))
                loads[share]["predicted"].append(predict(args, path, rate))
    lines = [
        "## One server: predicted and measured", "",
        f"`sru_bench load --rate=R --duration={args.seconds:g}s` against a server with default flags, and "
        "`sru_bench capacity --speed=FILE --servers=1 --client_on_machine --rate=R`, R a share of the saturation rate "
        f"(`sru_bench load --in_flight=64`), {spread(saturations)} calls/s (min / median / max); the simulation of the "
        f"same closed loop gives {spread(simulated_saturations)}. {args.rounds} rounds, each with a speed of its own "
        f"(`sru_bench capacity --save_speed=FILE --measure_s={args.speed_seconds:g}`); medians, microseconds.", "",
        "| load | calls/s | p50 measured | p50 predicted | | p99 measured, min / median / max | p99 predicted | | p99 of echo |",
        "|---|---|---|---|---|---|---|---|---|"]
    good = True
    for share in SHARES:
        found = loads[share]
        cells = [f"{share:.0%}", f"{rates[share]:,.0f}"]
        for percentile in ("p50", "p99"):
            measured = [run["latency_us"][percentile] for run in found["measured"]]
            predicted = median([run["latency_us"][percentile] for run in found["predicted"]])
            ratio = predicted / median(measured) - 1
            good = good and abs(ratio) <= WANTED
            cells += [spread(measured) if percentile == "p99" else f"{median(measured):,.0f}", f"{predicted:,.0f}",
                      f"{ratio:+.0%}" + ("" if abs(ratio) <= WANTED else " **off**")]
        cells.append(f"{median([run['latency_us']['p99'] for run in found['echo']]):,.0f}")
        lines.append("| " + " | ".join(cells) + " |")
    lines += ["", f"Wanted: within {WANTED:.0%}. The echo server (`sru_bench echo --rate=R`) computes nothing: its p99 is "
              "that of the wire, the load generator and the machine's pauses.", "",
              *unquiet(speeds),
              "What was measured of the machine:", "",
              "| | min / median / max |", "|---|---|"]
    for name, of in (
            ("a batch, fixed, us", lambda s: s["batch"]["fixed_us"]),
            ("a batch, a token, ns", lambda s: 1000 * s["batch"]["token_us"]),
            ("a batch, a sequence, ns", lambda s: 1000 * s["batch"]["sequence_us"]),
            ("a batch, a step of the longest, ns", lambda s: 1000 * s["batch"]["step_us"]),
            ("largest error of this fit, %", lambda s: 100 * s["batch"]["largest_error"]),
            ("a call outside of its batch, us", lambda s: s["call"]["call_us"]),
            ("a call besides, while 512 are open, us", lambda s: s["call"]["crowd_us"]),
            ("a turn of a thread, us", lambda s: s["call"]["turn_us"]),
            ("until a woken thread runs, us", lambda s: s["call"]["wake_us"]),
            ("pauses of a core, a second", lambda s: s["pauses"]["per_s"]),
            ("their mean length, us", lambda s: s["pauses"]["mean_us"])):
        lines.append(f"| {name} | {spread([of(speed['speed']) for speed in speeds])} |")
    return lines + [""], good


def phases(fleet):
    lines = ["| phase | seconds | calls/s | servers at its end | busy | p50 us | p99 us | refused | late | lost | retried |",
             "|---|---|---|---|---|---|---|---|---|---|---|"]
    for phase in fleet["phases"]:
        length = phase["to_s"] - phase["from_s"]
        lines.append(
            f"| {phase['phase']} | {phase['from_s']:g} to {phase['to_s']:g} | {phase['calls'] / length:,.0f} | {phase['servers']} "
            f"| {phase['busy']:.0%} | {phase['latency_us']['p50']:,.0f} | {phase['latency_us']['p99']:,.0f} "
            f"| {phase['refused']:,} | {phase['late']:,} | {phase['lost']:,} | {phase['retried']:,} |")
    return lines


def fleets(args, path):
    """Simulated fleets of this machine, at shares of what one server takes."""
    rate = next(loop for loop in measure_closed_loop(args, path))
    lines = ["## Fleets", "",
             "Simulated on the speed of the last round; the network adds 0.1 ms each way. A server alone would "
             f"take {rate:,.0f} calls/s.", ""]
    big = 10 ** 6
    scenes = [
        ("Five servers at 60%: one lost, one drained",
         ["--servers=5", f"--rate={0.6 * 5 * rate:.0f}", "--events=lose@4s,drain@8s", "--drain_delay=1s", "--duration=12s",
          "--windows=12", "--calls=40000"]),
        ("A million calls a second, one server lost",
         [f"--servers={big / (0.6 * rate):.0f}", f"--rate={big}", "--clients=1000", "--events=lose@1s", "--duration=2s",
          "--windows=4"]),
    ]
    for title, flags in scenes:
        progress(title)
        if args.quick:
            flags = [flag for flag in flags if "duration" not in flag and "events" not in flag]
            flags += ["--duration=1s", "--events=lose@500ms"]
        fleet = capacity(args, f"--speed={path}", "--lengths=lognormal:10:0.4:40", *flags)["fleet"]
        lines += [f"### {title}", "", f"`sru_bench capacity --speed=FILE --lengths=lognormal:10:0.4:40 {' '.join(flags)}`: "
                  f"{fleet['calls']:,} calls, simulated in {fleet['took_s']:.1f} s.", ""]
        lines += phases(fleet) + [""]
    return lines


def measure_closed_loop(args, path):
    """The saturation rate of one simulated server, by the plan's own search."""
    plan = capacity(args, f"--speed={path}", "--lengths=lognormal:10:0.4:40", "--rate=100000", "--p99=50ms",
                    "--max_batch_tokens=4096", "--instances=" + str(os.cpu_count()), "--calls=10000")["plan"]
    yield plan["choices"][0]["saturation_per_s"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=report_common.ROOT / "build" / "bin")
    parser.add_argument("--backend", default="cpu")
    parser.add_argument("--out", type=pathlib.Path,
                        default=report_common.ROOT / "docs" / "benchmarks" / "capacity.md")
    parser.add_argument("--seconds", type=float, default=4, help="of each run against the server")
    parser.add_argument("--speed_seconds", type=float, default=3, help="of each part of the measurement of the speed")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", type=int, default=50000, help="a quarter of those of a prediction")
    parser.add_argument("--quick", action="store_true", help="one round of a moment")
    args = parser.parse_args()
    if args.quick:
        args.seconds, args.speed_seconds, args.rounds, args.calls = 0.3, 0.3, 1, 2000
    if not (args.bin / "sru_server").exists():
        print(f"SKIPPED: {args.bin}/sru_server is not built")
        return 77
    try:
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            checked, good = validation(args, folder)
            path = folder / f"speed{args.rounds - 1}.json"
            machine = capacity(args, f"--speed={path}", "--lengths=fixed:10", "--rate=100", "--servers=1",
                               "--calls=1000")["speed"]
            simulated = fleets(args, path)
    except NotMeasured as error:
        print(f"SKIPPED: {error}")
        return 77
    lines = ["# Capacity", "",
             "Written by `scripts/capacity_report.py`, which reproduces every figure. What `sru_bench capacity` "
             "simulates, and how, is in [ARCHITECTURE.md](../../ARCHITECTURE.md#capacity).", "",
             f"Machine: {machine['machine']}, {machine['cores']} cores shared by server and client; {machine['backend']}, "
             f"{machine['dtype']}. Bundled TREC model. Date: {datetime.date.today()}.", ""]
    args.out.write_text("\n".join(lines + checked + simulated).rstrip() + "\n", encoding="utf-8")
    print(f"{args.out}: " + ("all as wanted" if good else "NOT all within the bounds"))
    return 0 if good or args.quick else 1


if __name__ == "__main__":
    sys.exit(main())
