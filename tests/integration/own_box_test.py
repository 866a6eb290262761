"""A server takes the size of its box: of the quota of processor time and of the memory of its control group, and not of the machine.

    own_box_test.py SRU_SERVER SRU_CLIENT MODEL_REPOSITORY MANY_CORES

MANY_CORES: a library to preload, with which the server sees 64 cores. Control groups need root.
"""

import ast
import itertools
import json
import math
import os
import re
import struct
import sys
import unittest

from server_process import REPOSITORY, SERVER, Server, call, classify_request, refusal

from control_group import ControlGroup
from sru_server import SruServer

MANY_CORES = {"LD_PRELOAD": os.path.abspath(sys.argv[4])}
PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "operations.md")
SMALL_BATCHES = ("--max_batch_tokens=64", "--max_sequence_tokens=64")  # and small workspaces
MODELS = ("trec", "war_and_peace")


def instances(server):
    """By model."""
    found = re.findall(r'(?m)^sru_instances\{model="(\w+)".*\} (\d+)$', server.page("/metrics"))
    return {name: int(count) for name, count in found}


class BoxTest(unittest.TestCase):
    numbers = itertools.count()

    def start(self, *flags, memory=512 << 20, cpus=None, env=MANY_CORES):
        try:
            group = ControlGroup("own-box-%d" % next(self.numbers), memory, cpus)
        except OSError as error:
            self.skipTest(f"no control group could be made ({error.strerror})")
        self.addCleanup(lambda: self.assertEqual(group.remove(), 0, "killed for memory"))
        command = [SERVER, "--model_repository=" + REPOSITORY, "--listen=127.0.0.1:0", "--metrics_listen=127.0.0.1:0"]
        server = SruServer(group.within([*command, "--http_listen=127.0.0.1:0", *flags]), env)
        server.address = "localhost:%d" % server.port
        self.addCleanup(server.stop)
        return server

    def check_serves(self, server):
        with Server.channel(server) as channel:
            self.assertEqual(call(channel, "Classify", classify_request("Who wrote it ?", model="trec")).code, "OK")

    def test_64_cores_and_512_mebibytes(self):
        server = self.start()
        self.check_serves(server)
        found = instances(server)
        self.assertEqual(set(found), set(MODELS))
        for count in found.values():
            self.assertGreaterEqual(count, 1)
            self.assertLess(count, 64)
        self.assertLess(server.memory("VmHWM"), 400 << 20)

    def test_memory_for_all_of_64_cores(self):
        server = self.start(*SMALL_BATCHES, "--model_control=explicit", "--load_models=trec", memory=1 << 30)
        self.assertEqual(instances(server), {"trec": 64})

    def test_a_quota_of_processor_time(self):
        wide = self.start(*SMALL_BATCHES, memory=4 << 30)
        threads = len(os.listdir("/proc/%d/task" % wide.pid))
        wide.stop()
        self.doCleanups()
        server = self.start(*SMALL_BATCHES, memory=4 << 30, cpus=1.5)
        self.check_serves(server)
        self.assertEqual(instances(server), dict.fromkeys(MODELS, 2))
        self.assertLess(len(os.listdir("/proc/%d/task" % server.pid)), threads / 4)

    def test_a_refused_model_says_which_flags_would_do(self):
        for flags, expected in (
            (["--instances=64"], r"--instances=\d+"),
            (["--max_batch_tokens=65536", "--instances=2"], r"--instances=1 --max_batch_tokens=\d+"),
        ):
            with self.subTest(flags):
                with self.assertRaises(RuntimeError) as raised:
                    self.start(*flags, "--model_control=explicit", "--load_models=war_and_peace")
                self.doCleanups()
                error = str(raised.exception)
                self.assertRegex(error, r"war_and_peace/1: expected at least [\d.]+ MB of free memory \(packed weights ")
                cure = re.search(rf"; ({expected}) would fit; not read", error)
                self.assertIsNotNone(cure, error)
                server = self.start(*flags, *cure.group(1).split(), "--model_control=explicit", "--load_models=war_and_peace")
                self.assertEqual(set(instances(server)), {"war_and_peace"})
                self.doCleanups()


class FormulaTest(unittest.TestCase):
    """The formulas of the page against the server's own estimate, which it gives when it refuses a model that no machine has
    room for."""

    CORES = 64  # as many batches run at once
    BATCH = 1 << 22

    def expressions(self):
        """By name: what stands right of it, and on the following lines without one."""
        with open(PAGE, encoding="utf-8") as file:
            block = file.read().split("**Memory** of one model version")[1].split("\n\n")[1]
        found = {}
        for line in block.splitlines():
            name, rest = line[4:34].strip(), re.split(r"  +", line[34:])[0]
            if name:
                found[name] = rest
                last = name
            elif rest.startswith("+"):
                found[last] += rest
        return found

    def evaluate(self, expression, values):
        tree = ast.parse(re.sub(r"\s+", " ", expression), mode="eval")
        return eval(compile(tree, PAGE, "eval"), {"__builtins__": {}, "min": min}, values)

    def test_the_bundled_models(self):
        expressions = self.expressions()
        for name in MODELS:
            folder = os.path.join(REPOSITORY, name, "1")
            with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
                config = json.load(file)
            with open(os.path.join(folder, "model.safetensors"), "rb") as file:
                header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
            shapes = {key: tensor["shape"] for key, tensor in header.items() if key != "__metadata__"}
            encoder = config["encoder"]
            hidden, layers = encoder["hidden_size"], encoder["num_layers"]
            directions = 2 if encoder["bidirectional"] else 1
            vocabulary, width = shapes["embedding.weight"]
            output = hidden * directions
            matrices = shapes["encoder.rnn_lst.0.weight"][1] // output
            values = {
                "parameters": sum(math.prod(shape) for shape in shapes.values()),
                "embedding": vocabulary * width,
                "vocabulary": vocabulary,
                "input_size": width,
                "directions": directions,
                "hidden": hidden,
                "k": matrices,
                "width": max(output, width),
                "output": output,
                "labels": len(config.get("labels", [])),
                "products": max(
                    [0, *(shapes[key][1] for i in range(layers) if (key := f"encoder.rnn_lst.{i}.weight_proj") in shapes)]
                ),
                "max_batch_tokens": self.BATCH,
                "max_batch_sequences": 256,
                "cores": self.CORES,
            }
            packed = self.evaluate(expressions["packed weights"], values)
            packed += self.evaluate(expressions["first layer's token table"], values)
            if matrices != 4:
                packed += self.evaluate(expressions["embedding"], values)
            workspaces = self.evaluate(expressions["workspace"], values)
            if config.get("task") == "language_model":
                workspaces += self.evaluate(expressions["a language model's, besides"], values)
            workspaces += self.evaluate(expressions["kept by each instance"], values)
            error = refusal(
                "--model_control=explicit",
                "--load_models=" + name,
                "--instances=1024",
                f"--max_batch_tokens={self.BATCH}",
                f"--max_queue_tokens={self.BATCH}",
                "--backend=cpu",
                env=MANY_CORES,
            )
            found = [float(number) * 1e6 for number in re.findall(r"(?:weights|workspaces) ([\d.]+) MB", error)]
            self.assertEqual(len(found), 2, error)
            for what, formula, estimate in (
                ("packed", packed, found[0]),
                ("workspaces", workspaces * self.CORES, found[1]),
            ):
                with self.subTest(model=name, what=what, formula=formula, estimate=estimate):
                    self.assertLess(abs(formula / estimate - 1), 0.1)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
