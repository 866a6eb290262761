"""In a control group with as much memory as the server says that a model needs, the model loads; with less, it is refused by its
name. The server survives either.

    load_estimate_test.py SRU_SERVER SRU_CLIENT MODEL_REPOSITORY GOLDEN EXPORTED

GOLDEN has small models of the tests. EXPORTED is where the tests of trained models leave theirs; they are taken if they are there, as
are the students in SRU_SHARED_DIR (default ../shared). Control groups need root.
"""

import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from server_process import CLIENT, REPOSITORY, SERVER, Server, call, classify_request

from control_group import ControlGroup
from sru_server import SruServer

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
GOLDEN, EXPORTED = (os.path.abspath(folder) for folder in sys.argv[4:6])
STUDENTS = os.path.join(os.environ.get("SRU_SHARED_DIR", os.path.join(ROOT, "..", "shared")), "oracles", "ssru")
MB = 1000000


def versions():
    """(name, folder of a version), of which each name is one kind of model."""
    yield "war_and_peace", os.path.join(REPOSITORY, "war_and_peace", "1")
    for kind in ("tagger", "language_model"):
        yield kind, os.path.dirname(min(glob.glob(os.path.join(GOLDEN, kind, "*", "model.safetensors"))))
    for path in sorted(glob.glob(os.path.join(EXPORTED, "*", "*", "1", "model.safetensors"))):
        yield "_".join(path.split(os.sep)[-4:-2]), os.path.dirname(path)
    for student in ("marian", "firefox"):
        if os.path.isdir(os.path.join(STUDENTS, student)):
            yield student, os.path.join(STUDENTS, student)


class LoadEstimateTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.repository = folder.name
        shutil.copytree(os.path.join(REPOSITORY, "trec"), os.path.join(folder.name, "trec"))

    def start(self, name, *flags, memory=4 << 30):
        """With trec loaded, and one worker for each model unless the flags say otherwise."""
        try:
            self.group = ControlGroup(name, memory)
        except OSError as error:
            self.skipTest(f"no control group could be made ({error.strerror})")
        command = [SERVER, "--model_repository=" + self.repository, "--listen=127.0.0.1:0", "--metrics_listen=127.0.0.1:0"]
        command += ["--http_listen=", "--admin_listen=127.0.0.1:0", "--model_control=explicit", "--load_models=trec"]
        self.server = SruServer(self.group.within([*command, "--instances=1", *flags]))
        self.server.address = "localhost:%d" % self.server.port

    def stop(self):
        self.server.stop()
        self.assertEqual(self.group.remove(), 0, "killed for memory")

    def load(self, name):
        """What keeps the model from being loaded, or "". Whatever it is, the server still answers."""
        address = "localhost:%d" % self.server.port_of("admin")
        done = subprocess.run(
            [CLIENT, "admin", "--address=" + address, "load", name], capture_output=True, text=True, timeout=120
        )
        self.assertTrue(self.server.alive(), f"the server ended: {self.server.log()[-500:]}")
        with Server.channel(self.server) as channel:
            self.assertEqual(call(channel, "Classify", classify_request("Who ?", model="trec")).code, "OK")
        self.assertEqual(done.returncode, 1 if done.stderr else 0, done.stderr)
        return done.stderr

    def needs(self, name):
        """The bytes that the server says a model needs, from its refusal."""
        self.group.limit(self.group.used() + 2 * MB)
        refusal = self.load(name)
        found = re.search(rf"{name}/1: expected at least ([\d.]+) MB of free memory", refusal)
        self.assertIsNotNone(found, refusal)
        return float(found.group(1)) * MB

    def check(self, name, *flags):
        self.start("load-" + name, *flags)
        try:
            needs = self.needs(name)
            for share in (0.3, 0.6, 0.9):
                self.group.limit(self.group.used() + share * needs)
                self.assertIn(name + "/1: expected at least", self.load(name))
            self.group.limit(self.group.used() + needs + MB)
            self.assertEqual(self.load(name), "", f"{needs / MB} MB")
            print(f"{name} {' '.join(flags)}: needs {needs / MB:.1f} MB, took at most {self.group.peak() / MB:.1f} in all")
        finally:
            self.stop()

    def test_each_kind_of_model(self):
        for name, folder in versions():
            with self.subTest(name):
                shutil.copytree(folder, os.path.join(self.repository, name, "1"))
                self.check(name)

    def test_several_workers_and_other_data_types(self):
        shutil.copytree(os.path.join(REPOSITORY, "war_and_peace"), os.path.join(self.repository, "war_and_peace"))
        for flags in (["--instances=4"], ["--dtype=bfloat16"], ["--dtype=int8"], ["--max_batch_tokens=16384"]):
            with self.subTest(flags):
                self.check("war_and_peace", *flags)

    def test_beside_another_model_in_a_small_box(self):
        shutil.copytree(os.path.join(REPOSITORY, "war_and_peace"), os.path.join(self.repository, "war_and_peace"))
        for memory, refused in ((80, True), (90, True), (100, None), (110, None), (120, None), (200, False)):
            with self.subTest(memory):
                self.start("box-%d" % memory, memory=memory * MB)
                try:
                    refusal = self.load("war_and_peace")
                    if refusal:
                        self.assertIn("war_and_peace/1: expected at least", refusal)
                    if refused is not None:
                        self.assertEqual(bool(refusal), refused, refusal)
                finally:
                    self.stop()


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
