#!/usr/bin/env python3
"""Measures the project on this machine and writes build/reports/report.md, from which docs/figures.md has its figures.

  make bench                                          the CPU engine
  make build && scripts/report.py --parts=served,doors,memory,overload
  scripts/report.py --parts=engines --bergamot=VENV/bin/python --marian=VENV/bin/python

Run nothing else meanwhile. Each part is a table of rows, by default all parts are measured. What a part needs besides Python: h2load (doors);
../shared (engines, translator, reader); an interpreter --python with PyTorch and the package `sru` 2.6.0 (generate, translator, reader). A part that
lacks something says so. Bergamot (int8) and Marian (float32) are the packages `bergamot` 0.4.5, which needs Python 3.10 or older, and `pymarian`
1.12.42, which also needs numpy, PyYAML and sentencepiece. Exits with 1 if a figure is not as wanted.
"""

import contextlib
import json
import os
import pathlib
import re
import resource
import shutil
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import time

from report_common import (NotMeasured, PAPER, PAPER_VOCABULARY, PRETRAINED, Process, Program, ROOT, Report, Row, Server, alternate,
                           at_least, at_most, bench, kernel_benchmarks, last_line, medians, one_core, output_of, progress, spread, start, write_language_model)

ONE_CORE = ("--instances=1", "--io_threads=1")
TEXT = "who wrote hamlet ?"
CONNECTIONS = 1000
FLICKR = ("datasets", "multi30k", "test_2016_flickr.en")

# ---------------------------------------------------------------- the server


def served(args, _):
    """Classify of one short question a call, bundled TREC model; the server on all cores with the client, or alone on one."""
    for dtype, core in (("float32", None), ("bfloat16", None), ("float32", one_core()), ("bfloat16", one_core())):
        with Server(args, PRETRAINED, dtype, core=core) as server:
            def load(*flags, server=server, other=None if core is None else min(os.sched_getaffinity(0))):
                used = server.seconds()
                run = bench(args, "load", server, "--model=trec", *flags, core=other)
                return {"rate": run["throughput_per_s"], "cost": 1e6 * (server.seconds() - used) / run["calls"], **run["latency_us"]}

            runs = alternate(args.rounds, {"many": lambda: load("--in_flight=64", "--warmup=0s"),
                                           "one": lambda: load("--in_flight=1", "--warmup=0s")})
            found = {name: {key: statistics.median(run[key] for run in each) for key in each[0]} for name, each in runs.items()}
            half = statistics.median(load(f"--rate={found['many']['rate'] / 2:.0f}")["p99"] for _ in range(args.rounds))
        for name, title in (("many", "64 in flight"), ("one", "one call at a time")):
            row = found[name]
            yield Row(f"{title}, {dtype}{', one core' * (core is not None)}: calls/s", f"{row['rate']:,.0f} (p50 {row['p50']:,.0f} us, p99 {row['p99']:,.0f} us; "
                      f"processor time of the server {row['cost']:.1f} us a call)")
        yield Row(f"half of the rate of 64 in flight, {dtype}{', one core' * (core is not None)}: p99", f"{half:,.0f} us")


def h2load(args, address, path, body, connections, streams=0):
    """Calls per second of one request, over HTTP/1.1 or over `streams` of each connection in HTTP/2."""
    calls = ["-n256"] if args.quick else [f"-D{max(1, round(args.seconds))}", "--warm-up-time=1"]
    with tempfile.NamedTemporaryFile("w") as file:
        json.dump(body, file)
        file.flush()
        # h2load goes on forever if its connections are closed.
        said = output_of(["h2load", f"-m{streams}" if streams else "--h1", f"-c{connections}", "-t1", *calls, f"-d{file.name}", "-H",
                          "content-type: application/json", f"http://{address}{path}"], partial=True, seconds=3 * args.seconds + 20)
    rate = re.search(r"finished in .*?, ([\d.]+) req/s", said)
    codes = re.search(r"status codes: (\d+) 2xx, (\d+) 3xx, (\d+) 4xx, (\d+) 5xx", said)
    if not rate or not codes or codes.group(1) == "0" or codes.groups()[1:] != ("0", "0", "0"):
        raise NotMeasured(f"h2load, {path}: {codes.group(0) if codes else last_line(said)}")
    return float(rate.group(1))


def doors(args, models):
    """The same call by every protocol, as a share of Classify over gRPC with as many calls in flight."""
    if shutil.which("h2load") is None:
        raise NotMeasured("there is no h2load (package nghttp2-client)")
    classify = ("/v1/classify", {"model": "trec", "sequences": [{"text": TEXT}]})
    infer = ("/v2/models/trec/infer", {"inputs": [{"name": "text", "shape": [1], "datatype": "BYTES", "data": [TEXT]}]})
    requests = {}
    for name, request in (("Classify", classify[1]), ("/inference.GRPCInferenceService/ModelInfer", {
            "model_name": "trec", "inputs": [{"name": "text", "datatype": "BYTES", "shape": [1],
                                              "contents": {"bytes_contents": ["d2hvIHdyb3RlIGhhbWxldCA/"]}}]})):
        requests[name] = models.folder / f"{pathlib.Path(name).name}.jsonl"
        requests[name].write_text(json.dumps(request) + "\n", encoding="utf-8")
    with Server(args, PRETRAINED, flags=["--http_listen=127.0.0.1:0"]) as server:
        def grpc(method, in_flight, connections):
            return bench(args, "load", server, f"--method={method}", f"--requests={requests[method]}", f"--in_flight={in_flight}",
                         f"--connections={connections}", "--warmup=0.5s")["throughput_per_s"]

        for title, in_flight, connections, others in (
                ("64 in flight on 4 connections", 64, 4,
                 {"ModelInfer over gRPC": lambda: grpc("/inference.GRPCInferenceService/ModelInfer", 64, 4),
                  "JSON over HTTP/2": lambda: h2load(args, server.address, *classify, 4, 16)}),
                ("64 connections", 64, 64, {"JSON over HTTP/1.1": lambda: h2load(args, server.http_address, *classify, 64),
                                            "Open Inference over HTTP/1.1": lambda: h2load(args, server.http_address, *infer, 64)}),
                ("one connection", 1, 1, {"JSON over HTTP/1.1": lambda: h2load(args, server.http_address, *classify, 1)})):
            found = medians(args.rounds, {"": lambda n=in_flight, c=connections: grpc("Classify", n, c), **others})
            for name in others:
                yield Row(f"{title}: {name} / Classify over gRPC", f"{found[name] / found['']:.2f} ({found[name]:,.0f} calls/s)")


def memory(args, _):
    """What the server with its bundled models holds, and an idle HTTP/2 connection."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < CONNECTIONS + 100:
        raise NotMeasured(f"{CONNECTIONS} connections need as many files, the limit is {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, CONNECTIONS + 100), hard))
    tls = ssl.create_default_context()
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    tls.set_alpn_protocols(["h2"])
    with tempfile.TemporaryDirectory() as folder:
        files = [f"{folder}/{part}.pem" for part in ("certificate", "key")]
        output_of(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                   "-subj", "/CN=localhost", "-out", files[0], "-keyout", files[1]])
        for name, context, flags in (("", None, []), (" with TLS", tls, [f"--tls_cert={files[0]}", f"--tls_key={files[1]}"])):
            with Server(args, PRETRAINED, flags=flags) as server, contextlib.ExitStack() as stack:
                host, _, port = server.address.rpartition(":")
                before = server.memory_bytes()
                for _ in range(CONNECTIONS):
                    connection = stack.enter_context(socket.create_connection((host, int(port))))
                    if context:
                        connection = stack.enter_context(context.wrap_socket(connection))
                    connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
                time.sleep(1)
                each = (server.memory_bytes() - before) / 1024 / CONNECTIONS
            if not context:
                yield Row("the server, MB", f"{before / 1e6:,.0f}")
            yield at_most(f"an idle connection{name}, KiB", each, 64, digits=1)


def overload(args, models):
    """Server and client share the cores; calls have a deadline of 100 ms and come at three times the saturation rate."""
    flood = ["--deadline=100ms", "--send_interval=1ms"]  # the client takes less of the cores

    def saturation(server, *flags):
        return max(bench(args, "load", server, f"--in_flight={n}", *flags)["goodput_per_s"] for n in (4, 8, 16, 64))

    for questions in (1, 32, 128):
        with Server(args, PRETRAINED) as server:
            shape = ["--model=trec", f"--sequences={questions}", "--deadline=100ms"]
            found = []
            for _ in range(args.rounds):
                rate = saturation(server, *shape)
                found.append(bench(args, "load", server, *shape, *flood, f"--rate={3 * rate:.0f}")["goodput_per_s"] / rate)
        wanted = 0.8 if questions > 1 else 0  # refusals of single questions take a large part of a core
        yield at_least(f"{questions} questions a call: goodput / saturation", statistics.median(found), wanted)

    # No batch becomes full, so each stays in the queue for 100 ms, and meanwhile the queue has no place.
    full = ["--max_queue_delay_us=100000", "--max_queue_sequences=32", "--max_batch_sequences=64"]
    with Server(args, PRETRAINED, flags=full) as server:
        def cost():
            used = server.seconds()
            run = bench(args, "load", server, "--model=trec", "--sequences=32", "--in_flight=256", "--connections=4", "--warmup=0s")
            return 1e6 * (server.seconds() - used) / run["calls"]
        yield Row("a refused call, processor time of the server, us", spread([cost() for _ in range(args.rounds)], 1))

    def beside(server, background, function):
        """What the function returns while another client loads the server; that client gets the time that the others leave."""
        words = ["nice", "-n", "19", args.bin / "sru_bench", "load", f"--address={server.address}", "--duration=1h", *background]
        with start(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            time.sleep(min(2, args.seconds))
            try:
                return function()
            finally:
                process.terminate()

    two = models.make("two", lambda folder: [shutil.copytree(PRETRAINED / "trec", folder / name) for name in ("quiet", "busy")])
    with Server(args, two) as server:
        busy = ["--model=busy", "--sequences=32"]
        rate = saturation(server, *busy, "--deadline=100ms")
        found = medians(args.rounds, {factor: lambda factor=factor: beside(
            server, [*busy, *flood, f"--rate={factor * rate:.0f}"],
            lambda: bench(args, "load", server, "--model=quiet", "--rate=200"))["latency_us"]["p99"] for factor in (0.1, 3.0)})
    yield at_most("a quiet model, p99: the other model flooded / lightly loaded", found[3.0] / found[0.1], 2)

    tokens = models.folder / "tokens.txt"
    tokens.touch(mode=0o600)
    tokens.write_text("polite polite-caller-token\nflood flooding-caller-token\n", encoding="utf-8")
    with Server(args, PRETRAINED, flags=[f"--auth_tokens_file={tokens}"]) as server:
        def polite():
            return bench(args, "load", server, "--model=trec", "--rate=50", "--deadline=100ms", "--token=polite-caller-token")

        runs = alternate(args.rounds, {"alone": polite, "flooded": lambda: beside(
            server, ["--model=trec", "--in_flight=2000", "--connections=8", "--sequences=32", "--deadline=1s", "--token=flooding-caller-token"], polite)})
    in_time = statistics.median(100 * run["goodput_per_s"] * run["elapsed_s"] / run["calls"] for run in runs["flooded"])
    p99 = {name: statistics.median(run["latency_us"]["p99"] for run in found) for name, found in runs.items()}
    yield at_least("a polite caller beside 2,000 calls in flight: answered in time, %", in_time, 99, digits=1)
    yield at_most("the same: p99 / alone", p99["flooded"] / p99["alone"], 2)


# ---------------------------------------------------------------- the engine


def pairs(times, above, below):
    """name of what is measured -> the ratio of two benchmarks that have the same arguments"""
    return {name[len(above):]: time / times[below + name[len(above):]] for name, time in times.items()
            if name.startswith(above + "/") and below + name[len(above):] in times}


def layers(args, _):
    """Two layers of width 128 and more on one core / oneDNN's matrix products of their shapes alone."""
    times = kernel_benchmarks(args, "BM_Layer(s|Products)/.*/hidden:64/length:8/" if args.quick else "BM_Layer(s|Products)/.*/hidden:(128|256|512)/")
    found = pairs(times, "BM_Layers", "BM_LayerProducts")
    for index, (dtype, limit) in enumerate((("float32", 1.15), ("bfloat16", 1.25))):
        ratios = [ratio for name, ratio in found.items() if f"/dtype:{index}/" in name]
        if ratios:
            yield Row(f"{dtype}, {len(ratios)} shapes", spread(ratios), f"at most {limit}", max(ratios) <= limit)


def systems(args, _):
    """A batch of a whole program on one core / its products alone; random weights of the paper's sizes."""
    dtypes = ("float32", "bfloat16", "int8")
    shapes = ("4 x 512, projections of 128", "12 x 2,048, projections of 512", "5 x 1,024, 20,000 words")
    step = "<Decode>/shape:0/.*/batch:1$" if args.quick else "<Decode>/"
    times = kernel_benchmarks(args, step)
    for name, ratio in pairs(times, "BM_Run<Decode>", "BM_Products<Decode>").items():
        shape, dtype, batch = map(int, re.findall(r":(\d+)", name))
        title = f"a step of a language model of {shapes[shape]}, batch of {batch}, {dtypes[dtype]}"
        yield Row(f"{title}: / its products", f"{ratio:.2f} ({times['BM_Run<Decode>' + name]:,.0f} us)")
        if dtype == 2:
            yield Row(f"{title}: int8 / bfloat16", f"{times['BM_Run<Decode>' + name] / times['BM_Run<Decode>' + name.replace('dtype:2', 'dtype:1')]:.2f}")
    for system in ("TranslatorEncode", "TranslatorStep", "Reader", "StudentEncode", "StudentStep"):
        times = kernel_benchmarks(args, f"<{system}>/(paper:0/|base:0/)?[a-z0-9]+:0/batch:1$" if args.quick else f"<{system}>/")
        for name, ratio in pairs(times, f"BM_Run<{system}>", f"BM_Products<{system}>").items():
            yield Row(f"{system}{name}: / its products", f"{ratio:.2f} ({times[f'BM_Run<{system}>' + name]:,.0f} us)")


def pytorch(args, _):
    """The published package and torch.nn.LSTM on one core, float32 / here (kernels/bench/compare_pytorch.py)."""
    shapes = ["--filter=x64-length8-batch(1|32)-"] if args.quick else []
    output = output_of([args.python, "-B", ROOT / "kernels" / "bench" / "compare_pytorch.py",
                        f"--download={ROOT / 'build' / 'pytorch-package'}", *shapes, f"--seconds={min(1, args.seconds):g}",
                        f"--bin={args.bin}"], echo=True)
    found = [json.loads(line) for line in output.splitlines()]
    for name, key, wanted in (("the published package", "published_us", 2.5), ("torch.nn.LSTM", "lstm_us", 5.0)):
        ratios = [row[key] / row["sru_us"] for row in found]
        yield Row(f"{name}, {len(ratios)} shapes", spread(ratios), f"median at least {wanted}", statistics.median(ratios) >= wanted)


# ---------------------------------------------------------------- beside other engines

# The beginning of every program that PyTorch is timed with: one thread, and products that are worth comparing with, which those of the
# distribution's PyTorch are not without OpenBLAS.
PYTORCH = """
import json, os, sys, time
out, sys.stdout = sys.stdout, sys.stderr
import torch
torch.set_num_threads(1); torch.set_flush_denormal(True)

def product_seconds(a=torch.randn(1024, 256), b=torch.randn(256, 768)):
    start = time.monotonic()
    a @ b
    return time.monotonic() - start

if 2 * 1024 * 256 * 768 / min(product_seconds() for _ in range(20)) < 20e9:
    sys.exit("PyTorch's products are too slow for a comparison; apt install libopenblas0-pthread")
"""
# Steps tokens through the package, as a program without a server would: the best next token of each sequence is what it reads next.
LANGUAGE_MODEL = """
import statistics, sru
arguments, vocabulary = json.loads(sys.argv[1])
torch.manual_seed(0)
embedding = torch.nn.Embedding(vocabulary, arguments["input_size"])
rnn = sru.SRU(**arguments).eval()
output = torch.nn.Linear(arguments["hidden_size"], vocabulary)
for line in sys.stdin:
    sessions, seconds, threads = json.loads(line)
    torch.set_num_threads(threads)
    ids, c, times = torch.zeros(1, sessions, dtype=torch.long), None, []
    with torch.no_grad():
        end = time.monotonic() + seconds
        while time.monotonic() < end or len(times) < 20:
            start = time.monotonic()
            h, c = rnn(embedding(ids), c)
            ids = output(h).argmax(-1)
            times.append(time.monotonic() - start)
    print(sessions / statistics.median(times[5:]), file=out, flush=True)
"""
# A line is a list of lists of ids; answers with the seconds of a beam search of each sentence after the other.
TRANSLATOR = """
sys.path.insert(0, sys.argv[1])
import translator
config = json.load(open(os.path.join(sys.argv[2], "config.json")))
model = translator.load(config, torch.load(os.path.join(sys.argv[2], "checkpoint.pt"), map_location="cpu"))
for line in sys.stdin:
    sentences = json.loads(line)
    start = time.monotonic()
    for ids in sentences:
        translator.beam_search(model, ids, beam=5)
    print(time.monotonic() - start, file=out, flush=True)
"""
# A line is a list of questions with their passages; answers with the seconds of the fastest of several ways to pad them.
READER = """
sys.path.insert(0, sys.argv[1])
import reader
model, vocab = reader.load(sys.argv[2])
config = model.config

def prepare(question, passage):
    q, d = ([t[0] for t in reader.tokenize(text)] for text in (question, passage))
    return dict(doc=reader.lookup(d, vocab, config["lowercase"]), features=reader.features(d, q, config["features"]),
                question=reader.lookup(q, vocab, config["lowercase"]))

for line in sys.stdin:
    pairs, best = sorted((prepare(*pair) for pair in json.loads(line)), key=lambda pair: len(pair["doc"])), 1e9
    for size in (32, 16, 8, 1):
        batches = [reader.collate(pairs[i:i + size]) for i in range(0, len(pairs), size)]
        start = time.monotonic()
        with torch.no_grad():
            for batch in batches:
                model(**batch)
        best = min(best, time.monotonic() - start)
    print(best, file=out, flush=True)
"""


def generate(args, models):
    """Tokens per second of a language model of the paper's size, 12 x 2,048 with projections of 512; the published package in float32."""
    paper = models.make("paper", lambda repository: write_language_model(repository / "paper" / "1", PAPER, PAPER_VOCABULARY))
    with Program([args.python, "-c", PYTORCH + LANGUAGE_MODEL, json.dumps([PAPER, PAPER_VOCABULARY])]) as package, \
            Server(args, paper, "float32") as float32, Server(args, paper, "bfloat16") as bfloat16:
        def ours(server, sessions):
            return bench(args, "generate", server, f"--sessions={sessions}", "--prompt=fixed:10", "--output=fixed:1000")["tokens_per_s"]

        for sessions in (1, 32, 64):
            found = medians(args.rounds, {"package": lambda: package.ask([sessions, args.seconds, os.cpu_count()]),
                                          "float32": lambda: ours(float32, sessions), "bfloat16": lambda: ours(bfloat16, sessions)})
            for dtype in ("float32", "bfloat16"):
                yield Row(f"{sessions} sessions, {dtype}", f"{found[dtype]:,.0f} tokens/s, {found[dtype] / found['package']:.1f} times the package's")
    with Server(args, PRETRAINED) as server:
        shape = ["--model=war_and_peace", "--prompt=uniform:1:200", "--output=geometric:50:500"]
        rate = bench(args, "generate", server, "--sessions=64", *shape)["texts"] / args.seconds
        found = bench(args, "generate", server, f"--rate={2 * rate:.1f}", "--check", "--temperature=0.8", "--deadline=10s", *shape)
    yield Row("twice the texts per second that the server can write: texts lost; tokens that differ from those of the text alone",
              f"{found['lost']} of {found['texts']:,}; {found['wrong_tokens']} of {found['checked_tokens']:,}", "0; 0",
              not found["lost"] and not found["wrong_tokens"])


def beside_reference(args, models, checkpoint, program, method, asked, request, wanted):
    """Rows on the reference in PyTorch / the server, in turns on one core, which do the same work: `asked` of the one, `request` of the other."""
    file = models.folder / f"{method}.jsonl"
    file.write_text(json.dumps(request) + "\n", encoding="utf-8")
    words = [args.python, "-c", PYTORCH + program, models.shared("reference"), models.shared("checkpoints", checkpoint)]
    with Program(words, one_core()) as reference:
        reference.ask(asked)
        for dtype in ("float32", "bfloat16"):
            with Server(args, models.checkpoint(checkpoint), dtype, ONE_CORE, one_core()) as server:
                found = medians(args.rounds, {"theirs": lambda: reference.ask(asked), "ours": lambda: bench(
                    args, "load", server, f"--method={method}", f"--requests={file}", "--in_flight=1", "--deadline=600s",
                    core=min(os.sched_getaffinity(0)))["latency_us"]["p50"] / 1e6})
            yield at_least(f"PyTorch in float32 / here in {dtype}", found["theirs"] / found["ours"], wanted,
                           f" ({1e3 * found['theirs']:,.0f} / {1e3 * found['ours']:,.0f} ms)")


def translator(args, models):
    """The paper's translator, trained on Multi30k: 64 sentences, beam 5, on one core."""
    name = "translator_multi30k"
    asked = [entry["source_ids"] for entry in models.lines("checkpoints", name, "expected.jsonl")[:64]]
    request = {"sequences": [{"token_ids": {"values": ids}} for ids in asked], "beam_size": 5}
    yield from beside_reference(args, models, name, TRANSLATOR, "Translate", asked, request, 4)


def reader(args, models):
    """The paper's reader, trained on SQuAD: 32 questions on one core."""
    name = "reader_squad"
    asked = [(entry["question"], entry["paragraph"]) for entry in models.lines("checkpoints", name, "expected.jsonl")[:32]]
    request = {"queries": [{"question": question, "passages": [passage]} for question, passage in asked]}
    yield from beside_reference(args, models, name, READER, "Answer", asked, request, 3)


# Answers {"texts": [...], "alone": bool} with [seconds of processor time of each call, memory in bytes].
ENGINE = """
import json, os, resource, sys, time
make, engine, folder, factor = sys.argv[1:]
sys.path.insert(0, make)
import bergamot_expected as bergamot
bergamot.FACTOR = float(factor)
model, lex, source, target = bergamot.files(folder)
out, sys.stdout = sys.stdout, sys.stderr
if engine == "bergamot":
    package = bergamot.module()
    service = package.Service(package.ServiceConfig(numWorkers=1, cacheSize=0, logLevel="off"))
    loaded = service.modelFromConfig(bergamot.config(folder, True, True))
    options = package.ResponseOptions(qualityScores=False, alignment=False, HTML=False)
    many = one = lambda texts: service.translate(loaded, package.VectorString(texts), options)
else:
    import pymarian
    base = (f"-m {os.path.join(folder, 'model.npz')} -v {source} {target} -b 1 --skip-cost --max-length-factor {factor} --cpu-threads 1 --quiet"
            f" --quiet-translation --shortlist {lex} false ")
    many = pymarian.Translator(base + "--mini-batch-words 1024 --maxi-batch 1000 --maxi-batch-sort src").translate
    one = pymarian.Translator(base + "--mini-batch 1 --maxi-batch 1").translate
for line in sys.stdin:
    asked = json.loads(line)
    times = []
    for texts in [[text] for text in asked["texts"]] if asked["alone"] else [asked["texts"]]:
        start = time.process_time()
        (one if asked["alone"] else many)(texts)
        times.append(time.process_time() - start)
    print(json.dumps([times, 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss]), file=out, flush=True)
"""
# name -> the sizes of random_student.py; none: the trained model. A model with random weights translates to its length limit, once the source's
# length.
STUDENTS = {"trained": (), "tiny": (256, 1536, 8, 6, 2), "base": (512, 2048, 8, 6, 2)}
PIECES = 8000


def fill_student(args, models, name, folder):
    """A folder with a model as Firefox ships it, and as Marian writes it."""
    def tool(file, *words):
        output_of([args.marian, models.shared("oracles", "ssru", "make", file), *words])

    folder.mkdir()
    trained = models.shared("oracles", "ssru", "marian", "model.npz")
    if not STUDENTS[name]:
        for file in (*models.shared("oracles", "ssru", "firefox").iterdir(), trained):
            shutil.copy(file, folder)
        return
    vocabulary = folder / "vocab.ende.spm"
    corpus = [models.shared("datasets", "multi30k", f"train.{language}") for language in ("en", "de")]
    tool("vocabulary.py", vocabulary, PIECES, *corpus)
    tool("lexicon.py", vocabulary, vocabulary, *corpus, folder / "lex")
    output_of([args.marian.parent / "pymarian", "convert", "--shortlist", folder / "lex.s2t", 50, 50, 0, "--dump-shortlist",
               folder / "lex.50.50.ende.s2t.bin", "--vocabs", vocabulary, vocabulary])
    tool("random_student.py", trained, folder / "model.npz", PIECES, *STUDENTS[name])
    tool("make_intgemm8.py", folder / "model.npz", models.shared("datasets", "multi30k", "val.en"), folder / "model.ende.intgemm.alphas.bin",
         vocabulary)
    (folder / "config.yml").write_text("max-length-factor: 1\n", encoding="utf-8")


def engines(args, models):
    """Translation models of Firefox's kind on one core: sentences/s, many at once; 64 callers with one each; one at a time, p50; p99; memory."""
    if not args.bergamot or not args.marian:
        raise NotMeasured("--bergamot and --marian name interpreters with these packages")
    texts = models.shared(*FLICKR).read_text(encoding="utf-8").splitlines()

    def theirs(name, kind, folder):
        words = [getattr(args, kind), "-c", ENGINE, models.shared("oracles", "ssru", "make"), kind, folder, 1 if STUDENTS[name] else 2]
        program = Program(words, one_core())

        def measure():
            many, _ = program.ask({"texts": texts, "alone": False})
            alone, held = program.ask({"texts": texts[:200], "alone": True})
            return len(texts) / many[0], len(alone) / sum(alone), *(1e3 * sorted(alone)[int(part * len(alone))] for part in (0.5, 0.99)), held / 2**20
        return program, measure

    def ours(name, kind, folder):
        def fill(served_folder):
            shutil.copytree(folder, served_folder)
            for file in served_folder.glob("model*.bin" if kind == "float32" else "model.npz"):
                file.unlink()
        model = models.make(f"{name}-{kind}", fill)
        server = Process([args.bin / "sru_server", f"--model={name}:{model}", "--listen=127.0.0.1:0", "--metrics_listen=127.0.0.1:0", "--http_listen=",
                          *ONE_CORE], one_core())

        def load(in_flight, sequences):
            file = models.folder / f"calls-{sequences}.jsonl"
            file.write_text("".join(json.dumps({"sequences": [{"text": text} for text in texts[i:i + sequences]]}) + "\n"
                                    for i in range(0, len(texts) - sequences + 1, sequences)), encoding="utf-8")
            found = bench(args, "load", server, "--method=Translate", f"--requests={file}", f"--in_flight={in_flight}", "--deadline=60s",
                          "--warmup=0s", core=min(os.sched_getaffinity(0)))
            return found["throughput_per_s"] * sequences, *(found["latency_us"][p] / 1e3 for p in ("p50", "p99"))

        def measure():
            return load(8, 64)[0], load(64, 1)[0], *load(1, 1)[1:], server.memory_bytes("VmHWM") / 2**20
        return server, measure

    for name in STUDENTS:
        folder = models.make(name, lambda target, name=name: fill_student(args, models, name, target))
        progress(name)
        with contextlib.ExitStack() as stack:
            functions = {}
            for title, (process, measure) in {
                    "Bergamot, int8": theirs(name, "bergamot", folder), "here, int8": ours(name, "int8", folder),
                    "Marian, float32": theirs(name, "marian", folder), "here, float32": ours(name, "float32", folder)}.items():
                stack.enter_context(process)
                functions[title] = measure
            runs = alternate(args.rounds, functions)
        found = {title: [statistics.median(values) for values in zip(*each)] for title, each in runs.items()}
        for title, (many, callers, p50, p99, held) in found.items():
            yield Row(f"{name}: {title}", f"{many:,.0f}; {callers:,.0f}; {p50:.1f}; {p99:.1f} ms; {held:,.0f} MiB")
        yield at_least(f"{name}, int8, many at once: here / Bergamot", found["here, int8"][0] / found["Bergamot, int8"][0], 1.2)


def main():
    report = Report(ROOT / "build" / "reports" / "report.md",
                    (served, doors, memory, overload, layers, systems, pytorch, generate, translator, reader, engines))
    report.parser.add_argument("--bergamot", type=pathlib.Path, help="interpreter with bergamot 0.4.5")
    report.parser.add_argument("--marian", type=pathlib.Path, help="interpreter with pymarian 1.12.42")
    return report.run()


if __name__ == "__main__":
    sys.exit(main())
