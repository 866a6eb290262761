"""What the reports share that make calls themselves: a method of a server, references in PyTorch, and the promises that every call keeps
under load. Needs grpcio and numpy."""

import collections
import concurrent.futures
import contextlib
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

from report_common import (ROOT, SKIPPED, NotMeasured, Row, Server, Watch, at_least, at_most, bench, count, difference, of_all,
                           seconds)

sys.path.insert(0, str(ROOT / "client" / "python"))
try:
    import grpc  # noqa: E402
    from sru_inference import Client  # noqa: E402, F401  (client/python)
    from sru_inference.v1 import inference_pb2, inference_pb2_grpc  # noqa: E402, F401
except ImportError as missing_module:
    print(f"SKIPPED: {missing_module} ({sys.executable})")
    sys.exit(SKIPPED)


class Method:
    """A unary method of a server, from the fields of a request as a dict to the response, on a connection of its own."""

    def __init__(self, address, name):
        request, response = (getattr(inference_pb2, name + kind) for kind in ("Request", "Response"))
        self._channel = grpc.insecure_channel(address, [("grpc.max_receive_message_length", -1)])
        self._call = self._channel.unary_unary(
            f"/sru.v1.InferenceService/{name}", response_deserializer=response.FromString,
            request_serializer=lambda values: request(**values).SerializeToString())

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

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._channel.close()


def golden_cases(args, test, title, limit):
    """The largest difference that the test of golden cases, `test`, records on each backend. Backends that this machine lacks are
    left out, but not all of them may be."""
    pattern = f"^{test}_(cpu|reference|cuda|cuda_host)(_bfloat16)?$"
    ctest = ["ctest", "--test-dir", str(args.bin.parent)]
    listed = subprocess.run([*ctest, "-N", "-R", pattern], capture_output=True, text=True, check=False).stdout
    measured = False
    with tempfile.TemporaryDirectory() as folder:
        for name in re.findall(r"Test\s+#\d+: (\S+)", listed):
            if not re.match(pattern, name):
                continue  # a fixture: what exports the cases, which runs before the first
            done = subprocess.run([*ctest, "-R", f"^{name}$", *(["-FS", ".*"] if measured else [])], capture_output=True,
                                  env={**os.environ, "GTEST_OUTPUT": f"json:{folder}/{name}/"}, check=False)
            found = [float(case["largest_difference"]) for path in pathlib.Path(folder, name).glob("*.json")
                     for suite in json.loads(path.read_text(encoding="utf-8"))["testsuites"]
                     for case in suite["testsuite"] if "largest_difference" in case]
            exact = "bfloat16" not in name
            if not found or (max(found) == 0 and not exact):
                continue  # it did not run, or does not compare values of this type
            measured = True
            row = difference(f"{title}, {name}: largest difference", max(found), limit if exact else None)
            yield row._replace(good=False, figure=row.figure + ", the test fails") if done.returncode else row
    if not measured:
        raise NotMeasured(f"no test {pattern} of {args.bin.parent} has recorded a largest difference (is it built?)")


# The beginning of every program that PyTorch is timed with: one thread, and products that are worth
# comparing with, which those of the distribution's PyTorch are not without OpenBLAS.
PYTORCH_CHECKED = """
import json, os, sys, time
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


# ---------------------------------------------------------------- promises under load


class Burst:
    """Calls that are started at once: how many ended with each code, and how long after their deadlines."""

    def __init__(self, method, requests, timeout=600):
        self.codes, self.late = collections.Counter(), []
        self._lock, self._begin, self._calls, self._ended = threading.Lock(), time.monotonic(), [], []
        for values in requests:
            done, deadline = concurrent.futures.Future(), time.monotonic() + timeout
            self._ended.append(done)
            self._calls.append(method.start(values, timeout))
            self._calls[-1].add_done_callback(functools.partial(self._end, done, deadline))

    def _end(self, done, deadline, call):
        with self._lock:
            self.late.append(max(0.0, time.monotonic() - deadline))
            self.codes[call.code().name] += 1
        done.set_result(None)

    def cancel(self):
        for call in self._calls:
            call.cancel()

    def ended(self):
        return sum(done.done() for done in self._ended)

    def wait(self):
        """The seconds from the first call's start until all have ended."""
        concurrent.futures.wait(self._ended)
        return time.monotonic() - self._begin


def timed(method, values):
    start = time.monotonic()
    method(values)
    return time.monotonic() - start


class Promises:
    """The parts of a report that load a server with calls of one method. `command`: of sru_bench; shape(models): its flags that say what
    the calls are; request(i): what call i sends."""

    def __init__(self, method, command, checkpoint, request, shape):
        self.method, self.command, self.name, self.request, self.shape = method, command, checkpoint, request, shape
        self.parts = (self.overload, self.deadlines, self.cancellation, self.drain)

    @contextlib.contextmanager
    def _served(self, args, models, calls):
        """A server in whose queue all calls may wait, the method, which has been called once, and requests."""
        flags = ["--max_queue_tokens=1000000", "--admission=none"]
        with Server(args, models.checkpoint(self.name), flags=flags) as server, Method(server.address, self.method) as method:
            requests = [self.request(i) for i in range(calls)]
            method(requests[0])
            yield server, method, requests

    def overload(self, args, models):
        """Twice the calls per second that the server can answer, each answer compared with that of the same call alone."""
        with Server(args, models.checkpoint(self.name)) as server:
            def load(*flags, duration=args.seconds):
                return bench(args, self.command, server, *self.shape(models), f"--duration={seconds(duration)}", "--warmup=2s", *flags)

            capacity = max(load(f"--in_flight={n}", "--deadline=60s")["throughput_per_s"] for n in (32, 128, 512))
            # A call may wait about as long as 64 of them take.
            deadline = max(0.25, 64 / capacity)
            in_time = f"--deadline={1000 * deadline:.0f}ms"
            # A closed loop may not find all that a server can do: is twice that really too much?
            for _ in range(4):
                found = load(f"--rate={2 * capacity:.3f}", in_time)["goodput_per_s"]
                enough = found <= 1.25 * capacity
                capacity = max(capacity, found)
                if enough:
                    break
            with Watch(server.memory_bytes) as memory:
                result = load(f"--rate={2 * capacity:.3f}", in_time, "--check", duration=args.overload_seconds)
        # Neither answered nor refused, nor ended by its own deadline.
        answered = sum(result["codes"].get(code, 0) for code in ("OK", "RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED"))
        what = f"{args.overload_seconds:g} s at 2x overload"
        late = result["ok"] / result["elapsed_s"] - result["goodput_per_s"]
        yield Row(f"{what}: calls that were lost", f"{result['calls'] - answered:,} of {result['calls']:,}", "0",
                  result["calls"] == answered and not result["connection_lost"])
        yield Row(f"{what}: answers that differ from that of each call alone", f"{result['wrong']:,} of {result['checked']:,}", "0",
                  result["wrong"] == 0 and result["checked"] > 0)
        yield at_least(f"{what}, deadline {1000 * deadline:.0f} ms: answers in time / those without overload",
                       result["goodput_per_s"] / capacity, 0.8,
                       f" ({result['goodput_per_s']:,.1f} / {capacity:,.1f} per second)", digits=2)
        yield Row(f"{what}: answers after their deadline", f"{late:,.1f} per second")
        yield at_most(f"{what}: memory in the last third / in the middle third", memory.growth(), 1.02, digits=3)

    def deadlines(self, args, models):
        """Calls with less time than they need end in time, and what they leave behind costs nobody else."""
        with self._served(args, models, 100) as (_, method, requests):
            all_of_them = Burst(method, requests).wait()
            burst = Burst(method, requests, all_of_them / 4)
            burst.wait()
            next_call = timed(method, requests[0])
        found = [burst.codes[code] for code in ("OK", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED")]
        yield Row(f"{len(requests)} calls with a quarter of the time that they need: answered, too late, refused at once",
                  ", ".join(map(str, found)))
        yield count("the same: ended in any other way", len(requests) - sum(found), 0)
        yield at_most("the same: most seconds from a call's deadline to its end", max(burst.late), 0.1,
                      f" (deadline after {all_of_them / 4:.2f} s)")
        yield at_most("the next call / the time that all of them need", next_call / all_of_them, 0.25)

    def cancellation(self, args, models):
        """Fills the server with calls that are cancelled at once: the next call must not wait for them."""
        with self._served(args, models, 100) as (_, method, requests):
            alone = statistics.median(timed(method, values) for values in requests[:5])
            all_of_them = Burst(method, requests).wait()
            burst = Burst(method, requests)
            time.sleep(min(0.5, all_of_them / 10))
            burst.cancel()
            after = timed(method, requests[0])
        yield at_most(f"a call after {len(requests)} that were cancelled while they waited: its time beyond that of one alone / the time"
                      " of all of them", max(0.0, after - alone) / all_of_them, 0.2)

    def drain(self, args, models):
        """SIGTERM while calls are on their way: each is answered, or refused with UNAVAILABLE."""
        with self._served(args, models, 64) as (server, method, requests):
            burst = Burst(method, requests)
            # Until the server has all of them. Those that are done are counted first: one that ends in
            # between is counted by neither then, not by both.
            while burst.ended() + server.metric("sru_requests_in_flight") < len(requests):
                time.sleep(0.001)
            server.process.send_signal(signal.SIGTERM)
            burst.wait()
            exit_code = server.process.wait()
        good = burst.codes["OK"]
        yield of_all("SIGTERM while calls are on their way: calls that had come before it and were answered", good, len(requests))
        yield count("the same: calls that ended neither with OK nor with UNAVAILABLE",
                    len(requests) - good - burst.codes["UNAVAILABLE"], 0)
        yield count("the same: exit code of the server", exit_code, 0)
