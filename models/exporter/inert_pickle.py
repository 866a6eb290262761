"""Reads the files of torch.save, zip archives and the form before these, without running anything that they name.

Tensors and plain containers are rebuilt here, from the file's bytes. Whatever else a file names (classes of Lightning,
of numpy, of the user's own code) becomes an Inert: an object that keeps what it was made of and does nothing. So files that
hold hyper-parameters of any kind, or a whole pickled module, can be read without their packages, and a file that was made to
attack cannot run code. The few functions that a file may call take only what torch.save gives them, so that a short file
cannot take all memory or time. No message has the repr() of an object: it may be exponentially longer than the file.
torch.load() is not used: some versions ignore the unpickler that they are given (1.13), run code even with weights_only
(before 2.6) or write outside of their memory (before 2.10).
"""

import argparse
import collections
import contextlib
import io
import math
import mmap
import os
import pickle
import struct
import types
import zipfile

from .common import ExportError


class Inert(dict):
    """An object of a class that was not loaded. Its items, its state (what __setstate__ would have been given) and the first
    of its constructor's arguments are there to be read."""

    class_name = ""
    state = None
    arguments = ()

    def __new__(cls, *arguments, **_):
        result = dict.__new__(cls)
        result.arguments = arguments[:16]
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

    extend = add = append


class HostileError(pickle.UnpicklingError):
    """The file does what no checkpoint needs."""


def require(holds, otherwise):
    if not holds:
        raise HostileError(otherwise)


# Never in a checkpoint by accident: to name them is to attack.
HOSTILE_MODULES = {"os", "posix", "nt", "subprocess", "sys", "shutil", "socket", "runpy", "pty", "ctypes", "importlib",
                   "webbrowser", "marshal", "code", "pip"}
HOSTILE_BUILTINS = {"eval", "exec", "compile", "__import__", "open", "input", "breakpoint"}

# BUILD may set attributes of objects of these classes and of Inert ones, never of the classes themselves or of functions.
BUILT = {argparse.Namespace, types.SimpleNamespace, collections.OrderedDict}

# torch.save does not compress. A file that somebody has packed again may unpack to so much; a bomb unpacks to a thousand times its size.
MAX_UNPACKED = 64 << 20
MAX_RATIO = 20

# What a file may make beside its storages: by its functions, as parts of one key of a dict, and as modules in one another.
MAX_MADE = 4 << 20
MAX_KEY_PARTS = 1000
MAX_MODULES = 100_000
MAX_MODULE_DEPTH = 64

# How much more memory than four times the size of a file its reading may take.
MAX_GROWTH = 2 << 30

STORAGES = {"DoubleStorage": "float64", "FloatStorage": "float32", "HalfStorage": "float16", "BFloat16Storage": "bfloat16",
            "LongStorage": "int64", "IntStorage": "int32", "ShortStorage": "int16", "CharStorage": "int8",
            "ByteStorage": "uint8", "BoolStorage": "bool", "UntypedStorage": "uint8"}

# The first two pickles of a file of torch.save that is no zip archive.
OLD_MAGIC, OLD_VERSION = 0x1950a86a20f9469cfc6c, 1001


def check_unpacked(size, unpacked):
    require(unpacked <= MAX_UNPACKED + MAX_RATIO * size,
            f"its {size:,} bytes would become {unpacked:,}, which no checkpoint's do")


@contextlib.contextmanager
def limited_memory(size):
    """Lets the reading of a file of `size` bytes fail, rather than fill the memory, where the system can."""
    before = None
    with contextlib.suppress(ImportError, OSError), open("/proc/self/statm", encoding="ascii") as file:
        import resource
        limit = int(file.read().split()[0]) * resource.getpagesize() + MAX_GROWTH + 4 * size
        before = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (limit if before[0] < 0 else min(limit, before[0]), before[1]))
    try:
        yield
    finally:
        if before is not None:
            resource.setrlimit(resource.RLIMIT_AS, before)


def check_keys(keys):
    """Refuses a key whose hash takes forever: tuples in tuples that share their parts."""
    for key in keys:
        parts, count = [key], 0
        while parts:
            part = parts.pop()
            inner = part if type(part) is tuple else ()
            count += len(inner)
            require(count <= MAX_KEY_PARTS, "it has a key of more parts than any checkpoint's")
            parts += inner


def check_items(target, keys):
    require(isinstance(target, dict), f"it sets items of a {type(target).__name__}, which no checkpoint does")
    check_keys(keys)


def check_call(arguments):
    require(type(arguments) is tuple, "it calls a function without a list of arguments")


def check_build(target, state):
    require(isinstance(target, Inert) or (type(target) in BUILT and isinstance(state, dict)),
            f"it changes attributes of a {type(target).__name__}, which no checkpoint does")


# What is looked at before steps of a pickle.
CHECKS = {
    "BUILD": lambda self: check_build(*self.stack[-2:]),
    "REDUCE": lambda self: check_call(self.stack[-1]),
    "NEWOBJ": lambda self: check_call(self.stack[-1]),
    "NEWOBJ_EX": lambda self: check_call(self.stack[-2]),
    "SETITEM": lambda self: check_items(self.stack[-3], self.stack[-2:-1]),
    "SETITEMS": lambda self: check_items(self.metastack[-1][-1], self.stack[::2]),
    "ADDITEMS": lambda self: check_keys(self.stack),
    "FROZENSET": lambda self: check_keys(self.stack),
}


def numpy_scalar(dtype, data=b""):
    """A number of numpy, as Python's."""
    kind = dtype.arguments[0] if isinstance(dtype, Inert) and dtype.arguments else None
    code = {"f8": "d", "f4": "f", "f2": "e", "i8": "q", "i4": "i", "i2": "h", "i1": "b", "u8": "Q", "u4": "I",
            "u2": "H", "u1": "B", "b1": "?"}.get(kind if isinstance(kind, str) else None)
    if code is None or not isinstance(data, bytes) or len(data) != struct.calcsize(code):
        return Inert()
    return struct.unpack("<" + code, data)[0]


class Functions:
    """What one file may call. A storage is a flat tensor here."""

    def __init__(self, torch):
        self._torch, self._left, self._negative = torch, MAX_MADE, []

    def take(self, values, *kinds):
        """The argument of a function, which must be of these kinds and counts as made."""
        require(isinstance(values, kinds), "it gives a function what no checkpoint gives it")
        self._left -= len(values)
        require(self._left >= 0, "its functions would make more than those of any checkpoint")
        return values

    def make_set(self, values=()):
        check_keys(self.take(values, list, tuple, set, frozenset))
        return set(values)

    def make_ordered(self, pairs=()):
        check_keys(key for key, _ in self.take(pairs, list, tuple))
        return collections.OrderedDict(pairs)

    def latin1(self, text, encoding):
        """_codecs.encode, as pickles of protocol 2 use it for bytes."""
        require(encoding == "latin1", "it encodes a text as no checkpoint does")
        return self.take(text, str).encode("latin1")

    def tensor(self, storage, offset, size, stride, _requires_grad=None, _hooks=None, metadata=None):
        require(all(isinstance(numbers, tuple) and all(type(number) is int for number in numbers)
                    for numbers in (size, stride, (offset,))), "it gives a tensor a size that is no number")
        require(len(size) <= 64 and math.prod(size) <= storage.numel() + MAX_MADE,
                "it has a tensor of many more numbers than are stored")
        tensor = self._torch.as_strided(storage, size, stride, offset)
        if not metadata:
            return tensor
        if metadata != {"neg": True}:
            raise pickle.UnpicklingError("it has a tensor that is not what is stored, such as a complex conjugate; write it "
                                         "with tensor.resolve_conj()")
        negative = self._torch.empty(size, dtype=tensor.dtype)
        self._negative.append((negative, tensor))
        return negative

    def tensor_v3(self, storage, offset, size, stride, _requires_grad, _hooks, dtype, metadata=None):
        return self.tensor(storage.view(dtype), offset, size, stride, metadata=metadata)

    def from_type(self, function, _kind, arguments, _state):
        return function(*self.take(arguments, tuple))

    def finish(self):
        """What is done when the storages have been read."""
        for negative, tensor in self._negative:
            negative.copy_(-tensor)

    def known(self):
        """{(module, name): what the file gets by it}"""
        first = lambda value=(), *_: value  # noqa: E731
        known = {
            ("collections", "OrderedDict"): self.make_ordered,
            ("collections", "defaultdict"): lambda *_: {},
            ("argparse", "Namespace"): argparse.Namespace,
            ("types", "SimpleNamespace"): types.SimpleNamespace,
            ("_codecs", "encode"): self.latin1,
            ("torch", "Size"): first,
            ("torch._utils", "_rebuild_tensor"): self.tensor,
            ("torch._utils", "_rebuild_tensor_v2"): self.tensor,
            ("torch._utils", "_rebuild_tensor_v3"): self.tensor_v3,
            ("torch._utils", "_rebuild_parameter"): first,
            ("torch._utils", "_rebuild_parameter_with_state"): first,
            ("torch._tensor", "_rebuild_from_type_v2"): self.from_type,
        }
        for name in ("set", "frozenset"):
            known["builtins", name] = known["__builtin__", name] = self.make_set
        for module in ("numpy.core.multiarray", "numpy._core.multiarray"):
            known[module, "scalar"] = numpy_scalar
        for name, dtype in STORAGES.items():
            for module in ("torch", "torch.cuda", "torch.storage"):
                known[module, name] = getattr(self._torch, dtype)
        for name in dir(self._torch):
            if isinstance(getattr(self._torch, name), self._torch.dtype):
                known["torch", name] = getattr(self._torch, name)
        return known


class Unpickler(pickle._Unpickler):
    """Python's own, since the one in C does not let its steps be looked at."""

    # Its own BYTEARRAY8 takes the room for as many bytes as a file says.
    dispatch = {**pickle._Unpickler.dispatch, pickle.BYTEARRAY8[0]: pickle._Unpickler.load_binbytes8}
    for _name, _check in CHECKS.items():
        dispatch[getattr(pickle, _name)[0]] = lambda self, check=_check, step=dispatch[getattr(pickle, _name)[0]]: (
            check(self), step(self))

    def __init__(self, file, known, read_storage=None):
        super().__init__(file, encoding="utf-8")
        self._known, self._read_storage = known, read_storage

    def find_class(self, module, name):
        if (module, name) not in self._known:
            require(module.split(".")[0] not in HOSTILE_MODULES and not (
                module in ("builtins", "__builtin__") and name in HOSTILE_BUILTINS),
                    f"it names the function {module}.{name}, which no checkpoint needs: loaded in the usual way, the file "
                    "would run code")
            self._known[module, name] = type(name, (Inert,), {"class_name": f"{module}.{name}"})
        return self._known[module, name]

    def persistent_load(self, saved):
        kind = saved[0] if isinstance(saved, tuple) and saved and isinstance(saved[0], str) else None
        if kind == "module" and len(saved) > 1:  # a class with its source
            return saved[1]
        if kind != "storage" or len(saved) < 5 or not isinstance(saved[2], str) or type(saved[4]) is not int:
            raise pickle.UnpicklingError("it has an object outside of the pickle that is no storage of numbers")
        if isinstance(saved[1], type):
            raise pickle.UnpicklingError(f"it has numbers of a kind that no model has: {saved[1].__name__}")
        return self._read_storage(*saved[1:3], saved[4], *saved[5:6])


def pickle_name(names):
    """Which member of a zip archive is the pickle, if it is one of torch.save."""
    return next((name for name in names if os.path.basename(name) == "data.pkl" and not name.startswith("__MACOSX/")), None)


def load(torch, file, size):
    """What a zip archive of torch.save holds, as torch.load gives it for the CPU. Raises what pickle and zipfile raise."""
    functions, storages = Functions(torch), {}
    with zipfile.ZipFile(file) as archive:
        check_unpacked(size, sum(entry.file_size for entry in archive.infolist()))
        pickled = pickle_name(archive.namelist())
        folder = pickled[:-len("data.pkl")]
        if folder + "byteorder" in archive.namelist() and archive.read(folder + "byteorder") != b"little":
            raise pickle.UnpicklingError("it was written on a big-endian machine")

        def read_storage(dtype, key, *_):
            if key not in storages:
                data = bytearray(archive.read(f"{folder}data/{key}"))
                storages[key] = torch.frombuffer(data, dtype=dtype) if data else torch.empty(0, dtype=dtype)
            return storages[key]

        loaded = Unpickler(io.BytesIO(archive.read(pickled)), functions.known(), read_storage).load()
    functions.finish()
    return loaded


def load_old(torch, file, size):
    """The same of a file of torch.save as it was before zip archives: pickles one after another, then the storages."""
    functions, storages, left = Functions(torch), {}, size
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:

        def make_storage(dtype, key, count, view=None):
            nonlocal left
            if key not in storages:
                left -= count * torch.empty(0, dtype=dtype).element_size()
                if count < 0 or left < 0:
                    raise pickle.UnpicklingError("its storages would be larger than the file")
                storages[key] = torch.empty(count, dtype=dtype)
            return storages[key] if view is None else storages[key][view[1]:view[1] + view[2]]

        if any(Unpickler(data, {}).load() != expected for expected in (OLD_MAGIC, OLD_VERSION)):
            raise pickle.UnpicklingError("it is a pickle that torch.save did not write")
        if (plain(Unpickler(data, {}).load()) or {}).get("little_endian") is not True:
            raise pickle.UnpicklingError("it was written on a big-endian machine")
        loaded, keys = Unpickler(data, functions.known(), make_storage).load(), Unpickler(data, {}).load()
        if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys) or set(keys) != set(storages):
            raise pickle.UnpicklingError("its list of storages is not that of its tensors")
        for key in keys:
            storage = storages[key]
            (count,), size = struct.unpack("<q", data.read(8)), storage.numel() * storage.element_size()
            values = bytearray(data.read(size))
            if count != storage.numel() or len(values) != size:
                raise pickle.UnpicklingError("a storage is cut short")
            if values:
                storage.copy_(torch.frombuffer(values, dtype=storage.dtype))
    functions.finish()
    return loaded


def plain(value):
    """The parts of a container by name: of a mapping, behind a Namespace or an Inert, of a list. None if it is none."""
    if isinstance(value, (argparse.Namespace, types.SimpleNamespace)):
        return vars(value)
    if isinstance(value, (list, tuple)):
        return {str(index): item for index, item in enumerate(value)}
    if isinstance(value, Inert):
        # A dataclass has its fields as state, a named tuple as arguments; a dict of some other class has items.
        if len(value):
            return dict(value)
        return value.state if isinstance(value.state, dict) else plain(value.arguments)
    return value if isinstance(value, dict) else None


def is_module(value):
    """Whether this is a pickled torch.nn.Module."""
    return (isinstance(value, Inert) and isinstance(value.state, dict)
            and all(isinstance(value.state.get(kind), dict) and all(isinstance(name, str) for name in value.state[kind])
                    for kind in ("_parameters", "_buffers", "_modules")))


def walk_modules(module):
    """All modules of a pickled module, as (name, Inert)."""
    waiting = [((), module)]
    for _ in range(MAX_MODULES):
        if not waiting:
            return
        path, module = waiting.pop()
        yield ".".join(path), module
        if len(path) < MAX_MODULE_DEPTH:
            waiting += [((*path, name), child) for name, child in reversed(module.state["_modules"].items()) if is_module(child)]
    raise ExportError("the checkpoint is a module of more modules than any model has")
