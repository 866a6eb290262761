#!/usr/bin/env python3
"""Times SRU layers here beside the published Python package `sru` and torch.nn.LSTM of the same width, on one core or on a GPU.

All take turns in one run, so that the ratios hold on a machine whose speed moves: ours, package, LSTM, ours, package, LSTM, ... Prints a JSON
object a line for each shape, with the medians in microseconds of one forward pass. An LSTM of the same width has more weights than an SRU: it
is what an SRU replaces. What a call pays in Python is part of the package's and the LSTM's time, as it is for who uses them.

On one core, in float32, with random weights; the tests compare results with the package's. Needs build/bin/kernel_benchmarks (make bench),
python3-torch, libtorch-dev, libopenblas0-pthread, ninja-build, python3-dev, and the package: its CPU operator is compiled at the first import
(a minute, once).

  compare_pytorch.py --download build/pytorch-package       gets sru 2.6.0 from PyPI; 128 shapes
  compare_pytorch.py --package DIR --filter x128-.*length32-batch1-
  compare_pytorch.py --gpu_bench build/bin/gpu_bench        on the GPU; 64 shapes

On a GPU, by events over many launches: our recorded passes, in bfloat16 also with a kernel for each layer; the LSTM on cuDNN, the better of
eager and captured in a graph; in float32 the package, if its kernel compiles here, and the SRU written in PyTorch operations, captured.

Exit status: 0; 1 when a run fails; 2 for wrong arguments; 77 when something that it needs is missing.
"""

import argparse
import collections
import contextlib
import itertools
import json
import math
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time
import warnings
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
from report_common import NotMeasured, Program, SKIPPED, last_line, one_core, progress  # noqa: E402

PACKAGE = "sru==2.6.0"
# A reference BLAS runs at about 5 GF/s; a comparison with it would flatter us.
LEAST_GFLOPS = 20
OPERATIONS_BATCH = 32  # the most: loops over time make large graphs, slow to record


class Shape(collections.namedtuple("Shape", "layers input hidden directions length batch dtype")):
    def __str__(self):
        return (f"{self.layers}-layers-{self.input}-{self.directions}x{self.hidden}-length{self.length}-batch{self.batch}-{self.dtype}")

    @property
    def config(self):
        return {"input_size": self.input, "hidden_size": self.hidden, "num_layers": self.layers, "bidirectional": self.directions == 2}


CPU_SHAPES = [Shape(2, directions * hidden, hidden, directions, length, batch, "float32") for directions, hidden, length, batch in
              itertools.product((2, 1), (64, 128, 256, 512), (8, 32, 128, 512), (1, 8, 32, 128))]
# The paper's, which gives no lengths for the last six: 32 tokens stand for a sentence, 128 for a paragraph. What matters most comes first.
GPU_SHAPES = [Shape(*layers, batch, dtype) for batch in (32, 1, 8, 128) for dtype in ("float32", "bfloat16") for layers in (
    (1, 256, 256, 1, 32), (1, 512, 512, 1, 128), *((layers, 300, 128, 1, 32) for layers in (2, 4, 8)),
    *((layers, 300, 128, 2, 128) for layers in (3, 4, 6)))]


class Missing(Exception):
    """What is not there, and how to get it."""


def download(directory):
    """Gets the package's wheel from PyPI, without what it depends on, and unpacks it."""
    if (directory / "sru" / "__init__.py").exists():
        return
    progress(f"downloading {PACKAGE} into {directory}")
    directory.mkdir(parents=True, exist_ok=True)
    # -I: pip itself must not see the directory's content.
    result = subprocess.run([sys.executable, "-I", "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(directory), PACKAGE],
                            capture_output=True, text=True, check=False)
    wheels = list(directory.glob("sru-*.whl"))
    if result.returncode != 0 or not wheels:
        raise Missing(f"{PACKAGE} cannot be downloaded ({last_line(result.stderr)}); unpack its wheel into a directory by hand and name it"
                      " with --package")
    with zipfile.ZipFile(wheels[0]) as wheel:
        wheel.extractall(directory)


def import_torch():
    try:
        import torch
    except ImportError as error:
        raise Missing("PyTorch is missing: apt install python3-torch, and run this with /usr/bin/python3") from error
    return torch


def asks(ours, shape, dtype):
    """What `interactive` of kernel_benchmarks or gpu_bench answers."""
    return lambda: ours.ask(" ".join(map(str, [*shape[:6], dtype])), str)


def medians(bodies, seconds, rounds):
    """name -> the median of rounds in which the bodies take turns; after so many seconds no further round is begun."""
    end = time.monotonic() + seconds
    found = []
    while not found or (len(found) < rounds and time.monotonic() < end):
        found.append({name: body() for name, body in bodies.items()})
    return {name: statistics.median(each[name] for each in found) for name in bodies}


def timed(body):
    start = time.perf_counter()
    body()
    return time.perf_counter() - start


# ---------------------------------------------------------------- on one core


def check_products(torch):
    torch.set_num_threads(1)
    a, b = torch.randn(1024, 256), torch.randn(256, 768)
    gflops = 2 * 1024 * 256 * 768 / min(timed(lambda: a @ b) for _ in range(20)) / 1e9
    if gflops < LEAST_GFLOPS:
        raise Missing(f"PyTorch's products run at {gflops:.0f} GFLOP/s: a comparison would say nothing; apt install libopenblas0-pthread")


def import_package(directory):
    if directory is not None:
        sys.path.insert(0, str(directory))
        # Beside the package, so that it is compiled once, whoever runs this.
        os.environ.setdefault("TORCH_EXTENSIONS_DIR", str(directory / "compiled"))
    progress("importing the package (the first time it compiles its operator)")
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(sys.stderr):
            warnings.simplefilter("ignore")  # it has no GPU kernels here
            import sru
    except ImportError as error:
        raise Missing(f"the package sru is missing ({error}): --download DIR gets it") from error
    except Exception as error:  # whatever a compilation fails with
        raise Missing("the package sru cannot compile its CPU operator; it needs g++, ninja-build, python3-dev and libtorch-dev: "
                      + str(error).strip().splitlines()[0]) from error
    return sru


def repeated(run):
    """A function that returns the microseconds of one of so many runs in a row that the clock does not count."""
    run()  # the package's scripts are compiled in their first run
    repeat = max(1, min(1000, math.ceil(0.002 / timed(run))))
    return lambda: 1e6 * timed(lambda: [run() for _ in range(repeat)]) / repeat


def on_one_core(arguments, shapes):
    # Before PyTorch starts threads.
    os.sched_setaffinity(0, {one_core()})
    os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"
    torch = import_torch()
    check_products(torch)
    if arguments.download is not None:
        download(arguments.download)
    sru = import_package(arguments.package or arguments.download)
    with Program([arguments.bin / "kernel_benchmarks", "interactive"]) as ours, torch.no_grad():
        for shape in shapes:
            x = torch.randn(shape.length, shape.batch, shape.input)
            package, lstm = (repeated(lambda module=kind(**shape.config).eval(), x=x: module(x)) for kind in (sru.SRU, torch.nn.LSTM))
            bodies = {"sru_us": asks(ours, shape, shape.dtype), "published_us": package, "lstm_us": lstm}
            yield shape, medians(bodies, arguments.seconds, 21)


# ---------------------------------------------------------------- on a GPU


def sru_in_operations(torch, shape):
    """The SRU as its published equations read, one product per layer and a loop over time."""
    outputs = shape.directions * shape.hidden

    class Sru(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weights = torch.nn.ParameterList()
            self.constants = torch.nn.ParameterList()
            width = shape.input
            for _ in range(shape.layers):
                gates = 3 if width == outputs else 4
                self.weights.append(torch.randn(width, gates * outputs) / width ** 0.5)
                self.constants.append(torch.randn(4, outputs) * 0.5)
                width = outputs

        def forward(self, x):
            for weight, constant in zip(self.weights, self.constants):
                length, batch, width = x.shape
                u = (x.reshape(length * batch, width) @ weight).view(length, batch, -1, outputs)
                skip = u[:, :, 3] if u.shape[2] == 4 else x
                v_f, v_r, b_f, b_r = constant
                halves = []
                for d in range(shape.directions):
                    at = slice(d * shape.hidden, (d + 1) * shape.hidden)
                    c = torch.zeros(batch, shape.hidden, dtype=x.dtype, device=x.device)
                    h = [None] * length
                    for t in (range(length) if d == 0 else reversed(range(length))):
                        f = torch.sigmoid(torch.addcmul(u[t, :, 1, at] + b_f[at], v_f[at], c))
                        r = torch.sigmoid(torch.addcmul(u[t, :, 2, at] + b_r[at], v_r[at], c))
                        c = torch.lerp(u[t, :, 0, at], c, f)
                        h[t] = torch.lerp(skip[t, :, at], c, r)
                    halves.append(torch.stack(h))
                x = torch.cat(halves, dim=2)
            return x

    return Sru()


class Runner:
    """A module on a fixed input, eager or captured, timed by events."""

    def __init__(self, torch, module, x, capture):
        module = module.to("cuda", x.dtype)
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


def import_published():
    """The package, or None if it is not here or its kernel does not compile: it only warns then."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(sys.stderr):
        warnings.filterwarnings("error", message="Just-in-time")
        try:
            import sru
            import sru.cuda_functional
        except Exception as error:  # whatever a compilation fails with
            progress(f"without the published package: {str(error).strip().splitlines()[0]}")
            return None
    return sru


def measure_on_gpu(torch, ours, published, shape):
    x = torch.randn(shape.length, shape.batch, shape.input, device="cuda", dtype=getattr(torch, shape.dtype))

    lstm = torch.nn.LSTM(**shape.config).to("cuda", x.dtype)
    lstm.flatten_parameters()
    bodies = {"sru_us": asks(ours, shape, shape.dtype), "lstm_eager_us": Runner(torch, lstm, x, False).time}
    try:
        bodies["lstm_graph_us"] = Runner(torch, lstm, x, True).time
    except RuntimeError as error:
        progress(f"{shape}: the LSTM cannot be captured: {str(error).splitlines()[0]}")
        torch.cuda.synchronize()
    if shape.dtype == "bfloat16":
        bodies["fused_us"] = asks(ours, shape, "bfloat16_fused")
    elif shape.batch <= OPERATIONS_BATCH:
        bodies["operations_us"] = Runner(torch, sru_in_operations(torch, shape), x, True).time
    if shape.dtype == "float32" and published is not None:
        bodies["published_us"] = Runner(torch, published.SRU(**shape.config), x, False).time
    found = medians(bodies, math.inf, 5)
    return {**found, "lstm_us": min(found[name] for name in ("lstm_eager_us", "lstm_graph_us") if name in found)}


def on_gpu(arguments, shapes):
    torch = import_torch()
    if not torch.cuda.is_available():
        raise Missing("PyTorch sees no GPU")
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False  # strict float32, as ours
    torch.backends.cudnn.benchmark = True
    published = import_published()
    end = time.monotonic() + arguments.total
    failed = []
    with contextlib.ExitStack() as stack:
        def program():
            return stack.enter_context(Program([arguments.gpu_bench, "interactive"]))

        ours = program()
        for shape in shapes:
            if time.monotonic() > end:
                progress(f"no time for {shape} and what follows")
                break
            try:
                yield shape, measure_on_gpu(torch, ours, published, shape)
            except (RuntimeError, NotMeasured) as error:
                failed.append(f"{shape}: {str(error)[:500]}")
                if isinstance(error, NotMeasured):  # it has ended
                    ours = program()
    if failed:
        raise RuntimeError("; ".join(failed))


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flag = parser.add_argument
    folder = {"type": lambda text: pathlib.Path(text).resolve(), "metavar": "DIR"}
    flag("--package", help="directory that holds the package's folder sru/", **folder)
    flag("--download", help=f"get {PACKAGE} into DIR unless it is there", **folder)
    flag("--bin", default=ROOT / "build" / "bin", help="where kernel_benchmarks is (default: build/bin)", **folder)
    flag("--seconds", type=float, default=2.0, help="on one core: per shape, after which no further round is begun")
    flag("--gpu_bench", metavar="PROGRAM", help="measure on the GPU, with this program")
    flag("--total", type=float, default=math.inf, help="on a GPU: seconds after which no further shape is begun")
    flag("--filter", type=re.compile, default="", help="measure the shapes in whose names this regular expression is found")
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    measure, shapes = (on_gpu, GPU_SHAPES) if arguments.gpu_bench else (on_one_core, CPU_SHAPES)
    chosen = [shape for shape in shapes if re.search(arguments.filter, str(shape))]
    if not chosen:
        print(f"compare_pytorch.py: --filter: expected a part of {shapes[0]} or of another shape's name", file=sys.stderr)
        return 1
    try:
        for shape, found in measure(arguments, chosen):
            print(json.dumps({"shape": str(shape), "batch": shape.batch, **{name: round(us, 2) for name, us in found.items()}}), flush=True)
    except (Missing, NotMeasured, RuntimeError) as error:
        print(f"compare_pytorch.py: {error}", file=sys.stderr)
        return SKIPPED if isinstance(error, Missing) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
