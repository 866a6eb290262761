"""What the reports share that make calls themselves: a method of a server, references in PyTorch, and the promises that every call keeps
under load. Needs grpcio and numpy."""

import collections
import concurrent.futures
import signal
import sys
import time

from report_common import ROOT, SKIPPED, Row, Server, Watch, at_least, at_most, bench, count, of_all, seconds

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
        with concurrent.futures.ThreadPoolExecutor(in_flight) as pool:
            return list(pool.map(self, requests))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._channel.close()


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


class Promises:
    """The parts of a report that load a server with calls of one method. `command`: of sru_bench; shape(models): its flags that say what
    the calls are; request(i): what call i sends."""

    def __init__(self, method, command, checkpoint, request, shape):
        self.method, self.command, self.name, self.request, self.shape = method, command, checkpoint, request, shape
        self.parts = (self.overload, self.drain)

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

    def drain(self, args, models):
        """SIGTERM while calls are on their way: each is answered, or refused with UNAVAILABLE."""
        requests = [self.request(i) for i in range(64)]
        # All of them may wait.
        flags = ["--max_queue_tokens=1000000", "--admission=none"]
        with Server(args, models.checkpoint(self.name), flags=flags) as server, Method(server.address, self.method) as method:
            method(requests[0])
            calls = [method.start(values) for values in requests]
            # Until the server has all of them. Those that are done are counted first, and the server gets time to count them out:
            # a call that ends in between is then counted by neither, not by both.
            while True:
                done = sum(call.done() for call in calls)
                time.sleep(0.05)
                if done + server.metric("sru_requests_in_flight") >= len(calls):
                    break
            server.process.send_signal(signal.SIGTERM)
            codes = collections.Counter(call.code().name for call in calls)  # waits for them
            exit_code = server.process.wait()
        good = codes["OK"]
        yield of_all("SIGTERM while calls are on their way: calls that had come before it and were answered", good, len(calls))
        yield count("the same: calls that ended neither with OK nor with UNAVAILABLE", len(calls) - good - codes["UNAVAILABLE"], 0)
        yield count("the same: exit code of the server", exit_code, 0)
