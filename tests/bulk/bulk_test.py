"""The programs of docs/bulk.md, as they stand there, on a million rows: what they cost, and that they lose nothing when processes die.

    bulk_test.py BUILD [CASE...] [--rows=N]        CASE: a name of CASES; by default each of them

Costs are processor time, which the kernel counts for each process that a job has started, also for those that left their parents: this
program becomes the parent of them all. So other work on the machine matters less than it does to wall time. Rows have blank texts, nulls
and texts of 100,000 characters among them. Needs what `scripts/deps.sh bulk` installs, and exits with 77 where it is missing.
"""

import argparse
import collections
import contextlib
import ctypes
import glob
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
VENV, BEAM_VENV = (os.path.join(ROOT, ".cache", name, "bin", "python") for name in ("bulk-venv", "beam-venv"))
QUESTIONS = os.path.join(ROOT, "tests", "data", "trec_questions")
SERVER = "sru_server"
PR_SET_CHILD_SUBREAPER = 36
LEFT_SECONDS = 5  # within which all processes of a job are gone
ROWS_A_CALL = 1024
# Appended to a copy of the package, which then answers without a server.
IDENTITY = """

def _answer(self, texts):
    import pyarrow

    zeros = pyarrow.array(np.zeros(6 * len(texts), np.float32))
    answers = {"label": pyarrow.repeat("NUM", len(texts)), "probabilities": pyarrow.FixedSizeListArray.from_arrays(zeros, 6)}
    return {name: answers[name] for name in self._outputs}


Columns.__call__ = _answer
"""

Cost = collections.namedtuple("Cost", "engine server")  # microseconds of processors a row
Case = collections.namedtuple("Case", "program python bar limit kills")
# Bars: "bench" = what sru_bench takes for a row, of what the job takes, less what it takes without inference; "whole" = the same of
# all that the job takes; "added" = what inference adds to the job, the server's time included, in times of the server's.
CASES = {
    "plain": Case("plain_job.py", VENV, "bench", 0.85, ["server"]),
    "spark": Case("spark_job.py", VENV, "added", 1.3, ["worker", "server"]),
    "spark_udf": Case("spark_udf_job.py", VENV, None, None, []),
    "ray": Case("ray_job.py", VENV, "added", 1.3, ["worker", "server"]),
    "beam": Case("beam_job.py", BEAM_VENV, "whole", 0.75, ["server"]),
}


def programs():
    """The page's programs by their names."""
    with open(os.path.join(ROOT, "docs", "bulk.md"), encoding="utf-8") as page:
        return dict(re.findall(r"(?ms)^```python (\w+\.py)\n(.*?)^```$", page.read()))


def seconds(usage):
    return usage.ru_utime + usage.ru_stime


def name_of(pid):
    with contextlib.suppress(OSError), open("/proc/%d/comm" % pid, encoding="utf-8") as file:
        return file.read().strip()
    return ""


def processor_seconds(pid):
    with contextlib.suppress(OSError), open("/proc/%d/stat" % pid, encoding="ascii", errors="replace") as file:
        return sum(map(int, file.read().rpartition(")")[2].split()[11:13])) / os.sysconf("SC_CLK_TCK")
    return 0.0


def users(folder):
    """Processes that hold a lock file of a local server below the folder: {process id: name}."""
    found = {}
    for path in glob.glob("/proc/[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            if os.readlink(path).startswith(folder) and os.readlink(path).endswith("/users"):
                pid = int(path.split("/")[2])
                found[pid] = name_of(pid)
    return found


class Job:
    """A program with all its processes, in a folder that has the rows."""

    def __init__(self, program, python, folder, package, build):
        self.folder = tempfile.mkdtemp(dir=folder)
        self.rows = os.path.join(folder, "questions.parquet")
        os.symlink(self.rows, os.path.join(self.folder, "questions.parquet"))
        os.symlink(os.path.join(ROOT, "models"), os.path.join(self.folder, "models"))
        with open(os.path.join(self.folder, "job.py"), "w", encoding="utf-8") as file:
            file.write(program)
        self.log = os.path.join(self.folder, "log")
        environment = {
            **os.environ, "PATH": os.path.join(build, "bin") + os.pathsep + os.environ["PATH"], "PYTHONPATH": package,
            "PYTHONDONTWRITEBYTECODE": "1", "PYSPARK_PYTHON": python, "SPARK_LOCAL_IP": "127.0.0.1", "TMPDIR": self.folder,
            "RAY_TMPDIR": self.folder, "RAY_USAGE_STATS_ENABLED": "0",
        }  # fmt: skip
        with open(self.log, "w", encoding="utf-8") as log:
            self.main = subprocess.Popen([python, "job.py"], cwd=self.folder, env=environment, stdin=subprocess.DEVNULL,
                                         stdout=log, stderr=log, start_new_session=True).pid  # fmt: skip
        self.seconds = {"engine": 0.0, "server": 0.0}
        self.started = {}  # what each server had taken when it was first seen to serve
        self.status = None

    def reap(self):
        """Counts what has ended. False once no process is left."""
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return False
            if ended is None:
                return True
            part = "server" if name_of(ended.si_pid) == SERVER else "engine"
            _, status, usage = os.wait4(ended.si_pid, 0)
            self.seconds[part] += seconds(usage)
            if ended.si_pid == self.main:
                self.status = os.waitstatus_to_exitcode(status)

    def kill(self, kills, after):
        """Kills a worker, or the server, once the server has computed for so many seconds. The next one, a second later."""
        found = users(self.folder)
        server = next((pid for pid, name in found.items() if name == SERVER), None)
        if server is None or not glob.glob(os.path.join(self.folder, "sru-*", "address")):
            return  # it starts
        if processor_seconds(server) < self.started.setdefault(server, processor_seconds(server)) + after:
            return
        victim = server if kills[0] == "server" else next((pid for pid in found if pid not in (server, self.main)), None)
        if victim is not None:
            os.kill(victim, signal.SIGKILL)
            print("  killed the %s" % kills.pop(0))
            time.sleep(1)

    def run(self, kills=(), after=0.0):
        """Until it has ended, with all its processes."""
        kills = list(kills)
        while self.status is None:
            self.reap()
            if kills:
                self.kill(kills, after)
                after = min(after, 0.1)
            time.sleep(0.05)
        limit = time.monotonic() + LEFT_SECONDS
        while self.reap() and time.monotonic() < limit:
            time.sleep(0.05)
        left = [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if self.owns(pid)]
        for pid in left:
            print("  left: %d %s" % (pid, name_of(pid)))
            os.kill(pid, signal.SIGKILL)
        if self.status or left or kills:
            with open(self.log, encoding="utf-8", errors="replace") as log:
                sys.stdout.write(log.read()[-4000:])
            raise AssertionError("ended with %s, left %d processes, did not kill: %s" % (self.status, len(left), kills))

    def owns(self, pid):
        """Whether this is a process of the job, which is not over."""
        with contextlib.suppress(OSError):
            return ("TMPDIR=" + self.folder) in open("/proc/%d/environ" % pid, encoding="utf-8", errors="replace").read()
        return False

    def check(self, expected):
        """One row for each, with its label."""
        import numpy as np
        import pyarrow.parquet as parquet

        files = [path for path in glob.glob(os.path.join(self.folder, "labelled*")) if not path.endswith(".crc")]
        tables = [parquet.read_table(path, columns=["id", "label"]) for path in files]
        ids = np.concatenate([table["id"].to_numpy() for table in tables])
        labels = np.concatenate([np.array(table["label"].to_pylist(), object) for table in tables])
        if len(ids) != len(expected) or not np.array_equal(np.sort(ids), np.arange(len(expected))):
            raise AssertionError("expected %d rows, found %d, %d of them different" % (len(expected), len(ids), len(set(ids))))
        wanted = expected[ids]
        wrong = ids[(labels != wanted) & (wanted != "any")]
        if len(wrong) or None in labels[wanted == "any"]:
            raise AssertionError("%d labels are wrong, such as that of row %d" % (len(wrong), wrong[0] if len(wrong) else -1))


def write_rows(folder, count):
    """questions.parquet with ids and texts, and the texts alone for sru_bench. Returns the labels."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as parquet

    with open(QUESTIONS + ".jsonl", encoding="utf-8") as file:
        questions = [json.loads(line) for line in file]
    texts = [questions[i % len(questions)]["text"] for i in range(count)]
    labels = np.array([questions[i % len(questions)]["label"] for i in range(count)], object)
    for begin, step, text, label in ((7, 1009, None, None), (9, 1013, " \t", None), (11, 5003, "", None),
                                     (13, count // 3, "why " * 25000, "any")):  # fmt: skip
        for i in range(begin, count, step):
            texts[i], labels[i] = text, label
    table = pa.table({"id": pa.array(range(count), pa.int64()), "text": pa.array(texts, pa.string())})
    parquet.write_table(table, os.path.join(folder, "questions.parquet"), row_group_size=65536)
    return labels


def bench(build, rows):
    """What sru_bench takes for the same questions."""
    sys.path.insert(0, os.path.join(ROOT, "tests", "testing"))
    from sru_server import SruServer

    calls = max(rows // ROWS_A_CALL, 1)
    flags = ["--model_repository=" + os.path.join(ROOT, "models", "pretrained"), "--listen=127.0.0.1:0", "--metrics_listen=127.0.0.1:0"]
    with SruServer([os.path.join(build, "bin", SERVER), *flags, "--http_listen="]) as server:
        before, mine = processor_seconds(server.pid), seconds(resource.getrusage(resource.RUSAGE_CHILDREN))
        report = subprocess.run(
            [os.path.join(build, "bin", "sru_bench"), "load", "--json", "--address=localhost:%d" % server.port, "--model=trec",
             "--deadline=inf", "--duration=900s", "--warmup=0s", "--in_flight=4", "--calls=%d" % calls, "--sequences=%d" % ROWS_A_CALL, "--input=" + QUESTIONS + ".txt"],
            check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        ).stdout  # fmt: skip
        if json.loads(report)["ok"] != calls:
            raise AssertionError("sru_bench: %s" % report)
        done = calls * ROWS_A_CALL / 1e6
        mine = seconds(resource.getrusage(resource.RUSAGE_CHILDREN)) - mine
        return Cost(mine / done, (processor_seconds(server.pid) - before) / done)


def identity_package(folder):
    """A copy of the package that answers without a server."""
    copy = os.path.join(folder, "identity")
    shutil.copytree(os.path.join(ROOT, "client", "python", "sru_inference"), os.path.join(copy, "sru_inference"))
    with open(os.path.join(copy, "sru_inference", "columns.py"), "a", encoding="utf-8") as file:
        file.write(IDENTITY)
    return copy


def measure(bar, job, identity, base):
    """A bar's value. What the job costs without inference comes off, for "plain" also the start of its server."""
    if bar == "whole":
        return (base.engine + base.server) / (job.engine + job.server)
    added = job.engine - identity.engine + job.server - identity.server
    return (base.engine + base.server) / added if bar == "bench" else added / (job.server - identity.server)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--rows", type=int, default=1000000)
    parser.add_argument("cases", nargs="*", metavar="CASE", default=list(CASES))
    arguments = parser.parse_intermixed_args()
    if not all(map(os.path.exists, (VENV, BEAM_VENV))) or shutil.which("java") is None:
        print("SKIPPED: no Spark, Ray or Beam (scripts/deps.sh bulk)")
        sys.exit(77)
    if not sys.executable.startswith(os.path.dirname(VENV)):
        os.execv(VENV, [VENV, "-B", *sys.argv])
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    build = os.path.abspath(arguments.build)
    failures = []
    with tempfile.TemporaryDirectory(prefix="sru-bulk-") as folder:
        expected = write_rows(folder, arguments.rows)
        packages = {"job": os.path.join(ROOT, "client", "python"), "identity": identity_package(folder)}
        texts = programs()
        base = bench(build, arguments.rows)
        print("%d rows; microseconds of processors a row: sru_bench %.2f, its server %.2f" % (arguments.rows, *base), flush=True)

        def run(case, package, kills=()):
            """What it costs."""
            begin = time.monotonic()
            job = Job(texts[case.program], case.python, folder, packages[package], build)
            job.run(kills, arguments.rows * base.server / 3e6)
            if package == "job":
                job.check(expected)
            cost = Cost(*(job.seconds[part] * 1e6 / arguments.rows for part in Cost._fields))
            print("  %-9s engine %6.2f, server %6.2f, %4.0f s" % (("killed" if kills else package), *cost, time.monotonic() - begin),
                  flush=True)  # fmt: skip
            shutil.rmtree(job.folder)
            return cost

        for name in arguments.cases:
            case = CASES[name]
            print(name, flush=True)
            try:
                job = run(case, "job")
                if case.bar:
                    value = measure(case.bar, job, run(case, "identity") if case.bar != "whole" else None, base)
                    holds = value <= case.limit if case.bar == "added" else value >= case.limit
                    print("  %s: %.2f, expected at %s %.2f" % (case.bar, value, "most" if case.bar == "added" else "least", case.limit))
                    if not holds:
                        failures.append("%s: %s is %.2f" % (name, case.bar, value))
                if case.kills:
                    run(case, "job", case.kills)
            except AssertionError as error:
                failures.append("%s: %s" % (name, error))
    print("\n".join(failures) or "all hold")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
