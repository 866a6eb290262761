#!/usr/bin/env python3
"""What the GPUs' machine code says about the speed of the scan, the fused layer and the row kernels.

Compiles the kernels with nvcc and decodes the instructions of the cubins: no GPU and no disassembler
is needed. For each kernel's main loop it prints

* instructions per step: all in the loop, predicated ones included, over the steps of one round;
* static cycles per step: one warp alone on its scheduler, whose copies have always landed. It is a
  model, good to perhaps 20% and meant to compare two versions: the instructions' stall counts, and
  waits for the scoreboards with the latencies below;
* waits: places in the whole kernel where an instruction waits for a load from global memory, and how
  many of the loads waited for had no other one begun beside them ("alone").

Of attention it looks at the loops over eight keys and eight values: static cycles per key and value for 64 columns; of Predict at the walk that
adds the bias: static cycles per symbol of a thread.

    scripts/gpu_static.py --architectures=80,90,100 [--nvcc=PATH] [--source=FOLDER] [--kernels=scan]

prints a Markdown table. Used by tests/kernels/cuda_sass_test.py, which holds the figures.
"""

import argparse
import collections
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile

FILES = ("scan", "fused", "rows", "operations")
# Opcodes: bits 0 to 11 of an instruction, the form (registers, constant bank, ...) included.
LDG, STG, LDS, STS, LDGSTS, LDGDEPBAR, DEPBAR = 0x981, 0x986, 0x984, 0x988, 0xfae, 0x9af, 0x91a
BRA, EXIT, MUFU, LDC, BAR, HMMA = 0x947, 0x94d, 0x308, 0xb82, 0xb1d, 0x23c
LDCU = 0x7ac
LD, ST, ACQBULK = 0x980, 0x985, 0x82e
# Cycles from an instruction to its result, for those that take a scoreboard.
LATENCY = {MUFU: 20, LDS: 31, LDC: 35, LDCU: 35, HMMA: 18, LDG: 300, LD: 300}
OTHER_LATENCY = 20
# Of a fused layer: steps of a chunk, and in it two gates and an activation of each.
FUSED_STEPS = 16
FUSED_MUFU = 3 * FUSED_STEPS
ATTEND_GROUP = 8  # kAttendGroup
PREDICT_GROUP = 8  # of the walk that adds the bias
# An ELF symbol; records of .nv.info.
ELF_SYMBOL_BYTES = 24
INFO_WITH_BYTES, INFO_REGISTERS, INFO_FRAME = 4, 0x2f, 0x11
READ_LATENCY = 12  # until a memory instruction has read its registers


class Instruction:
    """128 bits: what is done in the lower ones, how it is scheduled in the upper ones."""

    def __init__(self, architecture, address, low, high):
        self.address = address
        self.opcode = low & 0xfff
        self.predicate = (low >> 12) & 0xf  # 7 = always
        self.stall = (high >> 41) & 0xf
        self.write_barrier = (high >> 46) & 7  # 7 = none
        self.read_barrier = (high >> 49) & 7
        self.waits = (high >> 52) & 0x3f
        self.target = None
        if self.opcode == BRA:
            # A signed number from the next instruction on. From sm_90 on its bits 2 to 9 are elsewhere.
            offset = (low >> 34) | ((high & 0x3ffff) << 30)
            if offset >> 47:
                offset -= 1 << 48
            split = architecture >= 90
            self.target = address + 16 + (offset * 1024 + (low >> 16 & 0xff) * 4 if split
                                          else offset * 4)
        # `@!PT LDS RZ, [RZ]` does nothing (a workaround of sm_80 to sm_90, three before each copy).
        self.is_empty = self.predicate == 0xf


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


def functions(architecture, cubin):
    """The kernels of a cubin: {mangled name: [Instruction]}."""
    found = {}
    for name, (offset, size) in sections_of(cubin).items():
        if name.startswith(".text."):
            words = struct.unpack_from(f"<{size // 8}Q", cubin, offset)
            found[name[len(".text."):]] = [Instruction(architecture, 8 * i, words[i], words[i + 1])
                                           for i in range(0, len(words), 2)]
    return found


def resources(cubin):
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
    """The cubin or PTX of a file of kernels that nvcc left in `folder` (--keep) when it compiled for several architectures."""
    for file in (f"{name}.compute_{architecture}.sm_{architecture}.{kind}", f"{name}.compute_{architecture}.{kind}"):
        path = os.path.join(folder, file)
        if os.path.exists(path):
            with open(path, "rb") as opened:
                return opened.read()
    sys.exit(f"{folder}: nvcc has not left {file} here; build sru_kernels again")


def loops(code):
    """Innermost loops: (first, last) addresses."""
    found = [(i.target, i.address) for i in code
             if i.target is not None and i.target < i.address]
    return [loop for loop in found
            if not any(other != loop and loop[0] <= other[0] and other[1] <= loop[1]
                       for other in found)]


def body(code, loop):
    return [i for i in code if loop[0] <= i.address <= loop[1] and not i.is_empty]


def static_cycles(loop, rounds=3):
    """Cycles of one round of a loop, from the start of the second one to that of the third one; of
    one pass through code that is no loop, with one round."""
    now = 0
    ready = [0] * 6
    starts = []
    for _ in range(rounds):
        starts.append(now)
        for i in loop:
            for barrier in range(6):
                if i.waits >> barrier & 1:
                    now = max(now, ready[barrier])
            if i.write_barrier < 6:
                ready[i.write_barrier] = max(ready[i.write_barrier],
                                             now + LATENCY.get(i.opcode, OTHER_LATENCY))
            if i.read_barrier < 6:
                ready[i.read_barrier] = max(ready[i.read_barrier], now + READ_LATENCY)
            now += max(1, i.stall)
    return starts[2] - starts[1] if rounds > 1 else now


def global_waits(code):
    """(places that wait for loads from global memory, those of them that wait for one load alone)."""
    waits = alone = 0
    pending = [0] * 6
    for i in code:
        done = [b for b in range(6) if i.waits >> b & 1 and pending[b]]
        if done:
            waits += 1
            if sum(pending) == 1:
                alone += 1
            for b in done:
                pending[b] = 0
        if i.opcode == LDG and i.write_barrier < 6:
            pending[i.write_barrier] += 1
    return waits, alone


def demangled(name):
    """The kernel's template arguments, as in `bf16 x2 by id`."""
    match = re.search(r"cuda\d+([A-Za-z]+Kernel)I?(.*)", name)
    arguments = match.group(2)
    dtype = "bf16" if "BFloat16" in arguments else "f32" if arguments.startswith("f") else ""
    integers = [int(i) for i in re.findall(r"L[ibNA-Za-z0-9_]*?(\d+)E", arguments)]
    return match.group(1), dtype, integers


Figures = collections.namedtuple("Figures", "kernel dtype arguments instructions cycles waits alone")


def compile_file(nvcc, source, name, architecture, folder):
    output = os.path.join(folder, f"{name}.{architecture}.cubin")
    command = [nvcc, "-std=c++17", "-O3", "-fmad=false", "-I", source, "-cubin",
               f"-arch=sm_{architecture}", os.path.join(source, f"kernels/cuda/kernels/{name}.cu"), "-o",
               output]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stdout}")
    with open(output, "rb") as file:
        return functions(int(architecture), file.read())


def main_loop(kernel, code):
    """The loop over steps, and how many steps (or rows) a round of it has; None if there is none."""
    best = None
    for loop in loops(code):
        instructions = body(code, loop)
        count = collections.Counter(i.opcode for i in instructions)
        if kernel == "ScanKernel":
            steps = count[LDGSTS] if count[LDGDEPBAR] and count[MUFU] else 0
        else:
            steps = count[LDG]
        if steps and (best is None or steps > best[0]):
            best = (steps, instructions)
    return best


def fused_chunk(code):
    """A fused layer's scan of a whole chunk, from its first gate to its last one, without what the
    chunk begins with; None if there is none. A chunk that is not full has branches between its steps."""
    instructions = [i for i in code if not i.is_empty]
    gates = [n for n, i in enumerate(instructions) if i.opcode == MUFU]
    found = [instructions[gates[n]:gates[n + FUSED_MUFU - 1] + 1]
             for n in range(len(gates) - FUSED_MUFU + 1)]
    return min(found, key=len, default=None)


def attend_loops(code):
    """The loops over a group of keys and over one of values, by the loads that they have for each."""
    found = [body(code, loop) for loop in loops(code)]
    return [loop for loop in found
            if sum(i.opcode in (LDG, LD) for i in loop) >= ATTEND_GROUP]


def predict_walk(code):
    """The walk over eight logits that adds eight biases, which must all be on their way at a time; None if there is none."""
    for loop in loops(code):
        found = body(code, loop)
        count = collections.Counter(i.opcode for i in found)
        if (count[LDG], count[LDS]) == (PREDICT_GROUP, PREDICT_GROUP) or (
                count[LDG] == 2 * PREDICT_GROUP and count[STG] == PREDICT_GROUP):
            return found
    return None


def scan_steps(loop, by_token):
    """Steps of a round: each copies 4 planes, and the id of a later step."""
    return sum(i.opcode == LDGSTS for i in loop) / (5 if by_token else 4)


def figures(kernels):
    rows = []
    for name, code in kernels.items():
        # A kernel that loads nothing is empty: the architecture lacks what it needs.
        if "Kernel" not in name or not any(i.opcode in (LDG, LD) for i in code):
            continue
        kernel, dtype, arguments = demangled(name)
        waits, alone = global_waits(code)
        found = main_loop(kernel, code)
        instructions = cycles = None
        if found:
            steps, loop = found
            if kernel == "ScanKernel":
                steps = scan_steps(loop, bool(arguments[1]))
            instructions = len(loop) / steps
            cycles = static_cycles(loop) / steps
        if kernel == "FusedKernel" and (chunk := fused_chunk(code)):
            instructions = len(chunk) / FUSED_STEPS
            cycles = static_cycles(chunk, rounds=1) / FUSED_STEPS
        if kernel == "AttendKernel" and (groups := attend_loops(code)):
            instructions = sum(map(len, groups)) / ATTEND_GROUP
            cycles = sum(map(static_cycles, groups)) / ATTEND_GROUP
        if kernel == "PredictKernel":
            walk = predict_walk(code)
            instructions = len(walk) / PREDICT_GROUP if walk else None
            cycles = static_cycles(walk) / PREDICT_GROUP if walk else None
        rows.append(Figures(kernel, dtype, tuple(arguments), instructions, cycles, waits, alone))
    return sorted(rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--nvcc", default=shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc")
    parser.add_argument("--source", default=os.path.join(os.path.dirname(__file__), ".."))
    parser.add_argument("--architectures", default="80,90,100")
    parser.add_argument("--kernels", default=",".join(FILES))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for file in options.kernels.split(","):
            for architecture in options.architectures.split(","):
                print(f"\n### {file}.cu, sm_{architecture}\n")
                print("| kernel | arguments | instructions | static cycles | waits | alone |")
                print("|---|---|---|---|---|---|")
                for row in figures(compile_file(options.nvcc, options.source, file, architecture,
                                                folder)):
                    number = "{:.1f}".format if row.instructions else lambda _: "-"
                    print(f"| {row.kernel} | {row.dtype} {' '.join(map(str, row.arguments))} "
                          f"| {number(row.instructions)} | {number(row.cycles)} | {row.waits} "
                          f"| {row.alone} |")


if __name__ == "__main__":
    main()
