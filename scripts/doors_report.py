#!/usr/bin/env python3
"""Measures the ways into the server against each other and writes docs/benchmarks/doors.md.

  make build && scripts/doors_report.py          about 10 minutes

sru.v1 and the Open Inference Protocol over gRPC; /v1 and /v2 over HTTP; completions against Generate; what idle
connections hold. The models are the bundled ones. What is compared alternates in one run, and medians over the
rounds count. Parts can be left out or chosen: --parts=rest,latency. --quick measures for a moment only and
judges nothing. Needs grpcio and h2load (the package nghttp2-client). Exits with 1 if a figure is not as wanted.
"""

import json
import os
import pathlib
import re
import resource
import shutil
import socket
import statistics
import subprocess
import sys
import time

sys.dont_write_bytecode = True
import report_common
from report_common import NotMeasured, Server, at_least, at_most, bench, progress, row

TEXT = "who wrote hamlet ?"
CLASSIFIER = "trec"
LANGUAGE_MODEL = "war_and_peace"
MODELS = report_common.ROOT / "models" / "pretrained"
WANTED_CALLS = 15000       # Classify over keep-alive connections, per second on two cores
WANTED_OF_BARE = 0.6       # or of what the bare library answers
WANTED_PROTOCOL = 0.85     # calls/s of the Open Inference Protocol by those of sru.v1
CONNECTIONS = 1000
NEW_TOKENS = 200


def infer_json(**parameters):
    request = {"inputs": [{"name": "text", "shape": [1], "datatype": "BYTES", "data": [TEXT]}]}
    return json.dumps({**request, **parameters}, separators=(",", ":")).encode()


def infer_binary():
    """(body, length of its JSON)"""
    values = len(TEXT).to_bytes(4, "little") + TEXT.encode()
    request = {"inputs": [{"name": "text", "shape": [1], "datatype": "BYTES",
                           "parameters": {"binary_data_size": len(values)}}],
               "parameters": {"binary_data_output": True}}
    head = json.dumps(request, separators=(",", ":")).encode()
    return head + values, len(head)


class Door:
    """A way to have one text classified over HTTP, as h2load takes it."""

    def __init__(self, name, path, body, headers=("content-type: application/json",)):
        self.name, self.path, self.body, self.headers = name, path, body, headers

    def measure(self, args, http_address, connections):
        """Calls per second."""
        file = args.folder / (re.sub(r"\W", "_", self.name) + ".body")
        file.write_bytes(self.body)
        calls = ["-n256"] if args.quick else [f"-D{max(1, round(args.seconds))}", "--warm-up-time=1"]
        command = ["h2load", "--h1", f"-c{connections}", "-t1", *calls, f"-d{file}"]
        for header in self.headers:
            command += ["-H", header]
        try:
            done = subprocess.run([*command, f"http://{http_address}{self.path}"], timeout=3 * args.seconds + 20,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
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
    binary, head = infer_binary()
    classify = json.dumps({"model": CLASSIFIER, "sequences": [{"text": TEXT}]}, separators=(",", ":")).encode()
    infer = f"/v2/models/{CLASSIFIER}/infer"
    return [
        Door("POST /v1/classify", "/v1/classify", classify),
        Door("POST /v2/.../infer, JSON", infer, infer_json()),
        Door("POST /v2/.../infer, binary data", infer, binary,
             ("content-type: application/octet-stream", f"inference-header-content-length: {head}")),
    ]


def need(program, package):
    if shutil.which(program) is None:
        raise NotMeasured(f"there is no {program} (package {package})")


def http_server(args, *flags):
    """A server whose address of the HTTP port is in `http_address`."""
    return Server(args, MODELS, flags=("--http_listen=127.0.0.1:0", *flags))


def native_rate(args, server, in_flight, protocol="native"):
    result = bench(args, "load", server, f"--model={CLASSIFIER}", f"--protocol={protocol}",
                   f"--in_flight={in_flight}", f"--warmup={min(0.5, args.seconds):g}s", f"--duration={args.seconds:g}s")
    return result["throughput_per_s"]


def median_of(rounds, functions):
    """name -> median of what its function returns, over so many rounds in which they alternate."""
    found = {name: [] for name in functions}
    for _ in range(rounds):
        for name, function in functions.items():
            found[name].append(function())
    return {name: statistics.median(values) for name, values in found.items()}


def protocols(args, _):
    """The Open Inference Protocol and sru.v1, both over gRPC, both by sru_bench."""
    with http_server(args) as server:
        native_rate(args, server, 64)  # warm
        found = median_of(args.rounds, {
            protocol: lambda protocol=protocol: native_rate(args, server, 64, protocol)
            for protocol in ("native", "open_inference")})
    return [
        row("gRPC, 64 calls in flight: sru.v1 Classify", f"{found['native']:,.0f} calls/s"),
        at_least("gRPC, 64 calls in flight: ModelInfer of the Open Inference Protocol / sru.v1 Classify",
                 found["open_inference"] / found["native"], WANTED_PROTOCOL,
                 f" ({found['open_inference']:,.0f} calls/s)", digits=2),
    ]


class BareServer:
    """The HTTP library alone, which answers every request with a body of this many bytes."""

    def __init__(self, args, answer_bytes):
        program = args.bin / "http_echo"
        if not program.exists():
            raise NotMeasured(f"{program} is not built")
        self._process = subprocess.Popen([str(program), f"--answer_bytes={answer_bytes}"],
                                         stdout=subprocess.PIPE, text=True)
        found = re.match(r"listening on (\S+)", self._process.stdout.readline())
        if not found:
            raise NotMeasured(f"{program} did not start")
        self.address = found.group(1)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.terminate()
        self._process.wait()
        self._process.stdout.close()


def answer_bytes(http_address, door):
    answer = HttpConnection(http_address).ask(door)
    return len(answer)


def rest(args, _):
    """Calls per second over keep-alive connections."""
    need("h2load", "nghttp2-client")
    rows = []
    with http_server(args) as server:
        all_doors = doors()
        classify = all_doors[0]
        with BareServer(args, answer_bytes(server.http_address, classify)) as bare:
            for connections in (64, 1):
                functions = {door.name: lambda door=door: door.measure(args, server.http_address, connections)
                             for door in all_doors}
                functions["bare"] = lambda: classify.measure(args, bare.address, connections)
                functions["grpc"] = lambda: native_rate(args, server, connections)
                found = median_of(args.rounds, functions)
                what = f"{connections} connection{'s' * (connections > 1)}"
                rows.append(row(f"{what}: the HTTP library alone, the same bodies",
                                f"{found['bare']:,.0f} calls/s"))
                rows.append(row(f"{connections} in flight: sru.v1 Classify over gRPC",
                                f"{found['grpc']:,.0f} calls/s"))
                for door in all_doors:
                    rate, of_bare = found[door.name], found[door.name] / found["bare"]
                    judged = connections > 1 and door is classify
                    rows.append(row(
                        f"{what}: {door.name}",
                        f"{rate:,.0f} calls/s, {of_bare:.2f} of the library alone, "
                        f"{rate / found['grpc']:.2f} of gRPC",
                        f"at least {WANTED_CALLS:,} or {WANTED_OF_BARE:g} of the library" if judged else "",
                        not judged or rate >= WANTED_CALLS or of_bare >= WANTED_OF_BARE))
    return rows


def latency(args, _):
    """One call after the other, on one connection."""
    need("h2load", "nghttp2-client")
    with http_server(args) as server:
        functions = {f"gRPC, {name}": lambda protocol=protocol: native_rate(args, server, 1, protocol)
                     for name, protocol in (("sru.v1 Classify", "native"), ("ModelInfer", "open_inference"))}
        for door in doors():
            functions[door.name] = lambda door=door: door.measure(args, server.http_address, 1)
        found = median_of(args.rounds, functions)
    return [row(f"one call after the other, {name}: mean time of a call", f"{1e6 / rate:,.0f} us")
            for name, rate in found.items()]


class HttpConnection:
    """A connection that is kept open, with answers that state their length."""

    def __init__(self, address):
        host, port = address.rsplit(":", 1)
        self.address = address
        self.socket = socket.create_connection((host, int(port)), timeout=60)
        self._stream = self.socket.makefile("rb")

    def send(self, path, body, headers):
        lines = [f"POST {path} HTTP/1.1", f"host: {self.address}", *headers, f"content-length: {len(body)}", "", ""]
        self.socket.sendall("\r\n".join(lines).encode() + body)

    def read_head(self):
        status = self._stream.readline().decode()
        if not status:
            raise NotMeasured(f"{self.address} closed a connection")
        length = 0
        for line in self.lines():
            if line == b"\r\n":
                break
            name, _, value = line.decode().partition(":")
            if name.lower() == "content-length":
                length = int(value)
        if " 200 " not in status:
            raise NotMeasured(f"{status.strip()}: {self._stream.read(length).decode()[:200]}")
        return length

    def ask(self, door):
        self.send(door.path, door.body, door.headers)
        return self._stream.read(self.read_head())

    def lines(self):
        """What comes, line by line, until the connection is closed."""
        return iter(self._stream.readline, b"")

    def close(self):
        self._stream.close()
        self.socket.close()


def idle(args, _):
    """Memory that connections hold that have nothing to say."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * CONNECTIONS + 200
    if soft < wanted:
        if hard < wanted:
            raise NotMeasured(f"{CONNECTIONS} connections need {wanted} files, the limit is {hard}")
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    door = doors()[0]
    rows = []
    with http_server(args, f"--max_connections={CONNECTIONS + 100}") as server:
        warm = [HttpConnection(server.http_address) for _ in range(20)]
        for connection in warm * 5:
            connection.ask(door)
        before = server.memory_bytes()
        silent = [HttpConnection(server.http_address) for _ in range(CONNECTIONS - len(warm))]
        for connection in silent:
            connection.ask(door)
        after = server.memory_bytes()
        for connection in silent[::100]:
            connection.ask(door)  # they are open still
        rows.append(at_most(
            f"memory of {CONNECTIONS:,} idle HTTP connections, KB per connection",
            (after - before) / 1024 / len(silent), 64,
            f" ({before / 1e6:,.0f} MB before, {after / 1e6:,.0f} MB after)", digits=1))
        for connection in warm + silent:
            connection.close()
    return rows


def stream_completion(connection, prompt):
    """(seconds to the first event, to the end)"""
    body = json.dumps({"model": LANGUAGE_MODEL, "prompt": prompt, "max_tokens": NEW_TOKENS, "temperature": 0,
                       "stream": True}).encode()
    start = time.monotonic()
    connection.send("/v1/completions", body, ("content-type: application/json",))
    connection.read_head()
    first = None
    for line in connection.lines():
        if line.startswith(b"data: "):
            first = first or time.monotonic() - start
            if line.strip() == b"data: [DONE]":
                return first, time.monotonic() - start
    raise NotMeasured("a completion that ended without [DONE]")


def generate(channel, prompt):
    """The same over gRPC."""
    pb2 = report_common.inference_pb2
    call = channel.unary_stream("/sru.v1.InferenceService/Generate",
                                request_serializer=pb2.GenerateRequest.SerializeToString,
                                response_deserializer=pb2.GenerateResponse.FromString)
    request = pb2.GenerateRequest(model=LANGUAGE_MODEL, max_new_tokens=NEW_TOKENS)
    request.prompt.text = prompt
    start = time.monotonic()
    first = None
    for response in call(request, timeout=600):
        if response.text:
            first = first or time.monotonic() - start
    return first, time.monotonic() - start


def completions(args, _):
    """A text that is streamed, by completions and by Generate, each read by a Python program."""
    prompt = "It was a dark and stormy night"
    texts = max(2, round(args.seconds))
    found = {"Generate": [], "completions": []}
    with http_server(args) as server:
        channel = report_common.grpc.insecure_channel(server.address)
        for i in range(args.rounds * texts + 1):
            native = generate(channel, prompt)
            # A streamed answer ends with its connection or goes on with the next request: take a new one.
            connection = HttpConnection(server.http_address)
            streamed = stream_completion(connection, prompt)
            connection.close()
            if i > 0:  # the first warms both
                found["Generate"].append(native)
                found["completions"].append(streamed)
        channel.close()
    rows, rates, firsts = [], {}, {}
    for name, times in found.items():
        rates[name] = NEW_TOKENS / statistics.median(whole for _, whole in times)
        firsts[name] = statistics.median(first for first, _ in times)
        rows.append(row(f"one text of {NEW_TOKENS} tokens at a time, {name}",
                        f"{rates[name]:,.0f} tokens/s, first after {1e3 * firsts[name]:.2f} ms"))
    rows.append(row("tokens/s of completions / of Generate", f"{rates['completions'] / rates['Generate']:.2f}"))
    return rows


PARTS = {part.__name__: part for part in (protocols, rest, latency, idle, completions)}

COMMANDS = """## Commands

`scripts/doors_report.py` reproduces every figure and writes this page. What it runs can be run by itself against a
server of this machine (`sru_server --model_repository=models/pretrained`):

```
sru_bench load --model=trec                                          sru.v1 Classify, 64 calls in flight
sru_bench load --model=trec --protocol=open_inference                ModelInfer, likewise
sru_bench load --model=trec --in_flight=1                            one call after the other
echo '{"model":"trec","sequences":[{"text":"who wrote hamlet ?"}]}' > body
h2load --h1 -c64 -t1 -D10 --warm-up-time=1 -d body -H 'content-type: application/json' http://localhost:8080/v1/classify
h2load --h1 -c1 -t1 -D10 --warm-up-time=1 -d body -H 'content-type: application/json' http://localhost:8080/v1/classify
http_echo --answer_bytes=600                                         the HTTP library alone, for h2load
curl -N -H 'content-type: application/json' http://localhost:8080/v1/completions \\
  -d '{"model":"war_and_peace","prompt":"It was","max_tokens":200,"stream":true}'
```

The load generator takes a part of the same cores, and h2load and sru_bench take different parts of them: the ratio to
gRPC is that of what callers on this machine get, not of what the server does per call."""


def report(args, results):
    text = ("Every call classifies the same short text, alone. Figures beside each other were measured in turns, in one "
            f"run; they are medians of {args.rounds} rounds.")
    if args.quick:
        text += " **A quick run: its figures mean nothing.**"
    return report_common.page("Doors", "doors_report.py", text, args, results, COMMANDS) + "\n"


def unjudged(part):
    """The part with rows that are good whatever they say."""
    def measured(args, models):
        return [{**entry, "good": True} for entry in part(args, models)]
    return measured


def main():
    parser = report_common.make_parser(__doc__, PARTS, "nothing that this report needs", "doors.md")
    parser.set_defaults(seconds=5)
    parser.add_argument("--rounds", type=int, default=5, help="in which what is compared alternates")
    parser.add_argument("--quick", action="store_true", help="one round of a moment, which judges nothing")
    args = parser.parse_args()
    if args.quick:
        parser.set_defaults(seconds=0.1, rounds=1)

    def make_models(given, folder):
        given.folder = pathlib.Path(folder)
        return given

    parts = {name: unjudged(part) for name, part in PARTS.items()} if args.quick else PARTS
    return report_common.run(parser, parts, make_models, report)


if __name__ == "__main__":
    sys.exit(main())
