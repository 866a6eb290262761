#!/usr/bin/env python3
"""Exports a PyTorch checkpoint of an SRU model to the model repository of the SRU inference server.

The checkpoint is a state_dict (or a dict with a "state_dict" entry) written by torch.save, of a
module that holds an embedding (torch.nn.Embedding), an encoder (sru.SRU of the PyPI package "sru")
and a classifier (torch.nn.Linear). It becomes a directory REPOSITORY/MODEL/VERSION with
config.json, model.safetensors and vocab.txt, which FORMAT.md describes.

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

EPILOG = """\
the model config (--config) is a JSON object with these keys; any other key is informational:
  sru_config     the arguments that sru.SRU was made with: input_size and hidden_size, and where
                 they differ from the package's defaults num_layers, bidirectional, projection_size,
                 use_tanh, layer_norm, normalize_after, has_skip_term, rescale, v1,
                 proj_input_to_hidden_first, highway_bias. What matters to training only (dropout
                 and the like) is accepted and dropped; custom_m cannot be exported.
  pooling        @POOLINGS@: how token vectors become the classifier's input.
                 "none" for a model without a classifier.
  preprocessing  @PREPROCESSINGS@, or an object such as
                 {"type": "sentence_classification", "lowercase": true}. Also understood:
                 "none: split on whitespace", "clean_str, case kept", "clean_str, lower-cased".
  oov_id         the line of the vocabulary, from 0, that stands for unknown words.

example:
  export_torch.py --checkpoint question.pt --config question.json --vocab vocab.txt \\
      --labels labels.txt --out /srv/models/question/1
  sru_server --model_repository=/srv/models

A model that takes feature frames has no embedding: leave out --vocab, oov_id and preprocessing.
A model that only encodes has no classifier: leave out --labels.
"""

# kernels/stack_spec.h; "none" is for models without a classifier only.
POOLINGS = ("none", "first", "last", "max", "mean")
# models/config.h, each with its own keys and their defaults.
PREPROCESSINGS = {
    "whitespace": {},
    "lowercase": {},
    "sentence_classification": {"lowercase": False},
}

FORMAT_VERSION = 1

# The limits of the server (models/config.h).
MAX_WIDTH = 16384
MAX_LAYERS = 256
MAX_VOCABULARY = 1 << 24
MAX_LABELS = 65536

REQUIRED = object()

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
    **{kind: {"type": kind, **keys} for kind, keys in PREPROCESSINGS.items()},
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
        if (keys is not None and set(value) <= {"type", *keys}
                and all(isinstance(value.get(key, False), bool) for key in keys)):
            return {"type": kind, **{key: value.get(key, keys[key]) for key in keys}}
    raise ExportError(f"{source}: preprocessing: expected one of "
                      f"{', '.join(repr(name) for name in PREPROCESSING_NAMES)}, or an object with "
                      f"type and lowercase; found {json.dumps(value)}")


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


def expected_tensors(encoder, vocabulary_size, num_labels):
    """Names and shapes of the tensors of a model, as {name: (shape, optional)}.

    Follows the constructors of sru.SRU and sru.SRUCell.
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


def export(torch, arguments):
    out = check_out(arguments.out)
    if os.path.lexists(out) and not arguments.force:
        raise ExportError(exists_message(out))

    source_config = read_config(arguments.config)
    source = f"config {arguments.config}"
    encoder = read_encoder(source, source_config["sru_config"])
    config = {"format_version": FORMAT_VERSION}
    if arguments.description:
        config["description"] = arguments.description
    config["encoder"] = encoder

    words = []
    if arguments.vocab:
        words = read_lines(arguments.vocab, "vocabulary")
        if len(words) > MAX_VOCABULARY:
            raise ExportError(f"vocabulary {arguments.vocab}: expected at most {MAX_VOCABULARY} "
                              f"words, found {len(words)}")
        for key in ("oov_id", "preprocessing"):
            if key not in source_config:
                raise ExportError(f"{source}: key '{key}' is missing (see --help)")
        check_integer(source, "oov_id", source_config["oov_id"], 0, len(words) - 1)
        config["embedding"] = {"vocabulary_size": len(words), "oov_id": source_config["oov_id"]}
        config["preprocessing"] = read_preprocessing(source, source_config["preprocessing"])

    labels = read_lines(arguments.labels, "labels") if arguments.labels else []
    if len(labels) > MAX_LABELS:
        raise ExportError(f"labels {arguments.labels}: expected at most {MAX_LABELS}, "
                          f"found {len(labels)}")
    poolings = [name for name in POOLINGS if name != "none" or not labels]
    pooling = source_config.get("pooling", None if labels else "none")
    if pooling not in poolings:
        raise ExportError(f"{source}: pooling: expected one of {', '.join(poolings)}"
                          f"{' (the model has labels)' if labels else ''}, found "
                          f"{json.dumps(pooling)}")
    config["pooling"] = pooling
    if labels:
        config["labels"] = labels

    prefixes = {}
    if words:
        prefixes[arguments.embedding_prefix] = "embedding"
    if labels:
        prefixes[arguments.classifier_prefix] = "out"
    if arguments.encoder_prefix in prefixes or len(prefixes) != bool(words) + bool(labels):
        raise ExportError(
            "--embedding-prefix, --encoder-prefix and --classifier-prefix must differ")
    prefixes[arguments.encoder_prefix] = "encoder"
    # The longest first: a prefix may be the start of another.
    prefixes = dict(sorted(prefixes.items(), key=lambda item: -len(item[0])))

    state = load_state_dict(torch, arguments.checkpoint)
    tensors = collect_tensors(torch, f"checkpoint {arguments.checkpoint}", state, prefixes,
                              expected_tensors(encoder, len(words), len(labels)))

    def write(directory):
        with open(os.path.join(directory, "config.json"), "w", encoding="utf-8") as file:
            json.dump(config, file, indent=2, ensure_ascii=False)
            file.write("\n")
        write_safetensors(os.path.join(directory, "model.safetensors"), tensors)
        if words:
            with open(os.path.join(directory, "vocab.txt"), "w", encoding="utf-8",
                      newline="\n") as file:
                file.write("\n".join(words) + "\n")

    write_directory(out, arguments.force, write)

    repository = os.path.dirname(os.path.dirname(out))
    model = os.path.basename(os.path.dirname(out))
    weights = sum(tensor.numel() for name, tensor in tensors.items()
                  if not name.endswith(".scale_x"))  # a constant, not a weight
    print(f"wrote {out}:")
    for name in sorted(os.listdir(out)):
        print(f"  {name}  {os.path.getsize(os.path.join(out, name)):,} bytes")
    print(f"{encoder['num_layers']} layers, {weights:,} weights, {len(words):,} words, "
          f"{len(labels)} labels, pooling {pooling}.")
    print("Serve it and ask it:")
    print(f"  sru_server --model_repository={repository}")
    verb = "classify" if labels else "encode"
    print(f"  sru_client {verb} --model={model} 'your text'" if words else
          "  and send Features (proto/sru/v1/inference.proto) of "
          f"feature_size {encoder['input_size']}")


def make_epilog():
    def one_of(names):
        quoted = [f'"{name}"' for name in names]
        return f"{', '.join(quoted[:-1])} or {quoted[-1]}"

    return (EPILOG.replace("@POOLINGS@", one_of(POOLINGS[1:]))
            .replace("@PREPROCESSINGS@", one_of(PREPROCESSINGS)))


def parse_arguments(arguments):
    parser = argparse.ArgumentParser(
        prog="export_torch.py", description=__doc__, epilog=make_epilog(),
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", required=True, metavar="M.pt",
                        help="state_dict written by torch.save")
    parser.add_argument("--config", required=True, metavar="C.json", help="model config, see below")
    parser.add_argument("--vocab", metavar="V.txt",
                        help="vocabulary, one word per line, line number = id from 0")
    parser.add_argument("--labels", metavar="L.txt",
                        help="names of the classifier's outputs, one per line, in their order")
    parser.add_argument("--out", required=True, metavar="REPOSITORY/MODEL/VERSION",
                        help="directory to write; the version is a positive integer")
    parser.add_argument("--description", default="", help="free text for users of the model")
    parser.add_argument("--embedding-prefix", default="embedding", metavar="NAME",
                        help="name of the embedding in the module (default: %(default)s)")
    parser.add_argument("--encoder-prefix", default="encoder", metavar="NAME",
                        help="name of the sru.SRU in the module; empty when the checkpoint is that "
                        "of the sru.SRU itself (default: %(default)s)")
    parser.add_argument("--classifier-prefix", default="out", metavar="NAME",
                        help="name of the classifier in the module (default: %(default)s)")
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
