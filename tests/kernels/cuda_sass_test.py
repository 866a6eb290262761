#!/usr/bin/env python3
"""Looks at the kernels as the build has compiled them and fails when their machine code is slower than it was
(scripts/gpu_static.py says what is counted):

* the scan's steps have more instructions, or take more static cycles, than the limits below;
* the steps of a fused layer's chunk have;
* a key and a value of attention have, for 64 columns of a head;
* Predict's walk that adds the bias has, or its loads are no longer on their way together;
* one of these kernels waits for loads from global memory one after the other.

Usage: cuda_sass_test.py FOLDER SOURCE_ROOT ARCHITECTURES, such as "80 90". FOLDER has what nvcc left there (--keep). Exits with 77
(skipped) when it is empty: the build has no CUDA kernels, or none for these architectures.
"""

import os
import sys

SKIPPED = 77
# Of the scan, by storage type, dimensions per thread and whether rows are found by token id:
# instructions and static cycles per step, at most. A layer that stores its rows, without activation;
# then what pooling, and token vectors as well, and tanh may add.
SCAN = {
    ("bf16", 2, 0): (62, 105), ("bf16", 2, 1): (79, 125),
    ("bf16", 4, 0): (102, 150), ("bf16", 4, 1): (118, 175),
    ("f32", 2, 0): (58, 120), ("f32", 2, 1): (71, 135),
    ("f32", 4, 0): (92, 190), ("f32", 4, 1): (108, 205),
}
OUTPUT = {0: (0, 0), 1: (10, 35), 2: (18, 45)}  # by ScanOutput
TANH = {"bf16": (8, 30), "f32": (24, 95)}
# Loads that nothing else is waited for with: the sequence's entry, and the initial state if there is one.
ALONE = 2
# Of pooling after a layer norm, per row of two dimensions: static cycles, and loads waited for alone.
POOL = (150, 5)
# Of a fused layer's step: instructions and static cycles.
FUSED = (30, 75)
# A key and a value may take so many instructions and static cycles. There were 1,500 to 1,640 cycles when each load waited
# for the one before.
ATTEND = (46, 160)
# A thread's symbol may take so many in the walk that adds the bias. With a branch between the loads each symbol
# would wait for a trip of its own to the cache.
PREDICT = (20, 80)


def check_scan(architecture, rows):
    errors = []
    found = set()
    for row in rows:
        dims, by_token, output, activation = row.arguments
        found.add(row.arguments + (row.dtype,))
        where = f"sm_{architecture}, scan of {row.dtype}, {row.arguments}"
        if row.instructions is None:
            errors.append(f"{where}: no loop over steps")
            continue
        limits = [base + more + (tanh if activation else 0) for base, more, tanh
                  in zip(SCAN[row.dtype, dims, by_token], OUTPUT[output], TANH[row.dtype])]
        for what, value, limit in (("instructions per step", row.instructions, limits[0]),
                                   ("static cycles per step", row.cycles, limits[1]),
                                   ("loads waited for alone", row.alone, ALONE)):
            if value > limit:
                errors.append(f"{where}: expected at most {limit} {what}, found {value:.1f}")
    if len(found) != 48:
        errors.append(f"sm_{architecture}: expected 48 scan kernels, found {len(found)}")
    return errors


def check_pool(architecture, rows):
    errors = []
    pools = [row for row in rows if row.kernel == "PoolKernel"]
    for row in pools:
        if row.cycles is None or row.cycles > POOL[0] or row.alone > POOL[1]:
            errors.append(f"sm_{architecture}, pooling of {row.dtype}: expected at most {POOL[0]} static "
                          f"cycles per row and {POOL[1]} loads waited for alone, found {row.cycles} "
                          f"and {row.alone}")
    if len(pools) != 2:
        errors.append(f"sm_{architecture}: expected 2 pooling kernels, found {len(pools)}")
    return errors


def check_fused(architecture, rows):
    errors = []
    for row in rows:
        where = f"sm_{architecture}, fused layer, {row.arguments}"
        if row.instructions is None:
            errors.append(f"{where}: no chunk of steps")
            continue
        for what, value, limit in (("instructions per step", row.instructions, FUSED[0]),
                                   ("static cycles per step", row.cycles, FUSED[1])):
            if value > limit:
                errors.append(f"{where}: expected at most {limit} {what}, found {value:.1f}")
    if len(rows) != 8:
        errors.append(f"sm_{architecture}: expected 8 fused layers, found {len(rows)}")
    return errors


def check_loops(architecture, rows, kernel, count, loop, of, limits):
    """`count` kernels of this name have a `loop` each, with at most `limits` instructions and static cycles per `of`."""
    errors = []
    kernels = [row for row in rows if row.kernel == kernel]
    for row in kernels:
        where = f"sm_{architecture}, {kernel}, {row.arguments}"
        if row.instructions is None:
            errors.append(f"{where}: no loop over {loop}")
            continue
        for what, value, limit in zip(("instructions", "static cycles"), (row.instructions, row.cycles), limits):
            if value > limit:
                errors.append(f"{where}: expected at most {limit} {what} per {of}, found {value:.1f}")
    if len(kernels) != count:
        errors.append(f"sm_{architecture}: expected {count} of {kernel}, found {len(kernels)}")
    return errors


def main():
    folder, root, architectures = sys.argv[1], sys.argv[2], sys.argv[3].split()
    if not folder or not architectures:
        print("SKIPPED: the build has no such CUDA kernels")
        sys.exit(SKIPPED)
    sys.path.insert(0, os.path.join(root, "scripts"))
    import gpu_static  # pylint: disable=import-outside-toplevel

    errors = []
    for architecture in architectures:
        def figures(file, architecture=architecture):
            cubin = gpu_static.kept_file(folder, file, architecture, "cubin")
            return gpu_static.figures(gpu_static.functions(int(architecture), cubin))

        errors += check_scan(architecture, figures("scan"))
        errors += check_pool(architecture, figures("rows"))
        errors += check_fused(architecture, figures("fused"))
        operations = figures("operations")
        errors += check_loops(architecture, operations, "AttendKernel", 2, "eight keys or values", "key and value", ATTEND)
        # Clusters begin with 9.0; below, their kernels are empty.
        predicts = 7 if int(architecture) >= 90 else 5
        errors += check_loops(architecture, operations, "PredictKernel", predicts, "eight logits and their biases", "symbol", PREDICT)
    if errors:
        sys.exit("\n".join(errors))


if __name__ == "__main__":
    main()
