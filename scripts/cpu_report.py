#!/usr/bin/env python3
"""Measures the CPU engine on this machine and writes docs/benchmarks/cpu.md.

  make bench                         builds, then this: about 16 minutes; run nothing else meanwhile
  scripts/cpu_report.py --quick      a few shapes of each kind, a minute, to see that it all works

Runs build/bin/sru_bench, build/bin/kernel_benchmarks and kernels/bench/compare_pytorch.py, one after
the other, each on one core. Every ratio compares runs that alternate within one program. Parts for which
the machine lacks something (Google Benchmark, PyTorch, bfloat16) are left out, and the report says so.
Needs only Python; the comparison with PyTorch needs what `scripts/deps.sh bench` installs, and PyPI
the first time.
"""

import argparse
import array
import datetime
import json
import os
import pathlib
import random
import re
import statistics
import struct
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
MISSING = 77  # exit status of compare_pytorch.py

# Targets of the project: name -> (must, aim). For ratios to products and to dense batches, less is better.
LAYER_MUST = {"float32": (1.15, 1.05), "bfloat16": (1.25, 1.0)}
LAYER_FROM_HIDDEN = 128  # the layer targets hold from this width on
RAGGED_MUST = (1.15, 1.05)
PACKAGE_MUST = (2.5, 4.0)
LSTM_MUST = (5.0, 9.0)

QUIET = 0.97  # part of a core's time that a measurement must get
TABLE_SHAPES = 5  # of compare_pytorch.py --table

START = time.monotonic()


def progress(text):
    print(f"[{time.monotonic() - START:4.0f} s] {text}", file=sys.stderr, flush=True)


class Unavailable(Exception):
    """A part that this build or machine cannot measure, and why."""


def run_with_progress(words):
    """Runs a program and passes on its standard error. Returns (status, output, last line of the error)."""
    last = "no message"
    with tempfile.TemporaryFile("w+") as output:
        with subprocess.Popen(words, stdout=output, stderr=subprocess.PIPE, text=True,
                              cwd=ROOT) as process:
            for line in process.stderr:
                sys.stderr.write("    " + line)
                last = line.strip() or last
        output.seek(0)
        return process.returncode, output.read(), last


class Bench:
    def __init__(self, binaries, core, quick):
        self.binaries = binaries
        self.core = core
        self.quick = quick

    def sru_bench(self, *flags):
        """Returns (command for the reader, its JSON)."""
        words = ["sru_bench", *[str(flag) for flag in flags]]
        status, output, last = run_with_progress(
            [str(self.binaries / words[0]), *words[1:], f"--core={self.core}", "--json"])
        if status != 0:
            raise Unavailable(f"`{' '.join(words)}`: {last}")
        return " ".join(words), json.loads(output)


def us(value):
    return f"{value:,.1f}" if value < 1000 else f"{value:,.0f}"


def width(cell):
    return f"{cell['directions']} x {cell['hidden']}"


class Report:
    def __init__(self):
        self.lines = []
        self.summary = []

    def add(self, *lines):
        self.lines.extend(lines)

    def section(self, title, *lines):
        self.add(f"## {title}", "", *lines, "")

    def table(self, names, rows):
        self.add("| " + " | ".join(names) + " |", "|" + "---|" * len(names))
        self.add(*("| " + " | ".join(row) + " |" for row in rows), "")

    def target(self, name, values, must, aim, less_is_better=True):
        """One line of the summary."""
        good = (lambda v, t: v <= t) if less_is_better else (lambda v, t: v >= t)
        sign = "<=" if less_is_better else ">="
        worst = max(values) if less_is_better else min(values)
        best = min(values) if less_is_better else max(values)
        self.summary.append(
            [name, f"{sign} {must:g}", f"{sign} {aim:g}", str(len(values)),
             str(sum(good(v, must) for v in values)), str(sum(good(v, aim) for v in values)),
             f"{best:.2f}", f"{statistics.median(values):.2f}", f"{worst:.2f}"])


# The layer grid ----------------------------------------------------------------------------------


def layer_reason(cell):
    """Where the time over the products goes, as measured beside them."""
    products = cell["products_us"]
    over = cell["layer_us"] - products
    scan = min(cell["scan_us"], over)
    rest = over - scan
    tokens = cell["length"] * cell["batch"]
    parts = f"scans alone +{scan / products:.0%}, all else +{rest / products:.0%}"
    if scan >= rest:
        return f"the scans: {parts}"
    if rest < 10 and tokens <= 64:
        return f"{rest:.1f} us of fixed cost per batch: {parts}"
    return f"all else, {rest * 1000 / tokens:,.0f} ns a token: {parts}"


def layers(report, bench, dtype):
    """The grid of one data type."""
    must, aim = LAYER_MUST[dtype]
    title = f"Layers against their bare products, {dtype}"
    progress(title)
    if bench.quick:
        shape = ["--hidden=64,128", "--length=8,32", "--batch=1,32", "--directions=2,1", "--layers=2",
                 "--seconds=0.1"]
    else:
        shape = ["--grid", "--seconds=0.5"]
    try:
        command, result = bench.sru_bench("layer", f"--dtype={dtype}", *shape)
    except Unavailable as error:
        report.section(title, f"Not measured: {error}")
        return
    cells = result["cells"]
    counted = [c for c in cells if c["hidden"] >= LAYER_FROM_HIDDEN]
    report.target(f"{dtype} layers / oneDNN {dtype} products alone, d >= {LAYER_FROM_HIDDEN}",
                  [c["ratio"] for c in counted], must, aim)
    report.section(
        title,
        f"`{command}` ({result['description']}). Two layers that write all token vectors, against"
        " oneDNN's matmul of the same shapes (weights packed, all gates and directions of a layer in"
        f" one call). Wanted for d >= {LAYER_FROM_HIDDEN}: <= {must:g}; the last column says where"
        " the time goes in a row that misses it (\"scans alone\" is measured too, beside the other"
        " two: one sequence after the other, float32).")
    rows = []
    for c in cells:
        missed = c["ratio"] > must and c["hidden"] >= LAYER_FROM_HIDDEN
        rows.append([width(c), str(c["length"]), str(c["batch"]), us(c["layer_us"]),
                     us(c["products_us"]), f"{c['products_gflops']:.0f}",
                     f"**{c['ratio']:.2f}**" if missed else f"{c['ratio']:.2f}",
                     str(c["rounds"]), layer_reason(c) if missed else ""])
    report.table(["d", "length", "batch", "layers us", "products us", "GFLOP/s", "ratio", "rounds",
                  "why it misses"], rows)


# How tiles are arranged ----------------------------------------------------------------------------


def arrangements(report, bench):
    title = "Arrangements of bfloat16's tiles"
    progress(title)
    words = ["scripts/tune_amx.sh", *(["--seconds=0.01", "--quick"] if bench.quick else ["--seconds=0.05"])]
    status, output, last = run_with_progress(
        [*words, f"--bin={bench.binaries}", f"--core={bench.core}"])
    if status != 0:
        report.section(title, f"Not measured: {last}")
        return
    report.section(
        title,
        f"`{' '.join(words)}`: the table of `kernels/cpu/tile_arrangement.cc` that this machine asks for, by one layer, 32"
        " tokens a sequence, with every arrangement that `kernels/cpu/tile_arrangement.h` has, against oneDNN's bfloat16"
        " products. All have the same bits.", "", "```", output.strip("\n"), "```")


# Ragged batches, length, memory --------------------------------------------------------------------


def write_model(directory, hidden, layer_count):
    """A bidirectional encoder of features with random weights, in models/FORMAT.md."""
    wide = 2 * hidden
    tensors = {}
    for layer in range(layer_count):
        prefix = f"encoder.rnn_lst.{layer}."
        tensors[prefix + "weight"] = [wide, 3 * wide]
        tensors[prefix + "weight_c"] = [2 * wide]
        tensors[prefix + "bias"] = [2 * wide]
        tensors[prefix + "scale_x"] = [1]
    header, offset, blobs = {}, 0, []
    generator = random.Random(1)
    for name, shape in tensors.items():
        size = 1
        for dimension in shape:
            size *= dimension
        scale = wide**-0.5 if name.endswith(".weight") else 0.5
        blob = array.array("f", (scale * generator.uniform(-1.7, 1.7) for _ in range(size)))
        header[name] = {"dtype": "F32", "shape": shape,
                        "data_offsets": [offset, offset + 4 * size]}
        offset += 4 * size
        blobs.append(blob.tobytes())
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    directory.mkdir(parents=True)
    (directory / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text
                                                  + b"".join(blobs))
    config = {"format_version": 1, "pooling": "max",
              "encoder": {"input_size": wide, "hidden_size": hidden, "num_layers": layer_count,
                          "bidirectional": True}}
    (directory / "config.json").write_text(json.dumps(config))


def models(report, bench, workspace):
    hidden = 64 if bench.quick else 256
    write_model(workspace / "wide" / "1", hidden, 2)
    served = [("the bundled TREC classifier (2 x 64, 2 layers, words)", ROOT / "models" / "pretrained",
               "models/pretrained"),
              (f"an encoder of features, 2 x {hidden}, 2 layers, random weights, max pooling", workspace,
               "DIR")]
    results = []
    if bench.quick:
        shape = ["--length=8,32", "--batch=1,8,32", "--seconds=0.1"]
    else:
        shape = ["--length=8,32,128,512", "--batch=1,8,32,128", "--seconds=0.5"]
    dtypes = ["float32", "bfloat16"]
    for name, repository, shown in served:
        for dtype in dtypes:
            progress(f"model: {name}, {dtype}")
            try:
                command, result = bench.sru_bench("model", f"--model_repository={repository}",
                                                  f"--dtype={dtype}", *shape)
            except Unavailable as error:
                results.append((f"{name}, {dtype}", None, str(error).replace(str(repository), shown)))
                continue
            results.append((f"{name}, {dtype}", command.replace(str(repository), shown), result))

    report.section("Models, batch by batch",
                   "A whole `Executable` as it is served, without a server; one core.")
    for name, command, result in results:
        if command is None:
            report.add(f"{name}: not measured: {result}", "")
            continue
        report.add(f"{name}: `{command}`", "")
        report.table(["length", "batch", "us a batch", "tokens/s"],
                     [[str(c["length"]), str(c["batch"]), us(c["batch_us"]),
                       f"{c['tokens_per_s']:,.0f}"] for c in result["batches"]])

    measured = [(name, result) for name, command, result in results if command is not None]
    must, aim = RAGGED_MUST
    if measured:
        report.target("ragged batch (lengths 1..2L uniform) / dense batch of as many tokens",
                      [c["ratio"] for _, result in measured for c in result["ragged"]], must, aim)
    report.section("Ragged against dense batches",
                   "Lengths uniform in 1..2L against all of length L, with as many sequences and"
                   f" tokens, alternating; the same commands. Wanted: <= {must:g}.")
    for name, result in measured:
        report.add(name + ":", "")
        report.table(
            ["L", "batch", "dense us", "ragged us", "ratio", "why it misses"],
            [[str(c["length"]), str(c["batch"]), us(c["dense_us"]), us(c["ragged_us"]),
              f"{c['ratio']:.2f}" if c["ratio"] <= must else f"**{c['ratio']:.2f}**",
              "" if c["ratio"] <= must else
              f"{(c['ragged_us'] - c['dense_us']) / c['batch'] * 1000:,.0f} ns a sequence more"]
             for c in result["ragged"]])

    report.section("Cost and memory by length",
                   "4,096 tokens in each batch, from many short sequences to one long one,"
                   " alternating; the same commands. The workspace is a worker's memory; the peak is"
                   " that of the whole process (weights and the batch itself included) while the"
                   " first batch of that length ran.")
    for name, result in measured:
        report.add(name + ":", "")
        report.table(["length", "batch", "us a token", "/ length 64", "workspace MiB", "peak MiB"],
                     [[str(c["length"]), str(c["batch"]), f"{c['token_us']:.3f}",
                       f"{c['ratio']:.2f}", f"{c['workspace_bytes'] / 2**20:.1f}",
                       f"{c['peak_bytes'] / 2**20:.1f}" if c["peak_bytes"] else "not known"]
                      for c in result["lengths"]])


# The published package and LSTM ------------------------------------------------------------------


def pytorch_reason(cell):
    """Why ours is not further ahead: what bare products would reach, and how near to them we are."""
    reasons = []
    for label, name, must in (("package", "package", PACKAGE_MUST[0]), ("LSTM", "lstm", LSTM_MUST[0])):
        if cell[f"{name}_ratio"] >= must:
            continue
        bound = cell[f"{name}_us"] / cell["products_us"]
        over = cell["ours_us"] / cell["products_us"]
        reasons.append(f"{label}: products alone would reach only {bound:.1f}" if bound < must else
                       f"{label}: products alone would reach {bound:.1f}, ours is {over:.2f} of them")
    return "; ".join(reasons)


def pytorch(report, bench, arguments, workspace):
    title = "Against the published package and torch.nn.LSTM"
    progress(title)
    figures = workspace / "pytorch.json"
    script = ROOT / "kernels" / "bench" / "compare_pytorch.py"
    flags = [f"--download={arguments.package}", "--table"]
    if bench.quick:
        flags += ["--hidden=64,128", "--length=8,32", "--batch=1,32", "--directions=2,1",
                  "--seconds=0.5"]
    else:
        flags += ["--grid", "--seconds=1"]
    status, _, last = run_with_progress(
        [arguments.python, "-B", str(script), *flags, f"--bin={bench.binaries}",
         f"--core={bench.core}", f"--json={figures}"])
    shown = " ".join(flags).replace(f"{ROOT}/", "")
    command = f"kernels/bench/compare_pytorch.py {shown}"
    if status == MISSING:
        report.section(title, f"Not measured: {last}", "",
                       "`scripts/deps.sh bench` installs what it needs.")
        progress("left out")
        return
    if status != 0:
        sys.exit(f"cpu_report.py: {command} failed: {last}")
    data = json.loads(figures.read_text())
    worst = max(entry["largest_difference"] for entry in data["agreement"])
    report.section(
        title,
        f"`{command}`: {data['package']} and torch.nn.LSTM of the same width on PyTorch"
        f" {data['torch']} with {data['blas']} ({data['blas_gflops']:.0f} GFLOP/s on a 1024 x 256 x"
        " 768 product), float32, one thread, the same core; ours, package, LSTM and oneDNN's products of our shapes alone in turn,"
        " medians."
        f" Before the measurement the token vectors of all {len(data['agreement'])} stacks agreed"
        f" with the package's, same weights, within {worst:.1e} (wanted: {data['tolerance']:g}).",
        "",
        f"Wanted: package / ours >= {PACKAGE_MUST[0]:g} (aim {PACKAGE_MUST[1]:g}), LSTM / ours >="
        f" {LSTM_MUST[0]:g} (aim {LSTM_MUST[1]:g}). One round means that the shape is too dear for"
        " more; the first five shapes are those that the targets were set with.")
    first, others = data["cells"][:TABLE_SHAPES], data["cells"][TABLE_SHAPES:]
    for label, cells in (("the five shapes", first), ("the grid", others)):
        report.target(f"published package / ours, {label}", [c["package_ratio"] for c in cells],
                      *PACKAGE_MUST, less_is_better=False)
        report.target(f"torch.nn.LSTM / ours, {label}", [c["lstm_ratio"] for c in cells],
                      *LSTM_MUST, less_is_better=False)
        report.table(
            ["d", "layers", "length", "batch", "ours us", "package us", "LSTM us", "products us",
             "package / ours", "LSTM / ours", "rounds", "why it misses"],
            [[width(c), str(c["layers"]), str(c["length"]), str(c["batch"]), us(c["ours_us"]),
              us(c["package_us"]), us(c["lstm_us"]), us(c["products_us"]),
              f"{c['package_ratio']:.2f}" if c["package_ratio"] >= PACKAGE_MUST[0]
              else f"**{c['package_ratio']:.2f}**",
              f"{c['lstm_ratio']:.2f}" if c["lstm_ratio"] >= LSTM_MUST[0]
              else f"**{c['lstm_ratio']:.2f}**",
              str(c["rounds"]), pytorch_reason(c)] for c in cells])


# The kernels -------------------------------------------------------------------------------------


def kernels(report, bench):
    title = "Kernels"
    progress(title)
    program = bench.binaries / "kernel_benchmarks"
    command = "kernel_benchmarks --benchmark_filter='BM_Scan|Product'"
    if not program.exists():
        report.section(title, "Not measured: kernel_benchmarks is not built; `scripts/deps.sh build`"
                       " installs Google Benchmark.")
        return
    result = subprocess.run(
        [str(program), "--benchmark_filter=" + ("BM_Scan/hidden:64" if bench.quick
                                                else "BM_Scan|Product"),
         f"--benchmark_min_time={0.01 if bench.quick else 0.05}", "--benchmark_format=json"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True,
        preexec_fn=lambda: os.sched_setaffinity(0, {bench.core}))
    runs = json.loads(result.stdout)["benchmarks"]
    report.section(title, f"`{command}` (Google Benchmark). Scan: one sequence and direction, U in"
                   " the cache; nanoseconds for 16 lanes and one step.")
    scans = [r for r in runs if r["name"].startswith("BM_Scan")]
    report.table(["scan", "ns"], [[r["name"].removeprefix("BM_Scan/"), f"{1e9 / r['vectors']:.1f}"]
                                  for r in scans])
    products = [r for r in runs if "Product" in r["name"]]
    if products:
        report.add("Product: one direction, [rows][2d] x [2d][3d]; BM_Product is the backend's,"
                   " BM_BareProduct oneDNN's with weights packed for that number of rows.", "")
        report.table(["product", "GFLOP/s"],
                     [[r["name"], f"{r['flop'] / 1e9:,.0f}"] for r in products])


def machine():
    text = pathlib.Path("/proc/cpuinfo").read_text()
    name = re.search(r"model name\s*:\s*(.*)", text)
    flags = set((re.search(r"flags\s*:\s*(.*)", text) or [0, ""])[1].split())
    sets = [f for f in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if f in flags]
    return (f"{name[1] if name else 'unknown processor'}, {os.cpu_count()} cores"
            f" ({' '.join(sets)})")


def core_share(core, seconds=1.0):
    """The share of the time that a program on this core gets: 1 if the machine is quiet."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    start, cpu = time.perf_counter(), time.process_time()
    while time.perf_counter() - start < seconds:
        pass
    share = (time.process_time() - cpu) / (time.perf_counter() - start)
    os.sched_setaffinity(0, allowed)
    return share


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a few shapes of each kind")
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build" / "bin",
                        help="where the programs are (default: build/bin)")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "docs" / "benchmarks" / "cpu.md",
                        help="the report (default: docs/benchmarks/cpu.md)")
    parser.add_argument("--core", type=int, default=max(os.sched_getaffinity(0)),
                        help="the core to measure on (default: the highest that is allowed)")
    parser.add_argument("--python", default="/usr/bin/python3",
                        help="the Python that has PyTorch (default: %(default)s)")
    parser.add_argument("--package", type=pathlib.Path, default=ROOT / "build" / "pytorch-package",
                        help="where the package `sru` is, or is downloaded to")
    parser.add_argument("--without-pytorch", action="store_true", help="leave that part out")
    arguments = parser.parse_args()
    arguments.bin = arguments.bin.resolve()
    arguments.package = arguments.package.resolve()
    if not (arguments.bin / "sru_bench").exists():
        sys.exit(f"cpu_report.py: {arguments.bin / 'sru_bench'} is missing: make build")

    hardware = machine()
    shares = [core_share(arguments.core)]
    if shares[0] < QUIET:
        progress(f"warning: core {arguments.core} is busy, this gets {shares[0]:.0%} of it; the"
                 " figures will not be worth keeping")
    bench = Bench(arguments.bin, arguments.core, arguments.quick)
    report = Report()
    with tempfile.TemporaryDirectory() as directory:
        workspace = pathlib.Path(directory)
        for dtype in LAYER_MUST:
            layers(report, bench, dtype)
        arrangements(report, bench)
        if arguments.without_pytorch:
            report.section("Against the published package and torch.nn.LSTM",
                           "Not measured: --without-pytorch was given.")
        else:
            pytorch(report, bench, arguments, workspace)
        models(report, bench, workspace / "models")
        kernels(report, bench)
    shares.append(core_share(arguments.core))

    top = Report()
    top.add("# The CPU engine", "",
            "Written by `make bench` (`scripts/cpu_report.py`), which reproduces every figure. Times"
            " move with the machine; ratios come from runs that alternate inside of one program, on"
            " one core. Medians.", "",
            f"Machine: {hardware}. Date: {datetime.date.today()}."
            f" The core was free for {shares[0]:.0%} of a second before and {shares[1]:.0%} after."
            + (" **A quick run: few shapes, few rounds.**" if arguments.quick else "")
            + (" **The machine was busy with other things: these figures say little.**"
               if min(shares) < QUIET else ""), "")
    top.section("Targets", "Of all the rows below, how many reach each target.")
    top.table(["", "must", "aim", "rows", "reach must", "reach aim", "best", "median", "worst"],
              report.summary)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text("\n".join(top.lines + report.lines).rstrip() + "\n")
    progress(f"wrote {arguments.out}")


if __name__ == "__main__":
    main()
