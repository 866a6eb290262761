#!/usr/bin/env python3
"""Does the work of scripts/gpu_report.sh: steps with a time limit each, and a report after every one.

A step that fails or runs out of time is recorded, and the others continue. The report contains only
what a step printed.
"""
import argparse
import glob
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
NO_GPU = 77
SANITIZERS = ("memcheck", "racecheck", "initcheck", "synccheck")
CHECKS = {"float32": ["--dtype=float32"], "bfloat16": ["--dtype=bfloat16"],
          "bfloat16_fused": ["--dtype=bfloat16", "--fuse_layers"]}
SANITIZED = [(name, CHECKS[name]) for name in ("float32", "bfloat16_fused")]
LOG_CHARACTERS = 200000  # of each step
TARGET_COPY_RATIO = 0.8
TARGET_CLASSIFY_US = 60.0


class Report:
    """The results so far; both files are rewritten after each step."""

    def __init__(self, folder, logs, facts):
        self.folder = folder
        self.logs = logs  # one file per step; all of them together are FOLDER/gpu.log
        os.makedirs(logs, exist_ok=True)
        self.data = {"facts": facts, "steps": [], "checks": {}, "scan": [], "classify": [],
                     "pytorch": None, "server": None}

    def write(self):
        os.makedirs(self.folder, exist_ok=True)
        with open(os.path.join(self.folder, "gpu.json"), "w", encoding="utf-8") as file:
            json.dump(self.data, file, indent=1)
        with open(os.path.join(self.folder, "gpu.md"), "w", encoding="utf-8") as file:
            file.write(markdown(self.data))

    def write_log(self):
        with open(os.path.join(self.folder, "gpu.log"), "w", encoding="utf-8") as out:
            for path in sorted(glob.glob(os.path.join(self.logs, "*.log")), key=os.path.getmtime):
                with open(path, encoding="utf-8", errors="replace") as file:
                    out.write(f"==== {os.path.basename(path)}\n{file.read()[-LOG_CHARACTERS:]}\n")


def table(header, lines):
    text = "| " + " | ".join(header) + " |\n|" + "---|" * len(header) + "\n"
    return text + "".join("| " + " | ".join(str(c) for c in line) + " |\n" for line in lines)


def verdict(reached):
    return "reached" if reached else "missed"


def markdown(data):
    """The report for people, from the report for programs."""
    facts = data["facts"]
    out = ["# GPU report\n", f"{facts.get('gpu') or 'no GPU'}, driver {facts.get('driver')}, "
           f"{facts.get('nvcc')}, commit {facts.get('commit')}, {facts.get('date')}.\n"]
    out.append("## Steps\n")
    out.append(table(("step", "result", "seconds", "note"),
                     [(s["name"], s["result"], f"{s['seconds']:.0f}", s["note"].replace("|", "/"))
                      for s in data["steps"]]))
    for name, checks in data["checks"].items():
        failed = [c for c in checks if not c["ok"]]
        out.append(f"## Checks, {name}\n")
        out.append(f"{len(checks)} checks, {len(failed)} failed.\n")
        out += [f"* {c['name']}: {c['detail']}\n" for c in failed]
    if data["scan"]:
        out.append("## The scan alone\n")
        out.append(f"Target at large batch: at least {TARGET_COPY_RATIO} of the device's copy rate "
                   "(bytes read plus bytes written).\n")
        out.append(table(("data type", "directions x hidden", "sequences x length", "us", "GB/s",
                          "of the copy rate"),
                         [(r["dtype"], f"{r['directions']} x {r['hidden']}",
                           f"{r['sequences']} x {r['length']}", f"{r['us']:.1f}",
                           f"{r['bytes_per_s'] / 1e9:.0f}", f"{r['ratio']:.2f}")
                          for r in data["scan"]]))
    if data["classify"]:
        out.append("## One Classify of a TREC question\n")
        out.append(f"Target: under {TARGET_CLASSIFY_US:.0f} us of GPU and copy time.\n")
        out.append(table(("type", "GPU and copies, us", "target", "without the token table, us",
                          "Run() on the host, p50 us", "p99 us"),
                         [(r["type"], f"{r['gpu_and_copy_us']:.1f}",
                           verdict(r["gpu_and_copy_us"] < TARGET_CLASSIFY_US),
                           f"{r['without_token_table_us']:.1f}",
                           f"{r['run_p50_us']:.1f}", f"{r['run_p99_us']:.1f}")
                          for r in data["classify"]]))
    if data["pytorch"]:
        out += pytorch_section(data["pytorch"])
    if data["server"]:
        out += server_section(data["server"])
    return "\n".join(out)


def pytorch_section(report):
    out = ["## Against PyTorch\n",
           f"PyTorch {report['torch']}, cuDNN {report['cudnn']}. Medians of alternating runs, "
           "microseconds of one forward pass; SRU is float32 in float32 rows, else bfloat16; fused "
           "is the same with a kernel per layer (--fuse_layers). LSTM is the better of eager and "
           "captured.\n"]
    summary = report.get("summary")
    if summary:
        out.append(f"LSTM / SRU at batch <= 32: least {summary['lstm_ratio_least']:.1f} (target 5: "
                   f"{verdict(summary['lstm_least_reached'])}), median "
                   f"{summary['lstm_ratio_median']:.1f} (target 10: "
                   f"{verdict(summary['lstm_median_reached'])}).")
        if summary["fused_rows"]:
            out.append(f"LSTM / SRU with fused layers, {summary['fused_rows']} rows: least "
                       f"{summary['fused_ratio_least']:.1f}, median "
                       f"{summary['fused_ratio_median']:.1f}.")
        if summary["ops_ratio_least"] is not None:
            out.append(f"SRU in PyTorch operations / SRU: least {summary['ops_ratio_least']:.1f} "
                       f"(target 5: {verdict(summary['ops_least_reached'])}).\n")
    lines = []
    for r in report["results"]:
        ops = r.get("ops_us")
        lines.append((r["shape"], r["batch"], r["dtype"], r["sru_us"], r.get("fused_us", "-"),
                      r["lstm_eager_us"],
                      r.get("lstm_graph_us", "-"), f"{r['lstm_us'] / r['sru_us']:.1f}", ops or "-",
                      f"{ops / r['sru_us']:.1f}" if ops else "-"))
    out.append(table(("shape", "batch", "data type", "SRU", "fused", "LSTM eager", "LSTM graph",
                      "LSTM / SRU", "operations", "operations / SRU"), lines))
    if report["left_out"]:
        out.append(f"{len(report['left_out'])} rows were left out for time.\n")
    out += [f"* {e['row']}: {e['error']}\n" for e in report["errors"]]
    return out


def server_section(server):
    out = ["## The whole server\n",
           f"{server['right']} of {server['questions']} questions got the label of the published "
           f"package; the largest error of a logit is {server['logit_error']:.1e}. One call: "
           f"`{server['label']}`.\n"]
    out.append(table(("load", "calls/s", "p50 us", "p99 us"),
                     [(l["load"], f"{l['rate']:.0f}", f"{l['p50']:.0f}", f"{l['p99']:.0f}")
                      for l in server["loads"]]))
    return out


class Steps:
    """Runs commands one after the other until the deadline."""

    def __init__(self, report, deadline):
        self.report = report
        self.deadline = deadline
        self.failed = False

    def left(self):
        return self.deadline - time.monotonic()

    def out_of_time(self, name):
        """Whether there is no time left for a step; if so, that is recorded."""
        if self.left() >= 5:
            return False
        self.record(name, "skipped", 0, "no time left")
        return True

    def record(self, name, result, seconds, note=""):
        self.report.data["steps"].append(
            {"name": name, "result": result, "seconds": seconds, "note": note})
        self.failed |= result == "failed"
        print(f"gpu_report: {name}: {result} in {seconds:.0f} s {note}", flush=True)
        self.report.write()

    def start(self, command, log, environment=None):
        print(f"gpu_report: {' '.join(command)}", flush=True)
        return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd=ROOT,
                                env={**os.environ, **(environment or {})}, start_new_session=True)

    def finish(self, name, process, log_path, started, limit):
        """Returns (exit code, output); the code is None after the limit. Records only failures."""
        try:
            code = process.wait(timeout=max(1.0, min(limit, self.left())))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            code = None
        with open(log_path, encoding="utf-8", errors="replace") as log:
            output = log.read()
        if code != 0:
            tail = " ".join(output.strip().splitlines()[-3:])[-300:]
            why = "ran out of time; " if code is None else f"exit code {code}; "
            skipped = code == NO_GPU
            self.record(name, "skipped" if skipped else "failed", time.monotonic() - started,
                        tail if skipped else why + tail)
        return code, output

    def run(self, name, command, limit, environment=None):
        """Returns the output, or None after a failure, which is recorded."""
        started = time.monotonic()
        if self.out_of_time(name):
            return None
        path = os.path.join(self.report.logs, re.sub(r"\W+", "_", name) + ".log")
        with open(path, "w", encoding="utf-8") as log:
            try:
                process = self.start(command, log, environment)
            except OSError as error:
                self.record(name, "failed", 0, str(error))
                return None
            code, output = self.finish(name, process, path, started, limit)
        if code != 0:
            return None
        lines = output.strip().splitlines()
        self.record(name, "ok", time.monotonic() - started, lines[-1][:200] if lines else "")
        return output


def output_of(command):
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, cwd=ROOT,
                              check=False)
        return done.stdout.strip() if done.returncode == 0 else ""
    except (OSError, subprocess.TimeoutExpired):
        return ""


def facts():
    tool = shutil.which("nvidia-smi") or "/usr/local/nvidia/bin/nvidia-smi"
    gpu = output_of([tool, "--query-gpu=name,driver_version,compute_cap",
                     "--format=csv,noheader"]).splitlines()
    name, driver, capability = ([f.strip() for f in gpu[0].split(",")] + [""] * 3)[:3] if gpu else (
        "", "", "")
    nvcc = re.search(r"release [\d.]+", output_of(["nvcc", "--version"]))
    return {"gpu": name, "gpus": len(gpu), "driver": driver, "capability": capability,
            "nvcc": "nvcc " + nvcc.group(0) if nvcc else "no nvcc",
            "commit": output_of(["git", "describe", "--always", "--dirty"]) or "unknown",
            "date": time.strftime("%Y-%m-%d", time.gmtime())}


def toolkit_flags():
    """Finds cuBLASLt if it is not beside nvcc: PyTorch's packages bring the toolkit's files too.

    Returns (CMake flags, folders for LD_LIBRARY_PATH)."""
    roots = [os.path.dirname(os.path.dirname(os.path.realpath(shutil.which("nvcc") or "")))]
    roots += ["/usr/local/cuda"] + sorted(glob.glob("/usr/local/cuda-1*"), reverse=True)
    site = output_of([sys.executable, "-c",
                      "import site, sys; print('\\n'.join(site.getsitepackages() + sys.path))"])
    packages = [p for s in dict.fromkeys(site.splitlines()) for p in
                sorted(glob.glob(os.path.join(s, "nvidia", "*")))]
    header = next((h for r in roots + packages
                   for h in (glob.glob(f"{r}/include/cublasLt.h") +
                             glob.glob(f"{r}/targets/*/include/cublasLt.h"))), None)
    library = next((l for r in roots + packages
                    for l in (glob.glob(f"{r}/lib64/libcublasLt.so.*") +
                              glob.glob(f"{r}/lib/libcublasLt.so.*") +
                              glob.glob(f"{r}/targets/*/lib/libcublasLt.so.*"))), None)
    flags = []
    if header and not any(header.startswith(r + "/") for r in roots if r):
        flags.append(f"-DSRU_CUDA_INCLUDE_DIR={os.path.dirname(header)}")
        if not os.path.exists(os.path.join(os.path.dirname(header), "cuda_runtime_api.h")):
            # This is a package of cuBLAS alone; the runtime's headers are beside nvcc.
            flags.append(f"-DCMAKE_CXX_FLAGS=-isystem {roots[0]}/include")
    return flags, [os.path.dirname(library)] if library else []


def sanitize(steps, program, environment):
    """Runs all tools at the same time: they keep the processors busy, not the GPU, and time nothing."""
    tool = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if not os.path.exists(tool):
        steps.record("compute-sanitizer", "skipped", 0, "not installed")
        return
    if steps.out_of_time("compute-sanitizer"):
        return
    running = []
    for kind, (name, arguments) in itertools.product(SANITIZERS, SANITIZED):
        path = os.path.join(steps.report.logs, f"sanitizer_{kind}_{name}.log")
        with open(path, "w", encoding="utf-8") as log:
            running.append((f"{kind}, {name}", path, time.monotonic(), steps.start(
                [tool, "--tool", kind, "--error-exitcode", "9", program, "--small", *arguments],
                log, environment)))
    for kind, path, started, process in running:
        code, output = steps.finish("sanitizer " + kind, process, path, started, 100)
        if code == 0:
            found = re.findall(r"(?:ERROR|RACECHECK) SUMMARY: .*", output)
            steps.record("sanitizer " + kind, "ok", time.monotonic() - started,
                         found[-1] if found else "no summary line")


def drive_server(steps, prefix, environment, backend="cuda", seconds=5.0):
    """Classify over the wire on the GPU."""
    name = "server"
    if steps.out_of_time(name):
        return
    started = time.monotonic()
    log_path = os.path.join(steps.report.logs, "server.log")
    program = os.path.join(prefix, "bin", "sru_server")
    with open(log_path, "w", encoding="utf-8") as log:
        try:
            server = subprocess.Popen(
                [program, "--backend=" + backend, "--listen=127.0.0.1:0", "--metrics_listen=127.0.0.1:0",
                 "--model_repository=" + os.path.join(prefix, "share", "sru", "models")],
                stdout=log, stderr=subprocess.STDOUT, env={**os.environ, **environment})
        except OSError as error:
            steps.record(name, "failed", 0, f"{program} does not start: {error}")
            return
    try:
        address = None
        while address is None:
            with open(log_path, encoding="utf-8", errors="replace") as log:
                said = log.read()
            found = re.search(r"listening on (\S+),", said)
            address = found.group(1) if found else None
            if server.poll() is not None or time.monotonic() - started > min(60, steps.left()):
                hint = ""
                if "GLIBC" in said:
                    hint = "this machine's C or C++ library is older than the one of the build; "
                steps.record(name, "failed", time.monotonic() - started,
                             f"the server does not start: {hint}" + " ".join(said.split())[-300:])
                return
            time.sleep(0.05)
        steps.record("server starts", "ok", time.monotonic() - started, said.splitlines()[0][:200])
        with open(os.path.join(ROOT, "tests", "data", "trec_questions.jsonl"),
                  encoding="utf-8") as file:
            questions = [json.loads(line) for line in file]
        client = os.path.join(prefix, "bin", "sru_client")
        answers = subprocess.run([client, "classify", "--json", "--top_k=0", "--address=" + address],
                                 input="".join(q["text"] + "\n" for q in questions),
                                 capture_output=True, text=True, timeout=30, check=True,
                                 env={**os.environ, **environment}).stdout.splitlines()
        labels = [json.loads(a)["labels"] for a in answers]
        error = max(abs(float(l["logit"]) - q["logits"][l["index"]])
                    for ls, q in zip(labels, questions) for l in ls)
        one = subprocess.run([client, "classify", "--times", "--address=" + address,
                              questions[0]["text"]], capture_output=True, text=True, timeout=30,
                             check=True, env={**os.environ, **environment}).stdout
        result = {"questions": len(questions),
                  "right": sum(l[0]["name"] == q["label"] for l, q in zip(labels, questions)),
                  "logit_error": error,
                  "label": " ".join(one.split()), "loads": []}
        for title, arguments in (("64 in flight", ["--in_flight=64"]),
                                 ("512 in flight", ["--in_flight=512", "--connections=4",
                                                    "--threads=4"]),
                                 ("one at a time", ["--in_flight=1", "--connections=1",
                                                    "--threads=1"])):
            loaded = steps.run("load, " + title,
                               [os.path.join(prefix, "bin", "sru_bench"), "load", "--json",
                                f"--duration={seconds}s", "--address=" + address, *arguments], 20,
                               environment)
            if loaded is not None:
                result["loads"].append({"load": title, **load_figures(parse_json(loaded))})
        steps.report.data["server"] = result
        wrong = result["questions"] - result["right"]
        steps.record(name, "failed" if wrong else "ok", time.monotonic() - started,
                     f"{wrong} wrong labels" if wrong else "")
    except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError) as error:
        steps.record(name, "failed", time.monotonic() - started, repr(error)[:300])
    finally:
        server.terminate()
        try:
            server.wait(timeout=20)
        except subprocess.TimeoutExpired:
            server.kill()
            steps.record("server drains", "failed", 20, "it had to be killed")


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


def load_figures(report):
    """The parts of sru_bench's report that are needed."""
    return {"rate": report["throughput_per_s"], "p50": report["latency_us"]["p50"],
            "p99": report["latency_us"]["p99"], "codes": report["codes"]}


def parse_json(text):
    """The JSON that begins a line of a program's output; [] if there is none."""
    for begin in re.finditer(r"^[\[{]", text or "", re.MULTILINE):
        try:
            return json.JSONDecoder().raw_decode(text, begin.start())[0]
        except ValueError:
            pass
    return []


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default=os.environ.get("OUT", "gpu-report"))
    parser.add_argument("--prefix", help="an installation, or a tar archive of one, whose server is driven too")
    parser.add_argument("--minutes", type=float, default=8)
    parser.add_argument("--build", default="build-gpu", help="build folder")
    flags = parser.parse_args()
    deadline = time.monotonic() + flags.minutes * 60 - 10
    found = facts()
    if not found["gpu"]:
        print("gpu_report: needs a GPU: nvidia-smi shows none", file=sys.stderr)
        return NO_GPU
    build = os.path.abspath(flags.build)
    shutil.rmtree(os.path.join(build, "logs"), ignore_errors=True)
    report = Report(os.path.abspath(flags.out), os.path.join(build, "logs"), found)
    steps = Steps(report, deadline)
    report.write()

    cmake_flags, folders = toolkit_flags()
    environment = {}
    if folders:
        environment["LD_LIBRARY_PATH"] = ":".join(
            folders + [p for p in [os.environ.get("LD_LIBRARY_PATH")] if p])
    architecture = found["capability"].replace(".", "") or "90"
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    built = steps.run("configure", ["cmake", "-S", "tests/gpu", "-B", build, *generator,
                                    "-DSRU_CPU=OFF", "-DSRU_CUDA=ON",
                                    f"-DSRU_CUDA_ARCHITECTURES={architecture}", *cmake_flags], 60)
    if built is not None:
        built = steps.run("build", ["cmake", "--build", build, "--parallel",
                                    str(os.cpu_count() or 2)], 150)
    if built is not None:
        check = os.path.join(build, "bin", "gpu_check")
        bench = os.path.join(build, "bin", "gpu_bench")
        for name, arguments in CHECKS.items():
            path = os.path.join(report.logs, f"checks_{name}.json")
            steps.run(f"checks, {name}", [check, *arguments, "--json=" + path], 60, environment)
            if os.path.exists(path):
                with open(path, encoding="utf-8") as file:
                    report.data["checks"][name] = parse_json(file.read())
        report.data["scan"] = parse_json(steps.run("scan", [bench, "scan"], 45, environment))
        report.data["classify"] = parse_json(
            steps.run("classify", [bench, "classify"], 45, environment))
        report.write()
    if flags.prefix:
        try:
            prefix = unpacked(os.path.abspath(flags.prefix), build)
        except (OSError, subprocess.CalledProcessError) as error:
            steps.record("server", "failed", 0, f"--prefix cannot be unpacked: {error}")
        else:
            drive_server(steps, prefix, environment)
    if built is not None:
        sanitize(steps, check, environment)
        # The comparison gets the remaining time, and measures as many rows as it can.
        path = os.path.join(report.logs, "pytorch.json")
        seconds = max(10, min(200, steps.left() - 30))
        steps.run("against PyTorch",
                  [sys.executable, "-B", "kernels/bench/compare_pytorch_gpu.py",
                   "--gpu_bench", bench, "--out", path, "--seconds", str(int(seconds))],
                  seconds + 60, environment)
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                report.data["pytorch"] = parse_json(file.read()) or None
    report.write()
    report.write_log()
    print(f"gpu_report: {report.folder}/gpu.md, gpu.json and gpu.log")
    return 1 if steps.failed else 0


if __name__ == "__main__":
    sys.exit(main())
