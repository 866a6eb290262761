#!/usr/bin/env python3
"""Times this project's CPU engine against the published Python package `sru` and torch.nn.LSTM.

float32, one thread, one core. The same weights run here (exported by models/export_torch.py) and in the package; that the outputs agree is
checked first. Then the three take turns in one run, so that the ratios hold on a machine whose speed moves: ours, package, LSTM, ours,
package, LSTM, ...; medians. An LSTM of the same width has more weights than an SRU: it is what an SRU replaces.

What a call pays in Python is part of the package's and the LSTM's time, as it is for who uses them; it counts at the smallest shapes only.
Ours is timed inside of `sru_bench model --stdin`.

Needs build/bin/sru_bench (make build), python3-torch, libtorch-dev, libopenblas0-pthread, ninja-build, python3-dev, and the package: its CPU
operator is compiled at the first import (a minute, once).

  compare_pytorch.py --download build/pytorch-package       gets sru 2.6.0 from PyPI; 128 shapes
  compare_pytorch.py --package DIR --hidden 128 --length 32 --batch 1,32 --json -

Exit status: 0; 1 when outputs differ or a run fails; 2 for wrong arguments; 77 when something that it needs is missing.
"""

import argparse
import contextlib
import io
import itertools
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "models")]
from report_common import NotMeasured, Program, SKIPPED, last_line, progress  # noqa: E402

PACKAGE = "sru==2.6.0"
# Two float32 implementations that sum in different orders; the outputs are of size 1.
TOLERANCE = 1e-5
# A reference BLAS runs at about 5 GF/s; a comparison with it would flatter us.
LEAST_GFLOPS = 20
# (directions, hidden size per direction, layers, length, batch)
GRID = list(itertools.product((2, 1), (64, 128, 256, 512), (2,), (8, 32, 128, 512), (1, 8, 32, 128)))


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


def timed(body):
    start = time.perf_counter()
    body()
    return time.perf_counter() - start


def import_torch():
    try:
        import torch
    except ImportError as error:
        raise Missing("PyTorch is missing: apt install python3-torch, and run this with /usr/bin/python3") from error
    torch.set_num_threads(1)
    a, b = torch.randn(1024, 256), torch.randn(256, 768)
    gflops = 2 * 1024 * 256 * 768 / min(timed(lambda: a @ b) for _ in range(20)) / 1e9
    with open("/proc/self/maps", encoding="utf-8") as maps:
        libraries = {line.split()[-1] for line in maps if "blas" in line.split()[-1]}
    blas = ", ".join(sorted(os.path.basename(os.path.realpath(path)) for path in libraries)) or "built in"
    if gflops < LEAST_GFLOPS:
        raise Missing(f"PyTorch's products run at {gflops:.0f} GFLOP/s with {blas}: a comparison would say nothing; apt install"
                      " libopenblas0-pthread")
    return torch, blas, gflops


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


class Model:
    """One stack in all three: same weights here and in the package."""

    def __init__(self, torch, sru, arguments, workspace, directions, hidden, layers):
        self.torch, self.width, self.workspace = torch, directions * hidden, pathlib.Path(workspace)
        self.name = f"d{directions}x{hidden}-l{layers}"
        torch.manual_seed(1)
        config = {"input_size": self.width, "hidden_size": hidden, "num_layers": layers, "bidirectional": directions == 2}
        self.package = sru.SRU(**config).eval()
        with torch.no_grad():
            for name, parameter in self.package.named_parameters():
                if name.endswith("bias"):  # the constructor's constants would hide mistakes
                    parameter.add_(0.5 * torch.randn_like(parameter))
        self.lstm = torch.nn.LSTM(self.width, hidden, layers, bidirectional=directions == 2).eval()
        self._export(config)
        self.program = Program([arguments.bin / "sru_bench", "model", f"--model_repository={self.workspace / 'models'}",
                                f"--model={self.name}", "--output=states", f"--core={arguments.core}", "--stdin"])

    def ask(self, *words):
        answer = self.program.ask(" ".join(map(str, words)), str)
        if "error" in answer:
            raise RuntimeError(f"sru_bench: {answer['error']}")
        return answer

    def _export(self, config):
        import export_torch
        checkpoint, description = self.workspace / "model.pt", self.workspace / "model.json"
        self.torch.save(self.package.state_dict(), checkpoint)
        description.write_text(json.dumps({"sru_config": config}), encoding="utf-8")
        text = io.StringIO()
        with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
            status = export_torch.main(["--checkpoint", str(checkpoint), "--config", str(description), "--encoder-prefix", "", "--out",
                                        str(self.workspace / "models" / self.name / "1")])
        if status != 0:
            raise RuntimeError(f"export_torch.py: {text.getvalue().strip()}")

    def largest_difference(self, length, batch):
        """Of our token vectors from the package's, absolute."""
        x = self.torch.randn(length, batch, self.width)
        given, got = self.workspace / "x", self.workspace / "h"
        given.write_bytes(x.transpose(0, 1).contiguous().numpy().tobytes())
        self.ask("encode", length, batch, given, got)
        with self.torch.no_grad():
            expected, _ = self.package(x)
        ours = self.torch.frombuffer(bytearray(got.read_bytes()), dtype=self.torch.float32)
        return float((ours.reshape(batch, length, self.width).transpose(0, 1) - expected).abs().max())

    def measure(self, length, batch, seconds, most_rounds):
        """Median seconds of one forward pass of ours, the package and the LSTM, and the rounds."""
        x = self.torch.randn(length, batch, self.width)

        def run_torch(module):
            def body(repeat):
                with self.torch.no_grad():
                    return timed(lambda: [module(x) for _ in range(repeat)]) / repeat
            return body

        def run_ours(repeat):
            return self.ask("time", length, batch, repeat)["us"] * 1e-6

        bodies = [run_ours, run_torch(self.package), run_torch(self.lstm)]
        start = time.perf_counter()
        first = [body(1) for body in bodies]
        if sum(first) < seconds / 10:  # the package's scripts are compiled in their first runs
            for _ in range(3):
                first = [body(1) for body in bodies]
        # Too dear to be thrown away?
        samples = [[value] if sum(first) > seconds / 3 else [] for value in first]
        # Short ones several times in a row, so that the clock and the pipe do not count.
        repeats = [max(1, min(1000, math.ceil(0.002 / value))) for value in first]
        while not samples[0] or (len(samples[0]) < most_rounds and time.perf_counter() - start < seconds):
            for body, repeat, series in zip(bodies, repeats, samples):
                series.append(body(repeat))
        return [statistics.median(series) for series in samples], len(samples[0])


HEADER = ("   width layers length batch     ours us  package us     LSTM us package/ours LSTM/ours rounds")
ROW = ("{directions} x {hidden:>4} {layers:>6} {length:>6} {batch:>5} {ours_us:>11,.1f} {package_us:>11,.1f} {lstm_us:>11,.1f}"
       " {package_ratio:>12.2f} {lstm_ratio:>9.2f} {rounds:>6}")


def run(arguments, cells):
    # Before PyTorch starts threads.
    os.sched_setaffinity(0, {arguments.core})
    os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"
    if not (arguments.bin / "sru_bench").exists():
        raise Missing(f"{arguments.bin / 'sru_bench'} is missing: make build")
    torch, blas, gflops = import_torch()
    if arguments.download is not None:
        download(arguments.download)
    sru = import_package(arguments.package or arguments.download)
    results = {"package": PACKAGE, "torch": torch.__version__, "blas": blas, "blas_gflops": gflops, "core": arguments.core,
               "tolerance": TOLERANCE, "agreement": [], "cells": []}
    out = sys.stderr if arguments.json == "-" else sys.stdout
    print(f"torch {torch.__version__}, {blas} ({gflops:.0f} GFLOP/s), {PACKAGE}, core {arguments.core}, float32, medians", file=out)
    last_report = time.monotonic()
    with tempfile.TemporaryDirectory() as workspace, contextlib.ExitStack() as stack:
        models = {}
        for shape in dict.fromkeys(cell[:3] for cell in cells):
            model = models[shape] = Model(torch, sru, arguments, workspace, *shape)
            stack.enter_context(model.program)
            difference = max(model.largest_difference(*given) for given in ((1, 1), (37, 3), (32, 32)))
            results["agreement"].append({**dict(zip(("directions", "hidden", "layers"), shape)), "largest_difference": difference})
            if not difference <= TOLERANCE:
                raise RuntimeError(f"{model.name}: outputs differ from the package's by {difference:.2g}, more than {TOLERANCE:g}")
        worst = max(entry["largest_difference"] for entry in results["agreement"])
        print(f"outputs agree with the package's within {worst:.1e} (wanted {TOLERANCE:g})\n{HEADER}", file=out, flush=True)
        for cell in cells:
            directions, hidden, layers, length, batch = cell
            if time.monotonic() - last_report > 10:
                last_report = time.monotonic()
                progress(f"{len(results['cells'])} of {len(cells)} shapes; now {directions} x {hidden}, length {length}, batch {batch}")
            (ours, package, lstm), rounds = models[cell[:3]].measure(length, batch, arguments.seconds, arguments.rounds)
            results["cells"].append(
                {"directions": directions, "hidden": hidden, "layers": layers, "length": length, "batch": batch, "rounds": rounds,
                 "ours_us": ours * 1e6, "package_us": package * 1e6, "lstm_us": lstm * 1e6,
                 "package_ratio": package / ours, "lstm_ratio": lstm / ours})
            print(ROW.format(**results["cells"][-1]), file=out, flush=True)
    if arguments.json == "-":
        print(json.dumps(results))
    elif arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(results) + "\n", encoding="utf-8")


def numbers(text):
    try:
        values = [int(part) for part in text.split(",")]
    except ValueError:
        values = []
    if not values or min(values) < 1:
        raise argparse.ArgumentTypeError(f"expected positive numbers with commas between them, found '{text}'")
    return values


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flag = parser.add_argument
    folder = {"type": lambda text: pathlib.Path(text).resolve(), "metavar": "DIR"}
    flag("--package", help="directory that holds the package's folder sru/", **folder)
    flag("--download", help=f"get {PACKAGE} into DIR unless it is there", **folder)
    flag("--bin", default=ROOT / "build" / "bin", help="where sru_bench is (default: build/bin)", **folder)
    flag("--hidden", type=numbers, metavar="LIST",
         help="per direction (default: 64,128,256,512, with length 8,32,128,512, batch 1,8,32,128, both directions and one)")
    flag("--length", type=numbers, default=[32], metavar="LIST")
    flag("--batch", type=numbers, default=[32], metavar="LIST")
    flag("--directions", type=numbers, default=[2], metavar="LIST")
    flag("--layers", type=int, default=2)
    flag("--seconds", type=float, default=2.0, help="per shape, after which no further round is begun")
    flag("--rounds", type=int, default=21, help="most rounds per shape")
    flag("--core", type=int, default=max(os.sched_getaffinity(0)), help="the core to run on (default: the highest that is allowed)")
    flag("--json", metavar="FILE", help="write the figures there; - = standard output")
    arguments = parser.parse_args()
    if arguments.core not in os.sched_getaffinity(0):
        parser.error(f"--core: expected one of {sorted(os.sched_getaffinity(0))}, found {arguments.core}")
    if not set(arguments.directions) <= {1, 2}:
        parser.error("--directions: expected 1, 2 or 1,2")
    if arguments.layers < 1 or arguments.rounds < 1:
        parser.error("--layers, --rounds: expected a positive number")
    return arguments


def main():
    arguments = parse_arguments()
    cells = GRID
    if arguments.hidden:
        cells = list(itertools.product(arguments.directions, arguments.hidden, [arguments.layers], arguments.length, arguments.batch))
    try:
        run(arguments, cells)
    except (Missing, NotMeasured, RuntimeError) as error:
        print(f"compare_pytorch.py: {error}", file=sys.stderr)
        return SKIPPED if isinstance(error, Missing) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
