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
            return inert_pickle.load(FakeTorch, path)

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
        self.assertFalse(hasattr(inert_pickle._latin1, "changed"))
        self.assertIsNone(inert_pickle._latin1.__defaults__)

    def test_an_object_is_not_given_another_class(self):
        attack = b"cargparse\nNamespace\n)R" + pickle.dumps((None, {"__class__": 1}), 0)[:-1] + b"b."
        with self.assertRaises(inert_pickle.HostileError):
            self.load(attack)

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
