#!/usr/bin/env python3
"""Finds out everything that we want to know about a GPU machine, in one command and at most 8 minutes: builds kernels/ and
the checks, runs the benchmarks, the server, and the checks with and without compute-sanitizer, and writes OUT/gpu.md, OUT/gpu.json
and OUT/gpu.log, all after every step. Needs python3, and --prefix or the CUDA toolkit (12.0 or newer) with g++ and CMake (3.25 or
newer); no network. PyTorch (comparison, export of trained models), Nsight Compute (trace) and compute-sanitizer are used if they are there.

The goldens always come first: they find out whether there is a GPU. --resume continues the report of an earlier run: its rows are kept, parts
that it finished are left out, and of checks those that passed. --prefix names an installation, or a tar archive of one (make gpu_prefix), whose
server is then also run on the GPU and whose programs are used instead of building them. OUT is $OUT or gpu-report. One GPU is used:
CUDA_VISIBLE_DEVICES, or the one with the most free memory. Parts come in the order of their worth, should time run out.

Each step has a time limit. One that fails or runs out of time is a row that says so, and the others continue. Exits with 77 if nvidia-smi
shows no GPU, with 1 if a step failed; at once, with the reason, if our programs cannot use the GPU: once nvidia-smi has shown one, only
PyTorch and NVIDIA's tools may be missing.
"""
import concurrent.futures
import contextlib
import csv
import glob
import io
import itertools
import json
import os
import pathlib
import re
import shutil
import sys
import time

from report_common import (Limits, NotMeasured, OUT_OF_TIME, PAPER, PAPER_VOCABULARY, ROOT, Report, Row, Server, at_least, bench,
                           last_line, output_of, run, spread, write_language_model)

NO_GPU = 77
FULL_MINUTES = 8.0  # limits of steps are for a run of this length; a shorter run has shorter ones
ADVICE = ("install the CUDA toolkit (nvcc), g++ and CMake, or take programs along: make gpu_prefix where there are these, then"
          " --prefix build-gpu_prefix/prefix.tar.gz here")
GROUPS = ("bits", "programs", "large", "reference", "others")  # of checks, a process each; what takes longest comes first
CHECKS = {"bfloat16_fused": ["--dtype=bfloat16", "--fuse_layers"], "bfloat16": ["--dtype=bfloat16"], "float32": ["--dtype=float32"]}
# Whether a check lost its device, or found one that an earlier check lost.
LOST = re.compile(r"has failed and is out of use|it does not answer|\(cudaError")
# What compute-sanitizer looks at: a part of the names of kernels, the group of checks that runs them, and its types. Kernels whose warps or
# blocks wait for each other come with the checks; all of ours contain `sru`. cuBLASLt's are pipelined in ways that the tools report.
WAITING = [(tool, *kernels) for kernels in (("Fused", "large", ("bfloat16_fused",)), ("Predict", "programs", ("float32",)),
                                            ("Skinny", "programs", ("float32", "bfloat16"))) for tool in ("synccheck", "racecheck")]
SANITIZED = [(tool, kernels, group, types) for group in ("large", "programs", "goldens,bits,reference,others") for tool, kernels, types in (
    ("racecheck", "sru", ("bfloat16_fused", "float32")), ("synccheck", "sru", ("bfloat16_fused", "float32")),
    ("memcheck", "sru", ("float32", "bfloat16_fused")),
    # initcheck must see what the library's kernels write, and memcheck is fast enough to look at them once.
    ("initcheck", "", ("float32", "bfloat16_fused")), ("memcheck", "", ("float32",)))]
# How the server runs: its flags, then the most that a logit and the log-probability of a text may be off, and whether the greedy text
# must be the recorded one. Options whose speed is in question come first.
SERVED = {"bfloat16": (["--dtype=bfloat16", "--fuse_layers=none"], 0.1, 0.5, False),
          "bfloat16_fused": (["--dtype=bfloat16"], 0.1, 0.5, False),
          "float32": (["--dtype=float32"], 1e-4, 1e-3, True),
          "one instance": (["--instances=1"], 1e-4, 1e-3, True)}
LOADS = {"64 in flight": ["--in_flight=64"], "512 in flight": ["--in_flight=512", "--connections=4", "--threads=4"],
         "one at a time": ["--in_flight=1", "--connections=1", "--threads=1"]}
# Steps whose kernels are timed one by one: gpu_bench's system, type and number of sequences.
TRACED = (("translator", "float32", 1), ("translator", "bfloat16", 1), ("language_model", "float32", 1), ("language_model", "bfloat16", 1),
          ("translator", "bfloat16", 32))
PROMPT, GREEDY = "Prince Andrew", "\nwas a strange and the same time to the same time to the sam"


# ---------------------------------------------------------------- steps


def step(name, words, seconds, **options):
    """(output, None) of a program, or (output so far, a row) if it fails, runs out of time, or none is left for it."""
    if Limits.left() < 5 * Limits.scale:
        return "", Row(name, OUT_OF_TIME[1])
    try:
        code, output, messages = run(words, seconds=seconds, **options)
    except NotMeasured as error:
        return "", Row(name, str(error), "", False)
    if code == 0:
        return output, None
    tail = " ".join((output + messages).strip().splitlines()[-3:])[-300:]
    return output, Row(name, f"{OUT_OF_TIME[0] if code is None else f'exit code {code}'}; {tail}", "", False)


def json_lines(text):
    """The objects that are lines of a program's output, also of one that was cut."""
    found = []
    for line in text.splitlines():
        with contextlib.suppress(ValueError):
            found += [json.loads(line)] if line.startswith("{") else []
    return found


def row_of(found):
    """A row of what gpu_bench measured: its name is of the texts and whole numbers, its figure of the rest."""
    titles = [value if isinstance(value, str) else f"{key} {value}".replace("_", " ") for key, value in found.items()
              if isinstance(value, (str, int)) and not isinstance(value, bool)]
    figures = [f"{key} {value:,g}".replace("_", " ") for key, value in found.items() if isinstance(value, float)]
    same = found.get("same_bits", True)
    return Row(", ".join(titles), ", ".join(figures) + "; other bits" * (not same), "the same bits" if "same_bits" in found else "", same)


def measure(name, seconds, says):
    """A part that is one of gpu_bench's own benchmarks."""
    def part(args, _):
        output, failed = step(name, [args.programs / "gpu_bench", name], seconds)
        rows = json_lines(output)
        yield from map(row_of, rows)
        if failed or not rows:
            yield failed or Row(name, "it printed nothing", "", False)
    part.__name__, part.__doc__ = name, says
    return part


def beside(args, jobs, seconds):
    """The rows of jobs, each a name, a command and what makes a row of its output, several beside each other: they keep the processors
    busy, not the GPU, and nothing is timed. What passed in the run that this one continues is left out."""
    def work(job):
        name, words, judge = job
        return judge(name, *step(name, words, seconds))

    with concurrent.futures.ThreadPoolExecutor(args.at_once) as pool:
        yield from pool.map(work, [job for job in jobs if job[0] not in args.passed])


# ---------------------------------------------------------------- checks


def check_jobs(args, groups):
    """If a device is lost, its group runs once more with each kernel waited for, so that the first failure is that of its kernel."""
    def judged(name, output, failed):
        wrong = "; ".join(line for line in output.splitlines() if line.startswith("FAIL"))
        if failed or not output.strip():
            return failed._replace(figure=f"{failed.figure}; {wrong}") if failed else Row(name, "it printed nothing", "", False)
        return Row(name, last_line(output))

    def job(group, dtype):
        words = [args.programs / "gpu_check", "--only=" + group, *CHECKS[dtype]]

        def judge(name, output, failed):
            if not LOST.search(output):
                return judged(name, output, failed)
            return judged(name, *step(name, words, 40, env={**os.environ, "CUDA_LAUNCH_BLOCKING": "1"}))._replace(good=False)
        return f"{group}, {dtype}", words, judge
    return [job(group, dtype) for group, dtype in itertools.product(groups, CHECKS)]


def goldens(args, _):
    """What was recorded; nothing else would find a GPU if these do not."""
    for row in beside(args, check_jobs(args, ["goldens"]), 60):
        yield row
        if row.figure.startswith(f"exit code {NO_GPU};"):
            sys.exit(f"gpu_report: {row.figure}")


def in_the_library_alone(output):
    """Whether whatever a sanitizer has found is in kernels that are not ours. Some of its reports of cuBLASLt's are false."""
    places = re.findall(r"^=+ +(?:at|in) .*", output, re.MULTILINE)
    return bool(places) and not any("sru" in place for place in places)


def sanitizer_row(name, output, failed):
    summaries = re.findall(r"(?:ERROR|RACECHECK) SUMMARY: .*", output)
    reports = re.findall(r"^=+ (?!COMPUTE-SANITIZER|\w+ SUMMARY)\S.*", output, re.MULTILINE)
    if failed and failed.figure.startswith(OUT_OF_TIME[0]):
        return failed._replace(figure=f"{OUT_OF_TIME[0]}; no summary, {len(reports)} reports until then")
    if failed and in_the_library_alone(output):
        return Row(name, "reports of the library's kernels alone")
    return failed or Row(name, summaries[-1] if summaries else "no summary: the tool has not looked at anything", "", bool(summaries))


def sanitizer_jobs(args, runs):
    tool = shutil.which("compute-sanitizer") or next(filter(os.path.exists, ["/usr/local/cuda/bin/compute-sanitizer"]), None)
    if not tool:
        raise NotMeasured("compute-sanitizer is not installed")
    said = output_of([tool, "--help"], seconds=10)
    # The option that names kernels depends on the version.
    option = next((found for found in ("--kernel-name", "--kernel-regex", "--filter") if re.search(found + r"(?![-\w])", said)), None)
    return [(f"{kind} of {kernels or 'all'} kernels, {group}, {dtype}",
             [tool, "--error-exitcode", "9", "--tool", kind, *([option, "kns=" + kernels] if option and kernels else []),
              args.programs / "gpu_check", "--small", "--only=" + group, *CHECKS[dtype]], sanitizer_row)
            for kind, kernels, group, types in runs for dtype in types]


def checks(args, _):
    """All groups in every type, and whether the warps and blocks of our kernels wait as they should."""
    try:
        waiting = sanitizer_jobs(args, WAITING)
    except NotMeasured as error:
        yield Row("synccheck, racecheck", str(error))
        waiting = []
    yield from beside(args, waiting + check_jobs(args, GROUPS), 100)


def sanitizers(args, _):
    """Every tool of compute-sanitizer on every group. A crash or the limit loses one group of one tool."""
    yield from beside(args, sanitizer_jobs(args, SANITIZED), 60)


def gpus(args, _):
    """A short check on all GPUs together."""
    if args.gpus < 2:
        raise NotMeasured("there is one GPU")
    output, failed = step("all", ["env", "-u", "CUDA_VISIBLE_DEVICES", args.programs / "gpu_check", "--small"], 60)
    yield failed or Row("all", last_line(output))


# ---------------------------------------------------------------- kernels and PyTorch


def kernels_of(output):
    """(name, launches, microseconds) of the kernels in Nsight Compute's table, the most expensive first."""
    table = output[output.find('"ID"'):] if '"ID"' in output else ""
    times = {}
    for row in csv.DictReader(io.StringIO(table)):
        # The first row has the units; the last one may be cut.
        if (row["ID"] or "").isdigit() and row["gpu__time_duration.sum"]:
            name = re.sub(r"\(.*", "", row["Kernel Name"].replace("void ", "").replace("(anonymous namespace)::", ""))
            times.setdefault(re.sub(r"\b\w+::", "", name), []).append(float(row["gpu__time_duration.sum"].replace(",", "")) / 1e3)
    return sorted(((name, len(of), sum(of)) for name, of in times.items()), key=lambda kernel: -kernel[2])


def trace(args, _):
    """One step, kernel by kernel: Nsight Compute's time of each launch, without a graph; copies are not in it."""
    tool = next(filter(None, [shutil.which("ncu"), *sorted(glob.glob("/opt/nvidia/nsight-compute/*/ncu"))]), None)
    if not tool:
        raise NotMeasured("Nsight Compute (ncu) is not installed")
    for system, dtype, sequences in TRACED:
        name = f"{system}, {dtype}, {sequences}"
        output, failed = step(name, [tool, "--profile-from-start", "off", "--clock-control", "none", "--cache-control", "none", "--metrics",
                                     "gpu__time_duration.sum", "--csv", "--page", "raw", "--print-units", "base",
                                     args.programs / "gpu_bench", "step", system, dtype, sequences], 60)
        found = kernels_of(output)
        yield from (Row(f"{name}: {kernel}", f"{us:.1f} us in {launches} launches") for kernel, launches, us in found)
        if failed or not found:
            yield failed or Row(name, "no kernel was seen", "", False)


def pytorch(args, _):
    """Medians of forward passes in turns: PyTorch's time / ours, with as many rows as there is time for."""
    extensions = {**os.environ, "TORCH_EXTENSIONS_DIR": str(args.build / "torch"), "TORCH_CUDA_ARCH_LIST": args.capability}
    seconds = max(2.0, min(120 * Limits.scale, Limits.left() - 20 * Limits.scale))
    words = [sys.executable, "-B", ROOT / "kernels" / "bench" / "compare_pytorch.py", "--gpu_bench", args.programs / "gpu_bench",
             f"--total={seconds:.1f}"]
    output, failed = step("PyTorch", words, 360, env=extensions)
    if failed and failed.figure.startswith(f"exit code {NO_GPU};"):
        raise NotMeasured(failed.figure)
    rows = json_lines(output)
    for found in rows:
        yield Row(found["shape"], ", ".join(f"{key} {value:,g}" for key, value in found.items() if key != "shape"))
    small = [found for found in rows if found["batch"] <= 32]
    for name, theirs, ours, wanted in (("LSTM / here", "lstm_us", "sru_us", 5), ("LSTM / here, fused layers", "lstm_us", "fused_us", 0),
                                       ("SRU in PyTorch operations / here", "operations_us", "sru_us", 5),
                                       ("the published package / here", "published_us", "sru_us", 0)):
        ratios = [found[theirs] / found[ours] for found in small if theirs in found and ours in found]
        if ratios:
            yield at_least(f"{name}, batch at most 32, {len(ratios)} rows: least", min(ratios), wanted, f"; {spread(ratios, 1)}", 1)
    if failed or not rows:
        yield failed or Row("PyTorch", "it measured nothing", "", False)


# ---------------------------------------------------------------- the server


def beside_server(args, name, repository, flags, ask):
    """The rows that ask(server) yields, or one that says what failed."""
    if Limits.left() < 5 * Limits.scale:
        yield Row(name, OUT_OF_TIME[1])
        return
    try:
        with Server(args, repository, flags=flags) as server:
            yield from ask(server)
    except (NotMeasured, OSError, ValueError, KeyError, IndexError, TypeError) as error:
        yield Row(name, (str(error) if isinstance(error, NotMeasured) else repr(error))[:300], "", False)


def texts(args, models):
    """The language model of 12 layers with random weights, and a trained translator (beam 5), one and many at a time."""
    if not args.prefix:
        raise NotMeasured("--prefix names no installation")
    repository = models.make("texts", lambda folder: write_language_model(folder / "paper" / "1", PAPER, PAPER_VOCABULARY))
    calls = [(f"Generate, {sessions} at a time: tokens/s", "generate",
              ["--model=paper", f"--sessions={sessions}", "--prompt=fixed:10", "--output=fixed:200"],
              lambda found: found["tokens_per_s"]) for sessions in (1, 8, 32, 64)]
    name = "translator_multi30k"
    try:
        models.export(models.shared("checkpoints", name), repository / "translator" / "1")
        recorded = models.lines("checkpoints", name, "expected.jsonl")
        for sentences in (1, 32):
            file = models.folder / f"translate_{sentences}.jsonl"
            file.write_text(json.dumps({"sequences": [{"token_ids": {"values": row["source_ids"]}} for row in recorded[:sentences]],
                                        "beam_size": 5}) + "\n", encoding="utf-8")
            calls.append((f"Translate, {sentences} sentences a call: p50 ms", "load",
                          ["--method=Translate", "--model=translator", f"--requests={file}", "--in_flight=1", "--connections=1"],
                          lambda found: found["latency_us"]["p50"] / 1e3))
    except NotMeasured as error:
        yield Row("Translate", f"not measured: {error}")

    def ask(server, dtype):
        for title, command, flags, figure in calls:
            yield Row(f"{title}, {dtype}", f"{figure(bench(args, command, server, *flags)):,.1f}")

    for dtype in ("bfloat16", "float32"):
        yield from beside_server(args, dtype, repository, ["--dtype=" + dtype], lambda server, dtype=dtype: ask(server, dtype))


def data_lines(name):
    return [json.loads(line) for line in (ROOT / "tests" / "data" / name).read_text(encoding="utf-8").splitlines()]


def served(args, _):
    """All bundled models over the wire in each configuration: what was recorded of the published package, then loads of Classify."""
    if not args.prefix:
        raise NotMeasured("--prefix names no installation")
    questions = data_lines("trec_questions.jsonl")
    # The client takes a text per line.
    scored = [row for row in data_lines("war_and_peace_scores.jsonl") if row["text"] == " ".join(row["text"].split())]

    def ask(server, name, most_logit, most_score, greedy):
        def client(command, *words, given=()):
            return output_of([args.bin / "sru_client", command, f"--address={server.address}", *words], seconds=30,
                             given="".join(text + "\n" for text in given))

        def answers(command, *words, given=()):
            return [found for found in json_lines(client(command, "--json", *words, given=given)) if "total" not in found]

        def within(what, errors, most):
            worst = max(errors)
            return Row(f"{name}: error of a {what}", f"{worst:.1e}", f"at most {most:.0e}", worst <= most)

        asked = [question["text"] for question in questions]
        labels = [found["labels"] for found in answers("classify", "--model=trec", "--top_k=0", given=asked)]
        right = sum(found[0]["name"] == question["label"] for found, question in zip(labels, questions))
        yield Row(f"{name}: right labels", f"{right}", f"{len(questions)}", right == len(questions))
        yield within("logit", [abs(float(label["logit"]) - question["logits"][label["index"]])
                               for found, question in zip(labels, questions) for label in found], most_logit)
        vectors = [found["values"] for found in answers("encode", "--model=trec", given=asked)]
        differ = sum(answers("encode", "--model=trec", text)[0]["values"] != vector for text, vector in zip(asked[:5], vectors))
        yield Row(f"{name}: vectors with other bits alone than in a batch", f"{differ}", "0", differ == 0)
        scores = [found["log_prob"] for found in answers("score", "--model=war_and_peace", given=[row["text"] for row in scored])]
        yield within("score", [abs(found - sum(row["log_probs"])) for found, row in zip(scores, scored)], most_score)
        same = client("generate", "--model=war_and_peace", "--max_new_tokens=60", PROMPT) == GREEDY
        yield Row(f"{name}: greedy text", "the recorded one" if same else "another one", "the recorded one" * greedy, same or not greedy)
        for title, flags in LOADS.items():
            found = bench(args, "load", server, "--model=trec", *flags)
            errors = {code: count for code, count in found["codes"].items() if code != "OK" and count}
            yield Row(f"{name}: {title}, calls/s", f"{found['throughput_per_s']:,.0f} (p50 {found['latency_us']['p50']:,.0f} us, p99"
                      f" {found['latency_us']['p99']:,.0f} us)" + f"; calls ended with {errors}" * bool(errors), "", not errors)

    for name, (flags, *wanted) in SERVED.items():
        yield from beside_server(args, name, args.prefix / "share" / "sru" / "models", flags,
                                 lambda server, name=name, wanted=wanted: ask(server, name, *wanted))


# In the order of what is worth most if time runs out.
PARTS = (goldens, measure("products", 60, "Our product for few rows beside the library's, with weights from memory."),
         measure("systems", 120, "Random weights of the paper's sizes, from the call of Run() to the results, and what reading the weights takes."),
         trace, measure("predict", 40, "Predict by one block for each row and by a cluster of blocks."),
         measure("fused", 30, "bfloat16 layers of 128 over 32 tokens: plain, and one kernel a layer from the second on."),
         texts, served, checks, measure("scan", 45, "The scan alone, as a share of the device's copy rate (bytes read plus bytes written)."),
         measure("classify", 45, "One Classify of a TREC question: what the GPU and the copies take."), gpus, sanitizers, pytorch)


# ---------------------------------------------------------------- the machine


def nvidia_smi(fields):
    """What it says of these fields, a line per GPU; nothing if it does not know one of them."""
    tool = shutil.which("nvidia-smi") or "/usr/local/nvidia/bin/nvidia-smi"
    try:
        return output_of([tool, "--query-gpu=" + fields, "--format=csv,noheader"], seconds=30).splitlines()
    except NotMeasured:
        return []


def cublaslt_folder():
    """Where cuBLASLt is: beside nvcc or in PyTorch's packages. scripts/gpu_prefix.sh packs it."""
    nvcc = shutil.which("nvcc")
    roots = [os.path.dirname(os.path.dirname(os.path.realpath(nvcc)))] if nvcc else []
    roots += ["/usr/local/cuda", *sorted(glob.glob("/usr/local/cuda-1*"), reverse=True)]
    roots += [package for folder in sys.path for package in sorted(glob.glob(os.path.join(folder, "nvidia", "*")))]
    found = (library for root in roots for folder in ("lib64", "lib", "targets/*/lib")
             for library in glob.glob(f"{root}/{folder}/libcublasLt.so.*"))
    return os.path.dirname(next(found, "")) or None


def unpacked(archive, folder):
    """The folder of an installation or a library: `archive`, or what is in it if it is a tar archive."""
    if not archive or not archive.is_file():
        return archive
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    output_of(["tar", "-xf", archive, "-C", folder])
    found = next(folder.glob("**/bin/sru_server"), None)
    return found.parent.parent if found else folder


def programs(args):
    """The folder of gpu_check and gpu_bench: that of the installation that was taken along, or built here."""
    def complete(folder):
        return all(os.access(folder / name, os.X_OK) for name in ("gpu_check", "gpu_bench"))

    if args.prefix and complete(args.prefix / "bin"):
        return args.prefix / "bin"
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    for name, words, seconds in (
            ("configure", ["cmake", "-S", "tests/gpu", "-B", args.build, *generator, "-DSRU_CPU=OFF", "-DSRU_CUDA=ON",
                           f"-DSRU_CUDA_ARCHITECTURES={args.capability.replace('.', '') or '90'}"], 60),
            ("build", ["cmake", "--build", args.build, "--parallel", os.cpu_count() or 2], 150)):
        failed = step(name, words, seconds)[1]
        if failed:
            raise NotMeasured(f"{name}: {failed.figure}; {ADVICE}")
    if not complete(args.build / "bin"):
        raise NotMeasured(f"the build has no gpu_check or gpu_bench; {ADVICE}")
    return args.build / "bin"


def prepare(args, gpu):
    """Finds the programs and lets them see one GPU and the library. Returns what failed."""
    failed = []
    for name in ("prefix", "cublaslt"):
        try:
            setattr(args, name, unpacked(getattr(args, name), args.build / name))
        except NotMeasured as error:
            setattr(args, name, None)
            failed.append(f"--{name}: {error}")
    args.gpus, args.capability = len(gpu), ([field.strip() for field in gpu[0].split(",")] + [""] * 3)[2]
    if "CUDA_VISIBLE_DEVICES" in os.environ:  # whoever has chosen keeps it
        args.gpus = 1
    elif args.gpus > 1:
        # The one with the least memory in use: nothing here needs a second one, and every program would open all of them.
        used = [int((re.match(r"\d+", line.strip()) or ["0"])[0]) for line in nvidia_smi("memory.used")] or [0]
        os.environ.update(CUDA_VISIBLE_DEVICES=str(used.index(min(used))), CUDA_DEVICE_ORDER="PCI_BUS_ID")
    for variable, folders in (("LD_LIBRARY_PATH", [cublaslt_folder(), args.cublaslt]),
                              # The published package.
                              ("PYTHONPATH", [args.prefix and args.prefix / "python"])):
        os.environ[variable] = ":".join(str(folder) for folder in [*folders, os.environ.get(variable)] if folder)
    # A GPU may be for one process at a time.
    args.at_once = 1 if "Exclusive" in " ".join(nvidia_smi("compute_mode")) else max(2, (os.cpu_count() or 2) * 3 // 4)
    args.programs = programs(args)
    if args.prefix:
        args.bin = args.prefix / "bin"
    return failed


def main():
    report = Report(pathlib.Path(os.environ.get("OUT", "gpu-report")), PARTS)
    report.parser.set_defaults(backend="cuda", seconds=3)
    flag = report.parser.add_argument
    flag("--prefix", type=lambda text: pathlib.Path(text).resolve(), help="an installation, or a tar archive of one, whose server is driven too")
    flag("--cublaslt", type=lambda text: pathlib.Path(text).resolve(),
         help="a tar archive with libcublasLt.so.* (make gpu_prefix), for a machine without one")
    flag("--minutes", type=float, default=FULL_MINUTES)
    flag("--build", type=lambda text: pathlib.Path(text).resolve(), default="build-gpu", help="build folder")
    args = report.arguments()
    args.parts.sort(key=list(report.parts).index)
    gpu = nvidia_smi("name,driver_version,compute_cap")
    if not gpu:
        print("gpu_report: needs a GPU: nvidia-smi shows none", file=sys.stderr)
        return NO_GPU
    args.out = args.out.resolve() / "gpu.md"
    args.out.parent.mkdir(parents=True, exist_ok=True)
    # Those who name parts want them whole.
    Limits.scale = 1.0 if args.resume or len(args.parts) < len(PARTS) else min(1.0, args.minutes / FULL_MINUTES)
    Limits.end = time.monotonic() + 60 * args.minutes - 10 * Limits.scale
    Limits.log = args.out.with_suffix(".log")
    Limits.log.unlink(missing_ok=True)
    report.machine = f"GPU: {gpu[0]}. "
    report.write(args)
    try:
        failed = prepare(args, gpu)
    except NotMeasured as error:
        print(f"gpu_report: {error}", file=sys.stderr)
        return 1
    if "goldens" not in args.parts:
        args.parts.insert(0, "goldens")
    code = report.measure(args)
    print("\n".join(["gpu_report: " + why for why in failed] + [f"gpu_report: {args.out}, and beside it gpu.json and gpu.log"]))
    return 1 if failed else code


if __name__ == "__main__":
    sys.exit(main())
