#!/usr/bin/env python3
"""Compares HTTP libraries as servers of small calls: prints a table in Markdown.

    bench/http_libraries/compare.py --build build [--requests 100000] [--rounds 3]

Builds a program for each library whose packages are installed; beast needs the libraries of `make build`. Each round
asks every program once, so that what else the machine does falls on all of them. Needs h2load (nghttp2-client).
"""

import argparse
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

FOLDER = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(FOLDER))
BODY = b'{"sequences":[{"text":"Where is Lake Titicaca ?"}]}'
IDLE = 1000
# Name, source, flags of the linker, threads.
PROGRAMS = [
    ("Beast, one thread", "beast", None, 1),
    ("Beast, two threads", "beast", None, 2),
    ("libevent's evhttp", "libevent", ["-levent"], 1),
    ("libmicrohttpd, epoll, one thread", "libmicrohttpd", ["-lmicrohttpd"], 1),
    ("libmicrohttpd, epoll, two threads", "libmicrohttpd", ["-lmicrohttpd"], 2),
    ("civetweb, a thread per connection", "civetweb", ["-lcivetweb"], 1),
    ("cpp-httplib, a thread per connection", "cpp_httplib", ["-lcpp-httplib", "-lssl", "-lcrypto", "-lz", "-lbrotlienc", "-lbrotlidec"], 1),
]  # fmt: skip


def own_libraries(build):
    names = ["server/http/libsru_server_http.a", "server/base/libsru_server_base.a"]
    found = subprocess.run(
        ["pkg-config", "--libs", "absl_status", "absl_statusor", "absl_strings", "absl_str_format", "absl_time"],
        stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    return [os.path.join(build, name) for name in names] + found.stdout.split() + ["-lssl", "-lcrypto"]


def build_program(source, flags, folder):
    out = os.path.join(folder, source)
    if os.path.exists(out):
        return out
    command = ["c++", "-std=c++17", "-O2", "-DNDEBUG", "-I" + ROOT, os.path.join(FOLDER, source + ".cc")]
    done = subprocess.run([*command, "-o", out, *flags, "-lpthread"], stderr=subprocess.PIPE, text=True)
    if done.returncode == 0:
        return out
    print("%s is left out: %s" % (source, done.stderr.strip().splitlines()[0]), file=sys.stderr)
    return None


def free_port():
    with socket.socket() as any_port:
        any_port.bind(("127.0.0.1", 0))
        return any_port.getsockname()[1]


def ticks(pid):
    with open("/proc/%d/stat" % pid) as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_kib(pid):
    with open("/proc/%d/status" % pid) as status:
        return int(re.search(r"VmRSS:\s+(\d+)", status.read()).group(1))


class Running:
    def __init__(self, program, threads):
        self.port = free_port()
        self.process = subprocess.Popen([program, str(self.port), str(threads)])
        deadline = time.monotonic() + 20
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                return
            except OSError:
                if time.monotonic() > deadline or self.process.poll() is not None:
                    raise
                time.sleep(0.05)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def load(self, requests, body):
        before = ticks(self.process.pid)
        done = subprocess.run(
            ["h2load", "--h1", "-n", str(requests), "-c", "32", "-t", "1", "-d", body,
             "-H", "content-type: application/json", "http://127.0.0.1:%d/" % self.port],
            stdout=subprocess.PIPE, text=True, check=True,
        )  # fmt: skip
        succeeded = int(re.search(r"(\d+) succeeded", done.stdout).group(1))
        if succeeded != requests:
            raise RuntimeError("%d of %d requests succeeded" % (succeeded, requests))
        rate = float(re.search(r"([\d.]+) req/s", done.stdout).group(1))
        return rate, (ticks(self.process.pid) - before) / requests * 1e6

    def idle_kib(self):
        """Of a connection that has carried a request."""
        head = "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(BODY)
        before = resident_kib(self.process.pid)
        connections = []
        for _ in range(IDLE):
            connection = socket.create_connection(("127.0.0.1", self.port), timeout=20)
            connection.sendall(head.encode() + BODY)
            connection.recv(4096)
            connections.append(connection)
        grown = resident_kib(self.process.pid) - before
        for connection in connections:
            connection.close()
        return grown / IDLE


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build", help="folder of the release build")
    parser.add_argument("--requests", type=int, default=100000)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    if shutil.which("h2load") is None:
        sys.exit("compare.py: there is no program h2load; install nghttp2-client")
    with tempfile.TemporaryDirectory() as folder:
        body = os.path.join(folder, "body.json")
        with open(body, "wb") as file:
            file.write(BODY)
        built = []
        for name, source, flags, threads in PROGRAMS:
            program = build_program(source, flags or own_libraries(os.path.abspath(args.build)), folder)
            if program:
                built.append((name, program, threads))
        rates = {name: [] for name, _, _ in built}
        costs = {name: [] for name, _, _ in built}
        memory = {}
        for _ in range(args.rounds):
            for name, program, threads in built:
                with Running(program, threads) as running:
                    if name not in memory:
                        memory[name] = running.idle_kib()
                    rate, cost = running.load(args.requests, body)
                    rates[name].append(rate)
                    costs[name].append(cost)
        print("| library | requests/s | processor time per request, us | KiB per idle connection |\n|---|---|---|---|")
        for name, _, _ in built:
            print("| %s | %s | %.1f | %.1f |" % (
                name, format(round(statistics.median(rates[name]), -2), ",.0f"), statistics.median(costs[name]),
                memory[name]))  # fmt: skip


if __name__ == "__main__":
    main()
