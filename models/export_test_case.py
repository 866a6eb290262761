"""What tests of export_torch.py share. Exits with 77 (skipped) without PyTorch."""

import contextlib
import glob
import io
import json
import os
import struct
import sys
import tempfile
import unittest

try:
    import torch
except ImportError:
    print("SKIPPED: PyTorch is not installed (apt install python3-torch)")
    sys.exit(77)

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
import export_torch  # noqa: E402


def read_safetensors(path):
    with open(path, "rb") as file:
        data = file.read()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + length])
    header.pop("__metadata__")
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        assert entry["dtype"] == "F32"
        values = torch.tensor([v for (v,) in struct.iter_unpack(
            "<f", data[8 + length + begin:8 + length + end])])
        tensors[name] = values.reshape(entry["shape"])
    return tensors


def pieces_model(*pieces):
    """The bytes of a ModelProto with these pieces, and another field."""
    def field(key, data):
        return bytes([key << 3 | 2, len(data)]) + data

    return b"".join(field(1, field(1, piece.encode())) for piece in pieces) + field(2, b"")


class ExportTestCase(unittest.TestCase):
    """Runs the exporter in a directory of its own."""

    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)
        self.out = self.path("repository/model/1")

    def path(self, name):
        return os.path.join(self.directory.name, name)

    def write(self, name, contents):
        with open(self.path(name), "wb") as file:
            file.write(contents if isinstance(contents, bytes) else contents.encode("utf-8"))
        return self.path(name)

    def export(self, *arguments):
        """Exit code and what was printed."""
        output = io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            code = export_torch.main(list(arguments))
        return code, output.getvalue()

    def run_export(self, config, state, vocabulary=None, labels=None, extra=(), out=None):
        """Exit code and what was printed."""
        torch.save(state, self.path("m.pt"))
        self.write("c.json", config if isinstance(config, (str, bytes)) else json.dumps(config))
        arguments = ["--checkpoint", self.path("m.pt"), "--config", self.path("c.json"),
                     "--out", out or self.out, *extra]
        if vocabulary is not None:
            arguments += ["--vocab", self.write("v.txt", vocabulary)]
        if labels is not None:
            arguments += ["--labels", self.write("l.txt", labels)]
        return self.export(*arguments)

    def assert_exports(self, **arguments):
        code, output = self.run_export(**arguments)
        self.assertEqual(code, 0, output)
        return output

    def assert_refused(self, message, **arguments):
        code, output = self.run_export(**arguments)
        self.assertEqual(code, 1, output)
        self.assertIn(message, output)
        self.assertEqual(output.count("\n"), 1, output)
        self.assertFalse(os.path.exists(self.out))
        parent = os.path.dirname(self.out)
        self.assertEqual(os.listdir(parent) if os.path.exists(parent) else [], [])

    def check_public_checkpoints(self, *patterns, check):
        """Exports what ../shared has, and calls check() with the config.json of each."""
        shared = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "shared")
        folders = [folder for pattern in patterns for folder in glob.glob(os.path.join(shared, pattern, ""))]
        if not folders:
            self.skipTest("there is no ../shared with " + " or ".join(patterns))
        for folder in folders:
            with self.subTest(folder):
                config = os.path.join(folder, "config.json")
                code, output = self.export("--checkpoint", os.path.join(folder, "checkpoint.pt"), "--config", config, "--out",
                                           self.out, "--force")
                self.assertEqual(code, 0, output)
                with open(config, encoding="utf-8") as file:
                    check(json.load(file))

    def assert_written(self, state, vocabulary):
        """The model has these tensors, to the bit, and these words."""
        tensors = read_safetensors(os.path.join(self.out, "model.safetensors"))
        self.assertEqual(set(tensors), set(state))
        for name, tensor in state.items():
            self.assertTrue(torch.equal(tensors[name], tensor), name)
        with open(os.path.join(self.out, "vocab.txt"), encoding="utf-8") as file:
            self.assertEqual(file.read(), vocabulary)

    def config(self):
        with open(os.path.join(self.out, "config.json"), encoding="utf-8") as file:
            return json.load(file)
