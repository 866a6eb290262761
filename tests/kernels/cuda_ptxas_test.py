#!/usr/bin/env python3
"""Looks at the kernels as the build has compiled them for every architecture, and fails when they would be slow on one of them:

* a kernel has spills, a stack frame or local memory, or so many registers that spills are near;
* a copy of U in the scan is narrower than what a thread's dimensions allow, or there are fewer copies
  than its groups of steps need, of rows and of token ids;
* the fused layer does not multiply on tensor cores, or reads shared memory through generic addresses;

or wrong:

* a kernel is empty on one of them, in PTX or in the machine code: its launch would succeed and leave old results. The
  kernels of clusters end with an error before 9.0, where HasClusters() (kernels/cuda/kernels/launch.h) keeps them from
  being launched.

Usage: cuda_ptxas_test.py FOLDER ARCHITECTURES, such as "80 90". FOLDER has what nvcc left there (--keep). Exits with 77
(skipped) when it is empty: the build has no CUDA kernels.
"""

import itertools
import os
import re
import struct
import sys

SKIPPED = 77
# Kernels of each file: float32 and bfloat16, 2 and 4 dimensions per thread, rows in order and by token
# id, three kinds of output, two activations; rows of 64 and 128 values, 3 and 4 gates; one kernel for each operation, two of Attend and of those that read or
# write the storage type, seven of Predict: two numbers of threads and a cluster, with and without picks, and rows that are kept or too long for that; products of 16, 32 and, in bfloat16, 64 rows, with results
# in bfloat16 and in float32, and those of up to 32 rows once more with the layer norm before them.
KERNELS = {"scan": 48, "fused": 4, "operations": 30, "skinny": 14}
MAX_REGISTERS = 240  # of a thread, which can have 255
STEPS = 16  # kScanDepth
GROUP = 4  # kScanGroup
PLANES = 4  # U0, U1, U2 and the highway term
SLOW_MEMORY = (("local memory", r"\.local\b"),
                     ("generic addresses", r"\b(ld|st)\.(v[24]\.)?[bufs]\d"))

# Bits 0 to 11 of an instruction of 128 bits: what it does and the form of its operands.
NOP, BPT = 0x918, 0x95c
# An empty kernel has three instructions at most: its stack pointer, EXIT, and a branch to itself.
LEAST_INSTRUCTIONS = 5
CLUSTERED = re.compile(r"PredictKernelILi\d+ELi4E")
# An ELF symbol; records of .nv.info.
ELF_SYMBOL_BYTES = 24
INFO_WITH_BYTES, INFO_REGISTERS, INFO_FRAME = 4, 0x2f, 0x11


def string_at(cubin, at):
    return cubin[at:cubin.index(b"\0", at)].decode()


def sections_of(cubin):
    """The sections of a cubin (64-bit ELF): {name: (offset, size)}."""
    sections_at, = struct.unpack_from("<Q", cubin, 0x28)
    entry_size, count, names_index = struct.unpack_from("<HHH", cubin, 0x3a)
    sections = [struct.unpack_from("<IIQQQQ", cubin, sections_at + i * entry_size)
                for i in range(count)]
    names_at = sections[names_index][4]
    return {string_at(cubin, names_at + name_at): (offset, size)
            for name_at, _, _, _, offset, size in sections}


def opcodes_of(cubin):
    """The kernels of a cubin: {mangled name: [opcode of each instruction]}."""
    return {name[len(".text."):]: [low & 0xfff for low in struct.unpack_from(f"<{size // 8}Q", cubin, offset)[::2]]
            for name, (offset, size) in sections_of(cubin).items() if name.startswith(".text.")}


def resources_of(cubin):
    """What ptxas -v says: {mangled name of a kernel: (registers, bytes of its stack frame)}. A frame is what spilled registers and
    arrays in local memory need."""
    sections = sections_of(cubin)
    symbols_at, symbols_size = sections[".symtab"]
    symbols = [string_at(cubin, sections[".strtab"][0] + struct.unpack_from("<I", cubin, at)[0])
               for at in range(symbols_at, symbols_at + symbols_size, ELF_SYMBOL_BYTES)]
    registers, frames = {}, {}
    at, size = sections[".nv.info"]
    end = at + size
    while at < end:
        form, attribute, length = struct.unpack_from("<BBH", cubin, at)
        at += 4
        if form != INFO_WITH_BYTES:  # `length` is the value
            continue
        for wanted, values in ((INFO_REGISTERS, registers), (INFO_FRAME, frames)):
            if attribute == wanted:
                symbol, value = struct.unpack_from("<II", cubin, at)
                values[symbols[symbol]] = value
        at += length
    return {name: (count, frames[name]) for name, count in registers.items()}


def kept_file(folder, name, architecture, kind):
    """The cubin or PTX of a file of kernels that nvcc left in `folder` (--keep); its name depends on for how many architectures."""
    of_several = f"{name}.compute_{architecture}"
    names = (f"{of_several}.sm_{architecture}.{kind}", f"{of_several}.{kind}", f"{name}.sm_{architecture}.{kind}", f"{name}.{kind}")
    found = [path for path in (os.path.join(folder, file) for file in names) if os.path.exists(path)]
    if not found:
        sys.exit(f"{folder}: nvcc has not left {names[0]} here; build sru_kernels again")
    with open(max(found, key=os.path.getmtime), "rb") as opened:
        return opened.read()


def check_registers(architecture, file, resources):
    """`resources`: of each kernel of a file."""
    errors = []
    if len(resources) != KERNELS[file]:
        errors.append(f"sm_{architecture}, {file}.cu: expected {KERNELS[file]} kernels, found "
                      f"{len(resources)}")
    for name, (registers, frame) in resources.items():
        if frame > 0:
            errors.append(f"sm_{architecture} {name}: a stack frame of {frame} bytes")
        if registers > MAX_REGISTERS:
            errors.append(f"sm_{architecture} {name}: {registers} registers, expected at most {MAX_REGISTERS}")
        print(f"sm_{architecture} {name}: {registers} registers, a stack frame of {frame} bytes")
    return errors


def check_copies(ptx):
    """Checks each scan kernel's asynchronous copies of U, of the highway term and of ids, in PTX."""
    errors = []
    widths = {("f", 4): 16, ("f", 2): 8, ("8BFloat16", 4): 8, ("8BFloat16", 2): 4}
    for (dtype, dims), width in widths.items():
        for by_token, output, activation in itertools.product((0, 1), (0, 1, 2), (0, 1)):
            variant = f"{dtype}, {dims} dimensions, {by_token}, {output}, {activation}"
            name = re.search(rf"\.entry (\w*ScanKernelI\w*{dtype}ELi{dims}ELb{by_token}ELN\w*?OutputE{output}E"
                             rf"LN\w*?ActivationE{activation}E\w*|"
                             rf"\w*ScanKernelI{dtype}Li{dims}ELb{by_token}ELN\w*?OutputE{output}E"
                             rf"LN\w*?ActivationE{activation}E\w*)\(", ptx)
            if name is None:
                errors.append(f"no scan kernel for {variant}")
                continue
            body = ptx[name.end():].split(".entry ")[0]
            # The ring is filled by a loop over groups, and each group of steps fills a group again. The
            # first ids are all copied at once.
            wanted = {width: 2 * GROUP * PLANES}
            if by_token:
                wanted[4] = wanted.get(4, 0) + STEPS + 2 * GROUP
            for size, count in wanted.items():
                found = len(re.findall(rf"cp\.async\.c[ag]\.shared\.global \[\S+\], \[\S+\], {size};",
                                       body))
                if found < count:
                    errors.append(f"{name.group(1)}: expected at least {count} copies of {size} "
                                  f"bytes, found {found}")
                print(f"{name.group(1)}: {found} copies of {size} bytes")
            # All copies except the next group's may be on their way; the first ids are waited for alone.
            if (f"cp.async.wait_group {STEPS // GROUP - 2};" not in body
                    or body.count("wait_group 0;") != by_token):
                errors.append(f"{name.group(1)}: waits for the whole ring")
            for what, pattern in SLOW_MEMORY:
                if re.search(pattern, body):
                    errors.append(f"{name.group(1)}: uses {what}")
    return errors


def check_fused(ptx):
    """Tiles multiplied, and where loads come from, in the PTX of each fused kernel."""
    errors = []
    for rows, gates in itertools.product((64, 128), (3, 4)):
        name = re.search(rf"\.entry (\w*FusedKernelILi{rows}ELi{gates}E\w*)\(", ptx)
        if name is None:
            errors.append(f"no fused kernel for rows of {rows} values and {gates} gates")
            continue
        body = ptx[name.end():].split(".entry ")[0]
        # Two sequences, two tiles of 8 steps, 16 values of a row each.
        tiles = len(re.findall(r"mma\.sync\.aligned\.m16n8k16\.row\.col\.f32\.bf16", body))
        if tiles != rows // 16 * 4:
            errors.append(f"{name.group(1)}: expected {rows // 16 * 4} products of tiles, found {tiles}")
        for what, pattern in SLOW_MEMORY:
            if re.search(pattern, body):
                errors.append(f"{name.group(1)}: uses {what}")
        print(f"{name.group(1)}: {tiles} products of tiles")
    return errors


def check_skinny(ptx):
    """That products copy 16 bytes at a time and read shared memory as such."""
    errors = []
    for name, body in re.findall(r"\.entry (\w+)\((.*?)(?=\.entry |\Z)", ptx, re.S):
        if " 16;" not in body or "cp.async.cg.shared.global" not in body:
            errors.append(f"{name}: expected copies of 16 bytes")
        if ("BFloat16" in name) != ("mma.sync.aligned.m16n8k16" in body):
            errors.append(f"{name}: expected products of tiles in bfloat16 alone")
        # Behind the layer norm, the addresses of what is appended come from memory.
        own = body.split("bar.sync")[0] if "Normalized" in name else body
        for what, pattern in SLOW_MEMORY:
            if re.search(pattern, own):
                errors.append(f"{name}: uses {what}")
    return errors


def check_not_empty(architecture, form, kernels):
    """`kernels`: {name: (number of its instructions, whether it ends its launch with an error)}."""
    errors = []
    for name, (instructions, traps) in kernels.items():
        if int(architecture) < 90 and CLUSTERED.search(name):
            if not traps:
                errors.append(f"sm_{architecture} {name}: expected an error where there are no clusters, in {form}")
        elif instructions < LEAST_INSTRUCTIONS or traps:
            errors.append(f"sm_{architecture} {name}: {instructions} instructions in {form}: it does nothing")
    return errors


def code_sizes(cubin):
    return {name: (len([opcode for opcode in opcodes if opcode != NOP]), BPT in opcodes)
            for name, opcodes in opcodes_of(cubin).items()}


def ptx_sizes(ptx):
    sizes = {}
    for text in re.split(r"\.entry (?=\w+\()", ptx)[1:]:
        instructions = re.findall(r"^\s*(?:@!?%p\d+ )?([a-z][\w.]*)[^;]*;", text, re.MULTILINE)
        sizes[text.split("(")[0]] = len(instructions), "trap" in instructions
    return sizes


def main():
    folder, architectures = sys.argv[1], sys.argv[2].replace(";", " ").split()
    if not folder:
        print("SKIPPED: the build has no CUDA kernels")
        sys.exit(SKIPPED)
    errors = []
    ptx = {}
    for file in KERNELS:
        for architecture in architectures:
            cubin = kept_file(folder, file, architecture, "cubin")
            errors += check_registers(architecture, file, resources_of(cubin))
            errors += check_not_empty(architecture, "machine code", code_sizes(cubin))
        ptx[file] = kept_file(folder, file, architectures[-1], "ptx").decode()
        errors += check_not_empty(architectures[-1], "PTX", ptx_sizes(ptx[file]))
    errors += check_copies(ptx["scan"]) + check_fused(ptx["fused"]) + check_skinny(ptx["skinny"])
    if errors:
        sys.exit("\n".join(errors))


if __name__ == "__main__":
    main()
