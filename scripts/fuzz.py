"""Fuzzes everything that reads bytes of strangers or of files (tests/fuzz), on the address and undefined behavior
sanitizers, and prints a table of what was run. Ends by itself, with 1 if a target failed.

The readers' targets are libFuzzer programs of the preset asan (clang: scripts/deps.sh fuzz). The other four make their
inputs by chance, because the threads of a server make the same input reach other lines each time, and gRPC is not
instrumented. What the fuzzer finds worth keeping is kept in build-asan/fuzz/corpus and used again by the next run.

An input that makes a target fail is written to build-asan/fuzz/crashes. Moved to tests/fuzz/crashes/TARGET, under a name
that says what was wrong, it is a test: fuzz_corpus_test and this script run every file there.
"""

import argparse
import concurrent.futures
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

from report_common import ROOT, progress, table

TESTS = ROOT / "tests" / "fuzz"
WORK = ROOT / "build-asan" / "fuzz"

# Targets of libFuzzer. tests/fuzz/fuzz_targets.h says what each reads.
READERS = tuple(
    "safetensors config lines sentencepiece marian text request infer state search headers http v2 rest messages texts".split()
)
TARGETS = (*READERS, "door", "model", "http2", "gateway")
MAX_BYTES = 4096  # of an input
MAX_FILES = 64  # of a target's committed inputs
MAX_CORPUS_BYTES = 48 << 10
TIMEOUT_S = 60  # for one input


def files_of(folder):
    return sorted(path for path in folder.iterdir() if path.is_file()) if folder.is_dir() else []


class Failed(Exception):
    """A target that broke a promise, or a program that could not be run."""


def output_of(command, **options):
    """The exit code and what was printed. An interrupt of the terminal reaches the program."""
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                          **options)
    return done.returncode, done.stdout


class Fuzzer:
    """The program of one target, and what it has done in this run."""

    def __init__(self, target, server_preset, temporary):
        self.target = target
        folder = "build" if server_preset == "release" else f"build-{server_preset}"
        self.program = ([ROOT / "build-asan" / "bin" / f"fuzz_{target}", f"-max_len={MAX_BYTES}", "-print_final_stats=1"]
                        if target in READERS else [ROOT / folder / "bin" / "plain_fuzzer", target])
        self.environment = dict(os.environ, TMPDIR=temporary)
        self.corpus = TESTS / "corpus" / target
        self.crashes = TESTS / "crashes" / target
        self.work = WORK / "corpus" / target
        self.work.mkdir(parents=True, exist_ok=True)
        self.inputs, self.seconds, self.edges, self.failure = 0, 0.0, "", None

    def run(self, *flags):
        """Runs the program over all inputs that there are, then as `flags` say."""
        stamp = time.strftime("%H%M%S")
        prefix = WORK / "crashes" / f"{self.target}-{stamp}-"
        prefix.parent.mkdir(parents=True, exist_ok=True)
        folders = [self.work, self.corpus, self.crashes]  # libFuzzer adds what it finds to the first
        start = time.monotonic()
        code, output = output_of([*self.program, f"-timeout={TIMEOUT_S}", f"-artifact_prefix={prefix}", *flags,
                                  *filter(pathlib.Path.is_dir, folders)], env=self.environment)
        self.seconds = time.monotonic() - start
        inputs = re.search(r"stat::number_of_executed_units:\s+(\d+)", output)
        self.inputs = int(inputs.group(1)) if inputs else 0
        edges = re.findall(r"\bcov: (\d+)", output)
        self.edges = f"{int(edges[-1]):,}" if edges else ""
        if code == 0 and inputs is None:
            self.failure = f"{self.target}: no figures at the end of its output"
        elif code != 0:
            log = WORK / "crashes" / f"{self.target}-{stamp}.log"
            log.write_text(output)
            kept = [path for path in files_of(WORK / "crashes") if path.name.startswith(prefix.name)]
            self.failure = (
                f"{self.target} failed ({code}); the report: {log.relative_to(ROOT)}; the input: "
                f"{kept[0].relative_to(ROOT) if kept else 'not known'}. To turn it into a test, move the input to "
                f"{self.crashes.relative_to(ROOT)}/, under a name that says what was wrong"
            )
        progress(self.failure or f"{self.target}: {self.inputs:,} inputs in {self.seconds:,.0f} s")

    def minimize(self):
        """Adds to the committed inputs what they lack, the smallest first."""
        with tempfile.TemporaryDirectory() as folder:
            chosen = pathlib.Path(folder) / "chosen"
            shutil.copytree(self.corpus, chosen)
            code, output = output_of([*self.program, "-merge=1", f"-timeout={TIMEOUT_S}", f"-artifact_prefix={folder}/", chosen,
                                      self.work], env=self.environment)
            if code != 0:
                raise Failed(f"{self.target}: -merge=1 failed:\n{output[-2000:]}")
            known = {path.read_bytes() for path in files_of(self.corpus)}
            size = sum(map(len, known))
            for contents in sorted({path.read_bytes() for path in files_of(chosen)} - known, key=lambda each: (len(each), each)):
                size += len(contents)
                if len(files_of(self.corpus)) >= MAX_FILES or size > MAX_CORPUS_BYTES:
                    break
                (self.corpus / hashlib.sha1(contents).hexdigest()[:16]).write_bytes(contents)

    def row(self):
        committed = [path.stat().st_size for path in files_of(self.corpus)]
        return (self.target, f"{self.inputs:,}", f"{self.inputs / max(self.seconds, 1e-3):,.0f}", f"{self.seconds:,.0f}", self.edges,
                len(committed), f"{sum(committed):,}", len(files_of(self.crashes)), int(bool(self.failure)))


HEADER = ("target", "inputs", "inputs/s", "seconds", "edges", "committed inputs", "bytes", "were crashes", "failures now")


def build(preset, target):
    progress(f"building: {preset}")
    for step in (["cmake", "--preset", preset], ["cmake", "--build", "--preset", preset, "--target", target]):
        code, output = output_of(step)
        if code != 0:
            raise Failed(f"{' '.join(step)} failed:\n{output[-4000:]}")


def parse_arguments():
    parser = argparse.ArgumentParser(prog="scripts/fuzz.sh", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flag = parser.add_argument
    flag("--seconds", type=int, default=0, metavar="S", help="seconds of each target, after the inputs that there are (%(default)s)")
    flag("--targets", default=",".join(TARGETS), metavar="A,B", help="some of %(default)s (all)")
    flag("--jobs", type=int, default=2, metavar="J", help="targets that run at a time (%(default)s)")
    flag("--seed", type=int, default=0, metavar="N")
    flag("--minimize", action="store_true", help="afterwards adds to tests/fuzz/corpus the smallest inputs that reach what the "
         f"committed ones do not, up to {MAX_FILES} files and {MAX_CORPUS_BYTES >> 10} KiB for a target")
    flag("--server_preset", default="asan", choices=("asan", "release"), help="the build that door, model, http2 and gateway run in: "
         "asan, or release, which is faster to build and misses more")
    args = parser.parse_args()
    args.targets = args.targets.split(",")
    for target in args.targets:
        if target not in TARGETS:
            parser.error(f"--targets: there is no '{target}', only {', '.join(TARGETS)}")
    if args.seconds < 0 or args.jobs < 1:
        parser.error("--seconds: at least 0; --jobs: at least 1")
    return args


def run_all(args, temporary):
    fuzzers = [Fuzzer(target, args.server_preset, temporary) for target in args.targets]
    if any(target in READERS for target in args.targets):
        build("asan", "fuzzers")
    if not all(target in READERS for target in args.targets):
        build(args.server_preset, "plain_fuzzer")
    seed = args.seed or int(time.time())
    progress(f"seed {seed}, targets: {' '.join(args.targets)}")
    limit = f"-max_total_time={args.seconds}" if args.seconds else "-runs=0"
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        list(pool.map(lambda fuzzer: fuzzer.run(f"-seed={seed}", limit), fuzzers))
    for fuzzer in fuzzers if args.minimize else ():
        if fuzzer.target in READERS and not fuzzer.failure:
            progress(f"minimizing: {fuzzer.target}")
            fuzzer.minimize()
    return fuzzers


def main():
    args = parse_arguments()
    in_memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="sru-fuzz-", dir=in_memory) as temporary:
        try:
            fuzzers = run_all(args, temporary)
        except Failed as failure:
            print(f"fuzz: {failure}", file=sys.stderr)
            return 1
    print(table(HEADER, [fuzzer.row() for fuzzer in fuzzers]))
    failures = [fuzzer.failure for fuzzer in fuzzers if fuzzer.failure]
    for failure in failures:
        print(f"fuzz: {failure}", file=sys.stderr)
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
