#!/usr/bin/env python3
"""Exports a PyTorch checkpoint of an SRU model to the model repository of the SRU inference server.

The checkpoint is a state_dict (or a dict with a "state_dict" entry) written by torch.save, of a
module that holds an embedding (torch.nn.Embedding), an encoder (sru.SRU of the PyPI package "sru")
and a classifier or, in a language model, an output layer (torch.nn.Linear). It becomes a directory
REPOSITORY/MODEL/VERSION with config.json, model.safetensors and the tokenizer's vocab.txt or
spm.model, which FORMAT.md describes.

Needs PyTorch (Debian and Ubuntu: apt install python3-torch) and nothing else; not even the package
"sru".
"""

import argparse
import ctypes
import inspect
import json
import math
import os
import re
import shutil
import struct
import sys
import tempfile
import textwrap

EPILOG = """\
the model config (--config) is a JSON object with these keys; any other key is informational:
  sru_config     the arguments that sru.SRU was made with: input_size and hidden_size, and where
                 they differ from the package's defaults num_layers, bidirectional, projection_size,
                 use_tanh, layer_norm, normalize_after, has_skip_term, rescale, v1,
                 proj_input_to_hidden_first, highway_bias. What matters to training only (dropout
                 and the like) is accepted and dropped; custom_m cannot be exported.
  task           "language_model"; without it --labels make a classifier, and nothing an encoder.
  pooling        @POOLINGS@: how token vectors become the classifier's input.
                 "none" for a model without a classifier.
  preprocessing  the tokenizer (FORMAT.md):
@PREPROCESSINGS@,
                 or an object with its keys such as
                 {"type": "sentence_classification", "lowercase": true} or
                 {"type": "bytes", "vocabulary": [10, 32, 97]}. Also understood:
                 "none: split on whitespace", "clean_str, case kept", "clean_str, lower-cased".
  oov_id         the line of the vocabulary, from 0, that stands for unknown words. Not for bytes,
                 line_words and sentencepiece, and optional for characters.
of a language model also
  unit           "byte" or "word", in place of preprocessing: bytes, or words as line_words has them
  vocabulary     its symbols, in the order of their ids: byte values, or words (or give --vocab)
  tied           true if the output layer's weight is the embedding (default false)

example:
  export_torch.py --checkpoint question.pt --config question.json --vocab vocab.txt \\
      --labels labels.txt --out /srv/models/question/1
  sru_server --model_repository=/srv/models

A language model's modules are embedding_layer, rnn and output_layer if no --*-prefix says otherwise:

  export_torch.py --checkpoint book.pt --config book.json --out /srv/models/book/1
  sru_server --model_repository=/srv/models
  sru_client score --model=book "It was a dark and stormy night"

A model that takes feature frames has no embedding: leave out --vocab, oov_id and preprocessing.
A model that only encodes has no classifier: leave out --labels.
"""

# kernels/stack_spec.h; "none" is for models without a classifier only.
POOLINGS = ("none", "first", "last", "max", "mean")

REQUIRED = object()

# models/config.h, each with its own keys and their defaults.
PREPROCESSINGS = {
    "whitespace": {},
    "lowercase": {},
    "sentence_classification": {"lowercase": False},
    "bytes": {"vocabulary": REQUIRED},
    "characters": {},
    "line_words": {},
    "unicode_words": {"lowercase": False},
    "sentencepiece": {},
}
# Where they differ from the others, which need oov_id and a vocabulary.
WITHOUT_OOV = ("bytes", "line_words", "sentencepiece")
OPTIONAL_OOV = ("characters",)
# What a newline becomes with line_words.
END_OF_LINE = "</s>"

# Tasks that can be exported, and the names of their modules (embedding, encoder, output layer).
# What else "task" says is a note, unless the format may have a meaning for it one day.
TASKS = {
    "classifier": ("embedding", "encoder", "out"),
    "encoder": ("embedding", "encoder", "out"),
    "language_model": ("embedding_layer", "rnn", "output_layer"),
}
OTHER_TASKS = ("reader", "translator")

FORMAT_VERSION = 1

# The limits of the server (models/config.h).
MAX_WIDTH = 16384
MAX_LAYERS = 256
MAX_VOCABULARY = 1 << 24
MAX_LABELS = 65536
MAX_PIECES_BYTES = 256 << 20

# Arguments of sru.SRU that matter for inference, with the package's defaults, in the order in which
# they are written.
ENCODER_ARGUMENTS = {
    "input_size": REQUIRED,
    "hidden_size": REQUIRED,
    "num_layers": 2,
    "bidirectional": False,
    "projection_size": 0,
    "use_tanh": False,
    "layer_norm": False,
    "normalize_after": False,
    "has_skip_term": True,
    "rescale": False,
    "v1": False,
    "proj_input_to_hidden_first": False,
    "highway_bias": 0.0,
}

# Arguments that change training, or the shape in which Python gets the result, and no number.
DROPPED_ARGUMENTS = {
    "dropout",
    "rnn_dropout",
    "weight_c_init",
    "nn_rnn_compatible_return",
    "amp_recurrence_fp16",
}

PREPROCESSING_NAMES = {
    **{kind: {"type": kind, **keys} for kind, keys in PREPROCESSINGS.items()
       if REQUIRED not in keys.values()},
    "none: split on whitespace": {"type": "whitespace"},
    "clean_str, case kept": {"type": "sentence_classification", "lowercase": False},
    "clean_str, lower-cased": {"type": "sentence_classification", "lowercase": True},
}


class ExportError(Exception):
    """What is wrong with the input, in one line for the user."""


def read_text(path, what):
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        raise ExportError(f"cannot read the {what} {path}: {error.strerror}") from error
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ExportError(f"{what} {path}: not valid UTF-8 at byte {error.start}") from error


def read_lines(path, what):
    """The lines of a file that holds one entry per line: none empty, none twice."""
    text = read_text(path, what)
    if text.startswith("\ufeff"):
        raise ExportError(f"{what} {path}: starts with a byte order mark; remove it")
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    if not lines:
        raise ExportError(f"{what} {path}: is empty; expected one entry per line")
    first_line = {}
    for number, line in enumerate(lines, start=1):
        if "\r" in line:
            raise ExportError(
                f"{what} {path}: line {number} has a carriage return; lines must end with a "
                "newline alone (convert the file, for instance with dos2unix)")
        if not line:
            raise ExportError(f"{what} {path}: line {number} is empty")
        if line in first_line:
            raise ExportError(f"{what} {path}: line {number} repeats line {first_line[line]}: "
                              f"'{line}'")
        first_line[line] = number
    return lines


def is_integer(value):
    return isinstance(value, int) and not isinstance(value, bool)


def check_integer(source, key, value, low, high):
    if not is_integer(value) or not low <= value <= high:
        raise ExportError(f"{source}: {key}: expected an integer from {low} to {high}, "
                          f"found {json.dumps(value)}")
    return value


def read_encoder(source, arguments):
    """The "encoder" object of config.json from the arguments of sru.SRU."""
    if not isinstance(arguments, dict):
        raise ExportError(f"{source}: sru_config: expected an object with the arguments of sru.SRU")
    if arguments.get("custom_m") is not None:
        raise ExportError(f"{source}: sru_config.custom_m: a model with a custom module in place "
                          "of the matrix products cannot be exported")
    known = set(ENCODER_ARGUMENTS) | DROPPED_ARGUMENTS | {"custom_m"}
    for key in arguments:
        if key not in known:
            raise ExportError(f"{source}: sru_config.{key}: is not an argument of sru.SRU; "
                              f"expected one of {', '.join(sorted(known))}")
    encoder = {}
    for key, default in ENCODER_ARGUMENTS.items():
        value = arguments.get(key, default)
        name = f"sru_config.{key}"
        if value is REQUIRED:
            raise ExportError(f"{source}: {name}: is missing")
        if key == "num_layers":
            check_integer(source, name, value, 1, MAX_LAYERS)
        elif key == "projection_size":
            check_integer(source, name, value, 0, MAX_WIDTH)
        elif default is REQUIRED:
            check_integer(source, name, value, 1, MAX_WIDTH)
        elif key == "highway_bias":
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not (
                    math.isfinite(value) and abs(value) <= 1e6):
                raise ExportError(f"{source}: {name}: expected a number from -1e6 to 1e6, "
                                  f"found {json.dumps(value)}")
            value = float(value)
        elif not isinstance(value, bool):
            raise ExportError(f"{source}: {name}: expected true or false, "
                              f"found {json.dumps(value)}")
        encoder[key] = value
    return encoder


def read_preprocessing(source, value):
    if isinstance(value, str) and value in PREPROCESSING_NAMES:
        return PREPROCESSING_NAMES[value]
    if isinstance(value, dict):
        kind = value.get("type")
        keys = PREPROCESSINGS.get(kind) if isinstance(kind, str) else None
        if keys is not None and set(value) <= {"type", *keys}:
            if kind == "bytes":
                check_bytes(f"{source}: preprocessing.vocabulary", value.get("vocabulary"))
                return {"type": kind, "vocabulary": value["vocabulary"]}
            if all(isinstance(value.get(key, False), bool) for key in keys):
                return {"type": kind, **{key: value.get(key, keys[key]) for key in keys}}
    raise ExportError(f"{source}: preprocessing: expected one of "
                      f"{', '.join(repr(name) for name in PREPROCESSING_NAMES)}, or an object with "
                      f"type and lowercase, or type \"bytes\" and vocabulary; found "
                      f"{json.dumps(value)}")


def check_bytes(what, values):
    """The values of bytes, ascending: the index of one is its id."""
    if (not isinstance(values, list) or not 1 <= len(values) <= 256
            or not all(is_integer(value) and 0 <= value <= 255 for value in values)
            or any(a >= b for a, b in zip(values, values[1:]))):
        raise ExportError(f"{what}: expected an array of 1 to 256 integers from 0 to 255, "
                          f"ascending, found {shortened(values)}")


def shortened(value):
    text = json.dumps(value)
    return text if len(text) <= 80 else text[:77] + "..."


def check_words(what, words):
    """Entries of a vocabulary that are given in the config, which become lines."""
    if not isinstance(words, list) or not words:
        raise ExportError(f"{what}: expected an array of words, found {shortened(words)}")
    seen = set()
    for index, word in enumerate(words):
        if (not isinstance(word, str) or not word or word in seen or "\n" in word or "\r" in word
                or (index == 0 and word.startswith("\ufeff"))):
            raise ExportError(f"{what}[{index}]: expected different words that are not empty and "
                              f"have no line ends, found {shortened(word)}")
        seen.add(word)


def count_pieces(path):
    """The number of pieces in a SentencePiece model: fields with the number 1 of its ModelProto."""
    def varint(position):
        value = shift = 0
        while True:
            byte = data[position]
            value |= (byte & 0x7f) << shift
            position, shift = position + 1, shift + 7
            if byte < 0x80:
                return value, position

    try:
        if os.path.getsize(path) > MAX_PIECES_BYTES:
            raise ExportError(f"subwords {path}: expected at most {MAX_PIECES_BYTES} bytes, found "
                              f"{os.path.getsize(path)}")
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        raise ExportError(f"cannot read the subwords {path}: {error.strerror}") from error
    pieces = position = 0
    try:
        while position < len(data):
            key, position = varint(position)
            kind = key & 7
            if kind == 0:
                _, position = varint(position)
            elif kind in (1, 5):
                position += 8 if kind == 1 else 4
            elif kind == 2:
                size, position = varint(position)
                position += size
            else:
                raise IndexError
            pieces += key >> 3 == 1 and kind == 2
        if position != len(data) or not pieces:
            raise IndexError
    except IndexError:
        raise ExportError(f"subwords {path}: is not a SentencePiece model, or a damaged one; "
                          "expected the .model file that its trainer writes") from None
    return pieces


def read_config(path):
    def no_duplicates(pairs):
        result = {}
        for key, value in pairs:
            if key in result:
                raise ExportError(f"config {path}: key '{key}' appears twice")
            result[key] = value
        return result

    try:
        config = json.loads(read_text(path, "config"), object_pairs_hook=no_duplicates)
    except (ValueError, RecursionError) as error:
        raise ExportError(f"config {path}: is not JSON: {error}") from error
    if not isinstance(config, dict):
        raise ExportError(f"config {path}: expected a JSON object")
    if "sru_config" not in config:
        raise ExportError(f"config {path}: key 'sru_config' is missing; it holds the arguments of "
                          "sru.SRU (see --help)")
    return config


def expected_tensors(encoder, vocabulary_size, num_labels, task="classifier"):
    """Names and shapes of the tensors of a model, as {name: (shape, optional)}.

    Follows the constructors of sru.SRU and sru.SRUCell. A language model has no labels.
    """
    input_size, hidden = encoder["input_size"], encoder["hidden_size"]
    output_size = hidden * (2 if encoder["bidirectional"] else 1)
    tensors = {}
    if vocabulary_size:
        tensors["embedding.weight"] = ([vocabulary_size, input_size], False)
    if encoder["proj_input_to_hidden_first"] and input_size != output_size:
        tensors["encoder.input_to_hidden.weight"] = ([output_size, input_size], False)
        input_size = output_size
    for layer in range(encoder["num_layers"]):
        prefix = f"encoder.rnn_lst.{layer}."
        projection = encoder["projection_size"]
        if not 0 < projection < min(input_size, output_size):
            projection = 0
        num_matrices = 4 if encoder["has_skip_term"] and input_size != output_size else 3
        if projection:
            tensors[prefix + "weight_proj"] = ([input_size, projection], False)
        tensors[prefix + "weight"] = ([projection or input_size, output_size * num_matrices], False)
        tensors[prefix + "weight_c"] = ([2 * output_size], False)
        tensors[prefix + "bias"] = ([2 * output_size], False)
        tensors[prefix + "scale_x"] = ([1], False)
        if encoder["layer_norm"]:
            width = output_size if encoder["normalize_after"] else input_size
            tensors[prefix + "layer_norm.weight"] = ([width], False)
            tensors[prefix + "layer_norm.bias"] = ([width], False)
        input_size = output_size
    if num_labels:
        tensors["out.weight"] = ([num_labels, output_size], False)
        tensors["out.bias"] = ([num_labels], True)
    if task == "language_model":
        tensors["out.weight"] = ([vocabulary_size, output_size], False)
        tensors["out.bias"] = ([vocabulary_size], False)
    return tensors


def load_state_dict(torch, path):
    options = {"map_location": "cpu"}
    if "weights_only" in inspect.signature(torch.load).parameters:
        options["weights_only"] = True
    else:
        print(f"warning: this PyTorch ({torch.__version__}) has no weights_only loading: a "
              "checkpoint can run code when it is loaded. Export only files that you trust.",
              file=sys.stderr)
    try:
        with open(path, "rb") as file:
            file.read(1)
    except OSError as error:
        reason = error.strerror or error
        raise ExportError(f"cannot read the checkpoint {path}: {reason}") from error
    try:
        checkpoint = torch.load(path, **options)
    # torch.load raises many types for a broken or foreign file: for one that is cut short even an
    # OSError, of which "Invalid argument" is all that it says.
    except Exception as error:
        first_line = (str(error).strip() or "no reason given").split("\n")[0]
        raise ExportError(
            f"checkpoint {path}: cannot be loaded ({type(error).__name__}: {first_line}); expected "
            "a file written by torch.save(model.state_dict(), path); is it whole?") from error
    if isinstance(checkpoint, dict) and isinstance(checkpoint.get("state_dict"), dict):
        checkpoint = checkpoint["state_dict"]
    if not isinstance(checkpoint, dict) or not checkpoint:
        raise ExportError(f"checkpoint {path}: expected a state_dict, found "
                          f"{type(checkpoint).__name__}; save model.state_dict()")
    for name, value in checkpoint.items():
        if not isinstance(name, str) or not isinstance(value, torch.Tensor):
            raise ExportError(f"checkpoint {path}: entry '{name}' is a {type(value).__name__}, "
                              "expected a tensor; save model.state_dict()")
    if all(name.startswith("module.") for name in checkpoint):  # torch.nn.DataParallel
        checkpoint = {name[len("module."):]: value for name, value in checkpoint.items()}
    return checkpoint


def rename_tensors(source, state, prefixes):
    """Gives the tensors the format's names; `prefixes` maps names of modules to the format's."""
    renamed = {}
    for name, tensor in state.items():
        for prefix, canonical in prefixes.items():
            start = prefix + "." if prefix else ""
            if name.startswith(start):
                # An empty prefix matches every name, so only what the module can hold is taken.
                if (prefix or canonical != "encoder"
                        or re.match(r"rnn_lst\.|input_to_hidden\.", name)):
                    renamed[canonical + "." + name[len(start):]] = (name, tensor)
                    break
        else:
            raise ExportError(
                f"{source}: tensor '{name}' belongs to no module of the model; the modules are "
                f"{', '.join(repr(prefix) for prefix in prefixes)} (--embedding-prefix, "
                "--encoder-prefix and --classifier-prefix name them)")
    return renamed


def collect_tensors(torch, source, state, prefixes, expected):
    """The tensors in the order of `expected`, as {name: float32 tensor}, all checked."""
    given = rename_tensors(source, state, prefixes)
    for name, (original, _) in given.items():
        if ".custom_m." in name:
            raise ExportError(f"{source}: tensor '{original}': a model with a custom module "
                              "(custom_m) cannot be exported")
        if name not in expected:
            raise ExportError(f"{source}: tensor '{original}' is not part of a model with this "
                              "config; check sru_config, --vocab and --labels")
    tensors = {}
    for name, (shape, optional) in expected.items():
        if name not in given:
            if optional:
                continue
            raise ExportError(f"{source}: tensor '{name}' is missing (shape {shape}); check "
                              "sru_config and the prefixes (--embedding-prefix, --encoder-prefix, "
                              "--classifier-prefix)")
        original, tensor = given[name]
        if tensor.layout != torch.strided or not tensor.is_floating_point():
            raise ExportError(f"{source}: tensor '{original}': expected floating-point numbers, "
                              f"found {tensor.dtype} ({tensor.layout})")
        if list(tensor.shape) != shape:
            raise ExportError(f"{source}: tensor '{original}': expected shape {shape} from the "
                              f"config, found {list(tensor.shape)}")
        tensor = tensor.detach().to(device="cpu", dtype=torch.float32).contiguous()
        if not bool(torch.isfinite(tensor).all()):
            raise ExportError(f"{source}: tensor '{original}' holds values that are not finite in "
                              "float32")
        tensors[name] = tensor
    return tensors


def write_safetensors(path, tensors):
    header = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, tensor in tensors.items():
        size = tensor.numel() * 4
        header[name] = {"dtype": "F32", "shape": list(tensor.shape),
                        "data_offsets": [offset, offset + size]}
        offset += size
    encoded = json.dumps(header, separators=(",", ":")).encode("utf-8")
    encoded += b" " * (-len(encoded) % 8)  # keeps the data aligned in a mapped file
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(encoded)))
        file.write(encoded)
        for tensor in tensors.values():
            file.write(ctypes.string_at(tensor.data_ptr(), tensor.numel() * 4))


def exists_message(out):
    return f"{out} exists; choose another version, or pass --force to replace it"


def write_directory(out, force, write):
    """Calls write(directory) on a hidden sibling of `out`, then renames it, so that a server that
    starts meanwhile never sees half a model."""
    parent = os.path.dirname(os.path.abspath(out))
    os.makedirs(parent, exist_ok=True)
    temporary = tempfile.mkdtemp(prefix=".export-", dir=parent)
    try:
        os.chmod(temporary, 0o777 & ~current_umask())
        write(temporary)
        if os.path.lexists(out):
            if not force:
                raise ExportError(exists_message(out))
            old = tempfile.mkdtemp(prefix=".replaced-", dir=parent)
            os.rename(out, os.path.join(old, "model"))
            os.rename(temporary, out)
            shutil.rmtree(old)
        else:
            os.rename(temporary, out)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def current_umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


def check_out(out):
    path = os.path.abspath(out)
    version, model = os.path.basename(path), os.path.basename(os.path.dirname(path))
    if not re.fullmatch(r"[1-9][0-9]{0,17}", version):
        raise ExportError(f"--out {out}: expected REPOSITORY/MODEL/VERSION with a positive integer "
                          f"as the version, found '{version}'")
    if not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,127}", model):
        raise ExportError(f"--out {out}: expected REPOSITORY/MODEL/VERSION with a model name of "
                          f"A-Z a-z 0-9 _ . - that does not start with a dot, found '{model}'")
    return path


def read_task(source, config, arguments):
    """What the model is for. A task that the format does not know is a note of the config."""
    task = config.get("task")
    if task in OTHER_TASKS:
        raise ExportError(f"{source}: task: a {task} cannot be exported; expected one of "
                          f"{', '.join(TASKS)}")
    if not isinstance(task, str) or task not in TASKS:
        return "classifier" if arguments.labels else "encoder"
    if task == "classifier" and not arguments.labels:
        raise ExportError(f"{source}: task: a classifier needs --labels")
    if task != "classifier" and arguments.labels:
        raise ExportError(f"--labels: a model with the task \"{task}\" has none")
    return task


class Vocabulary:
    """The symbols of a model and how text becomes them.

    words: the lines of vocab.txt; pieces: the file that becomes spm.model; both None without.
    """

    def __init__(self, preprocessing, size, words=None, pieces=None):
        self.preprocessing, self.size, self.words, self.pieces = preprocessing, size, words, pieces


def read_unit(source, config):
    """The preprocessing that "unit" and "vocabulary" of a language model describe."""
    if "preprocessing" in config:
        if "unit" in config:
            raise ExportError(f"{source}: unit and preprocessing exclude each other")
        return read_preprocessing(source, config["preprocessing"])
    unit = config.get("unit")
    if unit == "word":
        return {"type": "line_words"}
    if unit == "byte":
        check_bytes(f"{source}: vocabulary", config.get("vocabulary"))
        return {"type": "bytes", "vocabulary": config["vocabulary"]}
    raise ExportError(f"{source}: unit: expected \"byte\" or \"word\" (or the key preprocessing), "
                      f"found {json.dumps(unit)}")


def brings_vocabulary(preprocessing):
    """Whether this is a preprocessing that needs no --vocab."""
    kind = preprocessing.get("type") if isinstance(preprocessing, dict) else preprocessing
    return kind in ("bytes", "sentencepiece")


def read_vocabulary(source, config, task, arguments):
    """The vocabulary of the model; None for one that takes features."""
    language_model = task == "language_model"
    if language_model:
        preprocessing = read_unit(source, config)
    elif arguments.vocab or arguments.subwords or brings_vocabulary(config.get("preprocessing")):
        if "preprocessing" not in config:
            raise ExportError(f"{source}: key 'preprocessing' is missing (see --help)")
        preprocessing = read_preprocessing(source, config["preprocessing"])
    else:
        return None  # what "preprocessing" says then is a note on how the features were made
    kind = preprocessing["type"]

    for flag, value, wanted in (("--vocab", arguments.vocab, kind not in ("bytes", "sentencepiece")),
                                ("--subwords", arguments.subwords, kind == "sentencepiece")):
        if value and not wanted:
            raise ExportError(f"{flag}: is not read with preprocessing \"{kind}\"")
    if kind == "bytes":
        return Vocabulary(preprocessing, len(preprocessing["vocabulary"]))
    if kind == "sentencepiece":
        if not arguments.subwords:
            raise ExportError("--subwords: is needed with preprocessing \"sentencepiece\"")
        return Vocabulary(preprocessing, count_pieces(arguments.subwords),
                          pieces=arguments.subwords)

    where, words = f"vocabulary {arguments.vocab}", None
    if arguments.vocab:
        words = read_lines(arguments.vocab, "vocabulary")
    if language_model and "vocabulary" in config:
        check_words(f"{source}: vocabulary", config["vocabulary"])
        if words is not None and words != config["vocabulary"]:
            raise ExportError(f"{where}: differs from the key vocabulary of {source}, which has "
                              f"{len(config['vocabulary'])} words; give one of them")
        where, words = f"{source}: vocabulary", config["vocabulary"]
    if words is None:
        raise ExportError(f"{source}: vocabulary: is missing; give it here or as --vocab")
    if len(words) > MAX_VOCABULARY:
        raise ExportError(f"{where}: expected at most {MAX_VOCABULARY} words, found {len(words)}")
    if kind == "line_words" and END_OF_LINE not in words:
        raise ExportError(f"{where}: the word {END_OF_LINE}, which a newline becomes, is missing")
    return Vocabulary(preprocessing, len(words), words)


def read_embedding(source, config, vocabulary):
    """The "embedding" object of config.json."""
    kind = vocabulary.preprocessing["type"]
    embedding = {"vocabulary_size": vocabulary.size}
    if kind in WITHOUT_OOV:
        if "oov_id" in config:
            raise ExportError(f"{source}: oov_id: is not read with preprocessing \"{kind}\"")
    elif "oov_id" in config:
        embedding["oov_id"] = check_integer(source, "oov_id", config["oov_id"], 0,
                                            vocabulary.size - 1)
    elif kind not in OPTIONAL_OOV:
        raise ExportError(f"{source}: key 'oov_id' is missing (see --help)")
    return embedding


def read_pooling(source, config, labels):
    poolings = [name for name in POOLINGS if name != "none" or not labels]
    pooling = config.get("pooling", None if labels else "none")
    if pooling not in poolings:
        raise ExportError(f"{source}: pooling: expected one of {', '.join(poolings)}"
                          f"{' (the model has labels)' if labels else ''}, found "
                          f"{json.dumps(pooling)}")
    return pooling


def check_language_model(source, config, encoder):
    """Checks the keys that a language model has for itself; returns whether it is tied."""
    if encoder["bidirectional"]:
        raise ExportError(f"{source}: sru_config.bidirectional: expected false for a language "
                          "model, which must not see the tokens that it predicts; found true")
    if config.get("pooling", "none") != "none":
        raise ExportError(f"{source}: pooling: expected \"none\" or no such key for a language "
                          f"model, found {json.dumps(config['pooling'])}")
    tied = config.get("tied", False)
    if not isinstance(tied, bool):
        raise ExportError(f"{source}: tied: expected true or false, found {json.dumps(tied)}")
    if tied and encoder["input_size"] != encoder["hidden_size"]:
        raise ExportError(f"{source}: tied: expected false, since sru_config.input_size "
                          f"{encoder['input_size']} is not sru_config.hidden_size "
                          f"{encoder['hidden_size']}")
    return tied


def untie(torch, source, tensors):
    """Drops the output layer's weight, which is the embedding under a second name."""
    if not torch.equal(tensors["out.weight"], tensors["embedding.weight"]):
        raise ExportError(f"{source}: the output layer's weight differs from the embedding; "
                          "\"tied\": true says that they are one tensor")
    del tensors["out.weight"]


def module_prefixes(arguments, task, state, has_vocabulary, has_output):
    """Names of modules in the checkpoint, mapped to the format's."""
    embedding, encoder, output = TASKS[task]
    # A language model of words may hold its table one level deeper.
    if task == "language_model" and embedding + ".embedding.weight" in state:
        embedding += ".embedding"

    def chosen(given, default):
        return default if given is None else given

    prefixes = {}
    if has_vocabulary:
        prefixes[chosen(arguments.embedding_prefix, embedding)] = "embedding"
    if has_output:
        prefixes[chosen(arguments.classifier_prefix, output)] = "out"
    encoder = chosen(arguments.encoder_prefix, encoder)
    if encoder in prefixes or len(prefixes) != has_vocabulary + has_output:
        raise ExportError(
            "--embedding-prefix, --encoder-prefix and --classifier-prefix must differ")
    prefixes[encoder] = "encoder"
    # The longest first: a prefix may be the start of another.
    return dict(sorted(prefixes.items(), key=lambda item: -len(item[0])))


def export(torch, arguments):
    out = check_out(arguments.out)
    if os.path.lexists(out) and not arguments.force:
        raise ExportError(exists_message(out))

    source_config = read_config(arguments.config)
    source = f"config {arguments.config}"
    task = read_task(source, source_config, arguments)
    encoder = read_encoder(source, source_config["sru_config"])
    config = {"format_version": FORMAT_VERSION}
    if arguments.description:
        config["description"] = arguments.description
    language_model = task == "language_model"
    if language_model:
        config["task"] = task
    config["encoder"] = encoder

    vocabulary = read_vocabulary(source, source_config, task, arguments)
    if vocabulary is not None:
        config["embedding"] = read_embedding(source, source_config, vocabulary)
        config["preprocessing"] = vocabulary.preprocessing

    labels = read_lines(arguments.labels, "labels") if arguments.labels else []
    if len(labels) > MAX_LABELS:
        raise ExportError(f"labels {arguments.labels}: expected at most {MAX_LABELS}, "
                          f"found {len(labels)}")
    tied = language_model and check_language_model(source, source_config, encoder)
    if not language_model:
        config["pooling"] = read_pooling(source, source_config, labels)
    if labels:
        config["labels"] = labels
    if tied:
        config["tied"] = True

    state = load_state_dict(torch, arguments.checkpoint)
    size = vocabulary.size if vocabulary is not None else 0
    prefixes = module_prefixes(arguments, task, state, vocabulary is not None,
                               language_model or bool(labels))
    checkpoint = f"checkpoint {arguments.checkpoint}"
    tensors = collect_tensors(torch, checkpoint, state, prefixes,
                              expected_tensors(encoder, size, len(labels), task))
    if tied:
        untie(torch, checkpoint, tensors)

    def write(directory):
        with open(os.path.join(directory, "config.json"), "w", encoding="utf-8") as file:
            file.write(config_text(config))
        write_safetensors(os.path.join(directory, "model.safetensors"), tensors)
        if vocabulary is not None and vocabulary.words is not None:
            with open(os.path.join(directory, "vocab.txt"), "w", encoding="utf-8",
                      newline="\n") as file:
                file.write("\n".join(vocabulary.words) + "\n")
        if vocabulary is not None and vocabulary.pieces is not None:
            shutil.copyfile(vocabulary.pieces, os.path.join(directory, "spm.model"))

    write_directory(out, arguments.force, write)
    report(out, config, vocabulary, tensors)


def config_text(config):
    """The contents of config.json. Numbers of a list stand beside each other."""
    def fill(match):
        return "[" + textwrap.fill(" ".join(match.group(1).split()), 96, initial_indent="      ",
                                   subsequent_indent="      ").strip() + "]"

    text = json.dumps(config, indent=2, ensure_ascii=False)
    return re.sub(r"\[\n([0-9,\s]+)\]", fill, text) + "\n"


def report(out, config, vocabulary, tensors):
    """Says what was written and how to use it."""
    repository = os.path.dirname(os.path.dirname(out))
    model = os.path.basename(os.path.dirname(out))
    weights = sum(tensor.numel() for name, tensor in tensors.items()
                  if not name.endswith(".scale_x"))  # a constant, not a weight
    encoder, labels = config["encoder"], config.get("labels", [])
    language_model = config.get("task") == "language_model"
    symbols = {"bytes": "bytes", "characters": "characters", "sentencepiece": "pieces"}.get(
        config.get("preprocessing", {}).get("type"), "words")
    size = vocabulary.size if vocabulary is not None else 0
    last = ("a language model" + (", tied" if config.get("tied") else "") if language_model
            else f"{len(labels)} labels, pooling {config['pooling']}")
    print(f"wrote {out}:")
    for name in sorted(os.listdir(out)):
        print(f"  {name}  {os.path.getsize(os.path.join(out, name)):,} bytes")
    print(f"{encoder['num_layers']} layers, {weights:,} weights, {size:,} {symbols}, {last}.")
    print("Serve it and ask it:")
    print(f"  sru_server --model_repository={repository}")
    verb = "score" if language_model else "classify" if labels else "encode"
    print(f"  sru_client {verb} --model={model} 'your text'" if vocabulary is not None else
          "  and send Features (proto/sru/v1/inference.proto) of "
          f"feature_size {encoder['input_size']}")


def make_epilog():
    def one_of(names):
        quoted = [f'"{name}"' for name in names]
        return f"{', '.join(quoted[:-1])} or {quoted[-1]}"

    return (EPILOG.replace("@POOLINGS@", one_of(POOLINGS[1:]))
            .replace("@PREPROCESSINGS@", textwrap.fill(
                one_of(PREPROCESSINGS), 98, initial_indent=" " * 17, subsequent_indent=" " * 17)))


def parse_arguments(arguments):
    parser = argparse.ArgumentParser(
        prog="export_torch.py", description=__doc__, epilog=make_epilog(),
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", required=True, metavar="M.pt",
                        help="state_dict written by torch.save")
    parser.add_argument("--config", required=True, metavar="C.json", help="model config, see below")
    parser.add_argument("--vocab", metavar="V.txt",
                        help="vocabulary, one word per line, line number = id from 0")
    parser.add_argument("--subwords", metavar="SPM.model",
                        help="SentencePiece model, for the preprocessing sentencepiece")
    parser.add_argument("--labels", metavar="L.txt",
                        help="names of the classifier's outputs, one per line, in their order")
    parser.add_argument("--out", required=True, metavar="REPOSITORY/MODEL/VERSION",
                        help="directory to write; the version is a positive integer")
    parser.add_argument("--description", default="", help="free text for users of the model")
    parser.add_argument("--embedding-prefix", metavar="NAME",
                        help="name of the embedding in the module (default: embedding; of a "
                        "language model embedding_layer)")
    parser.add_argument("--encoder-prefix", metavar="NAME",
                        help="name of the sru.SRU in the module; empty when the checkpoint is that "
                        "of the sru.SRU itself (default: encoder; of a language model rnn)")
    parser.add_argument("--classifier-prefix", "--output-prefix", metavar="NAME",
                        dest="classifier_prefix",
                        help="name of the classifier, or the output layer, in the module (default: "
                        "out; of a language model output_layer)")
    parser.add_argument("--force", action="store_true", help="replace --out when it exists")
    return parser.parse_args(arguments)


def main(arguments=None):
    parsed = parse_arguments(arguments)
    if sys.byteorder != "little":
        print("export_torch.py: error: runs on little-endian machines only", file=sys.stderr)
        return 1
    try:
        import torch  # here, so that --help works without it
    except ImportError:
        print("export_torch.py: error: PyTorch is needed: apt install python3-torch, or see "
              "https://pytorch.org", file=sys.stderr)
        return 1
    try:
        export(torch, parsed)
    except ExportError as error:
        print(f"export_torch.py: error: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"export_torch.py: error: cannot write {parsed.out}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
