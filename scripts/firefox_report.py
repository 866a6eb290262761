#!/usr/bin/env python3
"""Compares translation models of Firefox's kind with their own engines and writes build/reports/firefox.md.

  make build && scripts/firefox_report.py --bergamot=VENV/bin/python --marian=VENV/bin/python       about 15 minutes; run nothing else meanwhile

Bergamot (int8) and Marian (float32) are the packages `bergamot` 0.4.5, which needs Python 3.10 or older, and `pymarian` 1.12.42, which also needs
numpy, PyYAML and sentencepiece. They and the server take turns on one core; the server's client has another. Needs ../shared for the models and
sentences. Exits with 1 if a figure is not as wanted.
"""

import shutil
import sys

import report_common
from report_common import (Program, Report, Table, alternate, at_least, at_most, bench, one_core, output_of, progress)

SENTENCES = "test_2016_flickr.en"
ALONE = 200  # sentences that the engines are timed with one at a time
# name -> the sizes of random_student.py; none: the trained model. A model with random weights translates to its length limit, once the source's length.
STUDENTS = {"trained": (), "tiny": (256, 1536, 8, 6, 2), "base": (512, 2048, 8, 6, 2)}
PIECES = 8000
CALLERS = 64
CALL = 64  # sentences of a call where many are sent

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


class Models(report_common.Models):
    def tool(self, name, *words):
        output_of([self.args.marian, self.shared("oracles", "ssru", "make", name), *words])

    def sentences(self):
        return self.shared("datasets", "multi30k", SENTENCES)

    def published(self, name):
        """A folder with a model as Firefox ships it, and as Marian writes it."""
        return self.make(name, lambda folder: self.fill(name, folder))

    def fill(self, name, folder):
        folder.mkdir()
        if not STUDENTS[name]:
            for file in (*self.shared("oracles", "ssru", "firefox").iterdir(), self.shared("oracles", "ssru", "marian", "model.npz")):
                shutil.copy(file, folder)
            return
        vocabulary, lexicon = folder / "vocab.ende.spm", folder / "lex.50.50.ende.s2t.bin"
        corpus = [self.shared("datasets", "multi30k", f"train.{language}") for language in ("en", "de")]
        known = self.folder / "pieces"
        if not known.exists():
            known.mkdir()
            self.tool("vocabulary.py", known / "vocab.spm", PIECES, *corpus)
            self.tool("lexicon.py", known / "vocab.spm", known / "vocab.spm", *corpus, known / "lex")
            output_of([self.args.marian.parent / "pymarian", "convert", "--shortlist", known / "lex.s2t", 50, 50, 0, "--dump-shortlist",
                       known / "lex.bin", "--vocabs", known / "vocab.spm", known / "vocab.spm"])
        shutil.copy(known / "vocab.spm", vocabulary)
        shutil.copy(known / "lex.bin", lexicon)
        self.tool("random_student.py", self.shared("oracles", "ssru", "marian", "model.npz"), folder / "model.npz", PIECES, *STUDENTS[name])
        self.tool("make_intgemm8.py", folder / "model.npz", self.shared("datasets", "multi30k", "val.en"),
                  folder / "model.ende.intgemm.alphas.bin", vocabulary)
        (folder / "config.yml").write_text("max-length-factor: 1\n", encoding="utf-8")

    def served(self, name, kind):
        """The published folder with the weights of one kind only."""
        def fill(folder):
            shutil.copytree(self.published(name), folder)
            for file in folder.glob("model*.bin" if kind == "float32" else "model.npz"):
                file.unlink()
        return self.make(f"{name}-{kind}", fill)


def engine(args, models, name, kind):
    python = {"bergamot": args.bergamot, "marian": args.marian}[kind]
    words = [python, "-c", ENGINE, models.shared("oracles", "ssru", "make"), kind, models.published(name), 1 if STUDENTS[name] else 2]
    return Program(words, one_core())


def of_engine(program, texts):
    _, loaded = program.ask({"texts": texts[:1], "alone": True})
    program.ask({"texts": texts[:64], "alone": False})

    def measure():
        many, _ = program.ask({"texts": texts, "alone": False})
        alone, memory = program.ask({"texts": texts[:ALONE], "alone": True})
        alone.sort()
        return {"many": len(texts) / many[0], "p50_ms": 1e3 * alone[len(alone) // 2], "p99_ms": 1e3 * alone[int(0.99 * len(alone))],
                "callers": len(alone) / sum(alone), "mib": memory / 2**20, "model_mib": loaded / 2**20}
    return measure


def of_server(args, models, server):
    def load(in_flight, sequences, warmup="0.5s"):
        found = bench(args, "translate", server, f"--input={models.sentences()}", f"--in_flight={in_flight}", f"--sequences={sequences}",
                      f"--duration={args.seconds:g}s", f"--warmup={warmup}", "--deadline=60s", core=other_core())
        return found["throughput_per_s"] * sequences, found["latency_us"]

    load(1, 1)
    loaded = server.memory_bytes()
    load(CALLERS, 1)
    memory = {"model_mib": loaded / 2**20, "session_kib": (server.memory_bytes("VmHWM") - loaded) / CALLERS / 2**10}

    def measure():
        # Calls that are sent in a warm-up are not counted, and these would take most of the time that is measured.
        many, _ = load(8, CALL, warmup="0s")
        callers, _ = load(CALLERS, 1)
        _, alone = load(1, 1)
        return {"many": many, "p50_ms": alone["p50"] / 1e3, "p99_ms": alone["p99"] / 1e3, "callers": callers,
                "mib": server.memory_bytes("VmHWM") / 2**20, **memory}
    return measure


def other_core():
    return min(report_common.os.sched_getaffinity(0))


def speed(args, models):
    texts = models.sentences().read_text(encoding="utf-8").splitlines()
    for name in STUDENTS:
        progress(name)
        one = ["--instances=1", "--cpu_threads=1", "--io_threads=1"]
        serve = {kind: report_common.Process([args.bin / "sru_server", f"--model={name}:{models.served(name, kind)}", "--listen=127.0.0.1:0",
                                              "--metrics_listen=127.0.0.1:0", "--http_listen=", *one], one_core()) for kind in ("int8", "float32")}
        with serve["int8"] as int8, serve["float32"] as float32, engine(args, models, name, "bergamot") as bergamot, \
                engine(args, models, name, "marian") as marian:
            rounds = alternate(args.rounds, {
                "Bergamot, int8": of_engine(bergamot, texts), "this server, int8": of_server(args, models, int8),
                "Marian, float32": of_engine(marian, texts), "this server, float32": of_server(args, models, float32)})
        found = {program: {key: report_common.statistics.median(run[key] for run in runs) for key in runs[0]} for program, runs in rounds.items()}
        yield f"## {name}"
        yield Table(("", "sentences/s, many at once", f"sentences/s, {CALLERS} callers with one each", "one at a time: median ms", "99 of 100 within ms",
                     "MiB with the model loaded", "KiB more a session", "MiB at most"),
                    [(program, f"{row['many']:,.0f}", f"{row['callers']:,.0f}", f"{row['p50_ms']:.2f}", f"{row['p99_ms']:.2f}", f"{row['model_mib']:,.0f}",
                      f"{row['session_kib']:,.0f}" if "session_kib" in row else "-", f"{row['mib']:,.0f}")
                     for program, row in found.items()])
        theirs, ours = found["Bergamot, int8"], found["this server, int8"]
        yield at_least("int8, many at once: this server / Bergamot", ours["many"] / theirs["many"], 1.2, digits=2)
        yield at_most("int8, one at a time, median: this server / Bergamot", ours["p50_ms"] / theirs["p50_ms"], 0.8)
        yield at_least(f"int8, {CALLERS} callers: this server / a Bergamot process that takes a call at a time", ours["callers"] / theirs["callers"], 3,
                       digits=2)
        yield at_least("float32, many at once: this server / Marian", found["this server, float32"]["many"] / found["Marian, float32"]["many"], 2,
                       digits=2)


def main():
    report = Report(
        __file__, "Translation models of Firefox",
        f"`trained` is a student of 3 + 2 layers of width 128; `tiny` and `base` have Firefox's sizes and random weights, and write as many pieces as"
        f" they read. All programs run on one core and take turns, greedy, with a shortlist; figures are medians of the rounds. {SENTENCES} has 1,000"
        f" sentences: the engines get them all at once, which they sort and batch; the server gets calls of {CALL}, 8 at a time. The"
        " engines' times are processor time without a protocol. The server's are on the clock, over gRPC, with a client on another core. Memory is what the process has resident: once it"
        f" has translated a sentence; what {CALLERS} callers with a sentence each add to that, by their number; and the most after everything.",
        (speed,), rounds=3, seconds=4)
    report.parser.add_argument("--bergamot", type=report_common.pathlib.Path, required=True, help="interpreter with bergamot 0.4.5")
    report.parser.add_argument("--marian", type=report_common.pathlib.Path, required=True, help="interpreter with pymarian 1.12.42")
    return report.run(models=Models)


if __name__ == "__main__":
    sys.exit(main())
