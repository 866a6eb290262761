"""The harness of scripts/report.py and gpu_report.py: programs and their limits, servers, load, rounds in which things take turns, rows
with what is wanted of them, and the page.

A part of a report is a function of (args, models) that yields rows, or raises NotMeasured with the reason. Every ratio is of two things
that are measured in one run on one machine. Needs Python 3.9 only.
"""

import argparse
import array
import collections
import contextlib
import datetime
import json
import math
import os
import pathlib
import random
import re
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parent.parent
PRETRAINED = ROOT / "models" / "pretrained"
SKIPPED = 77
LOG_CHARACTERS = 200000  # of each program
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


class Limits:
    """What all programs of a report share: when it ends, how much shorter the limits of its steps are, and the file of what they say."""
    end, scale, log = math.inf, 1.0, None

    @classmethod
    def left(cls):
        return cls.end - time.monotonic()

    @classmethod
    def within(cls, seconds):
        """A limit in seconds, or the time that is left if that is less."""
        return max(0.1, min(seconds * cls.scale, cls.left()))


def start(words, core=None, **options):
    """A process whose streams are text; with `core`, all of its threads run on that core."""
    try:
        return subprocess.Popen([str(word) for word in words], text=True, errors="replace", start_new_session=True,
                                preexec_fn=None if core is None else lambda: os.sched_setaffinity(0, {core}), **options)
    except OSError as error:
        raise NotMeasured(f"{words[0]} does not start: {error.strerror}") from error


def end_of(process, seconds=math.inf):
    """Its exit code, or None if it takes longer and is killed with all that it has started. A driver that hangs keeps a process from
    dying: it is left behind then."""
    limit, code = Limits.within(seconds), None
    try:
        code = process.wait(None if limit == math.inf else limit)
    except subprocess.TimeoutExpired:
        pass
    finally:  # also if the report is interrupted
        if code is None:
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(timeout=3)
    return code


def run(words, core=None, seconds=math.inf, given="", echo=False, **options):
    """(exit code, output, messages) of a program that reads `given`; the code is None after the limit. With `echo`, its messages are shown."""
    def file():
        return tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # a sanitizer may print any bytes

    with file() as source, file() as output, file() as messages:
        source.write(given)
        source.seek(0)
        code = end_of(start(words, core, cwd=ROOT, stdin=source, stdout=output, stderr=None if echo else messages, **options), seconds)
        output.seek(0)
        messages.seek(0)
        said = output.read(), messages.read()
    if Limits.log:
        with open(Limits.log, "a", encoding="utf-8") as log:
            log.write(f"==== {' '.join(map(str, words))[:500]}: {code}\n{''.join(said)[-LOG_CHARACTERS:]}\n")
    return code, *said


def output_of(words, core=None, partial=False, **options):
    """What a program prints; with `partial` even if it fails after that."""
    code, output, messages = run(words, core, **options)
    if code != 0 and not (partial and output.strip()):
        why = last_line(messages or output) if code is not None else "it ran out of time"
        raise NotMeasured(f"{pathlib.Path(words[0]).name}: {why}", code)
    return output


def bench(args, command, server, *flags, core=None):
    """The JSON object of a run of sru_bench, which fails after printing it when no call was answered OK."""
    words = [args.bin / "sru_bench", command, f"--address={server.address}", "--json", f"--duration={args.seconds:g}s", *flags]
    return json.loads(output_of(words, core, partial=True, seconds=60 + 2 * args.seconds))


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
        hangs = threading.Timer(Limits.within(60), self.process.kill)
        hangs.start()
        ready = self.process.stdout.readline()
        hangs.cancel()
        found = re.search(r"listening on ([^,\s]+)(?:, metrics on ([^,\s]+))?(?:.*, HTTP on ([^,\s]+))?", ready)
        if not found:
            self.process.terminate()
            raise NotMeasured(last_line(self.process.communicate()[1] or ready or "the server does not start"))
        # Its log must not fill the pipe.
        self._log = threading.Thread(target=self.process.stderr.read, daemon=True)
        self._log.start()
        self.address, self.metrics_address, self.http_address = found.groups()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        end_of(self.process, 20)
        self._log.join(1)
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

    def export(self, source, target):
        """Exports a folder with checkpoint.pt and config.json, and what is beside them: vocabularies, labels."""
        words = [self.args.python, ROOT / "models" / "export_torch.py", "--checkpoint", source / "checkpoint.pt",
                 "--config", source / "config.json", "--out", target]
        for flag, file in (("--vocab", "vocab.txt"), ("--labels", "labels.txt"), ("--subwords", "spm.model")):
            if (source / file).exists():
                words += [flag, source / file]
        output_of(words)

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


def write_language_model(folder, encoder, vocabulary):
    """A language model with random weights, as tests/golden/make_language_model.py writes one with the published package."""
    sys.path.append(str(ROOT / "models"))  # nothing else here needs it
    from exporter.encoder import read_encoder
    from exporter.stack import expected_tensors
    shapes = expected_tensors(read_encoder("here", {"sru_config": encoder}), vocabulary, 0, "language_model")
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(
        {"format_version": 1, "task": "language_model", "description": "random weights", "encoder": encoder,
         "embedding": {"vocabulary_size": vocabulary},
         "preprocessing": {"type": "bytes", "vocabulary": list(range(32, 32 + vocabulary))}}), encoding="utf-8")
    header, end = {}, 0
    for name, shape in shapes.items():
        begin, end = end, end + 4 * math.prod(shape)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}
    generator = random.Random(1)
    numbers = [generator.gauss(0, 1) for _ in range(65521)]  # a prime, so that no two columns are alike
    with open(folder / "model.safetensors", "wb") as file:
        text = json.dumps(header).encode()
        file.write(struct.pack("<Q", len(text)) + text)
        for shape in shapes.values():
            scale = shape[0] ** -0.5 if len(shape) == 2 else 1.0
            some = array.array("f", [scale * number for number in numbers])
            file.write((some * (math.prod(shape) // len(some) + 1))[:math.prod(shape)].tobytes())


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
OUT_OF_TIME = ("ran out of time", "no time left")  # figures of steps that a later run repeats


def at_most(name, value, limit, detail="", digits=2):
    return Row(name, f"{value:.{digits}f}{detail}", f"at most {limit:g}", value <= limit)


def at_least(name, value, limit, detail="", digits=2):
    return Row(name, f"{value:.{digits}f}{detail}", f"at least {limit:g}", value >= limit)


# ---------------------------------------------------------------- the page


def table(header, rows):
    """Markdown of columns."""
    lines = ["| " + " | ".join(map(str, cells)) + " |" for cells in [header, *rows]]
    return "\n".join([lines[0], "|" + "---|" * len(header), *lines[1:]])


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
    """A page: a table of rows for each part, below the first line of what its function says of it. The same rows are beside it as JSON."""

    def __init__(self, page, parts):
        self.parts = {part.__name__: part for part in parts}
        self.machine = ""  # what else it is, besides its processor
        self.rows, self.done, self.missing = {}, [], {}  # by part, and its rows by name; parts; why, by part
        self.parser = argparse.ArgumentParser(
            description=sys.modules["__main__"].__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
            epilog="parts:\n" + "\n".join(f"  {name:11}{part.__doc__.splitlines()[0]}" for name, part in self.parts.items()))
        flag = self.parser.add_argument
        flag("--bin", type=pathlib.Path, default=ROOT / "build" / "bin", help="folder with the programs (build/bin)")
        flag("--out", type=pathlib.Path, default=page, help="the page (%(default)s)")
        shared = ROOT / "shared" if (ROOT / "shared").exists() else ROOT.parent / "shared"
        flag("--shared", type=pathlib.Path, default=os.environ.get("SRU_SHARED_DIR", shared),
             help="folder with checkpoints, datasets and references (shared or ../shared)")
        flag("--python", default=sys.executable, help="interpreter with PyTorch and the package sru (%(default)s)")
        flag("--backend", default="cpu")
        flag("--parts", help="of " + ",".join(self.parts) + " (all that are not done)")
        flag("--resume", type=pathlib.Path, help="JSON of an earlier run, if there is one, whose rows are kept")
        flag("--rounds", type=int, default=5, help="in which what is compared takes turns (%(default)s)")
        flag("--seconds", type=float, default=5, help="of each measurement (%(default)s)")
        flag("--quick", action="store_true", help="one round of a moment, which judges nothing")

    def arguments(self, words=None):
        args = self.parser.parse_args(words)
        if args.quick:
            self.parser.set_defaults(seconds=0.1, rounds=1)
            args = self.parser.parse_args(words)
        args.bin = args.bin.resolve()
        earlier = json.loads(args.resume.read_text(encoding="utf-8")) if args.resume and args.resume.exists() else {}
        # What failed or had no time is measured again or missing, not kept.
        self.rows = {part: {row.name: row for row in map(lambda row: Row(*row), rows) if row.good and not row.figure.startswith(OUT_OF_TIME)}
                     for part, rows in earlier.get("rows", {}).items() if part in self.parts}
        self.done, self.missing = earlier.get("done", []), {}
        args.passed = {row.name: row for rows in self.rows.values() for row in rows.values() if row.good}
        args.parts = args.parts.split(",") if args.parts else [part for part in self.parts if part not in self.done]
        for part in args.parts:
            if part not in self.parts:
                self.parser.error(f"--parts: expected some of {', '.join(self.parts)}, found {part}")
        return args

    def write(self, args):
        quick = " **A quick run: its figures mean nothing.**" if args.quick else ""
        about = f"{self.machine}{machine(args.backend)}"
        text = f"# Figures\n\nWritten by `scripts/{pathlib.Path(sys.argv[0]).name}`. {about}{quick}\n"
        for part, rows in self.rows.items():
            cells = [(row.name, row.figure if row.good else f"**{row.figure}**", row.wanted) for row in rows.values()]
            text += f"\n## {part}\n\n{self.parts[part].__doc__.splitlines()[0]}\n\n{table(('', 'found', 'wanted'), cells)}\n"
            if part in self.missing:
                text += f"\nNot measured: {self.missing[part]}.\n"
        args.out.write_text(text, encoding="utf-8")
        data = {"machine": about, "done": self.done, "rows": {part: list(rows.values()) for part, rows in self.rows.items()}}
        args.out.with_suffix(".json").write_text(json.dumps(data, indent=1), encoding="utf-8")

    def run(self, words=None):
        return self.measure(self.arguments(words))

    def measure(self, args):
        """Measures the parts, writes the page after each row, so that an interruption loses none, and returns the exit code: 1 if a
        figure is not as wanted, 77 if nothing can be measured here."""
        args.out.parent.mkdir(parents=True, exist_ok=True)
        failed = []
        with tempfile.TemporaryDirectory() as folder:
            models = Models(args, folder)
            for part in args.parts:
                progress(part)
                rows = self.rows[part] = self.rows.pop(part, {})
                cut = False
                try:
                    for row in self.parts[part](args, models):
                        progress(f"  {row.name}: {row.figure}" + (f", wanted {row.wanted}" if row.wanted else ""))
                        rows[row.name] = row
                        self.write(args)
                        cut = cut or row.figure.startswith(OUT_OF_TIME)
                        if not row.good and not args.quick:
                            failed.append(row)
                except (NotMeasured, ZeroDivisionError) as error:
                    if isinstance(error, ZeroDivisionError) and not args.quick:  # a moment may be too short for a single call
                        raise
                    self.missing[part] = error
                    progress(f"  not measured: {error}")
                if not cut:  # otherwise a later run has to measure the part once more
                    self.done = [*(done for done in self.done if done != part), part]
                self.write(args)
        progress(f"wrote {args.out}")
        if len(self.missing) == len(args.parts):
            print(f"SKIPPED: nothing can be measured here: {'; '.join(f'{part}: {why}' for part, why in self.missing.items())}")
            return SKIPPED
        for row in failed:
            print(f"{row.name}: found {row.figure}, wanted {row.wanted}", file=sys.stderr)
        return 1 if failed else 0
