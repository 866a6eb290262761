#!/usr/bin/env python3
"""Measures the ways into the server against each other and writes build/reports/doors.md.

  make build && scripts/doors_report.py          about 8 minutes

Both transports of gRPC, on one core; sru.v1 and the Open Inference Protocol over gRPC; /v1 and /v2 over HTTP; completions against Generate; what
idle connections hold. The
models are the bundled ones. What is compared alternates in one run, and medians over the rounds count. Parts can be left out or chosen:
--parts=rest,idle. --quick measures for a moment only and judges nothing. Needs grpcio and h2load (the package nghttp2-client). Exits with 1
if a figure is not as wanted.
"""

import contextlib
import http.client
import json
import os
import re
import resource
import shutil
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import time

from report_calls import grpc, inference_pb2, inference_pb2_grpc
from report_common import (NotMeasured, PRETRAINED, Report, Row, Server, Table, alternate, at_least, at_most, bench, medians, one_core,
                           output_of, seconds)

TEXT = "who wrote hamlet ?"
CLASSIFIER = "trec"
LANGUAGE_MODEL = "war_and_peace"
WANTED_CALLS = 15000       # Classify over keep-alive connections, per second on two cores
WANTED_REST = 0.8          # calls/s of REST by those of gRPC on as many connections
WANTED_PROTOCOL = 0.85     # calls/s of the Open Inference Protocol by those of sru.v1
CONNECTIONS = 1000
NEW_TOKENS = 200


def compact(value):
    return json.dumps(value, separators=(",", ":")).encode()


class Door:
    """A way to have one text classified over HTTP, as h2load takes it."""

    def __init__(self, name, path, body, headers=("content-type: application/json",)):
        self.name, self.path, self.body, self.headers = name, path, body, headers

    def measure(self, args, address, connections, streams=0):
        """Calls per second, over HTTP/1.1 or over `streams` of each connection in HTTP/2."""
        calls = ["-n256"] if args.quick else [f"-D{max(1, round(args.seconds))}", "--warm-up-time=1"]
        with tempfile.NamedTemporaryFile() as file:
            file.write(self.body)
            file.flush()
            words = ["h2load", f"-m{streams}" if streams else "--h1", f"-c{connections}", "-t1", *calls, f"-d{file.name}",
                     *(word for header in self.headers for word in ("-H", header)), f"http://{address}{self.path}"]
            try:
                done = subprocess.run(words, timeout=3 * args.seconds + 20, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                      check=False)
            except subprocess.TimeoutExpired as error:  # it goes on forever if its connections are closed
                raise NotMeasured(f"h2load did not end: {self.path}") from error
        rate = re.search(r"finished in .*?, ([\d.]+) req/s", done.stdout)
        codes = re.search(r"status codes: (\d+) 2xx, (\d+) 3xx, (\d+) 4xx, (\d+) 5xx", done.stdout)
        if not rate or not codes:
            raise NotMeasured("h2load: " + (done.stdout.strip().split("\n") or ["no output"])[-1])
        good, *bad = map(int, codes.groups())
        if any(bad) or not good:
            raise NotMeasured(f"{self.name}: {good} answers with 200, {sum(bad)} with other codes")
        return float(rate.group(1))


def doors():
    def infer(more, **text):
        return compact({"inputs": [{"name": "text", "shape": [1], "datatype": "BYTES", **text}], **more})

    path = f"/v2/models/{CLASSIFIER}/infer"
    values = len(TEXT).to_bytes(4, "little") + TEXT.encode()
    head = infer({"parameters": {"binary_data_output": True}}, parameters={"binary_data_size": len(values)})
    return [
        Door("POST /v1/classify", "/v1/classify", compact({"model": CLASSIFIER, "sequences": [{"text": TEXT}]})),
        Door("POST /v2/.../infer, JSON", path, infer({}, data=[TEXT])),
        Door("POST /v2/.../infer, binary data", path, head + values,
             ("content-type: application/octet-stream", f"inference-header-content-length: {len(head)}")),
    ]


def http_server(args, *flags):
    return Server(args, PRETRAINED, flags=("--http_listen=127.0.0.1:0", *flags))


def native_rate(args, server, in_flight, protocol="native", connections=2):
    return bench(args, "load", server, f"--model={CLASSIFIER}", f"--protocol={protocol}", f"--in_flight={in_flight}", f"--connections={connections}",
                 f"--warmup={seconds(min(0.5, args.seconds))}", f"--duration={seconds(args.seconds)}")["throughput_per_s"]


def protocols(args, _):
    """The Open Inference Protocol and sru.v1, both over gRPC, both by sru_bench."""
    with http_server(args) as server:
        native_rate(args, server, 64)  # warm
        found = medians(args.rounds, {protocol: lambda protocol=protocol: native_rate(args, server, 64, protocol)
                                      for protocol in ("native", "open_inference")})
    yield Row("gRPC, 64 calls in flight: sru.v1 Classify", f"{found['native']:,.0f} calls/s")
    yield at_least("gRPC, 64 calls in flight: ModelInfer of the Open Inference Protocol / sru.v1 Classify",
                   found["open_inference"] / found["native"], WANTED_PROTOCOL, f" ({found['open_inference']:,.0f} calls/s)", digits=2)


def rest(args, _):
    """Calls per second over keep-alive connections, and the time of a call where one follows the other."""
    if shutil.which("h2load") is None:
        raise NotMeasured("there is no h2load (package nghttp2-client)")
    with http_server(args) as server:
        first = doors()[0]
        found = medians(args.rounds, {
            "http": lambda: first.measure(args, server.address, 4, 16), "gRPC": lambda: native_rate(args, server, 64, connections=4)})
        yield at_least(f"64 in flight on 4 connections of HTTP/2: {first.name} / sru.v1 Classify over gRPC", found["http"] / found["gRPC"],
                       WANTED_REST, f" ({found['http']:,.0f} and {found['gRPC']:,.0f} calls/s)", digits=2)
        for connections in (64, 1):
            found = medians(args.rounds, {
                **{door.name: lambda door=door: door.measure(args, server.http_address, connections) for door in doors()},
                "gRPC, sru.v1 Classify": lambda: native_rate(args, server, connections),
                "gRPC, ModelInfer": lambda: native_rate(args, server, connections, "open_inference")})
            native = found["gRPC, sru.v1 Classify"]
            what = f"{connections} connection{'s' * (connections > 1)}"
            yield Row(f"{connections} in flight: sru.v1 Classify over gRPC", f"{native:,.0f} calls/s")
            for door in doors():
                judged = connections > 1 and door.path == "/v1/classify"
                yield Row(f"{what}: {door.name}", f"{found[door.name]:,.0f} calls/s, {found[door.name] / native:.2f} of gRPC",
                          f"at least {WANTED_CALLS:,}" if judged else "", not judged or found[door.name] >= WANTED_CALLS)
        for name, rate in found.items():
            yield Row(f"one call after the other, {name}: mean time of a call", f"{1e6 / rate:,.0f} us")


def ask(connection, path, body, *headers):
    """The answer to a POST; what is left of the one before on this connection is gone."""
    connection.request("POST", path, body, dict(header.split(": ", 1) for header in headers))
    answer = connection.getresponse()
    if answer.status != 200:
        raise NotMeasured(f"{path}: {answer.status} {answer.read()[:200].decode()}")
    return answer


def idle(args, _):
    """Memory that connections hold that have nothing to say."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * CONNECTIONS + 200
    if hard < wanted:
        raise NotMeasured(f"{CONNECTIONS} connections need {wanted} files, the limit is {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    door = doors()[0]
    with http_server(args, f"--max_connections={CONNECTIONS + 100}") as server:
        def classify(connections):
            for connection in connections:
                ask(connection, door.path, door.body, *door.headers).read()

        warm, silent = ([http.client.HTTPConnection(server.http_address) for _ in range(n)] for n in (20, CONNECTIONS - 20))
        classify(warm * 5)
        before = server.memory_bytes()
        classify(silent)
        after = server.memory_bytes()
        for connection in warm + silent:  # where one was closed meanwhile, this fails rather than connects again
            connection.auto_open = 0
        classify(silent[::100])
        for connection in warm + silent:
            connection.close()
    yield at_most(f"memory of {CONNECTIONS:,} idle HTTP connections, KB per connection", (after - before) / 1024 / len(silent), 64,
                  f" ({before / 1e6:,.0f} MB before, {after / 1e6:,.0f} MB after)", digits=1)


def loaded(args, server, core, *flags):
    """Calls per second, and the server's processor time for each, in microseconds; also where none is answered OK."""
    time_before = server.seconds()
    words = [args.bin / "sru_bench", "load", f"--address={server.address}", "--json", f"--model={CLASSIFIER}", "--warmup=0s",
             f"--duration={seconds(args.seconds)}", *flags]
    found = json.loads(output_of(words, core=core, partial=True))
    return found["calls"] / found["elapsed_s"], 1e6 * (server.seconds() - time_before) / found["calls"]


def idle_kib(server, tls=None):
    """What a connection over HTTP/2 holds that has nothing to say, in KiB."""
    host, _, port = server.address.rpartition(":")
    before = server.memory_bytes()
    with contextlib.ExitStack() as stack:
        for _ in range(CONNECTIONS):
            connection = stack.enter_context(socket.create_connection((host, int(port))))
            if tls:
                connection = stack.enter_context(tls.wrap_socket(connection))
            connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
        time.sleep(1)
        return (server.memory_bytes() - before) / 1024 / CONNECTIONS


def idle_tls_kib(args, name, core):
    """The same over TLS."""
    tls = ssl.create_default_context()
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    tls.set_alpn_protocols(["h2"])
    with tempfile.TemporaryDirectory() as folder:
        files = [f"{folder}/{part}.pem" for part in ("certificate", "key")]
        output_of(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                   "-subj", "/CN=localhost", "-out", files[0], "-keyout", files[1]])
        flags = (f"--grpc_transport={name}", f"--tls_cert={files[0]}", f"--tls_key={files[1]}")
        with Server(args, PRETRAINED, flags=flags, core=core) as server:
            return idle_kib(server, tls)


def transports(args, _):
    """Both transports on the last core, the load on another one. With one core only, they share it."""
    core = one_core()
    other = min(os.sched_getaffinity(0) - {core}, default=core)
    loads = [(f"{in_flight} in flight, {connections} connection{'s' * (connections > 1)}",
              (f"--in_flight={in_flight}", f"--connections={connections}"))
             for in_flight, connections in ((64, 4), (64, 1), (1, 1))]
    loads.append(("refused for a model that is not there, 64 in flight", ("--model=nobody", "--connections=4")))
    yield Row("echo by gRPC's library, 64 in flight, both ends on both cores",
              f"{statistics.median(bench(args, 'echo', None, f'--duration={seconds(args.seconds)}')['throughput_per_s'] for _ in range(args.rounds)):,.0f} calls/s")
    for dtype in ("float32", "bfloat16"):
        with contextlib.ExitStack() as stack:
            servers = {name: stack.enter_context(Server(args, PRETRAINED, dtype, (f"--grpc_transport={name}",), core))
                       for name in ("library", "native")}
            rows = []
            if dtype == "float32":  # before any load, whose memory the allocator would use again
                rows.append((f"memory of {CONNECTIONS:,} idle connections, each", *(f"{idle_kib(server):.1f} KiB" for server in servers.values()), ""))
                rows.append((f"memory of {CONNECTIONS:,} idle connections over TLS, each",
                             *(f"{idle_tls_kib(args, name, core):.1f} KiB" for name in servers), ""))
            for name, flags in loads:
                found = alternate(args.rounds, {which: lambda server=server: loaded(args, server, other, *flags)
                                                for which, server in servers.items()})
                middle = {which: [statistics.median(values) for values in zip(*runs)] for which, runs in found.items()}
                rows.append((name, *(f"{rate:,.0f} calls/s, {cost:.1f} us" for rate, cost in middle.values()),
                             f"{middle['native'][0] / middle['library'][0]:.2f}"))
            yield Table((f"Classify, {dtype}, one core", *servers, "native / library"), rows)


def first_and_whole(parts):
    """Seconds to the first of what an iterator yields that counts, and to the end."""
    start, first = time.monotonic(), None
    for counts in parts:
        if counts and first is None:
            first = time.monotonic() - start
    return first, time.monotonic() - start


def completion(address, prompt):
    """Whether each line of a streamed completion is an event. The answer may end with its connection, so that each has its own."""
    request = {"model": LANGUAGE_MODEL, "prompt": prompt, "max_tokens": NEW_TOKENS, "temperature": 0, "stream": True}
    with contextlib.closing(http.client.HTTPConnection(address)) as connection:
        # Of its file, which is faster than the answer's own lines, and as good: lengths of chunks are no events.
        for line in ask(connection, "/v1/completions", compact(request), "content-type: application/json").fp:
            yield line.startswith(b"data: ")
            if line.strip() == b"data: [DONE]":
                return
    raise NotMeasured("a completion that ended without [DONE]")


def completions(args, _):
    """A text that is streamed, by completions and by Generate, each read by a Python program."""
    prompt = "It was a dark and stormy night"
    request = inference_pb2.GenerateRequest(model=LANGUAGE_MODEL, max_new_tokens=NEW_TOKENS, prompt={"text": prompt})
    with http_server(args) as server, grpc.insecure_channel(server.address) as channel:
        stub = inference_pb2_grpc.InferenceServiceStub(channel)
        functions = {"Generate": lambda: first_and_whole(bool(message.text) for message in stub.Generate(request, timeout=600)),
                     "completions": lambda: first_and_whole(completion(server.http_address, prompt))}
        alternate(1, functions)  # warm
        found = alternate(args.rounds * max(2, round(args.seconds)), functions)
    rates = []
    for name, times in found.items():
        first, whole = (statistics.median(values) for values in zip(*times))
        rates.append(NEW_TOKENS / whole)
        yield Row(f"one text of {NEW_TOKENS} tokens at a time, {name}", f"{rates[-1]:,.0f} tokens/s, first after {1e3 * first:.2f} ms")
    yield Row("tokens/s of completions / of Generate", f"{rates[1] / rates[0]:.2f}")


def main():
    return Report(
        __file__, "Doors",
        "Every call classifies the same short text, alone. Figures beside each other were measured in turns, in one run; they are medians.",
        (transports, protocols, rest, idle, completions),
        seconds=5).run()


if __name__ == "__main__":
    sys.exit(main())
