#!/usr/bin/env python3
"""Times this project's CPU engine against the published Python package `sru` and torch.nn.LSTM.

float32, one thread, one core. The same weights run here (exported by models/export_torch.py) and in
the package; that the outputs agree is checked first. Then the three take turns in one run, so that the
ratios hold on a machine whose speed moves: ours, package, LSTM, ours, package, LSTM, ...; medians.
An LSTM of the same width has more weights than an SRU: it is what an SRU replaces. oneDNN's matrix
products of our shapes alone take their turn too: an engine that did nothing else would cost that much.

What a call pays in Python is part of the package's and the LSTM's time, as it is for who uses them; it
counts at the smallest shapes only. Ours is timed inside of `sru_bench model --stdin`.

Needs build/bin/sru_bench (make build), python3-torch, libtorch-dev, libopenblas0-pthread, ninja-build,
python3-dev, and the package: its CPU operator is compiled at the first import (a minute, once).

  compare_pytorch.py --download build/pytorch-package       gets sru 2.6.0 from PyPI; the five shapes
  compare_pytorch.py --package DIR --grid                   the 128 shapes of docs/benchmarks/cpu.md
  compare_pytorch.py --package DIR --hidden 128 --length 32 --batch 1,32 --json -

Exit status: 0; 1 when outputs differ or a run fails; 2 for wrong arguments; 77 when something that it
needs is missing.
"""

import argparse
import contextlib
import io
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
PACKAGE = "sru==2.6.0"
MISSING = 77
# Two float32 implementations that sum in different orders; the outputs are of size 1.
TOLERANCE = 1e-5
# A reference BLAS runs at about 5 GF/s; a comparison with it would flatter us.
LEAST_GFLOPS = 20

# (directions, hidden size per direction, layers, length, batch)
TABLE = [
    (2, 64, 2, 32, 32),
    (2, 64, 2, 128, 32),
    (2, 128, 4, 32, 32),
    (2, 256, 4, 32, 32),
    (2, 128, 4, 64, 1),
]


def grid(directions, hidden, lengths, batches, layers=2):
    return [(d, h, layers, l, b) for d in directions for h in hidden for l in lengths
            for b in batches]


class Missing(Exception):
    """What is not there, and how to get it."""


def progress(text):
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


def download(directory):
    """Gets the package's wheel from PyPI, without what it depends on, and unpacks it."""
    if (directory / "sru" / "__init__.py").exists():
        return
    progress(f"downloading {PACKAGE} into {directory}")
    directory.mkdir(parents=True, exist_ok=True)
    # -I: pip itself must not see the directory's content.
    result = subprocess.run(
        [sys.executable, "-I", "-m", "pip", "download", "--quiet", "--no-deps", "--dest",
         str(directory), PACKAGE], capture_output=True, text=True, check=False)
    wheels = list(directory.glob("sru-*.whl"))
    if result.returncode != 0 or not wheels:
        reason = (result.stderr.strip().splitlines() or ["no wheel came"])[-1]
        raise Missing(f"{PACKAGE} cannot be downloaded ({reason}); unpack its wheel into a "
                      "directory by hand and name it with --package")
    with zipfile.ZipFile(wheels[0]) as wheel:
        wheel.extractall(directory)


def import_torch():
    try:
        import torch
    except ImportError as error:
        raise Missing("PyTorch is missing: apt install python3-torch, and run this with "
                      "/usr/bin/python3") from error
    torch.set_num_threads(1)
    a, b = torch.randn(1024, 256), torch.randn(256, 768)
    best = min(_time(lambda: a @ b) for _ in range(20))
    gflops = 2 * 1024 * 256 * 768 / best / 1e9
    with open("/proc/self/maps", encoding="utf-8") as maps:
        libraries = {line.split()[-1] for line in maps if "blas" in line.split()[-1]}
    blas = ", ".join(sorted(os.path.basename(os.path.realpath(path)) for path in libraries))
    blas = blas or "built in"
    if gflops < LEAST_GFLOPS:
        raise Missing(f"PyTorch's products run at {gflops:.0f} GFLOP/s with {blas}: a comparison "
                      "would say nothing; apt install libopenblas0-pthread")
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
        first = str(error).strip().splitlines()[0]
        raise Missing("the package sru cannot compile its CPU operator; it needs g++, ninja-build, "
                      f"python3-dev and libtorch-dev: {first}") from error
    return sru


def _time(body):
    start = time.perf_counter()
    body()
    return time.perf_counter() - start


class Ours:
    """sru_bench model --stdin on one model."""

    def __init__(self, binary, repository, model, core):
        self.process = subprocess.Popen(
            [str(binary), "model", f"--model_repository={repository}", f"--model={model}",
             "--output=states", f"--core={core}", "--stdin"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, *words):
        try:
            print(*words, file=self.process.stdin, flush=True)
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise RuntimeError(f"sru_bench ended with status {self.process.wait()}")
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(f"sru_bench: {answer['error']}")
        return answer

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


class Model:
    """One stack in all three: same weights here and in the package."""

    def __init__(self, torch, sru, arguments, workspace, directions, hidden, layers):
        self.torch = torch
        self.name = f"d{directions}x{hidden}-l{layers}"
        self.width = directions * hidden
        torch.manual_seed(1)
        config = {"input_size": self.width, "hidden_size": hidden, "num_layers": layers,
                  "bidirectional": directions == 2}
        self.package = sru.SRU(**config).eval()
        with torch.no_grad():
            for name, parameter in self.package.named_parameters():
                if name.endswith("bias"):  # the constructor's constants would hide mistakes
                    parameter.add_(0.5 * torch.randn_like(parameter))
        self.lstm = torch.nn.LSTM(self.width, hidden, layers, bidirectional=directions == 2).eval()
        self.workspace = pathlib.Path(workspace)
        self._export(config)
        self.ours = Ours(arguments.bin / "sru_bench", self.workspace / "models", self.name,
                         arguments.core)

    def _export(self, config):
        sys.path.insert(0, str(ROOT / "models"))
        sys.dont_write_bytecode = True
        import export_torch
        checkpoint = self.workspace / "model.pt"
        self.torch.save(self.package.state_dict(), checkpoint)
        description = self.workspace / "model.json"
        description.write_text(json.dumps({"sru_config": config}), encoding="utf-8")
        text = io.StringIO()
        with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
            status = export_torch.main(
                ["--checkpoint", str(checkpoint), "--config", str(description), "--encoder-prefix",
                 "", "--out", str(self.workspace / "models" / self.name / "1")])
        if status != 0:
            raise RuntimeError(f"export_torch.py: {text.getvalue().strip()}")

    def largest_difference(self, length, batch):
        """Of our token vectors from the package's, absolute."""
        x = self.torch.randn(length, batch, self.width)
        given, got = self.workspace / "x", self.workspace / "h"
        given.write_bytes(x.transpose(0, 1).contiguous().numpy().tobytes())
        self.ours.ask("encode", length, batch, given, got)
        with self.torch.no_grad():
            expected, _ = self.package(x)
        ours = self.torch.frombuffer(bytearray(got.read_bytes()), dtype=self.torch.float32)
        ours = ours.reshape(batch, length, self.width).transpose(0, 1)
        return float((ours - expected).abs().max())

    def close(self):
        self.ours.close()


def measure(torch, model, length, batch, seconds, most_rounds):
    """Median seconds of one forward pass of ours, the package, the LSTM and of oneDNN's products
    alone, and the rounds."""
    x = torch.randn(length, batch, model.width)

    def run_torch(module):
        def body(repeat):
            with torch.no_grad():
                return _time(lambda: [module(x) for _ in range(repeat)]) / repeat
        return body

    bodies = [lambda repeat: model.ours.ask("time", length, batch, repeat)["us"] * 1e-6,
              run_torch(model.package), run_torch(model.lstm),
              lambda repeat: model.ours.ask("products", length, batch, repeat)["us"] * 1e-6]
    start = time.perf_counter()
    first = [body(1) for body in bodies]
    if sum(first) < seconds / 10:  # the package's scripts are compiled in their first runs
        for _ in range(3):
            first = [body(1) for body in bodies]
    samples = [[] for _ in bodies]
    rounds = 0
    if sum(first) > seconds / 3:  # too dear to be thrown away
        samples = [[value] for value in first]
        rounds = 1
    # Short ones several times in a row, so that the clock and the pipe do not count.
    repeats = [max(1, min(1000, math.ceil(0.002 / value))) for value in first]
    while rounds == 0 or (rounds < most_rounds and time.perf_counter() - start < seconds):
        for body, repeat, series in zip(bodies, repeats, samples):
            series.append(body(repeat))
        rounds += 1
    return [statistics.median(series) for series in samples], rounds


HEADER = (f"{'width':>8} {'layers':>6} {'length':>6} {'batch':>5} {'ours us':>11} "
          f"{'package us':>11} {'LSTM us':>11} {'products us':>11} {'package/ours':>12} {'LSTM/ours':>9} {'rounds':>6}")


def row(cell):
    return (f"{cell['directions']} x {cell['hidden']:>4} {cell['layers']:>6} {cell['length']:>6} "
            f"{cell['batch']:>5} {cell['ours_us']:>11,.1f} {cell['package_us']:>11,.1f} "
            f"{cell['lstm_us']:>11,.1f} {cell['products_us']:>11,.1f} {cell['package_ratio']:>12.2f} {cell['lstm_ratio']:>9.2f} "
            f"{cell['rounds']:>6}")


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
    results = {"package": PACKAGE, "torch": torch.__version__, "blas": blas,
               "blas_gflops": gflops, "core": arguments.core, "tolerance": TOLERANCE,
               "agreement": [], "cells": []}
    out = sys.stderr if arguments.json == "-" else sys.stdout
    print(f"torch {torch.__version__}, {blas} ({gflops:.0f} GFLOP/s), {PACKAGE}, core "
          f"{arguments.core}, float32, medians", file=out)
    shapes = list(dict.fromkeys(cell[:3] for cell in cells))
    done, last_report = 0, time.monotonic()
    with tempfile.TemporaryDirectory() as workspace, contextlib.ExitStack() as stack:
        models = {}
        for shape in shapes:
            models[shape] = Model(torch, sru, arguments, workspace, *shape)
            stack.callback(models[shape].close)
            difference = max(models[shape].largest_difference(length, batch)
                             for length, batch in ((1, 1), (37, 3), (32, 32)))
            results["agreement"].append(
                {"directions": shape[0], "hidden": shape[1], "layers": shape[2],
                 "largest_difference": difference})
            if not difference <= TOLERANCE:
                raise RuntimeError(f"{models[shape].name}: outputs differ from the package's by "
                                   f"{difference:.2g}, more than {TOLERANCE:g}")
        worst = max(entry["largest_difference"] for entry in results["agreement"])
        print(f"outputs agree with the package's within {worst:.1e} (wanted {TOLERANCE:g})",
              file=out)
        print(HEADER, file=out, flush=True)
        for directions, hidden, layers, length, batch in cells:
            if time.monotonic() - last_report > 10:
                last_report = time.monotonic()
                progress(f"{done} of {len(cells)} shapes; now {directions} x {hidden}, "
                         f"length {length}, batch {batch}")
            (ours, package, lstm, products), rounds = measure(
                torch, models[directions, hidden, layers], length, batch, arguments.seconds,
                arguments.rounds)
            cell = {"directions": directions, "hidden": hidden, "layers": layers,
                    "length": length, "batch": batch, "rounds": rounds, "ours_us": ours * 1e6,
                    "package_us": package * 1e6, "lstm_us": lstm * 1e6, "products_us": products * 1e6,
                    "package_ratio": package / ours, "lstm_ratio": lstm / ours}
            results["cells"].append(cell)
            print(row(cell), file=out, flush=True)
            done += 1
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
        raise argparse.ArgumentTypeError(
            f"expected positive numbers with commas between them, found '{text}'")
    return values


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--package", type=pathlib.Path, metavar="DIR",
                        help="directory that holds the package's folder sru/")
    parser.add_argument("--download", type=pathlib.Path, metavar="DIR",
                        help=f"get {PACKAGE} into DIR unless it is there")
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build" / "bin", metavar="DIR",
                        help="where sru_bench is (default: build/bin)")
    parser.add_argument("--grid", action="store_true",
                        help="hidden 64,128,256,512, length 8,32,128,512, batch 1,8,32,128, both "
                        "directions and one, 2 layers")
    parser.add_argument("--table", action="store_true", help="the five shapes; the default")
    parser.add_argument("--hidden", type=numbers, metavar="LIST", help="per direction")
    parser.add_argument("--length", type=numbers, default=[32], metavar="LIST")
    parser.add_argument("--batch", type=numbers, default=[32], metavar="LIST")
    parser.add_argument("--directions", type=numbers, default=[2], metavar="LIST")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=2.0,
                        help="per shape, after which no further round is begun")
    parser.add_argument("--rounds", type=int, default=21, help="most rounds per shape")
    parser.add_argument("--core", type=int, default=max(os.sched_getaffinity(0)),
                        help="the core to run on (default: the highest that is allowed)")
    parser.add_argument("--json", metavar="FILE", help="write the figures there; - = standard output")
    arguments = parser.parse_args()
    if arguments.core not in os.sched_getaffinity(0):
        parser.error(f"--core: expected one of {sorted(os.sched_getaffinity(0))}, found "
                     f"{arguments.core}")
    if not set(arguments.directions) <= {1, 2}:
        parser.error("--directions: expected 1, 2 or 1,2")
    if arguments.layers < 1 or arguments.rounds < 1:
        parser.error("--layers, --rounds: expected a positive number")
    for name in ("package", "download"):
        if getattr(arguments, name) is not None:
            setattr(arguments, name, getattr(arguments, name).resolve())
    return arguments


def main():
    arguments = parse_arguments()
    cells = []
    if arguments.grid:
        cells += grid((2, 1), (64, 128, 256, 512), (8, 32, 128, 512), (1, 8, 32, 128))
    if arguments.hidden:
        cells += grid(arguments.directions, arguments.hidden, arguments.length, arguments.batch,
                      arguments.layers)
    if arguments.table or not cells:
        cells = TABLE + cells
    try:
        run(arguments, cells)
    except Missing as error:
        print(f"compare_pytorch.py: {error}", file=sys.stderr)
        return MISSING
    except RuntimeError as error:
        print(f"compare_pytorch.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
