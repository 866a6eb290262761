"""Reads a file of weights, of torch.save or of safetensors, or a folder of them, and finds the state_dict in it."""

import bz2
import collections
import gzip
import json
import lzma
import os
import re
import struct
import tempfile
import zipfile

from . import inert_pickle
from .common import ExportError, count_of, listed, progress, read_config
from .folds import fold_parametrizations

# The tensors by name; what else the file says: `options`, the hyper-parameters that training kept, and `classes`, the class
# of each module by name, of a module that was pickled whole (else empty).
Checkpoint = collections.namedtuple("Checkpoint", "state options classes")

# Under which names training programs keep a state_dict, the preferred first.
USUAL_KEYS = ("state_dict", "model_state_dict", "model", "module", "net", "network", "params", "weights")
AVERAGED = re.compile(r"(^|[._/])(ema|swa|averaged|shadow)([._/]|$)|(^|[._/])ema_|_ema([._/]|$)", re.IGNORECASE)
NOT_WEIGHTS = re.compile(r"optim|sched|scaler|callback|loops|amp\b", re.IGNORECASE)
HYPER_KEYS = ("hyper_parameters", "hparams", "config", "args", "opt", "cfg", "model_args", "hyperparameters")

# Names of the layers of an SRU.
LAYERS = re.compile(r"(.*\.)?((rnn_lst|rnns)\.0|feed_forward\.sru)\.")

# What Hugging Face calls the weights in a folder, the preferred first.
FOLDER_FILES = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")

# With what packed files begin, and what unpacks them.
PACKED = {b"\x1f\x8b": gzip, b"BZh": bz2, b"\xfd7zXZ\0": lzma}

# How deep containers are looked into.
MAX_DEPTH = 3

# Counters that modules keep beside their weights.
COUNTERS = re.compile(r"(.*\.)?(n_averaged|num_batches_tracked|_extra_state)")

SAFETENSORS_TYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64",
                     "I32": "int32", "I16": "int16", "I8": "int8", "U8": "uint8", "BOOL": "bool"}
MAX_SAFETENSORS_HEADER = 100 << 20


def load_checkpoint(torch, path):
    """What the file or the folder holds, whatever it is."""
    if os.path.isdir(path):
        found = [name for name in FOLDER_FILES if os.path.isfile(os.path.join(path, name))]
        if not found:
            raise ExportError(f"checkpoint {path}: is a folder without {', '.join(FOLDER_FILES)}; name the file of the weights, "
                              f"it has {listed(sorted(os.listdir(path)))}")
        path = os.path.join(path, found[0])
    return load_shards(torch, path) if path.endswith(".index.json") else load_file(torch, path)


def load_shards(torch, path):
    """The tensors of the files beside an index."""
    names = read_config(path, "index").get("weight_map")
    if not isinstance(names, dict) or not all(
            isinstance(name, str) and name == os.path.basename(name) for name in names.values()):
        raise ExportError(f"index {path}: expected an object \"weight_map\" with the file of each tensor, a name beside it")
    state = {}
    for name in sorted(set(names.values())):
        shard = load_file(torch, os.path.join(os.path.dirname(path), name))
        if not is_state_dict(torch, shard):
            raise ExportError(f"checkpoint {os.path.join(os.path.dirname(path), name)}: expected a state_dict")
        state.update(shard)
    missing = [name for name in names if name not in state]
    if missing:
        raise ExportError(f"index {path}: tensor {listed(missing, 1)} is not in '{names[missing[0]]}'")
    return state


def load_file(torch, path):
    """What one file holds, which may be packed."""
    try:
        file = open(path, "rb")
    except OSError as error:
        raise ExportError(f"cannot read the checkpoint {path}: {error.strerror or error}") from error
    try:
        with progress(f"reading the checkpoint {path} ({os.path.getsize(path) / 1e6:,.0f} MB)"), file, unpack(file) as whole:
            size = whole.seek(0, os.SEEK_END)
            kind = check_kind(path, whole, size)
            whole.seek(0)
            with inert_pickle.limited_memory(size):
                return LOADERS[kind](torch, whole, size)
    except ExportError:
        raise
    except inert_pickle.HostileError as error:
        raise ExportError(f"checkpoint {path}: cannot be loaded: {error}") from error
    except Exception as error:  # a broken or foreign file raises many types
        reason = "it would take much more memory than its size" if isinstance(error, MemoryError) else describe_error(error)
        raise ExportError(f"checkpoint {path}: cannot be loaded ({reason}); {EXPECTED}") from error


def unpack(file):
    """The file, or what it holds if it is packed."""
    start = file.read(8)
    module = next((module for magic, module in PACKED.items() if start.startswith(magic)), None)
    if module is None:
        return file
    size, target = file.seek(0, os.SEEK_END), tempfile.TemporaryFile()
    file.seek(0)
    try:
        with module.open(file) as packed:
            while chunk := packed.read(1 << 20):
                target.write(chunk)
                inert_pickle.check_unpacked(size, target.tell())
    except BaseException:
        target.close()
        raise
    return target


# How a file is written that can be read, and anew if it cannot.
EXPECTED = ("expected a file written by torch.save(model.state_dict(), path); is it whole? If PyTorch reads it, and you trust "
            "it, write it anew: torch.save(torch.load(path, map_location=\"cpu\"), other_path)")


def describe_error(error):
    lines = [line.strip() for line in re.sub(r"\x1b\[[0-9;]*m", "", str(error)).split("\n") if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else 'no reason given'}"


def check_kind(path, file, size):
    """safetensors, zip (torch.save since 1.6) or other (before). Refuses what is plainly neither."""
    def refuse(what):
        raise ExportError(f"checkpoint {path}: cannot be loaded: {what}; expected a file written by "
                          "torch.save(model.state_dict(), path); is it whole?")

    file.seek(0)
    start = file.read(512)
    if not start:
        refuse("it is empty")
    if start[257:262] == b"ustar":
        refuse("it is a tar archive; unpack it, or write the weights anew")
    if start.startswith(b"version https://git-lfs"):
        refuse("it is a pointer of Git LFS, not the file itself (git lfs pull)")
    if start.lstrip()[:1] == b"<":
        refuse("it is a page of the web (HTML or XML), as a failed download leaves it")
    if len(start) > 9 and start[8:9] == b"{" and struct.unpack("<Q", start[:8])[0] <= MAX_SAFETENSORS_HEADER:
        return "safetensors"
    if start.startswith(b"PK"):
        if not zipfile.is_zipfile(file):
            refuse(f"its {size:,} bytes begin as torch.save writes them, but the end is missing, as after a download or a "
                   "copy that was cut short")
        try:
            with zipfile.ZipFile(file) as archive:
                names = archive.namelist()
        except Exception as error:  # a damaged directory raises many types
            refuse(f"it is a damaged zip archive ({describe_error(error)})")
        if any(name.endswith("/constants.pkl") for name in names):
            refuse("it is a TorchScript program (torch.jit.save); write its weights with "
                   "torch.save(torch.jit.load(path).state_dict(), other_path)")
        if inert_pickle.pickle_name(names) is None:
            refuse(f"it is a zip archive of {listed(names, 3)}")
        return "zip"
    return "other"


def load_safetensors(torch, file, size):
    def refuse(what):
        raise inert_pickle.HostileError(f"it is not a safetensors file, or a damaged one: {what}; is it whole?")

    length = struct.unpack("<Q", file.read(8))[0]
    if 8 + length > size:
        refuse(f"its header should have {length:,} bytes, the file has {size:,}")
    try:
        header = json.loads(file.read(length).decode("utf-8"))
    except (ValueError, RecursionError) as error:
        refuse(f"its header is not JSON: {error}")
    data = bytearray(file.read())
    if not isinstance(header, dict):
        refuse("its header is no object")
    state, left = {}, len(data)
    header.pop("__metadata__", None)
    for name, entry in header.items():
        try:
            begin, end = entry["data_offsets"]
            dtype = getattr(torch, SAFETENSORS_TYPES[entry["dtype"]])
            shape = [int(extent) for extent in entry["shape"]]
            if not 0 <= begin <= end <= len(data):
                refuse(f"tensor '{name}' should end at byte {end:,} of {len(data):,}")
            left -= end - begin
            if left < 0:
                refuse(f"tensor '{name}' shares its bytes with another")
            values = torch.frombuffer(data, dtype=torch.uint8, offset=begin, count=end - begin).clone().view(
                dtype) if end > begin else torch.empty(0, dtype=dtype)
            state[name] = values.reshape(shape)
        except (KeyError, TypeError, ValueError, OverflowError, RuntimeError) as error:
            refuse(f"tensor '{name}': {describe_error(error)}")
    return state


LOADERS = {"safetensors": load_safetensors, "zip": inert_pickle.load, "other": inert_pickle.load_old}


# ------------------------------------------------------------ the state_dict in it


def is_state_dict(torch, value):
    if not isinstance(value, dict) or not value or not all(isinstance(name, str) for name in value):
        return False
    tensors = sum(isinstance(item, torch.Tensor) for item in value.values())
    return tensors > 0 and 2 * tensors >= len(value)


def walk(value, is_leaf=lambda path, value: False):
    """The container `value` and those in it, each once, as (path of keys, container). Nothing if it is none."""
    waiting, seen = collections.deque([((), value)] if inert_pickle.plain(value) is not None else []), {id(value)}
    while waiting:
        path, value = waiting.popleft()
        yield path, value
        for key, item in inert_pickle.plain(value).items() if len(path) < MAX_DEPTH and not is_leaf(path, value) else ():
            if isinstance(key, str) and id(item) not in seen and inert_pickle.plain(item) is not None:
                seen.add(id(item))
                waiting.append(((*path, key), item))


def find_state_dicts(torch, value):
    """Every state_dict and every pickled module in a checkpoint, by the keys that lead to it ("" if it is the file itself)."""
    def is_weights(value):
        return inert_pickle.is_module(value) or is_state_dict(torch, value)

    def is_other(path):
        return bool(path) and NOT_WEIGHTS.search(path[-1]) is not None

    return {".".join(path): inner for path, inner in walk(value, lambda path, inner: is_other(path) or is_weights(inner))
            if is_weights(inner) and not is_other(path)}


def has_layers(value):
    return inert_pickle.is_module(value) or any(map(LAYERS.match, value))


def choose_state_dict(path, names, wanted):
    """The one that is exported, as (name, value). `names`: find_state_dicts()."""
    if wanted is not None:
        if wanted not in names:
            raise ExportError(f"--weights {wanted}: the checkpoint {path} has no such state_dict; it has "
                              f"{listed([name or '(the file itself)' for name in names])}")
        return wanted, names[wanted]
    if len(names) == 1:
        return next(iter(names.items()))
    names = {name: value for name, value in names.items() if has_layers(value)} or names
    live = {name: value for name, value in names.items() if not AVERAGED.search(name)} or names
    for key in USUAL_KEYS:
        chosen = [name for name in live if name.split(".")[0] == key]
        if len(chosen) == 1:
            return chosen[0], live[chosen[0]]
    if len(live) == 1:
        return next(iter(live.items()))
    raise ExportError(f"checkpoint {path}: has several state_dicts; choose one with --weights: {listed(names)}")


def module_state(module):
    """The state_dict of a pickled module, without its class."""
    state = {}
    for name, inner in inert_pickle.walk_modules(module):
        prefix = name + "." if name else ""
        transient = inner.state.get("_non_persistent_buffers_set")
        transient = transient if isinstance(transient, set) else ()
        for kind in ("_parameters", "_buffers"):
            for key, tensor in inner.state[kind].items():
                if tensor is not None and key not in transient:
                    state[prefix + key] = tensor
    return state


def module_options(module):
    """What the sru.SRU in a pickled module was made with, as far as its weights do not say it."""
    for _, inner in inert_pickle.walk_modules(module):
        cells = inner.state["_modules"].get("rnn_lst")
        if not inert_pickle.is_module(cells):
            continue
        options = {key: inner.state[key] for key in ("bidirectional", "has_skip_term") if key in inner.state}
        for cell in cells.state["_modules"].values():
            if inert_pickle.is_module(cell):
                options.update({key: cell.state[key] for key in ("rescale", "v1", "normalize_after", "highway_bias")
                                if key in cell.state})
                if "activation" in cell.state:
                    options["use_tanh"] = cell.state["activation"] == "tanh"
        return {key: value for key, value in options.items() if isinstance(value, (bool, int, float))}
    return {}


def find_options(loaded):
    """The hyper-parameters that a checkpoint has beside its weights, all levels in one dict."""
    result = {}
    for container in [loaded, *(loaded if isinstance(loaded, (list, tuple)) else ())]:
        for key in HYPER_KEYS:
            for _, options in walk((inert_pickle.plain(container) or {}).get(key)):
                for name, item in inert_pickle.plain(options).items():
                    if isinstance(name, str) and isinstance(item, (bool, int, float)):
                        result.setdefault(name, item)
    return result


def read_checkpoint(torch, arguments, loaded=None):
    """The Checkpoint of a file; `loaded` is what load_checkpoint() gave, if it was called before."""
    path = arguments.checkpoint
    if loaded is None:
        loaded = load_checkpoint(torch, path)
    found = find_state_dicts(torch, loaded)
    if not found:
        kind = getattr(loaded, "class_name", "") or type(loaded).__name__
        names = [key for key in inert_pickle.plain(loaded) or () if isinstance(key, str)]
        inside = f" of {listed(names)}" if names else ""
        raise ExportError(f"checkpoint {path}: expected a state_dict, found {kind}{inside}; save model.state_dict()")
    name, chosen = choose_state_dict(path, found, arguments.weights)
    others = [other for other in found if other != name]
    if name:
        arguments.notes.append(f"the weights are those of the entry '{name}' of the checkpoint"
                               + (f"; it also has {listed(others)} (--weights)" if others else ""))
    classes, options = {}, find_options(loaded)
    if inert_pickle.is_module(chosen):
        classes = {inner: module.class_name for inner, module in inert_pickle.walk_modules(chosen)}
        options.update(module_options(chosen))
        arguments.notes.append(f"the checkpoint is a whole module ({chosen.class_name}), of which only the weights and "
                               "the options were read")
        chosen = module_state(chosen)
    for key, value in chosen.items():
        if not isinstance(value, torch.Tensor) and not COUNTERS.fullmatch(key):
            raise ExportError(f"checkpoint {path}: entry '{key}' is a {type(value).__name__}, expected a tensor; "
                              "save model.state_dict()")
    checkpoint = clean_names(Checkpoint(chosen, options, classes), arguments)
    return checkpoint._replace(state=fold_parametrizations(torch, checkpoint.state, arguments.notes))


def without_compile(name):
    return re.sub(r"(^|\.)_orig_mod(\.|$)", lambda match: match.group(1) and match.group(2), name)


def clean_names(checkpoint, arguments):
    """Drops counters, and the prefixes that wrappers put before the names: torch.compile's and DataParallel's."""
    state = {name: tensor for name, tensor in checkpoint.state.items() if not COUNTERS.fullmatch(name)}
    compiled = any("_orig_mod" in name for name in state)
    state = {without_compile(name): tensor for name, tensor in state.items()}
    parallel = state and all(name.startswith("module.") for name in state)
    if parallel:
        state = {name[len("module."):]: tensor for name, tensor in state.items()}
    classes = {re.sub(r"^module(\.|$)", "", without_compile(name)) if parallel else without_compile(name): kind
               for name, kind in checkpoint.classes.items()}
    if compiled or parallel:
        arguments.notes.append("left out of the names: " + " and ".join(
            prefix for prefix, there in (("_orig_mod. (torch.compile)", compiled),
                                         ("module. (DataParallel or an averaged model)", parallel)) if there))
    state, averaged = without_averages(state)
    if averaged:
        arguments.notes.append(f"left out: {count_of(len(averaged), 'tensor')} of a moving average beside the weights "
                               f"({listed(averaged, 2)})")
    return checkpoint._replace(state=state, classes=classes)


def without_averages(state):
    """The tensors without those of a second, averaged copy such as ema_model.*; and the names of these."""
    averaged = [name for name in state if AVERAGED.search(name)]
    rest = {name: tensor for name, tensor in state.items() if name not in set(averaged)}
    has_layers = re.compile(r"(.*\.)?(rnn_lst|rnns)\.0\.")
    if averaged and any(map(has_layers.match, averaged)) and any(map(has_layers.match, rest)):
        return rest, averaged
    return state, []
