#!/bin/bash
# Measures all arrangements of bfloat16's tiles (kernels/cpu/tiles/tile_arrangement.h) on this machine and prints the best ones in the form
# of the table of kernels/cpu/tiles/tile_arrangement.cc, with what each gains beside it.
#
#   scripts/tune_amx.sh              for the best instruction set of this machine: amx or avx512_bf16
#   scripts/tune_amx.sh --quick      two widths, to see that it works
#
# --seconds=N (default 0.1) per arrangement and shape, --bin=DIR (default build/bin), --core=N. Takes about 15 minutes with AMX, 5 with
# AVX512_BF16; run nothing else meanwhile. Needs build/bin/sru_bench (make build) and Python 3.
#
# Each arrangement alternates with oneDNN's products in one run, and their ratios are compared, so that it may take a machine whose
# speed moves. Where several arrangements are within 2% of each other, the one with the plainest numbers holds.
set -euo pipefail
cd "$(dirname "$0")/.."
exec python3 -B - "$@" <<'PYTHON'
import argparse
import collections
import json
import math
import pathlib
import subprocess
import sys
import time

UNITS = {"amx": "kAmx", "avx512_bf16": "kAvx512"}
FEW = 3  # sequences: a batch of 1 is measured for them
NOISE = 1.02

parser = argparse.ArgumentParser(prog="tune_amx.sh")
parser.add_argument("--quick", action="store_true")
parser.add_argument("--seconds", default="0.1")
parser.add_argument("--bin", type=pathlib.Path, default=pathlib.Path("build/bin"))
parser.add_argument("--core", default="-1")
arguments = parser.parse_args()
start = time.monotonic()


def measure(directions, hidden, batch):
    """{arrangement: layer / products} of one shape, and what the backend says that it is."""
    command = [str(arguments.bin / "sru_bench"), "layer", "--dtype=bfloat16", "--arrangement=all", "--json",
               f"--directions={directions}", f"--hidden={hidden}", f"--batch={batch}",
               f"--seconds={arguments.seconds}", f"--core={arguments.core}"]
    said = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if said.returncode != 0:
        sys.exit(said.returncode)
    result = json.loads(said.stdout)
    return ({cell["arrangement"]: cell["ratio"] for cell in result["cells"]}, result["description"])


def numbers(name):
    return [int(part[1:]) for part in name.split("-")]


def plainness(name):
    """Less is plainer: few blocks, few places, the usual chunk, 32 rows."""
    rows, blocks, places, chunk = numbers(name)
    return (blocks, places, abs(chunk - 256), abs(rows - 32))


def best(ratios):
    """Of {arrangement: [ratios]}: the plainest that is as good as the best, up to noise, and its mean."""
    means = {name: math.exp(sum(map(math.log, values)) / len(values)) for name, values in ratios.items()}
    limit = min(means.values()) * NOISE
    name = min((name for name in means if means[name] <= limit), key=plainness)
    return name, means[name], max(means.values())


widths = (64, 128) if arguments.quick else (64, 128, 256, 512)
shapes = [(d, h, b) for d in (1, 2) for h in widths for b in (1, 8, 32)]
found = collections.defaultdict(lambda: collections.defaultdict(lambda: collections.defaultdict(list)))
description = ""
for i, (directions, hidden, batch) in enumerate(shapes):
    print(f"[{time.monotonic() - start:4.0f} s] {i + 1} of {len(shapes)}: {directions} x {hidden}, batch {batch}",
          file=sys.stderr, flush=True)
    ratios, description = measure(directions, hidden, batch)
    for name, ratio in ratios.items():
        found[batch <= FEW][directions * hidden][name].append(ratio)

isa = description.split(":")[0]
print(f"{description}\n")
for few in (True, False):
    rows = []  # [most k, arrangement, why]
    for k in sorted(found[few]):
        name, mean, worst = best(found[few][k])
        why = f"k = {k}: {mean:.2f} of the products alone; the worst arrangement {worst:.2f}"
        if rows and rows[-1][1] == name:
            rows[-1][0] = k
            rows[-1][2].append(why)
        else:
            rows.append([k, name, [why]])
    for i, (k, name, reasons) in enumerate(rows):
        for why in reasons:
            print(f"    // {why}.")
        most_k = "kAny" if i + 1 == len(rows) else str(k)
        print(f"    {{TileUnit::{UNITS[isa]}, {most_k}, {FEW if few else 'kAny'}, "
              f"{{{', '.join(map(str, numbers(name)))}}}}},")
PYTHON
