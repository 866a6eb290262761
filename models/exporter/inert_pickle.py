"""Reads the zip archives of torch.save without running anything that they name.

Tensors and plain containers are rebuilt here, from the archive's bytes. Whatever else a file names (classes of Lightning,
of numpy, of the user's own code) becomes an Inert: an object that keeps what it was made of and does nothing. So files that
hold hyper-parameters of any kind, or a whole pickled module, can be read without their packages, and a file that was made to
attack cannot run code. torch.load() is not used: some versions (1.13) ignore the unpickler that they are given.
"""

import argparse
import collections
import io
import os
import pickle
import struct
import types
import zipfile


class Inert(dict):
    """An object of a class that was not loaded. Its items, its state (what __setstate__ would have been given) and its
    constructor's arguments are there to be read."""

    class_name = ""
    state = None
    arguments = ()

    def __new__(cls, *arguments, **_):
        result = dict.__new__(cls)
        result.arguments = arguments
        return result

    def __init__(self, *_, **__):
        super().__init__()

    __hash__ = object.__hash__

    def __eq__(self, other):
        return self is other

    def __setstate__(self, state):
        self.state = state

    def append(self, value):
        pass

    def extend(self, values):
        pass

    def add(self, value):
        pass


class HostileError(pickle.UnpicklingError):
    """The file names a function that no checkpoint needs."""


# Never in a checkpoint by accident: to name them is to attack.
HOSTILE_MODULES = {"os", "posix", "nt", "subprocess", "sys", "shutil", "socket", "runpy", "pty", "ctypes", "importlib",
                   "webbrowser", "marshal", "code", "pip"}
HOSTILE_BUILTINS = {"eval", "exec", "compile", "__import__", "open", "input", "breakpoint"}

BUILTINS = {"set": set, "frozenset": frozenset, "complex": complex, "bytearray": bytearray, "slice": slice,
            "range": range, "list": list, "dict": dict, "tuple": tuple, "int": int, "float": float, "str": str,
            "bool": bool, "bytes": bytes, "object": object}


def _latin1(text, encoding):
    """_codecs.encode, as pickles of protocol 2 use it for bytes."""
    if encoding != "latin1":
        raise HostileError(f"_codecs.encode with the encoding {encoding}")
    return text.encode("latin1")


def _path(*parts):
    return "/".join(str(part) for part in parts).replace("//", "/")


def _numpy_scalar(dtype, data=b""):
    """A number of numpy, as Python's."""
    kind = dtype.arguments[0] if isinstance(dtype, Inert) and dtype.arguments else None
    code = {"f8": "d", "f4": "f", "f2": "e", "i8": "q", "i4": "i", "i2": "h", "i1": "b", "u8": "Q", "u4": "I",
            "u2": "H", "u1": "B", "b1": "?"}.get(kind)
    if code is None or not isinstance(data, bytes) or len(data) != struct.calcsize(code):
        return Inert()
    return struct.unpack("<" + code, data)[0]


# BUILD may set attributes of objects of these classes and of Inert ones, never of the classes themselves or of functions.
BUILT = {argparse.Namespace, types.SimpleNamespace, collections.OrderedDict, collections.defaultdict}

# torch.save does not compress. A file that somebody has packed again may unpack to so much; a bomb unpacks to a thousand times its size.
MAX_UNPACKED = 64 << 20
MAX_RATIO = 20

STORAGES = {"DoubleStorage": "float64", "FloatStorage": "float32", "HalfStorage": "float16", "BFloat16Storage": "bfloat16",
            "LongStorage": "int64", "IntStorage": "int32", "ShortStorage": "int16", "CharStorage": "int8",
            "ByteStorage": "uint8", "BoolStorage": "bool", "UntypedStorage": "uint8"}


def _known(torch):
    """What a checkpoint may make: {(module, name): object}. A storage is a flat tensor here."""
    def rebuild_tensor(storage, offset, size, stride, *_):
        return torch.as_strided(storage, tuple(size), tuple(stride), offset)

    def rebuild_tensor_v3(storage, offset, size, stride, _requires_grad, _hooks, dtype, *_):
        return rebuild_tensor(storage.view(dtype), offset, size, stride)

    def rebuild_parameter(data, *_):
        return data

    def rebuild_from_type(function, _kind, arguments, _state):
        return function(*arguments)

    known = {("builtins", name): value for name, value in BUILTINS.items()}
    known.update({("__builtin__", name): value for name, value in BUILTINS.items()})
    known.update({
        ("collections", "OrderedDict"): collections.OrderedDict,
        ("collections", "defaultdict"): collections.defaultdict,
        ("argparse", "Namespace"): argparse.Namespace,
        ("types", "SimpleNamespace"): types.SimpleNamespace,
        ("_codecs", "encode"): _latin1,
        ("torch", "Size"): tuple,
        ("torch._utils", "_rebuild_tensor"): rebuild_tensor,
        ("torch._utils", "_rebuild_tensor_v2"): rebuild_tensor,
        ("torch._utils", "_rebuild_tensor_v3"): rebuild_tensor_v3,
        ("torch._utils", "_rebuild_parameter"): rebuild_parameter,
        ("torch._utils", "_rebuild_parameter_with_state"): rebuild_parameter,
        ("torch._tensor", "_rebuild_from_type_v2"): rebuild_from_type,
    })
    for module in ("pathlib", "pathlib._local"):
        for name in ("Path", "PosixPath", "WindowsPath", "PurePath", "PurePosixPath", "PureWindowsPath"):
            known[module, name] = _path
    for module in ("numpy.core.multiarray", "numpy._core.multiarray"):
        known[module, "scalar"] = _numpy_scalar
    for name, dtype in STORAGES.items():
        for module in ("torch", "torch.cuda", "torch.storage"):
            known[module, name] = getattr(torch, dtype)
    for name in dir(torch):
        if isinstance(getattr(torch, name), torch.dtype):
            known["torch", name] = getattr(torch, name)
    return known


def load(torch, path):
    """What the zip archive at `path` holds, as torch.load gives it for the CPU. Raises what pickle and zipfile raise."""
    known = _known(torch)
    storages = {}
    with zipfile.ZipFile(path) as archive:
        unpacked = sum(entry.file_size for entry in archive.infolist())
        if unpacked > MAX_UNPACKED + MAX_RATIO * os.path.getsize(path):
            raise HostileError(f"its {os.path.getsize(path):,} bytes would become {unpacked:,}, which no checkpoint's do")
        pickled = next(name for name in archive.namelist() if name.endswith("data.pkl"))
        folder = pickled[:-len("data.pkl")]
        if folder + "byteorder" in archive.namelist() and archive.read(folder + "byteorder") != b"little":
            raise pickle.UnpicklingError("it was written on a big-endian machine")

        def read_storage(dtype, key):
            if key not in storages:
                data = bytearray(archive.read(f"{folder}data/{key}"))
                storages[key] = torch.frombuffer(data, dtype=dtype) if data else torch.empty(0, dtype=dtype)
            return storages[key]

        # Python's own, since the one in C does not let BUILD be looked at.
        class Unpickler(pickle._Unpickler):
            dispatch = dict(pickle._Unpickler.dispatch)

            def load_build(self):
                state, target = self.stack[-1], self.stack[-2]
                if not isinstance(target, Inert) and not (type(target) in BUILT and isinstance(state, dict)):
                    raise HostileError(f"it changes attributes of {target!r:.100}, which no checkpoint does")
                super().load_build()

            dispatch[pickle.BUILD[0]] = load_build

            def find_class(self, module, name):
                if (module, name) in known:
                    return known[module, name]
                if module.split(".")[0] in HOSTILE_MODULES or (
                        module in ("builtins", "__builtin__") and name in HOSTILE_BUILTINS):
                    raise HostileError(f"it names the function {module}.{name}, which no checkpoint needs: loaded in the "
                                       "usual way, the file would run code")
                return type(name, (Inert,), {"class_name": f"{module}.{name}"})

            def persistent_load(self, saved):
                if not isinstance(saved, tuple) or len(saved) < 3 or saved[0] != "storage" or (
                        not isinstance(saved[1], torch.dtype) or not isinstance(saved[2], str)):
                    raise pickle.UnpicklingError(f"expected a storage of numbers, found {saved[:2]!r}")
                return read_storage(saved[1], saved[2])

        return Unpickler(io.BytesIO(archive.read(pickled)), encoding="utf-8").load()


def plain(value):
    """A mapping behind a Namespace or an Inert, or None."""
    if isinstance(value, (argparse.Namespace, types.SimpleNamespace)):
        return vars(value)
    if isinstance(value, Inert):
        # A dataclass has its fields as state; a dict of some other class has items.
        if len(value):
            return dict(value)
        return value.state if isinstance(value.state, dict) else None
    return value if isinstance(value, dict) else None


def is_module(value):
    """Whether this is a pickled torch.nn.Module."""
    return (isinstance(value, Inert) and isinstance(value.state, dict) and "_parameters" in value.state
            and "_modules" in value.state)


def walk_modules(module, prefix=""):
    """All modules of a pickled module, as (name, Inert)."""
    yield prefix, module
    for name, child in module.state["_modules"].items():
        if is_module(child):
            yield from walk_modules(child, f"{prefix}.{name}" if prefix else name)
