#!/usr/bin/env python3
"""Compares servers that were built with different versions of gRPC, or started differently, on one machine.

    scripts/grpc_versions.py --bench=build/bin/sru_bench NAME=COMMAND NAME=COMMAND ...

    scripts/grpc_versions.py --bench=build/bin/sru_bench \\
        '1.51=build/bin/sru_bench echo --serve' \\
        '1.83=chroot ROOT /src/build/bin/sru_bench echo --serve'

Each COMMAND starts a server that prints "listening on HOST:PORT"; words like NAME=VALUE before it set its
environment. One client, `sru_bench load` of --bench, calls them in turn, so that other work on the machine
affects all of them alike. Prints medians, each with its ratio to the first server's run of the same round:

    calls/s        depends on what else is running
    us/call        time per call that the server's threads had a processor (/proc/PID/task/*/schedstat): depends
                   less on other work, but a shared processor is also slower
    best           the smallest of the rounds: what the server takes if it is left alone
    switches/call  how often its threads went to sleep
"""

import argparse
import json
import os
import re
import shlex
import statistics
import subprocess
import sys
import time


def thread_times(pid):
    """Nanoseconds on a processor, and voluntary context switches, of all threads of a process."""
    nanoseconds = switches = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{thread}/schedstat") as schedstat:
                nanoseconds += int(schedstat.read().split()[0])
            with open(f"/proc/{pid}/task/{thread}/status") as status:
                switches += int(re.search(r"^voluntary_ctxt_switches:\s*(\d+)", status.read(), re.M).group(1))
        except FileNotFoundError:
            pass  # a thread that has ended
    return nanoseconds, switches


class Server:
    def __init__(self, text):
        self.name, command = text.split("=", 1)
        words = shlex.split(command)
        environment = dict(os.environ)
        while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
            name, value = words.pop(0).split("=", 1)
            environment[name] = value
        self.process = subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        match = re.search(r"listening on \S*?:(\d+)", line)
        if match is None:
            sys.exit(f"{self.name}: expected 'listening on HOST:PORT', found '{line.strip()}'")
        self.port = int(match.group(1))
        self.rounds = []

    def measure(self, options, connections):
        before = thread_times(self.process.pid)
        result = subprocess.run(
            [options.bench, "load", f"--address=127.0.0.1:{self.port}", f"--connections={connections}",
             f"--in_flight={options.in_flight}", f"--duration={options.seconds}s", "--warmup=0s", "--json"],
            stdout=subprocess.PIPE, text=True, check=True)
        time.sleep(0.05)  # for what the server does after its last answer
        after = thread_times(self.process.pid)
        calls = json.loads(result.stdout)["ok"]
        return (calls / options.seconds, (after[0] - before[0]) / 1000 / calls, (after[1] - before[1]) / calls)

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()


def table(servers):
    first = servers[0].rounds
    yield "| server | calls/s | ratio | us/call | ratio | best | ratio | switches/call |"
    yield "|---|---|---|---|---|---|---|---|"
    best_of_first = min(one[1] for one in first)
    for server in servers:
        calls, cost, switches = (statistics.median(one[i] for one in server.rounds) for i in range(3))
        ratios = [statistics.median(one[i] / other[i] for one, other in zip(server.rounds, first)) for i in range(2)]
        best = min(one[1] for one in server.rounds)
        yield (f"| {server.name} | {calls:,.0f} | {ratios[0]:.2f} | {cost:.1f} | {ratios[1]:.2f} | {best:.1f} | "
               f"{best / best_of_first:.2f} | {switches:.2f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", required=True, help="the sru_bench that calls them all")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=2, help="of each run")
    parser.add_argument("--in_flight", type=int, default=64)
    parser.add_argument("--connections", type=int, nargs="+", default=[8, 1])
    parser.add_argument("servers", nargs="+", metavar="NAME=COMMAND")
    options = parser.parse_intermixed_args()
    servers = []
    try:
        for text in options.servers:
            servers.append(Server(text))
        for connections in options.connections:
            for server in servers:
                server.rounds = []
                server.measure(options, connections)  # not counted: memory is allocated, code is read
            for _ in range(options.rounds):
                for server in servers:
                    server.rounds.append(server.measure(options, connections))
            print(f"\n{connections} connections, {options.in_flight} in flight, {options.rounds} rounds of "
                  f"{options.seconds:g} s, medians:\n", flush=True)
            for line in table(servers):
                print(line, flush=True)
    finally:
        for server in servers:
            server.stop()


if __name__ == "__main__":
    main()
