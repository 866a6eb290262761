#!/usr/bin/env python3
"""Times our recorded SRU stacks against PyTorch on the same GPU, in one alternating run.

  compare_pytorch_gpu.py --gpu_bench build/bin/gpu_bench --out pytorch.json [--seconds 150]

Each row is a shape of the paper, a batch size and a data type. Against each other run, A B C A B C:

  sru      our stack, `gpu_bench interactive`
  fused    the same in bfloat16 with a kernel per layer of at most 128 values
  lstm     torch.nn.LSTM on cuDNN, of the same width and depth, eager and captured in a CUDA graph;
           the better of the two counts
  published  torch modules of the package `sru`, whose kernel this machine has compiled (--published), in float32
  ops      the same SRU written in PyTorch operations (one product and one loop over time per layer
           and direction), captured in a CUDA graph; eager it would be slower still

Times are medians of repeated runs over many launches, by events. Rows that time does not suffice for
are listed as left out. Exits with 77 where PyTorch or a GPU is missing.
"""
import argparse
import importlib
import json
import statistics
import subprocess
import sys
import time

# Layers, input, hidden, directions, length: PERFORMANCE's shapes. The paper gives no lengths for the
# last six: 32 tokens stand for a sentence, 128 for a paragraph.
SHAPES = {
    "l32_d256": (1, 256, 256, 1, 32),
    "l128_d512": (1, 512, 512, 1, 128),
    "sst_2": (2, 300, 128, 1, 32),
    "sst_4": (4, 300, 128, 1, 32),
    "sst_8": (8, 300, 128, 1, 32),
    "squad_3": (3, 300, 128, 2, 128),
    "squad_4": (4, 300, 128, 2, 128),
    "squad_6": (6, 300, 128, 2, 128),
}
BATCHES = (32, 1, 8, 128)
DTYPES = ("float32", "bfloat16")
TARGET_BATCH = 32  # targets hold up to this batch size
TARGET_LSTM = 5.0
TARGET_LSTM_MEDIAN = 10.0
TARGET_OPS = 5.0


def rows():
    """Every (shape, batch, dtype), the ones that matter most first."""
    return [(shape, batch, dtype) for batch in BATCHES for dtype in DTYPES for shape in SHAPES]


def summary(results):
    """Ratios over the rows that have targets, and whether they are reached; None without rows."""
    rated = [r for r in results if r["batch"] <= TARGET_BATCH]
    lstm = [r["lstm_us"] / r["sru_us"] for r in rated if r.get("lstm_us")]
    fused = [r["lstm_us"] / r["fused_us"] for r in rated if r.get("lstm_us") and r.get("fused_us")]
    ops = [r["ops_us"] / r["sru_us"] for r in rated if r.get("ops_us")]
    if not lstm:
        return None
    return {
        "rows": len(rated),
        "lstm_ratio_least": min(lstm), "lstm_ratio_median": statistics.median(lstm),
        "lstm_least_reached": min(lstm) >= TARGET_LSTM,
        "lstm_median_reached": statistics.median(lstm) >= TARGET_LSTM_MEDIAN,
        "fused_rows": len(fused),
        "fused_ratio_least": min(fused) if fused else None,
        "fused_ratio_median": statistics.median(fused) if fused else None,
        "ops_rows": len(ops),
        "ops_ratio_least": min(ops) if ops else None,
        "ops_least_reached": min(ops) >= TARGET_OPS if ops else None,
    }


class OurStacks:
    """`gpu_bench interactive`: a line in, microseconds out."""

    def __init__(self, program):
        self.process = subprocess.Popen([program, "interactive"], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)

    def time(self, shape, batch, dtype, fused=False):
        layers, inputs, hidden, directions, length = SHAPES[shape]
        kind = "float32" if dtype == "float32" else "bfloat16_fused" if fused else "bfloat16"
        self.process.stdin.write(
            f"{layers} {inputs} {hidden} {directions} {length} {batch} {kind}\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise RuntimeError(f"gpu_bench ended with {self.process.wait()}; its message is above")
        return float(answer)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def sru_in_operations(torch, layers, inputs, hidden, directions, dtype):
    """The SRU as its published equations read, one product per layer and a loop over time."""

    class Sru(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weights = torch.nn.ParameterList()
            self.constants = torch.nn.ParameterList()
            width = inputs
            for _ in range(layers):
                outputs = directions * hidden
                gates = 3 if width == outputs else 4
                self.weights.append(torch.randn(width, gates * outputs) / width ** 0.5)
                self.constants.append(torch.randn(4, outputs) * 0.5)
                width = outputs

        def forward(self, x):
            for weight, constant in zip(self.weights, self.constants):
                length, batch, width = x.shape
                outputs = directions * hidden
                u = (x.reshape(length * batch, width) @ weight).view(length, batch, -1, outputs)
                skip = u[:, :, 3] if u.shape[2] == 4 else x
                v_f, v_r, b_f, b_r = constant
                halves = []
                for d in range(directions):
                    at = slice(d * hidden, (d + 1) * hidden)
                    c = torch.zeros(batch, hidden, dtype=x.dtype, device=x.device)
                    h = [None] * length
                    for t in (range(length) if d == 0 else reversed(range(length))):
                        f = torch.sigmoid(torch.addcmul(u[t, :, 1, at] + b_f[at], v_f[at], c))
                        r = torch.sigmoid(torch.addcmul(u[t, :, 2, at] + b_r[at], v_r[at], c))
                        c = torch.lerp(u[t, :, 0, at], c, f)
                        h[t] = torch.lerp(skip[t, :, at], c, r)
                    halves.append(torch.stack(h))
                x = torch.cat(halves, dim=2) if directions == 2 else halves[0]
            return x

    return Sru().to("cuda", dtype)


class Runner:
    """A module on a fixed input, eager or captured, timed by events."""

    def __init__(self, torch, module, x, capture):
        self.torch = torch
        self.run = lambda: module(x)
        with torch.no_grad():
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(3):
                    self.run()
            torch.cuda.current_stream().wait_stream(side)
            if capture:
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    self.output = self.run()
                self.run = graph.replay

    def time(self, repeat=None):
        torch = self.torch
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        with torch.no_grad():
            if repeat is None:
                repeat = max(3, min(2000, int(10e3 / self.time(3))))
            self.run()
            begin.record()
            for _ in range(repeat):
                self.run()
            end.record()
            end.synchronize()
        return begin.elapsed_time(end) * 1e3 / repeat


def compare(torch, ours, shape, batch, dtype, rounds, with_operations, published=None):
    layers, inputs, hidden, directions, length = SHAPES[shape]
    kind = getattr(torch, dtype)
    x = torch.randn(length, batch, inputs, device="cuda", dtype=kind)
    lstm = torch.nn.LSTM(inputs, hidden, layers, bidirectional=directions == 2).to("cuda", kind)
    lstm.flatten_parameters()
    runners = {"lstm_eager": Runner(torch, lstm, x, False)}
    notes = []
    try:
        runners["lstm_graph"] = Runner(torch, lstm, x, True)
    except RuntimeError as error:
        notes.append(f"LSTM cannot be captured: {str(error).splitlines()[0]}")
        torch.cuda.synchronize()
    if with_operations:
        operations = sru_in_operations(torch, layers, inputs, hidden, directions, kind)
        runners["ops_graph"] = Runner(torch, operations, x, True)
    if published is not None and dtype == "float32":
        module = published.SRU(inputs, hidden, layers, bidirectional=directions == 2).to("cuda", kind)
        runners["published"] = Runner(torch, module, x, False)
    fuses = dtype != "float32"
    times = {name: [] for name in ("sru", *(["fused"] if fuses else []), *runners)}
    for _ in range(rounds):
        times["sru"].append(ours.time(shape, batch, dtype))
        if fuses:
            times["fused"].append(ours.time(shape, batch, dtype, fused=True))
        for name, runner in runners.items():
            times[name].append(runner.time())
    result = {"shape": shape, "layers": layers, "input": inputs, "hidden": hidden,
              "directions": directions, "length": length, "batch": batch, "dtype": dtype}
    for name, values in times.items():
        result[name + "_us"] = round(statistics.median(values), 2)
    result["lstm_us"] = min(v for k, v in result.items() if k in ("lstm_eager_us", "lstm_graph_us"))
    if with_operations:
        result["ops_us"] = result["ops_graph_us"]
    if notes:
        result["notes"] = notes
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu_bench", help="the program gpu_bench")
    parser.add_argument("--out", help="JSON file to write")
    parser.add_argument("--seconds", type=float, default=150, help="when to stop taking new rows")
    parser.add_argument("--rounds", type=int, default=5, help="A B C rounds of a row")
    parser.add_argument("--published", action="store_true", help="also time the package sru")
    parser.add_argument("--list", action="store_true", help="print the rows and exit")
    flags = parser.parse_args()
    if flags.list:
        for row in rows():
            print(*row)
        return 0
    if not flags.gpu_bench or not flags.out:
        parser.error("--gpu_bench and --out are needed")
    try:
        import torch
    except ImportError:
        print("compare_pytorch_gpu: skipped, python3 has no torch", file=sys.stderr)
        return 77
    if not torch.cuda.is_available():
        print("compare_pytorch_gpu: skipped, needs a GPU: torch sees none", file=sys.stderr)
        return 77
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False  # strict float32, as ours
    torch.backends.cudnn.benchmark = True
    start = time.monotonic()
    report = {"torch": torch.__version__, "cudnn": torch.backends.cudnn.version(),
              "device": torch.cuda.get_device_name(), "results": [], "left_out": [], "errors": []}
    ours = OurStacks(flags.gpu_bench)
    published = importlib.import_module("sru") if flags.published else None
    for shape, batch, dtype in rows():
        if time.monotonic() - start > flags.seconds:
            report["left_out"].append([shape, batch, dtype])
            continue
        # The loops over time make large graphs, slow to record: once per shape and batch is enough.
        try:
            report["results"].append(compare(torch, ours, shape, batch, dtype, flags.rounds,
                                             dtype == "float32" and batch <= TARGET_BATCH, published))
            print(json.dumps(report["results"][-1]), flush=True)
        except RuntimeError as error:
            report["errors"].append({"row": [shape, batch, dtype], "error": str(error)[:500]})
            print(f"{shape} {batch} {dtype}: {error}", file=sys.stderr)
            if ours.process.poll() is not None:
                ours = OurStacks(flags.gpu_bench)
        # After every row, so that a cut costs nothing.
        report["summary"] = summary(report["results"])
        with open(flags.out, "w", encoding="utf-8") as file:
            json.dump(report, file, indent=1)
    if ours.process.poll() is None:
        ours.close()
    return 1 if report["errors"] else 0


if __name__ == "__main__":
    sys.exit(main())
