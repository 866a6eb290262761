#!/usr/bin/env python3
"""Compares servers that were built with different versions of gRPC, or started differently, on one machine.

    scripts/grpc_versions.py --bench=build/bin/sru_bench NAME=COMMAND NAME=COMMAND ...

    scripts/grpc_versions.py --bench=build/bin/sru_bench \\
        '1.51=build/bin/sru_bench echo --serve' \\
        '1.83=chroot ROOT /src/build/bin/sru_bench echo --serve'

Each COMMAND starts a server that prints "listening on HOST:PORT"; words like NAME=VALUE before it set its environment. One client, `sru_bench
load` of --bench, calls them in turn, so that other work on the machine affects all of them alike. Prints medians, each with its ratio to the
first server's run of the same round:

    calls/s        depends on what else is running
    us/call        time per call that the server's threads had a processor (/proc/PID/task/*/schedstat): depends less on other work, but a
                   shared processor is also slower
    best           the smallest of the rounds: what the server takes if it is left alone
    switches/call  how often its threads went to sleep
"""

import argparse
import contextlib
import json
import pathlib
import re
import shlex
import statistics
import sys
import time

from report_common import NotMeasured, Process, Table, alternate, output_of, ratios


def thread_times(pid):
    """Nanoseconds on a processor, and voluntary context switches, of all threads of a process."""
    nanoseconds = switches = 0
    for thread in pathlib.Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a thread that has ended
            status = (thread / "status").read_text()
            nanoseconds += int((thread / "schedstat").read_text().split()[0])
            switches += int(re.search(r"^voluntary_ctxt_switches:\s*(\d+)", status, re.M).group(1))
    return nanoseconds, switches


def measure(options, server, connections):
    """Calls per second, microseconds and switches per call."""
    before = thread_times(server.process.pid)
    calls = json.loads(output_of(
        [options.bench, "load", "--address=127.0.0.1:" + server.address.rpartition(":")[2], f"--connections={connections}",
         f"--in_flight={options.in_flight}", f"--duration={options.seconds}s", "--warmup=0s", "--json"]))["ok"]
    time.sleep(0.05)  # for what the server does after its last answer
    nanoseconds, switches = (b - a for a, b in zip(before, thread_times(server.process.pid)))
    return calls / options.seconds, nanoseconds / 1000 / calls, switches / calls


def table(rounds):
    """`rounds`: {name: what measure() returned in each of them}; the first one is what the others are compared with."""
    first, lines = None, []
    for name, found in rounds.items():
        rates, costs, switches = zip(*found)
        first = first or (rates, costs)
        lines.append((name, f"{statistics.median(rates):,.0f}", f"{statistics.median(ratios(rates, first[0])):.2f}",
                      f"{statistics.median(costs):.1f}", f"{statistics.median(ratios(costs, first[1])):.2f}",
                      f"{min(costs):.1f}", f"{min(costs) / min(first[1]):.2f}", f"{statistics.median(switches):.2f}"))
    return Table(("server", "calls/s", "ratio", "us/call", "ratio", "best", "ratio", "switches/call"), lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", required=True, type=lambda path: pathlib.Path(path).resolve(), help="the sru_bench that calls them all")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=2, help="of each run")
    parser.add_argument("--in_flight", type=int, default=64)
    parser.add_argument("--connections", type=int, nargs="+", default=[8, 1])
    parser.add_argument("servers", nargs="+", metavar="NAME=COMMAND")
    options = parser.parse_intermixed_args()
    with contextlib.ExitStack() as stack:
        servers = {}
        for text in options.servers:
            name, command = text.split("=", 1)
            try:  # `env` sets what stands before the command
                servers[name] = stack.enter_context(Process(["env", *shlex.split(command)]))
            except NotMeasured as error:
                sys.exit(f"{name}: expected 'listening on HOST:PORT', found '{error}'")
        for connections in options.connections:
            functions = {name: lambda server=server: measure(options, server, connections) for name, server in servers.items()}
            alternate(1, functions)  # not counted: memory is allocated, code is read
            print(f"\n{connections} connections, {options.in_flight} in flight, {options.rounds} rounds of {options.seconds:g} s,"
                  f" medians:\n\n{table(alternate(options.rounds, functions))}", flush=True)


if __name__ == "__main__":
    main()
