#!/usr/bin/env python3
"""Does the work of scripts/gpu_report.sh: steps with a time limit each, and a report after every one.

A step that fails or runs out of time is recorded, and the others continue. The report contains only what a step printed, and all three files
are rewritten after each. Once nvidia-smi has shown a GPU, a program that finds none has failed: only PyTorch may be missing.
"""
import argparse
import glob
import importlib.util
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import gpu_build
from gpu_build import output_of
from report_common import Table

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
NO_GPU = 77
FULL_SECONDS = 480.0  # limits of steps are for a run of 8 minutes; a shorter run has shorter ones
PYTORCH_SHARE = 0.3  # of the time, kept for the comparison
MAX_LOGIT_ERROR = 1e-4  # of the server in float32
# Of the trained models' answers and translations in float32, whose recorded scores are rounded and whose decisions are more
# than this apart.
MAX_SCORE_ERROR = 1e-3
TRAINED = {"reader": "reader_squad", "translator": "translator_multi30k"}
SANITIZERS = ("memcheck", "racecheck", "initcheck", "synccheck")
CHECKS = {"float32": ["--dtype=float32"], "bfloat16": ["--dtype=bfloat16"],
          "bfloat16_fused": ["--dtype=bfloat16", "--fuse_layers"]}
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
        self.data = {"facts": facts, "steps": [], "checks": {}, "scan": [], "classify": [],
                     "systems": [], "trained": [], "pytorch": None, "server": None}

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
    ("systems", "Readers and translators",
     "Random weights of the paper's sizes, from the call of Run() to the results: a step of a beam search of 5, an encoder of sentences of"
     " 25 words, passages of 130 tokens with questions of 12.",
     ("system", "type", "sequences", "rows", "p50 us", "p99 us", "rows/s", "workspace, MB"),
     lambda r: (r["name"], r["type"], r["sequences"], r["rows"], f"{r['run_p50_us']:.1f}", f"{r['run_p99_us']:.1f}",
                f"{r['rows'] / r['run_p50_us'] * 1e6:.0f}", f"{r['workspace_mb']:.0f}")),
    ("trained", "Trained models in the server, float32",
     "Answers with their offsets and translations (beam 5) that the reference recorded; they must be equal, and their scores within"
     f" {MAX_SCORE_ERROR:.0e}.",
     ("model", "recorded", "equal", "largest difference of a score"),
     lambda r: (r["name"], r["recorded"], r["equal"], f"{r['difference']:.1e}")),
)


def markdown(data):
    """The report for people, from the report for programs."""
    facts = data["facts"]
    out = [f"# GPU report\n\n{facts.get('gpu') or 'no GPU'}, driver {facts.get('driver')}, {facts.get('nvcc')}, commit"
           f" {facts.get('commit')}, {facts.get('date')}.\n\n## Steps",
           Table(("step", "result", "seconds", "note"),
                 [(s["name"], s["result"], f"{s['seconds']:.0f}", s["note"].replace("|", "/")) for s in data["steps"]])]
    for name, checks in data["checks"].items():
        failed = [c for c in checks if not c["ok"]]
        out += [f"## Checks, {name}\n\n{len(checks)} checks, {len(failed)} failed.", *(f"* {c['name']}: {c['detail']}" for c in failed)]
    for key, title, text, header, cells in TABLES:
        if data[key]:
            out += [f"## {title}\n\n{text}", Table(header, map(cells, data[key]))]
    if data["pytorch"]:
        out += pytorch_section(data["pytorch"])
    if data["server"]:
        server = data["server"]
        out += [f"## The whole server\n\n{server['right']} of {server['questions']} questions got the label of the published package; the"
                f" largest error of a logit is {server['logit_error']:.1e}. One call: `{server['label']}`.",
                Table(("load", "calls/s", "p50 us", "p99 us"),
                      [(r["load"], f"{r['rate']:.0f}", f"{r['p50']:.0f}", f"{r['p99']:.0f}") for r in server["loads"]])]
    return "\n\n".join(map(str, out)) + "\n"


def pytorch_section(report):
    out = [f"## Against PyTorch\n\nPyTorch {report['torch']}, cuDNN {report['cudnn']}. Medians of alternating runs, microseconds of one"
           " forward pass; SRU is float32 in float32 rows, else bfloat16; fused is the same with a kernel per layer (--fuse_layers=all)."
           " LSTM is the better of eager and captured."]
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
        ("shape", "batch", "data type", "SRU", "fused", "LSTM eager", "LSTM graph", "LSTM / SRU", "operations", "operations / SRU"),
        [(r["shape"], r["batch"], r["dtype"], r["sru_us"], r.get("fused_us", "-"), r["lstm_eager_us"], r.get("lstm_graph_us", "-"),
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

    def finish(self, name, process, started, limit, may_skip=False):
        """Returns (exit code, output); the code is None after the limit, which begins at `started`.

        Records only failures. With `may_skip`, exit code 77 is none."""
        waited = time.monotonic() - started
        try:
            code = process.wait(timeout=max(0.1, min(limit * self.scale - waited, self.left())))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            code = None
        output = read(self.report.log(name))
        if code != 0:
            tail = " ".join(output.strip().splitlines()[-3:])[-300:]
            why = "ran out of time; " if code is None else f"exit code {code}; "
            skipped = may_skip and code == NO_GPU
            self.record(name, "skipped" if skipped else "failed", time.monotonic() - started, tail if skipped else why + tail)
        return code, output

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

    def results(self, name, found, done):
        """What a step left, which fails if it succeeded without leaving anything."""
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


def kernel_filter(tool, seconds):
    """Arguments that make compute-sanitizer look at our kernels only; their names contain `sru`.

    cuBLASLt's kernels are pipelined in ways that its tools report, and slow under them. The option's name depends on the version."""
    said = output_of([tool, "--help"], seconds)
    found = [option for option in ("--kernel-name", "--kernel-regex", "--filter") if re.search(option + r"(?![-\w])", said)]
    return [found[0], "kns=sru"] if found else []


def sanitize(steps, program, environment, one_by_one=False):
    """Runs all tools at the same time: they keep the processors busy, not the GPU, and time nothing.

    `one_by_one` is for a GPU that one process at a time may use."""
    tool = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if not os.path.exists(tool):
        steps.record("compute-sanitizer", "skipped", 0, "not installed")
        return
    if steps.out_of_time("compute-sanitizer"):
        return
    ours = kernel_filter(tool, steps.within(10))
    # initcheck must see what the library's kernels write, which ours read, and memcheck is fast enough to look at
    # them once, too.
    runs = [(f"{kind}, {name}", kind, ours if kind != "initcheck" else [], CHECKS[name])
            for kind, name in itertools.product(SANITIZERS, ("float32", "bfloat16_fused"))]
    if ours:
        runs.append(("memcheck of all kernels, float32", "memcheck", [], CHECKS["float32"]))
    running = []
    for name, kind, only, arguments in runs:
        name = "sanitizer " + name
        if one_by_one and steps.out_of_time(name):
            continue
        with open(steps.report.log(name), "w", encoding="utf-8") as log:
            running.append((name, time.monotonic(), steps.start(
                [tool, "--error-exitcode", "9", "--tool", kind, *only, program, "--small", *arguments], log, environment)))
        if one_by_one:
            finish_sanitizer(steps, *running.pop())
    for run in running:
        finish_sanitizer(steps, *run)


def finish_sanitizer(steps, name, started, process):
    code, output = steps.finish(name, process, started, 100)
    if code == 0:
        found = re.findall(r"(?:ERROR|RACECHECK) SUMMARY: .*", output)
        steps.record(name, "ok" if found else "failed", time.monotonic() - started,
                     found[-1] if found else "no summary line: the tool has not looked at anything")


def with_server(steps, name, prefix, repository, environment, backend, body):
    """Runs a server and body(address, its first line), which returns what is wrong. The step `name` records that, and whatever fails."""
    started = time.monotonic()

    def record(result, note):
        steps.record(name, result, time.monotonic() - started, note)

    program = os.path.join(prefix, "bin", "sru_server")
    try:
        with open(steps.report.log(name), "w", encoding="utf-8") as log:
            server = subprocess.Popen(
                [program, "--backend=" + backend, "--listen=127.0.0.1:0", "--metrics_listen=127.0.0.1:0", "--http_listen=",
                 "--model_repository=" + repository], stdout=log, stderr=subprocess.STDOUT, env={**os.environ, **environment})
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
        try:
            server.wait(timeout=steps.within(20))
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
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


def drive_trained(steps, prefix, build, environment, backend="cuda"):
    """The trained reader and translator in the server against what the reference recorded. Needs the checkpoints, and PyTorch to export
    them."""
    name = "trained models"
    if steps.out_of_time(name):
        return
    shared = shared_folder()
    if shared is None or importlib.util.find_spec("torch") is None:
        steps.record(name, "skipped", 0, "../shared/checkpoints is not here; SRU_SHARED_DIR names another folder"
                     if shared is None else "this Python has no torch, with which they are exported")
        return
    repository = os.path.join(build, "trained")
    shutil.rmtree(repository, ignore_errors=True)
    sources = {task: os.path.join(shared, "checkpoints", folder) for task, folder in TRAINED.items()}
    for task, source in sources.items():
        files = [("--checkpoint", "checkpoint.pt"), ("--config", "config.json"), ("--vocab", "vocab.txt"), ("--subwords", "spm.model")]
        given = [word for flag, file in files if os.path.exists(os.path.join(source, file)) for word in (flag, os.path.join(source, file))]
        if steps.run(f"export of the {task}", [sys.executable, "-B", "models/export_torch.py", *given,
                                               "--out", os.path.join(repository, task, "1")], 60) is None:
            return

    def compare(address, _):
        mistakes = []
        for task, source in sources.items():
            recorded = [json.loads(line) for line in read(os.path.join(source, "expected.jsonl")).splitlines()]
            arguments, given, count = (
                (["answer", "--queries"], [json.dumps({"question": r["question"], "passages": [r["paragraph"]]}) for r in recorded],
                 compare_answers) if task == "reader" else
                (["translate", "--beam_size=5"], [r["source"] for r in recorded], compare_translations))
            said = client_output(steps, prefix, environment, [*arguments, "--json", "--model=" + task, "--address=" + address], given)
            found = [json.loads(line) for line in said.splitlines()]
            equal, difference = count(recorded, found)
            steps.report.data["trained"].append({"name": task, "recorded": len(recorded), "equal": equal, "difference": difference})
            if len(found) != len(recorded) or equal != len(recorded) or not difference <= MAX_SCORE_ERROR:
                mistakes.append(f"{task}: {equal} of {len(recorded)} equal, a score differs by {difference:.1e}")
        return mistakes

    with_server(steps, name, prefix, repository, environment, backend, compare)


def drive_server(steps, prefix, environment, backend="cuda", seconds=5.0):
    """Classify over the wire on the GPU."""
    name = "server"
    if steps.out_of_time(name):
        return
    started = time.monotonic()

    def classify(address, line):
        steps.record("server starts", "ok", time.monotonic() - started, line)
        questions = [json.loads(text) for text in read(os.path.join(ROOT, "tests", "data", "trec_questions.jsonl")).splitlines()]
        said = client_output(steps, prefix, environment, ["classify", "--json", "--top_k=0", "--address=" + address],
                             [q["text"] for q in questions], 30)
        labels = [json.loads(answer)["labels"] for answer in said.splitlines()]
        one = client_output(steps, prefix, environment, ["classify", "--times", "--address=" + address, questions[0]["text"]], seconds=30)
        result = {"questions": len(questions), "label": " ".join(one.split()), "loads": [],
                  "right": sum(found[0]["name"] == q["label"] for found, q in zip(labels, questions)),
                  "logit_error": max(abs(float(l["logit"]) - q["logits"][l["index"]]) for found, q in zip(labels, questions) for l in found)}
        for title, arguments in (("64 in flight", ["--in_flight=64"]),
                                 ("512 in flight", ["--in_flight=512", "--connections=4", "--threads=4"]),
                                 ("one at a time", ["--in_flight=1", "--connections=1", "--threads=1"])):
            loaded = steps.run("load, " + title, [os.path.join(prefix, "bin", "sru_bench"), "load", "--json", f"--duration={seconds}s",
                                                  "--address=" + address, *arguments], 20, environment)
            if loaded is not None:
                run = parse_json(loaded)
                result["loads"].append({"load": title, "rate": run["throughput_per_s"], "p50": run["latency_us"]["p50"],
                                        "p99": run["latency_us"]["p99"], "codes": run["codes"]})
        steps.report.data["server"] = result
        return server_mistakes(result)

    with_server(steps, name, prefix, os.path.join(prefix, "share", "sru", "models"), environment, backend, classify)


def server_mistakes(result):
    """What is wrong in what the server answered, in words."""
    wrong = result["questions"] - result["right"]
    mistakes = [f"{wrong} wrong labels"] if wrong else []
    if not result["logit_error"] <= MAX_LOGIT_ERROR:  # also if it is NaN
        mistakes.append(f"a logit is wrong by {result['logit_error']:.1e}, expected at most {MAX_LOGIT_ERROR:.0e}")
    for load in result["loads"]:
        errors = {code: count for code, count in load["codes"].items() if code != "OK" and count}
        if errors:
            mistakes.append(f"{load['load']}: calls ended with {errors}")
    return mistakes


def unpacked(prefix, build):
    """The installation's folder: `prefix`, or the one in it if it is a tar archive."""
    if not os.path.isfile(prefix):
        return prefix
    folder = os.path.join(build, "prefix")
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


def json_file(path):
    return parse_json(read(path)) if os.path.exists(path) else []


def one_gpu(found):
    """The environment that leaves one GPU visible, the one with the least memory in use.

    Empty if there is only one or the caller has chosen. Nothing here needs a second one, and every program would open all of them."""
    if found["gpus"] < 2 or "CUDA_VISIBLE_DEVICES" in os.environ:
        return {}
    used = [re.match(r"\d+", line.strip()) for line in nvidia_smi("memory.used")]
    used = [int(m.group(0)) if m else sys.maxsize for m in used] or [0]
    return {"CUDA_VISIBLE_DEVICES": str(used.index(min(used))), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def measure(steps, programs, environment):
    """Runs gpu_check in every data type, and gpu_bench's own benchmarks."""
    data = steps.report.data
    for name, arguments in CHECKS.items():
        path = os.path.join(steps.report.logs, f"checks_{name}.json")
        done = steps.run(f"checks, {name}", [programs.check, *arguments, "--json=" + path], 60, environment)
        found = steps.results(f"checks, {name}", json_file(path), done)
        if found:
            data["checks"][name] = found
    if "CUDA_VISIBLE_DEVICES" in environment:
        everywhere = {k: v for k, v in environment.items() if k != "CUDA_VISIBLE_DEVICES"}
        steps.run("short check on all GPUs", [programs.check, "--small"], 60, everywhere)
    for name in ("scan", "classify", "systems"):
        done = steps.run(name, [programs.bench, name], 45, environment)
        data[name] = steps.results(name, parse_json(done), done)
    steps.report.write()


def compare_pytorch(steps, program, environment):
    """The comparison gets the remaining time, and measures as many rows as it can."""
    path = os.path.join(steps.report.logs, "pytorch.json")
    seconds = max(2.0, min(200 * steps.scale, steps.left() - 30 * steps.scale))
    steps.run("against PyTorch", [sys.executable, "-B", "kernels/bench/compare_pytorch_gpu.py", "--gpu_bench", program, "--out", path,
                                  "--seconds", f"{seconds:.1f}"], 260, environment, may_skip=True)
    steps.report.data["pytorch"] = json_file(path) or None
    steps.report.write()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default=os.environ.get("OUT", "gpu-report"))
    parser.add_argument("--prefix", help="an installation, or a tar archive of one, whose server is driven too")
    parser.add_argument("--minutes", type=float, default=FULL_SECONDS / 60)
    parser.add_argument("--build", default="build-gpu", help="build folder")
    flags = parser.parse_args()
    started = time.monotonic()
    seconds = flags.minutes * 60
    scale = seconds / FULL_SECONDS
    found = facts()
    if not found["gpu"]:
        print("gpu_report: needs a GPU: nvidia-smi shows none", file=sys.stderr)
        return NO_GPU
    build = os.path.abspath(flags.build)
    shutil.rmtree(os.path.join(build, "logs"), ignore_errors=True)
    report = Report(os.path.abspath(flags.out), os.path.join(build, "logs"), found)
    steps = Steps(report, started + seconds - 10 * min(scale, 1.0), scale)
    if importlib.util.find_spec("torch") is not None:
        steps.reserve = PYTORCH_SHARE * seconds
    report.write()

    prefix = None
    if flags.prefix:
        try:
            prefix = unpacked(os.path.abspath(flags.prefix), build)
        except (OSError, subprocess.CalledProcessError) as error:
            steps.record("server", "failed", 0, f"--prefix cannot be unpacked: {error}")
    toolkit = gpu_build.find_toolkit()
    environment = one_gpu(found)
    if toolkit.library_folder:
        environment["LD_LIBRARY_PATH"] = ":".join(filter(None, [toolkit.library_folder, os.environ.get("LD_LIBRARY_PATH")]))
    programs = gpu_build.programs(steps, build, toolkit, found["capability"].replace(".", "") or "90", prefix)
    if programs:
        measure(steps, programs, environment)
    if prefix:
        drive_server(steps, prefix, environment)
        drive_trained(steps, prefix, build, environment)
    if programs:
        sanitize(steps, programs.check, environment, one_by_one="Exclusive" in " ".join(nvidia_smi("compute_mode")))
        steps.reserve = 0.0
        compare_pytorch(steps, programs.bench, environment)
    report.write()
    print(f"gpu_report: {report.folder}/gpu.md, gpu.json and gpu.log")
    return 1 if steps.failed else 0


if __name__ == "__main__":
    sys.exit(main())
