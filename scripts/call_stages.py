#!/usr/bin/env python3
"""Tells where the time of single calls goes, by stage.

  scripts/call_stages.py localhost:50051 --model=trec --rate=200 --duration=8

Sends a Classify of one question at a time, at random moments, and divides its time by what the server's answer says of it (StageTimes).
What happens outside of the server's handler is one stage: the client's library, the kernel, and gRPC's threads in the server, all of which
wait for a core on a busy machine. Needs the Python package's requirements (client/python).
"""

import argparse
import random
import statistics
import sys
import time

from report_common import ROOT, Table

# Name and meaning, in the order in which a call goes through them.
STAGES = {
    "outside": "the client, the kernel, and gRPC's threads before and after the handler",
    "tokenize": "handler started until queued: the message is parsed, its text tokenized",
    "queue": "queued until its batch starts: a worker wakes, waits for a core or ends the batch before",
    "compute": "the forward pass of its batch",
    "answer": "batch computed until the answer is handed to gRPC",
}


def measure(address, model, rate, duration):
    """Microseconds of each of STAGES, then of the whole call: a list per call."""
    sys.path.insert(0, str(ROOT / "client" / "python"))
    import grpc  # not needed by those who only print
    from sru_inference.v1 import inference_pb2, inference_pb2_grpc

    rows = []
    with grpc.insecure_channel(address) as channel:
        classify = inference_pb2_grpc.InferenceServiceStub(channel).Classify
        request = inference_pb2.ClassifyRequest(model=model)
        request.sequences.add().text = "What is the capital of France ?"
        classify(request)
        end = time.monotonic() + duration
        while time.monotonic() < end:
            start = time.perf_counter()
            times = classify(request).times
            whole = (time.perf_counter() - start) * 1e6
            inside = [times.tokenize_us, times.queue_us, times.compute_us]
            rows.append([whole - times.total_us, *inside, times.total_us - sum(inside), whole])
            time.sleep(random.expovariate(rate))
    return rows


def table(rows):
    """Each stage's percentiles, and its mean among the slowest hundredth of the calls."""
    slowest = sorted(rows, key=lambda row: row[-1])[-max(1, len(rows) // 100):]
    lines = []
    for index, name in enumerate([*STAGES, "the whole call"]):
        values = sorted(row[index] for row in rows)
        figures = [values[min(len(values) - 1, len(values) * p // 100)] for p in (50, 90, 99)]
        lines.append([name, *(f"{figure:,.0f}" for figure in [*figures, statistics.fmean(row[index] for row in slowest)])])
    return Table(("us", "p50", "p90", "p99", "mean of the slowest 1% of the calls"), lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("address", help="HOST:PORT of the server")
    parser.add_argument("--model", default="", help="a classifier; may be left out if there is one only")
    parser.add_argument("--rate", type=float, default=200, help="calls per second, at most")
    parser.add_argument("--duration", type=float, default=8, help="in seconds")
    args = parser.parse_args()
    rows = measure(args.address, args.model, args.rate, args.duration)
    print(f"{len(rows):,} calls\n\n{table(rows)}\n")
    for name, meaning in STAGES.items():
        print(f"{name}: {meaning}")


if __name__ == "__main__":
    main()
