#!/usr/bin/env python3
"""Does the work of scripts/gpu_report.sh: steps with a time limit each, and a report after every one.

A step that fails or runs out of time is recorded, and the others continue. The report contains only what a step printed, and all three files
are rewritten after each. Once nvidia-smi has shown a GPU, a program that finds none has failed: only PyTorch may be missing.
"""
import argparse
import array
import collections
import csv
import functools
import glob
import importlib.util
import itertools
import json
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import time

import gpu_build
from gpu_build import end_of, output_of
from report_common import PAPER, PAPER_VOCABULARY, Table

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
NO_GPU = 77
FULL_SECONDS = 480.0  # limits of steps are for a run of 8 minutes; a shorter run has shorter ones
SANITIZER_SHARE = 0.2  # of the time, kept for the sanitizers
# Of the trained models' answers and translations in float32, whose recorded scores are rounded and whose decisions are more
# than this apart.
MAX_SCORE_ERROR = 1e-3
TRAINED = {"reader": "reader_squad", "translator": "translator_multi30k"}
STUDENT = os.path.join("oracles", "ssru")
SANITIZERS = ("memcheck", "racecheck", "initcheck", "synccheck")
SANITIZED = ("large", "programs", "goldens,bits,reference,others")  # groups of checks, a process each
# Kernels whose warps or blocks wait for each other: a part of their names, the group of checks that runs them, and its types.
WAITING = (("Fused", "large", ("bfloat16_fused",)), ("Predict", "programs", ("float32",)),
           ("Skinny", "programs", ("float32", "bfloat16")))
CHECKS = {"float32": ["--dtype=float32"], "bfloat16": ["--dtype=bfloat16"],
          "bfloat16_fused": ["--dtype=bfloat16", "--fuse_layers"]}
# How the server runs: its flags, then the most that a logit and the log-probability of a text may be off, and whether the greedy text
# must be the recorded one. Options whose speed is in question come first.
SERVED = {"bfloat16": (["--dtype=bfloat16", "--fuse_layers=none"], 0.1, 0.5, False),
          "bfloat16_fused": (["--dtype=bfloat16"], 0.1, 0.5, False),
          "float32": (["--dtype=float32"], 1e-4, 1e-3, True),
          "without polling": (["--gpu_poll_us=0"], 1e-4, 1e-3, True),
          "one instance": (["--instances=1"], 1e-4, 1e-3, True)}
LOADS = {"64 in flight": ["--in_flight=64"], "512 in flight": ["--in_flight=512", "--connections=4", "--threads=4"],
         "one at a time": ["--in_flight=1", "--connections=1", "--threads=1"]}
# Steps whose kernels are timed one by one: gpu_bench's system, type and number of sequences.
TRACED = (("translator", "float32", 1), ("translator", "bfloat16", 1), ("language_model", "float32", 1), ("language_model", "bfloat16", 1),
          ("translator", "bfloat16", 32))
PROMPT, GREEDY = "Prince Andrew", "\nwas a strange and the same time to the same time to the sam"
# Whether a check lost its device, or found one that an earlier check lost.
LOST = re.compile(r"has failed and is out of use|it does not answer|\(cudaError")
LOG_CHARACTERS = 200000  # of each step
TARGET_COPY_RATIO = 0.8
TARGET_CLASSIFY_US = 60.0


def read(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


class Report:
    """The results so far; all files are rewritten after each step."""

    def __init__(self, folder, logs, facts):
        self.folder = folder
        self.logs = logs  # one file per step; all of them together are FOLDER/gpu.log
        os.makedirs(logs, exist_ok=True)
        self.data = {"facts": facts, "parts": [], "steps": [], "checks": {}, "products": [], "systems": [], "trace": [], "predict": [],
                     "fused": [], "texts": [], "scan": [], "classify": [], "trained": [], "pytorch": None, "servers": []}

    def log(self, name):
        """The file of a step."""
        return os.path.join(self.logs, re.sub(r"\W+", "_", name) + ".log")

    def write(self):
        os.makedirs(self.folder, exist_ok=True)
        logs = sorted(glob.glob(os.path.join(self.logs, "*.log")), key=os.path.getmtime)
        for name, text in (("gpu.json", json.dumps(self.data, indent=1)), ("gpu.md", markdown(self.data)),
                           ("gpu.log", "".join(f"==== {os.path.basename(p)}\n{read(p)[-LOG_CHARACTERS:]}\n" for p in logs))):
            with open(os.path.join(self.folder, name), "w", encoding="utf-8") as file:
                file.write(text)


def verdict(reached):
    return "reached" if reached else "missed"


# Results that are a table of rows: key, title, text above, columns, cells of a row.
TABLES = (
    ("scan", "The scan alone",
     f"Target at large batch: at least {TARGET_COPY_RATIO} of the device's copy rate (bytes read plus bytes written).",
     ("data type", "directions x hidden", "sequences x length", "us", "GB/s", "of the copy rate"),
     lambda r: (r["dtype"], f"{r['directions']} x {r['hidden']}", f"{r['sequences']} x {r['length']}", f"{r['us']:.1f}",
                f"{r['bytes_per_s'] / 1e9:.0f}", f"{r['ratio']:.2f}")),
    ("classify", "One Classify of a TREC question", f"Target: under {TARGET_CLASSIFY_US:.0f} us of GPU and copy time.",
     ("type", "GPU and copies, us", "target", "without the token table, us", "Run() on the host, p50 us", "p99 us"),
     lambda r: (r["type"], f"{r['gpu_and_copy_us']:.1f}", verdict(r["gpu_and_copy_us"] < TARGET_CLASSIFY_US),
                *(f"{r[key]:.1f}" for key in ("without_token_table_us", "run_p50_us", "run_p99_us")))),
    ("systems", "Readers, translators and language models",
     "Random weights of the paper's sizes, from the call of Run() to the results: a step of a beam search of 5, an encoder of sentences of"
     " 25 words, a token of each session, passages of 130 tokens with questions of 12.",
     ("system", "type", "sequences", "rows", "p50 us", "p99 us", "reading the weights, us", "rows/s", "workspace, MB", "load, s"),
     lambda r: (r["name"], r["type"], r["sequences"], r["rows"], f"{r['run_p50_us']:.1f}", f"{r['run_p99_us']:.1f}",
                f"{r['weights_us']:.1f}" if r["weights_us"] else "-", f"{r['rows'] / r['run_p50_us'] * 1e6:.0f}", f"{r['workspace_mb']:.0f}",
                f"{r['load_s']:.1f}")),
    ("trace", "One step, kernel by kernel", "Nsight Compute's time of each launch, without a graph; copies are not in it.",
     ("system", "type", "sequences", "kernel", "launches", "us in all"),
     lambda r: (r["system"], r["type"], r["sequences"], r["kernel"], r["launches"], f"{r['us']:.1f}")),
    ("predict", "Predict by one block and by a cluster", "A row of logits each; 33 rows are the most that get clusters on 132 multiprocessors.",
     ("symbols", "rows", "asked", "one block, us", "cluster, us", "one block / cluster"),
     lambda r: (r["vocabulary"], r["rows"], r["asked"], f"{r['one_block_us']:.1f}", f"{r['cluster_us']:.1f}",
                f"{r['one_block_us'] / r['cluster_us']:.2f}")),
    ("fused", "Fused layers", "Forward passes of bfloat16 layers of 128 over 32 tokens; fused is one kernel a layer, from the second on.",
     ("layers", "batch", "plain, us", "fused, us", "plain / fused"),
     lambda r: (r["layers"], r["batch"], f"{r['plain_us']:.1f}", f"{r['fused_us']:.1f}", f"{r['plain_us'] / r['fused_us']:.2f}")),
    ("texts", "Texts, served", "The language model of 12 layers with random weights, and a trained translator (beam 5).",
     ("call", "type", "result"), lambda r: (r["name"], r["type"], r["result"])),
    ("trained", "Trained models in the server, float32",
     "Answers with their offsets, translations (beam 5) and a Marian student's translations that the reference or Marian recorded; they must"
     f" be equal, and their scores within {MAX_SCORE_ERROR:.0e}.",
     ("model", "recorded", "equal", "largest difference of a score"),
     lambda r: (r["name"], r["recorded"], r["equal"], f"{r['difference']:.1e}")),
)


def markdown(data):
    """The report for people, from the report for programs."""
    facts = data["facts"]
    out = [f"# GPU report\n\n{facts.get('gpu') or 'no GPU'}, driver {facts.get('driver')}, {facts.get('nvcc')}, commit"
           f" {facts.get('commit')}, {facts.get('date')}.\n\n## For docs/figures.md", figures(data), "## Steps",
           Table(("step", "result", "seconds", "note"),
                 [(s["name"], s["result"], f"{s['seconds']:.0f}", s["note"].replace("|", "/")) for s in data["steps"]])]
    for name, checks in data["checks"].items():
        failed = [c for c in checks if not c["ok"]]
        out += [f"## Checks, {name}\n\n{len(checks)} checks, {len(failed)} failed.", *(f"* {c['name']}: {c['detail']}" for c in failed)]
    if data["products"]:
        header = [key for key in data["products"][0] if key != "kind"]
        out += ["## Products", Table([key.replace("_", " ") for key in header], [[row.get(key, "-") for key in header] for row in data["products"]])]
    for key, title, text, header, cells in TABLES:
        if data[key]:
            out += [f"## {title}\n\n{text}", Table(header, map(cells, data[key]))]
    if data["pytorch"]:
        out += pytorch_section(data["pytorch"])
    if data["servers"]:
        out += ["## The whole server\n\nClassify against labels and logits of the published package, vectors of Encode alone and in a batch, Score"
                " against recorded log-probabilities of texts, and Generate against a recorded text.",
                Table(("server", "labels", "error of a logit", "vectors that differ", "error of a score", "greedy text"),
                      [(s["name"], f"{s['right']} of {s['questions']}", f"{s['logit_error']:.1e}", s["vectors"],
                        f"{s['score_error']:.1e}", "equal" if s["greedy"] else "other") for s in data["servers"]]),
                Table(("server", "load", "calls/s", "p50 us", "p99 us"),
                      [(s["name"], r["load"], f"{r['rate']:.0f}", f"{r['p50']:.0f}", f"{r['p99']:.0f}")
                       for s in data["servers"] for r in s["loads"]])]
    return "\n\n".join(map(str, out)) + "\n"


def figures(data):
    """The table of docs/figures.md."""
    cells = collections.defaultdict(dict)
    for row in data["systems"]:
        if row["weights_us"]:
            cells[f"{row['name']}, {row['sequences']} at a time: us (times reading the weights once)"][row["type"]] = (
                f"{row['run_p50_us']:,.0f} ({row['run_p50_us'] / row['weights_us']:.1f})")
    for row in data["texts"]:
        cells[row["name"]][row["type"]] = row["result"]
    return Table(("what", "float32", "bfloat16"), [(what, row.get("float32", "-"), row.get("bfloat16", "-")) for what, row in cells.items()])


def pytorch_section(report):
    out = [f"## Against PyTorch\n\nPyTorch {report['torch']}, cuDNN {report['cudnn']}. Medians of alternating runs, microseconds of one"
           " forward pass; SRU is float32 in float32 rows, else bfloat16; fused is the same with a kernel per layer of at most 128 values."
           " LSTM is the better of eager and captured; published is the kernel of the package `sru`."]
    summary = report.get("summary")
    if summary:
        out.append(f"LSTM / SRU at batch <= 32: least {summary['lstm_ratio_least']:.1f} (target 5:"
                   f" {verdict(summary['lstm_least_reached'])}), median {summary['lstm_ratio_median']:.1f} (target 10:"
                   f" {verdict(summary['lstm_median_reached'])}).")
        if summary["fused_rows"]:
            out.append(f"LSTM / SRU with fused layers, {summary['fused_rows']} rows: least {summary['fused_ratio_least']:.1f}, median"
                       f" {summary['fused_ratio_median']:.1f}.")
        if summary["ops_ratio_least"] is not None:
            out.append(f"SRU in PyTorch operations / SRU: least {summary['ops_ratio_least']:.1f} (target 5:"
                       f" {verdict(summary['ops_least_reached'])}).")
    out.append(Table(
        ("shape", "batch", "data type", "SRU", "fused", "published", "LSTM eager", "LSTM graph", "LSTM / SRU", "operations",
         "operations / SRU"),
        [(r["shape"], r["batch"], r["dtype"], r["sru_us"], r.get("fused_us", "-"), r.get("published_us", "-"), r["lstm_eager_us"],
          r.get("lstm_graph_us", "-"),
          f"{r['lstm_us'] / r['sru_us']:.1f}", r.get("ops_us") or "-", f"{r['ops_us'] / r['sru_us']:.1f}" if r.get("ops_us") else "-")
         for r in report["results"]]))
    if report["left_out"]:
        out.append(f"{len(report['left_out'])} rows were left out for time.")
    return out + [f"* {e['row']}: {e['error']}" for e in report["errors"]]


class Steps:
    """Runs commands one after the other until the deadline.

    `scale` multiplies every limit; `reserve` is kept for the steps that come after it is taken back."""

    def __init__(self, report, deadline, scale=1.0):
        self.report, self.deadline, self.scale = report, deadline, scale
        self.reserve = 0.0
        self.failed = False
        self.code = 0  # of the last command; None if it ran out of time

    def left(self):
        return self.deadline - self.reserve - time.monotonic()

    def within(self, seconds):
        """`seconds` of a full run, or the time that is left if that is less."""
        return max(1.0, min(seconds * self.scale, self.left()))

    def out_of_time(self, name):
        """Whether there is no time left for a step; if so, that is recorded."""
        if self.left() >= 5 * self.scale:
            return False
        self.record(name, "skipped", 0, "no time left")
        return True

    def record(self, name, result, seconds, note=""):
        self.report.data["steps"].append({"name": name, "result": result, "seconds": seconds, "note": note})
        self.failed |= result == "failed"
        print(f"gpu_report: {name}: {result} in {seconds:.0f} s {note}", flush=True)
        self.report.write()

    def start(self, command, log, environment=None):
        print(f"gpu_report: {' '.join(command)}", flush=True)
        return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd=ROOT,
                                env={**os.environ, **(environment or {})}, start_new_session=True)

    def finish(self, name, process, started, limit, may_skip=False, excuses=lambda output: False, cut=lambda output: ""):
        """Returns (exit code, output); the code is None after the limit, which begins at `started`.

        Records only failures. With `may_skip`, exit code 77 is none, and neither is one that `excuses` the output. `cut` says what the output
        is worth after the limit."""
        waited = time.monotonic() - started
        self.code = code = end_of(process, min(limit * self.scale - waited, self.left()))
        output = read(self.report.log(name))
        if code not in (0, None) and excuses(output):
            self.code = code = 0
        if code != 0:
            tail = " ".join(output.strip().splitlines()[-3:])[-300:]
            why = f"ran out of time; {cut(output)}" if code is None else f"exit code {code}; "
            skipped = may_skip and code == NO_GPU
            self.record(name, "skipped" if skipped else "failed", time.monotonic() - started, tail if skipped else why + tail)
        return code, output

    def beside(self, jobs, at_once, environment, finish, limit):
        """Runs jobs, each a name and a command, `at_once` of them beside each other, and calls finish(name, process, started) for each that has
        ended or reached the limit. Jobs that passed in the run that this one continues are left out.

        Once finish() returns False, ends the others and returns False."""
        passed = {step["name"] for step in self.report.data["steps"] if step["result"] == "ok"}
        waiting, running = collections.deque(job for job in jobs if job[0] not in passed), []
        while waiting or running:
            if waiting and len(running) < at_once:
                name, command = waiting.popleft()
                if not self.out_of_time(name):
                    with open(self.report.log(name), "w", encoding="utf-8") as log:
                        running.append((name, self.start(command, log, environment), time.monotonic()))
                continue
            oldest = time.monotonic() - limit * self.scale
            over = next((job for job in running if job[1].poll() is not None or job[2] < oldest or self.left() <= 0), None)
            if over is None:
                time.sleep(0.01)
                continue
            running.remove(over)
            if finish(*over) is False:
                for _, process, _ in running:
                    end_of(process, 0)
                return False
        return True

    def run(self, name, command, limit, environment=None, may_skip=False):
        """Returns the output, or None after a failure, which is recorded."""
        started = time.monotonic()
        if self.out_of_time(name):
            return None
        with open(self.report.log(name), "w", encoding="utf-8") as log:
            try:
                process = self.start(command, log, environment)
            except OSError as error:
                self.record(name, "failed", 0, str(error))
                return None
            code, output = self.finish(name, process, started, limit, may_skip)
        if code != 0:
            return None
        self.record(name, "ok", time.monotonic() - started, (output.strip().splitlines() or [""])[-1][:200])
        return output

    def results(self, name, text, done):
        """The objects of the lines that a step has written, also if it then failed. One that succeeds without any has failed."""
        found = json_lines(text)
        if done is not None and not found:
            self.record(f"results of {name}", "failed", 0, "there are none")
        return found


def nvidia_smi(fields):
    """What it says of these fields, a line per GPU; nothing if it does not know one of them."""
    tool = shutil.which("nvidia-smi") or "/usr/local/nvidia/bin/nvidia-smi"
    return output_of([tool, "--query-gpu=" + fields, "--format=csv,noheader"]).splitlines()


def facts():
    gpu = nvidia_smi("name,driver_version,compute_cap")
    name, driver, capability = ([f.strip() for f in gpu[0].split(",")] + [""] * 3)[:3] if gpu else ("", "", "")
    nvcc = re.search(r"release [\d.]+", output_of(["nvcc", "--version"]))
    return {"gpu": name, "gpus": len(gpu), "driver": driver, "capability": capability,
            "nvcc": "nvcc " + nvcc.group(0) if nvcc else "no nvcc",
            "commit": output_of(["git", "describe", "--always", "--dirty"]) or "unknown",
            "date": time.strftime("%Y-%m-%d", time.gmtime())}


def sanitizer():
    return shutil.which("compute-sanitizer") or next(filter(os.path.exists, ["/usr/local/cuda/bin/compute-sanitizer"]), None)


def kernel_filter(tool, seconds, part="sru"):
    """Arguments that make compute-sanitizer look only at kernels whose names contain this: all of ours contain `sru`.

    cuBLASLt's kernels are pipelined in ways that its tools report, and slow under them. The option's name depends on the version."""
    said = output_of([tool, "--help"], seconds)
    found = [option for option in ("--kernel-name", "--kernel-regex", "--filter") if re.search(option + r"(?![-\w])", said)]
    return [found[0], "kns=" + part] if found else []


def sanitize(steps, program, environment, at_once):
    """Runs the tools on each group of checks, `at_once` processes beside each other: they keep the processors busy, not the GPU, and time
    nothing. A crash or the limit loses one group of one tool. The synchronization of fused layers is looked at first."""
    tool = sanitizer()
    if not tool:
        steps.record("compute-sanitizer", "skipped", 0, "not installed")
        return
    if steps.out_of_time("compute-sanitizer"):
        return
    ours = kernel_filter(tool, steps.within(10))
    # initcheck must see what the library's kernels write, which ours read, and memcheck is fast enough to look at
    # them once, too.
    runs = [(f"{kind}, {name}, {group}", kind, ours if kind != "initcheck" else [], name, group)
            for group, kind, name in itertools.product(SANITIZED, SANITIZERS, ("float32", "bfloat16_fused"))]
    runs.sort(key=lambda run: run[1] not in ("racecheck", "synccheck") or run[3] != "bfloat16_fused")
    if ours:
        runs += [(f"memcheck of all kernels, float32, {group}", "memcheck", [], "float32", group) for group in SANITIZED]
    steps.beside([("sanitizer " + title, [tool, "--error-exitcode", "9", "--tool", kind, *only, program, "--small", "--only=" + group,
                                          *CHECKS[name]]) for title, kind, only, name, group in runs],
                 at_once, environment, functools.partial(finish_sanitizer, steps), limit=60)


def in_the_library_alone(output):
    """Whether whatever a sanitizer has found is in kernels that are not ours. Some of its reports of cuBLASLt's are false."""
    places = re.findall(r"^=+ +(?:at|in) .*", output, re.MULTILINE)
    return bool(places) and not any("sru" in place for place in places)


def reports_so_far(output):
    """Says how many findings a sanitizer has written that had no time for its summary."""
    found = re.findall(r"^=+ (?!COMPUTE-SANITIZER|\w+ SUMMARY)\S.*", output, re.MULTILINE)
    return f"no summary, {len(found)} reports until then; "


def finish_sanitizer(steps, name, process, started, limit=60):
    code, output = steps.finish(name, process, started, limit, excuses=in_the_library_alone, cut=reports_so_far)
    if code == 0:
        found = re.findall(r"(?:ERROR|RACECHECK) SUMMARY: .*", output)
        note = "; in the library's kernels alone" if in_the_library_alone(output) else ""
        steps.record(name, "ok" if found else "failed", time.monotonic() - started,
                     found[-1] + note if found else "no summary line: the tool has not looked at anything")


def with_server(steps, name, prefix, repository, environment, backend, body, flags=()):
    """Runs a server with these flags and body(address, its first line), which returns what is wrong. The step `name` records that, and whatever fails."""
    started = time.monotonic()

    def record(result, note):
        steps.record(name, result, time.monotonic() - started, note)

    program = os.path.join(prefix, "bin", "sru_server")
    try:
        with open(steps.report.log(name), "w", encoding="utf-8") as log:
            server = subprocess.Popen(
                [program, "--backend=" + backend, "--listen=127.0.0.1:0", "--metrics_listen=127.0.0.1:0", "--http_listen=",
                 "--model_repository=" + repository, *flags], stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
                env={**os.environ, **environment})
    except OSError as error:
        record("failed", f"{program} does not start: {error}")
        return
    try:
        found = None
        while not found:
            ended = server.poll() is not None
            said = read(steps.report.log(name))
            found = re.search(r"listening on (\S+),", said)
            if not found and (ended or time.monotonic() - started > steps.within(60)):
                hint = "this machine's C or C++ library is older than the one of the build; " if "GLIBC" in said else ""
                record("failed", f"the server does not start: {hint}" + " ".join(said.split())[-300:])
                return
            time.sleep(0 if found else 0.05)
        mistakes = body(found.group(1), said.splitlines()[0][:200])
        record("failed" if mistakes else "ok", "; ".join(mistakes))
    except (OSError, subprocess.SubprocessError, ValueError, KeyError, IndexError, TypeError) as error:
        record("failed", repr(error)[:300])
    finally:
        server.terminate()
        if end_of(server, steps.within(20)) is None:
            steps.record("server drains", "failed", 20, "it had to be killed")


def client_output(steps, prefix, environment, arguments, lines=(), seconds=60):
    """What sru_client prints for these lines of input."""
    return subprocess.run([os.path.join(prefix, "bin", "sru_client"), *arguments], input="".join(line + "\n" for line in lines),
                          capture_output=True, text=True, timeout=steps.within(seconds), check=True,
                          env={**os.environ, **environment}).stdout


def shared_folder():
    """The folder with the trained checkpoints; None if it is not here."""
    for folder in (os.environ.get("SRU_SHARED_DIR"), os.path.join(ROOT, "..", "shared"), os.path.join(ROOT, "shared")):
        if folder and os.path.isdir(os.path.join(folder, "checkpoints")):
            return folder
    return None


def compare_answers(recorded, found):
    """How many recorded spans were found, and the largest difference of their scores."""
    keys = ("start_byte", "end_byte", "start_char", "end_char")
    best = [f["answers"][0] for f in found]
    equal = [(r, b) for r, b in zip(recorded, best) if r["answer"] == b["text"] and all(r[key] == b[key] for key in keys)]
    return len(equal), max([abs(r["log_score"] - b["log_score"]) for r, b in equal], default=0.0)


def compare_translations(recorded, found):
    """The same of beam 5."""
    pairs = [(r["beam5_best"], f["hypotheses"][0]) for r, f in zip(recorded, found)]
    equal = [(r, h) for r, h in pairs if r["text"] == h["text"]]
    return len(equal), max([abs(r["score"] - h["score"]) for r, h in equal], default=0.0)


def compare_student(recorded, found, kind):
    """The same of a student of Marian, `kind` greedy or beam4; the differences are of log-probabilities."""
    pairs = [(r, f["hypotheses"][0]) for r, f in zip(recorded, found)]
    equal = [(r, h) for r, h in pairs if r[kind] == h["text"]]
    return len(equal), max([abs(r[kind + "_log_prob"] - h["log_prob"]) for r, h in equal], default=0.0)


def export(steps, task, source, folder):
    """Whether PyTorch has made a model of a checkpoint."""
    files = [("--checkpoint", "checkpoint.pt"), ("--config", "config.json"), ("--vocab", "vocab.txt"), ("--subwords", "spm.model")]
    given = [word for flag, file in files if os.path.exists(os.path.join(source, file)) for word in (flag, os.path.join(source, file))]
    return steps.run(f"export of the {task}", [sys.executable, "-B", "models/export_torch.py", *given, "--out", folder], 60) is not None


def drive_trained(steps, prefix, build, environment, backend="cuda"):
    """The trained reader, translator and student of Marian in the server against what the reference recorded. Needs the checkpoints, and
    PyTorch to export those of the first two."""
    name = "trained models"
    if steps.out_of_time(name):
        return
    shared = shared_folder()
    if shared is None:
        steps.record(name, "skipped", 0, "../shared/checkpoints is not here; SRU_SHARED_DIR names another folder")
        return
    repository = os.path.join(build, "trained")
    shutil.rmtree(repository, ignore_errors=True)
    sources = {task: os.path.join(shared, "checkpoints", folder) for task, folder in TRAINED.items()}
    if importlib.util.find_spec("torch") is None:
        steps.record("export of " + " and ".join(sources), "skipped", 0, "this Python has no torch")
        sources = {}
    exported = {task for task, source in sources.items() if os.path.isdir(source) and export(steps, task, source, os.path.join(repository, task, "1"))}

    def question(row):
        return json.dumps({"question": row["question"], "passages": [row["paragraph"]]})

    def sentence(row):
        return row["source"]

    # Name, model, folder of expected.jsonl, what the client is asked for each row of it, how the answers are compared.
    asked = [(task, task, sources[task], arguments, given, count) for task, arguments, given, count in (
        ("reader", ["answer", "--queries"], question, compare_answers),
        ("translator", ["translate", "--beam_size=5"], sentence, compare_translations)) if task in exported]
    student = os.path.join(shared, STUDENT)
    if os.path.isdir(student):
        os.makedirs(os.path.join(repository, "student", "1"))
        for file in ("model.npz", "vocab.spm"):
            shutil.copy(os.path.join(student, "marian", file), os.path.join(repository, "student", "1"))
        asked += [(f"student, {kind}", "student", student, ["translate", f"--beam_size={beam}"], sentence,
                   functools.partial(compare_student, kind=kind)) for kind, beam in (("greedy", 1), ("beam4", 4))]
    if not asked:
        steps.record(name, "skipped", 0, "there is no model to ask")
        return

    def compare(address, _):
        mistakes = []
        for title, model, source, arguments, given, count in asked:
            recorded = [json.loads(line) for line in read(os.path.join(source, "expected.jsonl")).splitlines()]
            said = client_output(steps, prefix, environment, [*arguments, "--json", "--model=" + model, "--address=" + address],
                                 map(given, recorded))
            found = [json.loads(line) for line in said.splitlines()]
            equal, difference = count(recorded, found)
            steps.report.data["trained"].append({"name": title, "recorded": len(recorded), "equal": equal, "difference": difference})
            if len(found) != len(recorded) or equal != len(recorded) or not difference <= MAX_SCORE_ERROR:
                mistakes.append(f"{title}: {equal} of {len(recorded)} equal, a score differs by {difference:.1e}")
        return mistakes

    with_server(steps, name, prefix, repository, environment, backend, compare)


def write_language_model(folder, encoder, vocabulary):
    """A language model with random weights, as tests/golden/make_language_model.py writes one with the published package."""
    width, inputs, projection = encoder["hidden_size"], encoder["input_size"], encoder["projection_size"]
    shapes = {"embedding.weight": [vocabulary, inputs], "out.weight": [vocabulary, width], "out.bias": [vocabulary]}
    for layer in range(encoder["num_layers"]):
        projected = projection < min(inputs, width)
        inner = projection if projected else inputs
        of_layer = {"weight": [inner, width * (3 if inputs == width else 4)], "weight_c": [2 * width], "bias": [2 * width], "scale_x": [1]}
        if projected:
            of_layer["weight_proj"] = [inputs, projection]
        shapes.update({f"encoder.rnn_lst.{layer}.{name}": shape for name, shape in of_layer.items()})
        inputs = width
    os.makedirs(folder)
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump({"format_version": 1, "task": "language_model", "description": "random weights", "encoder": encoder,
                   "embedding": {"vocabulary_size": vocabulary},
                   "preprocessing": {"type": "bytes", "vocabulary": list(range(32, 32 + vocabulary))}}, file)
    header, end = {}, 0
    for name, shape in shapes.items():
        begin, end = end, end + 4 * functools.reduce(lambda a, b: a * b, shape)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}
    generator = random.Random(1)
    numbers = [generator.gauss(0, 1) for _ in range(65521)]  # a prime, so that no two columns are alike
    with open(os.path.join(folder, "model.safetensors"), "wb") as file:
        text = json.dumps(header).encode()
        file.write(struct.pack("<Q", len(text)) + text)
        for shape in shapes.values():
            scale = shape[0] ** -0.5 if len(shape) == 2 else 1.0
            count = functools.reduce(lambda a, b: a * b, shape)
            some = array.array("f", [scale * number for number in numbers])
            file.write((some * (count // len(some) + 1))[:count].tobytes())


def drive_texts(steps, machine, backend="cuda", seconds=3.0, encoder=None):
    """Texts of the paper's language model and of a trained translator, one and many at a time."""
    steps.report.data["texts"] = []
    repository = os.path.join(machine.build, "texts")
    shutil.rmtree(repository, ignore_errors=True)
    started = time.monotonic()
    write_language_model(os.path.join(repository, "paper", "1"), encoder or PAPER, PAPER_VOCABULARY)
    steps.record("a language model with random weights", "ok", time.monotonic() - started)
    shared = shared_folder()
    checkpoint = os.path.join(shared, "checkpoints", TRAINED["translator"]) if shared else ""
    calls = [(f"Generate, {sessions} at a time: tokens/s",
              ["generate", "--model=paper", f"--sessions={sessions}", "--prompt=fixed:10", "--output=fixed:200"],
              lambda found: f"{found['tokens_per_s']:,.0f}") for sessions in (1, 8, 32, 64)]
    if os.path.isdir(checkpoint) and importlib.util.find_spec("torch") and export(
            steps, "translator", checkpoint, os.path.join(repository, "translator", "1")):
        recorded = [json.loads(line) for line in read(os.path.join(checkpoint, "expected.jsonl")).splitlines()]
        for sentences in (1, 32):
            requests = os.path.join(machine.build, f"translate_{sentences}.jsonl")
            with open(requests, "w", encoding="utf-8") as file:
                json.dump({"sequences": [{"token_ids": {"values": row["source_ids"]}} for row in recorded[:sentences]], "beam_size": 5}, file)
                file.write("\n")
            calls.append((f"Translate, {sentences} sentences a call: p50 ms",
                          ["load", "--method=Translate", "--model=translator", f"--requests={requests}", "--in_flight=1", "--connections=1"],
                          lambda found: f"{found['latency_us']['p50'] / 1e3:.1f}"))

    def drive(dtype, address):
        for name, arguments, result in calls:
            said = steps.run(f"{name.split(':')[0]}, {dtype}", [os.path.join(machine.prefix, "bin", "sru_bench"), *arguments, "--json",
                                                                f"--duration={seconds}s", "--address=" + address], 30, machine.environment)
            if said is not None:
                steps.report.data["texts"].append({"name": name, "type": dtype, "result": result(parse_json(said))})
        return []

    for dtype in ("bfloat16", "float32"):
        if not steps.out_of_time(f"texts, {dtype}"):
            with_server(steps, f"texts, {dtype}", machine.prefix, repository, machine.environment, backend,
                        lambda address, _, dtype=dtype: drive(dtype, address), ["--dtype=" + dtype])


def drive_servers(steps, prefix, environment, backend="cuda", seconds=3.0, names=tuple(SERVED)):
    """All bundled models over the wire on the GPU, in each configuration."""
    for name in names:
        if not steps.out_of_time(f"server, {name}"):
            with_server(steps, f"server, {name}", prefix, os.path.join(prefix, "share", "sru", "models"), environment, backend,
                        lambda address, line, name=name: serve(steps, prefix, environment, seconds, name, address, line), SERVED[name][0])


def serve(steps, prefix, environment, seconds, name, address, line):
    """Asks a server for everything that was recorded, then loads it. Returns what is wrong."""
    steps.record(f"server starts, {name}", "ok", 0, line)

    def ask(subcommand, *arguments, texts=()):
        said = client_output(steps, prefix, environment, [subcommand, "--json", "--address=" + address, *arguments], texts, 30)
        return [found for found in json_lines(said) if "total" not in found]

    questions = [json.loads(text) for text in read(os.path.join(ROOT, "tests", "data", "trec_questions.jsonl")).splitlines()]
    texts = [q["text"] for q in questions]
    labels = [found["labels"] for found in ask("classify", "--model=trec", "--top_k=0", texts=texts)]
    vectors = [found["values"] for found in ask("encode", "--model=trec", texts=texts)]
    alone = [ask("encode", "--model=trec", text)[0]["values"] for text in texts[:5]]
    # The client takes a text per line.
    scored = [r for r in map(json.loads, read(os.path.join(ROOT, "tests", "data", "war_and_peace_scores.jsonl")).splitlines())
              if r["text"] == " ".join(r["text"].split())]
    scores = [found["log_prob"] for found in ask("score", "--model=war_and_peace", texts=[r["text"] for r in scored])]
    written = client_output(steps, prefix, environment, ["generate", "--model=war_and_peace", "--max_new_tokens=60", "--address=" + address,
                                                         PROMPT], seconds=30)
    result = {"name": name, "questions": len(questions), "loads": [], "vectors": sum(a != b for a, b in zip(alone, vectors)),
              "right": sum(found[0]["name"] == q["label"] for found, q in zip(labels, questions)),
              "logit_error": max(abs(float(l["logit"]) - q["logits"][l["index"]]) for found, q in zip(labels, questions) for l in found),
              "score_error": max(abs(found - sum(r["log_probs"])) for found, r in zip(scores, scored)), "greedy": written == GREEDY}
    steps.report.data["servers"].append(result)
    for title, arguments in LOADS.items():
        loaded = steps.run(f"load, {name}, {title}", [os.path.join(prefix, "bin", "sru_bench"), "load", "--json", f"--duration={seconds}s",
                                                      "--model=trec", "--address=" + address, *arguments], 20, environment)
        if loaded is not None:
            run = parse_json(loaded)
            result["loads"].append({"load": title, "rate": run["throughput_per_s"], "p50": run["latency_us"]["p50"],
                                    "p99": run["latency_us"]["p99"], "codes": run["codes"]})
    return server_mistakes(result)


def server_mistakes(result):
    """What is wrong in what the server answered, in words."""
    _, max_logit_error, max_score_error, greedy = SERVED[result["name"]]
    wrong = result["questions"] - result["right"]
    mistakes = [f"{wrong} wrong labels"] if wrong else []
    for what, error, most in (("logit", result["logit_error"], max_logit_error), ("score", result["score_error"], max_score_error)):
        if not error <= most:  # also if it is NaN
            mistakes.append(f"a {what} is wrong by {error:.1e}, expected at most {most:.0e}")
    if result["vectors"]:
        mistakes.append(f"{result['vectors']} vectors have other bits alone")
    if greedy and not result["greedy"]:
        mistakes.append("the greedy text is not the recorded one")
    for load in result["loads"]:
        errors = {code: count for code, count in load["codes"].items() if code != "OK" and count}
        if errors:
            mistakes.append(f"{load['load']}: calls ended with {errors}")
    return mistakes


def unpacked(prefix, folder):
    """The folder of an installation or a library: `prefix`, or what is in it if it is a tar archive."""
    if not os.path.isfile(prefix):
        return prefix
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    subprocess.run(["tar", "-xf", prefix, "-C", folder], check=True)
    found = glob.glob(os.path.join(folder, "**", "bin", "sru_server"), recursive=True)
    return os.path.dirname(os.path.dirname(found[0])) if found else folder


def parse_json(text):
    """The JSON that begins a line of a program's output; [] if there is none."""
    for begin in re.finditer(r"^[\[{]", text or "", re.MULTILINE):
        try:
            return json.JSONDecoder().raw_decode(text, begin.start())[0]
        except ValueError:
            pass
    return []


def json_lines(text):
    """The objects that begin the lines of a program's output."""
    return [found for line in text.splitlines() if line.startswith("{") for found in [parse_json(line)] if found]


def json_file(path):
    return parse_json(read(path)) if os.path.exists(path) else None


def one_gpu(found):
    """The environment that leaves one GPU visible, the one with the least memory in use.

    Empty if there is only one or the caller has chosen. Nothing here needs a second one, and every program would open all of them."""
    if found["gpus"] < 2 or "CUDA_VISIBLE_DEVICES" in os.environ:
        return {}
    used = [re.match(r"\d+", line.strip()) for line in nvidia_smi("memory.used")]
    used = [int(m.group(0)) if m else sys.maxsize for m in used] or [0]
    return {"CUDA_VISIBLE_DEVICES": str(used.index(min(used))), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def check(steps, machine, jobs, limit=60):
    """Runs jobs of check_command(), a process each, as a lost device fails all checks after it, several of them
    beside each other: the reference on the processor takes most of the time, and nothing is timed. Jobs of compute-sanitizer may be among them.

    If a device is lost, its group runs once more with each kernel waited for, so that the first failure is that of its kernel. Returns whether
    the programs find a GPU at all."""
    def finish(name, process, started):
        if name.startswith("sanitizer"):
            finish_sanitizer(steps, name, process, started, limit)
            return True
        code, output = steps.finish(name, process, started, limit)
        if code == NO_GPU:
            return False
        if code == 0:
            steps.record(name, "ok", time.monotonic() - started, (output.strip().splitlines() or [""])[-1][:200])
        if any(LOST.search(c["detail"]) for c in keep_checks(steps, name, code == 0)):
            name, command = check_command(steps, machine.programs, *name.split(", ")[1:], ", kernel by kernel")
            keep_checks(steps, name, steps.run(name, command, 40, {**machine.environment, "CUDA_LAUNCH_BLOCKING": "1"}) is not None)
        return True

    found = steps.beside(jobs, machine.at_once, machine.environment, finish, limit)
    steps.report.write()
    return found


def run_checks(steps, machine):
    """All groups in every type, and whether the warps and blocks of our kernels wait as they should; what takes longest comes first."""
    tool = sanitizer()
    jobs = [(f"sanitizer {kind} of {kernel} kernels, {dtype}",
             [tool, "--error-exitcode", "9", "--tool", kind, *kernel_filter(tool, steps.within(10), kernel), machine.programs.check, "--small",
              "--only=" + group, *CHECKS[dtype]])
            for kernel, group, dtypes in WAITING for dtype in dtypes for kind in ("synccheck", "racecheck")] if tool else []
    groups = ("bits", "programs", "large", "reference", "others")
    check(steps, machine, jobs + [check_command(steps, machine.programs, group, dtype, "")
                                  for group, dtype in itertools.product(groups, reversed(list(CHECKS)))], limit=100)


def check_results(steps, name):
    """The file with the results of a step that runs checks."""
    return steps.report.log(name) + ".jsonl"


def check_command(steps, programs, group, dtype, how):
    """The name of a step that runs a group of checks, and its command."""
    name = f"checks, {group}, {dtype}{how}"
    return name, [programs.check, "--only=" + group, *CHECKS[dtype], "--json=" + check_results(steps, name)]


def keep_checks(steps, name, succeeded):
    """The results of a step that ran checks; the report keeps them."""
    path = check_results(steps, name)
    found = steps.results(name, read(path) if os.path.exists(path) else "", True if succeeded else None)
    if found:
        steps.report.data["checks"][name[len("checks, "):]] = found
    return found


def check_all_gpus(steps, machine):
    if "CUDA_VISIBLE_DEVICES" in machine.environment:
        everywhere = {k: v for k, v in machine.environment.items() if k != "CUDA_VISIBLE_DEVICES"}
        steps.run("short check on all GPUs", [machine.programs.check, "--small"], 60, everywhere)


def measure(name, limit):
    """A part that is one of gpu_bench's own benchmarks."""
    def part(steps, machine):
        done = steps.run(name, [machine.programs.bench, name], limit, machine.environment)
        log = steps.report.log(name)
        steps.report.data[name] = steps.results(name, read(log) if os.path.exists(log) else "", done)
    return part


def kernels_of(output):
    """(name, launches, microseconds) of the kernels in Nsight Compute's table, the most expensive first."""
    lines = output.splitlines()
    begin = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), len(lines))
    times = collections.defaultdict(list)
    for row in csv.DictReader(lines[begin:]):
        if (row["ID"] or "").isdigit():  # the first row has the units
            name = re.sub(r"\(.*", "", row["Kernel Name"].replace("void ", "").replace("(anonymous namespace)::", ""))
            times[re.sub(r"\b\w+::", "", name)].append(float(row["gpu__time_duration.sum"].replace(",", "")) / 1e3)
    return sorted(((name, len(of), sum(of)) for name, of in times.items()), key=lambda kernel: -kernel[2])


def trace(steps, machine):
    """Which kernels a step's time goes to."""
    tool = next(filter(None, [shutil.which("ncu"), *sorted(glob.glob("/opt/nvidia/nsight-compute/*/ncu"))]), None)
    if not tool:
        steps.record("trace", "skipped", 0, "Nsight Compute (ncu) is not installed")
        return
    steps.report.data["trace"] = []
    for system, dtype, sequences in TRACED:
        name = f"trace, {system}, {dtype}, {sequences}"
        said = steps.run(name, [tool, "--profile-from-start", "off", "--clock-control", "none", "--cache-control", "none", "--metrics",
                                "gpu__time_duration.sum", "--csv", "--page", "raw", "--print-units", "base", machine.programs.bench, "step",
                                system, dtype, str(sequences)], 60, machine.environment)
        found = kernels_of(said or "")
        if said is not None and not found:
            steps.record(f"results of {name}", "failed", 0, "there are none")
        steps.report.data["trace"] += [{"system": system, "type": dtype, "sequences": sequences, "kernel": kernel, "launches": launches,
                                        "us": us} for kernel, launches, us in found]


def compare_pytorch(steps, machine):
    """The comparison measures as many rows as it can, with the published package's kernel if that package is here and can be compiled."""
    extensions = {**machine.environment, "TORCH_EXTENSIONS_DIR": os.path.join(machine.build, "torch"), "TORCH_CUDA_ARCH_LIST": machine.capability}
    compiles = ("import importlib.util, sys; all(map(importlib.util.find_spec, ('torch', 'sru'))) or sys.exit(77)\n"
                "import sru.cuda_functional")
    published = steps.run("published kernel", [sys.executable, "-B", "-W", "error:Just-in-time", "-c", compiles], 200, extensions, may_skip=True)
    path = os.path.join(steps.report.logs, "pytorch.json")
    seconds = max(2.0, min(120 * steps.scale, steps.left() - 20 * steps.scale))
    steps.run("against PyTorch", [sys.executable, "-B", "kernels/bench/compare_pytorch_gpu.py", "--gpu_bench", machine.programs.bench, "--out",
                                  path, "--seconds", f"{seconds:.1f}", *(["--published"] if published is not None else [])], 160, extensions,
              may_skip=True)
    steps.report.data["pytorch"] = json_file(path)


# What gpu_report.sh says of --parts, in the order of what is worth most if time runs out: functions of (steps, machine).
PARTS = {"products": measure("products", 60), "systems": measure("systems", 120), "trace": trace, "predict": measure("predict", 40),
         "fused": measure("fused", 30), "texts": lambda steps, machine: machine.prefix and drive_texts(steps, machine),
         "served": lambda steps, machine: machine.prefix and drive_servers(steps, machine.prefix, machine.environment),
         "checks": run_checks,
         "trained": lambda steps, machine: machine.prefix and drive_trained(steps, machine.prefix, machine.build, machine.environment),
         "scan": measure("scan", 45), "classify": measure("classify", 45), "pytorch": compare_pytorch, "gpus": check_all_gpus,
         "sanitizers": lambda steps, machine: sanitize(steps, machine.programs.check, machine.environment, machine.at_once)}
Machine = collections.namedtuple("Machine", "programs prefix build environment capability at_once")


def run_parts(steps, machine, names):
    """A part counts as done, for a later run that continues this one, if none of its steps ran out of time."""
    for name in names:
        if name == "sanitizers":
            steps.reserve = 0.0
        recorded = len(steps.report.data["steps"])
        PARTS[name](steps, machine)
        if not any(re.match("ran out of time|no time left", step["note"]) for step in steps.report.data["steps"][recorded:]):
            steps.report.data["parts"].append(name)
        steps.report.write()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default=os.environ.get("OUT", "gpu-report"))
    parser.add_argument("--prefix", help="an installation, or a tar archive of one, whose server is driven too")
    parser.add_argument("--cublaslt", help="a tar archive with libcublasLt.so.* (make gpu_prefix), for a machine without one")
    parser.add_argument("--minutes", type=float, default=FULL_SECONDS / 60)
    parser.add_argument("--build", default="build-gpu", help="build folder")
    parser.add_argument("--parts", type=lambda text: text.split(","), help="of: " + ",".join(PARTS))
    parser.add_argument("--resume", help="gpu.json of an earlier run, whose report is continued")
    flags = parser.parse_args()
    if unknown := set(flags.parts or ()) - set(PARTS):
        parser.error(f"--parts: no part {', '.join(unknown)}; there are: {', '.join(PARTS)}")
    started = time.monotonic()
    seconds = flags.minutes * 60
    # Those who name parts want them whole.
    scale = 1.0 if flags.parts or flags.resume else seconds / FULL_SECONDS
    found = facts()
    if not found["gpu"]:
        print("gpu_report: needs a GPU: nvidia-smi shows none", file=sys.stderr)
        return NO_GPU
    build = os.path.abspath(flags.build)
    shutil.rmtree(os.path.join(build, "logs"), ignore_errors=True)
    report = Report(os.path.abspath(flags.out), os.path.join(build, "logs"), found)
    report.data.update(json_file(flags.resume) or {} if flags.resume else {})
    parts = [name for name in PARTS if (name in flags.parts if flags.parts else name not in report.data["parts"])]
    steps = Steps(report, started + seconds - 10 * min(scale, 1.0), scale)
    steps.reserve = SANITIZER_SHARE * seconds if "sanitizers" in parts else 0.0
    report.write()

    folders = {}
    for name, archive in (("prefix", flags.prefix), ("cublaslt", flags.cublaslt)):
        try:
            folders[name] = unpacked(os.path.abspath(archive), os.path.join(build, name)) if archive else None
        except (OSError, subprocess.CalledProcessError) as error:
            folders[name] = None
            steps.record(f"--{name}", "failed", 0, f"it cannot be unpacked: {error}")
    prefix = folders["prefix"]
    toolkit = gpu_build.find_toolkit()
    environment = one_gpu(found)
    libraries = list(filter(None, [toolkit.library_folder, folders["cublaslt"], os.environ.get("LD_LIBRARY_PATH")]))
    if libraries:
        environment["LD_LIBRARY_PATH"] = ":".join(libraries)
    if prefix and os.path.isdir(os.path.join(prefix, "python")):  # the published package
        environment["PYTHONPATH"] = ":".join(filter(None, [os.environ.get("PYTHONPATH"), os.path.join(prefix, "python")]))
    programs = gpu_build.programs(steps, build, toolkit, found["capability"].replace(".", "") or "90", prefix)
    # A GPU may be for one process at a time.
    at_once = 1 if "Exclusive" in " ".join(nvidia_smi("compute_mode")) else max(2, (os.cpu_count() or 2) * 3 // 4)
    machine = Machine(programs, prefix, build, environment, found["capability"], at_once)
    if programs:
        if not check(steps, machine, [check_command(steps, programs, "goldens", dtype, "") for dtype in CHECKS]):
            # Nothing else would find one; the reason is the program's.
            print("gpu_report: " + report.data["steps"][-1]["note"], file=sys.stderr)
            return 1
        run_parts(steps, machine, parts)
    report.write()
    print(f"gpu_report: {report.folder}/gpu.md, gpu.json and gpu.log")
    return 1 if steps.failed else 0


if __name__ == "__main__":
    sys.exit(main())
