#!/usr/bin/env python3
"""Measures the CPU engine on this machine and writes build/reports/cpu.md.

  make bench                         builds, then this: about 16 minutes; run nothing else meanwhile
  scripts/cpu_report.py --quick      a few shapes of each kind, a minute, to see that it all works

Runs build/bin/sru_bench, build/bin/kernel_benchmarks and kernels/bench/compare_pytorch.py, one after the other, each on one core. Every
ratio compares runs that alternate within one program. Parts for which the machine lacks something (Google Benchmark, PyTorch, bfloat16) are
left out, and the report says so. Needs only Python; the comparison with PyTorch needs what `scripts/deps.sh bench` installs, and PyPI the
first time.
"""

import array
import json
import pathlib
import random
import statistics
import struct
import sys

from report_common import NotMeasured, PRETRAINED, ROOT, Report, SKIPPED, Table, core_share, kernel_benchmarks, one_core, output_of, progress

# Targets of the project: name -> (must, aim). For ratios to products and to dense batches, less is better.
LAYER_MUST = {"float32": (1.15, 1.05), "bfloat16": (1.25, 1.0)}
LAYER_FROM_HIDDEN = 128  # the layer targets hold from this width on
RAGGED_MUST = (1.15, 1.05)
PACKAGE_MUST = (2.5, 4.0)
LSTM_MUST = (5.0, 9.0)
QUIET = 0.97  # part of a core's time that a measurement must get
TABLE_SHAPES = 5  # of compare_pytorch.py --table

targets = []  # rows of the summary
shares = []  # of the core's time, after each part


def sru_bench(args, *flags):
    """(command for the reader, its JSON)"""
    words = ["sru_bench", *map(str, flags)]
    return " ".join(words), json.loads(output_of([args.bin / words[0], *words[1:], f"--core={args.core}", "--json"], echo=True))


def us(value):
    return f"{value:,.1f}" if value < 1000 else f"{value:,.0f}"


def width(cell):
    return f"{cell['directions']} x {cell['hidden']}"


def judged(value, missed):
    return f"**{value:.2f}**" if missed else f"{value:.2f}"


def target(name, values, must, aim, sign="<="):
    """One line of the summary."""
    worst, best = (max(values), min(values)) if sign == "<=" else (min(values), max(values))
    reached = [sum(value == limit or (value < limit) == (sign == "<=") for value in values) for limit in (must, aim)]
    targets.append([name, f"{sign} {must:g}", f"{sign} {aim:g}", len(values), *reached,
                    *(f"{value:.2f}" for value in (best, statistics.median(values), worst))])


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


def layers_of(args, dtype):
    """The grid of one data type."""
    must, aim = LAYER_MUST[dtype]
    shape = ["--hidden=64,128", "--length=8,32", "--batch=1,32", "--directions=2,1", "--layers=2",
             "--seconds=0.1"] if args.quick else ["--grid", "--seconds=0.5"]
    command, result = sru_bench(args, "layer", f"--dtype={dtype}", *shape)
    wide = [cell for cell in result["cells"] if cell["hidden"] >= LAYER_FROM_HIDDEN]
    target(f"{dtype} layers / oneDNN {dtype} products alone, d >= {LAYER_FROM_HIDDEN}", [cell["ratio"] for cell in wide], must, aim)
    yield (f"## Layers against their bare products, {dtype}\n\n`{command}` ({result['description']}). Two layers that write all token"
           " vectors, against oneDNN's matmul of the same shapes (weights packed, all gates and directions of a layer in one call). Wanted"
           f" for d >= {LAYER_FROM_HIDDEN}: <= {must:g}; the last column says where the time goes in a row that misses it (\"scans alone\" is"
           " measured too, beside the other two: one sequence after the other, float32).")
    rows = []
    for cell in result["cells"]:
        missed = cell["ratio"] > must and cell in wide
        rows.append([width(cell), cell["length"], cell["batch"], us(cell["layer_us"]), us(cell["products_us"]),
                     f"{cell['products_gflops']:.0f}", judged(cell["ratio"], missed), cell["rounds"], layer_reason(cell) if missed else ""])
    yield Table(("d", "length", "batch", "layers us", "products us", "GFLOP/s", "ratio", "rounds", "why it misses"), rows)


def float32_layers(args, _):
    return layers_of(args, "float32")


def bfloat16_layers(args, _):
    return layers_of(args, "bfloat16")


def pytorch_reason(cell):
    """Why ours is not further ahead: what bare products would reach, and how near to them we are."""
    reasons = []
    for label, name, must in (("package", "package", PACKAGE_MUST[0]), ("LSTM", "lstm", LSTM_MUST[0])):
        if cell[f"{name}_ratio"] < must:
            bound, over = cell[f"{name}_us"] / cell["products_us"], cell["ours_us"] / cell["products_us"]
            reasons.append(f"{label}: products alone would reach only {bound:.1f}" if bound < must else
                           f"{label}: products alone would reach {bound:.1f}, ours is {over:.2f} of them")
    return "; ".join(reasons)


def pytorch(args, models):
    if args.without_pytorch:
        raise NotMeasured("--without-pytorch was given")
    figures = models.folder / "pytorch.json"
    flags = [f"--download={args.package.resolve()}", "--table"]
    flags += ["--hidden=64,128", "--length=8,32", "--batch=1,32", "--directions=2,1", "--seconds=0.5"] if args.quick else \
        ["--grid", "--seconds=1"]
    script = "kernels/bench/compare_pytorch.py"
    try:
        output_of([args.python, "-B", ROOT / script, *flags, f"--bin={args.bin}", f"--core={args.core}", f"--json={figures}"], echo=True)
    except NotMeasured as error:
        if error.code in (None, SKIPPED):
            raise
        sys.exit(f"cpu_report.py: {script} failed: {error}")
    data = json.loads(figures.read_text(encoding="utf-8"))
    worst = max(entry["largest_difference"] for entry in data["agreement"])
    command = f"{script} {' '.join(flags)}".replace(f"{ROOT}/", "")
    yield (f"## Against the published package and torch.nn.LSTM\n\n`{command}`: {data['package']} and torch.nn.LSTM of the same width on"
           f" PyTorch {data['torch']} with {data['blas']} ({data['blas_gflops']:.0f} GFLOP/s on a 1024 x 256 x 768 product), float32, one"
           " thread, the same core; ours, package, LSTM and oneDNN's products of our shapes alone in turn, medians. Before the measurement"
           f" the token vectors of all {len(data['agreement'])} stacks agreed with the package's, same weights, within {worst:.1e} (wanted:"
           f" {data['tolerance']:g}).")
    yield (f"Wanted: package / ours >= {PACKAGE_MUST[0]:g} (aim {PACKAGE_MUST[1]:g}), LSTM / ours >= {LSTM_MUST[0]:g} (aim"
           f" {LSTM_MUST[1]:g}). One round means that the shape is too dear for more; the first five shapes are those that the targets were set"
           " with.")
    for label, cells in (("the five shapes", data["cells"][:TABLE_SHAPES]), ("the grid", data["cells"][TABLE_SHAPES:])):
        for name, key, limits in (("published package", "package_ratio", PACKAGE_MUST), ("torch.nn.LSTM", "lstm_ratio", LSTM_MUST)):
            target(f"{name} / ours, {label}", [cell[key] for cell in cells], *limits, ">=")
        yield Table(("d", "layers", "length", "batch", "ours us", "package us", "LSTM us", "products us", "package / ours", "LSTM / ours",
                     "rounds", "why it misses"),
                    [[width(cell), cell["layers"], cell["length"], cell["batch"],
                      *(us(cell[name]) for name in ("ours_us", "package_us", "lstm_us", "products_us")),
                      judged(cell["package_ratio"], cell["package_ratio"] < PACKAGE_MUST[0]),
                      judged(cell["lstm_ratio"], cell["lstm_ratio"] < LSTM_MUST[0]), cell["rounds"], pytorch_reason(cell)]
                     for cell in cells])


def write_model(directory, hidden, layer_count):
    """A bidirectional encoder of features with random weights, in models/FORMAT.md."""
    wide, header, blobs, offset = 2 * hidden, {}, [], 0
    generator = random.Random(1)
    for layer in range(layer_count):
        for name, shape, scale in (("weight", [wide, 3 * wide], wide**-0.5), ("weight_c", [2 * wide], 0.5), ("bias", [2 * wide], 0.5),
                                   ("scale_x", [1], 0.5)):
            blobs.append(array.array("f", (scale * generator.uniform(-1.7, 1.7)
                                           for _ in range(shape[0] * (shape[1:] or [1])[0]))).tobytes())
            header[f"encoder.rnn_lst.{layer}.{name}"] = {"dtype": "F32", "shape": shape, "data_offsets": [offset, offset + len(blobs[-1])]}
            offset += len(blobs[-1])
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    directory.mkdir(parents=True)
    (directory / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + b"".join(blobs))
    (directory / "config.json").write_text(json.dumps({"format_version": 1, "pooling": "max", "encoder": {
        "input_size": wide, "hidden_size": hidden, "num_layers": layer_count, "bidirectional": True}}), encoding="utf-8")


def models(args, made):
    """Whole models: one measurement of each, three sections."""
    hidden = 64 if args.quick else 256
    random_weights = made.make("random", lambda repository: write_model(repository / "wide" / "1", hidden, 2))
    shape = ["--length=8,32", "--batch=1,8,32", "--seconds=0.1"] if args.quick else \
        ["--length=8,32,128,512", "--batch=1,8,32,128", "--seconds=0.5"]
    measured = []
    yield "## Models, batch by batch\n\nA whole `Executable` as it is served, without a server; one core."
    for name, repository, shown in (
            ("the bundled TREC classifier (2 x 64, 2 layers, words)", PRETRAINED, "models/pretrained"),
            (f"an encoder of features, 2 x {hidden}, 2 layers, random weights, max pooling", random_weights, "DIR")):
        for dtype in LAYER_MUST:
            progress(f"model: {name}, {dtype}")
            try:
                command, result = sru_bench(args, "model", f"--model_repository={repository}", f"--dtype={dtype}", *shape)
            except NotMeasured as error:
                yield f"{name}, {dtype}: not measured: {error}"
                continue
            measured.append((f"{name}, {dtype}:", result))
            yield f"{name}, {dtype}: `{command.replace(str(repository), shown)}`"
            yield Table(("length", "batch", "us a batch", "tokens/s"),
                        [[cell["length"], cell["batch"], us(cell["batch_us"]), f"{cell['tokens_per_s']:,.0f}"]
                         for cell in result["batches"]])
    if not measured:
        return
    must, aim = RAGGED_MUST
    target("ragged batch (lengths 1..2L uniform) / dense batch of as many tokens",
           [cell["ratio"] for _, result in measured for cell in result["ragged"]], must, aim)
    yield ("## Ragged against dense batches\n\nLengths uniform in 1..2L against all of length L, with as many sequences and tokens,"
           f" alternating; the same commands. Wanted: <= {must:g}.")
    for name, result in measured:
        yield name
        yield Table(("L", "batch", "dense us", "ragged us", "ratio", "why it misses"),
                    [[cell["length"], cell["batch"], us(cell["dense_us"]), us(cell["ragged_us"]), judged(cell["ratio"], cell["ratio"] > must),
                      f"{(cell['ragged_us'] - cell['dense_us']) / cell['batch'] * 1000:,.0f} ns a sequence more"
                      if cell["ratio"] > must else ""]
                     for cell in result["ragged"]])
    yield ("## Cost and memory by length\n\n4,096 tokens in each batch, from many short sequences to one long one, alternating; the same"
           " commands. The workspace is a worker's memory; the peak is that of the whole process (weights and the batch itself included)"
           " while the first batch of that length ran.")
    for name, result in measured:
        yield name
        yield Table(("length", "batch", "us a token", "/ length 64", "workspace MiB", "peak MiB"),
                    [[cell["length"], cell["batch"], f"{cell['token_us']:.3f}", f"{cell['ratio']:.2f}",
                      f"{cell['workspace_bytes'] / 2**20:.1f}", f"{cell['peak_bytes'] / 2**20:.1f}" if cell["peak_bytes"] else "not known"]
                     for cell in result["lengths"]])


def kernels(args, _):
    runs = [run for _, run in kernel_benchmarks(args, "BM_Scan/hidden:64" if args.quick else "BM_Scan|Product",
                                                f"--benchmark_min_time={0.01 if args.quick else 0.05}", core=args.core)]
    yield ("## Kernels\n\n`kernel_benchmarks --benchmark_filter='BM_Scan|Product'` (Google Benchmark). Scan: one sequence and direction, U"
           " in the cache; nanoseconds for 16 lanes and one step.")
    yield Table(("scan", "ns"), [[run["name"][len("BM_Scan/"):], f"{1e9 / run['vectors']:.1f}"] for run in runs
                                 if run["name"].startswith("BM_Scan")])
    products = [[run["name"], f"{run['flop'] / 1e9:,.0f}"] for run in runs if "Product" in run["name"]]
    if products:
        yield ("Product: one direction, [rows][2d] x [2d][3d]; BM_Product is the backend's, BM_BareProduct oneDNN's with weights packed"
               " for that number of rows.")
        yield Table(("product", "GFLOP/s"), products)


def above(args):
    shares.append(core_share(args.core, 0.1 if args.quick else 1.0)[0])
    text = ("Times move with the machine; ratios come from runs that alternate inside of one program, on one core. Medians. A"
            f" program that only counts got {min(shares):.0%} or more of the core after each part.")
    if min(shares) < QUIET:
        text += " **The machine was busy with other things: these figures say little.**"
    summary = Table(("", "must", "aim", "rows", "reach must", "reach aim", "best", "median", "worst"), targets)
    return f"{text}\n\n## Targets\n\nOf all the rows below, how many reach each target.\n\n{summary}"


def main():
    report = Report(__file__, "The CPU engine", above, (float32_layers, bfloat16_layers, pytorch, models, kernels),
                    python="/usr/bin/python3")
    report.parser.add_argument("--core", type=int, default=one_core(), help="the core to measure on (default: the highest that is allowed)")
    report.parser.add_argument("--package", type=pathlib.Path, default=ROOT / "build" / "pytorch-package",
                               help="where the package `sru` is, or is downloaded to")
    report.parser.add_argument("--without-pytorch", action="store_true", help="leave that part out")
    return report.run()


if __name__ == "__main__":
    sys.exit(main())
