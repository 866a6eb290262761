#!/usr/bin/env python3
"""Measures the server on this machine and writes build/reports/serving.md.

  make build && scripts/serving_report.py          about 20 minutes; run nothing else meanwhile

Drives build/bin/sru_server with build/bin/sru_bench over loopback. Needs only Python; with the Python package's requirements it also tells
in which stages a call spends its time. That the server does not answer wrongly under attack or when it stops is what ctest tests
(bad_input_test, process_test).
"""

import collections
import functools
import json
import os
import resource
import shutil
import subprocess
import sys
import time

import call_stages
from report_common import (PRETRAINED, Report, Row, Server, Table, Watch, alternate, background, bench, core_share, one_core, progress, ratios,
                           seconds, spread)

# For the clients that flood: they share the cores with the server, and a client that woke for each of its
# calls would take a third of them. Latency counts from the time at which a call was meant to be sent.
SEND_INTERVAL = "--send_interval=1ms"
SPREAD = "; min / median / max."
TRANSPORTS = ("native", "library")


def served(args, repository, flags=(), dtype="float32"):
    return Server(args, repository, dtype, (*args.transport, *flags))


def beside(part):
    """The part with each transport of gRPC, one after the other, and their figures in adjacent columns."""

    @functools.wraps(part)
    def both(args, kept):
        found = []
        for transport in TRANSPORTS:
            progress(f"--grpc_transport={transport}")
            args.transport = (f"--grpc_transport={transport}",)
            found.append(list(part(args, kept)))
        args.transport = ()
        rows = []
        for items in zip(*found):
            if isinstance(items[0], Row):
                rows.append((items[0].name, *(item.figure for item in items), items[0].wanted))
                continue
            if rows:
                yield Table(("", *TRANSPORTS, "wanted"), rows)
                rows = []
            yield items[0]
        yield Table(("", *TRANSPORTS, "wanted"), rows)

    return both


def noise(args, _):
    share, longest = core_share(one_core(), min(4, args.seconds))
    yield ("A machine that is shared with others cannot have a short p99: just before this run a program that only read the clock got"
           f" {share:.2%} of the time of a core, and none of it for up to {longest * 1e3:.1f} ms.")
    yield "## Default flags (one instance per core)"


def wire(args, _, flags=()):
    duration = f"--duration={seconds(args.seconds)}"
    with served(args, PRETRAINED, flags) as server, served(args, PRETRAINED, flags, "bfloat16") as bfloat16:
        runs = alternate(args.rounds, {"echo": lambda: bench(args, "echo", None, duration),
                                       "many": lambda: bench(args, "load", server, duration),
                                       "bfloat16": lambda: bench(args, "load", bfloat16, duration),
                                       "one": lambda: bench(args, "load", server, "--in_flight=1", duration)})
    echo, many, narrow, one = ([run["throughput_per_s"] for run in found] for found in runs.values())
    yield (f"### One question a call\n\n{args.rounds} rounds of {args.seconds:g} s each of `sru_bench echo`, `sru_bench load` and"
           " `sru_bench load --in_flight=1`" + SPREAD)
    yield Row("bare echo, 64 in flight, calls/s", spread(echo))
    yield Row("Classify, 64 in flight, calls/s", spread(many))
    yield Row("Classify, 1 in flight, calls/s", spread(one))
    yield Row("Classify, 1 in flight, p50 us", spread([run["latency_us"]["p50"] for run in runs["one"]]))
    yield Row("Classify / echo, 64 in flight", spread(ratios(many, echo), 2), ">= 1")
    yield Row("the same in bfloat16", spread(ratios(narrow, echo), 2), ">= 1.5")
    yield Row("64 in flight / 1 in flight", spread(ratios(many, one), 2), ">= 5")


def connection(args, _):
    with served(args, PRETRAINED) as server:
        def load(connections):
            used = server.seconds()
            run = bench(args, "load", server, f"--connections={connections}", f"--duration={seconds(args.seconds)}", "--warmup=0s")
            return run["throughput_per_s"], (server.seconds() - used) * 1e6 / run["ok"]
        runs = alternate(args.rounds, {n: lambda n=n: load(n) for n in (1, 4)})
    (one, one_cost), (four, four_cost) = (zip(*found) for found in runs.values())
    yield (f"### One connection\n\n{args.rounds} rounds of {args.seconds:g} s each of `sru_bench load --connections=1` and"
           " `--connections=4`, 64 in flight" + SPREAD)
    yield Row("one connection, calls/s", spread(one))
    yield Row("four connections, calls/s", spread(four))
    yield Row("one / four", spread(ratios(one, four), 2), ">= 0.97")
    yield Row("the server's processor time for a call, one connection, us", spread(one_cost, 1))
    yield Row("the same, four connections, us", spread(four_cost, 1))


def latency(args, _):
    rounds, step, runs, echoes = min(args.rounds, 3), max(args.seconds - 1, 0.1), [], []
    with served(args, PRETRAINED) as server:
        for _ in range(rounds):
            runs.append(bench(args, "sweep", server, f"--step={seconds(step)}", "--max_in_flight=64"))
            echoes.append(bench(args, "echo", None, f"--rate={runs[-1]['saturation_per_s'] / 2:.0f}",
                                f"--duration={seconds(step)}")["latency_us"]["p99"])
    ours = [part["latency_us"]["p99"] for run in runs for part in run["runs"] if part["name"] == "offered: 50%"]
    yield (f"### Latency at half of the saturation rate\n\n`sru_bench sweep --step={seconds(step)} --max_in_flight=64`, {rounds} times" + SPREAD)
    yield Row("saturation rate, calls/s", spread([run["saturation_per_s"] for run in runs]))
    yield Row("p99 at half of it / p50 idle", spread([run["p99_at_half_over_idle_p50"] for run in runs], 2), "<= 5")
    yield Row("p99 at half of it, us", spread(ours))
    yield Row("p99 of `sru_bench echo` at the same rate, just after, us", spread(echoes))
    yield Row("ours / the echo's", spread(ratios(ours, echoes), 2), "<= 1.5")


def client_seconds():
    """Processor time of the clients that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def flood_once(args, questions, duration):
    """The figures of one flood, and of what was measured before and after it."""
    with served(args, PRETRAINED) as server:
        def load(*flags):
            """A run, and its goodput per second of the processor time of server and client."""
            used, start = server.seconds() + client_seconds(), time.monotonic()
            run = bench(args, "load", server, f"--sequences={questions}", "--deadline=100ms", *flags)
            wall = time.monotonic() - start
            return run, run["goodput_per_s"] * wall / (server.seconds() + client_seconds() - used)

        moment = min(3, args.seconds)
        run, calm_per_second = max((load(f"--in_flight={n}", f"--duration={seconds(moment)}") for n in (4, 8, 16)),
                                   key=lambda found: found[0]["goodput_per_s"])
        saturation = run["goodput_per_s"]
        calm = [f"--rate={saturation * 0.3:.0f}", f"--duration={seconds(moment + 1)}"]
        before = load(*calm)[0]
        progress(f"flood: {duration:g} s at {3 * saturation:.0f} calls/s of {questions} questions")
        used = client_seconds()
        with Watch(server.memory_bytes, min(1, duration / 4)) as memory:
            run, per_second = load(SEND_INTERVAL, f"--rate={3 * saturation:.0f}", f"--duration={seconds(duration)}")
        share = (client_seconds() - used) / (run["elapsed_s"] * os.cpu_count())
        after = load(*calm, "--warmup=1s")[0]
    return {
        "saturation": saturation, "goodput": run["goodput_per_s"] / saturation, "per_second": per_second / calm_per_second,
        "accepted": run["latency_us"]["p99"] / 1e3, "refused": run["refused_us"]["p99"] / 1e3, "codes": run["codes"],
        "share": 100 * share, "unanswered": run["calls"] - sum(run["codes"].values()), "unsent": run["unsent"],
        "early": memory.samples[min(5, len(memory.samples) - 1)] / 2**20, "end": memory.samples[-1] / 2**20,
        "before": before["latency_us"]["p99"] / 1e3, "after": after["latency_us"]["p99"] / 1e3,
    }


def flood(args, _):
    # With many questions per call the model is the limit, with few it is the wire.
    for questions, duration in ((32, args.flood_seconds), (128, args.flood_seconds / 3)):
        rounds = min(args.rounds, 3)
        runs = [flood_once(args, questions, duration) for _ in range(rounds)]

        def figure(name, digits=0, runs=tuple(runs)):
            return spread([run[name] for run in runs], digits)

        codes = sum((collections.Counter(run["codes"]) for run in runs), collections.Counter())
        yield (f"### {duration:g} seconds at three times the saturation rate, {questions} questions a call\n\n{rounds} times: `sru_bench"
               f" load --sequences={questions} --deadline=100ms --rate=R --duration={seconds(duration)} {SEND_INTERVAL}`, R three times"
               " the best of closed loops with 4, 8 and 16 calls in flight just before" + SPREAD)
        yield Row("saturation (best closed loop), calls/s", figure("saturation"))
        yield Row("goodput in the flood / saturation", figure("goodput", 2), ">= 0.95")
        yield Row("the same per second of processor time, which other programs on the machine disturb less", figure("per_second", 2))
        yield Row("p99 of the accepted, ms", figure("accepted", 1), "<= 100")
        yield Row("p99 of the refusals, ms", figure("refused", 1), "<= 20")
        yield Row("answers of all rounds, by code", ", ".join(f"{code} {n:,}" for code, n in codes.items()))
        yield Row("of all cores' time, the client's, %", figure("share"))
        yield Row("calls without an answer", figure("unanswered"), "0")
        yield Row("not sent by the client (deadline passed before it could be)", figure("unsent"))
        yield Row("resident memory after 5 s, MiB", figure("early"))
        yield Row("resident memory at the end, MiB", figure("end"), "flat")
        yield Row("p99 at 30% load before the flood, ms", figure("before", 1))
        yield Row("p99 at 30% load from 1 s after it, ms", figure("after", 1), "as before")


def refusals(args, _):
    # No batch becomes full, so each stays in the queue for 100 ms, and meanwhile the queue has no place.
    full_queue = ("--max_queue_delay_us=100000", "--max_queue_sequences=32", "--max_batch_sequences=64")
    rounds, rows = min(args.rounds, 3), []
    with served(args, PRETRAINED, full_queue) as server:
        def load(questions, *flags):
            used = server.seconds()
            run = bench(args, "load", server, "--connections=4", f"--sequences={questions}", f"--duration={seconds(args.seconds)}", "--warmup=0s",
                        *flags)
            return (server.seconds() - used) * 1e6 / run["calls"], run["codes"].get("RESOURCE_EXHAUSTED", 0) / run["calls"]

        for title, flags, wanted in (("256 in flight", ("--in_flight=256",), "<= 5"), ("8,000 calls/s", ("--rate=8000",), "")):
            for questions in (32, 1):
                costs, shares = zip(*(load(questions, *flags) for _ in range(rounds)))
                rows.append(Row(f"{title}, {questions} question{'s' * (questions > 1)} a call",
                                f"{spread(costs, 1)} ({min(shares):.1%} refused)", wanted))
    yield (f"### What a refused call costs\n\nThe server's processor time for a call, us. `sru_server {' '.join(full_queue)}`, whose queue is full"
           f" nearly always; `sru_bench load --connections=4`, {rounds} rounds of {args.seconds:g} s" + SPREAD + " Where calls come one at a time, most"
           " of it is a thread that wakes.")
    yield from rows


def models(args, kept):
    """Two models, of which one is flooded."""
    rounds, duration = min(args.rounds, 3), 2 * args.seconds
    repository = kept.make("two", lambda folder: [shutil.copytree(PRETRAINED / "trec", folder / name) for name in ("quiet", "busy")])
    saturations, stages, why = [], {}, None
    with served(args, repository) as server:
        busy = ["--model=busy", "--sequences=32", "--deadline=100ms"]

        def quiet(factor):
            nonlocal why
            with background([args.bin / "sru_bench", "load", f"--address={server.address}", *busy, SEND_INTERVAL, "--json",
                             f"--rate={saturations[-1] * factor:.0f}", f"--duration={seconds(2 * duration + 4)}"]):
                time.sleep(min(2, args.seconds))
                run = bench(args, "load", server, "--model=quiet", "--rate=200", f"--duration={seconds(duration)}")
                try:
                    stages.setdefault(factor, []).extend(call_stages.measure(server.address, "quiet", 200, duration))
                except ImportError as error:
                    why = error
            return run["latency_us"]

        def saturate():
            saturations.append(bench(args, "load", server, *busy, "--in_flight=8",
                                     f"--duration={seconds(min(3, args.seconds))}")["goodput_per_s"])
        runs = alternate(rounds, {"saturate": saturate, "light": lambda: quiet(0.1), "flooded": lambda: quiet(3.0)})

    def cells(label, values, digits=0):
        return [label, *(spread([value[p] for value in values], digits) for p in ("p50", "p99"))]

    relative = [{p: flooded[p] / light[p] for p in ("p50", "p99")} for light, flooded in zip(runs["light"], runs["flooded"])]
    yield ("### Two models, one flooded\n\nModel `quiet`: `sru_bench load --model=quiet --rate=200`, one question a call. Model `busy`: 32"
           f" questions a call, {SEND_INTERVAL}, at a tenth, then at three times its saturation rate ({spread(saturations)} calls/s)."
           f" {rounds} rounds" + SPREAD)
    yield Table(("latency of `quiet`, us", "p50", "p99"), [
        cells("`busy` lightly loaded", runs["light"]), cells("`busy` flooded", runs["flooded"]),
        cells("ratio (wanted: p99 <= 2)", relative, 1)])
    if why is not None:
        yield f"Stages were not measured: {why}."
        return
    yield ("Where a call of `quiet` spends its time: `scripts/call_stages.py`, whose client is gRPC's for Python, one call at a time,"
           f" {duration:g} s in each of the rounds, just after the above.")
    for title, factor in (("`busy` lightly loaded", 0.1), ("`busy` flooded", 3.0)):
        yield f"{title}, {len(stages[factor]):,} calls:"
        yield call_stages.table(stages[factor])
    yield "\n".join(f"* {name}: {meaning}" for name, meaning in call_stages.STAGES.items())


TOKENS = {"polite": "polite-caller-token", "flood": "flooding-caller-token"}


def write_tokens(folder):
    folder.mkdir()
    file = folder / "tokens.txt"
    file.write_text("".join(f"{name} {token}\n" for name, token in TOKENS.items()))
    file.chmod(0o600)


def callers(args, kept):
    """Two callers, of whom one sends as much as he can."""
    rounds, duration = min(args.rounds, 3), args.seconds
    tokens = kept.make("callers", write_tokens) / "tokens.txt"
    flags = ["--sequences=32", "--deadline=1s", f"--token={TOKENS['flood']}"]
    rows = []

    with served(args, PRETRAINED, (f"--auth_tokens_file={tokens}",)) as server:
        def polite():
            return bench(args, "load", server, "--rate=50", "--deadline=100ms", f"--token={TOKENS['polite']}",
                         f"--duration={seconds(2 * duration)}")

        def flooding(beside, *more):
            """What beside() returns, and the goodput of the flood."""
            # Its client gets what the others leave of the cores, as if it was on a machine of its own.
            command = ["nice", "-n", "19", args.bin / "sru_bench", "load", f"--address={server.address}", *flags, *more, "--json"]
            with subprocess.Popen([*command, f"--duration={seconds(2 * duration + 2)}"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
                time.sleep(1.5)
                run = beside()
                found = json.loads(process.communicate()[0])
            return run, found["goodput_per_s"]

        for title, more in (("8 connections", ["--in_flight=2000", "--connections=8"]),
                            ("64 connections", ["--in_flight=2000", "--connections=64"]),
                            ("8 connections, low priority", ["--in_flight=2000", "--connections=8", "--priority=low"]),
                            ("8 connections, high priority", ["--in_flight=2000", "--connections=8", "--priority=high"])):
            runs = alternate(rounds, {"alone": polite, "flood": lambda more=more: flooding(lambda: None, *more),
                                      "flooded": lambda more=more: flooding(polite, *more)})
            kept_in_time = [100 * run["goodput_per_s"] * run["elapsed_s"] / run["calls"] for run, _ in runs["flooded"]]
            alone = [run["latency_us"]["p99"] / 1e3 for run in runs["alone"]]
            beside_flood = [run["latency_us"]["p99"] / 1e3 for run, _ in runs["flooded"]]
            goodputs, goodputs_alone = ([goodput for _, goodput in runs[name]] for name in ("flooded", "flood"))
            rows.append((title, spread(kept_in_time, 1), spread(alone, 1), spread(beside_flood, 1), spread(ratios(beside_flood, alone), 1),
                         spread(ratios(goodputs, goodputs_alone), 2) if all(goodputs_alone) else "all refused"))
    yield (f"### A polite caller beside a flood\n\nTwo tokens. The polite one: `sru_bench load --rate=50 --deadline=100ms --token=..`. The other:"
           f" `sru_bench load --in_flight=2000 --sequences=32 --deadline=1s --token=..`. {rounds} rounds of {2 * duration:g} s, alone and beside the"
           " flood in turns; the flood's client runs with `nice -n 19`" + SPREAD)
    yield Table(("the flood", "polite: answered in time, % (wanted: >= 99)", "p99 alone, ms", "p99 beside it, ms", "ratio (wanted: <= 2)",
                 "the flood's goodput / alone (wanted: >= 0.95)"), rows)

    names = ("a", "b", "c", "d")  # of models: the last one is the other caller's
    repository = kept.make("four", lambda folder: [shutil.copytree(PRETRAINED / "trec", folder / name) for name in names])
    with served(args, repository, (f"--auth_tokens_file={tokens}",)) as server:
        def all_at_once():
            command = ["nice", "-n", "19", args.bin / "sru_bench", "load", f"--address={server.address}", "--sequences=32", "--in_flight=32",
                       "--connections=2", f"--duration={seconds(2 * duration)}", "--json"]
            clients = [subprocess.Popen([*command, f"--model={name}", f"--token={TOKENS['polite' if name == names[-1] else 'flood']}"],
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) for name in names]
            return [json.loads(client.communicate()[0])["goodput_per_s"] for client in clients]

        goodputs = [all_at_once() for _ in range(rounds)]
    yield (f"### A caller of three models beside one of a single model\n\nTwo tokens, four models; of each `sru_bench load --sequences=32"
           f" --in_flight=32 --connections=2`, all at once. {rounds} rounds of {2 * duration:g} s" + SPREAD)
    yield Table(("all models, calls/s", "of these the second caller's (fair: 0.5)"),
                [(spread([sum(goodput) for goodput in goodputs]), spread([goodput[-1] / sum(goodput) for goodput in goodputs], 2))])


def instance(args, kept):
    """The client shares the cores with the server; a server that leaves a core to gRPC and the client accepts more calls."""
    yield "## With --instances=1"
    yield from wire(args, kept, ["--instances=1"])


def main():
    report = Report(
        __file__, "Serving",
        "Bundled TREC model, float32. Times move with the machine; ratios come from runs that alternate in one call of the script. Server"
        " and client share the cores.",
        (noise, beside(wire), beside(connection), beside(latency), beside(flood), beside(refusals), models, callers, instance), seconds=4)
    report.parser.add_argument("--flood_seconds", type=float, default=60)
    report.parser.set_defaults(transport=())
    return report.run()


if __name__ == "__main__":
    sys.exit(main())
