"""The harness of the reports: servers, load, rounds in which things take turns, rows with what is wanted of them, and the page.

A report is its parts: functions of (args, models), each of which returns rows, and Markdown between them, or raises NotMeasured with the
reason. Every ratio is of two things that are measured in one run on one machine. Needs Python 3.9 only: report_calls.py makes calls itself.
"""

import argparse
import collections
import contextlib
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
import urllib.request

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGES = ROOT / "build" / "reports"
PRETRAINED = ROOT / "models" / "pretrained"
DTYPES = ("float32", "bfloat16")
SKIPPED = 77


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


def core_share(core, duration):
    """(the share of the time that a program on this core gets, 1 if the machine is quiet; the longest time in which it got none)"""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    start, cpu = time.perf_counter(), time.process_time()
    now, longest = start, 0.0
    while now - start < duration:
        last, now = now, time.perf_counter()
        longest = max(longest, now - last)
    share = (time.process_time() - cpu) / (time.perf_counter() - start)
    os.sched_setaffinity(0, allowed)
    return share, longest


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
    address = [f"--address={server.address}"] if server else []
    return json.loads(output_of([args.bin / "sru_bench", command, *address, "--json", *flags], core, partial=server is not None))


def kernel_benchmarks(args, pattern, *flags, core=None):
    """[(dimensions, result)]: those of "BM_Step/shape:1/batch:64" are {"shape": 1, "batch": 64}."""
    text = output_of([args.bin / "kernel_benchmarks", f"--benchmark_filter={pattern}", "--benchmark_format=json", *flags], core)
    found = json.loads(text)["benchmarks"] if text.strip() else []
    if not found:
        raise NotMeasured(f"kernel_benchmarks has no {pattern}")
    return [({key: int(value) for key, value in re.findall(r"/(\w+):(\d+)", result["name"])}, result) for result in found]


@contextlib.contextmanager
def background(words):
    """A program that runs beside what is measured."""
    with start(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.terminate()


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
        found = re.search(r"listening on ([^,\s]+)(?:, metrics on ([^,\s]+))?(?:.*, HTTP on ([^,\s]+))?", ready)
        if not found:
            self.process.terminate()
            raise NotMeasured(last_line(self.process.communicate()[1] or ready))
        # Its log must not fill the pipe.
        self._log = threading.Thread(target=self.process.stderr.read, daemon=True)
        self._log.start()
        self.address, self._metrics, self.http_address = found.groups()

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

    def metric(self, name, *labels):
        """The sum of the series of this name that have all of these labels, such as 'state="paused"'."""
        with urllib.request.urlopen(f"http://{self._metrics}/metrics") as answer:
            text = answer.read().decode("utf-8")
        found = re.findall("^" + re.escape(name) + r"(?:\{([^}]*)\})? (\S+)$", text, re.MULTILINE)
        return sum(float(value) for given, value in found if all(label in given for label in labels))


class Server(Process):
    """A server of this project on ports that the system picks."""

    def __init__(self, args, repository, dtype="float32", flags=(), core=None, backend=None):
        super().__init__([args.bin / "sru_server", f"--model_repository={repository}", f"--backend={backend or args.backend}",
                          f"--dtype={dtype}", "--listen=127.0.0.1:0", "--metrics_listen=127.0.0.1:0", "--http_listen=", *flags], core)


class Watch:
    """What sample() returns, every so many seconds."""

    def __init__(self, sample, every=1.0):
        self.samples = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(sample, every))

    def _run(self, sample, every):
        while not self._stop.wait(every):
            self.samples.append(sample())

    def growth(self):
        """The median of the last third by that of the third before it."""
        third = max(1, len(self.samples) // 3)
        return statistics.median(self.samples[-third:]) / statistics.median(self.samples[third:2 * third] or self.samples)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()


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


def ratios(above, below):
    return [a / b for a, b in zip(above, below)]


def spread(values, digits=0):
    """min / median / max"""
    return " / ".join(f"{value:,.{digits}f}" for value in (min(values), statistics.median(values), max(values)))


def chunks(values, size):
    return [values[i:i + size] for i in range(0, len(values), size)]


def seconds(value):
    return f"{value:g}s"


Row = collections.namedtuple("Row", "name figure wanted good", defaults=("", True))


def at_most(name, value, limit, detail="", digits=2):
    return Row(name, f"{value:.{digits}f}{detail}", f"at most {limit:g}", value <= limit)


def at_least(name, value, limit, detail="", digits=1):
    return Row(name, f"{value:.{digits}f}{detail}", f"at least {limit:g}", value >= limit)


def difference(name, value, limit=None):
    """A row on a largest difference; without a limit it is only reported."""
    return Row(name, f"{value:.1e}") if limit is None else Row(name, f"{value:.1e}", f"at most {limit:g}", value <= limit)


def count(name, found, wanted):
    return Row(name, f"{found:,}", f"{wanted:,}", found == wanted)


def of_all(name, found, total, exact=True):
    """A row on how many of all are right."""
    return Row(name, f"{found:,} of {total:,}", "all" if exact else "", found == total or not exact)


# ---------------------------------------------------------------- the page


class Table(collections.namedtuple("Table", "header rows")):
    """A table of its own columns. A cell that is a Row shows its figure and what is wanted, and is judged."""

    def __str__(self):
        def text(cell):
            return bold(cell) + f" ({cell.wanted})" * bool(cell.wanted) if isinstance(cell, Row) else str(cell)
        lines = ["| " + " | ".join(map(text, cells)) + " |" for cells in [self.header, *self.rows]]
        return "\n".join([lines[0], "|" + "---|" * len(self.header), *lines[1:]])


def bold(row):
    return row.figure if row.good else f"**{row.figure}**"


def judged(items):
    """The rows among items, and in tables among them."""
    for item in items:
        if isinstance(item, Row):
            yield item
        elif isinstance(item, Table):
            yield from (cell for cells in item.rows for cell in cells if isinstance(cell, Row))


def render(items):
    """Markdown of rows, tables and texts; rows that follow each other are one table."""
    texts, rows = [], []
    for item in [*items, ""]:
        if isinstance(item, Row):
            rows.append((item.name, bold(item), item.wanted))
            continue
        if rows:
            texts.append(Table(("", "found", "wanted"), rows))
        texts, rows = texts + [item], []
    return "\n\n".join(filter(None, (str(text).strip("\n") for text in texts))) + "\n"


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
    """A page of build/reports: a text above the figures, and the parts that measure them. `text` is a string, or a function of the
    arguments that is asked for it after each part. docs/figures.md has what readers should know of these pages."""

    def __init__(self, script, title, text, parts, **defaults):
        self.script, self.title, self.text = pathlib.Path(script).name, title, text
        self.parts = {part.__name__: part for part in parts}
        self.page = PAGES / self.script.replace("_report.py", ".md")
        self.parser = argparse.ArgumentParser(description=sys.modules["__main__"].__doc__,
                                              formatter_class=argparse.RawDescriptionHelpFormatter)
        flag = self.parser.add_argument
        flag("--bin", type=pathlib.Path, default=ROOT / "build" / "bin", help="folder with the programs (build/bin)")
        flag("--out", type=pathlib.Path, default=self.page, help=f"the page ({self.page.relative_to(ROOT)})")
        flag("--shared", type=pathlib.Path, default=os.environ.get("SRU_SHARED_DIR", ROOT.parent / "shared"),
             help="folder with checkpoints, datasets and references (../shared)")
        flag("--python", default=sys.executable, help="interpreter with PyTorch and the package sru (%(default)s)")
        flag("--backend", default="cpu")
        flag("--parts", default=",".join(self.parts), help="of " + ", ".join(self.parts))
        flag("--rounds", type=int, default=5, help="in which what is compared takes turns (%(default)s)")
        flag("--seconds", type=float, default=10, help="of each measurement (%(default)s)")
        flag("--quick", action="store_true", help="one round of a moment, which judges nothing")
        self.parser.set_defaults(**defaults)

    def arguments(self, words=None):
        args = self.parser.parse_args(words)
        if args.quick:
            self.parser.set_defaults(seconds=0.1, rounds=1, overload_seconds=1, flood_seconds=2)
            args = self.parser.parse_args(words)
        args.bin = args.bin.resolve()
        args.parts = args.parts.split(",")
        for part in args.parts:
            if part not in self.parts:
                self.parser.error(f"--parts: expected some of {', '.join(self.parts)}, found {part}")
        return args

    def write(self, args, items, missing):
        above = self.text(args) if callable(self.text) else self.text
        quick = " **A quick run: its figures mean nothing.**" if args.quick else ""
        text = (f"# {self.title}\n\nWritten by `scripts/{self.script}`. {machine(args.backend)}{quick}\n\n{above}\n\n"
                + render(items))
        if missing:
            text += f"\nNot measured: {'; '.join(missing)}.\n"
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(text, encoding="utf-8")

    def run(self, words=None, models=Models):
        """Measures the parts, writes the page after each, so that an interruption loses none, and returns the exit code: 1 if a
        figure is not as wanted, 77 if nothing can be measured here."""
        args = self.arguments(words)
        items, missing = [], []
        with tempfile.TemporaryDirectory() as folder:
            kept = models(args, folder)
            for part in args.parts:
                progress(part)
                try:
                    for item in self.parts[part](args, kept):
                        items.append(item)
                        for row in judged([item]):
                            progress(f"  {row.name}: {row.figure}" + (f", wanted {row.wanted}" if row.wanted else ""))
                except (NotMeasured, ZeroDivisionError) as error:
                    if isinstance(error, ZeroDivisionError) and not args.quick:  # a moment may be too short for a single call
                        raise
                    missing.append(f"{part}: {error}")
                    progress(f"  not measured: {error}")
                self.write(args, items, missing)
        progress(f"wrote {args.out}")
        if len(missing) == len(args.parts):
            print(f"SKIPPED: nothing can be measured here: {'; '.join(missing)}")
            return SKIPPED
        failed = [row for row in judged(items) if not row.good and not args.quick]
        for row in failed:
            print(f"{row.name}: found {row.figure}, wanted {row.wanted}", file=sys.stderr)
        return 1 if failed else 0
