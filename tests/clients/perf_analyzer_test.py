"""Models of every task under NVIDIA's perf_analyzer, over gRPC and HTTP: it asks for the config, sends the inputs and takes all outputs.

    perf_analyzer_test.py SRU_SERVER SRU_CLIENT MODELS

Takes the program of PATH or of .cache/clients-venv; it needs glibc 2.38, libb64 and CUDA's libcudart.so.12.
"""

import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

import clients_venv

clients_venv.enter("numpy")

import server_process  # noqa: E402
from server_process import Server  # noqa: E402

FOLDER = os.path.dirname(clients_venv.PYTHON)
PROGRAM = shutil.which("perf_analyzer", path=os.pathsep.join([os.environ.get("PATH", ""), FOLDER]))
LIBRARIES = glob.glob(os.path.join(FOLDER, "..", "lib", "*", "site-packages", "nvidia", "cuda_runtime", "lib"))
ENVIRONMENT = dict(os.environ, LD_LIBRARY_PATH=os.pathsep.join(LIBRARIES))
# model: where it lies; each input and its shape without the batch
MODELS = {
    "trec": ("models/pretrained/trec/1", {"text": (["Where is Lake Titicaca ?"], [1])}),
    "war_and_peace": ("models/pretrained/war_and_peace/1", {"text": (["The prince smiled"], [1])}),
    "encoder": ("tests/data/models/old_encoder/1", {"features": ([0.5] * 10, [2, 5])}),
    "reader": ("tests/data/models/old_reader/1", {"question": (["who ?"], [1]), "passage": (["the old man"], [1])}),
    "tagger": ("tests/golden/tagger/words", {"token_ids": ([1, 2, 3], [3])}),
    "translator": ("tests/data/models/old_translator/1", {"text": (["ab ba"], [1])}),
}


class PerfAnalyzerTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder.name
        models = os.path.join(cls.folder, "models")
        for name, (path, inputs) in MODELS.items():
            shutil.copytree(os.path.join(clients_venv.ROOT, path), os.path.join(models, name, "1"))
            data = {key: {"content": values, "shape": shape} for key, (values, shape) in inputs.items()}
            with open(cls.data_of(name), "w", encoding="utf-8") as file:
                json.dump({"data": [data]}, file)
        server_process.REPOSITORY = models
        cls.server = Server()
        cls.addClassCleanup(cls.server.stop)

    @classmethod
    def data_of(cls, model):
        return os.path.join(cls.folder, model + ".json")

    def analyze(self, model, protocol, *arguments):
        port = self.server.port if protocol == "grpc" else self.server.http_port
        shapes = ["%s:%s" % (name, ",".join(map(str, shape))) for name, (_, shape) in MODELS[model][1].items()]
        command = [PROGRAM, "-m", model, "-i", protocol, "-u", "127.0.0.1:%d" % port, "--input-data", self.data_of(model)]
        for shape in shapes:
            command += ["--shape", shape]
        command += ["--measurement-interval", "400", "--stability-percentage", "999", "--max-trials", "3", *arguments]
        done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=60)
        printed = done.stdout + done.stderr
        # The windows are short, so their times may differ however they like.
        self.assertTrue(done.returncode == 0 or "Failed to obtain stable measurement" in printed, printed)
        self.assertNotIn("error", printed.lower())

    def test_every_task_over_both_protocols(self):
        for model in MODELS:
            for protocol in ("grpc", "http"):
                with self.subTest(model=model, protocol=protocol):
                    self.analyze(model, protocol)
                    self.analyze(model, protocol, "-b", "3", "--concurrency-range", "2", "--async")
                    counted = 'sru_requests_total{code="OK",method="ModelInfer",model="%s",version="1"}' % model
                    self.assertGreater(self.server.metric(counted), 0)


if __name__ == "__main__":
    tried = PROGRAM and subprocess.run([PROGRAM, "--version"], env=ENVIRONMENT, capture_output=True, text=True)
    if not tried or tried.returncode != 0:
        print("SKIPPED: perf_analyzer does not run here: %s" % (tried.stderr.strip() if tried else "it is not installed"))
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])
