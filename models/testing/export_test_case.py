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

import export_torch  # noqa: E402
from exporter import common  # noqa: E402

common.PATIENCE_S = 3600  # a slow machine prints no more than a fast one


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


def sru_state(encoder, rows=0, outputs=0, seed=7, names=("embedding", "encoder", "out"), matrices=None):
    """The state_dict of a module whose modules have these names: an embedding of `rows`, an sru.SRU
    with the arguments `encoder`, and a linear layer of `outputs`. `matrices`: how many each layer
    has, if not as many as it needs."""
    generator = torch.Generator().manual_seed(seed)

    def tensor(*shape):
        return torch.randn(*shape, generator=generator) * 0.5

    inputs = encoder["input_size"]
    output = encoder["hidden_size"] * (2 if encoder.get("bidirectional") else 1)
    state = {names[0] + ".weight": tensor(rows, inputs)} if rows else {}
    for i in range(encoder["num_layers"]):
        name, size = f"{names[1]}.rnn_lst.{i}.", inputs
        projection = encoder.get("projection_size", 0)
        if 0 < projection < min(inputs, output):
            state[name + "weight_proj"] = tensor(inputs, projection)
            size = projection
        count = matrices or (4 if encoder.get("has_skip_term", True) and inputs != output else 3)
        state.update({name + "weight": tensor(size, output * count),
                      name + "weight_c": tensor(2 * output), name + "bias": tensor(2 * output),
                      name + "scale_x": torch.tensor([1.7 if encoder.get("rescale") else 1.0])})
        if encoder.get("layer_norm"):
            width = output if encoder.get("normalize_after") else inputs
            state.update({name + "layer_norm." + part: tensor(width) for part in ("weight", "bias")})
        inputs = output
    if outputs:
        state.update({names[2] + ".weight": tensor(outputs, output),
                      names[2] + ".bias": tensor(outputs)})
    return state


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

    def defaults(self):
        """What run_export() is given if a test does not say otherwise."""
        return {}

    def run_export(self, extra=(), out=None, checkpoint=None, **given):
        """Exit code and what was printed. given: config, vocabulary, labels (contents of the files,
        None without), and in place of the file `checkpoint` a state."""
        given = {**self.defaults(), **given}
        if checkpoint is None:
            checkpoint = self.path("m.pt")
            torch.save(given["state"], checkpoint)
        arguments = ["--checkpoint", checkpoint, "--out", out or self.out, *extra]
        for name, flag, file in (("config", "--config", "c.json"), ("labels", "--labels", "l.txt"),
                                 ("vocabulary", "--vocab", "v.txt")):
            contents = given.get(name)
            if contents is not None:
                text = contents if isinstance(contents, (str, bytes)) else json.dumps(contents)
                arguments += [flag, self.write(file, text)]
        return self.export(*arguments)

    def assert_exports(self, extra=(), **arguments):
        """What was printed, with single blanks in place of line ends. Replaces an earlier model."""
        code, output = self.run_export(["--force", *extra], **arguments)
        self.assertEqual(code, 0, output)
        return " ".join(output.split())

    def assert_refused(self, message, out=None, **arguments):
        """What was printed: one line with the message. Nothing was written."""
        out = out or self.path("refused/model/1")
        code, output = self.run_export(out=out, **arguments)
        with self.subTest(message):
            self.assertEqual(code, 1, output)
            self.assertIn(message, output)
            self.assertEqual(output.count("\n"), 1, output)
            parent = os.path.dirname(out)
            self.assertEqual(os.listdir(parent) if os.path.exists(parent) else [], [])
        return output

    def check_public_checkpoints(self, *patterns, check):
        """Exports what ../shared has, and calls check() with the config.json of each."""
        shared = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "shared")
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

    def tensors(self):
        return read_safetensors(os.path.join(self.out, "model.safetensors"))

    def words(self):
        with open(os.path.join(self.out, "vocab.txt"), encoding="utf-8") as file:
            return file.read()

    def assert_tensors(self, state):
        """The model has these tensors, to the bit."""
        tensors = self.tensors()
        self.assertEqual(set(tensors), set(state))
        for name, tensor in state.items():
            self.assertTrue(torch.equal(tensors[name], tensor), name)

    def config(self):
        with open(os.path.join(self.out, "config.json"), encoding="utf-8") as file:
            return json.load(file)
