"""The harness of scripts/report.py: servers, load, rounds in which things take turns, rows with what is wanted of them, and the page.

A part of the report is a function of (args, models) that yields rows, or raises NotMeasured with the reason. Every ratio is of two things
that are measured in one run on one machine. Needs Python 3.9 only.
"""

import argparse
import collections
import datetime
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parent.parent
PRETRAINED = ROOT / "models" / "pretrained"
SKIPPED = 77
# The size of the paper's language model of 12 layers.
PAPER = {"input_size": 256, "hidden_size": 2048, "num_layers": 12, "projection_size": 512}
PAPER_VOCABULARY = 205


class NotMeasured(Exception):
    """A part cannot run here; says why. `code`: exit code of the program that says so."""

    def __init__(self, why, code=None):
        super().__init__(why)
        self.code = code


def progress(text):
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


# ---------------------------------------------------------------- programs


def one_core():
    """The core that one-core comparisons run on: the last that this process may use, since interrupts like the first."""
    return max(os.sched_getaffinity(0))


def last_line(text):
    return (text.strip().splitlines() or ["it said nothing"])[-1]


def start(words, core=None, **options):
    """A process whose streams are text; with `core`, all of its threads run on that core."""
    try:
        return subprocess.Popen([str(word) for word in words], text=True,
                                preexec_fn=None if core is None else lambda: os.sched_setaffinity(0, {core}), **options)
    except OSError as error:
        raise NotMeasured(f"{words[0]} does not start: {error.strerror}") from error


def output_of(words, core=None, echo=False, partial=False):
    """What a program prints; with `partial` even if it fails after that. With `echo`, its messages are shown."""
    last = ""
    with tempfile.TemporaryFile("w+") as output, start(words, core, cwd=ROOT, stdout=output, stderr=subprocess.PIPE) as process:
        for line in process.stderr:
            last = line.strip() or last
            if echo:
                sys.stderr.write("    " + line)
        code = process.wait()
        output.seek(0)
        text = output.read()
    if code and not (partial and text.strip()):
        raise NotMeasured(f"{pathlib.Path(words[0]).name}: {last_line(last or text)}", code)
    return text


def bench(args, command, server, *flags, core=None):
    """The JSON object of a run of sru_bench, which fails after printing it when no call was answered OK."""
    words = [args.bin / "sru_bench", command, f"--address={server.address}", "--json", f"--duration={args.seconds:g}s", *flags]
    return json.loads(output_of(words, core, partial=True))


def kernel_benchmarks(args, pattern):
    """name with its arguments -> the median of its times in microseconds; repetitions are interleaved, so that ratios of two hold."""
    words = [args.bin / "kernel_benchmarks", f"--benchmark_filter={pattern}", "--benchmark_format=json",
             "--benchmark_enable_random_interleaving", f"--benchmark_repetitions={args.rounds}",
             f"--benchmark_min_time={min(0.2, args.seconds):g}"]
    text = output_of(words, one_core())
    times = collections.defaultdict(list)
    for run in json.loads(text)["benchmarks"] if text.strip() else []:
        if run["run_type"] == "iteration" and "error_occurred" not in run:
            times[run["run_name"]].append(run["real_time"])
    if not times:
        raise NotMeasured(f"kernel_benchmarks has no {pattern}")
    return {name: statistics.median(values) for name, values in times.items()}


class Program:
    """A program that is sent one line at a time, a JSON value or what `encode` makes of it, and answers each with one JSON value."""

    def __init__(self, words, core=None):
        self._process = start(words, core, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              env={**os.environ, "OMP_NUM_THREADS": "1"})

    def ask(self, value, encode=json.dumps):
        try:
            self._process.stdin.write(encode(value) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            self._process.wait()
            raise NotMeasured(last_line(self._process.stderr.read()))
        return json.loads(line)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.communicate()


class Process:
    """A server, which says its addresses in its first line."""

    def __init__(self, words, core=None, **options):
        self.process = start(words, core, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)
        ready = self.process.stdout.readline()
        found = re.search(r"listening on ([^,\s]+)(?:.*, HTTP on ([^,\s]+))?", ready)
        if not found:
            self.process.terminate()
            raise NotMeasured(last_line(self.process.communicate()[1] or ready))
        # Its log must not fill the pipe.
        self._log = threading.Thread(target=self.process.stderr.read, daemon=True)
        self._log.start()
        self.address, self.http_address = found.groups()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        self._log.join()
        self.process.stdout.close()
        self.process.stderr.close()

    def seconds(self):
        """Processor time of all of its threads so far."""
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory_bytes(self, which="VmRSS"):
        """Memory that is resident now, or with VmHWM the most that ever was."""
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
        return 1024 * int(re.search(which + r":\s+(\d+) kB", status).group(1))


class Server(Process):
    """A server of this project on ports that the system picks."""

    def __init__(self, args, repository, dtype="float32", flags=(), core=None):
        super().__init__([args.bin / "sru_server", f"--model_repository={repository}", f"--backend={args.backend}",
                          f"--dtype={dtype}", "--listen=127.0.0.1:0", "--metrics_listen=127.0.0.1:0", "--http_listen=", *flags], core)


# ---------------------------------------------------------------- models


class Models:
    """The repositories that are served, made when they are first asked for."""

    def __init__(self, args, folder):
        self.args, self.folder = args, pathlib.Path(folder)

    def make(self, name, make):
        """The repository of this name, which make(folder) fills."""
        repository = self.folder / name
        if not repository.exists():
            progress(f"makes the repository '{name}'")
            make(repository)
        return repository

    def python(self, *words):
        output_of([self.args.python, *words])

    def export(self, source, target):
        """Exports a folder with checkpoint.pt and config.json, and what is beside them: vocabularies, labels."""
        words = ["--checkpoint", source / "checkpoint.pt", "--config", source / "config.json", "--out", target]
        for flag, file in (("--vocab", "vocab.txt"), ("--labels", "labels.txt"), ("--subwords", "spm.model")):
            if (source / file).exists():
                words += [flag, source / file]
        self.python(ROOT / "models" / "export_torch.py", *words)

    def shared(self, *names):
        """A file or folder of --shared."""
        path = self.args.shared.joinpath(*names)
        if not path.exists():
            raise NotMeasured(f"{path} is not here")
        return path

    def lines(self, *names):
        """The JSON values of a file of lines of --shared."""
        return [json.loads(line) for line in self.shared(*names).read_text(encoding="utf-8").splitlines()]

    def checkpoint(self, name):
        """A model of SHARED/checkpoints."""
        source = self.shared("checkpoints", name)
        return self.make(name, lambda repository: self.export(source, repository / name / "1"))


# ---------------------------------------------------------------- figures


def alternate(rounds, functions):
    """name -> what its function returned in each of so many rounds, in which they take turns."""
    found = {name: [] for name in functions}
    for _ in range(rounds):
        for name, function in functions.items():
            found[name].append(function())
    return found


def medians(rounds, functions):
    return {name: statistics.median(values) for name, values in alternate(rounds, functions).items()}


def spread(values, digits=2):
    """min to max, and the median"""
    return f"{min(values):,.{digits}f} to {max(values):,.{digits}f}, median {statistics.median(values):,.{digits}f}"


Row = collections.namedtuple("Row", "name figure wanted good", defaults=("", True))


def at_most(name, value, limit, detail="", digits=2):
    return Row(name, f"{value:.{digits}f}{detail}", f"at most {limit:g}", value <= limit)


def at_least(name, value, limit, detail="", digits=2):
    return Row(name, f"{value:.{digits}f}{detail}", f"at least {limit:g}", value >= limit)


# ---------------------------------------------------------------- the page


class Table(collections.namedtuple("Table", "header rows")):
    """Markdown of columns."""

    def __str__(self):
        lines = ["| " + " | ".join(map(str, cells)) + " |" for cells in [self.header, *self.rows]]
        return "\n".join([lines[0], "|" + "---|" * len(self.header), *lines[1:]])


def machine(backend):
    """A sentence on what the figures were measured with."""
    text = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8")
    name = re.search(r"model name\s*:\s*(.*)", text)
    flags = (re.search(r"flags\s*:\s*(.*)", text) or ("", ""))[1].split()
    sets = " ".join(flag for flag in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if flag in flags)
    try:
        commit = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
    except FileNotFoundError:  # there is no git
        commit = ""
    return (f"Machine: {name[1] if name else 'unknown processor'}, {os.cpu_count()} cores ({sets}), backend {backend}."
            f" Commit: {commit or 'unknown'}. Date: {datetime.date.today()}.")


class Report:
    """A page: a table of rows for each part, below the first line of what its function says of it."""

    def __init__(self, page, parts):
        self.parts = {part.__name__: part for part in parts}
        self.parser = argparse.ArgumentParser(description=sys.modules["__main__"].__doc__,
                                              formatter_class=argparse.RawDescriptionHelpFormatter)
        flag = self.parser.add_argument
        flag("--bin", type=pathlib.Path, default=ROOT / "build" / "bin", help="folder with the programs (build/bin)")
        flag("--out", type=pathlib.Path, default=page, help=f"the page ({page.relative_to(ROOT)})")
        flag("--shared", type=pathlib.Path, default=os.environ.get("SRU_SHARED_DIR", ROOT.parent / "shared"),
             help="folder with checkpoints, datasets and references (../shared)")
        flag("--python", default=sys.executable, help="interpreter with PyTorch and the package sru (%(default)s)")
        flag("--backend", default="cpu")
        flag("--parts", default=",".join(self.parts), help="of " + ", ".join(self.parts))
        flag("--rounds", type=int, default=5, help="in which what is compared takes turns (%(default)s)")
        flag("--seconds", type=float, default=5, help="of each measurement (%(default)s)")
        flag("--quick", action="store_true", help="one round of a moment, which judges nothing")

    def arguments(self, words=None):
        args = self.parser.parse_args(words)
        if args.quick:
            self.parser.set_defaults(seconds=0.1, rounds=1)
            args = self.parser.parse_args(words)
        args.bin = args.bin.resolve()
        args.parts = args.parts.split(",")
        for part in args.parts:
            if part not in self.parts:
                self.parser.error(f"--parts: expected some of {', '.join(self.parts)}, found {part}")
        return args

    def run(self, words=None):
        """Measures the parts, writes the page after each row, so that an interruption loses none, and returns the exit code: 1 if a
        figure is not as wanted, 77 if nothing can be measured here."""
        args = self.arguments(words)
        args.out.parent.mkdir(parents=True, exist_ok=True)
        quick = " **A quick run: its figures mean nothing.**" if args.quick else ""
        text = f"# Figures\n\nWritten by `scripts/report.py`. {machine(args.backend)}{quick}\n"
        failed, missing = [], []
        with tempfile.TemporaryDirectory() as folder:
            models = Models(args, folder)
            for part in args.parts:
                progress(part)
                text += f"\n## {part}\n\n{self.parts[part].__doc__.splitlines()[0]}\n\n{Table(('', 'found', 'wanted'), [])}\n"
                try:
                    for row in self.parts[part](args, models):
                        progress(f"  {row.name}: {row.figure}" + (f", wanted {row.wanted}" if row.wanted else ""))
                        text += f"| {row.name} | {row.figure if row.good else f'**{row.figure}**'} | {row.wanted} |\n"
                        args.out.write_text(text, encoding="utf-8")
                        if not row.good and not args.quick:
                            failed.append(row)
                except (NotMeasured, ZeroDivisionError) as error:
                    if isinstance(error, ZeroDivisionError) and not args.quick:  # a moment may be too short for a single call
                        raise
                    missing.append(f"{part}: {error}")
                    text += f"\nNot measured: {error}.\n"
                    progress(f"  not measured: {error}")
                args.out.write_text(text, encoding="utf-8")
        progress(f"wrote {args.out}")
        if len(missing) == len(args.parts):
            print(f"SKIPPED: nothing can be measured here: {'; '.join(missing)}")
            return SKIPPED
        for row in failed:
            print(f"{row.name}: found {row.figure}, wanted {row.wanted}", file=sys.stderr)
        return 1 if failed else 0
