"""What scripts/fuzz.sh does; its --help says it."""

import argparse
import concurrent.futures
import datetime
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time

from report_common import ROOT, Table, progress

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
CHUNK_S = 120  # of a target at a time, so that a long run can be followed
SPEED_S = 2  # to measure a target's speed
SMALLEST_SHARE = 20  # a target gets at least a 20th of an equal share of --inputs


def files_of(folder):
    return sorted(path for path in folder.iterdir() if path.is_file()) if folder.is_dir() else []


class Failed(Exception):
    """A target that broke a promise, or a program that could not be run."""


class Fuzzer:
    """The program of one target, and what it has done in this run."""

    def __init__(self, target, server_preset, temporary):
        self.target = target
        self.server_preset = server_preset
        self.temporary = temporary
        self.corpus = TESTS / "corpus" / target
        self.crashes = TESTS / "crashes" / target
        self.work = WORK / "corpus" / target
        self.work.mkdir(parents=True, exist_ok=True)
        self.inputs = 0
        self.seconds = 0.0
        self.rate = 0.0  # inputs per second when last measured
        self.edges = None
        self.failure = None

    @property
    def is_reader(self):
        return self.target in READERS

    def program(self):
        if self.is_reader:
            return [str(ROOT / "build-asan" / "bin" / f"fuzz_{self.target}"), f"-max_len={MAX_BYTES}"]
        folder = "build" if self.server_preset == "release" else f"build-{self.server_preset}"
        return [str(ROOT / folder / "bin" / "plain_fuzzer"), self.target]

    def run(self, *flags, record=True):
        """Runs the program once over all inputs that there are, then as `flags` say. Raises Failed."""
        if self.failure:
            raise Failed(self.failure)
        (WORK / "crashes").mkdir(parents=True, exist_ok=True)
        stamp = datetime.datetime.now().strftime("%H%M%S")
        prefix = WORK / "crashes" / f"{self.target}-{stamp}-"
        folders = [self.work, self.corpus, self.crashes]  # libFuzzer adds what it finds to the first
        command = [
            *self.program(),
            f"-timeout={TIMEOUT_S}",
            f"-artifact_prefix={prefix}",
            *(["-print_final_stats=1"] if self.is_reader else []),
            *flags,
            *(str(folder) for folder in folders if folder.is_dir()),
        ]
        start = time.monotonic()
        code, output = self.output_of(command)
        seconds = time.monotonic() - start
        inputs = re.search(r"stat::number_of_executed_units:\s+(\d+)", output)
        edges = re.findall(r"\bcov: (\d+)", output)
        if edges:
            self.edges = int(edges[-1])
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
        if inputs is not None:
            count = int(inputs.group(1))
            self.rate = count / max(seconds, 1e-3)
            if record:
                self.inputs += count
                self.seconds += seconds
        if self.failure:
            raise Failed(self.failure)
        return seconds

    def output_of(self, command):
        """The exit code and what was printed. An interrupt of the terminal reaches the program."""
        environment = dict(os.environ, TMPDIR=self.temporary)
        done = subprocess.run(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            errors="replace",
        )
        return done.returncode, done.stdout

    def minimize(self):
        """Adds to the committed inputs what they lack, the smallest first."""
        with tempfile.TemporaryDirectory() as folder:
            chosen = pathlib.Path(folder) / "chosen"
            shutil.copytree(self.corpus, chosen)
            code, output = self.output_of(
                [*self.program(), "-merge=1", f"-timeout={TIMEOUT_S}", f"-artifact_prefix={folder}/", str(chosen),
                 str(self.work)]
            )
            if code != 0:
                raise Failed(f"{self.target}: -merge=1 failed:\n{output[-2000:]}")
            committed = files_of(self.corpus)
            known = {path.read_bytes() for path in committed}
            files, size = len(committed), sum(len(one) for one in known)
            for path in sorted(files_of(chosen), key=lambda path: (path.stat().st_size, path.name)):
                contents = path.read_bytes()
                if contents in known:
                    continue
                if files + 1 > MAX_FILES or size + len(contents) > MAX_CORPUS_BYTES:
                    break
                (self.corpus / hashlib.sha1(contents).hexdigest()[:16]).write_bytes(contents)
                files, size = files + 1, size + len(contents)


def build(preset, target=None):
    progress(f"building: {preset}")
    command = ["cmake", "--build", "--preset", preset, *(["--target", target] if target else [])]
    for step in (["cmake", "--preset", preset], command):
        result = subprocess.run(step, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if result.returncode != 0:
            raise Failed(f"{' '.join(step)} failed:\n{result.stdout[-4000:]}")


def shares(fuzzers, total):
    """How many of `total` inputs each gets: as many as it takes in the time that all have, but a minimum."""
    least = total // (SMALLEST_SHARE * len(fuzzers))
    rate = sum(fuzzer.rate for fuzzer in fuzzers)
    return {fuzzer.target: max(least, int(total * fuzzer.rate / rate)) for fuzzer in fuzzers}


def fuzz(fuzzer, inputs, seconds, seed, on_chunk):
    """Takes a target through its share, chunk by chunk."""
    chunk = 0
    while not fuzzer.failure:
        before = fuzzer.inputs
        flags = [f"-seed={seed + chunk}"]
        if seconds:
            flags.append(f"-max_total_time={seconds}")
        else:
            left = inputs - fuzzer.inputs
            if left <= 0:
                break
            flags.append(f"-runs={int(min(left, max(1000, fuzzer.rate * CHUNK_S)))}")
        try:
            fuzzer.run(*flags)
        except Failed as failure:
            progress(str(failure))
        on_chunk(fuzzer, fuzzer.inputs - before)
        chunk += 1
        if seconds:
            break


def commit():
    found = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True
    )
    return found.stdout.strip() or "unknown"


def corpus_columns(target):
    sizes = [path.stat().st_size for path in files_of(TESTS / "corpus" / target)]
    return [str(len(sizes)), f"{sum(sizes):,}", str(len(files_of(TESTS / "crashes" / target)))]


HEADER = ("target", "inputs", "inputs/s", "seconds", "edges", "committed inputs", "bytes", "were crashes", "failures now")


def run_table(fuzzers):
    rows = []
    for one in fuzzers:
        rate = one.inputs / one.seconds if one.seconds > 0 else 0
        edges = "" if one.edges is None else f"{one.edges:,}"
        rows.append((one.target, f"{one.inputs:,}", f"{rate:,.0f}", f"{one.seconds:,.0f}", edges, *corpus_columns(one.target),
                     int(bool(one.failure))))
    total, seconds = (sum(getattr(one, name) for one in fuzzers) for name in ("inputs", "seconds"))
    rows.append(("all", f"{total:,}", "", f"{seconds:,.0f}", "", "", "", "", sum(bool(one.failure) for one in fuzzers)))
    return Table(HEADER, rows)


def parse_arguments():
    parser = argparse.ArgumentParser(usage="scripts/fuzz.sh --help", add_help=False)
    parser.add_argument("--inputs", type=int, default=0)
    parser.add_argument("--seconds", type=int, default=0)
    parser.add_argument("--targets", default=",".join(TARGETS))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minimize", action="store_true")
    parser.add_argument("--server_preset", default="asan", choices=("asan", "release"))
    args = parser.parse_args()
    args.targets = args.targets.split(",")
    for target in args.targets:
        if target not in TARGETS:
            parser.error(f"--targets: there is no '{target}', only {', '.join(TARGETS)}")
    if args.inputs and args.seconds:
        parser.error("--inputs or --seconds, not both")
    if args.inputs < 0 or args.seconds < 0 or args.jobs < 1:
        parser.error("--inputs, --seconds: at least 0; --jobs: at least 1")
    return args


def run_all(args, temporary):
    fuzzers = [Fuzzer(target, args.server_preset, temporary) for target in args.targets]
    if any(fuzzer.is_reader for fuzzer in fuzzers):
        build("asan", "fuzzers")
    if not all(fuzzer.is_reader for fuzzer in fuzzers):
        build(args.server_preset, "plain_fuzzer")
    seed = args.seed or int(time.time())
    progress(f"commit {commit()}, seed {seed}, targets: {' '.join(args.targets)}")
    WORK.mkdir(parents=True, exist_ok=True)
    done_inputs = 0
    planned = {}
    lock = threading.Lock()

    def on_chunk(fuzzer, count):
        nonlocal done_inputs
        with lock:
            done_inputs += count
            share = f" of {planned[fuzzer.target]:,}" if fuzzer.target in planned else ""
            progress(f"{fuzzer.target}: {fuzzer.inputs:,}{share} inputs, {fuzzer.rate:,.0f}/s; {done_inputs:,} in all")

    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        def first(fuzzer):
            try:
                fuzzer.run("-runs=0", record=False)
                if args.inputs:
                    fuzzer.run(f"-max_total_time={SPEED_S}", record=False)
            except Failed as failure:
                progress(str(failure))

        list(pool.map(first, fuzzers))
        progress("committed inputs: " + ("withstood" if not any(f.failure for f in fuzzers) else "NOT withstood"))
        sound = [fuzzer for fuzzer in fuzzers if not fuzzer.failure]
        if args.inputs and sound:
            planned.update(shares(sound, args.inputs))
        if args.inputs or args.seconds:
            list(pool.map(lambda f: fuzz(f, planned.get(f.target, 0), args.seconds, seed, on_chunk), sound))
    if args.minimize:
        for fuzzer in fuzzers:
            if fuzzer.is_reader and not fuzzer.failure:
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
    print(run_table(fuzzers))
    for fuzzer in fuzzers:
        if fuzzer.failure:
            print(f"fuzz: {fuzzer.failure}", file=sys.stderr)
    return int(any(fuzzer.failure for fuzzer in fuzzers))


if __name__ == "__main__":
    sys.exit(main())
