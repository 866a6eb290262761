"""Tests of what reads the archives of torch.save, on pickles that attack. Needs no PyTorch."""

import argparse
import collections
import os
import pickle
import tempfile
import types
import unittest
import zipfile

from exporter import inert_pickle
from exporter.common import ExportError


class FakeTorch:
    """As much of torch as there must be where no tensor is read."""

    class dtype:
        pass


for _name in set(inert_pickle.STORAGES.values()):
    setattr(FakeTorch, _name, FakeTorch.dtype())


class Settings:
    """A class of the user's own program."""

    def __init__(self):
        self.width = 3


class InertPickleTest(unittest.TestCase):

    def load(self, pickled, extra=(), compression=zipfile.ZIP_STORED):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "m.pt")
            with zipfile.ZipFile(path, "w", compression) as archive:
                archive.writestr("m/data.pkl", pickled)
                for name, data in extra:
                    archive.writestr(name, data)
            self.size = os.path.getsize(path)
            with open(path, "rb") as file:
                return inert_pickle.load(FakeTorch, file, self.size)

    def test_objects_keep_their_attributes(self):
        state = collections.OrderedDict(a=1)
        state._metadata = {"version": 2}
        loaded = self.load(pickle.dumps({
            "state": state, "options": argparse.Namespace(dim=4), "more": types.SimpleNamespace(x=[5]), "own": Settings()}, 2))
        self.assertEqual(loaded["state"], {"a": 1})
        self.assertEqual(loaded["state"]._metadata, {"version": 2})
        self.assertEqual(inert_pickle.plain(loaded["options"]), {"dim": 4})
        self.assertEqual(inert_pickle.plain(loaded["more"]), {"x": [5]})
        self.assertEqual(inert_pickle.plain(loaded["own"]), {"width": 3})

    def test_no_class_and_no_function_is_changed(self):
        attributes = {"changed": 1, "__doc__": "changed", "__defaults__": (1,)}
        for name in ("argparse\nNamespace", "types\nSimpleNamespace", "collections\nOrderedDict", "_codecs\nencode",
                     "pathlib\nPath", "torch._utils\n_rebuild_tensor", "numpy.core.multiarray\nscalar", "torch\nFloatStorage"):
            for state in (attributes, (None, attributes)):
                # GLOBAL, the state, BUILD, STOP.
                attack = b"c" + name.encode() + b"\n" + pickle.dumps(state, 0)[:-1] + b"b."
                with self.assertRaises(inert_pickle.HostileError, msg=name):
                    self.load(attack)
        self.assertFalse(hasattr(argparse.Namespace, "changed"))
        self.assertFalse(hasattr(inert_pickle.numpy_scalar, "changed"))
        self.assertEqual(inert_pickle.numpy_scalar.__defaults__, (b"",))

    def test_an_object_is_not_given_another_class(self):
        attack = b"cargparse\nNamespace\n)R" + pickle.dumps((None, {"__class__": 1}), 0)[:-1] + b"b."
        with self.assertRaises(inert_pickle.HostileError):
            self.load(attack)

    def test_a_short_file_takes_no_time_and_no_memory(self):
        def called(name, arguments):
            return b"c" + name + b"\n" + arguments + b"\x85R"

        lists = b"]q\x000" + b"".join(b"](h%ch%ceq%c0" % (i, i, i + 1) for i in range(40)) + b"h\x28"
        tuples = b")q\x000" + b"".join(b"h%ch%c\x86q%c0" % (i, i, i + 1) for i in range(40)) + b"h\x28"
        many = called(b"builtins\nrange", b"J\xff\xff\xff\x7f")
        doubled = b"]q\x00Na" + (called(b"builtins\nslice", b"K\x00") + b"h\x00s") * 40
        copied = b"(" + b"N" * 100_000 + b"tq\x000(" + (called(b"builtins\nset", b"h\x00")) * 100 + b"l"
        for attack, message in (
                (lists + b"}b.", "changes attributes of a list"), (lists + b"Q.", "is no storage of numbers"),
                (b"}" + tuples + b"Ns.", "a key of more parts"), (b"}(" + tuples + b"Nu.", "a key of more parts"),
                (b"\x8f(" + tuples + b"\x90.", "a key of more parts"), (b"(" + tuples + b"\x91.", "a key of more parts"),
                (called(b"builtins\nset", b"](" + tuples + b"e") + b".", "a key of more parts"),
                (called(b"collections\nOrderedDict", b"](" + tuples + b"N\x86e") + b".", "a key of more parts"),
                (called(b"builtins\nset", many) + b".", "what no checkpoint gives it"),
                (b"cbuiltins\nset\n" + many + b"R.", "without a list of arguments"),
                (b"cmy\nClass\n" + many + b"\x81.", "without a list of arguments"),
                (doubled + b".", "sets items of a list"), (copied + b".", "would make more"),
                (b"\x80\x05\x96" + b"\xff" * 7 + b"\x00.", None)):
            with self.subTest(attack[:80]):
                with self.assertRaisesRegex(inert_pickle.HostileError if message and "storage" not in message else Exception,
                                            message or ""):
                    self.load(attack)
        for harmless in (called(b"builtins\nbytes", b"\x8a\x05" + b"\xff" * 4 + b"\x00"), called(b"builtins\nstr", lists),
                         called(b"builtins\nlist", many), called(b"pathlib\nPath", lists)):
            self.assertIsInstance(self.load(harmless + b"."), inert_pickle.Inert)

    def test_modules_in_one_another_end(self):
        def module(inner):
            result = inert_pickle.Inert()
            result.state = {"_parameters": {}, "_buffers": {}, "_modules": inner}
            return result

        shared = module({})
        for _ in range(40):
            shared = module({"a": shared, "b": shared})
        with self.assertRaisesRegex(ExportError, "more modules than any model"):
            list(inert_pickle.walk_modules(shared))
        names = [name for name, _ in inert_pickle.walk_modules(module({"a": module({"b": module({})}), "c": module({})}))]
        self.assertEqual(names, ["", "a", "a.b", "c"])

    def test_a_bomb_is_refused_before_it_is_read(self):
        read = []
        original = zipfile.ZipFile.read
        zipfile.ZipFile.read = lambda *arguments: read.append(arguments) or original(*arguments)
        try:
            with self.assertRaisesRegex(inert_pickle.HostileError, "would become"):
                self.load(pickle.dumps({}), [("m/data/0", bytes(200 << 20))], zipfile.ZIP_DEFLATED)
        finally:
            zipfile.ZipFile.read = original
        self.assertEqual(read, [])
        self.assertLess(self.size, 1 << 20)
        # An archive may be large without compression, and small with it.
        self.assertEqual(self.load(pickle.dumps({}), [("m/data/0", bytes(100 << 20))]), {})
        self.assertEqual(self.load(pickle.dumps({}), [("m/data/0", bytes(60 << 20))], zipfile.ZIP_DEFLATED), {})


if __name__ == "__main__":
    unittest.main()
