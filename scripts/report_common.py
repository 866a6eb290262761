"""What generate_report.py, reader_report.py and translator_report.py share: a server, its load, the rows of
a table with what is wanted of each, and the promises that every call keeps under load.

A report is a list of parts. A part is a function of (args, models) that returns rows, or raises
NotMeasured with the reason. Every figure is a ratio of two things that are measured in one run on one
machine, or a count. Needs Python 3.9, grpcio and numpy.
"""

import argparse
import collections
import concurrent.futures
import datetime
import functools
import json
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "client" / "python"))
try:
    import grpc  # noqa: E402
    from sru_inference.v1 import inference_pb2  # noqa: E402  (client/python)
except ImportError as missing_module:
    print(f"SKIPPED: {missing_module} ({sys.executable})")
    sys.exit(77)

DTYPES = ("float32", "bfloat16")


def progress(text):
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


class NotMeasured(Exception):
    """A part cannot run here; says why."""


class Server:
    """A server on ports that the system picks; with `core`, all of its threads run on that core."""

    def __init__(self, args, repository, dtype="float32", flags=(), core=None, backend=None):
        self.process = subprocess.Popen(
            [
                str(args.bin / "sru_server"),
                f"--model_repository={repository}",
                f"--backend={backend or args.backend}",
                f"--dtype={dtype}",
                "--listen=127.0.0.1:0",
                "--metrics_listen=127.0.0.1:0",
                "--http_listen=",
                *flags,
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=None if core is None else lambda: os.sched_setaffinity(0, {core}),
        )
        ready = self.process.stdout.readline()
        found = re.match(r"listening on ([^,]+), metrics on ([^,\s]+)", ready)
        if not found:
            self.process.wait()
            raise NotMeasured(self.process.stderr.read().strip().split("\n")[-1])
        # Its log must not fill the pipe.
        threading.Thread(target=self.process.stderr.read, daemon=True).start()
        self.address = found.group(1)
        self._metrics = f"http://{found.group(2)}/metrics"
        http = re.search(r", HTTP on ([^,\s]+)", ready)
        self.http_address = http.group(1) if http else None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        self.process.stdout.close()

    def memory_bytes(self, which="VmRSS"):
        """Memory that is resident now, or with VmHWM the most that ever was."""
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
        return 1024 * int(re.search(which + r":\s+(\d+) kB", status).group(1))

    def metric(self, name, *labels):
        """The sum of the series of this name that have all of these labels, such as 'state="paused"'."""
        with urllib.request.urlopen(self._metrics) as answer:
            text = answer.read().decode("utf-8")
        return sum(float(value)
                   for found, value in re.findall(
                       "^" + re.escape(name) + r"(?:\{([^}]*)\})? (\S+)$", text, re.MULTILINE)
                   if all(label in found for label in labels))


class MemoryWatch:
    """The server's memory, every second; `settled` has what it was while is_settled()."""

    def __init__(self, server, is_settled=lambda: False):
        self.samples = []
        self.settled = []
        self._server = server
        self._is_settled = is_settled
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self):
        while not self._stop.wait(1):
            self.samples.append(self._server.memory_bytes())
            if self._is_settled():
                self.settled.append(self.samples[-1])

    def growth(self):
        """The median of the last third by that of the third before it."""
        third = max(1, len(self.samples) // 3)
        return (statistics.median(self.samples[-third:])
                / statistics.median(self.samples[third:2 * third] or self.samples))

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()


class Method:
    """A unary method of a server, from the fields of a request as a dict to the response, on a connection of its own."""

    def __init__(self, address, name):
        request, response = (getattr(inference_pb2, name + kind) for kind in ("Request", "Response"))
        self._channel = grpc.insecure_channel(address, [("grpc.max_receive_message_length", -1)])
        self._call = self._channel.unary_unary(
            f"/sru.v1.InferenceService/{name}",
            request_serializer=lambda values: request(**values).SerializeToString(),
            response_deserializer=response.FromString)

    def start(self, values, timeout=600):
        """A grpc.Future."""
        return self._call.future(values, timeout=timeout)

    def __call__(self, values, timeout=600):
        return self._call(values, timeout=timeout)

    def all(self, requests, in_flight=4):
        """The answers to all requests, in their order, with so many of them on their way at a time."""
        answers, waiting = [], collections.deque()
        for values in requests:
            if len(waiting) == in_flight:
                answers.append(waiting.popleft().result())
            waiting.append(self.start(values))
        return answers + [call.result() for call in waiting]

    def close(self):
        self._channel.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def answer_method(address):
    return Method(address, "Answer")


def translate_method(address):
    return Method(address, "Translate")


def chunks(values, size):
    return [values[i:i + size] for i in range(0, len(values), size)]


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
        self.args, self.folder = args, pathlib.Path(folder)

    def make(self, name, make):
        """The repository of this name, which make(folder) fills."""
        repository = self.folder / name
        if not repository.exists():
            progress(f"makes the repository '{name}'")
            make(repository)
        return repository

    def python(self, *command):
        done = subprocess.run([self.args.python, *map(str, command)], stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            raise NotMeasured(done.stderr.strip().split("\n")[-1])

    def export(self, source, target):
        """Exports a folder with checkpoint.pt and config.json, and what is beside them: vocabularies, labels."""
        command = [ROOT / "models" / "export_torch.py", "--checkpoint", source / "checkpoint.pt",
                   "--config", source / "config.json", "--out", target]
        for flag, file in (("--vocab", "vocab.txt"), ("--labels", "labels.txt"), ("--subwords", "spm.model")):
            if (source / file).exists():
                command += [flag, source / file]
        self.python(*command)

    def checkpoint(self, name):
        """A model of SHARED/checkpoints."""
        source = self.args.shared / "checkpoints" / name
        if not source.exists():
            raise NotMeasured(f"{source} is not here")
        return self.make(name, lambda repository: self.export(source, repository / name / "1"))


def row(name, figure, wanted="", good=True):
    return {"name": name, "figure": figure, "wanted": wanted, "good": good}


def at_most(name, value, limit, detail="", digits=2):
    return row(name, f"{value:.{digits}f}{detail}", f"at most {limit:g}", value <= limit)


def at_least(name, value, limit, detail="", digits=1):
    return row(name, f"{value:.{digits}f}{detail}", f"at least {limit:g}", value >= limit)


def difference(name, value, limit=None):
    """A row on a largest difference; without a limit it is only reported."""
    if limit is None:
        return row(name, f"{value:.1e}")
    return row(name, f"{value:.1e}", f"at most {limit:g}", value <= limit)


def count(name, found, wanted):
    return row(name, f"{found:,}", f"{wanted:,}", found == wanted)


def of_all(name, found, total, exact=True):
    """A row on how many of all are right."""
    return row(name, f"{found:,} of {total:,}", "all" if exact else "", found == total or not exact)


def golden_cases(args, test, title, limit):
    """The largest difference that the test of golden cases, `test`, records on each backend. Backends that
    this machine lacks are left out, but not all of them may be."""
    build = args.bin.parent
    pattern = f"^{test}_(cpu|reference|cuda|cuda_host)(_bfloat16)?$"
    listed = subprocess.run(["ctest", "--test-dir", str(build), "-N", "-R", pattern],
                            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    names = re.findall(r"Test\s+#\d+: (\S+)", listed.stdout)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            if not re.match(pattern, name):
                continue  # a fixture
            # What exports the cases runs before the first.
            done = subprocess.run(
                ["ctest", "--test-dir", str(build), "-R", f"^{name}$", *(["-FS", ".*"] if rows else [])],
                env={**os.environ, "GTEST_OUTPUT": f"json:{folder}/{name}/"},
                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
            found = [float(test["largest_difference"])
                     for path in pathlib.Path(folder, name).glob("*.json")
                     for suite in json.loads(path.read_text(encoding="utf-8"))["testsuites"]
                     for test in suite["testsuite"] if "largest_difference" in test]
            exact = "bfloat16" not in name
            if not found or (max(found) == 0 and not exact):
                continue  # it did not run, or does not compare values of this type
            entry = difference(f"{title}, {name}: largest difference", max(found),
                               limit if exact else None)
            if done.returncode != 0:
                entry.update(good=False, figure=entry["figure"] + ", the test fails")
            rows.append(entry)
    if not rows:
        raise NotMeasured(f"no test {pattern} of {build} has recorded a largest difference (is it built?)")
    return rows


# The beginning of every program that PyTorch is timed with: one thread, and products that are worth
# comparing with, which those of the distribution's PyTorch are not without OpenBLAS.
PYTORCH_CHECKED = """
import sys, time
out, sys.stdout = sys.stdout, sys.stderr
import torch
torch.set_num_threads(1); torch.set_flush_denormal(True)

def product_seconds(a=torch.randn(1024, 256), b=torch.randn(256, 768)):
    start = time.monotonic()
    a @ b
    return time.monotonic() - start

gflops = 2 * 1024 * 256 * 768 / min(product_seconds() for _ in range(20)) / 1e9
if gflops < 20:
    sys.exit("PyTorch's products run at %.0f GFLOP/s: a comparison would say nothing; "
             "apt install libopenblas0-pthread" % gflops)
"""


class Reference:
    """A Python program that times things when it is told to: it is sent one JSON value per line, and
    answers each with one. It runs on one core."""

    def __init__(self, python, program, core, *arguments):
        self._process = subprocess.Popen(
            [python, "-c", program, *map(str, arguments)], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            preexec_fn=lambda: os.sched_setaffinity(0, {core}))

    def ask(self, value):
        try:
            self._process.stdin.write(json.dumps(value) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            self._process.wait()
            raise NotMeasured(self._process.stderr.read().strip().split("\n")[-1])
        return json.loads(line)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.communicate()


def one_core():
    """The core that one-core comparisons run on: the last that this process may use, since interrupts
    like the first."""
    return max(os.sched_getaffinity(0))


def linear_fit(xs, ys):
    """(slope, intercept) by least squares."""
    x_mean, y_mean = statistics.fmean(xs), statistics.fmean(ys)
    slope = (sum((x - x_mean) * (y - y_mean) for x, y in zip(xs, ys))
             / sum((x - x_mean) ** 2 for x in xs))
    return slope, y_mean - slope * x_mean


# ---------------------------------------------------------------- promises under load


def overload(args, command, repository, shape):
    """Twice the calls per second that the server can answer, each answer compared with that of the same
    call alone. `shape`: flags of sru_bench that say what the calls are."""
    with Server(args, repository) as server:
        timing = [f"--duration={seconds(args.seconds)}", "--warmup=2s"]
        capacity = max(
            bench(args, command, server, *shape, *timing, f"--in_flight={in_flight}",
                  "--deadline=60s")["throughput_per_s"] for in_flight in (32, 128, 512))
        # A call may wait about as long as 64 of them take.
        deadline = max(0.25, 64 / capacity)
        # A closed loop may not find all that a server can do: is twice that really too much?
        for _ in range(4):
            found = bench(args, command, server, *shape, *timing, f"--rate={2 * capacity:.3f}",
                          f"--deadline={1000 * deadline:.0f}ms")["goodput_per_s"]
            enough = found <= 1.25 * capacity
            capacity = max(capacity, found)
            if enough:
                break
        with MemoryWatch(server) as watch:
            result = bench(args, command, server, *shape, f"--rate={2 * capacity:.3f}", "--check",
                           f"--deadline={1000 * deadline:.0f}ms",
                           f"--duration={seconds(args.overload_seconds)}", "--warmup=2s")
    # Neither answered nor refused, nor ended by its own deadline.
    answered = sum(result["codes"].get(code, 0)
                   for code in ("OK", "RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED"))
    what = f"{args.overload_seconds:g} s at 2x overload"
    return [
        row(f"{what}: calls that were lost", f"{result['calls'] - answered:,} of {result['calls']:,}",
            "0", result["calls"] == answered and not result["connection_lost"]),
        row(f"{what}: answers that differ from that of each call alone",
            f"{result['wrong']:,} of {result['checked']:,}", "0",
            result["wrong"] == 0 and result["checked"] > 0),
        at_least(f"{what}, deadline {1000 * deadline:.0f} ms: answers in time / those without overload",
                 result["goodput_per_s"] / capacity, 0.8,
                 f" ({result['goodput_per_s']:,.1f} / {capacity:,.1f} per second)", digits=2),
        row(f"{what}: answers after their deadline",
            f"{result['ok'] / result['elapsed_s'] - result['goodput_per_s']:,.1f} per second"),
        at_most(f"{what}: memory in the last third / in the middle third", watch.growth(), 1.02,
                digits=3),
    ]


def after_cancellation(args, repository, connect, request, flags=()):
    """Fills the server with calls that are cancelled at once: the next call must not wait for them.
    connect(address) gives a Method, request(i) what call i sends."""
    calls = 100
    with Server(args, repository, flags=flags) as server:
        client = connect(server.address)
        client(request(0))
        alone = []
        for i in range(5):
            start = time.monotonic()
            client(request(i))
            alone.append(time.monotonic() - start)
        start = time.monotonic()
        concurrent.futures.wait([_waiter(client.start(request(i))) for i in range(calls)])
        all_of_them = time.monotonic() - start
        started = [client.start(request(i)) for i in range(calls)]
        time.sleep(min(0.5, all_of_them / 10))
        for future in started:
            future.cancel()
        start = time.monotonic()
        client(request(0))
        after = time.monotonic() - start
        client.close()
    return [at_most(f"a call after {calls} that were cancelled while they waited: its time beyond that of one "
                    "alone / the time of all of them", max(0.0, after - statistics.median(alone))
                    / all_of_them, 0.2)]


def _waiter(call):
    """A concurrent.futures.Future that is done when a grpc.Future is."""
    future = concurrent.futures.Future()
    call.add_done_callback(lambda _: future.set_result(None))
    return future


def deadlines(args, repository, connect, request, flags=()):
    """Calls with less time than they need end in time, and what they leave behind costs nobody else.
    connect(address) gives a Method, request(i) what call i sends."""
    calls = 100
    with Server(args, repository, flags=flags) as server:
        client = connect(server.address)
        client(request(0))
        requests = [request(i) for i in range(calls)]
        start = time.monotonic()
        waiters = [_waiter(client.start(values)) for values in requests]
        concurrent.futures.wait(waiters)
        all_of_them = time.monotonic() - start
        timeout = all_of_them / 4
        late, codes = [], {}
        lock = threading.Lock()

        def ended(call, deadline):
            with lock:
                late.append(max(0.0, time.monotonic() - deadline))
                code = call.code().name
                codes[code] = codes.get(code, 0) + 1
        futures = []
        for values in requests:
            call = client.start(values, timeout)
            call.add_done_callback(functools.partial(ended, deadline=time.monotonic() + timeout))
            futures.append(_waiter(call))
        concurrent.futures.wait(futures)
        idle_after = time.monotonic()
        client(request(0))
        next_call = time.monotonic() - idle_after
        client.close()
    unexpected = calls - sum(codes.get(code, 0)
                             for code in ("OK", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED"))
    return [
        row(f"{calls} calls with a quarter of the time that they need: answered, too late, refused at once",
            ", ".join(f"{codes.get(code, 0)}" for code in ("OK", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED"))),
        count("the same: ended in any other way", unexpected, 0),
        at_most("the same: most seconds from a call's deadline to its end", max(late), 0.1,
                f" (deadline after {timeout:.2f} s)"),
        at_most("the next call / the time that all of them need", next_call / all_of_them, 0.25),
    ]


def drain(args, repository, connect, request, flags=()):
    """SIGTERM while calls are on their way: each is answered, or refused with UNAVAILABLE."""
    calls = 64
    with Server(args, repository, flags=flags) as server:
        client = connect(server.address)
        client(request(0))
        codes = {}
        lock = threading.Lock()

        def ended(call):
            with lock:
                code = call.code().name
                codes[code] = codes.get(code, 0) + 1
        futures = []
        for i in range(calls):
            call = client.start(request(i))
            call.add_done_callback(ended)
            futures.append(_waiter(call))
        # Until the server has all of them. Those that are done are counted first: one that ends in
        # between is counted by neither then, not by both.
        while (sum(future.done() for future in futures) + server.metric("sru_requests_in_flight")
               < calls):
            time.sleep(0.001)
        server.process.send_signal(signal.SIGTERM)
        concurrent.futures.wait(futures)
        exit_code = server.process.wait()
        client.close()
    answered = codes.get("OK", 0)
    return [
        of_all("SIGTERM while calls are on their way: calls that had come before it and were answered",
               answered, calls),
        count("the same: calls that ended neither with OK nor with UNAVAILABLE",
              calls - answered - codes.get("UNAVAILABLE", 0), 0),
        count("the same: exit code of the server", exit_code, 0),
    ]


# ---------------------------------------------------------------- the program


def table(results):
    lines = ["| | found | wanted |", "|---|---|---|"]
    for result in results:
        for entry in result.get("rows", []):
            found = entry["figure"] if entry["good"] else f"**{entry['figure']}**"
            lines.append(f"| {entry['name']} | {found} | {entry['wanted']} |")
    missing = [f"{result['part']}: {result['missing']}" for result in results if "missing" in result]
    if missing:
        lines += ["", "Not measured: " + "; ".join(missing) + "."]
    return lines


def page(title, script, text, args, results, commands):
    return "\n".join([
        f"# {title}", "", f"Written by `scripts/{script}`. {text}", "",
        f"Machine: {os.cpu_count()} cores, backend {args.backend}. Date: {datetime.date.today()}.", "",
        *table(results), "", commands])


def make_parser(description, parts, shared_has, out):
    parser = argparse.ArgumentParser(description=description,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=pathlib.Path,
                        default=os.environ.get("SRU_SHARED_DIR", ROOT.parent / "shared"),
                        help=f"folder with {shared_has}")
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build" / "bin",
                        help="folder with sru_server, sru_bench and kernel_benchmarks")
    parser.add_argument("--python", default=sys.executable, help="interpreter with torch and sru")
    parser.add_argument("--backend", default="cpu")
    parser.add_argument("--parts", default=",".join(parts), help="of " + ", ".join(parts))
    parser.add_argument("--seconds", type=float, default=10, help="of each measurement")
    parser.add_argument("--overload_seconds", type=float, default=600)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "docs" / "benchmarks" / out)
    return parser


def run(parser, parts, make_models, report):
    """Measures the parts that are asked for, writes the page after each, and returns the exit code: 1
    if a figure is not as wanted, 77 if nothing can be measured here."""
    args = parser.parse_args()
    unknown = [part for part in args.parts.split(",") if part not in parts]
    if unknown:
        parser.error(f"--parts: expected some of {', '.join(parts)}, found {unknown[0]}")
    results = []
    with tempfile.TemporaryDirectory() as folder:
        models = make_models(args, folder)
        for part in args.parts.split(","):
            progress(part)
            result = {"part": part}
            try:
                result["rows"] = parts[part](args, models)
                for entry in result["rows"]:
                    wanted = f", wanted {entry['wanted']}" if entry["wanted"] else ""
                    progress(f"  {entry['name']}: {entry['figure']}{wanted}")
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
    if not rows:
        print("SKIPPED: nothing can be measured here")
        return 77
    return 0 if all(entry["good"] for entry in rows) else 1
